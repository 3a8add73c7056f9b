// A picture in, its classes and where the model looked out. Texts are only ever set as text, never as HTML.
"use strict";

const part = (id) => document.getElementById(id);
const views = [...document.querySelectorAll("input[name=view]")];
const PICTURE = "picture";
const OVERLAY = "overlay";
let model = null;
let asked = 0; // the number of the picture that was given last: answers to earlier ones are not shown

function headers() {
  const token = sessionStorage.getItem("token");
  return token ? { authorization: `Bearer ${token}` } : {};
}

async function reason(answer) {
  const told = await answer.json().catch(() => ({}));
  return [told.error || `the server answered ${answer.status}`, told.fix].filter(Boolean).join("; ");
}

// A server that is busy says when to come back; we do, a few times.
async function post(path, file, tries = 3) {
  const form = new FormData();
  form.append("file", file, file.name || "pasted picture");
  const answer = await fetch(path, { method: "POST", body: form, headers: headers() });
  if (answer.status === 401) part("door").hidden = false;
  if (answer.status === 503 && tries > 1) {
    const seconds = Number(answer.headers.get("retry-after")) || 1;
    await new Promise((done) => setTimeout(done, 1000 * seconds));
    return post(path, file, tries - 1);
  }
  if (!answer.ok) throw new Error(await reason(answer));
  return answer;
}

function complain(text) {
  part("problem").textContent = text;
  part("problem").hidden = !text;
}

function show(view) {
  part("overlay").hidden = view !== OVERLAY;
  part("picture").hidden = view === OVERLAY;
  for (const one of views) one.checked = one.value === view;
}

function setImage(image, blob) {
  if (image.src.startsWith("blob:")) URL.revokeObjectURL(image.src);
  image.onload = () => image.classList.toggle("small", Math.max(image.naturalWidth, image.naturalHeight) < 100);
  image.src = URL.createObjectURL(blob);
}

function tell(guesses) {
  const rows = guesses.map((guess) => {
    const share = `${(100 * guess.probability).toFixed(1)} %`;
    const row = document.createElement("li");
    const line = document.createElement("div");
    line.className = "class";
    for (const text of [guess.label, share]) line.append(Object.assign(document.createElement("span"), { textContent: text }));
    const bar = document.createElement("div");
    bar.className = "bar";
    bar.setAttribute("aria-hidden", "true");
    const filled = document.createElement("div");
    filled.style.width = `${100 * guess.probability}%`;
    bar.append(filled);
    row.append(line, bar);
    return row;
  });
  part("classes").replaceChildren(...rows);
  part("first").textContent = guesses.length ? guesses[0].label : "";
}

async function look(file) {
  const mine = ++asked;
  const isCurrent = () => mine === asked;
  complain("");
  show(PICTURE);
  views[1].disabled = true;
  part("classes").replaceChildren();
  part("first").textContent = "…";
  part("file-name").textContent = file.name || "";
  setImage(part("picture"), file);
  part("result").hidden = false;
  part("drop").classList.add("compact");
  part("status").textContent = "Looking…";
  const start = performance.now();
  const classes = async () => {
    if (!model || !model.classes.length) return void (part("first").textContent = "a model without classes");
    const told = await (await post("/predict", file)).json();
    if (isCurrent()) tell(told.predictions[0].top_k);
  };
  const overlay = async () => {
    if (!model || !model.can_explain) return;
    const drawn = await (await post("/explain", file)).blob();
    if (!isCurrent()) return;
    setImage(part("overlay"), drawn);
    views[1].disabled = false;
    show(OVERLAY);
  };
  const ends = await Promise.allSettled([classes(), overlay()]);
  if (!isCurrent()) return;
  const failed = ends.filter((end) => end.status === "rejected").map((end) => end.reason.message);
  if (ends[0].status === "rejected") part("result").hidden = true;
  complain([...new Set(failed)].join("; "));
  part("status").textContent = failed.length ? "" : `Answered in ${Math.round(performance.now() - start)} ms`;
}

function take(files) {
  const file = [...files].find((one) => one.type.startsWith("image/")) || files[0];
  if (file) look(file).catch((error) => complain(error.message));
}

async function meet() {
  const answer = await fetch("/model", { headers: headers() });
  part("door").hidden = answer.status !== 401;
  if (answer.status === 401) return;
  if (!answer.ok) return complain(await reason(answer));
  model = await answer.json();
  document.title = `${model.name} · vitscope`;
  part("name").textContent = model.name;
  const count = model.classes.length;
  const classes = count === 0 ? "no classes" : `${count} class${count > 1 ? "es" : ""}`;
  part("about").textContent = `${model.kind}, ${classes}, ${model.img_size.join(" × ")} pixels, on ${model.device}`;
  if (!model.can_explain) part("views").hidden = true;
}

part("choose").addEventListener("click", () => part("file").click());
part("file").addEventListener("change", (event) => {
  take(event.target.files);
  event.target.value = ""; // so that the same file can be chosen again
});
for (const one of views) one.addEventListener("change", () => show(one.value));
part("door").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", part("token").value.trim());
  complain("");
  meet().catch((error) => complain(error.message));
});

// The whole page takes what is dropped: a picture beside the frame would make the browser leave the page.
document.addEventListener("dragover", (event) => {
  event.preventDefault();
  part("drop").classList.add("over");
});
document.addEventListener("dragleave", (event) => {
  if (!event.relatedTarget) part("drop").classList.remove("over");
});
document.addEventListener("drop", (event) => {
  event.preventDefault();
  part("drop").classList.remove("over");
  take(event.dataTransfer.files);
});
document.addEventListener("paste", (event) => take(event.clipboardData.files));

meet().catch((error) => complain(error.message));

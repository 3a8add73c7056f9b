"""What a person does on the page, done by a real browser: run as a script, it prints what there was to see as JSON.

    python3 tests/serve/browse.py http://127.0.0.1:8000 picture.jpg [--screenshot page.png] [--token-file token]

It needs selenium, chromium and its driver, which `make browser` installs from Debian; so it runs with Debian's own
Python, and imports nothing of ours.
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path

from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

LIMIT_S = 60
# A drop as the system would send it: a DataTransfer with the file in it, on whatever lies under the pointer.
DROP = """
const [image, name, kind, onto] = arguments;
const canvas = document.createElement("canvas");
[canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
canvas.getContext("2d").drawImage(image, 0, 0);
canvas.toBlob((blob) => {
  const carried = new DataTransfer();
  carried.items.add(new File([kind === "image/png" ? blob : "no picture"], name, { type: kind }));
  for (const what of ["dragenter", "dragover", "drop"]) {
    onto.dispatchEvent(new DragEvent(what, { bubbles: true, cancelable: true, dataTransfer: carried }));
  }
});
"""
SEEN = """
const part = (id) => document.getElementById(id);
const width = (element) => element.getBoundingClientRect().width;
const shown = (id) => width(part(id)) * part(id).getBoundingClientRect().height > 0;
const row = (one) => ({
  label: one.querySelector("span").textContent,
  share: one.querySelector("span:last-child").textContent,
  bar: width(one.querySelector(".bar div")) / width(one.querySelector(".bar")),
});
const loaded = performance.getEntriesByType("resource").map((one) => one.name);
return {
  title: document.title,
  name: part("name").textContent,
  about: part("about").textContent,
  first: part("first").textContent,
  bars: [...document.querySelectorAll("#classes li")].map(row),
  markup: document.querySelectorAll("#classes b").length,
  status: part("status").textContent,
  problem: shown("problem") ? part("problem").textContent : "",
  result: shown("result"),
  door: shown("door"),
  overlay: shown("overlay"),
  picture: shown("picture"),
  overlay_size: [part("overlay").naturalWidth, part("overlay").naturalHeight],
  width: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  focus: document.activeElement.id || document.activeElement.value || "",
  elsewhere: loaded.filter((name) => !name.startsWith(location.origin) && !name.startsWith("blob:")),
};
"""


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("picture", type=Path)
    parser.add_argument("--screenshot", type=Path)
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--tour", action="store_true", help="keys, a bad file and a narrow window too")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        browser = start(folder)
        try:
            page = Page(browser)
            told = page.visit(args)
            json.dump(told, sys.stdout)
        finally:
            browser.quit()


def start(folder):
    options = Options()
    options.binary_location = "/usr/bin/chromium"
    for word in ("--headless=new", "--window-size=1100,900", f"--user-data-dir={folder}", "--force-color-profile=srgb"):
        options.add_argument(word)
    if os.geteuid() == 0:  # root may not have Chromium's sandbox
        options.add_argument("--no-sandbox")
    options.add_argument("--disable-dev-shm-usage")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    return webdriver.Chrome(service=Service("/usr/bin/chromedriver"), options=options)


class Page:
    def __init__(self, browser):
        self.browser = browser

    def visit(self, args):
        told = {}
        self.browser.get(args.address)
        if args.token_file is not None:
            self.until("return !document.getElementById('door').hidden")
            told["locked"] = self.seen()
            self.browser.find_element(By.ID, "token").send_keys(args.token_file.read_text().strip(), Keys.ENTER)
        self.until("return document.getElementById('about').textContent.trim() !== ''")
        self.choose(args.picture)
        told["chosen"] = self.seen()
        if args.screenshot is not None:
            self.browser.save_screenshot(str(args.screenshot))
        if args.tour:
            told.update(self.tour(args.picture))
        told["console"] = [entry["message"] for entry in self.browser.get_log("browser")]
        return told

    def tour(self, picture):
        told = {}
        self.browser.execute_script("document.querySelector('input[value=overlay]').focus()")
        self.press(Keys.ARROW_LEFT)
        told["by_keys_picture"] = self.seen()
        self.press(Keys.ARROW_RIGHT)
        told["by_keys_overlay"] = self.seen()
        self.browser.refresh()
        self.until("return document.getElementById('about').textContent.trim() !== ''")
        self.press(Keys.TAB)
        told["first_tab"] = self.seen()
        self.drop("bad.png", "image/bad", "footer")
        self.until("return !document.getElementById('problem').hidden")
        told["bad"] = self.seen()
        self.choose(picture)
        self.drop("dropped.png", "image/png", "#drop")
        self.until("return document.getElementById('file-name').textContent === 'dropped.png'")
        self.answered()
        told["dropped"] = self.seen()
        self.browser.set_window_size(500, 900)
        told["narrow"] = self.seen()
        return told

    def choose(self, picture):
        self.browser.find_element(By.ID, "file").send_keys(str(picture.resolve()))
        self.answered()

    def drop(self, name, kind, onto):
        """The picture the page shows, or with another kind than PNG something that is none."""
        shown = self.browser.find_element(By.CSS_SELECTOR, "#picture" if kind == "image/png" else "header img")
        self.browser.execute_script(DROP, shown, name, kind, self.browser.find_element(By.CSS_SELECTOR, onto))

    def answered(self):
        """Until there is an answer or a complaint, and the bars stand still."""
        script = "const word = document.getElementById('status').textContent;"
        self.until(script + "return word.startsWith('Answered') || !document.getElementById('problem').hidden")
        self.until("return document.getAnimations().every((one) => one.playState === 'finished')")

    def press(self, key):
        self.browser.switch_to.active_element.send_keys(key)

    def seen(self):
        return self.browser.execute_script(SEEN)

    def until(self, script):
        WebDriverWait(self.browser, LIMIT_S, poll_frequency=0.05).until(lambda browser: browser.execute_script(script))


if __name__ == "__main__":
    main()

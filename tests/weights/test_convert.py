"""`convert`: what is written is opened again and compared; all of it or nothing; a certificate beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import save_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import to_dict
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights import convert as convert_file
from vitscope.weights import folder as folder_file
from vitscope.weights.convert import To, convert
from vitscope.weights.folder import load_labels, load_preprocessing, save_model
from vitscope.weights.formats import timm_folder
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)
SEEN = PreprocessConfig(img_size=(32, 32), crop_share=0.9, mean=(0.1, 0.2, 0.3), std=(0.4, 0.5, 0.6))


def network(seed: int = 0) -> Any:
    model = build_model(TINY)
    fill_with_large_random_weights(model, seed)
    return model.eval()


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    wrapped = {f"module.{name}": tensor for name, tensor in network().state_dict().items()}
    torch.save({"state_dict": wrapped, "epoch": 3}, tmp_path / "weights.pth")
    return tmp_path / "weights.pth"


def test_a_bare_file_becomes_a_folder_that_loads_bit_for_bit(file: Path, tmp_path: Path) -> None:
    certificate = convert(file, tmp_path / "out", config=TINY, prove=False)
    loaded = load_model(tmp_path / "out")
    for name, tensor in network().state_dict().items():
        assert torch.equal(tensor, loaded.state_dict()[name]), name
    assert certificate.covered == 1
    assert certificate.written is not None
    assert certificate.written.same == certificate.written.tensors == len(loaded.state_dict())
    assert certificate.written.lost == ()
    told = json.loads((tmp_path / "out/certificate.json").read_text())
    assert told == json.loads(json.dumps(certificate.to_dict()))
    assert told["written"]["sha256"] == loaded.certificate.sha256
    assert told["sha256"] == {"weights.pth": certificate.sha256["weights.pth"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "weights.pth"]


def test_what_lies_beside_the_weights_goes_along(tmp_path: Path) -> None:
    labels = ["cat", "dog", "elk", "fox", "owl"]
    save_model(network(), tmp_path / "m", labels=labels, preprocessing=SEEN)
    convert(tmp_path / "m", tmp_path / "out", img_size=48)
    assert load_labels(tmp_path / "out") == labels
    seen = load_preprocessing(tmp_path / "out")
    assert (seen.img_size, seen.mean, seen.crop_share) == ((48, 48), SEEN.mean, 0.9)


def test_what_is_asked_for_is_done_and_told(file: Path, tmp_path: Path) -> None:
    certificate = convert(file, tmp_path / "out", config=TINY, img_size=48, num_classes=3, dtype=torch.bfloat16)
    loaded = load_model(tmp_path / "out")
    assert (loaded.config.img_size, loaded.num_classes) == (48, 3)
    assert {tensor.dtype for tensor in loaded.state_dict().values()} == {torch.bfloat16}
    assert [entry.ours for entry in certificate.of("resampled")] == ["pos_embed"]
    assert [entry.ours for entry in certificate.of("new")] == ["head.weight", "head.bias"]
    assert certificate.written is not None
    assert certificate.written.same == certificate.written.tensors


def test_numbers_too_large_for_the_type_are_refused(file: Path, tmp_path: Path) -> None:
    content = torch.load(file)
    content["state_dict"]["module.head.bias"][0] = 1e6
    torch.save(content, file)
    with pytest.raises(VitscopeError, match=r"head\.bias holds numbers up to 1e\+06, more than torch\.float16 can"):
        convert(file, tmp_path / "out", config=TINY, dtype=torch.float16)
    assert not (tmp_path / "out").exists()


def test_not_a_number_equals_itself(tmp_path: Path) -> None:
    state = network().state_dict()
    state["head.bias"][:3] = torch.tensor([float("nan"), float("inf"), -0.0])
    save_file(state, tmp_path / "weights.safetensors")
    certificate = convert(tmp_path / "weights.safetensors", tmp_path / "out", config=TINY, prove=False)
    assert certificate.written is not None
    assert certificate.written.lost == ()
    assert certificate.warnings == ("2 numbers are not finite",)


@pytest.mark.parametrize("change", [lambda t: t + 1e-6, lambda t: -t, lambda t: t.bfloat16()], ids=["+", "-", "bf16"])
@pytest.mark.parametrize("there_before", [True, False])
def test_a_tensor_that_comes_back_otherwise_is_an_error(
    change: Any, there_before: bool, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is broken, and convert sees it."""
    if there_before:
        save_model(network(7), tmp_path / "out")
    before = snapshot(tmp_path)
    write_weights = folder_file.write_weights

    def broken(tensors: Any, folder: Path, **settings: Any) -> None:
        write_weights({**tensors, "head.bias": change(tensors["head.bias"])}, folder, **settings)

    monkeypatch.setattr(folder_file, "write_weights", broken)
    with pytest.raises(VitscopeError, match=r"1 tensors are not the same .* again: head\.bias"):
        convert(file, tmp_path / "out", config=TINY, overwrite=True)
    assert snapshot(tmp_path) == before
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_minus_zero_is_not_a_zero(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    content = torch.load(file)
    content["state_dict"]["module.head.bias"].zero_()
    torch.save(content, file)
    write_weights = folder_file.write_weights

    def broken(tensors: Any, folder: Path, **settings: Any) -> None:
        write_weights({**tensors, "head.bias": -tensors["head.bias"]}, folder, **settings)

    monkeypatch.setattr(folder_file, "write_weights", broken)
    with pytest.raises(VitscopeError, match="are not the same"):
        convert(file, tmp_path / "out", config=TINY)


def test_an_older_result_is_replaced_only_when_told(file: Path, tmp_path: Path) -> None:
    convert(file, tmp_path / "out", config=TINY)
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="already holds a model"):
        convert(file, tmp_path / "out", config=TINY, num_classes=3)
    assert snapshot(tmp_path) == before
    convert(file, tmp_path / "out", config=TINY, num_classes=3, overwrite=True)
    assert load_model(tmp_path / "out").num_classes == 3


@pytest.mark.parametrize("to", get_args(To))
@pytest.mark.parametrize("overwrite", [True, False])
def test_something_else_is_never_touched(to: Any, overwrite: bool, file: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out/thesis.tex").write_text("precious")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="is not a"):
        convert(file, tmp_path / "out", config=TINY, to=to, overwrite=overwrite)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("to", "key"), [("timm", "architecture"), ("huggingface", "model_type")])
def test_a_folder_of_theirs_that_convert_did_not_write_is_left_alone(
    to: Any, key: str, file: Path, tmp_path: Path
) -> None:
    """Refused before anything is loaded or written."""
    out = tmp_path / "out"
    out.mkdir()
    (out / "config.json").write_text(json.dumps({key: "vit"}))
    (out / "model.safetensors").write_text("precious")
    before = snapshot(tmp_path)
    for overwrite in (False, True):
        with pytest.raises(VitscopeError, match="as convert wrote it, and would be lost"):
            convert(file, out, config=TINY, to=to, overwrite=overwrite)
    assert snapshot(tmp_path) == before


def test_an_unknown_format_is_refused(file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="to: expected one of vitscope, timm, huggingface") as refused:
        convert(file, tmp_path / "out", config=TINY, to="tim")  # type: ignore[arg-type]
    assert "timm" in str(refused.value.fix)


@pytest.mark.parametrize("to", ["vitscope", "huggingface"])
def test_only_timm_has_bare_files(to: Any, file: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="out: expected a folder"):
        convert(file, tmp_path / "out.safetensors", config=TINY, to=to)


def test_a_partial_source_is_refused_and_nothing_written(file: Path, tmp_path: Path) -> None:
    content = torch.load(file)
    del content["state_dict"]["module.norm.weight"]
    torch.save(content, file)
    with pytest.raises(VitscopeError, match=r"1 missing: norm\.weight"):
        convert(file, tmp_path / "out", config=TINY)
    assert not (tmp_path / "out").exists()
    certificate = convert(file, tmp_path / "out", config=TINY, allow_partial=True)
    assert [entry.ours for entry in certificate.of("missing")] == ["norm.weight"]


@pytest.mark.parametrize("out", ["as-timm", "bare.safetensors"])
def test_an_eps_timm_has_no_name_for_is_told_and_nothing_else_is_excused_by_it(out: str, tmp_path: Path) -> None:
    """Fresh weights give small activations, which an eps of 1e-6 instead of Hugging Face's 1e-12 moves by more than
    rounding does. The proof is of the model as timm will compute it; what the eps does is measured and said."""
    torch.manual_seed(0)
    quiet = build_model(ViTConfig(**{**to_dict(TINY), "norm_eps": 1e-12}))
    with torch.no_grad():
        for parameter in quiet.patch_embed.parameters():  # type: ignore[union-attr]
            parameter.mul_(0.01)
        for name in ("cls_token", "pos_embed"):
            quiet.get_parameter(name).mul_(0.01)
        quiet.get_parameter("head.weight").normal_()
    save_model(quiet, tmp_path / "model")
    written = convert(tmp_path / "model", tmp_path / out, to="timm").written
    assert written is not None
    assert written.proof is not None
    assert written.proof.is_close
    assert written.same == written.tensors
    (said,) = [remark for remark in written.remarks if "eps 1e-12" in remark]
    moved, reach = (float(number) for number in re.findall(r"(?:up to|reach) (\d\.\de[-+]\d\d)", said))
    assert moved > 2e-5 * max(1.0, reach), "else the test proves nothing"


def test_what_cannot_be_held_is_refused_before_weights_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_model(network(), tmp_path / "model")
    monkeypatch.setattr(convert_file, "load_opened", None)
    with pytest.raises(ConfigError, match="img_size"):
        convert(tmp_path / "model", tmp_path / "out", img_size=33)
    save_model(build_model(ViTConfig(**{**to_dict(TINY), "pool": "mean", "class_token": False})), tmp_path / "mean")
    with pytest.raises(ConfigError, match="it has no class token") as caught:
        convert(tmp_path / "mean", tmp_path / "out", to="huggingface")
    assert caught.value.where == "writing for Hugging Face"


def test_stages_are_told(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model")
    told: list[str] = []
    convert(tmp_path / "model", tmp_path / "out", to="timm", say=told.append)
    assert [line.partition(" ")[0] for line in told] == ["reading", "writing", "reading", "asking"]
    assert "asking" not in told[0], "the folder is our own: no library knows more of it"
    told.clear()
    convert(tmp_path / "out", tmp_path / "again", say=told.append)
    assert told[0].endswith(", and asking the library it comes from")


def test_a_card_and_notes_stay_with_a_model_that_stays_the_same(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model", readme="# mine\n", notes={"licence": "MIT"})
    convert(tmp_path / "model", tmp_path / "same")
    assert (tmp_path / "same/README.md").read_text() == "# mine\n"
    assert folder_file.read_notes(tmp_path / "same") == {"licence": "MIT"}
    convert(tmp_path / "model", tmp_path / "larger", img_size=48)
    assert "48 x 48" in (tmp_path / "larger/README.md").read_text()


@pytest.mark.parametrize("to", ["timm", "huggingface"])
def test_only_a_folder_of_converts_own_is_replaced(to: Any, tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model")
    convert(tmp_path / "model", tmp_path / "out", to=to)
    with pytest.raises(VitscopeError, match="already exists") as refused:
        convert(tmp_path / "model", tmp_path / "out", to=to)
    assert "--overwrite" in str(refused.value.fix)
    convert(tmp_path / "model", tmp_path / "out", to=to, overwrite=True)
    (tmp_path / "out/notes.md").write_text("precious")
    with pytest.raises(VitscopeError, match="as convert wrote it, and would be lost"):
        convert(tmp_path / "model", tmp_path / "out", to=to, overwrite=True)
    (tmp_path / "out/notes.md").unlink()
    (tmp_path / "out/model.safetensors").write_bytes((tmp_path / "model/model.safetensors").read_bytes() + b" ")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="as convert wrote it, and would be lost"):
        convert(tmp_path / "model", tmp_path / "out", to=to, overwrite=True)
    (tmp_path / "out/certificate.json").unlink()
    with pytest.raises(VitscopeError, match="as convert wrote it, and would be lost"):
        convert(tmp_path / "model", tmp_path / "out", to=to, overwrite=True)
    assert {**snapshot(tmp_path), "out/certificate.json": before["out/certificate.json"]} == before


# --- a bare file, written by a stand-in -----------------------------------------------------------------------------


def stand_in(model: Any, path: Path) -> list[str]:
    save_file(dict(model.state_dict()), path)
    return []


def test_a_bare_file_has_its_certificate_beside_it(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_folder, "save_file", stand_in, raising=False)
    out = tmp_path / "new" / "b.safetensors"
    convert(file, out, to="timm", config=TINY, prove=False)
    assert sorted(path.name for path in out.parent.iterdir()) == ["b.safetensors", "b.safetensors.certificate.json"]
    told = json.loads((tmp_path / "new/b.safetensors.certificate.json").read_text())
    assert told["written"]["place"] == "b.safetensors"
    assert list(told["written"]["sha256"]) == ["b.safetensors"]
    with pytest.raises(VitscopeError, match="already exists"):
        convert(file, out, to="timm", config=TINY, prove=False)
    convert(file, out, to="timm", config=TINY, num_classes=3, prove=False, overwrite=True)
    assert load_model(out, config=TINY, num_classes=3).num_classes == 3


def test_only_a_file_of_converts_own_is_replaced(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timm_folder, "save_file", stand_in, raising=False)
    out = tmp_path / "b.pth"
    torch.save(network(7).state_dict(), out)  # somebody's training
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="is not a file convert wrote"):
        convert(file, out, to="timm", config=TINY, prove=False, overwrite=True)
    assert snapshot(tmp_path) == before
    out.unlink()
    convert(file, out, to="timm", config=TINY, prove=False)
    torch.save(network(7).state_dict(), out)  # the certificate speaks of another file now
    with pytest.raises(VitscopeError, match="is not a file convert wrote"):
        convert(file, out, to="timm", config=TINY, prove=False, overwrite=True)


def without_a_bias(model: Any, path: Path) -> list[str]:
    save_file({name: t for name, t in model.state_dict().items() if name != "norm.bias"}, path)
    return ["open it with timm"]


def louder(model: Any, path: Path) -> list[str]:
    save_file({name: t * 1.01 if name == "norm.weight" else t for name, t in model.state_dict().items()}, path)
    return ["open it with timm"]


def folded(model: Any, path: Path) -> list[str]:
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    state["cls_token"] = state["cls_token"] + state["pos_embed"][:, :1]
    state["pos_embed"][:, 0] = 0
    save_file(state, path)
    return ["the class token's position was folded into it"]


@pytest.mark.parametrize(
    ("writer", "said"),
    [
        (without_a_bias, r"1 missing: norm\.bias"),
        (louder, r"1 tensors are not the same .* again: norm\.weight"),
        (folded, r"2 tensors are not the same .* again: cls_token, pos_embed"),
    ],
)
def test_no_remark_excuses_a_tensor_that_does_not_come_back(
    writer: Any, said: str, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timm_folder, "save_file", writer, raising=False)
    with pytest.raises(VitscopeError, match=said):
        convert(file, tmp_path / "b.safetensors", to="timm", config=TINY, prove=False)
    assert not (tmp_path / "b.safetensors").exists()


def test_settings_that_come_back_as_others_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tensors are the same, and the model is not."""
    save_model(network(), tmp_path / "model")
    write = timm_folder.save_folder

    def with_another_activation(model: Any, folder: Path) -> list[str]:
        remarks = write(model, folder)
        described = json.loads((folder / "config.json").read_text())
        described.setdefault("model_args", {})["act_layer"] = "relu"
        (folder / "config.json").write_text(json.dumps(described))
        return remarks

    monkeypatch.setattr(timm_folder, "save_folder", with_another_activation)
    with pytest.raises(VitscopeError, match="the model answers otherwise when the timm files are opened again"):
        convert(tmp_path / "model", tmp_path / "out", to="timm", prove=False)
    assert not (tmp_path / "out").exists()


def test_a_failure_leaves_the_old_file_and_its_certificate(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timm_folder, "save_file", stand_in, raising=False)
    convert(file, tmp_path / "b.pth", to="timm", config=TINY, prove=False)
    before = snapshot(tmp_path)

    def full(*_: Any) -> Any:
        raise OSError(28, "No space left on device")

    for name in ("flush", "write_json", "load_opened"):
        with monkeypatch.context() as patch:
            patch.setattr(convert_file, name, full)
            with pytest.raises((OSError, TypeError)):
                convert(file, tmp_path / "b.pth", to="timm", config=TINY, prove=False, overwrite=True)
        assert snapshot(tmp_path) == before


@pytest.mark.parametrize("out", ["", " ", "w.npz", "w.NPZ", "w.ckpt", "model/inside", "model/inside.pth"])
def test_places_that_are_refused(out: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    with pytest.raises(ConfigError, match="out: expected"):
        convert("model", out, to="timm")
    assert [path.name for path in tmp_path.rglob("*")] == ["model"]

"""Like mistakes have like exit codes, whichever verb they are made with: 2 for what was typed, 3 for what is in it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitscope.cli.main import main
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)
RIGHT = {
    "predict": "MODEL photos --out new.csv",
    "eval": "MODEL --data digits",
    "explain": "MODEL photos/0.png --out new.png",
    "features": "MODEL photos --out new.npz",
    "bench": "MODEL --cheaper --images photos",
    "export": "MODEL --out new.onnx",
    "convert": "MODEL new",
    "serve": "MODEL --port 0",
    "doctor": "MODEL --only settings --html new.html",
}
"""A command of each verb with which nothing is wrong, once MODEL is one."""
THERE = {"doctor": "digits_vit"}
"""What stands for MODEL where that is no folder of weights."""
ALL = tuple(RIGHT)
WITH_PICTURES = {
    "predict": "model PICTURES",
    "eval": "model --data PICTURES",
    "explain": "model PICTURES",
    "features": "model PICTURES --out new.npz",
    "bench": "model --cheaper --images PICTURES",
    "export": "model --out new.onnx --images PICTURES",
    "doctor": "--data PICTURES",
}
BAD_VALUES = {
    "predict": ("--top-k 0", "--dtype fp17", "--device gpu"),
    "eval": ("--batch-size 0", "--part tset", "--device gpu"),
    "explain": ("--layer 9", "--head 9", "--patch 9 9", "--method rolout", "--target 9", "--device gpu"),
    "features": ("--layers 9", "--top-k 0", "--tokens clss", "--device gpu"),
    "bench": ("--batch 0", "--ways int9", "--device gpu"),
    "export": ("--opset 3", "--dtype fp17", "--img-size 0"),
    "convert": ("--img-size 0", "--to tim", "--dtype fp17"),
    "serve": ("--port 70000", "--dtype fp17", "--device gpu"),
    "doctor": ("--only seting", "--lang fr", "--html photos", "--replay x", "--device gpu", "--optim.lr=-1"),
}
TAKEN = {"predict": "new.csv", "explain": "new.png", "features": "new.npz", "export": "new.onnx", "convert": "new"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exit-codes")
    save_model(build_model(TINY), folder / "model", labels=["cat", "dog", "owl"])
    (folder / "photos").mkdir()
    (folder / "empty").mkdir()
    Image.fromarray(np.zeros((20, 30, 3), np.uint8)).save(folder / "photos/0.png")
    return folder


@pytest.fixture
def here(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def right(verb: str) -> str:
    return RIGHT[verb].replace("MODEL", THERE.get(verb, "model"))


def mistakes() -> Iterator[tuple[str, str, int]]:
    for verb in ALL:
        yield verb, "", 2
        for missing in ("nowhere", "no/such/model", "nothing.safetensors", "photos/model", "empty"):
            yield verb, RIGHT[verb].replace("MODEL", missing), 2
        if verb != "bench":  # which takes the name of a model that has no weights yet
            yield verb, RIGHT[verb].replace("MODEL", "vit_tiny"), 2
        yield verb, f"{right(verb)} --no-such-flag 1", 2
        for flags in BAD_VALUES[verb]:
            yield verb, f"{right(verb)} {flags}", 2
    for verb, words in WITH_PICTURES.items():
        yield verb, words.replace("PICTURES", "empty"), 3
        yield verb, words.replace("PICTURES", "photos/none.png"), 2 if verb in ("eval", "doctor") else 3


@pytest.mark.parametrize(("verb", "words", "code"), list(mistakes()))
def test_a_mistake(verb: str, words: str, code: int, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, *words.split()]) == code
    out, err = capsys.readouterr()
    assert "error: " in out + err or "could not be read" in out
    assert "Traceback" not in err


@pytest.mark.parametrize("verb", ALL)
@pytest.mark.parametrize(("name", "content"), [("notes.pth", b"not weights\n"), ("torn.safetensors", b"\x80\x00\xff")])
def test_a_file_that_holds_no_weights(
    verb: str, name: str, content: bytes, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is there and cannot be read: 1. Where only a folder or settings can be meant, it was typed wrongly: 2."""
    (here / name).write_bytes(content)
    assert main([verb, *RIGHT[verb].replace("MODEL", name).split()]) == (2 if verb in ("eval", "doctor") else 1)
    said = capsys.readouterr().err
    assert name in said
    assert "codec" not in said
    assert sorted(entry.name for entry in here.iterdir()) == sorted([name, "empty", "model", "photos"])


@pytest.mark.parametrize("verb", ["train", "sparsify", "doctor"])
def test_weights_in_the_place_of_settings(verb: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "model/model.safetensors"]) == 2
    error, where, todo = capsys.readouterr().err.splitlines()
    assert error == "error: cannot read the settings: the file is no text"
    assert where == "where: model/model.safetensors"
    assert "--from" in todo


@pytest.mark.parametrize("verb", TAKEN)
def test_what_is_there_is_kept(verb: str, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = here / TAKEN[verb]
    if verb == "convert":
        shutil.copytree(here / "model", there)
        there /= "config.json"
    else:
        there.write_bytes(b"mine")
    before = there.read_bytes()
    assert main([verb, *right(verb).split()]) == 2
    said = capsys.readouterr().err
    assert "--overwrite" in said
    assert "overwrite=True" not in said
    assert there.read_bytes() == before


@pytest.mark.parametrize("verb", [verb for verb in ALL if verb not in ("serve", "eval", "bench", "export")])
def test_with_which_nothing_else_is_wrong(verb: str, here: Path) -> None:
    """Of the verbs that are quick; the others have tests of their own."""
    device = () if verb == "convert" else ("--device", "cpu")
    assert main([verb, *right(verb).split(), *device]) == 0

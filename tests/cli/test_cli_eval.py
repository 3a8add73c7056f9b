"""`vitscope eval`: the same figures as counted by hand, classes matched by name, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.cli.main import main
from vitscope.core.yaml import to_yaml
from vitscope.data.config import DataConfig, PreprocessConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.train.classes import class_order, said_of_numbers
from vitscope.train.config import TrainConfig
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=8, patch_size=4, in_chans=1, num_classes=10, embed_dim=16, depth=1, num_heads=2)
SEEN = PreprocessConfig(img_size=(8, 8), in_chans=1, mean=(0.3,), std=(0.4,))


def network(num_classes: int = 10) -> VisionModel:
    """Weights large enough that it does not say the same to every picture."""
    torch.manual_seed(5)
    model = build_model(ViTConfig(**{**vars(TINY), "num_classes": num_classes}))
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return model


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(here: Path) -> Path:
    return save_model(network(), here / "model", preprocessing=SEEN)


@pytest.fixture
def run_folder(here: Path) -> Path:
    """As a run leaves it; its split is not the usual one."""
    run = here / "runs" / "digits-001"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text(to_yaml(TrainConfig(data=DataConfig(name="digits", split_seed=3))))
    save_model(network(), run / "model", preprocessing=SEEN)
    return run


@pytest.fixture
def pets(here: Path) -> Path:
    rng = np.random.default_rng(0)
    for part in ("train", "val", "test"):
        for name in ("cat", "dog", "owl"):
            (here / "pets" / part / name).mkdir(parents=True)
            for number in range(12):
                pixels = rng.integers(0, 256, (8, 8), dtype=np.uint8)
                Image.fromarray(pixels).save(here / "pets" / part / name / f"{number}.png")
    return here / "pets"


def told(capsys: pytest.CaptureFixture[str], *args: str) -> dict[str, Any]:
    assert main(["eval", *args, "--json"]) == 0, capsys.readouterr().err
    return json.loads(capsys.readouterr().out)


def refused(capsys: pytest.CaptureFixture[str], code: int, *args: str) -> str:
    assert main(["eval", *args]) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert [line.split(":")[0] for line in err.splitlines()] == ["error", "where", "to do"]
    return err


def by_hand(folder: Path, data: DataConfig, part: Any) -> list[tuple[int, int]]:
    """(label, prediction) of every picture, one at a time."""
    model = load_model(folder)
    dataset = open_dataset(data)
    loader = make_loader(dataset, part, preprocess=SEEN, training=False, batch_size=1)
    with torch.no_grad():
        return [(int(batch.labels), int(model(batch.images).argmax())) for batch in loader.epoch(0)]


# --- what it measures -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("part", ["train", "val", "test"])
def test_a_model_is_measured_as_by_hand(part: str, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "model", "--data", "digits", "--part", part)
    pairs = by_hand(model, DataConfig(name="digits"), part)
    right = sum(label == predicted for label, predicted in pairs)
    assert (found["count"], found["part"], found["data"]) == (len(pairs), part, "digits")
    assert found["accuracy"] == right / len(pairs)
    assert 0 < found["accuracy_95"][0] < found["accuracy"] < found["accuracy_95"][1] < 1
    assert found["accuracy"] < found["top5"] < 1
    assert found["no_answer"] == 0
    labels, hits = Counter(label for label, _ in pairs), Counter(label for label, told in pairs if label == told)
    assert [(row["count"], row["correct"]) for row in found["classes"]] == [(labels[k], hits[k]) for k in range(10)]
    wrong = Counter((str(label), str(taken)) for label, taken in pairs if label != taken)
    assert {(row["true"], row["predicted"]): row["count"] for row in found["confusions"]} == wrong
    counts = [row["count"] for row in found["confusions"]]
    assert counts == sorted(counts, reverse=True)


def test_a_run_brings_its_data(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(run_folder))
    pairs = by_hand(run_folder / "model", DataConfig(name="digits", split_seed=3), "test")
    assert found["accuracy"] == sum(label == predicted for label, predicted in pairs) / len(pairs)
    assert found["loss"] != told(capsys, str(run_folder), "--part", "val")["loss"]
    again = told(capsys, str(run_folder / "model"), "--data", "digits", "--batch-size", "7", "--device", "cpu")
    assert (again["accuracy"], again["confusions"]) == (found["accuracy"], found["confusions"])
    assert again["loss"] == pytest.approx(found["loss"], rel=1e-5)


def test_other_data_than_the_runs(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, str(run_folder), "--data", "shapes:size=8,count=200")
    assert found["data"] == "shapes:size=8,count=200"
    assert found["count"] == 40


def test_the_tables_say_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = told(capsys, "model", "--data", "digits")
    assert main(["eval", "model", "--data", "digits"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == f"model on digits, test: {found['count']} pictures"
    low, high = found["accuracy_95"]
    assert lines[1].startswith(f"accuracy {found['accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}), top-5 ")
    assert lines[1].endswith(f"loss {found['loss']:.4f}")
    for row in found["classes"]:
        assert [row["name"], str(row["count"]), f"{row['accuracy']:.1%}"] in [line.split() for line in lines]
    start = next(place for place, line in enumerate(lines) if line.split() == ["true", "predicted", "count"]) + 1
    worst = found["confusions"][0]
    assert lines[start].split() == [worst["true"], worst["predicted"], str(worst["count"])]
    assert lines[-1] == f"and {len(found['confusions']) - 10} more pairs"


def test_few_classes_have_no_top_5(here: Path, pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(network(3), here / "three", preprocessing=SEEN, labels=["cat", "dog", "owl"])
    assert told(capsys, "three", "--data", "pets")["top5"] is None
    assert main(["eval", "three", "--data", "pets"]) == 0
    out = capsys.readouterr().out
    assert "top-5" not in out
    assert "owl" in out


def test_logits_that_are_not_numbers_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = network()
    torch.nn.init.constant_(broken.get_parameter("head.bias"), torch.nan)
    save_model(broken, here / "broken", preprocessing=SEEN)
    found = told(capsys, "broken", "--data", "digits")
    assert (found["loss"], found["accuracy"], found["no_answer"]) == ("NaN", 0.0, 359)
    assert main(["eval", "broken", "--data", "digits"]) == 0
    assert "359 pictures got no answer" in capsys.readouterr().out


# --- whose classes ----------------------------------------------------------------------------------------------


def test_a_model_in_another_order_is_as_good(here: Path, pets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The same network with the rows of its head and its labels moved together is the same classifier."""
    order = [2, 0, 1]
    first, moved = network(3), network(3)
    with torch.no_grad():
        for name in ("head.weight", "head.bias"):
            moved.get_parameter(name).copy_(first.get_parameter(name)[order])
    names = ["cat", "dog", "owl"]
    save_model(first, here / "first", preprocessing=SEEN, labels=names)
    save_model(moved, here / "moved", preprocessing=SEEN, labels=[names[k] for k in order])
    save_model(moved, here / "misnamed", preprocessing=SEEN, labels=names)
    save_model(moved, here / "nameless", preprocessing=SEEN)
    found = {name: told(capsys, name, "--data", "pets") for name in ("first", "moved", "misnamed", "nameless")}
    figures = {name: (data["classes"], data["confusions"]) for name, data in found.items()}
    assert figures["moved"] == figures["first"]
    assert found["moved"]["loss"] == pytest.approx(found["first"]["loss"], rel=1e-6)
    assert figures["misnamed"] != figures["first"]  # else the test could not tell
    assert figures["nameless"] == figures["misnamed"]  # without names the number decides


def test_other_classes_are_exit_3(here: Path, pets: Path, model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(network(3), here / "others", preprocessing=SEEN, labels=["cat", "dog", "newt"])
    said = refused(capsys, 3, "others", "--data", "pets")
    assert "does not know 'owl'" in said
    assert "cat, dog, newt" in said
    said = refused(capsys, 3, "model", "--data", "pets")
    assert "10 classes apart, the data have 3" in said


@pytest.mark.parametrize(
    ("labels", "names", "order"),
    [
        (None, "ab", [0, 1]),
        ("ab", "ab", [0, 1]),
        ("ab", "ba", [1, 0]),
        ("cab", "abc", [1, 2, 0]),
        ("01", "ab", [0, 1]),
        ("ab", "01", [0, 1]),
        ("10", "01", [1, 0]),  # numbers are names too where both have the same
    ],
)
def test_class_order(labels: str | None, names: str, order: list[int]) -> None:
    assert class_order(labels and list(labels), list(names), len(names), where="here") == order


@pytest.mark.parametrize("labels", [None, [str(number) for number in range(10)]])
def test_classes_matched_by_number_are_told(
    labels: list[str] | None, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save_model(network(), here / "numbered", preprocessing=SEEN, labels=labels)
    assert main(["eval", "numbered", "--data", "shapes:size=8,count=200"]) == 0
    warned = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning: the model ")]
    assert len(warned) == 1
    assert ("calls its classes '0', '1', ...," if labels else "does not name its classes,") in warned[0]
    assert "matched by number" in warned[0]
    assert main(["eval", "numbered", "--data", "digits"]) == 0
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("labels", "names", "is_said"),
    [
        (None, "ab", True),
        (None, "01", False),
        ("01", "ab", True),
        ("ab", "01", True),
        ("ab", "ba", False),
        ("01", "10", False),
        ("01", "01", False),
    ],
)
def test_said_of_numbers(labels: str | None, names: str, is_said: bool) -> None:
    assert (said_of_numbers(labels and list(labels), list(names)) is not None) is is_said


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "what", "todo"),
    [
        ("", "no run or model named", "`vitscope eval runs/NAME`"),
        ("model", "--data: expected a data set, as a model alone does not name one", "`vitscope eval model --data"),
        ("nowhere", "'nowhere' does not exist", "give a run or model folder"),
        ("runs", "'runs' holds no model", "name one, such as runs/empty-001"),
        ("runs/empty-001", "the run 'runs/empty-001' has no model yet", "--resume --out runs/empty-001"),
        ("runs/emty-001 --data digits", "'runs/emty-001' does not exist", "did you mean 'runs/empty-001'?"),
        ("model --data digit", "", "digits"),
        ("model --data digits --part tst", "--part: expected one of 'train', 'val', 'test', received 'tst'", "'test'"),
        ("model --data digits --batch-size 0", "batch_size: expected from 1", ""),
        ("model --data digits --device gpu", "unknown device 'gpu'", "you mean 'cuda'"),
        ("model --data digits --prt test", "unknown flag '--prt'", "did you mean '--part'?"),
    ],
)
def test_refusals(args: str, what: str, todo: str, model: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "runs" / "empty-001").mkdir(parents=True)
    (here / "runs" / "empty-001" / "config.yaml").write_text("data: digits\n")
    said = refused(capsys, 2, *args.split()).splitlines()
    assert said[0].startswith(f"error: {what}")
    assert todo in said[2]


def test_a_file_is_no_folder(model: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "exported.onnx").write_bytes(b"ONNX")
    assert main(["eval", str(model / "model.safetensors"), "--data", "digits"]) == 2
    assert f"to do: give the folder it lies in: {model}" in capsys.readouterr().err
    assert main(["eval", "exported.onnx", "--data", "digits"]) == 2
    told = capsys.readouterr().err
    assert "'exported.onnx' is a file, and a folder is needed" in told
    assert "to do: give a run or model folder" in told


def test_help_comes_without_torch(shell) -> None:
    done = shell("eval", "--help", options=("-X", "importtime"))
    assert done.returncode == 0
    assert "RUN_OR_MODEL" in done.stdout
    imported = {line.rpartition("|")[2].strip().partition(".")[0] for line in done.stderr.splitlines()}
    assert imported.isdisjoint({"torch", "numpy", "torchvision", "matplotlib", "sklearn"})


def test_trust_is_told_where_asked_for(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plain = told(capsys, str(model), "--data", "digits")
    assert "calibration" not in plain
    asked = told(capsys, str(model), "--data", "digits", "--calibrate", "--swap-test")
    found = asked["calibration"]
    assert found["count"] == plain["count"]
    assert found["loss_before"] == pytest.approx(plain["loss"], abs=1e-4)
    assert found["loss_after"] < found["loss_before"]
    own, *others = asked["swap_test"]
    assert own["name"] == "its own"
    assert own["accuracy"] == pytest.approx(plain["accuracy"])
    assert {swap["name"] for swap in others} == {"half", "imagenet", "mnist", "none"}
    assert main(["eval", str(model), "--data", "digits", "--calibrate", "--swap-test", "--device", "cpu"]) == 0
    text = capsys.readouterr().out
    assert f"--temperature {found['temperature']:.3f}" in text
    assert "right only by its own" in text
    assert "val" in refused(capsys, 2, str(model), "--data", "digits", "--calibrate", "--part", "val")

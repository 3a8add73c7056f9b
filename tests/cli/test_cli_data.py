"""`vitscope data`: what a person and a program are told about good sets, a folder of horrors, and no set at all."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from vitscope.cli.data import _file_name
from vitscope.cli.main import main
from vitscope.core.config import updated
from vitscope.core.yaml import from_yaml
from vitscope.data.config import augmentation
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.train.config import TrainConfig
from vitscope.weights.folder import save_model


def photograph(seed: int, size: tuple[int, int] = (48, 48)) -> Image.Image:
    rng = np.random.default_rng(seed)
    return Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(size, Image.Resampling.BICUBIC)


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder and the hash of its bytes."""
    files = (Path(root, name) for root, _, names in os.walk(folder) for name in names)
    return {str(f): hashlib.sha256(f.read_bytes()).hexdigest() for f in files if f.is_file()}


def run(args: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    code = main(["data", *args])
    told = capsys.readouterr()
    return code, told.out, told.err


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


BAD = {"truncated.jpg", "text.jpg", "empty.jpg"}
ODD = {
    "exif.jpg": "EXIF",
    "turned.jpg": "turned upright",
    "animated.gif": "animated",
    "cmyk.jpg": "CMYK",
    "sixteen.png": "16-bit",
    "float.tiff": "float",
    "alpha.png": "transparency",
    "palette.png": "palette",
    "one.png": "only 1 x 1",
    "long.png": "only 20000 x 1",
}


@pytest.fixture
def horrors(tmp_path: Path) -> Path:
    """Two classes of good pictures, and every kind of bad and odd one."""
    folder = tmp_path / "horrors"
    for name, first in (("cat", 0), ("dog [x]", 100)):
        (folder / name).mkdir(parents=True)
        for n in range(12):
            photograph(first + n).save(folder / name / f"{n:02}.png")
    cat = folder / "cat"
    file = io.BytesIO()
    photograph(200, (200, 200)).save(file, "JPEG")
    whole = file.getvalue()
    (cat / "truncated.jpg").write_bytes(whole[: len(whole) // 2])
    (cat / "text.jpg").write_text("this is no picture")
    (cat / "empty.jpg").write_bytes(b"")
    broken = b"\xff\xe1\x00\x20Exif\x00\x00II*\x00\xff\xff\xff\x7f" + b"\xff" * 14
    (cat / "exif.jpg").write_bytes(whole[:2] + broken + whole[2:])
    exif = Image.Exif()
    exif[0x0112] = 6
    photograph(201, (60, 40)).save(cat / "turned.jpg", exif=exif)
    frames = [photograph(seed) for seed in (202, 203)]
    frames[0].save(cat / "animated.gif", save_all=True, append_images=frames[1:], duration=50)
    photograph(204).convert("CMYK").save(cat / "cmyk.jpg")
    Image.fromarray(np.tile(np.arange(0, 65536, 256, dtype=np.uint16), (64, 1))).save(cat / "sixteen.png")
    Image.fromarray(np.tile(np.linspace(0, 1, 64, dtype=np.float32), (64, 1))).save(cat / "float.tiff")
    clear = photograph(205).convert("RGBA")
    clear.putalpha(128)
    clear.save(cat / "alpha.png")
    photograph(206).quantize(16).save(cat / "palette.png")
    Image.new("RGB", (1, 1), "red").save(cat / "one.png")
    Image.new("RGB", (20_000, 1), "blue").save(cat / "long.png")
    for seed, name in enumerate(("with space.png", "ünï 猫.png", "[bold]x.png", "-flag.png", "new\nline.png")):
        photograph(300 + seed).save(folder / "dog [x]" / name)
    (folder / "dog [x]" / "loop").symlink_to(folder)
    return folder


def test_a_folder_of_horrors_as_json(horrors: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(horrors)
    code, out, err = run([str(horrors), "--json"], capsys)
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert {Path(row["where"]).name for row in told["survey"]["bad"]} == BAD
    assert all(row["what"] for row in told["survey"]["bad"])
    odd = {Path(row["where"]).name: "" for row in told["survey"]["unusual"]}
    for row in told["survey"]["unusual"]:
        odd[Path(row["where"]).name] += row["what"] + "; "
    assert set(odd) == set(ODD)
    for name, word in ODD.items():
        assert word in odd[name]
    assert told["class_names"] == ["cat", "dog [x]"]
    assert told["survey"]["total"] == 24 + len(BAD) + len(ODD) + 5
    assert any("training stops" in line for line in told["warnings"])
    assert contents(horrors) == before
    assert [path.name for path in here.iterdir()] == ["horrors"]  # a program did not ask for a sheet


def test_a_folder_of_horrors_for_people(horrors: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = contents(horrors)
    code, out, err = run(["horrors"], capsys)
    assert (code, err) == (0, "")
    flowing = " ".join(out.split())
    for words in (
        "horrors (image folder)",
        "dog [x]",
        "3 (7.14%) cannot be decoded; training stops: more than 1%",
        "truncated.jpg",
        "not a picture in any known format",
        "EXIF orientation 6: turned upright",
        "img_size",
        "horrors-sheet.png",
        "next: vitscope",
    ):
        assert words in flowing
    assert "\033" not in out
    with Image.open(here / "horrors-sheet.png") as sheet:
        assert sheet.format == "PNG"
    assert contents(horrors) == before


def test_copies_and_leaks_are_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for part, first, count in (("train", 0, 20), ("val", 1000, 10), ("test", 2000, 10)):
        for place, name in enumerate(("cat", "dog")):
            folder = here / "set" / part / name
            folder.mkdir(parents=True)
            for n in range(count):
                photograph(first + 100 * place + n).save(folder / f"{n}.png")
    photograph(3).save(here / "set/test/cat/exact.bmp")
    photograph(4).save(here / "set/test/cat/saved.jpg", quality=80)
    photograph(5).resize((46, 46)).save(here / "set/val/dog/smaller.png")
    code, out, err = run(["set", "--sheet", "none"], capsys)
    assert (code, err) == (0, "")
    assert "1 exact, 2 near" in out
    assert "train - test: 1 exact, 1 near" in out
    assert "train - val: 0 exact, 1 near" in out
    assert "1 group of copies has different labels" in out
    assert "exact.bmp" in out
    assert not list(here.glob("*.png"))


def test_digits_with_a_sheet_of_what_training_sees(shell, tmp_path: Path) -> None:
    done = shell("data", "digits", "--augment", "basic", "--sheet", "digits.png")
    assert (done.returncode, done.stderr) == (0, "")
    assert "1,797: train 1,222" in done.stdout
    assert "look like digits or letters" in done.stdout
    assert {path.name for path in tmp_path.iterdir()} == {"digits.png", "digits-basic.png"}


def test_a_sheet_must_be_a_png_and_not_among_the_pictures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["digits", "--sheet", "digits.txt"], capsys)
    assert code == 2
    assert "ends in .png" in err
    for part in ("train", "val"):
        for name in ("cat", "dog"):
            (here / "pets" / part / name).mkdir(parents=True)
            for number in range(6):
                Image.new("RGB", (8, 8), (number * 40, 0, 0)).save(here / "pets" / part / name / f"{number}.png")
    code, *_ = run([str(here / "pets" / "train"), "--sheet", str(here / "pets" / "sheet.png")], capsys)
    assert code == 2  # above a part lies the rest of the data set


def test_a_limit_is_said_and_the_next_command_works(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(["shapes:size=16,count=400", "--limit", "50", "--sheet", "none"], capsys)
    assert (code, err) == (0, "")
    assert "50 of 400 pictures, spread evenly" in out
    typed = shlex.split(out.strip().splitlines()[-1].removeprefix("next: vitscope "))
    assert typed[:4] == ["train", "--data", "shapes:size=16,count=400", "--model"]
    assert main([*typed, "--print-config"]) == 0
    told = from_yaml(TrainConfig, capsys.readouterr().out)
    assert told.data.name == "shapes:size=16,count=400"
    assert told.augment == augmentation("strong", 16)


def test_the_next_command_has_a_batch_that_fits(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["shapes:size=16,count=100", "--sheet", "none"], capsys)
    assert code == 0
    typed = shlex.split(out.strip().splitlines()[-1].removeprefix("next: vitscope "))
    assert typed[typed.index("--data.batch-size") + 1] == "64", "of 68 pictures to train on"


def test_the_next_command_holds_what_was_found_and_asked_for(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(["digits", "--split-seed", "4", "--json"], capsys)
    assert code == 0
    verb, *typed = shlex.split(json.loads(out)["next"])
    assert verb == "vitscope"
    assert main([*typed, "--print-config"]) == 0
    told: Any = from_yaml(TrainConfig, capsys.readouterr().out)
    assert (told.data.name, told.data.split_seed) == ("digits", 4)
    assert (told.model.img_size, told.model.in_chans) == (8, 1)
    assert told.augment == updated(augmentation("strong", 8), flip="none")


def test_what_cannot_be_used_at_all_is_exit_3(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "empty").mkdir()
    assert run(["empty"], capsys)[0] == 3
    for name in ("a", "b"):
        (here / "rotten" / name).mkdir(parents=True)
        for n in range(5):
            (here / "rotten" / name / f"{n}.jpg").write_bytes(b"no picture")
    code, out, err = run(["rotten"], capsys)
    assert (code, out) == (3, "")
    assert "none of the 10 pictures" in err


def test_unknown_names_and_flags_are_exit_2(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(["digit"], capsys)
    assert code == 2
    assert "digits" in err
    assert run([], capsys)[0] == 2
    assert run(["digits", "--shet", "x.png"], capsys)[0] == 2
    assert run(["digits", "--limit", "0"], capsys)[0] == 2
    assert run(["digits", "--augment", "mild"], capsys)[0] == 2
    assert run(["digits", "--json", "--augment", "basic"], capsys)[0] == 2
    assert run(["digits", "--sheet", "nowhere/x.png"], capsys)[0] == 2


def test_nothing_is_written_among_the_pictures(
    here: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for place, name in enumerate(("cat", "dog")):
        (here / "set" / name).mkdir(parents=True)
        for n in range(10):
            photograph(100 * place + n).save(here / "set" / name / f"{n}.png")
    before = contents(here)
    code, _, err = run(["set", "--sheet", "set/sheet.png"], capsys)
    assert code == 2
    assert "among the pictures" in err
    monkeypatch.chdir(here / "set")
    code, out, _ = run(["."], capsys)
    assert code == 0
    assert "no contact sheet: this folder holds the pictures" in out
    assert contents(here) == before


def test_one_class_is_a_warning(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "set" / "cat").mkdir(parents=True)
    for n in range(10):
        photograph(n).save(here / "set" / "cat" / f"{n}.png")
    code, out, _ = run(["set", "--sheet", "none"], capsys)
    assert code == 0
    assert "only one class, 'cat'" in out


@pytest.mark.parametrize(
    ("name", "wanted"),
    [("digits", "digits"), ("shapes:size=64,count=2000", "shapes-size-64-count-2000"), ("owner/set", "owner-set")],
)
def test_the_sheet_is_named_after_the_set(here: Path, name: str, wanted: str) -> None:
    assert _file_name(name) == wanted


def test_files_named_as_what_they_are_not_are_listed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place, name in enumerate(("cat", "dog")):
        (here / "set" / name).mkdir(parents=True)
        for n in range(10):
            photograph(100 * place + n).save(here / "set" / name / f"{n}.png")
    photograph(500).save(here / "set/cat/hidden.jpg", format="PNG")
    photograph(501).save(here / "set/dog/right.JPG", format="JPEG")
    code, out, _ = run(["set", "--sheet", "none"], capsys)
    assert code == 0
    assert "unusual         1 remark on a picture that is used all the same" in out
    (row,) = [" ".join(line.split()) for line in out.splitlines() if "misnamed" in line]
    assert row.startswith("cat/hidden.jpg ")
    assert row.endswith(" misnamed: the file is PNG, its name ends in .jpg")


def test_the_next_command_fine_tunes_where_the_advice_says_so(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Few photographs. Its words are taken with a model of one's own in place of the hub's."""
    for place, name in enumerate(("cat", "dog")):
        (here / "photos" / name).mkdir(parents=True)
        for n in range(30):
            photograph(100 * place + n, (160, 160)).save(here / "photos" / name / f"{n}.png")
    code, out, _ = run(["photos", "--sheet", "none"], capsys)
    assert code == 0
    assert "fine-tuning first" in " ".join(out.split())
    verb, *typed = shlex.split(out.strip().splitlines()[-1].removeprefix("next: "))
    hub = "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k"
    assert [verb, *typed] == ["vitscope", "train", "finetune", "--from", hub, "--data", "photos", "--augment", "strong"]
    save_model(build_model(ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2)), here / "own")
    assert main([*("own" if word == hub else word for word in typed), "--print-config"]) == 0
    told = from_yaml(TrainConfig, capsys.readouterr().out)
    assert (told.checkpoint.init_from, told.data.name, told.data.batch_size) == ("own", "photos", 32)

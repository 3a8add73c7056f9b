"""What is computed and cannot be written: told in three lines, with another place as advice, whichever verb it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from vitscope.cli.main import main
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unwritable")
    save_model(build_model(TINY), folder / "model")
    (folder / "photos").mkdir()
    for number in range(3):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"photos/{number}.png")
    return folder


@pytest.mark.parametrize(
    ("words", "flag", "name"),
    [
        ("predict model photos", "--out", "a.csv"),
        ("features model photos", "--out", "a.npz"),
        ("features model photos", "--out", "a.parquet"),
        ("features model photos", "--map", "a.png"),
        ("features model photos --nearest photos/0.png", "--sheet", "a.png"),
        ("explain model photos/0.png", "--out", "a.png"),
    ],
)
def test_a_place_nobody_can_write_to(
    words: str,
    flag: str,
    name: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if not Path("/proc/self").is_dir():
        pytest.skip("no /proc, where not even root can write")
    monkeypatch.chdir(place)
    assert main([*words.split(), "--device", "cpu", flag, f"/proc/{name}"]) == 1
    told = capsys.readouterr().err.splitlines()
    assert told[0].startswith("error: cannot write: ")
    assert told[1:] == [f"where: /proc/{name}", f"to do: give another {flag}"]

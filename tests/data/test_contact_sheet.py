"""The sheet: a row per class, nothing distorted, no name it cannot write."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pictures_in_memory import photograph
from PIL import Image

from vitscope.data.survey import contact_sheet
from vitscope.data.survey.contact_sheet import (
    CELL,
    GAP,
    LABEL,
    MARGIN,
    MOST_BYTES,
    TITLE,
    choose,
    draw_contact_sheet,
    drawable,
    in_cell,
)


def test_a_picture_lies_in_its_row_and_column_pixel_for_pixel(tmp_path: Path) -> None:
    pictures = [[photograph(10 * row + column, 32) for column in range(10)] for row in range(3)]
    path = draw_contact_sheet(
        [(f"class {row}", pictures[row]) for row in range(3)], tmp_path / "sheet.png", title="three", counts=[1, 2, 3]
    )
    with Image.open(path) as opened:
        sheet = np.asarray(opened.convert("RGB"))
    for row, column in ((0, 0), (1, 4), (2, 9)):
        left, top = MARGIN + LABEL + column * (CELL + GAP), TITLE + row * (CELL + GAP)
        wanted = np.asarray(pictures[row][column]).repeat(3, axis=0).repeat(3, axis=1)
        np.testing.assert_array_equal(sheet[top : top + 96, left : left + 96], wanted)
    assert (sheet[TITLE:, :LABEL] < 128).any()  # the names are there
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize(
    "name", ["猫", "emoji 🐈", "tab\tnew\nline", "$x^2$ & \\frac{", "\udce9lan", "x" * 300, "", "[bold]"]
)
def test_any_class_name_can_be_drawn(tmp_path: Path, name: str) -> None:
    path = draw_contact_sheet([(name, [photograph(0)])], tmp_path / "sheet.png", title=name)
    with Image.open(path) as sheet:
        assert sheet.size[0] > 1000


def test_what_the_font_lacks_becomes_a_question_mark() -> None:
    assert drawable("chat 猫 é 🐈\n") == "chat ? é ??"


def test_many_classes_are_cut_and_the_title_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    plain = contact_sheet.drawable
    monkeypatch.setattr(contact_sheet, "drawable", lambda text: written.append(text) or plain(text))
    rows = [(f"class {n}", [photograph(n, 160)] * 10) for n in range(100)]
    path = draw_contact_sheet(rows, tmp_path / "sheet.png", title="hundred")
    assert "hundred   first 20 of 100 classes" in written
    assert "class 19" in written
    assert "class 20" not in written
    assert path.stat().st_size < MOST_BYTES


def test_noise_stays_small_too(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    noise = [Image.fromarray(rng.integers(0, 256, (96, 96, 3), dtype=np.uint8)) for _ in range(10)]
    path = draw_contact_sheet([(str(n), noise) for n in range(10)], tmp_path / "sheet.png")
    assert path.stat().st_size < MOST_BYTES


@pytest.mark.parametrize("size", [(1, 1), (8, 8), (28, 28), (100, 40), (40, 100), (20_000, 1), (3000, 2000), (50, 50)])
def test_shape_is_kept_and_small_pictures_grow_by_a_whole_factor(size: tuple[int, int]) -> None:
    shown = in_cell(Image.new("RGB", size))
    assert max(shown.size) <= CELL
    assert max(shown.size) > CELL / 2
    if min(size) > 1:
        assert shown.width / shown.height == pytest.approx(size[0] / size[1], rel=0.05)
    if max(size) <= CELL // 2:
        assert shown.width % size[0] == 0


def test_the_choice_is_fixed_and_not_the_first_ones() -> None:
    chosen = choose(np.arange(1000))
    assert chosen == choose(list(range(1000)))
    assert len(chosen) == 10
    assert chosen != list(range(10))
    assert max(chosen) > 500
    assert choose([3, 1]) == [1, 3]


def test_a_class_without_pictures_has_an_empty_row(tmp_path: Path) -> None:
    path = draw_contact_sheet([("some", [photograph(0)]), ("none", [])], tmp_path / "sheet.png", counts=[1, 0])
    with Image.open(path) as sheet:
        assert sheet.size[1] == TITLE + MARGIN + 2 * (CELL + GAP)

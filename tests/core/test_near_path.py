"""A path that leads nowhere is answered with the one that was meant, if that leads somewhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from vitscope.core.near_path import did_you_mean_path, meant_path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos" / "tench").mkdir(parents=True)
    (tmp_path / "photos" / "tench" / "garden.jpg").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("photos/tenhc", "photos/tench"),
        ("photoz/tenhc/gardn.jpg", "photos/tench/garden.jpg"),
        ("photos\\tench\\garden.jpg", "photos/tench/garden.jpg"),
        ("photos/tench", None),
        ("photos/zebra", None),
        ("nothing/like/it", None),
        ("photos/tench/garden.jpg/x", None),
        ("x" * 5000, None),
        ("a\0b", None),
    ],
)
def test_the_path_that_was_meant(typed: str, meant: str | None, here: Path) -> None:
    assert meant_path(typed) == meant
    if meant is not None and "\\" not in typed:
        assert meant_path(str(here / typed)) == str(here / meant)


def test_the_sentence() -> None:
    assert did_you_mean_path("photos/tenhc") == "did you mean 'photos/tench'?"
    assert did_you_mean_path("photos\\tench") == "use / between folders: did you mean 'photos/tench'?"
    assert did_you_mean_path("photos") is None

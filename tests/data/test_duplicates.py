"""Copies are found, within parts and across them; what only looks a little alike is not called a copy."""

from __future__ import annotations

import numpy as np
import pytest
from pictures_in_memory import photograph
from PIL import Image

from vitscope.data.survey import near
from vitscope.data.survey.duplicates import Duplicates, Leak, find_duplicates
from vitscope.data.survey.near import near_pairs


def thumbnail(picture: Image.Image) -> np.ndarray:
    return np.asarray(picture.convert("RGB").resize((16, 16), Image.Resampling.BILINEAR))


def found(pictures: list[Image.Image], parts: list[str], labels: list[int] | None = None) -> Duplicates:
    return find_duplicates(
        np.arange(100, 100 + len(pictures)),
        [repr(p.size).encode() + p.convert("RGB").tobytes() for p in pictures],
        np.stack([thumbnail(picture) for picture in pictures]),
        parts,
        labels or [0] * len(pictures),
    )


def test_exact_copies_are_grouped_and_a_group_of_n_counts_n_minus_1() -> None:
    a, b, c = map(photograph, range(3))
    told = found([a, b, a, c, a, b], ["train"] * 6)
    assert [group.members for group in told.groups] == [(100, 102, 104), (101, 105)]
    assert all(group.exact for group in told.groups)
    assert (told.exact, told.near, told.conflicts, told.leaks) == (3, 0, 0, ())
    assert told.within == {"train": 3, "val": 0, "test": 0}


def test_leaks_count_the_pictures_that_are_held_out() -> None:
    a, b, c, d = map(photograph, range(4))
    lighter = b.point(lambda value: min(255, value + 2))
    pictures = [a, b, c, a, a, lighter, d, d]
    parts = ["train", "train", "train", "val", "test", "test", "val", "test"]
    told = found(pictures, parts)
    assert told.leaks == (Leak("train", "val", 1, 0), Leak("train", "test", 1, 1), Leak("val", "test", 2, 0))
    assert told.groups[0].leaks
    assert (told.exact, told.near) == (3, 1)


def test_copies_with_different_labels_are_conflicts_and_come_before_others() -> None:
    a, b, c = map(photograph, range(3))
    told = found([a, a, a, b, b, c], ["train"] * 6, [0, 0, 0, 0, 1, 1])
    assert told.conflicts == 1
    assert told.groups[0].members == (103, 104)
    assert told.groups[0].example() == (103, 104)


def test_the_example_of_a_group_shows_the_leak() -> None:
    a = photograph(0)
    (group,) = found([a, a, a], ["train", "train", "test"]).groups
    assert group.example() == (100, 102)


def test_different_pictures_are_no_copies() -> None:
    told = found([photograph(seed) for seed in range(300)], ["train"] * 300)
    assert told.groups == ()


def test_flat_pictures_have_exact_copies_only() -> None:
    greys = [Image.new("RGB", (32, 32), (100 + n, 100, 100)) for n in range(4)]
    told = found([*greys, greys[0]], ["train"] * 5)
    assert [(group.members, group.exact) for group in told.groups] == [((100, 104), True)]


def test_faint_pictures_that_differ_are_no_copies() -> None:
    """Two skies: closer than the threshold and far from all else, but as different as their faint detail allows."""
    sky = Image.new("RGB", (64, 64), (120, 170, 240))
    skies = [Image.blend(sky, photograph(seed), 0.15) for seed in (500, 501)]
    first, second = (thumbnail(picture).astype(np.float32) for picture in skies)
    assert 2 * near.SAME < np.sqrt(np.mean((first - second) ** 2)) < near.THRESHOLD
    others = [photograph(seed) for seed in range(40)]
    assert found([*skies, *others], ["train"] * 42).groups == ()


def test_a_family_of_like_pictures_is_not_taken_for_copies() -> None:
    """Strokes that differ a little in place, angle and width, as the ones of MNIST do."""
    rng = np.random.default_rng(0)
    rows, columns = np.mgrid[0:28, 0:28]
    strokes = []
    for _ in range(1500):
        centre, slope, width, top, bottom, bend = rng.uniform((12, -0.3, 1, 3, 20, -1), (16, 0.3, 2.5, 7, 25, 1))
        across = columns - centre - slope * (rows - 14) - bend * np.sin(rows / 5)
        stroke = np.clip(width - np.abs(across) + 0.5, 0, 1) * np.clip(rows - top, 0, 1) * np.clip(bottom - rows, 0, 1)
        strokes.append(Image.fromarray((255 * stroke).astype(np.uint8)))
    thumbnails = np.stack([thumbnail(stroke) for stroke in strokes]).astype(np.float32).reshape(1500, -1)
    gaps = np.sqrt(np.mean((thumbnails[:200, None] - thumbnails[None]) ** 2, axis=2))
    np.fill_diagonal(gaps, np.inf)
    assert np.sum(gaps.min(axis=1) < near.THRESHOLD) > 100  # by the threshold alone most would be copies
    told = found(strokes, ["train"] * len(strokes))
    assert told.exact == 0
    assert told.near < 0.02 * len(strokes)  # by chance: six numbers make a stroke, so 2**-6 stand apart
    with_copy = found([*strokes, strokes[7].point(lambda value: min(255, value + 2))], ["train"] * 1501)
    assert any(group.members == (107, 1600) for group in with_copy.groups)


@pytest.mark.parametrize("grey", [False, True])
def test_no_pair_within_the_threshold_is_missed(grey: bool) -> None:
    """Against every distance computed outright."""
    rng = np.random.default_rng(1)
    originals = rng.integers(0, 256, (120, 16, 16, 1 if grey else 3))
    noise = rng.uniform(0.5, 9, (120, 1, 1, 1)) * rng.standard_normal((120, 16, 16, originals.shape[3]))
    thumbnails = np.concatenate([originals, originals + noise]).clip(0, 255).astype(np.uint8)
    thumbnails = np.broadcast_to(thumbnails, (240, 16, 16, 3))
    flat = thumbnails.reshape(240, -1).astype(np.float64)
    gaps = np.sqrt(np.mean((flat[:, None] - flat[None]) ** 2, axis=2))
    wanted = {(int(a), int(b)) for a, b in np.argwhere(np.triu(gaps <= near.THRESHOLD, 1))}
    assert len(wanted) == 120
    told = near_pairs(thumbnails)
    assert {(int(a), int(b)) for a, b in told.pairs} == wanted
    np.testing.assert_allclose(told.distances, [gaps[a, b] for a, b in told.pairs], rtol=1e-5)
    assert told.threshold == near.THRESHOLD


def test_copies_in_threes_at_different_distances_are_one_group() -> None:
    a = photograph(0)
    variants = [a, a.point(lambda value: min(255, value + 3)), a.point(lambda value: max(0, value - 6))]
    told = found([*variants, *(photograph(seed) for seed in range(1, 50))], ["train"] * 52)
    assert [group.members for group in told.groups] == [(100, 101, 102)]


@pytest.mark.parametrize("noise", [0, 1, 3, 6])
def test_thousands_of_copies_do_not_explode(noise: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(near, "MOST_PAIRS", 20_000)  # they have two million
    rng = np.random.default_rng(0)
    picture = rng.integers(20, 230, (16, 16, 3))
    copies = (picture + rng.integers(-noise, noise + 1, (2000, 16, 16, 3))).astype(np.uint8)
    told = find_duplicates(np.arange(2000), [copy.tobytes() for copy in copies], copies, ["train"] * 2000, [0] * 2000)
    assert len(told.groups) == 1
    assert told.exact + told.near == 1999


@pytest.mark.parametrize("count", [0, 1, 2])
def test_hardly_any_pictures(count: int) -> None:
    told = found([photograph(seed) for seed in range(count)], ["train"] * count) if count else None
    if told is None:
        told = find_duplicates(np.empty(0, np.int64), [], np.empty((0, 16, 16, 3), np.uint8), [], [])
    assert told.groups == ()
    assert told.to_dict()["groups"] == []

"""The nearest pictures, and the pictures drawn of features: maps and sheets."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.decomposition import PCA

from vitscope.core.errors import InputError, UsageError
from vitscope.infer.features.collect import MapPoints
from vitscope.infer.features.map_picture import draw_map
from vitscope.infer.features.nearest import Nearest
from vitscope.infer.features.neighbour_sheet import draw_neighbours
from vitscope.infer.features.projection import Projection, project


def vectors(count: int, width: int = 8, seed: int = 0) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def test_the_nearest_of_many_taken_a_few_at_a_time() -> None:
    values, query = vectors(100), vectors(1, seed=1)[0]
    nearest = Nearest(query, top_k=6, without=[3])
    for start in range(0, 100, 7):
        places = range(start, min(start + 7, 100))
        nearest.take(list(places), values[places.start : places.stop])
    cosines = torch.nn.functional.cosine_similarity(values, query[None])
    cosines[3] = -2
    best = cosines.topk(6)
    assert [one.place for one in nearest.found] == best.indices.tolist()
    assert [one.similarity for one in nearest.found] == pytest.approx(best.values.tolist(), abs=1e-6)


def test_the_passed_over_would_have_been_first() -> None:
    values = vectors(10)
    with_itself, without = Nearest(values[4], top_k=1), Nearest(values[4], top_k=1, without=[4])
    for nearest in (with_itself, without):
        nearest.take(list(range(10)), values)
    assert (with_itself.found[0].place, with_itself.found[0].similarity) == (4, pytest.approx(1.0))
    assert without.found[0].place != 4


def test_what_has_no_nearest_is_refused() -> None:
    with pytest.raises(InputError, match="one vector per picture"):
        Nearest(torch.zeros(3, 4))
    with pytest.raises(UsageError, match="top_k"):
        Nearest(torch.zeros(3), top_k=0)


def test_a_map_is_spread_evenly_and_all_where_there_are_few() -> None:
    values = vectors(100)
    few, all_of_them = MapPoints(100, most=30), MapPoints(100)
    for start in range(0, 100, 9):
        places = list(range(start, min(start + 9, 100)))
        for points in (few, all_of_them):
            points.take(places, values[places])
    assert few.places == list(range(0, 100, 4))
    assert torch.equal(few.values, values[::4])
    assert torch.equal(all_of_them.values, values)


def test_pca_shows_the_directions_of_most_variance() -> None:
    values = vectors(50) * torch.tensor([9.0, 5.0, 1, 1, 1, 1, 1, 1])
    found = project(values)
    unit = torch.nn.functional.normalize(values, dim=1).numpy()
    wanted = PCA(2, svd_solver="full").fit(unit)
    np.testing.assert_allclose(np.abs(found.points), np.abs(wanted.transform(unit)), atol=1e-4)
    assert found.axes[0] == f"1st direction, {wanted.explained_variance_ratio_[0]:.0%} of the variance"
    np.testing.assert_array_equal(project(values).points, found.points)


def test_tsne_keeps_groups_together() -> None:
    centres = 10 * torch.eye(3, 60)
    labels = torch.arange(60) % 3
    values = centres[labels] + vectors(60, 60)
    found = project(values, "tsne").points
    middles = np.stack([found[labels == group].mean(0) for group in range(3)])
    nearest = ((found[:, None] - middles[None]) ** 2).sum(-1).argmin(1)
    np.testing.assert_array_equal(nearest, labels)


@pytest.mark.parametrize("values", [torch.zeros(1, 4), torch.zeros(3, 4, 5)])
def test_what_cannot_be_laid_out_is_refused(values: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="one vector per picture, of at least two"):
        project(values)


@pytest.mark.parametrize("method", ["pca", "tsne"])
def test_two_pictures_and_pictures_all_alike_are_laid_out(method: str) -> None:
    assert project(vectors(2), method).points.shape == (2, 2)  # type: ignore[arg-type]
    assert np.isfinite(project(torch.ones(5, 4), "pca").points).all()


def colours_in(path: Path) -> set[tuple[int, ...]]:
    """Those of more than a few pixels."""
    numbers = opened(path).reshape(-1, 3) @ np.array([1 << 16, 1 << 8, 1])
    counts = np.bincount(numbers, minlength=1 << 24)
    return {(found >> 16, found >> 8 & 255, found & 255) for found in np.flatnonzero(counts > 30).tolist()}


def opened(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        return np.asarray(picture.convert("RGB")).astype(np.int64)


def test_a_map_has_a_colour_for_each_class_and_grey_for_those_too_many(tmp_path: Path) -> None:
    points = np.stack([np.cos(np.arange(200)), np.sin(np.arange(200) * 1.7)], 1)
    projection = Projection(points, ("one", "other"))
    two = draw_map(projection, tmp_path / "two.png", labels=[i % 2 for i in range(200)], classes=["a", "$b$ 猫"])
    blue, orange = (0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00)
    assert {blue, orange} <= colours_in(two)  # the legend is opaque
    many = draw_map(
        projection, tmp_path / "many.png", labels=list(range(100)) * 2, classes=[f"class {i}" for i in range(100)]
    )
    assert (191, 191, 191) in colours_in(many)
    plain = draw_map(projection, tmp_path / "plain.png", title="no classes")
    assert orange not in colours_in(plain)
    assert opened(many).shape[1] > opened(two).shape[1] > opened(plain).shape[1]


def test_thumbnails_lie_where_their_points_lie(tmp_path: Path) -> None:
    """Red to the left, green to the right, blue above; the one that cannot be had is left out."""
    points = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, 1.0], [0.5, 0.0]])
    colours = [(255, 0, 0), (0, 255, 0), (0, 0, 255)]
    path = draw_map(
        Projection(points, ("", "")),
        tmp_path / "map.png",
        look=lambda row: Image.new("RGB", (8, 8), colours[row]) if row < 3 else None,
    )
    pixels = opened(path)
    middles = []
    for colour in colours:
        rows, columns = np.nonzero(np.abs(pixels - colour).sum(-1) < 30)
        assert len(rows) > 100
        middles.append((rows.mean(), columns.mean()))
    (red, green, blue) = middles
    assert red[1] < blue[1] < green[1]
    assert blue[0] < red[0] == pytest.approx(green[0], abs=3)


def test_crowded_thumbnails_make_room_and_the_picture_says_how_many(tmp_path: Path) -> None:
    asked: list[int] = []

    def look(row: int) -> Image.Image:
        asked.append(row)
        return Image.new("RGB", (4, 4), (200, 30, 30))

    points = np.concatenate([np.zeros((100, 2)), np.ones((1, 2))])
    draw_map(Projection(points, ("", "")), tmp_path / "map.png", look=look)
    assert 5 < len(asked) < 40


def test_a_sheet_of_neighbours_shows_all_and_a_gap_for_what_is_gone(tmp_path: Path) -> None:
    query = Image.new("RGB", (30, 20), (250, 0, 0))
    near = [
        (Image.new("RGB", (20, 30), (0, 200, 0)), 0.99, "one.png", "cat"),
        (None, 0.98, "gone.png", ""),
        *[(Image.new("L", (8, 8), 90), 0.9 - place / 10, f"{place}.png", "") for place in range(5)],
    ]
    path = draw_neighbours(query, near, tmp_path / "sheet.png", name="query.png", below="cosine")
    assert {(250, 0, 0), (0, 200, 0), (90, 90, 90)} <= colours_in(path)
    alone = draw_neighbours(query, near[:1], tmp_path / "one.png")
    assert opened(alone).shape[0] < opened(path).shape[0]

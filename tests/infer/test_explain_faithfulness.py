"""Does the answer hang on what a map marks? Toy models whose answer depends on known patches know."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from infer.looking_models import photograph, predictor
from vitscope.core.errors import UsageError
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.faithfulness import DRAWS, _draws, faithfulness_of

GRID = (8, 8)
PATCH = 4
WANTED = np.zeros(GRID, bool)
WANTED[2:5, 3:6] = True
"""The patches the toy's answer depends on."""


def toy(images: Tensor) -> Tensor:
    """The share of the wanted patches that is not flat."""
    patches = images.mean(dim=1).unflatten(2, (GRID[1], PATCH)).unflatten(1, (GRID[0], PATCH))
    lively = patches.std(dim=(2, 4)) > 1e-3
    return lively[:, torch.from_numpy(WANTED)].float().mean(dim=1)


def image() -> Tensor:
    return torch.randn(3, GRID[0] * PATCH, GRID[1] * PATCH, generator=torch.Generator().manual_seed(0))


def judged(marked: np.ndarray, **settings: Any) -> Any:
    return faithfulness_of(marked, image(), toy, measure="share", **settings)


def blob(rng: np.random.Generator) -> np.ndarray:
    """A smooth map that knows nothing."""
    noise = rng.normal(size=GRID)
    for axis in (0, 1):
        noise = noise + np.roll(noise, 1, axis) + np.roll(noise, -1, axis)
    return noise


def test_a_map_of_what_counts_is_better_and_turned_around_worse() -> None:
    good = judged(WANTED.astype(float))
    assert good.score > 0.7
    assert good.score > good.chance.max() + 0.2
    assert good.score > good.random.max() + 0.2
    assert abs(good.random.mean()) < 0.2
    assert "random patches" in str(good)
    assert good.verdict == "better than chance"
    assert good.p_better == pytest.approx(1 / (1 + DRAWS))
    bad = judged(1 - WANTED.astype(float))
    assert bad.score < -0.7
    assert bad.score < bad.chance.min() - 0.2
    assert bad.verdict == "worse than chance"
    assert good.score == pytest.approx(-bad.score, abs=0.1)


def test_the_curves_are_what_is_left() -> None:
    found = judged(WANTED.astype(float))
    assert found.shares[0] == 0
    assert found.shares[-1] == 1
    assert found.deletion[0] == found.insertion[-1] == 1
    assert found.deletion[-1] == found.insertion[0] == 0
    # 9 of 64 patches count: of the first eighth (8 patches) all do.
    assert found.deletion[1] == pytest.approx(1 / 9)
    assert found.insertion[1] == pytest.approx(8 / 9)
    assert found.chance_deletion.shape == found.chance_insertion.shape == (DRAWS, len(found.shares))
    assert found.chance.std() > 0.05
    area = sum(
        (found.shares[i + 1] - found.shares[i]) * (found.insertion[i] + found.insertion[i + 1]) / 2 for i in range(8)
    )
    area -= sum(
        (found.shares[i + 1] - found.shares[i]) * (found.deletion[i] + found.deletion[i + 1]) / 2 for i in range(8)
    )
    assert found.score == pytest.approx(area)


def test_maps_that_know_nothing_are_seldom_called_better() -> None:
    rng = np.random.default_rng(0)
    verdicts = [judged(blob(rng)).verdict for _ in range(40)]
    assert verdicts.count("better than chance") <= 6  # 2 are expected
    assert verdicts.count("worse than chance") <= 6
    assert verdicts.count("cannot tell from chance") >= 30


def test_a_flat_map_and_a_model_that_does_not_care_tell_nothing() -> None:
    assert judged(np.ones(GRID)).verdict == "cannot tell from chance"
    found = faithfulness_of(WANTED.astype(float), image(), lambda images: torch.full((len(images),), 0.5), measure="x")
    assert found.score == 0
    assert found.verdict == "cannot tell from chance"


def test_a_difference_nobody_could_use_is_none() -> None:
    found = faithfulness_of(WANTED.astype(float), image(), lambda images: 0.5 + toy(images) / 1000, measure="x")
    assert found.p_better == pytest.approx(1 / (1 + DRAWS))
    assert found.verdict == "cannot tell from chance"


@pytest.mark.parametrize("grid", [(8, 8), (4, 4), (3, 3), (1, 9), (14, 14)])
def test_draws_hold_the_same_marks_elsewhere(grid: tuple[int, int]) -> None:
    marked = np.random.default_rng(1).normal(size=grid)
    drawn = _draws(marked, DRAWS)
    assert len({one.tobytes() for one in drawn}) == DRAWS
    for one, again in zip(drawn, _draws(marked, DRAWS), strict=True):
        assert np.array_equal(one, again)  # the same every time
        assert np.array_equal(np.sort(one.ravel()), np.sort(marked.ravel()))
        assert not np.array_equal(one, marked)


def test_draws_are_not_the_map_again() -> None:
    """A blob in the middle, moved a little or mirrored, is the same blob: no draw may be one."""
    y, x = np.mgrid[:12, :12] - 5.5
    marked = np.exp(-(y**2 + x**2) / 8)
    for one in _draws(marked, DRAWS):
        top = one >= np.sort(one.ravel())[-12]
        assert (top & (marked >= np.sort(marked.ravel())[-12])).sum() <= 8
    assert all(len(_draws(np.ones(grid), DRAWS)) == DRAWS for grid in ((1, 1), (1, 2), (2, 2), (5, 5)))


def test_fewer_draws_than_can_tell_are_refused() -> None:
    with pytest.raises(UsageError, match="draws: expected at least 19"):
        judged(np.ones(GRID), draws=18)
    assert len(judged(WANTED.astype(float), draws=30).chance) == 30


def test_batches_and_progress_do_not_matter() -> None:
    seen: list[tuple[int, int]] = []
    one = judged(WANTED.astype(float), batch_size=7, progress=lambda done, count: seen.append((done, count)))
    other = judged(WANTED.astype(float), batch_size=1000)
    assert one.to_dict() == other.to_dict()
    assert seen[-1][0] == seen[-1][1]
    assert [done for done, _ in seen] == sorted(done for done, _ in seen)


class Quadrant(torch.nn.Module):
    """Logits that hang on the brightness of the lower right quarter."""

    def forward(self, images: Tensor) -> Tensor:
        score = 6 * images[:, :, 16:, 16:].mean(dim=(1, 2, 3))
        return torch.stack([score, -score], dim=1)


def test_explain_judges_by_the_class_it_explains(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole way: a predictor whose answer depends on a quarter of the picture, and a map that marks it or not."""
    asked = predictor(num_classes=2)
    answer = Quadrant()
    monkeypatch.setattr(asked.model, "forward", answer.forward)
    pixels = np.asarray(photograph(32, 32)) // 8
    pixels[16:, 16:] += 200
    for place, verdict in (((3, 3), "better than chance"), ((0, 0), "cannot tell from chance")):
        marked = np.zeros((4, 4), np.float32)
        marked[place[0] // 2 * 2 : place[0] // 2 * 2 + 2, place[1] // 2 * 2 : place[1] // 2 * 2 + 2] = 1
        monkeypatch.setattr("vitscope.infer.explain.explain._gradient_map", lambda *_, marked=marked: marked)
        found = explain(asked, pixels, "gradient_rollout", target=0)
        assert found.faithfulness is not None
        assert found.faithfulness.measure == "probability of '0'"
        assert found.faithfulness.deletion[0] == pytest.approx(found.target.probability if found.target else None)
        if verdict == "better than chance":
            assert found.faithfulness.score > 0.2
            assert found.faithfulness.verdict == verdict
        else:
            assert found.faithfulness.verdict != "better than chance"

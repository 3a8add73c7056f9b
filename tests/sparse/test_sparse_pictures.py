"""The report's pictures: what is drawn where, for one block or many, timed or not."""

from __future__ import annotations

import itertools
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure
from PIL import Image

from sparse.made_rows import experiment
from vitscope.core.errors import DataError
from vitscope.sparse.report import left, tradeoff
from vitscope.sparse.report.labels import place_labels
from vitscope.sparse.report.left import draw_left, has_units
from vitscope.sparse.report.tradeoff import draw_tradeoff
from vitscope.sparse.rows import DENSE, Row
from vitscope.train.show.plots.canvas import new_figure


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """Figures as they were when they were saved."""
    seen: list[Figure] = []

    def keep(save: Any) -> Any:
        return lambda figure, path: (seen.append(figure), save(figure, path))[1]

    for module in (left, tradeoff):
        monkeypatch.setattr(module, "save", keep(module.save))
    return seen


def large_marks(figure: Figure, panel: int, name: str) -> list[tuple[float, float]]:
    line = next(line for line in figure.axes[panel].get_lines() if line.get_label() == name)
    return list(zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True))


def test_means_stand_where_the_rows_say(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = experiment("rsst", rounds=2)
    path = draw_tradeoff(rows, tmp_path / "plots" / "a.png")
    with Image.open(path) as picture:
        assert picture.size == (1200, 1200)
    ours = [[row for row in rows if (row.network, row.round) == ("rsst", number)] for number in (1, 2)]

    def mean(of: list[Row], field: str) -> float:
        return statistics.fmean(getattr(row, field) for row in of)

    for panel, x, y in (
        (0, "speedup_batch256", "test_accuracy"),
        (1, "weights_removed", "test_accuracy"),
        (2, "weights_removed", "speedup_batch256"),
    ):
        wanted = [(mean(of, x), mean(of, y)) for of in ours]
        assert np.allclose(large_marks(drawn[0], panel, "rsst"), wanted)
    assert large_marks(drawn[0], 0, "dense")[0][0] == 1.0
    retrained = [[row for row in rows if (row.network, row.round) == ("control:dense", number)] for number in (1, 2)]
    wanted = [(1.0, mean(of, "test_accuracy")) for of in retrained]
    assert np.allclose(large_marks(drawn[0], 0, "dense, retrained"), wanted), "what as many epochs alone are worth"
    assert "compiled_graph" in drawn[0].axes[0].get_xlabel()


def test_shares_are_labelled_apart_from_one_another(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_tradeoff(experiment("refill", rounds=4), tmp_path / "a.png")
    texts = drawn[0].axes[0].texts
    assert [text.get_text() for text in texts] == ["20 %", "36 %", "49 %", "59 %"]
    boxes = [text.get_window_extent() for text in texts]
    assert not any(one.overlaps(other) for one, other in itertools.combinations(boxes, 2))


def test_each_network_has_a_colour_and_a_mark_of_its_own(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_tradeoff(experiment(rounds=1), tmp_path / "a.png")
    named = [line for line in drawn[0].axes[0].get_lines() if not str(line.get_label()).startswith("_")]
    assert len(named) == 6
    assert len({line.get_color() for line in named}) == len({line.get_marker() for line in named}) == 6


def test_masks_have_one_panel_and_no_speed(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_tradeoff(experiment("imp", rounds=3), tmp_path / "a.png")
    assert len(drawn[0].axes) == 1
    assert "speed" not in drawn[0].axes[0].get_title() + drawn[0].axes[0].get_xlabel()
    assert [round(x, 3) for x, _ in large_marks(drawn[0], 0, "imp")] == [0.2, 0.36, 0.488]


def test_a_tenth_of_a_point_does_not_look_like_a_fall(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_tradeoff(experiment("refill", rounds=1, seeds=(0,), controls=(), noise=0.0), tmp_path / "a.png")
    low, high = drawn[0].axes[0].get_ylim()
    assert high - low >= 0.0199


def test_what_is_far_below_is_named_and_does_not_press_the_others_together(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [
        replace(row, test_accuracy=0.19 + 0.001 * row.round) if row.network == "control:reinit" else row
        for row in experiment(rounds=2)
    ]
    draw_tradeoff(rows, tmp_path / "x.png")
    axes = drawn[-1].axes[1]
    assert axes.get_ylim()[0] > 0.8
    assert [text.get_text() for text in axes.texts] == ["below the picture: new weights 19 %"]
    draw_tradeoff(experiment(rounds=2), tmp_path / "x.png")
    axes = drawn[-1].axes[1]
    assert not axes.texts


def test_validation_stands_in_and_says_so(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = [replace(row, test_accuracy=None) for row in experiment(rounds=1)]
    draw_tradeoff(rows, tmp_path / "a.png")
    assert drawn[0].axes[0].get_ylabel() == "validation accuracy"
    nothing = [replace(row, val_accuracy=None) for row in rows]
    with pytest.raises(DataError, match="expected rows that have one, received none"):
        draw_tradeoff(nothing, tmp_path / "b.png")


def test_a_label_with_no_room_is_left_out() -> None:
    figure = new_figure(0.6, 0.6, arranged=False)
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, 1), ylim=(0, 1))
    place_labels(axes, [(0.5, 0.5, "much too long for this")], dots=[], lines=[])
    assert len(axes.texts) == 0


@pytest.mark.parametrize(("blocks", "heads", "neurons"), [(1, 1, 8), (9, 3, 384), (12, 12, 3072), (24, 16, 4096)])
def test_the_map_draws_every_unit(blocks: int, heads: int, neurons: int, tmp_path: Path, drawn: list[Figure]) -> None:
    rows = experiment("rsst", rounds=2, seeds=(4, 3), blocks=blocks, heads=heads, neurons=neurons)
    with Image.open(draw_left(rows, tmp_path / "a.png")) as picture:
        picture.verify()
    shown = [row for row in rows if row.seed == 3 and row.network in (DENSE, "rsst")]
    assert len(drawn[0].axes) == 2 * len(shown)
    for row, of_heads, of_neurons in zip(shown, drawn[0].axes[::2], drawn[0].axes[1::2], strict=True):
        filled, hollow = (np.asarray(line.get_ydata()) for line in of_heads.get_lines())
        counts = tuple(int((filled == block).sum()) for block in range(blocks))
        assert counts == row.left("heads")
        assert len(filled) + len(hollow) == blocks * heads
        whole, kept = of_neurons.containers
        assert tuple(bar.get_width() for bar in kept) == row.left("neurons")
        assert {bar.get_width() for bar in whole} == {neurons}
        assert f"{sum(row.left('neurons') or ()):,} of" in of_neurons.get_title()


def test_channels_are_bars_and_untouched_kinds_are_whole(tmp_path: Path, drawn: list[Figure]) -> None:
    dense, cut = experiment("rsst", rounds=1, seeds=(0,), controls=(), blocks=2, heads=3)
    none: dict[str, Any] = {"heads_left": None, "neurons_left": None}
    channels = [replace(dense, **none, channels_left="16 64"), replace(cut, **none, channels_left="12 0")]
    draw_left(channels, tmp_path / "a.png")
    assert [bar.get_width() for bar in drawn[0].axes[1].containers[1]] == [12, 0]
    draw_left([dense, replace(cut, heads_left=None)], tmp_path / "b.png")
    assert len(drawn[1].axes[2].get_lines()[0].get_xdata()) == 6  # type: ignore[arg-type]


def test_a_map_needs_the_dense_network_and_units(tmp_path: Path) -> None:
    rows = experiment("rsst", rounds=1, controls=())
    assert has_units(rows)
    assert not has_units(experiment("imp", rounds=1))
    with pytest.raises(DataError, match=r"expected a dense row .* received none"):
        draw_left([row for row in rows if row.network != DENSE], tmp_path / "a.png")

"""Pictures of a run: drawn from whatever rows there are, and showing what they should."""

from __future__ import annotations

import math
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from vitscope.core.errors import VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import normalise
from vitscope.train.show.plots import canvas
from vitscope.train.show.plots.columns import column, epoch_rows, extremes, medians, step_rows, thinned
from vitscope.train.show.plots.confusion import draw_confusion, most_confused
from vitscope.train.show.plots.curves import draw_curves
from vitscope.train.show.plots.first_batches import as_shown, draw_first_batches, told
from vitscope.train.show.plots.grad_norms import draw_grad_norms
from vitscope.train.show.plots.lr import draw_lr
from vitscope.train.show.plots.worst import draw_worst, worst_caption

Rows = list[dict[str, Any]]
NAN = float("nan")
OF_ROWS = [draw_curves, draw_lr, draw_grad_norms]


def run_rows(epochs: int = 6, per_epoch: int = 20, means: str = "") -> Rows:
    """Validation is best in epoch 4; step 33 was skipped."""
    rows: Rows = []
    for step in range(1, epochs * per_epoch + 1):
        bad = step == 33
        epoch = -(-step // per_epoch)
        row = {"step": step, "epoch": epoch, "train/loss": 2 / step, "train/accuracy": 0.5, "train/lr": 1e-3 * step}
        rows.append({**row, "train/grad_norm": NAN if bad else 1.0 + step % 3, "train/skipped": float(bad)})
        if step % per_epoch == 0:
            row = {"step": step, "epoch": epoch, f"train/{means}loss": 1 / epoch, f"train/{means}accuracy": 0.6}
            rows.append({**row, "val/loss": 1.0, "val/accuracy": 0.9 - 0.1 * abs(epoch - 4)})
    return [*rows, {"step": epochs * per_epoch, "epoch": epochs, "test/loss": 0.5, "test/accuracy": 0.8}]


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Figure]:
    """The figures behind the files."""
    figures: list[Figure] = []
    new_figure = canvas.new_figure

    def kept(*args: Any, **settings: Any) -> Figure:
        figures.append(new_figure(*args, **settings))
        return figures[-1]

    for name in ("curves", "lr", "grad_norms", "confusion", "gallery"):
        monkeypatch.setattr(sys.modules[f"vitscope.train.show.plots.{name}"], "new_figure", kept)
    return figures


def pixels(path: Path) -> np.ndarray:
    with Image.open(path) as picture:
        assert picture.format == "PNG"
        return np.asarray(picture.convert("RGB"))


def line(axes: Axes, label: str) -> tuple[np.ndarray, np.ndarray]:
    (found,) = [line for line in axes.lines if str(line.get_label()).startswith(label)]
    return np.asarray(found.get_xdata()), np.asarray(found.get_ydata())


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in (*figure.texts, *(text for axes in figure.axes for text in axes.texts))]


@pytest.mark.parametrize("means", ["", "epoch_"])
def test_curves_show_both_parts_and_the_best_epoch(tmp_path: Path, drawn: list[Figure], means: str) -> None:
    draw_curves(run_rows(means=means), tmp_path / "curves.png")
    loss, accuracy = drawn[0].axes
    x, y = line(accuracy, "val")
    assert x.tolist() == [1, 2, 3, 4, 5, 6]
    assert y == pytest.approx([0.6, 0.7, 0.8, 0.9, 0.8, 0.7])
    (train,) = [line for line in loss.lines if line.get_label() == "train"]
    assert np.asarray(train.get_ydata()) == pytest.approx([1 / epoch for epoch in range(1, 7)])
    x, _ = line(loss, "train, each step")
    assert (x[0], x[-1]) == pytest.approx((1 / 20, 6.0))
    x, y = line(accuracy, "best: 90.0 %, epoch 4")
    assert (x.tolist(), y.tolist()) == ([4], [0.9])
    assert line(loss, "best: 1, epoch 4")[0].tolist() == [4]
    assert pixels(tmp_path / "curves.png").shape[1] == 1200


def test_best_can_be_a_small_loss(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = run_rows()
    for row in rows:
        if "val/loss" in row:
            row["val/loss"] = 1 + abs(row["epoch"] - 2)
    draw_curves(rows, tmp_path / "curves.png", monitor="val/loss")
    assert line(drawn[0].axes[0], "best")[0].tolist() == [2]


def test_rows_given_up_are_not_in_the_curves_but_their_gradients_are(tmp_path: Path, drawn: list[Figure]) -> None:
    rows = run_rows(epochs=2)[:-1]
    again = [{**row, "train/loss": 7.0, "train/grad_norm": 50.0} for row in rows if row["step"] > 30]
    draw_curves([*rows, *again], tmp_path / "curves.png")
    x, y = line(drawn[0].axes[0], "train, each step")
    assert len(x) == 40
    assert y[30:].tolist() == [7.0] * 10
    assert (np.diff(x) > 0).all()
    draw_grad_norms([*rows, *again], tmp_path / "grad_norms.png")
    (dots,) = drawn[1].axes[0].collections
    assert len(np.asarray(dots.get_offsets())) == 49  # 40 + 10 steps, one skipped


def test_the_learning_rate_is_drawn_as_it_was(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_lr(run_rows(), tmp_path / "lr.png")
    (axes,) = drawn[0].axes
    (curve,) = axes.lines
    assert np.asarray(curve.get_ydata()) == pytest.approx([1e-3 * step for step in range(1, 121)])
    assert "first 0.001, largest 0.12, last 0.12" in texts(drawn[0])


def test_gradient_norms_have_a_log_axis_and_mark_what_was_skipped(tmp_path: Path, drawn: list[Figure]) -> None:
    draw_grad_norms(run_rows(), tmp_path / "grad_norms.png")
    (axes,) = drawn[0].axes
    assert axes.get_yscale() == "log"
    x, _ = line(axes, "skipped: 1 of 120 steps")
    assert x.tolist() == [33]
    assert len(line(axes, "median of 11 steps")[0]) == 119
    (dots,) = axes.collections
    assert 33 not in np.asarray(dots.get_offsets())[:, 0]


def test_a_spike_survives_thinning() -> None:
    x, y = np.arange(100_000.0), np.ones(100_000)
    y[54_321], y[99_999] = 1000.0, 0.001
    shown_x, shown_y, width = extremes(x, y)
    assert len(shown_x) < 20_000
    assert width > 1
    assert shown_y.max() == 1000.0
    assert shown_y.min() == 0.001
    assert 54_321 in shown_x
    few, mean = thinned(x, y)
    assert len(few) <= 1500
    assert mean.max() > 1


def test_medians_run_over_their_window_and_over_bins() -> None:
    x, y = np.arange(10.0), np.array([1, 1, 1, 50, 1, 1, 1, 1, 1, 1.0])
    _, smooth, window = medians(x, y, 5)
    assert window == 5
    assert smooth.tolist() == [1.0] * 10
    x = np.arange(1_000_000.0)
    at, smooth, window = medians(x, x, 51)
    assert len(at) <= 1500
    assert smooth == pytest.approx(at)
    assert window > 51


@pytest.mark.parametrize("draw", OF_ROWS)
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [{"step": 1, "epoch": 1}],
        [{"step": 1, "epoch": 1, "train/loss": NAN, "train/grad_norm": NAN, "train/lr": NAN, "train/skipped": 1.0}],
        [{"step": 1, "epoch": 1, "train/loss": 1.0, "train/grad_norm": 1.0, "train/lr": 0.0, "train/skipped": 0.0}],
        [{"step": 1, "epoch": 1, "train/loss": math.inf, "train/grad_norm": math.inf, "train/lr": 1e-3}],
        [{"step": 5, "epoch": 1, "train/loss": NAN, "val/loss": NAN, "val/accuracy": NAN}],
        [{"step": 5, "epoch": 1, "val/accuracy": 0.5}],
        [{"step": 5, "epoch": 1, "train/loss": "NaN", "train/lr": None, "train/grad_norm": 0.0}],
        run_rows(1, 1),
        [row for row in run_rows() if "train/lr" in row],
        [row for row in run_rows() if "train/lr" not in row],
    ],
    ids=[
        "none",
        "empty",
        "nan",
        "one step",
        "infinite",
        "nan epoch",
        "one epoch",
        "texts",
        "all once",
        "steps",
        "ends",
    ],
)
def test_whatever_rows_there_are_a_picture_comes_out(
    tmp_path: Path, draw: Callable[[Rows, Path], Path], rows: Rows
) -> None:
    path = draw(rows, tmp_path / "new" / "picture.png")
    assert pixels(path).std() > 0


def test_columns_of_rows() -> None:
    rows = run_rows(2, 3)
    assert [row["step"] for row in step_rows(rows)] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in epoch_rows(rows)] == [3, 6]
    assert np.isnan(column([{"a": math.inf}, {"a": "1"}, {}], "a")).all()


def test_a_small_confusion_matrix_shows_every_count(tmp_path: Path, drawn: list[Figure]) -> None:
    matrix = torch.tensor([[90, 10, 0], [5, 1200, 7], [0, 0, 0]])
    draw_confusion(matrix, ["cat", "dog", "empty"], tmp_path / "confusion.png")
    axes = drawn[0].axes[0]
    assert [text.get_text() for text in axes.texts] == ["90", "10", "0", "5", "1,200", "7", "0", "0", "0"]
    shares = np.asarray(axes.images[0].get_array())
    assert shares[0].tolist() == [0.9, 0.1, 0.0]
    assert shares[2].tolist() == [0.0, 0.0, 0.0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "empty"]
    assert axes.get_title("left") == "accuracy 98.3 %, 1,290 of 1,312 right"


@pytest.mark.parametrize("classes", [13, 60, 300])
def test_many_classes_show_the_pairs_most_confused(tmp_path: Path, drawn: list[Figure], classes: int) -> None:
    matrix = np.diag(np.full(classes, 50))
    matrix[3, 7], matrix[9, 2] = 25, 40
    names = [f"class {number}" for number in range(classes)]
    draw_confusion(matrix, names, tmp_path / "confusion.png")
    pairs = drawn[0].axes[1]
    assert [label.get_text() for label in pairs.get_yticklabels()] == ["class 9 → class 2", "class 3 → class 7"]
    assert [text.get_text().strip() for text in pairs.texts] == ["40 of 90", "25 of 75"]


def test_most_confused_is_in_order_and_without_the_right_ones() -> None:
    matrix = np.array([[9, 1, 2], [2, 9, 0], [0, 3, 9]])
    assert most_confused(matrix) == [(2, 1, 3), (0, 2, 2), (1, 0, 2), (0, 1, 1)]
    assert most_confused(matrix, limit=1) == [(2, 1, 3)]
    assert most_confused(np.diag([1, 2])) == []


@pytest.mark.parametrize("classes", [1, 2, 20])
def test_no_pictures_at_all_is_no_error(tmp_path: Path, classes: int) -> None:
    names = ["$\\frac$", "猫", *(str(number) for number in range(20))][:classes]
    assert draw_confusion(np.zeros((classes, classes), int), names, tmp_path / "none.png").exists()


PREPROCESS = PreprocessConfig(img_size=(8, 8), mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


def test_a_picture_is_shown_with_its_own_colours() -> None:
    given = torch.randint(0, 256, (3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    shown = as_shown(normalise(given, PREPROCESS).numpy(), PREPROCESS)
    assert np.rint(255 * shown).astype(np.uint8).tolist() == given.permute(1, 2, 0).tolist()
    grey = PreprocessConfig(img_size=(8, 8), in_chans=1, mean=(0.1307,), std=(0.3081,))
    shown = as_shown(normalise(given[:1], grey).numpy(), grey)
    assert np.rint(255 * shown).astype(np.uint8).tolist() == given[0].tolist()
    wild = np.array([NAN, math.inf, -math.inf, 1e9]).reshape(1, 2, 2)
    assert as_shown(wild, grey).tolist() == [[0, 1], [0, 1]]


def test_labels_and_shares_are_told_by_name() -> None:
    names = ["cat", "dog", "bird"]
    assert told(np.array(1), names) == "dog"
    assert told(np.array([0.3, 0.0, 0.7]), names) == "bird 70 %\ncat 30 %"
    assert told(np.array([0.0, 1.0, 0.0]), names) == "dog"
    assert told(np.array([0.001, 0.999, 0.0]), names) == "dog"


def test_first_batches_show_equally_many_of_each(tmp_path: Path, drawn: list[Figure]) -> None:
    images = torch.zeros(64, 3, 8, 8)
    plain = (images, torch.zeros(64, dtype=torch.int64))
    mixed = (images, torch.tensor([[0.25, 0.75]]).repeat(64, 1))
    draw_first_batches([plain, mixed], PREPROCESS, ["$cat$", "犬 dog"], tmp_path / "first.png")
    captions = texts(drawn[0])[1:]
    assert captions == ["$cat$"] * 16 + ["? dog 75 %\n$cat$ 25 %"] * 16
    assert len([axes for axes in drawn[0].axes if axes.images]) == 32


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_few_pictures_and_few_batches(tmp_path: Path, batches: int) -> None:
    batch = (torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16), torch.tensor([0, 1]))
    path = draw_first_batches([batch] * batches, PREPROCESS, ["a", "b"], tmp_path / "first.png")
    assert pixels(path).std() > 0


def test_worst_pictures_stand_with_what_was_said_of_them(tmp_path: Path, drawn: list[Figure]) -> None:
    pictures = [np.full((10, 20, 3), 255, np.uint8), np.zeros((30, 10, 1), np.uint8), np.zeros((5, 5), np.uint8)]
    captions = [worst_caption("cat", "dog", 0.99), "horse, said aeroplane with wings (100%)", ""]
    path = draw_worst(pictures, captions, tmp_path / "worst.png")
    shown = texts(drawn[0])[1:]
    assert shown == ["cat\ntaken for dog\n99 % sure", "horse, said aeroplane\nwith wings (100%)", ""]
    assert pixels(path).shape[1] == 1200
    assert draw_worst([], [], tmp_path / "none.png").exists()


def test_the_same_rows_give_the_same_bytes_and_old_files_are_replaced_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "curves.png"
    draw_curves(run_rows(2, 5), path)
    first = path.read_bytes()
    assert draw_curves(run_rows(2, 5), path).read_bytes() == first

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        draw_curves(run_rows(3, 5), path)
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["curves.png"]


def test_threads_may_draw_and_pyplot_is_never_touched(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            draw_curves(run_rows(2, 5), tmp_path / f"{number}.png")
        except (Exception, VitscopeError) as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len({path.read_bytes() for path in tmp_path.iterdir()}) == 1
    pyplot = sys.modules.get("matplotlib.pyplot")  # others may have imported it
    assert pyplot is None or pyplot.get_fignums() == []

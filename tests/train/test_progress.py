"""What a person who waits can read, on a terminal and in a file."""

from __future__ import annotations

import io
import logging
import re
import sys
from typing import Any

import pytest

from vitscope.train.show.observer import Observer, Observers
from vitscope.train.show.progress import PLAIN_EVERY_S, Progress


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def step_row(step: int, **more: Any) -> dict[str, Any]:
    row = {"step": step, "epoch": 1, "train/loss": 2.25, "train/accuracy": 0.125, "train/lr": 1e-3}
    return {**row, "train/grad_norm": 1.0, "train/skipped": 0.0, **more}


def epoch_row(step: int, accuracy: float = 0.5, **more: Any) -> dict[str, Any]:
    row = {"step": step, "epoch": 1, "train/loss": 1.5, "train/accuracy": 0.25, "train/images_per_s": 12345.6}
    return {**row, "val/loss": 1.75, "val/accuracy": accuracy, **more}


def plain(**settings: Any) -> tuple[Progress, io.StringIO, Clock]:
    clock, stream = Clock(), io.StringIO()
    settings = {"epochs": 10, "steps_per_epoch": 100, "batch_size": 32, "stream": stream, "clock": clock, **settings}
    return Progress(**settings), stream, clock


def on_terminal(monkeypatch: pytest.MonkeyPatch, columns: int = 120) -> tuple[Progress, io.StringIO, Clock]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.delenv("NO_COLOR", raising=False)
    return plain(terminal=True)


def lines(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def shown(text: str) -> list[str]:
    """What a terminal is left with, for the few movements rich makes here."""
    screen, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\n|\r|[^\x1b\n\r]+", text):
        if part == "\n":
            row += 1
            screen += [""] * (row + 1 - len(screen))
        elif part == "\r":
            column = 0
        elif part.endswith("A"):
            row -= int(part[2:-1])
        elif part == "\x1b[2K":
            screen[row] = ""
        elif not part.startswith("\x1b"):
            screen[row] = screen[row][:column].ljust(column) + part
            column = len(screen[row])
        if part == "\n":
            column = 0
    return [line.rstrip() for line in screen if line.strip()]


def test_every_epoch_is_one_line_with_its_figures() -> None:
    progress, stream, clock = plain()
    clock.now += 20
    progress.steps([step_row(n) for n in range(1, 101)])
    progress.epoch(epoch_row(100, best=True))
    assert lines(stream) == [
        "epoch  1/10   train loss 1.500 accuracy 25.0 %   val loss 1.750 accuracy 50.0 %   lr 0.001   12,346 images/s"
        "   3 min 0 s left   best"
    ]


def test_an_epochs_means_under_names_of_their_own_are_shown() -> None:
    progress, stream, _ = plain()
    row = epoch_row(100, **{"train/epoch_loss": 0.75, "train/epoch_accuracy": 0.875})
    del row["train/loss"], row["train/accuracy"]
    progress.epoch(row)
    assert "train loss 0.750 accuracy 87.5 %" in lines(stream)[0]


def test_the_rows_marked_best_are_and_no_others() -> None:
    """Whether one is the best is the course's to say: it knows the metric, and what came before a resume."""
    progress, stream, _ = plain(start_step=100)
    for step, accuracy, mark in (
        (200, 0.5, {}),
        (300, 0.6, {"best": True}),
        (400, 0.9, {}),
        (500, 0.2, {"best": True}),
    ):
        progress.epoch(epoch_row(step, accuracy, **mark))
    assert [line.endswith("best") for line in lines(stream)] == [False, True, False, True]


def test_time_left_is_told_by_the_median_epoch_evaluation_included() -> None:
    progress, _, clock = plain()
    assert progress.seconds_left is None
    for step, seconds in ((100, 90.0), (200, 10.0), (300, 12.0)):  # the first compiles
        clock.now += seconds / 2
        progress.steps([step_row(step)])
        clock.now += seconds / 2  # evaluation
        progress.epoch(epoch_row(step))
    assert progress.seconds_left == pytest.approx(7 * 12.0)
    clock.now += 5.0
    progress.steps([step_row(350)])
    assert progress.seconds_left == pytest.approx(6.5 * 12.0)


def test_within_the_first_epoch_it_is_told_by_the_steps() -> None:
    progress, _, clock = plain()
    clock.now += 5.0
    progress.steps([step_row(50)])
    assert progress.seconds_left == pytest.approx(950 * 0.1)


def test_a_resumed_run_counts_only_what_it_did_itself() -> None:
    progress, stream, clock = plain(start_step=350)
    clock.now += 6.0
    progress.steps([step_row(n) for n in range(351, 401)])
    progress.epoch(epoch_row(400))
    assert lines(stream)[0].startswith("epoch  4/10")
    assert progress.seconds_left == pytest.approx(6 * 12.0)  # half an epoch took 6 s


def test_going_back_to_a_checkpoint_confuses_nothing() -> None:
    progress, stream, clock = plain()
    clock.now += 10
    progress.steps([step_row(n) for n in range(1, 101)])
    progress.epoch(epoch_row(100))
    progress.steps([step_row(n) for n in range(101, 151)])
    clock.now += 10
    progress.steps([step_row(n) for n in range(51, 61)])
    clock.now += 10
    progress.steps([step_row(n) for n in range(61, 101)])
    progress.epoch(epoch_row(100))
    assert all(line.startswith("epoch  1/10") for line in lines(stream))
    assert progress.seconds_left is not None
    assert progress.seconds_left > 0


def test_a_long_epoch_speaks_now_and_then_and_a_short_one_does_not() -> None:
    progress, stream, clock = plain()
    for step in range(1, 101):
        clock.now += 1.0
        progress.steps([step_row(step)])
    said = lines(stream)
    assert len(said) == 100 // PLAIN_EVERY_S
    assert said[0] == "step 30/1,000   loss 2.250 accuracy 12.5 %   lr 0.001   32 images/s   16 min 10 s left"

    progress, stream, clock = plain()
    for step in range(1, 101):
        clock.now += 0.1
        progress.steps([step_row(step)])
    assert lines(stream) == []


def test_the_test_and_remarks_have_their_lines() -> None:
    progress, stream, _ = plain()
    progress.say("evaluation uses 64 [pictures] at once")
    progress.epoch({"step": 1000, "epoch": 10, "test/loss": 0.001, "test/accuracy": 0.9996})
    assert lines(stream) == ["evaluation uses 64 [pictures] at once", "test   loss 1.0e-03 accuracy 99.9 %"]


def test_missing_and_nan_figures_are_no_reason_to_fall() -> None:
    progress, stream, _ = plain()
    progress.steps([])
    progress.epoch({"step": 100, "epoch": 1, "train/loss": float("nan")})
    assert lines(stream)[0].startswith("epoch  1/10   train loss nan")


def test_a_file_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    progress, stream, clock = plain()
    for step in range(1, 101):
        clock.now += 1.0
        progress.steps([step_row(step)])
    progress.epoch(epoch_row(100))
    progress.close()
    assert "\x1b" not in stream.getvalue()
    assert "\r" not in stream.getvalue()


def test_a_terminal_keeps_one_line_per_epoch(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    progress, stream, clock = on_terminal(monkeypatch)
    progress.say("hello [bold]you[/bold]")
    for step in range(1, 201):
        clock.now += 0.05
        progress.steps([step_row(step)])
        if step == 150:
            (line,) = shown(stream.getvalue())[-1:]
            assert re.match(r"epoch 2/10  .*loss 2\.250 accuracy 12\.5 %  lr 0\.001  640 images/s  \d+ s left", line)
        if step % 100 == 0:
            progress.epoch(epoch_row(step))
    progress.close()
    left = shown(stream.getvalue())
    assert left[0] == "hello [bold]you[/bold]"
    assert [line[:11] for line in left[1:]] == ["epoch  1/10", "epoch  2/10"]
    assert stream.getvalue().count("\x1b[?25l") == stream.getvalue().count("\x1b[?25h") == 2  # the cursor is given back
    assert capsys.readouterr().out == ""


def test_a_terminal_is_not_drawn_on_at_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, stream, clock = on_terminal(monkeypatch)
    for step in range(1, 100):
        clock.now += 0.001
        progress.steps([step_row(step)])
    assert stream.getvalue().count("loss") == 1
    progress.steps([step_row(100)])
    assert stream.getvalue().count("loss") == 2, "the whole bar stands while the epoch is evaluated"
    progress.close()


@pytest.mark.parametrize(
    ("columns", "kept"),
    [
        (100, "loss 2.250 accuracy 12.5 %  lr 0.001  320 images/s  1 min 39 s left"),
        (80, "loss 2.250 accuracy 12.5 %  lr 0.001  1 min 39 s left"),
        (70, "loss 2.250 accuracy 12.5 %  1 min 39 s left"),
        (50, "loss 2.250 accuracy 12.5 %"),
        (30, "loss"),
    ],
)
def test_a_narrow_terminal_gets_one_line_still(monkeypatch: pytest.MonkeyPatch, columns: int, kept: str) -> None:
    progress, stream, clock = on_terminal(monkeypatch, columns)
    clock.now += 1
    progress.steps([step_row(10)])
    (line,) = shown(stream.getvalue())
    assert len(line) <= columns
    assert line.startswith("epoch 1/10  ")
    assert ("━" in line) == (columns >= 50)
    assert kept in line
    progress.close()


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    def drawn() -> str:
        progress, stream, clock = plain(terminal=True)
        clock.now += 1
        progress.steps([step_row(10)])
        progress.close()
        return stream.getvalue()

    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[38;5" in drawn()
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[38;5" not in drawn()


def test_a_dumb_terminal_counts_as_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    progress, stream, _ = plain(terminal=True)
    progress.epoch(epoch_row(100))
    assert "\x1b" not in stream.getvalue()


def test_standard_output_stays_its_owners_while_a_line_is_live(monkeypatch: pytest.MonkeyPatch) -> None:
    progress, _, clock = on_terminal(monkeypatch)
    clock.now += 1
    before = sys.stdout
    progress.steps([step_row(10)])
    assert sys.stdout is before
    progress.close()


class Broken(Observer):
    asked = 0

    def steps(self, rows: list[dict[str, Any]]) -> None:
        self.asked += 1
        raise OSError(28, "No space left on device")


def test_who_cannot_write_is_named_once_and_the_others_go_on(caplog: pytest.LogCaptureFixture) -> None:
    progress, stream, _ = plain()
    broken = Broken()
    observers = Observers([broken, progress])
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        for step in (1, 2, 3):
            observers.steps([step_row(step)])
        observers.epoch(epoch_row(100))
        observers.close()
    assert broken.asked == 1
    assert len(caplog.records) == 1
    assert "Broken" in caplog.text
    assert "No space left" in caplog.text
    assert len(lines(stream)) == 1


def test_a_reader_that_went_away_does_not_end_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """rich leaves the program with code 1 when its pipe breaks; a run must not."""

    class Gone(io.StringIO):
        def write(self, text: str, /) -> int:
            raise BrokenPipeError(32, "Broken pipe")

    monkeypatch.setenv("TERM", "xterm-256color")
    progress, _, clock = plain(terminal=True, stream=Gone())
    observers = Observers([progress])
    clock.now += 1
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        observers.steps([step_row(1)])
        observers.epoch(epoch_row(100))
    assert observers.watchers == []
    assert "Progress cannot go on" in caplog.text


def test_other_errors_are_not_hidden() -> None:
    class Wrong(Observer):
        def epoch(self, row: dict[str, Any]) -> None:
            raise KeyError("a mistake in the program")

    with pytest.raises(KeyError):
        Observers([Wrong()]).epoch(epoch_row(100))


def test_time_left_is_asked_of_whoever_knows() -> None:
    progress, _, clock = plain()
    observers = Observers([Observer(), progress])
    assert observers.seconds_left is None
    clock.now += 10
    observers.epoch(epoch_row(100))
    assert observers.seconds_left == pytest.approx(90.0)
    assert Observer().seconds_left is None

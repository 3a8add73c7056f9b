"""The words of a progress line, and the line that is drawn over and over on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

REFRESH_S = 0.1
SHORTEST_BAR, LONGEST_BAR = 8, 30


def clock_time(seconds: float) -> str:
    """A length of time a person takes in at a glance.

    >>> clock_time(7.4), clock_time(192), clock_time(7500), clock_time(200000)
    ('7 s', '3 min 12 s', '2 h 5 min', '2 d 7 h')
    """
    whole = round(seconds)
    for large, small, unit, part in ((86400, 3600, "d", "h"), (3600, 60, "h", "min"), (60, 1, "min", "s")):
        if whole >= large:
            return f"{whole // large} {unit} {whole % large // small} {part}"
    return f"{whole} s"


def percent(share: float) -> str:
    """Not 100 % until it is."""
    text = f"{100 * share:.1f} %"
    return "99.9 %" if text == "100.0 %" and share < 1 else text


def figures_of(row: Mapping[str, Any], part: str) -> str:
    """`loss 0.532 accuracy 81.3 %`, as far as the row has them; the mean over an epoch where it is given."""
    loss, accuracy = (row.get(f"{part}/epoch_{key}", row.get(f"{part}/{key}")) for key in ("loss", "accuracy"))
    texts = []
    if isinstance(loss, int | float):
        texts.append(f"loss {loss:.3f}" if abs(loss) >= 0.01 or loss != loss else f"loss {loss:.1e}")
    if isinstance(accuracy, int | float):
        texts.append(f"accuracy {percent(accuracy)}")
    return " ".join(texts)


class LiveLine:
    """One line at the bottom of a terminal. Drawn by whoever calls, at most ten times a second: no thread of its own,
    which the processes of a loader would inherit half-way."""

    @classmethod
    def on(cls, stream: TextIO, *, terminal: bool) -> LiveLine | None:
        """None where lines cannot be drawn over."""
        if not terminal:
            return None
        from rich.console import Console

        class Screen(Console):
            def on_broken_pipe(self) -> None:
                """rich would end the program."""
                raise BrokenPipeError

        console = Screen(file=stream, force_terminal=True, highlight=False, markup=False, emoji=False)
        return None if console.is_dumb_terminal else cls(console)

    def __init__(self, console: Any) -> None:
        from rich.live import Live

        self._console = console
        # Standard output is another's: rich must not turn it into a part of this display.
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=False)
        self._drawn: float | None = None

    def show(self, name: str, done: int, total: int, figures: Sequence[str], now: float) -> None:
        """`figures` in the order they are read. On a narrow terminal the last but one goes first."""
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        is_whole = done >= total  # stays in sight while the epoch is evaluated
        if not is_whole and self._drawn is not None and now - self._drawn < REFRESH_S:
            return
        self._drawn = now
        line = Table.grid(padding=(0, 2, 0, 0))
        line.add_column(no_wrap=True, min_width=len(name))
        line.add_column(min_width=SHORTEST_BAR)
        line.add_column(no_wrap=True, overflow="ellipsis")
        text, room = _fitting(figures, self._console.width - len(name) - 5)
        line.add_row(Text(name, style="bold"), ProgressBar(total=total, completed=done, width=room), Text(text))
        self._live.start()
        self._live.update(line, refresh=True)

    def print(self, text: str) -> None:
        """A line that stays."""
        from rich.text import Text

        self._rest()
        self._console.print(Text(text), soft_wrap=True)

    def close(self) -> None:
        self._rest()

    def _rest(self) -> None:
        """Take the live line away and give the cursor back; the next `show` begins anew."""
        self._drawn = None
        self._live.stop()


def _fitting(figures: Sequence[str], width: int) -> tuple[str, int]:
    """As many of the figures as leave room for a bar, and the bar's length."""
    kept = list(figures)
    while len(kept) > 1 and len("  ".join(kept)) + SHORTEST_BAR > width:
        kept.pop(-2 if len(kept) > 2 else -1)
    text = "  ".join(kept)
    return text, max(SHORTEST_BAR, min(LONGEST_BAR, width - len(text)))

"""A bar on standard error while pictures are gone through; nothing where nobody watches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress_bar(what: str, *, afterwards: str | None = None) -> Iterator[Callable[[int, int], None] | None]:
    """`with progress_bar("looking") as progress: ... progress(done, count)`. `afterwards`: what goes on, at a length
    nobody knows, once all are done."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(what, total=None)

        def told(done: int, count: int) -> None:
            bar.update(task, completed=done, total=count)
            if afterwards is not None and done == count:
                bar.update(task, description=afterwards, total=None)

        yield told

"""What `vitscope features` found, as tables for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from vitscope.cli.console import console, in_bytes, print_table
from vitscope.core.near_path import did_you_mean_path

MOST_BAD = 10


def print_features(report: dict[str, Any]) -> None:
    if "out" in report:
        _print_file(report)
    if "nearest" in report:
        _print_nearest(report["nearest"])
    for what in ("sheet", "map"):
        if what in report:
            console().print(f"{what}: {report[what]}", markup=False, soft_wrap=True)
    _print_bad(report.get("bad", []))
    for what, setting in (("knn", "neighbours"), ("probe", "lr")):
        if what in report:
            _print_verdict(report[what], what, setting)


def _print_file(report: dict[str, Any]) -> None:
    norms = {"after": "after", "before": "before", None: "there is none"}
    rows = [
        (name, " x ".join(map(str, told["shape"])), told["axes"], norms[told["norm"]])
        for name, told in report["features"].items()
    ]
    print_table(("feature", "of a picture", "axes", "last norm"), rows)
    size = in_bytes(report["out"]["bytes"])
    line = f"{_pictures(report['count'])} in {report['dtype']}: {report['out']['path']}, {size}"
    console().print(line, markup=False, soft_wrap=True)


def _print_nearest(nearest: Sequence[dict[str, Any]]) -> None:
    rows = [
        (
            str(number),
            escape(one["path"] or f"picture {one['place']}"),
            f"{one['similarity']:.4f}",
            escape(one["class"] or ""),
        )
        for number, one in enumerate(nearest, start=1)
    ]
    columns = ("", "picture", "similarity", "class")
    if all(one["class"] is None for one in nearest):
        columns, rows = columns[:3], [row[:3] for row in rows]
    print_table(columns, rows, numbers=("", "similarity"))


def _print_bad(bad: Sequence[dict[str, Any]]) -> None:
    if not bad:
        return
    out = console()
    out.print(f"{_pictures(len(bad))} could not be read:", markup=False)
    for one in bad[:MOST_BAD]:
        name = one["path"] or f"picture {one['place']}"
        meant = did_you_mean_path(one["path"] or "")
        out.print(f"  {name}: {one['reason']}{f'; {meant}' if meant else ''}", markup=False, soft_wrap=True)
    if len(bad) > MOST_BAD:
        out.print(f"  and {len(bad) - MOST_BAD:,} more; --json lists all", markup=False)


def _print_verdict(told: dict[str, Any], what: str, setting: str) -> None:
    """A line for each layer, a column for each setting: accuracy on validation. Then the best, on test."""
    out = console()
    name = "nearest neighbours" if what == "knn" else f"linear probes, {told['epochs']:,} epochs"
    counts = told["counts"]
    out.print(
        f"{name} on {told['data']}: {counts['train']:,} train, {counts['val']:,} val, {counts['test']:,} test pictures"
        f" ({told['split']})",
        markup=False,
        soft_wrap=True,
    )
    settings = list(dict.fromkeys(one["setting"] for one in told["tried"]))
    rows: dict[str, list[str]] = {}
    for one in told["tried"]:
        shown = f"{one['val_accuracy']:.2%}"
        rows.setdefault(one["feature"], []).append(f"[bold]{shown}[/bold]" if one == told["best"] else shown)
    columns = [f"{setting} {value:g}" for value in settings]
    print_table(("accuracy on validation", *columns), [(key, *cells) for key, cells in rows.items()], numbers=columns)
    best = told["best"]
    chosen = f"{best['feature']}, {setting} {best['setting']:g}"
    if told["test_accuracy"] is None:
        out.print(f"best: {chosen}; there are no test pictures to ask it about", markup=False)
    else:
        low, high = told["test_accuracy_95"]
        accuracy = f"{told['test_accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%})"
        out.print(f"chosen on validation: {chosen}\ntest accuracy {accuracy}", markup=False)
    if what == "probe" and len(settings) > 1 and best["setting"] in (min(settings), max(settings)):
        side = "smallest" if best["setting"] == min(settings) else "largest"
        out.print(f"note: that is the {side} lr tried; a wider grid (--lrs) may find a better one", markup=False)
    _print_bad(told["bad"])


def _pictures(count: int) -> str:
    return f"{count:,} picture{'' if count == 1 else 's'}"

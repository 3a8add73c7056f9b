"""How a look at a data set appears on a screen."""

from __future__ import annotations

from collections import Counter
from typing import Any

from rich.markup import escape

from vitscope.cli.console import console, print_table
from vitscope.data.splits import PARTS
from vitscope.data.survey.near import THRESHOLD
from vitscope.data.survey.warn import MOST_IMBALANCE

MOST_BAD, MOST_UNUSUAL, MOST_EXAMPLES = 20, 20, 5
MOST_CLASSES, OF_MANY = 20, 5
"""Up to so many classes are all listed; of more, the largest and the smallest few."""


def print_report(report: dict[str, Any], no_sheet: str | None = None) -> None:
    """Everything a person wants to know, in the order they would ask."""
    survey = report["survey"]
    _print_header(report)
    _print_classes(report)
    _print_pictures(report)
    _print_copies(survey["duplicates"], report["place"])
    _print_bad(report)
    _print_unusual(survey["unusual"], report["place"])
    _print_warnings(report)
    _print_suggestions(report)
    for path in report["sheets"]:
        _say("contact sheet", path)
    if no_sheet:
        _line(no_sheet)
    _line()
    _line(f"next: [bold]{escape(report['next'])}[/bold]")


def _line(text: str = "") -> None:
    console().print(text, soft_wrap=True)  # a path that is cut or broken cannot be copied


def _say(name: str, fact: str) -> None:
    _line(f"[bold]{name:<14}[/bold]  {escape(fact)}")


def _print_header(report: dict[str, Any]) -> None:
    survey, counts = report["survey"], report["split"]["counts"]
    _say("data set", f"{report['name']} ({report['kind']})")
    if report["place"] != report["name"]:
        _say("where", report["place"])
    _say("classes", f"{len(report['class_names']):,}")
    parts = ", ".join(f"{part} {counts[part]:,}" for part in PARTS)
    _say("pictures", f"{survey['total']:,}: {parts}")
    _say("split", f"{report['split']['how']} (hash {report['split']['hash']})")
    if survey["looked_at"] < survey["total"]:
        _say("looked at", f"{survey['looked_at']:,} of {survey['total']:,} pictures, spread evenly (--limit)")
    _line()


def _print_classes(report: dict[str, Any]) -> None:
    names, counts = report["class_names"], report["survey"]["counts"]
    rows = [
        [escape(name), *(f"{counts[part][label]:,}" for part in PARTS), f"{sum(counts[p][label] for p in PARTS):,}"]
        for label, name in enumerate(names)
    ]
    if len(rows) > MOST_CLASSES:
        order = sorted(range(len(rows)), key=lambda label: -sum(counts[part][label] for part in PARTS))
        between = [f"... {len(rows) - 2 * OF_MANY:,} more", *[""] * (len(PARTS) + 1)]
        rows = [*(rows[n] for n in order[:OF_MANY]), between, *(rows[n] for n in order[-OF_MANY:])]
    print_table(("class", *PARTS, "all"), rows, numbers=(*PARTS, "all"))
    ratio = report["imbalance"]
    if ratio is not None:
        verdict = "" if ratio > MOST_IMBALANCE else ", balanced enough"
        _line(f"largest class in train / smallest: {ratio:.2f}{verdict}")
    _line()


def _print_pictures(report: dict[str, Any]) -> None:
    survey = report["survey"]
    sizes = survey["sizes"]
    if len(sizes) == 1:
        _say("sizes", f"all {sizes[0][0]} x {sizes[0][1]} (height x width)")
    else:
        spans = [f"{name} {_spread(sizes, axis)}" for axis, name in enumerate(("height", "width"))]
        _say("sizes", f"{', '.join(spans)} (least / median / most), {len(sizes):,} different")
    _say("formats", _counted(survey["formats"]))
    _say("modes", _counted(survey["modes"]) + f"; {survey['grey']:,} grey")
    if survey["mean"] is not None:
        channels = report["suggestions"]["preprocess"]["in_chans"]
        _say("mean", _numbers(survey["mean"][:channels]) + "  over the training pictures, pixels from 0 to 1")
        _say("std", _numbers(survey["std"][:channels]))
    _line()


def _inside(where: str, place: str) -> str:
    """A picture's place within the data set, whose own place stands above."""
    return escape(where.removeprefix(place.rstrip("/") + "/"))


def _print_copies(copies: dict[str, Any], place: str) -> None:
    within = ", ".join(f"{count:,} within {part}" for part, count in copies["within"].items() if count)
    _say("duplicates", f"{copies['exact']:,} exact, {copies['near']:,} near{f' ({within})' if within else ''}")
    if copies["threshold"] < THRESHOLD:
        narrowed = f"near up to a difference of {copies['threshold']:.1f} instead of {THRESHOLD:g}"
        _say("", f"the pictures are much alike: {narrowed}, {copies['left_out']:,} pictures not compared")
    for leak in copies["leaks"]:
        _say("leak", f"{leak['seen']} - {leak['held_out']}: {leak['exact']:,} exact, {leak['near']:,} near")
    if copies["conflicts"]:
        groups = "group" if copies["conflicts"] == 1 else "groups"
        _say("labels", f"{copies['conflicts']:,} {groups} of copies with different labels")
    rows = [
        [
            "exact" if group["exact"] else "near",
            *(f"{c['part']}  {escape(c['label'])}  {_inside(c['where'], place)}" for c in group["example"]),
        ]
        for group in copies["groups"][:MOST_EXAMPLES]
    ]
    if rows:
        print_table(("copies", "one", "another"), rows, wraps={"one": 30, "another": 30})
    if len(copies["groups"]) > MOST_EXAMPLES:
        _line(f"... {len(copies['groups']) - MOST_EXAMPLES:,} more groups (--json lists all)")
    _line()


def _print_bad(report: dict[str, Any]) -> None:
    bad = report["survey"]["bad"]
    if not bad:
        _say("bad pictures", "none")
        _line()
        return
    share = len(bad) / report["survey"]["looked_at"]
    limit = report["bad_limit"]
    fate = f"training stops: more than {limit:.0%}" if share > limit else "training leaves them out and records them"
    _say("bad pictures", f"{len(bad):,} ({share:.2%}) cannot be decoded; {fate}")
    place = report["place"]
    rows = [[_inside(row["where"], place), row["part"], escape(row["what"])] for row in bad[:MOST_BAD]]
    print_table(("where", "part", "reason"), rows, wraps={"where": 30, "reason": 20})
    if len(bad) > MOST_BAD:
        _line(f"... {len(bad) - MOST_BAD:,} more (--json lists all)")
    _line()


def _print_unusual(unusual: list[dict[str, Any]], place: str) -> None:
    if not unusual:
        return
    remarks = "1 remark on a picture that is" if len(unusual) == 1 else f"{len(unusual):,} remarks on pictures that are"
    _say("unusual", f"{remarks} used all the same")
    rows = [[_inside(row["where"], place), row["part"], escape(row["what"])] for row in unusual[:MOST_UNUSUAL]]
    print_table(("where", "part", "remark"), rows, wraps={"where": 30, "remark": 20})
    if len(unusual) > MOST_UNUSUAL:
        kinds = Counter(row["what"].partition(":")[0] for row in unusual[MOST_UNUSUAL:])
        most = ", ".join(f"{escape(kind)} ({count:,})" for kind, count in kinds.most_common(3))
        _line(f"... {len(unusual) - MOST_UNUSUAL:,} more, most often: {most} (--json lists all)")
    _line()


def _print_warnings(report: dict[str, Any]) -> None:
    for note in report["notes"]:
        _line(f"note: {escape(note)}")
    for warning in report["warnings"]:
        _line(f"[yellow]warning[/yellow]: {escape(warning)}")
    if report["notes"] or report["warnings"]:
        _line()


def _print_suggestions(report: dict[str, Any]) -> None:
    told, model = report["suggestions"], report["model"]
    preprocess, why = told["preprocess"], told["reasons"]
    size = " x ".join(map(str, preprocess["img_size"]))
    rows = [
        ["img_size", size, why["img_size"]],
        ["in_chans", str(preprocess["in_chans"]), why["in_chans"]],
        ["normalisation", "half", why["normalisation"]],
        ["augmentation", told["strength"], why["augment"]],
        *([["flip", "none", why["flip"]]] if "flip" in why else []),
        ["loader", told["loader"], why["loader"]],
        ["model", model["name"], "; ".join([*model["why"], *model["cautions"]])],
    ]
    print_table(("suggested", "", "because"), [[escape(cell) for cell in row] for row in rows], wraps={"because": 40})
    _line()


def _spread(sizes: list[list[int]], axis: int) -> str:
    values = sorted((size[axis], size[2]) for size in sizes)
    half, passed, median = sum(count for _, count in values) / 2, 0, values[-1][0]
    for value, count in values:
        passed += count
        if passed >= half:
            median = value
            break
    return f"{values[0][0]:,} / {median:,} / {values[-1][0]:,}"


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _numbers(values: list[float] | tuple[float, ...]) -> str:
    return "  ".join(f"{value:.4f}" for value in values)

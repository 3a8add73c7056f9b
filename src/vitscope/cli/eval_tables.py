"""What an evaluation found, as plain data and as tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from vitscope.cli.console import console, print_table
from vitscope.train.evaluate import Evaluation
from vitscope.train.show.card import wilson_interval

MOST_CLASSES = 40
"""Rows of the table of classes; of more, those with the lowest accuracy are shown."""
MOST_CONFUSIONS = 10


def report_of(found: Evaluation, names: Sequence[str]) -> dict[str, Any]:
    """Everything, in plain data. Classes are in the model's order."""
    right = round(found.accuracy * found.count)
    confusion = found.confusion
    classes = []
    for number, name in enumerate(names):
        count, correct = int(confusion[number].sum()), int(confusion[number, number])
        classes.append(
            {"name": name, "count": count, "correct": correct, "accuracy": correct / count if count else None}
        )
    wrong = confusion.clone()
    wrong.fill_diagonal_(0)
    pairs = [(int(wrong[true, taken]), int(true), int(taken)) for true, taken in wrong.nonzero()]
    return {
        "count": found.count,
        "accuracy": found.accuracy,
        "accuracy_95": list(wilson_interval(right, found.count)),
        "top5": found.top5,
        "loss": found.loss,
        "no_answer": found.count - int(confusion.sum()),
        "classes": classes,
        "confusions": [
            {"true": names[true], "predicted": names[taken], "count": count}
            for count, true, taken in sorted(pairs, key=lambda pair: (-pair[0], pair[1:]))
        ],
    }


def print_report(report: dict[str, Any]) -> None:
    low, high = report["accuracy_95"]
    out = console()
    out.print(f"{report['source']} on {report['data']}, {report['part']}: {report['count']:,} pictures", markup=False)
    more = f", top-5 {report['top5']:.2%}" if report["top5"] is not None else ""
    out.print(
        f"accuracy {report['accuracy']:.2%} (95 % interval {low:.2%} to {high:.2%}){more}, loss {report['loss']:.4f}\n",
        markup=False,
    )
    if report["no_answer"]:
        out.print(f"{report['no_answer']:,} pictures got no answer: the model's logits are not numbers\n", markup=False)
    _print_classes(report["classes"])
    _print_confusions(report["confusions"])


def _print_classes(classes: list[dict[str, Any]]) -> None:
    shown = [row for row in classes if row["count"]]
    left_out = len(shown) - MOST_CLASSES
    if left_out > 0:
        shown = sorted(shown, key=lambda row: row["accuracy"])[:MOST_CLASSES]
    rows = [[escape(row["name"]), f"{row['count']:,}", f"{row['accuracy']:.1%}"] for row in shown]
    print_table(["class", "pictures", "accuracy"], rows, numbers=["pictures", "accuracy"])
    if left_out > 0:
        console().print(f"the {MOST_CLASSES} least accurate of {len(classes):,} classes", markup=False)


def _print_confusions(confusions: list[dict[str, Any]]) -> None:
    out = console()
    if not confusions:
        out.print("\nno class is confused with another", markup=False)
        return
    out.print()
    rows = [[escape(row["true"]), escape(row["predicted"]), f"{row['count']:,}"] for row in confusions]
    print_table(["true", "predicted", "count"], rows[:MOST_CONFUSIONS], numbers=["count"])
    if len(rows) > MOST_CONFUSIONS:
        out.print(f"and {len(rows) - MOST_CONFUSIONS:,} more pairs", markup=False)

"""What the examinations came to: recall, precision, false alarms with intervals, and a table fault by fault."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]
"""One line of the results file."""
FIRST = 2
"""The true cause must be among so many findings."""


def wilson(hits: int, trials: int, z: float = 1.96) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927): honest for few trials and for shares of 0 and 1."""
    if trials == 0:
        return 0.0, 1.0
    share, weight = hits / trials, z * z / trials
    middle = (share + weight / 2) / (1 + weight)
    reach = z * math.sqrt(share * (1 - share) / trials + weight / (4 * trials)) / (1 + weight)
    return max(0.0, middle - reach), min(1.0, middle + reach)


def is_found(row: Row) -> bool:
    return any(finding["cause"] in row["right"] for finding in row["findings"][:FIRST])


def is_named_first(row: Row) -> bool:
    return bool(row["findings"]) and row["findings"][0]["cause"] in row["right"]


def is_alarm(row: Row) -> bool:
    return row["verdict"] == "unwell"


def summary(rows: Iterable[Row]) -> str:
    """The figures, one line each, then both tables, in Markdown."""
    every = list(rows)
    broken = [row for row in every if row["fault"] is not None]
    listed, unlisted = ([row for row in broken if row["is_listed"] is kind] for kind in (True, False))
    sound = [row for row in every if row["fault"] is None]
    alarms = [row for row in every if is_alarm(row)]
    unsure = sum(row["verdict"] == "cannot tell" for row in sound)
    lines = [
        _line(f"recall, true cause among the first {FIRST}, listed faults", sum(map(is_found, listed)), len(listed)),
        _line("the same, faults not on the list", sum(map(is_found, unlisted)), len(unlisted)),
        _line("listed faults called unwell", sum(map(is_alarm, listed)), len(listed)),
        _line("precision, first cause right of all called unwell", sum(map(is_named_first, alarms)), len(alarms)),
        _line("false alarms, healthy called unwell", sum(map(is_alarm, sound)), len(sound)),
        f"- healthy, cannot tell: {unsure}",
        f"- examinations with a check that failed: {sum(bool(row['failed']) for row in every)}",
        f"- that could not be made: {sum(row['verdict'] == 'not examined' for row in every)}",
        *(_times(kind, [row for row in every if row["quick"] is quick]) for kind, quick in MODES),
    ]
    return "\n".join([*filter(None, lines), "", fault_table(broken), "", healthy_table(sound)])


MODES = (("quick", True), ("full", False))


def _line(what: str, hits: int, trials: int) -> str:
    if not trials:
        return ""
    low, high = wilson(hits, trials)
    return f"- {what}: {hits} of {trials}, {hits / trials:.1%} ({low:.1%} to {high:.1%})"


def _times(kind: str, rows: list[Row]) -> str:
    seconds = [row["seconds"] for row in rows]
    if not seconds:
        return ""
    mean, middle, most = (take(seconds) / 60 for take in (statistics.mean, statistics.median, max))
    return f"- minutes per {kind} examination: mean {mean:.2f}, median {middle:.2f}, most {most:.2f}"


def fault_table(rows: list[Row]) -> str:
    """Worst first, of equal ones in the order of the examination."""
    by_fault: dict[str, list[Row]] = {}
    for row in rows:
        by_fault.setdefault(row["fault"], []).append(row)
    heads = ["fault", "what was done", "right causes", "found", "first", "said instead, and where"]
    lines = _head(heads, numbers=(3, 4))
    for fault, group in sorted(by_fault.items(), key=lambda item: sum(map(is_found, item[1])) / len(item[1])):
        missed = [row for row in group if not is_found(row)]
        cells = [
            fault if group[0]["is_listed"] else f"{fault} (not listed)",
            group[0]["about"],
            ", ".join(group[0]["right"]),
            f"{len(group) - len(missed)}/{len(group)}",
            f"{sum(map(is_named_first, group))}/{len(group)}",
            "; ".join(f"{row['setup']}: {_said(row)}" for row in missed),
        ]
        lines.append(_cells(cells))
    return "\n".join(lines)


def healthy_table(rows: list[Row]) -> str:
    by_setup: dict[str, list[Row]] = {}
    for row in rows:
        by_setup.setdefault(row["setup"], []).append(row)
    lines = _head(["healthy set-up", "examined", "alarms", "cannot tell", "median s", "said"], numbers=(1, 2, 3, 4))
    for setup, group in by_setup.items():
        said = Counter(finding["cause"] for row in group for finding in row["findings"])
        cells = [
            setup,
            str(len(group)),
            str(sum(map(is_alarm, group))),
            str(sum(row["verdict"] == "cannot tell" for row in group)),
            f"{statistics.median(row['seconds'] for row in group):.1f}",
            ", ".join(f"{cause} x{count}" for cause, count in said.most_common()),
        ]
        lines.append(_cells(cells))
    return "\n".join(lines)


def _said(row: Row) -> str:
    if row["verdict"] == "not examined":
        return row["failed"][0]
    found = ", ".join(f"{finding['cause']} {finding['confidence']:.2f}" for finding in row["findings"][:3])
    return found or f"nothing ({row['verdict']})"


def _head(heads: Sequence[str], *, numbers: Sequence[int]) -> list[str]:
    return [_cells(heads), _cells(["---:" if at in numbers else "---" for at in range(len(heads))])]


def _cells(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |"

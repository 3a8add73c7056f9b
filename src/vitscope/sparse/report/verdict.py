"""Better, worse, or cannot tell: the algorithm against one control, seed by seed.

A seed fixes the data order and the first weights of both networks, so differences are taken within seeds (paired) and
the interval is Student's over those differences. One seed has no spread: whatever it shows, it cannot tell.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from vitscope.sparse.report.seeds import Network, algorithms_of, is_known, mean_and_spread, networks_of
from vitscope.sparse.report.words import percent, phrase, short_name
from vitscope.sparse.rows import DENSE, Row

Word = Literal["better", "worse", "cannot tell"]
CONFIDENCE = 0.95
Z = 1.96
"""Of a normal distribution, 95 % lie within so many deviations."""
SAME = 1e-9
"""Differences closer than this differ by rounding only."""


@dataclass(frozen=True)
class Verdict:
    """Of one algorithm against one other network, in one round. Differences are the algorithm's accuracy less the
    other's, as shares."""

    round: int
    algorithm: str
    against: str
    column: str
    """`test_accuracy`, or `val_accuracy` where no seed has both networks' test accuracy."""
    seeds: tuple[int, ...]
    """Those of both networks."""
    left_out: tuple[int, ...]
    """Seeds of one network only, or without this accuracy."""
    accuracy: float | None
    """The algorithm's mean over `seeds`."""
    other_accuracy: float | None
    differences: tuple[float, ...]
    """By seed."""
    mean: float | None
    spread: float | None
    """Standard deviation of the differences; None with fewer than two."""
    interval: tuple[float, float] | None
    """95 % for the mean difference."""
    word: Word
    pictures: int | None = None
    """How many test pictures a network was judged by."""
    epochs_ahead: int = 0
    """How much longer it was trained than a dense network, where no other one was trained as long."""

    def in_words(self) -> str:
        return " ".join(_sentences(self))


def verdict(algorithm: Network, other: Network) -> Verdict:
    ours, theirs = ({row.seed: row for row in network.rows} for network in (algorithm, other))
    column, pairs = "test_accuracy", _pairs(ours, theirs, "test_accuracy")
    if not pairs and (of_validation := _pairs(ours, theirs, "val_accuracy")):
        column, pairs = "val_accuracy", of_validation
    differences = tuple(one - another for one, another in pairs.values())
    found = mean_and_spread(differences)
    interval = t_interval(differences)
    return Verdict(
        round=algorithm.round,
        algorithm=algorithm.name,
        against=other.name,
        column=column,
        seeds=tuple(pairs),
        left_out=tuple(sorted((ours.keys() | theirs.keys()) - pairs.keys())),
        accuracy=sum(one for one, _ in pairs.values()) / len(pairs) if pairs else None,
        other_accuracy=sum(another for _, another in pairs.values()) / len(pairs) if pairs else None,
        differences=differences,
        mean=found.mean if found else None,
        spread=found.deviation if found else None,
        interval=interval,
        word=_word(interval),
        pictures=next((row.test_count for row in algorithm.rows if column == "test_accuracy"), None),
    )


def verdicts_of(rows: Sequence[Row]) -> list[Verdict]:
    """Round by round: each algorithm against the dense network it came from, then against the controls of the round."""
    networks = networks_of(rows) if rows else []  # stopped before the first
    dense = [one for one in networks if one.name == DENSE]
    found: list[Verdict] = []
    names = algorithms_of(networks)
    for ours in (one for one in networks if one.name in names):
        controls = [one for one in networks if one.is_control and one.round == ours.round]
        is_matched = any(one.name == "control:dense" for one in controls)
        ahead = 0 if is_matched else max(row.epochs for row in ours.rows)
        found += [replace(verdict(ours, other), epochs_ahead=ahead) for other in dense]
        found += [verdict(ours, other) for other in controls]
    return found


def t_interval(differences: Sequence[float]) -> tuple[float, float] | None:
    """Of their mean; None with fewer than two."""
    from scipy.special import stdtrit  # scipy.stats is a second to import

    found = mean_and_spread(differences)
    if found is None or found.deviation is None:
        return None
    half = float(stdtrit(found.count - 1, (1 + CONFIDENCE) / 2)) * found.deviation / math.sqrt(found.count)
    return found.mean - half, found.mean + half


def _pairs(ours: dict[int, Row], theirs: dict[int, Row], column: str) -> dict[int, tuple[float, float]]:
    both = ((seed, getattr(ours[seed], column), getattr(theirs[seed], column)) for seed in ours if seed in theirs)
    return {seed: (one, another) for seed, one, another in both if is_known(one) and is_known(another)}


def _word(interval: tuple[float, float] | None) -> Word:
    # An interval of no width comes from accuracies that are counts of few pictures, not from certainty.
    if interval is None or interval[1] - interval[0] < SAME:
        return "cannot tell"
    return "better" if interval[0] > 0 else "worse" if interval[1] < 0 else "cannot tell"


def _sentences(it: Verdict) -> list[str]:
    start = f"Round {it.round}, {short_name(it.algorithm)} against {phrase(it.against)}: {it.word}."
    if it.mean is None or it.accuracy is None or it.other_accuracy is None:
        return [start, "No seed has an accuracy of both."]
    pictures = "test" if it.column == "test_accuracy" else "validation"
    compared = (
        f"{percent(it.accuracy, 2)} % against {percent(it.other_accuracy, 2)} % of the {pictures} pictures are right, "
        f"{_points(it.mean)} points"
    )
    if it.interval is None:
        said = [
            start,
            f"{compared}. {_by_pictures(it)}Whether other seeds agree with this one ({it.seeds[0]}) is not known: "
            "--seeds 3.",
        ]
    elif it.interval[1] - it.interval[0] < SAME:
        said = [start, f"{compared} with each of {len(it.seeds)} seeds: too alike to know how far seeds differ."]
    else:
        low, high = (_points(min(max(end, -1.0), 1.0)) for end in it.interval)  # two seeds may go beyond what can be
        reason = "; it includes 0" if it.word == "cannot tell" else ""
        said = [start, f"{compared} over {len(it.seeds)} seeds (95 % interval {low} to {high}{reason})."]
        if len(it.seeds) == 2:
            said.append("Two seeds are few to know a spread by: --seeds 3, or more.")
    if it.epochs_ahead:
        said.append(
            f"It was trained {it.epochs_ahead} epochs longer: what those alone are worth, --controls dense tells."
        )
    if it.column == "val_accuracy":
        said.append("There is no test accuracy of both; validation chose the epoch and flatters.")
    if it.left_out:
        seeds = ", ".join(map(str, it.left_out))
        said.append(f"Left out, as one of the two has no such accuracy: seed{'s' * (len(it.left_out) > 1)} {seeds}.")
    return said


def _by_pictures(it: Verdict) -> str:
    """Whether these two networks differ, whatever others would: by the pictures alone, as if each had its own, which
    is the wider interval."""
    if it.pictures is None or it.mean is None or it.accuracy is None or it.other_accuracy is None:
        return ""
    spread = sum(share * (1 - share) for share in (it.accuracy, it.other_accuracy)) / it.pictures
    half = Z * math.sqrt(spread)
    low, high = _points(it.mean - half), _points(it.mean + half)
    if abs(it.mean) > half:
        said = "That is more than the choice of"
        how = "explains"
    else:
        said = "That may be due to the choice of"
        how = "alone"
    return f"{said} {it.pictures:,} pictures {how} (95 % interval {low} to {high}). "


def _points(difference: float) -> str:
    """With its sign; never '-0.00'."""
    return f"{round(100 * difference, 2) + 0.0:+.2f}"

"""What was found inside a model, in words and tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from vitscope.cli.console import console, print_table

if TYPE_CHECKING:
    from vitscope.infer.explain.explanation import Explanation
    from vitscope.infer.explain.feature_maps import FeatureMaps
    from vitscope.infer.explain.heads import LayerHeads
    from vitscope.infer.prediction import Prediction

MOST_NAMED = 5
ENTROPY_DIGITS = 2
"""Of the most there can be as of the rest: else a head that looks everywhere seems to exceed it."""


def print_explanation(found: Explanation) -> None:
    _say(_predicted(found.prediction))
    _say(f"map: {found.title}; {found.shows}")
    if found.faithfulness is not None:
        _say(f"faithfulness {found.faithfulness}; by the {found.faithfulness.measure}")
        _say(_verdict(found.faithfulness.verdict))
    _say("")
    even = f"{found.even_distance_px:.1f} where a head looks at all patches alike"
    _print_heads(f"mean attention distance in pixels ({even})", found, lambda layer: layer.distance_px, 1)
    most = f"{math.log2(found.num_tokens):.{ENTROPY_DIGITS}f}"
    _print_heads(f"entropy of a look in bits (0 one token, {most} all alike)", found, _entropy, ENTROPY_DIGITS)
    _say(_norms(found))


def print_feature_maps(found: FeatureMaps) -> None:
    _say(_predicted(found.prediction))
    count, chans, height, width = found.filters.shape
    _say(f"filters of {found.layer}: {count} of {chans} x {height} x {width}")
    for stage in found.stages:
        channels, down, across = stage.maps.shape
        _say(f"{stage.name}: {channels} maps of {down} x {across}")


def _predicted(told: Prediction | None) -> str:
    if told is None:
        return "the model has no classes: its map is judged by its features"
    return "the model says " + ", ".join(f"{one.label} {one.probability:.1%}" for one in told.top_k[:3])


def _verdict(verdict: str) -> str:
    if verdict == "better than chance":
        return "the map is better than chance: the answer depends on what it marks more than on other places"
    if verdict == "worse than chance":
        return "the map is worse than chance: the answer hangs less on what it marks than on other places"
    return "cannot tell whether the map is better than chance: do not read much into it"


def _entropy(layer: LayerHeads) -> tuple[float, ...]:
    return layer.entropy_bits


def _print_heads(
    title: str, found: Explanation, values: Callable[[LayerHeads], tuple[float, ...]], digits: int
) -> None:
    """A line for each layer, a column for each head."""
    _say(title)
    most = max(len(values(layer)) for layer in found.heads)
    columns = ["layer", *(f"head {head}" if most <= 8 else str(head) for head in range(most))]
    rows = []
    for layer in found.heads:
        cells = [f"{value:.{digits}f}" for value in values(layer)]
        rows.append((str(layer.layer), *cells, *([""] * (most - len(cells)))))
    print_table(columns, rows, numbers=columns)
    _say("")


def _norms(found: Explanation) -> str:
    norms, outliers = found.norms, found.norms.outliers
    if not outliers:
        return f"no patch token stands out by its norm (median {norms.median:.1f}, longest {norms.patches.max():.1f})"
    named = ", ".join(f"({row}, {column})" for row, column in outliers[:MOST_NAMED])
    more = f" and {len(outliers) - MOST_NAMED} more" if len(outliers) > MOST_NAMED else ""
    return (
        f"{len(outliers)} of {norms.patches.size} patch tokens stand out by their norm: {named}{more}; the longest has "
        f"{norms.patches.max():.1f}, the median {norms.median:.1f}. What a map shows there is seldom about that place"
    )


def _say(text: str) -> None:
    console().print(text, markup=False, soft_wrap=True)

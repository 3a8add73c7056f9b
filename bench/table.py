"""Results as text: one line while it runs, one Markdown table at the end."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vitscope.infer.benchmark.peers import OURS, TIMM, TRANSFORMERS
from vitscope.infer.benchmark.timing import paired_ratio, summary

if TYPE_CHECKING:
    from vitscope.infer.benchmark.contest import Result

NAMES = (OURS, TIMM, TRANSFORMERS)
PEERS = (TIMM, TRANSFORMERS)
LEGEND = (
    "Train and inference in images/s, latency in ms: median over rounds (quartile distance in % of it). "
    "Ratios: above 1, ours is faster; median over rounds of that round's ratio (quartiles). "
    "GiB: on a GPU at the peak; on a CPU what a call takes beyond the model."
)


def table(results: list[Result]) -> str:
    """All rows; the memory column only where memory was measured."""
    with_memory = any(result.memory_bytes for result in results)
    heads = ["model", "work", "launch", "batch", *NAMES, *(f"ours / {peer}" for peer in PEERS)]
    heads += ["GiB " + " / ".join(NAMES)] if with_memory else []
    lines = [LEGEND, "", _line(heads), _line(["---"] * 3 + ["---:"] * (len(heads) - 3))]
    for result in results:
        row = result.row
        cells = [row.model, row.work, row.launch, str(row.batch)]
        cells += [_speed(result, name) for name in NAMES] + [_ratio(result, peer) for peer in PEERS]
        cells += [_memory(result)] if with_memory else []
        lines.append(_line(cells))
    return "\n".join(lines)


def row_line(result: Result) -> str:
    """A row as it is told the moment it is finished."""
    parts = [f"{name} {_speed(result, name)}" for name in NAMES]
    parts += [f"ours / {peer} {_ratio(result, peer)}" for peer in PEERS]
    if result.memory_bytes:
        parts.append(f"GiB {_memory(result)}")
    return f"{result.row.name}, batch {result.row.batch}: " + "; ".join(parts)


def _speed(result: Result, name: str) -> str:
    if name not in result.seconds:
        return result.problems.get(name) or result.problems.get("row") or "not timed"
    if result.row.work == "latency":
        time_ms = summary([1e3 * seconds for seconds in result.seconds[name]])
        return f"{time_ms.median:.3f} ({time_ms.spread_percent:.1f} %)"
    rate = summary([result.row.batch / seconds for seconds in result.seconds[name]])
    digits = 0 if rate.median >= 1000 else 1
    return f"{rate.median:,.{digits}f} ({rate.spread_percent:.1f} %)"


def _ratio(result: Result, peer: str) -> str:
    if OURS not in result.seconds or peer not in result.seconds:
        return "-"
    ratio = paired_ratio(result.seconds[peer], result.seconds[OURS])
    return f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"


def _memory(result: Result) -> str:
    held = result.memory_bytes
    return " / ".join(f"{held[name] / 2**30:.2f}" if name in held else "-" for name in NAMES)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"

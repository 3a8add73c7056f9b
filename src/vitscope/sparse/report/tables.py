"""The tables of the report as texts in columns: a terminal and a page show the same ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vitscope.sparse.report.seeds import Network, Spread, networks_of
from vitscope.sparse.report.words import (
    MASKED,
    MASKED_MEANS,
    NOTHING,
    counted,
    lasting,
    milliseconds,
    percent,
    ranged,
    short_name,
    small,
    times,
)
from vitscope.sparse.rows import DENSE, Row

Written = Callable[[Spread], str]


@dataclass(frozen=True)
class Column:
    name: str
    cells: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        return all(cell == NOTHING for cell in self.cells)


@dataclass(frozen=True)
class Table:
    title: str
    keys: tuple[Column, ...]
    """What says which network a line is of: they come again where the table is split."""
    columns: tuple[Column, ...]
    note: str = ""


def tables_of(rows: Sequence[Row]) -> list[Table]:
    """What was removed, accuracy, speed by launch, the cut; what nobody measured is left out."""
    networks = networks_of(rows)
    made = [_removed(networks), _accuracy(networks), *_speeds(networks), _cut(networks)]
    return [table for table in made if table.columns]


def seeds_in_words(rows: Sequence[Row]) -> str:
    seeds = sorted({row.seed for row in rows})
    listed = ", ".join(map(str, seeds))
    if len(seeds) == 1:
        return f"One seed ({listed}): no spread is known."
    return f"{len(seeds)} seeds ({listed}): means, in brackets the lowest and the highest."


def _table(title: str, networks: Sequence[Network], columns: Sequence[Column], note: str = "") -> Table:
    keys = [
        Column("round", tuple(str(one.round) for one in networks)),
        Column("network", tuple(f"{'  ' * one.is_control}{short_name(one.name)}" for one in networks)),
    ]
    counts = [str(len(one.rows)) for one in networks]
    if len(set(counts)) > 1:  # a mean of two beside a mean of three has to be seen
        keys.append(Column("seeds", tuple(counts)))
    return Table(title, tuple(keys), tuple(column for column in columns if not column.is_empty), note)


def _column(name: str, networks: Sequence[Network], field: str, write: Written) -> Column:
    found = (one.over_seeds(field) for one in networks)
    return Column(name, tuple(NOTHING if spread is None else write(spread) for spread in found))


def _mean(write: Callable[[float], str]) -> Written:
    return lambda found: write(found.mean)


def _with_range(write: Callable[[float], str], shorter: Callable[[float], str] | None = None) -> Written:
    """`shorter` writes what stands in the brackets."""
    within = shorter or write
    return lambda found: ranged(found, write(found.mean), within(found.low), within(found.high))


def _removed(networks: Sequence[Network]) -> Table:
    kinds = ("heads", "neurons", "channels", "weights")
    shares = [_column(f"{kind} %", networks, f"{kind}_removed", _mean(percent)) for kind in kinds]
    # Single weights leave every unit where it is; a column of zeros would say no more.
    columns = [share for share in shares if not {*share.cells} <= {NOTHING, percent(0)}]
    columns += [
        _column(name, networks, field, _mean(counted)) for name, field in (("params", "params"), ("MACs", "macs"))
    ]
    note = "Shares are of the dense network; weights are the entries of attention and MLP or of the filters."
    if any(one.is_masked for one in networks):
        note += " Weights that are only masked are still there: params and MACs count them."
    return _table("Removed", networks, columns, note)


def _accuracy(networks: Sequence[Network]) -> Table:
    shown = (
        ("before the cut", "before_cut_val_accuracy"),
        ("after the cut", "after_cut_val_accuracy"),
        ("validation", "val_accuracy"),
        ("test", "test_accuracy"),
    )
    write = _with_range(lambda share: percent(share, 2))
    columns = [_column(name, networks, field, write) for name, field in shown]
    note = "Test pictures decided nothing."
    if not (columns[0].is_empty and columns[1].is_empty):
        note = f"Before and after the cut: validation pictures. {note}"
    return _table("Accuracy in %", networks, columns, note)


def _speeds(networks: Sequence[Network]) -> list[Table]:
    """One table for each launch the networks were timed with, and one for the eager figures beside it."""
    launches = dict.fromkeys(row.launch for one in networks for row in one.rows if row.launch is not None)
    tables = [_speed(launch, _launched(networks, launch), "") for launch in launches]
    return [*tables, _speed("eager, beside it", networks, "eager_")]


def _launched(networks: Sequence[Network], launch: str) -> list[Network]:
    """Without what was timed in another way: milliseconds of two launches have no common mean."""
    kept = ((one, tuple(row for row in one.rows if row.launch in (launch, None))) for one in networks)
    return [Network(one.round, one.name, rows) for one, rows in kept if rows]


def _speed(launch: str, networks: Sequence[Network], prefix: str) -> Table:
    columns: list[Column] = []
    for batch in (1, 256):
        field = f"{prefix}ms_batch{batch}" if prefix else f"latency_ms_batch{batch}"
        timed = _column(f"ms, batch {batch}", networks, field, _mean(milliseconds))
        ratios = _column("speed-up", networks, f"{prefix}speedup_batch{batch}", _with_range(times, "{:.2f}".format))
        beside = _column("dense beside it", networks, f"dense_ms_batch{batch}", _mean(milliseconds))
        if not (timed.is_empty and ratios.is_empty):
            columns += [timed, *([] if prefix else [beside]), _against_dense(networks, timed, ratios)]
    note = ""
    if not prefix:
        note = (
            "Milliseconds are medians. Each network took turns with the dense one, whose time stands beside it; the "
            "speed-up is the median of the turns' ratios."
        )
    if any(one.is_masked for one in networks):
        note = f"{note} What has no speed-up is {MASKED_MEANS}.".strip()
    return _table(f"Speed ({launch})", networks, columns, note)


def _against_dense(networks: Sequence[Network], timed: Column, ratios: Column) -> Column:
    """Masked networks are named as such, whatever else is known of them; the dense network is as fast as itself."""
    cells = [
        MASKED if one.is_masked else times(1) if one.name == DENSE and ratio == NOTHING and ms != NOTHING else ratio
        for one, ratio, ms in zip(networks, ratios.cells, timed.cells, strict=True)
    ]
    return Column(ratios.name, tuple(cells))


def _cut(networks: Sequence[Network]) -> Table:
    columns = [
        _column("lambda at the end", networks, "lambda_end", _mean(lambda value: f"{value:.3g}")),
        _column("max|D|/median|kept|", networks, "doomed_share", lambda found: small(found.high)),
        _column("logits moved", networks, "cut_moved_logits", lambda found: small(found.high)),
        _column("epochs", networks, "epochs", _mean(lambda value: f"{value:.0f}")),
        _column("time", networks, "seconds", _mean(lasting)),
    ]
    note = ""
    if not columns[1].is_empty:
        note = "D is what was cut, measured right before; of it and of the logits' move the worst seed is shown."
    return _table("The cut, and the time", networks, columns, note)

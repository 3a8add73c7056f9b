"""The report's text, page and files: the numbers that must stand in them, and what must never be said."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import pytest

from sparse.made_rows import experiment
from vitscope.core.errors import DataError
from vitscope.sparse.report import as_text, left, verdicts_of, write_report
from vitscope.sparse.report.page import as_page
from vitscope.sparse.report.tables import tables_of
from vitscope.sparse.report.words import counted, lasting, milliseconds
from vitscope.sparse.rows import DENSE, Row, read_rows, write_rows

DENSE_ROW = Row(
    seed=0, round=0, network=DENSE, params=2_000_000, macs=170_000_000, test_accuracy=0.9, val_accuracy=0.91,
    latency_ms_batch1=0.5, latency_ms_batch256=8.0, launch="eager", heads_left="3 3", neurons_left="8 8",
)  # fmt: skip
REFILL_ROW = Row(
    seed=0, round=1, network="refill", heads_removed=0.5, neurons_removed=0.25, weights_removed=0.3125,
    params=1_500_000, macs=120_500_000, latency_ms_batch1=0.4, latency_ms_batch256=5.0, speedup_batch1=1.25,
    speedup_batch256=1.6, launch="eager", val_accuracy=0.87, test_accuracy=0.88, epochs=60, seconds=3725.0,
    heads_left="2 1", neurons_left="8 4",
)  # fmt: skip
IMP_ROW = Row(
    seed=0, round=1, network="imp", weights_removed=0.2, params=2_000_000, macs=170_000_000, test_accuracy=0.89
)


def line_of(text: str, table: str, network: str) -> str:
    """The first line of a network after a table's title."""
    after = text[text.index(f"\n{table}\n") :]
    return next(line for line in after.splitlines() if network in line.split())


def test_one_seeds_numbers_stand_in_the_tables() -> None:
    text = as_text([DENSE_ROW, REFILL_ROW])
    assert " ".join(line_of(text, "Removed", "refill").split()) == "1 refill 50.0 25.0 31.2 1.50 M 120.50 M"
    assert line_of(text, "Accuracy in %", "refill").split() == ["1", "refill", "87.00", "88.00"]
    assert line_of(text, "Speed (eager)", "refill").split() == ["1", "refill", "0.400", "1.25x", "5.00", "1.60x"]
    assert line_of(text, "Speed (eager)", "dense").split() == ["0", "dense", "0.500", "1.00x", "8.00", "1.00x"]
    assert line_of(text, "The cut, and the time", "refill").split() == ["1", "refill", "60", "1", "h", "02", "min"]
    assert "One seed (0)" in text
    assert "One seed (0): no spread is known." in " ".join(text.split())
    assert "No control was run" in text


def test_the_dense_networks_time_in_the_same_turns_stands_beside_a_speed_up() -> None:
    text = as_text([DENSE_ROW, replace(REFILL_ROW, dense_ms_batch1=0.5, dense_ms_batch256=8.0)], width=140)
    cells = line_of(text, "Speed (eager)", "refill").split()
    assert cells == ["1", "refill", "0.400", "0.500", "1.25x", "5.00", "8.00", "1.60x"]


def test_seeds_are_shown_as_mean_lowest_and_highest() -> None:
    rows = [
        replace(row, seed=seed, test_accuracy=accuracy, speedup_batch256=speedup)
        for row in (DENSE_ROW, REFILL_ROW)
        for seed, accuracy, speedup in ((0, 0.88, 1.5), (1, 0.90, 1.6), (2, 0.881, 1.7))
    ]
    text = as_text(rows)
    assert "88.70 (88.00 to 90.00)" in line_of(text, "Accuracy in %", "refill")
    assert "1.60x (1.50 to 1.70)" in line_of(text, "Speed (eager)", "refill")


def test_rsst_tells_lambda_and_the_worst_seeds_doomed() -> None:
    rows = experiment("rsst", rounds=1)
    assert line_of(as_text(rows), "The cut, and the time", "rsst").split()[2:5] == ["1", "3e-07", "2e-06"]


def test_eager_stands_beside_the_launch() -> None:
    titles = [table.title for table in tables_of(experiment(rounds=1))]
    assert titles == [
        "Removed", "Accuracy in %", "Speed (compiled_graph)", "Speed (eager, beside it)", "The cut, and the time",
    ]  # fmt: skip


def test_launches_are_never_averaged() -> None:
    rows = [DENSE_ROW, REFILL_ROW, replace(REFILL_ROW, seed=1, launch="compiled_graph", latency_ms_batch1=0.1)]
    by_title = {table.title: table for table in tables_of(rows)}
    cells = {title: by_title[f"Speed ({title})"].columns[0].cells for title in ("eager", "compiled_graph")}
    assert cells == {"eager": ("0.500", "0.400"), "compiled_graph": ("0.100",)}


def test_masks_are_never_called_a_speed_up() -> None:
    text = as_text([DENSE_ROW, IMP_ROW])
    assert line_of(text, "Speed (eager)", "imp").split() == ["1", "imp", "-", "masked", "-", "masked"]
    assert "imp is masked: no smaller, no faster" in text
    assert "heads %" not in text
    assert "masked: no smaller, no faster" in as_page([DENSE_ROW, IMP_ROW], settings={}, title="t", pictures={})


def test_units_that_were_not_timed_are_not_called_masked() -> None:
    untimed = replace(REFILL_ROW, speedup_batch1=None, speedup_batch256=None, latency_ms_batch1=None)
    text = as_text([DENSE_ROW, untimed])
    assert "masked" not in text
    assert line_of(text, "Speed (eager)", "refill").split() == ["1", "refill", "-", "-", "5.00", "-"]


def test_missing_seeds_are_counted() -> None:
    rows = [row for row in experiment(rounds=1) if (row.seed, row.network) != (2, "control:random")]
    found = tables_of(rows)[0].keys
    assert found[-1].name == "seeds"
    assert found[-1].cells == ("3", "3", "3", "2", "3", "3")


@pytest.mark.parametrize("width", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    text = as_text(experiment(rounds=5), width=width)
    assert max(map(len, text.splitlines())) <= width
    assert ("\n1" in text) is False  # tables are split by columns: no cell begins a line by itself


def test_a_split_table_loses_no_column() -> None:
    narrow, wide = (as_text(experiment(rounds=1), width=width) for width in (60, 300))
    for table in tables_of(experiment(rounds=1)):
        for column in table.columns:
            assert column.name in narrow
            assert all(cell in narrow and cell in wide for cell in column.cells)


def test_numbers_are_written_to_be_read() -> None:
    assert [counted(value) for value in (999, 1500, 2_693_000, 4.16e9)] == ["999", "1.50 k", "2.69 M", "4.16 G"]
    assert [milliseconds(value) for value in (0.3, 4.4, 12.345, 99.97, 1234.5)] == [
        "0.300", "4.40", "12.3", "100", "1234",
    ]  # fmt: skip
    assert [lasting(value) for value in (1.25, 42.0, 90.0, 1500.0, 3725.0)] == [
        "1.2 s", "42 s", "1.5 min", "25 min", "1 h 02 min",
    ]  # fmt: skip


def test_the_report_is_written_from_rows_that_were_stored(tmp_path: Path) -> None:
    write_rows(tmp_path / "rounds.csv", experiment(rounds=2))
    rows = read_rows(tmp_path / "rounds.csv")
    written = write_report(tmp_path, rows, settings={"rate": "0.2 <of what remains>"}, title="rsst & friends")
    assert written == {
        "report": tmp_path / "report.html",
        "verdicts": tmp_path / "verdicts.json",
        "accuracy_and_speed": tmp_path / "plots" / "accuracy_and_speed.png",
        "what_is_left": tmp_path / "plots" / "what_is_left.png",
    }
    verdicts = json.loads(written["verdicts"].read_text())
    assert [(one["round"], one["against"], one["word"]) for one in verdicts] == [
        (one.round, one.against, one.word) for one in verdicts_of(rows)
    ]
    page = written["report"].read_text(encoding="utf-8")
    assert "<title>rsst &amp; friends</title>" in page
    assert "0.2 &lt;of what remains&gt;" in page
    assert page.count('src="data:image/png;base64,') == 2
    assert page.count('<li class="better">') == sum(": better." in line for line in as_text(rows).splitlines())
    assert "<script" not in page
    assert re.findall(r"(?:src|href)=\"(?!data:)", page) == []
    assert "http" not in page
    for table in tables_of(rows):
        assert all(f">{cell.strip()}</td>" in page for column in table.columns for cell in column.cells)


def test_single_weights_have_no_map_of_units(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        written = write_report(tmp_path, experiment("imp", controls=()), settings={}, title="imp")
    assert set(written) == {"report", "verdicts", "accuracy_and_speed"}
    assert caplog.records == []


def test_a_picture_that_fails_costs_only_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("no ink")

    monkeypatch.setattr(left, "_bars", fail)
    with caplog.at_level(logging.WARNING, logger="vitscope"):
        written = write_report(tmp_path, experiment(rounds=1), settings={}, title="t")
    assert set(written) == {"report", "verdicts", "accuracy_and_speed"}
    assert not (tmp_path / "plots" / "what_is_left.png").exists()
    assert [record.getMessage() for record in caplog.records] == ["plots/what_is_left.png could not be drawn"]
    assert written["report"].read_text(encoding="utf-8").count("data:image/png") == 1


def test_no_rows_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="expected at least one, received none"):
        as_text([])
    with pytest.raises(DataError, match="expected at least one, received none"):
        write_report(tmp_path, [], settings={}, title="t")

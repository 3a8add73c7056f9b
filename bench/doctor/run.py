"""The fault benchmark: breaks healthy set-ups one way at a time and counts what the doctor says of them.

    python bench/doctor/run.py --quick --out runs/doctor-quick.jsonl     # every fault on 3 set-ups
    python bench/doctor/run.py --quick --only 'labels_*' --only healthy  # some of it
    python bench/doctor/run.py --table --out runs/doctor-quick.jsonl     # the tables again, without examining

Results are a JSON object a line, written as they come. What the file already holds is not examined again, so a run that
was stopped goes on where it was. `--budget-seconds` ends it in time: cases come in turns, each fault once before any
comes twice.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
import warnings
from pathlib import Path

import torch

from cases import Case, every_case, wanted
from fault_list import FAULTS
from score import Row, summary
from script import assemble
from setups import SETUPS
from strangers import STRANGERS
from vitscope.core.environment import data_roots


def examined(case: Case, *, quick: bool) -> Row:
    """An examination that breaks off is a row too: it found nothing."""
    fault = case.fault
    row: Row = {
        "key": case.key,
        "fault": None if fault is None else fault.name,
        "about": "" if fault is None else fault.about,
        "right": [] if fault is None else list(fault.right),
        "is_listed": fault is None or fault.is_listed,
        "setup": case.setup.name,
        "seed": case.seed,
        "quick": quick,
    }
    setup = assemble(case.script())
    began = time.perf_counter()
    try:
        report = setup.examine(quick=quick)
    except Exception as error:  # whatever a broken set-up may raise
        first = str(error).splitlines()[0] if str(error) else ""
        failed = [f"{type(error).__name__}: {first}"]
        row |= {"verdict": "not examined", "findings": [], "checks": {}, "failed": failed}
    else:
        row |= {
            "verdict": report.verdict,
            "findings": [
                {name: one[name] for name in ("cause", "confidence", "numbers")} for one in report.as_json()["findings"]
            ],
            "checks": {asked.check.name: round(asked.seconds, 3) for asked in report.asked},
            "failed": [f"{asked.check.name}: {asked.failed}" for asked in report.asked if asked.failed is not None],
        }
    return row | {"seconds": round(time.perf_counter() - began, 3)}


def already(file: Path, *, quick: bool) -> dict[str, Row]:
    """Rows of the file by key; a line cut off when the run was stopped is examined again."""
    rows = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        if row["quick"] is quick:
            fault = FAULTS.get(row["fault"])
            # What counts as right is judged by today's list, not by that of the day it was examined.
            rows[row["key"]] = row if fault is None else row | {"right": list(fault.right), "about": fault.about}
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("runs/doctor-bench.jsonl"), help="the results file")
    parser.add_argument("--quick", action="store_true", help="quick examinations; full ones without it")
    parser.add_argument(
        "--only", action="append", default=[], help="faults, set-ups, keys or 'healthy', with wildcards"
    )
    parser.add_argument("--strangers", action="store_true", help="networks the doctor was not tuned on (strangers.py)")
    parser.add_argument("--setups", action="append", default=[], help="no other set-ups than these")
    parser.add_argument("--seed", type=int, default=0, help="chooses set-ups, pictures and weights")
    parser.add_argument("--each", type=int, default=3, help="set-ups for each fault")
    parser.add_argument("--healthy-seeds", type=int, default=6, help="examinations of each healthy set-up")
    parser.add_argument("--budget-seconds", type=float, default=None, help="begin no examination after so many")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--table", action="store_true", help="print the tables of the results file and stop")
    given = parser.parse_args()

    torch.set_num_threads(given.threads)
    warnings.filterwarnings("ignore")  # of broken set-ups there are many
    known = STRANGERS if given.strangers else SETUPS
    setups = [known[name] for name in given.setups] or [*known.values()]
    has_data = any((root / "cifar10").exists() for root in data_roots())
    left_out = [setup.name for setup in setups if not has_data and not setup.is_built_in]
    if left_out:
        print(f"left out, no data here ($VITSCOPE_DATA): {', '.join(left_out)}", file=sys.stderr)
        setups = [setup for setup in setups if setup.is_built_in]
    cases = every_case(given.seed, each=given.each, healthy_seeds=given.healthy_seeds, setups=setups)
    cases = wanted(cases, given.only)
    done = already(given.out, quick=given.quick)
    began = time.perf_counter()
    given.out.parent.mkdir(parents=True, exist_ok=True)
    for number, case in enumerate([] if given.table else cases, start=1):
        if case.key in done:
            continue
        if given.budget_seconds is not None and time.perf_counter() - began > given.budget_seconds:
            print(f"out of time after {number - 1} of {len(cases)} cases; the same command goes on", file=sys.stderr)
            break
        row = examined(case, quick=given.quick)
        done[case.key] = row
        with given.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        said = ", ".join(f"{one['cause']} {one['confidence']:.2f}" for one in row["findings"][:3]) or row["verdict"]
        print(f"{number}/{len(cases)} {case.key}: {said} ({row['seconds']:.1f} s)", file=sys.stderr, flush=True)
    chosen = {case.key for case in cases}
    rows = [row for key, row in done.items() if given.table or key in chosen]
    print(summary(rows))


if __name__ == "__main__":
    main()

"""The classic lr sweep, beside the test that is believed: one run whose rate rises at every step. Only a comparison."""

from __future__ import annotations

from vitscope.doctor.experiments.held import pool_of
from vitscope.doctor.experiments.lr_test import classic_sweep, find_edge, is_good, look_above, lr_test_of
from vitscope.doctor.finding import Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture

BELOW_LOWEST = 10.0
"""What is usually taken: a tenth of the rate at which the loss was lowest."""


def sweep(patient: Patient) -> Seen:
    """Never a finding: it passes the rates that matter while a transformer is warming up, and reports too much."""
    if patient.make_trainer is None:
        return Seen(left_out="no_optimizer")
    test = lr_test_of(patient)
    own = test.runs[test.own]
    if test.own > 0 and test.edge is None:
        (look_above if is_good(own, own) else find_edge)(test, patient)
    lrs, losses = classic_sweep(patient, pool_of(patient))
    if not losses:
        return Seen(left_out="sweep_was_lost")
    lowest = lrs[losses.index(min(losses))]
    numbers = {"lowest": lowest, "classic": lowest / BELOW_LOWEST, "edge": test.edge}
    picture = Picture(
        "Classic sweep: the rate rises at every step", "learning rate", "loss", [Line("loss", lrs, losses)],
        log_x=True, mark=test.edge,
    )  # fmt: skip
    notes = [] if test.edge is None else [Note("classic_sweep", numbers)]
    return Seen(measured={**numbers, "steps": len(losses)}, notes=notes, picture=picture)

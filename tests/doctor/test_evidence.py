"""Every finding that has numbers to show has a picture of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import vitscope.doctor
from vitscope.doctor.causes import CAUSES, WAYS
from vitscope.doctor.check import Check
from vitscope.doctor.evidence import DRAWN, picture_of_numbers
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.report.draw import as_svg

NOTHING_TO_DRAW = {
    "constant_channel",
    "normalisation_not_that_of_weights",
    "validation_normalised_otherwise",
    "forward_fails",
    "output_shape_wrong",
    "outputs_not_finite",
    "labels_not_taken",
    "head_frozen",
    "layer_not_finite",
    "pictures_left_out",
}
"""Words, names and places rather than numbers."""
MOST_LETTERS = 24
"""Of a bar's name; a drawing cuts longer ones."""
SOURCE = "".join(path.read_text() for path in Path(vitscope.doctor.__file__).parent.rglob("*.py"))


def test_each_cause_is_drawn_by_its_check_or_by_its_numbers() -> None:
    drawn = set(re.findall(r'Finding\(\s*"(\w+)"[^\n]*(?:picture|picture_of)', SOURCE))
    curves = {"overfitting", "underfitting", "plateaued", "loss_oscillates", "loss_diverged", "warmup_missing"}
    assert set(CAUSES) - set(DRAWN) - drawn - curves == NOTHING_TO_DRAW


@pytest.mark.parametrize("cause", list(DRAWN))
def test_bars_stand_for_numbers_that_the_cause_has(cause: str) -> None:
    places = {place for way in WAYS[cause] for place in way.places} | {"labels", "scaled", "rows", "patches"}
    extra = {"classes", "far", "wide", "spread", "steps", "share", "ratio", "changed"}
    named = {value for _, _, bars in DRAWN[cause] for value in bars.values() if isinstance(value, str)}
    assert named <= places | extra
    assert all(len(bar) <= MOST_LETTERS for _, _, bars in DRAWN[cause] for bar in bars)
    numbers = dict.fromkeys(named, 0.5) | {"largest": 3, "outputs": 4, "times": 2.0}
    picture = picture_of_numbers(Finding(cause, 0.9, numbers))
    assert picture is not None
    assert as_svg(picture).startswith("<svg")


def test_a_report_draws_what_its_checks_did_not() -> None:
    found = Finding("loss_wrong_at_start", 0.8, {"loss": 9.0, "expected": 2.3, "spread": 1.0, "standard": 9.0})
    asked = Asked(Check("first_loss", "forward", lambda patient: Seen()), 0.1, Seen(findings=[found]))
    (told,) = Report([asked]).findings
    assert told.picture is not None
    assert list(told.picture.lines[0].y) == [9.0, 2.3]
    assert picture_of_numbers(Finding("loss_wrong_at_start", 0.8, {"loss": float("nan"), "expected": 2.3})) is None

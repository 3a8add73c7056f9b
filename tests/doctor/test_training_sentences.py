"""Every cause, note and reason of the training stage has sentences its numbers fill, in each language."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from vitscope.doctor import checks
from vitscope.doctor.causes import CAUSES, LEFT_OUT, NOTES, WAYS, cause_for, training
from vitscope.doctor.causes.curve import CURVE_CAUSES
from vitscope.doctor.causes.run_notes import RUN_LEFT_OUT, RUN_NOTES
from vitscope.doctor.causes.text import Text
from vitscope.doctor.report.words import WHY_NOT

OF_CHECKS = [cause for cause in training.CAUSES if cause not in CURVE_CAUSES]
SOURCE = "".join(path.read_text() for path in sorted((Path(checks.__file__).parent / "training").glob("*.py")))
LR = {"lr": 0.5, "start": 2.3, "end": 2.2, "edge": 3e-3, "proposal": 1e-3, "better_end": 1.0, "move": 8.0}
BATCH = {"batch": 64, "batch_start": 2.3, "batch_end": 1.0, "batch_steps": 12}


def places(text: Text) -> tuple[set[str], set[str]]:
    english, chinese = ({name for _, name, _, _ in string.Formatter().parse(one) if name} for one in text)
    return english, chinese


@pytest.mark.parametrize("number", range(len(OF_CHECKS)), ids=[cause.name for cause in OF_CHECKS])
def test_both_languages_show_the_same_numbers(number: int) -> None:
    cause = OF_CHECKS[number]
    for text in (cause.title, cause.evidence, cause.cost, cause.action, cause.effect):
        english, chinese = places(text)
        assert english == chinese
        assert re.search(r"[\u4e00-\u9fff]", text.zh)
    assert places(cause.title) == (set(), set())


def test_checks_name_only_what_has_sentences_and_all_of_it() -> None:
    found = set(re.findall(r'Finding\(\s*"(\w+)"', SOURCE)) | set(re.findall(r'_finding\(\s*patient, "(\w+)"', SOURCE))
    noted = set(re.findall(r'Note\(\s*"(\w+)"', SOURCE))
    left_out = set(re.findall(r'left_out\s*=\s*"(\w+)"', SOURCE))
    assert found == {cause.name for cause in OF_CHECKS}
    assert found <= set(CAUSES)
    assert noted == {note.name for note in training.NOTES if note not in RUN_NOTES}
    assert noted <= set(NOTES)
    assert left_out <= set(LEFT_OUT)
    elsewhere = (*RUN_LEFT_OUT, training.STEP_WANTS_CLOSURE)
    assert left_out >= {reason.name for reason in training.LEFT_OUT if reason not in elsewhere}


def test_a_rate_is_told_by_what_was_measured() -> None:
    """A run that was lost has no size of steps; fresh batches are told where they decided."""
    plain = cause_for("lr_too_high", {**LR, **BATCH})
    assert "each step changed the weights by 8 %" in plain.evidence.said("en", {**LR, **BATCH})
    lost = {**{key: value for key, value in LR.items() if key != "move"}, **BATCH, "lost_after": 3}
    assert "started at 2.3 and diverged after 3 steps" in cause_for("lr_too_high", lost).evidence.said("en", lost)
    fresh = {**LR, **BATCH, "fresh_steps": 60, "fresh_own": 2.3, "fresh_better": 1.9}
    assert "after 60 steps on fresh batches" in cause_for("lr_too_high", fresh).evidence.said("en", fresh)


def test_a_missing_warm_up_is_told_by_what_was_measured() -> None:
    few = {"lr": 3e-3, "cold": 2.3, "warm": 1.0, "start": 2.3, "steps": 48}
    assert "48 steps at 0.003" in cause_for("warmup_missing", few).evidence.said("en", few)
    fresh = {**few, "first": 12.0}
    assert "by 12 %" in cause_for("warmup_missing", fresh).evidence.said("en", fresh)


def test_flags_are_named_only_where_there_is_a_run_to_type_them_for() -> None:
    """From Python there are none; where settings are examined, they stand on a line of their own."""
    texts = {
        cause.name: text
        for name, ways in WAYS.items()
        for cause in ways
        if name not in {one.name for one in CURVE_CAUSES} and "config" not in cause.places
        for text in (cause.title, cause.evidence, cause.cost, cause.action, cause.effect)
        if "--" in text.en + text.zh
    }
    assert texts == {}
    assert not any("--" in text.en + text.zh for text in WHY_NOT.values())

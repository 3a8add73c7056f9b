"""Notes: those of the tuning guide are one short line at the end, and none argues with what a finding measured."""

from __future__ import annotations

from pathlib import Path

import pytest

from train.tiny_runs import K, network, tiny
from vitscope import save_model
from vitscope.doctor.causes import CAUSES
from vitscope.doctor.check import Check
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.settings_door import examine_settings
from vitscope.train.config import TrainConfig
from vitscope.train.config.checkpoint import CheckpointConfig

GUIDE = "guide_differs"


def report(notes: list[Note], *findings: Finding) -> Report:
    return Report(asked=[Asked(Check("one", "settings", lambda _: Seen()), 0.0, Seen({}, list(findings), notes))])


def guide(**advice: str) -> Note:
    given = {key.replace("__", "."): said for key, said in advice.items()}
    return Note(GUIDE, {"pictures": 1222, "advice": given, "departures": ", ".join(given.values())})


def rate(lr: float) -> Finding:
    numbers = dict.fromkeys(CAUSES["lr_too_high"].places, 1.0)
    return Finding("lr_too_high", 0.9, numbers, (Change("optim.lr", lr),))


def names(config: TrainConfig) -> list[str]:
    return [note.name for note in examine_settings(config, only=["settings"]).notes]


def test_the_guides_note_is_the_last_and_short() -> None:
    wd = guide(optim__weight_decay="weight_decay 0.001 .. 0.005")
    told = report([wd, Note("head_dim_small", {"dim": 24})])
    assert [note.name for note in told.notes] == ["head_dim_small", GUIDE]
    (line,) = [line for line in str(told).splitlines() if "Tuning guide" in line]
    assert len(line) <= 80
    assert "经验值" in told.as_text(language="zh")
    assert told.verdict == "healthy"


def test_the_guide_says_nothing_of_what_a_finding_changes() -> None:
    both = guide(optim__weight_decay="weight_decay 0.001 .. 0.005", model__drop_rate="drop_rate 0.3 .. 0.5")
    decay = {**dict.fromkeys(CAUSES["weight_decay_too_high"].places, 1.0)}
    found = Finding("weight_decay_too_high", 0.9, decay, (Change("optim.weight_decay", 0.05),))
    (note,) = report([both], found).notes
    assert note.numbers["departures"] == "drop_rate 0.3 .. 0.5"
    assert report([guide(optim__weight_decay="x")], found).notes == []


@pytest.mark.parametrize("cause", ["dropout_too_high", "weight_decay_too_high"])
def test_the_guide_says_nothing_of_what_a_finding_is_about(cause: str) -> None:
    """From Python there are no settings, so that a finding changes none."""
    key = {"dropout_too_high": "model.drop_rate", "weight_decay_too_high": "optim.weight_decay"}
    both = guide(optim__weight_decay="weight_decay", model__drop_rate="drop_rate", augment="augment basic")
    (note,) = report([both], Finding(cause, 0.9, dict.fromkeys(CAUSES[cause].places, 1.0))).notes
    assert note.numbers["departures"].split(", ") == [
        said for name, said in note.numbers["advice"].items() if name != key[cause]
    ]


def test_one_rate_is_proposed() -> None:
    bold = Note("lr_bold_for_fine_tuning", {"lr": 0.01, "usual": 3e-5})
    assert [note.name for note in report([bold]).notes] == ["lr_bold_for_fine_tuning"]
    assert report([bold], rate(1e-3)).notes == []
    told = examine_settings(tiny(optim={"lr": 1.0}), only=["settings", "step_size", "first_steps"])
    assert {"lr_too_high", "updates_too_large"} <= {finding.cause for finding in told.findings}
    (figure,) = {change.value for finding in told.findings for change in finding.changes if change.key == "optim.lr"}
    assert f"{figure:g}" in str(told)
    assert "factor" not in str(told)
    assert not any("lr " in str(note.numbers.get("departures")) for note in told.notes), "it is measured"


@pytest.mark.parametrize("is_new", [True, False])
def test_a_rate_for_fine_tuning_is_told_of_a_new_task_only(is_new: bool, tmp_path: Path) -> None:
    """Rounds of a sparse experiment begin with given weights too, and go on with their own task."""
    labels = [f"another {number}" for number in range(K)] if is_new else None
    save_model(network(), tmp_path / "start", labels=labels)
    start = CheckpointConfig(init_from=str(tmp_path / "start"))
    told = names(tiny(optim={"lr": 1e-2}, checkpoint=start))
    assert ("lr_bold_for_fine_tuning" in told) is is_new
    assert GUIDE not in told

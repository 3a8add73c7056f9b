"""Settings broken on purpose, examined by the real checks, mended, written, read and examined again: clean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.core.config import updated
from vitscope.data.dataset import open_dataset
from vitscope.doctor.causes import CAUSES
from vitscope.doctor.check import Check
from vitscope.doctor.checks.training.lr import first_steps
from vitscope.doctor.config_patient import config_patient
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.fix import propose_fix, write_fix
from vitscope.doctor.settings_door import examine_settings
from vitscope.recipes import find_recipe
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config


def digits(**optim: Any) -> TrainConfig:
    config = find_recipe("digits_vit")()
    return updated(config, optim=updated(config.optim, **optim), model=config.model.changed(depth=2))


@pytest.mark.parametrize(
    ("config", "cause", "key"),
    [
        (digits(lr=0.5), "lr_too_high", "optim.lr"),
        (digits(name="adamw", lr=1e-3, weight_decay=10.0), "weight_decay_too_high", "optim.weight_decay"),
        (
            updated(digits(), model=digits().model.changed(num_heads=12)),
            "head_dim_too_small",
            "model.num_heads",
        ),
        (updated(digits(), model=digits().model.changed(patch_size=4)), "patch_too_coarse", "model.patch_size"),
    ],
    ids=["lr", "decay", "heads", "patches"],
)
def test_what_is_written_is_clean_when_examined_again(
    config: TrainConfig, cause: str, key: str, tmp_path: Path
) -> None:
    report = examine_settings(config, quick=True)
    assert report.verdict == "unwell"
    assert cause in [finding.cause for finding in report.findings[:2]]
    fix = propose_fix(report, config)
    assert key in [one.key for one in fix.mended]
    assert fix.left == ()
    path = write_fix(fix, tmp_path / "better.yaml", source="digits_vit")
    assert cause in path.read_text()
    again = examine_settings(read_train_config(path), quick=True)
    assert again.findings == []
    assert again.verdict == "healthy"


@pytest.mark.parametrize(("scale", "factor"), [("linear", 64 / 512), ("sqrt", (64 / 512) ** 0.5)])
def test_a_proposal_is_the_rate_before_it_is_scaled(scale: str, factor: float) -> None:
    config = digits(lr=0.5 / factor, scale_lr=scale, base_batch=512)
    assert config.lr == pytest.approx(0.5)
    one = config_patient(config, open_dataset(config.data), torch.device("cpu"))
    try:
        (finding,) = first_steps(one).findings
    finally:
        one.close()
    (change,) = finding.changes
    assert finding.numbers["lr"] == pytest.approx(0.5)
    assert change == Change("optim.lr", pytest.approx(finding.numbers["proposal"] / factor, rel=0.05))
    mended = updated(config, optim=updated(config.optim, lr=change.value))
    assert mended.lr == pytest.approx(finding.numbers["proposal"], rel=0.05)


def test_what_follows_from_a_rate_that_is_mended_is_not_left() -> None:
    numbers = dict.fromkeys(CAUSES["updates_too_large"].places | CAUSES["lr_too_high"].places, 1.0)
    findings = [
        Finding("lr_too_high", 0.9, {**numbers, "batch": 64}, (Change("optim.lr", 1e-3),)),
        Finding("updates_too_large", 0.6, {**numbers, "optimizer": "muon"}),
    ]
    report = Report([Asked(Check("one", "training", lambda _: Seen()), 0.1, Seen(findings=findings))])
    fix = propose_fix(report, digits(lr=0.5))
    assert [one.key for one in fix.mended] == ["optim.lr"]
    assert fix.left == ()
    alone = Report([Asked(Check("one", "training", lambda _: Seen()), 0.1, Seen(findings=findings[1:]))])
    assert [told.finding.cause for told in propose_fix(alone, digits(lr=0.5)).left] == ["updates_too_large"]

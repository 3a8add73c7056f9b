"""Settings as the doctor would have them: written once, explained, and healthy when examined again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor import stand_ins
from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.doctor import settings_door
from vitscope.doctor.check import Check
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Change, Finding, Seen
from vitscope.doctor.fix import explained, propose_fix, write_fix
from vitscope.recipes import find_recipe
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config

NUMBERS = {"lr": 0.5, "before": 2.3, "after": 9.0, "steps": 20, "better": 1e-3}


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_ins.know_stand_ins(monkeypatch)
    monkeypatch.setattr(settings_door, "CHECKS", stand_ins.CHECKS)


def settings(lr: float = 0.5) -> TrainConfig:
    config = find_recipe("digits_vit")()
    return updated(config, optim=updated(config.optim, lr=lr), model=config.model.changed(depth=1))


def report_of(*findings: Finding) -> Report:
    return Report([Asked(Check("one", "settings", stand_ins.rate), 0.1, Seen(findings=list(findings)))])


def rate(*changes: Change, confidence: float = 0.9) -> Finding:
    return Finding("stand_in_rate", confidence, NUMBERS, changes)


def test_examined_mended_and_examined_again(tmp_path: Path) -> None:
    config = settings()
    before = settings_door.examine_settings(config)
    assert before.verdict == "unwell"
    assert [finding.cause for finding in before.findings] == ["stand_in_rate"]
    fix = propose_fix(before, config)
    path = write_fix(fix, tmp_path / "new" / "better.yaml", source="digits_vit")
    mended = read_train_config(path)
    assert mended == updated(config, optim=updated(config.optim, lr=1e-3))
    assert settings_door.examine_settings(mended).verdict == "healthy"
    assert propose_fix(settings_door.examine_settings(mended), mended).mended == ()


@pytest.mark.parametrize("language", ["en", "zh"])
def test_each_change_is_explained_above_it(language: Any, tmp_path: Path) -> None:
    config = settings()
    changes = (Change("optim.lr", 1e-3), Change("data.mean", (0.5,)), Change("model.qkv_bias", False))
    fix = propose_fix(report_of(rate(*changes)), config, language)
    lines = explained(fix, source="digits_vit", language=language).splitlines()
    assert lines[0].startswith("# ")
    assert "optim.lr, data.mean, model.qkv_bias" in lines[0]
    place = lines.index("  lr: 0.001")
    assert lines[place - 1] == ("  # was: 0.5" if language == "en" else "  # 原值：0.5")
    assert any("stand_in_rate" in line for line in lines[place - 4 : place])
    comments = "\n".join(line for line in lines if line.lstrip().startswith("#"))
    assert ("The learning rate is too high" if language == "en" else "学习率过高") in comments
    assert comments.count("stand_in_rate") == 3
    assert max(map(len, lines)) <= 110
    path = write_fix(fix, tmp_path / "better.yaml", source="digits_vit", language=language)
    assert read_train_config(path) == fix.config
    assert fix.config.data.mean == (0.5,)


def test_a_setting_that_is_wanted_twice_goes_to_the_likelier_cause() -> None:
    labels = Finding("stand_in_labels", 0.95, {"share": 0.4}, (Change("optim.lr", 2e-3),))
    fix = propose_fix(report_of(rate(Change("optim.lr", 1e-3)), labels), settings())
    assert fix.config.optim.lr == 2e-3
    assert [(one.key, one.told.finding.cause) for one in fix.mended] == [("optim.lr", "stand_in_labels")]


def test_what_is_only_possible_changes_nothing() -> None:
    fix = propose_fix(report_of(rate(Change("optim.lr", 1e-3), confidence=0.4)), settings())
    assert (fix.mended, fix.left) == ((), ())
    assert fix.config == settings()


def test_what_no_setting_mends_is_told() -> None:
    fix = propose_fix(
        report_of(Finding("stand_in_labels", 0.9, {"share": 0.4}), rate(Change("optim.lr", 1e-3))), settings()
    )
    assert [told.title for told in fix.left] == ["Labels do not fit the pictures"]
    assert [one.key for one in fix.mended] == ["optim.lr"]


def test_changes_that_fit_together_are_made_together_and_others_not_at_all() -> None:
    config = settings()
    width = config.model.bare.embed_dim  # type: ignore[union-attr]
    both = propose_fix(report_of(rate(Change("model.embed_dim", 35), Change("model.num_heads", 5))), config)
    assert (both.config.model.bare.embed_dim, both.config.model.bare.num_heads) == (35, 5)  # type: ignore[union-attr]
    alone = propose_fix(report_of(rate(Change("model.num_heads", 7 * width))), config)
    assert alone.config == config
    assert [told.finding.cause for told in alone.left] == ["stand_in_rate"]


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "better.yaml"
    path.write_text("mine")
    with pytest.raises(UsageError, match="is there already"):
        write_fix(propose_fix(report_of(rate(Change("optim.lr", 1e-3))), settings()), path, source="x")
    assert path.read_text() == "mine"

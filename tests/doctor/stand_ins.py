"""Checks and causes that stand in for the real ones where only the way of a report is tried."""

from __future__ import annotations

import math

import pytest

from vitscope.doctor import causes
from vitscope.doctor.causes.text import Cause, Remark, Text
from vitscope.doctor.check import Check
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Change, Finding, Note, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.picture import Line, Picture

HIGHEST_LR = 0.01

RATE = Cause(
    name="stand_in_rate",
    title=Text("The learning rate is too high", "学习率过高"),
    evidence=Text(
        "With {lr:g} the loss rose from {before:.2f} to {after:.2f} in {steps} steps, <b>not</b> & never back.",
        "学习率为 {lr:g} 时，损失在 {steps} 步内从 {before:.2f} 上升到 {after:.2f}。",
    ),
    cost=Text("It does not learn at all.", "模型完全学不到东西。"),
    action=Text(
        "Train with a lower one: `vitscope train --optim.lr {better:g}`.",
        "使用更低的学习率：`vitscope train --optim.lr {better:g}`。",
    ),
    effect=Text("The loss falls from the first epoch on.", "损失从第一轮开始下降。"),
)
LABELS = Cause(
    name="stand_in_labels",
    title=Text("Labels do not fit the pictures", "标签与图片不符"),
    evidence=Text("{share:.0%} of the neighbours disagree.", "{share:.0%} 的近邻标签不一致。"),
    cost=Text("It learns them by heart.", "模型只能死记硬背。"),
    action=Text("Look at the pictures.", "请查看图片。"),
    effect=Text("Validation follows training.", "验证结果会跟上训练结果。"),
)
REMARK = Remark(name="stand_in_note", text=Text("{heads} heads are many.", "{heads} 个头偏多。"))
REASON = Remark(name="stand_in_reason", text=Text("there is no optimiser", "没有优化器"))

CURVE = Picture(
    "Loss at <each> rate & step",
    "learning rate",
    "loss $x$",
    [Line("this <rate>", [1e-4, 1e-3, 1e-2, 1e-1], [2.0, 1.5, math.nan, 9.0]), Line("_healthy", [1e-4, 1e-1], [2, 1])],
    log_x=True,
    log_y=True,
    level=2.3,
    mark=1e-2,
)
BARS = Picture("Pictures of each class", "class", "pictures", [Line("train", ["猫", "dog"], [3, 900])], kind="bars")


def rate(patient: Patient) -> Seen:
    """Judges the setting itself: a stand-in needs no training."""
    trainer = None if patient.make_trainer is None else patient.make_trainer()
    if trainer is None:
        return Seen(left_out="stand_in_reason")
    if trainer.lr <= HIGHEST_LR:
        return Seen({"lr": trainer.lr})
    numbers = {"lr": trainer.lr, "before": 2.3, "after": math.inf, "steps": 20, "better": HIGHEST_LR / 10}
    change = Change("optim.lr", HIGHEST_LR / 10)
    return Seen({"lr": trainer.lr}, [Finding("stand_in_rate", 0.83, numbers, (change,), CURVE)])


def labels(patient: Patient) -> Seen:
    finding = Finding("stand_in_labels", 0.3, {"share": 0.4})
    return Seen({"share": 0.4, "by class": [math.nan, 0.5]}, [finding], [Note("stand_in_note", {"heads": 12})], BARS)


def fails(patient: Patient) -> Seen:
    raise ValueError("no such <layer>")


RATE_CHECK = Check("stand_in_rate_check", "settings", rate)
CHECKS = (RATE_CHECK,)


def know_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    for cause in (RATE, LABELS):
        monkeypatch.setitem(causes.CAUSES, cause.name, cause)
    monkeypatch.setitem(causes.NOTES, REMARK.name, REMARK)
    monkeypatch.setitem(causes.LEFT_OUT, REASON.name, REASON)


def full_report(patient: Patient) -> Report:
    """Something of everything a report can hold."""
    seen = labels(patient)
    high = Finding(
        "stand_in_rate",
        0.83,
        {"lr": 0.5, "before": 2.3, "after": math.inf, "steps": 20, "better": 1e-3},
        (Change("optim.lr", 1e-3), Change("model.class_token", False)),
        CURVE,
    )
    asked = [
        Asked(Check("label_noise", "data", labels), 0.25, seen),
        Asked(RATE_CHECK, 1.5, Seen({"lr": 0.5}, [high])),
        Asked(Check("plain_check", "forward", labels), 0.01, Seen({"range": (0.0, 1.0)})),
        Asked(Check("no_optimiser", "backward", labels), 0.0, Seen(left_out="stand_in_reason")),
        Asked(Check("broken_check", "forward", fails), 0.0, Seen(), "ValueError: no such <layer>"),
    ]
    report = Report(asked, [Check("short_run", "training", labels)], {"short_run": "ended"})
    report.subject = {"model": "vit_tiny <script>", "parameters": 2_697_610, "lr": 0.5}
    return report

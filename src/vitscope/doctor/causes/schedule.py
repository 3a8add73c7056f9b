"""Of a learning rate that does not last for the training."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Remark, Text

_TOO_FAST = Cause(
    name="schedule_too_fast",
    title=Text("The learning rate is gone long before training is over", "训练远未结束，学习率就已降到接近零"),
    evidence=Text(
        "The learning rate falls from {top:.2g} to {rate:.1g} by step {step}; an epoch has {steps} steps, and training "
        "{epochs} epochs.",
        "学习率到第 {step} 步时就从 {top:.2g} 降到 {rate:.1g}；而一轮有 {steps} 步，共训练 {epochs} 轮。",
    ),
    cost=Text("Whatever training comes after that changes nothing.", "此后的训练几乎不再改变模型。"),
    action=Text(
        "Call scheduler.step() once an epoch, or give the schedule its lengths in steps: epochs * len(loader).",
        "每轮只调用一次 scheduler.step()，或把调度器的长度改为步数：epochs * len(loader)。",
    ),
    effect=Text("The rate lasts as long as training does.", "学习率在整个训练期间都有效。"),
)

CAUSES: tuple[Cause, ...] = (
    replace(
        _TOO_FAST,
        evidence=Text(
            "The learning rate falls from {top:.2g} to {rate:.1g} by step {step} and then rises to {back:.2g} again; an epoch "
            "has {steps} steps.",
            "学习率到第 {step} 步时从 {top:.2g} 降到 {rate:.1g}，之后又回升到 {back:.2g}；而一轮有 {steps} 步。",
        ),
        cost=Text(
            "The rate swings many times instead of falling once: the model never comes to rest.",
            "学习率反复起伏而不是只降一次：模型始终无法稳定收敛。",
        ),
    ),
    replace(
        _TOO_FAST,
        evidence=Text(
            "The learning rate falls from {top:.2g} to {rate:.1g} by step {step}, and at step {ends} scheduler.step() refuses "
            "to go on: training ends there in an error. An epoch has {steps} steps, and training {epochs} epochs.",
            "学习率到第 {step} 步时就从 {top:.2g} 降到 {rate:.1g}，到第 {ends} 步时 scheduler.step() "
            "拒绝继续：训练会在此报错中止。一轮有 {steps} 步，共训练 {epochs} 轮。",
        ),
        cost=Text("Training does not come to its end.", "训练无法进行到底。"),
    ),
    _TOO_FAST,
)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="rate_goes_round",
        text=Text(
            "The learning rate goes up and down: from {top:.2g} to {rate:.1g} by step {step}, and back.",
            "学习率来回起伏：到第 {step} 步时从 {top:.2g} 降到 {rate:.1g}，之后又回升。",
        ),
    ),
    Remark(
        name="rate_gone_within_epoch",
        text=Text(
            "The learning rate falls from {top:.2g} to {rate:.1g} by step {step} of an epoch's {steps}. Give epochs= to know "
            "whether that is too early.",
            "学习率在一轮 {steps} 步中的第 {step} 步就从 {top:.2g} 降到 {rate:.1g}。给出 epochs= 才能判断是否过早。",
        ),
    ),
)

LEFT_OUT: tuple[Remark, ...] = (
    Remark(
        name="no_schedule_to_see",
        text=Text(
            "No step of your own was given, which could hold a schedule.", "没有给出自己的训练步，看不到调度器。"
        ),
    ),
    Remark(
        name="no_scheduler_found",
        text=Text(
            "No torch scheduler of this optimiser was found; one written by hand cannot be asked what comes later.",
            "没有找到该优化器的 torch 调度器；手写的调度无法预知后续学习率。",
        ),
    ),
    Remark(
        name="schedule_turned_elsewhere",
        text=Text(
            "Your step does not turn the scheduler on evenly, call by call: it may be stepped once an epoch.",
            "训练步并非每次调用都均匀地推进调度器：它可能每轮才推进一次。",
        ),
    ),
    Remark(
        name="schedule_not_repeated",
        text=Text(
            "Asked again, the scheduler gives other rates than in your step: more than its own count decides them.",
            "再次询问时，调度器给出的学习率与训练步中的不同：它不只取决于调度器自身的计数。",
        ),
    ),
    Remark(
        name="schedule_follows_loss",
        text=Text("The schedule follows the loss (ReduceLROnPlateau).", "调度器跟随损失（ReduceLROnPlateau）。"),
    ),
    Remark(
        name="training_has_begun",
        text=Text(
            "Training has begun: how the schedule began can no longer be seen.",
            "训练已经开始：无法再看到调度器的开头。",
        ),
    ),
)

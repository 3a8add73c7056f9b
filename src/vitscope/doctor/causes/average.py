"""Of averaged weights that are evaluated in the model's place."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Text

_STALE = Cause(
    name="ema_stale",
    title=Text(
        "The averaged weights that are evaluated do not follow the model",
        "用于评估的平均权重没有跟上模型",
    ),
    evidence=Text(
        "Each step the average goes {followed:.1e} of the way to the weights, so that after {steps} steps "
        "{left:.0%} of the first weights would be left; its loss is {average_loss:.2f}, the model's "
        "{model_loss:.2f}.",
        "每步平均权重只靠近当前权重 {followed:.1e}，{steps} 步后仍保留 {left:.0%} 的初始权重；其损失为 "
        "{average_loss:.2f}，模型自身为 {model_loss:.2f}。",
    ),
    cost=Text("Evaluation shows weights that have learned nothing.", "评估的是没有学到东西的权重。"),
    action=Text(
        "Update the average after every optimiser step, with a decay whose memory 1/(1 - decay) is a tenth "
        "of the training.",
        "每次优化器更新后都更新平均权重，衰减的记忆 1/(1 - decay) 取训练步数的十分之一。",
    ),
    effect=Text(
        "The average evaluates as well as the model or better.",
        "平均权重的评估结果与模型相当或更好。",
    ),
)

CAUSES: tuple[Cause, ...] = (
    _STALE,
    replace(
        _STALE,
        evidence=Text(
            "Your step takes the average no nearer to the model's weights: of the way to them it goes {toward:.0%} (below 0 "
            "is away from them). Its loss is {average_loss:.2f}, the model's {model_loss:.2f}.",
            "训练步没有使平均权重更接近模型的权重：它朝模型权重移动了两者距离的 {toward:.0%}（小于 0 "
            "表示在远离）。其损失为 {average_loss:.2f}，模型自身为 {model_loss:.2f}。",
        ),
        action=Text(
            "Look at what your step averages: after optimizer.step(), average = decay * average + (1 - decay) * the model's "
            "weights.",
            "检查训练步在对什么取平均：在 optimizer.step() 之后，平均 = decay * 平均 + (1 - decay) * 模型的权重。",
        ),
    ),
    replace(
        _STALE,
        evidence=Text(
            "The average's loss is {average_loss:.2f}, no better than knowing nothing; the model's is {model_loss:.2f}.",
            "平均权重的损失为 {average_loss:.2f}，不比什么都不知道更好；模型自身的损失为 {model_loss:.2f}。",
        ),
    ),
)

"""Of what a training step does besides the update: gradients it collects, zeroes or loses, the mode it trains in."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Text

_IN_EVAL_MODE = Cause(
    name="trained_in_eval_mode",
    title=Text("The step trains the model in evaluation mode", "训练步在评估模式下训练模型"),
    evidence=Text(
        "While your step ran, none of {norms} BatchNorm and {drops} dropout layers was in training mode.",
        "训练步运行时，{norms} 个 BatchNorm 和 {drops} 个 dropout 层都不在训练模式。",
    ),
    cost=Text(
        "BatchNorm never learns the statistics of the pictures, and dropout does nothing.",
        "BatchNorm 永远学不到图像的统计量，dropout 也不起作用。",
    ),
    action=Text(
        "Call model.train() before the step, after each evaluation too.",
        "在训练步之前（每次评估之后也要）调用 model.train()。",
    ),
    effect=Text("BatchNorm normalises each batch, and dropout drops.", "BatchNorm 按批次归一化，dropout 正常丢弃。"),
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="accumulation_not_divided",
        title=Text("Accumulated gradients are added up, not averaged", "累积的梯度被相加而没有取平均"),
        evidence=Text(
            "The optimiser gets {times:.2f} times the mean gradient of the batch ({given:.3g} instead of "
            "{norm:.3g}): {parts} parts, summed.",
            "优化器得到的梯度是批次平均梯度的 {times:.2f} 倍（{given:.3g} 而非 {norm:.3g}）：{parts} 份相加。",
        ),
        cost=Text(
            "The learning rate is {parts} times too high for SGD; clipping and weight decay lose their meaning.",
            "对 SGD 来说学习率高了 {parts} 倍；裁剪和权重衰减失去意义。",
        ),
        action=Text("loss = loss / {parts} before backward().", "在 backward() 之前 loss = loss / {parts}。"),
        effect=Text("The same update as one large batch.", "与一个大批次的更新完全一致。"),
    ),
    Cause(
        name="accumulation_forgets",
        title=Text("Collected gradients are thrown away before the update", "累积的梯度在更新之前就被清掉"),
        evidence=Text(
            "Your step updates once in {calls} calls, and then with the gradient of the last call alone (cosine {alone:.3f}; "
            "with the mean of all calls {together:.2f}): those of the other {lost} are gone.",
            "训练步每调用 {calls} 次更新一次，而更新只用最后一次调用的梯度（余弦为 {alone:.3f}；与所有调用的平均梯度的余弦为 "
            "{together:.2f}）：其余 {lost} 次的梯度已丢失。",
        ),
        cost=Text(
            "Of {calls} batches {lost} are computed for nothing, and steps are as noisy as those of a single one.",
            "每 {calls} 个批次中有 {lost} 个白白计算，更新的噪声与单个批次一样大。",
        ),
        action=Text(
            "Call optimizer.zero_grad() only right after optimizer.step(), not in every call.",
            "只在 optimizer.step() 之后调用 optimizer.zero_grad()，不要每次调用都清零。",
        ),
        effect=Text("Each update is the mean of {calls} batches.", "每次更新都是 {calls} 个批次的平均。"),
    ),
    Cause(
        name="step_without_gradients",
        title=Text("The optimiser steps when there are no gradients", "优化器更新时没有梯度"),
        evidence=Text(
            "The loss has a gradient of norm {norm:.3g}; when optimizer.step() is called it is {given:.3g}: all gradients are "
            "zero or gone.",
            "损失的梯度范数为 {norm:.3g}，而调用 optimizer.step() 时为 {given:.3g}：所有梯度都是零或已被清除。",
        ),
        cost=Text("No step moves any weight.", "没有任何一步会移动权重。"),
        action=Text(
            "Look at the order: optimizer.zero_grad(), loss.backward(), optimizer.step().",
            "检查顺序：optimizer.zero_grad()、loss.backward()、optimizer.step()。",
        ),
        effect=Text("Weights move, and the loss falls.", "权重开始移动，损失下降。"),
    ),
    replace(
        _IN_EVAL_MODE,
        evidence=Text(
            "Your step leaves the model in evaluation mode: in call {call}, right after another, none of {norms} BatchNorm "
            "and {drops} dropout layers was in training mode.",
            "训练步结束时模型留在评估模式：紧接着的第 {call} 次调用中，{norms} 个 BatchNorm 和 {drops} 个 dropout "
            "层都不在训练模式。",
        ),
        action=Text(
            "Call model.train() at the beginning of the step, or after the evaluation within it.",
            "在训练步开头，或在其中的评估之后，调用 model.train()。",
        ),
    ),
    _IN_EVAL_MODE,
    Cause(
        name="gradients_not_zeroed",
        title=Text("Gradients are never set back to zero", "梯度从未清零"),
        evidence=Text(
            "A step left gradients behind in {left} of {of} parameters; turned against the gradient, they turned the next "
            "step with them (cosine {cosine:.2f}, and 1 where a step begins anew).",
            "一步之后 {of} 个参数中有 {left} 个留有梯度；把它们反向之后，下一步也随之反向（余弦 {cosine:.2f}；每步清零时应为 1）。",
        ),
        cost=Text(
            "Each step goes along the sum of all gradients so far: momentum without an end, which grows until the loss swings "
            "or diverges.",
            "每一步都沿着至今所有梯度之和前进：相当于永不衰减的动量，会越来越大，直到损失震荡或发散。",
        ),
        action=Text(
            "Call optimizer.zero_grad() in every step, before backward().",
            "每一步在 backward() 之前调用 optimizer.zero_grad()。",
        ),
        effect=Text("Each step follows the gradient of its own batch.", "每一步只遵循本批次的梯度。"),
    ),
)

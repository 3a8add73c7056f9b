"""Causes that lie in gradients and updates."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes import schedule, step
from vitscope.doctor.causes.text import Cause, Remark, Text

_UNMOVED = Cause(
    name="not_in_optimizer",
    title=Text("Untrained weights that nothing moves", "未训练的权重没有被更新"),
    evidence=Text(
        "{share:.0%} of all numbers are frozen or not in the optimiser, and have never been trained: {names}.",
        "{share:.0%} 的参数被冻结或不在优化器中，而且从未训练过：{names}。",
    ),
    cost=Text("Whatever comes after them learns on random features.", "其后的各层只能在随机特征上学习。"),
    action=Text(
        "Give the optimiser model.parameters(), after the last layer was added; unfreeze what is not pretrained.",
        "在加完最后一层之后把 model.parameters() 交给优化器；解冻未经预训练的部分。",
    ),
    effect=Text("All layers learn, and accuracy rises.", "所有层都学习，准确率提高。"),
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="no_gradient_for",
        title=Text("Parameters that the loss does not reach", "损失的梯度到不了的参数"),
        evidence=Text(
            "{count} parameters ({share:.0%} of all numbers) get no gradient: {names}.",
            "{count} 个参数（占全部的 {share:.0%}）得不到梯度：{names}。",
        ),
        cost=Text("They stay as they began.", "它们会一直停留在初始值。"),
        action=Text(
            "Look for .detach(), torch.no_grad(), .item() or numpy on the way from these layers to the loss, and "
            "for layers that are never called.",
            "在这些层到损失的路径上查找 .detach()、torch.no_grad()、.item() 或 numpy，以及从未被调用的层。",
        ),
        effect=Text("Every parameter gets a gradient.", "每个参数都有梯度。"),
    ),
    Cause(
        name="head_frozen",
        title=Text("The classifier does not learn", "分类层没有在学习"),
        evidence=Text(
            "{name}, which gives the logits, is not moved: {how}.",
            "给出 logits 的 {name} 不会被更新：{how}。",
        ),
        cost=Text(
            "The rest must bend round a random classifier; accuracy stays low.",
            "其余部分只能迁就一个随机的分类层，准确率偏低。",
        ),
        action=Text(
            "Set requires_grad_(True) on {name} and give its parameters to the optimiser.",
            "对 {name} 设 requires_grad_(True)，并把其参数交给优化器。",
        ),
        effect=Text("The loss falls faster and further.", "损失下降更快、更低。"),
    ),
    replace(
        _UNMOVED,
        evidence=Text(
            "The loss depends on {hidden} parameters ({share:.0%} of all numbers) that model.parameters() does not list: "
            "{names}.",
            "损失依赖 {hidden} 个参数（占全部的 {share:.0%}），而 model.parameters() 中没有它们：{names}。",
        ),
        cost=Text(
            "They are neither trained nor saved, and .to(device) leaves them behind.",
            "它们既不会被训练，也不会被保存，.to(device) 也不会移动它们。",
        ),
        action=Text(
            "Hold layers in nn.ModuleList or nn.ModuleDict, not in a plain list or dict, and make the optimiser after that.",
            "用 nn.ModuleList 或 nn.ModuleDict 存放各层，不要用普通的 list 或 dict，然后再创建优化器。",
        ),
    ),
    replace(
        _UNMOVED,
        evidence=Text(
            "The optimiser holds {given} parameters, and none of them is one of the model's {count}: {names}.",
            "优化器持有 {given} 个参数，但其中没有一个属于模型的 {count} 个参数：{names}。",
        ),
        cost=Text("No step moves any weight of the model.", "没有任何一步会移动模型的权重。"),
        action=Text(
            "Make the optimiser after the model, and anew where the model is replaced or copied.",
            "先创建模型再创建优化器；替换或复制模型后要重新创建优化器。",
        ),
    ),
    replace(
        _UNMOVED,
        evidence=Text(
            "{names}, which give the logits, could learn, but the optimiser does not hold them; it holds {strangers} parameters "
            "that are no longer the model's: the layer was replaced after the optimiser was made.",
            "给出 logits 的 {names} 可以学习，但不在优化器中；优化器中有 {strangers} "
            "个参数已不属于模型：创建优化器之后替换了该层。",
        ),
        cost=Text(
            "The rest must bend round a random classifier; accuracy stays low.",
            "其余部分只能迁就一个随机的分类层，准确率偏低。",
        ),
        action=Text(
            "Make the optimiser after the last layer was replaced, from model.parameters().",
            "先替换最后一层，再用 model.parameters() 创建优化器。",
        ),
    ),
    _UNMOVED,
    Cause(
        name="gradients_exploding",
        title=Text("Gradients explode", "梯度爆炸"),
        evidence=Text(
            "All gradients together have norm {total:.3g}; the largest is {worst} with {norm:.3g}.",
            "全部梯度的范数为 {total:.3g}，最大的是 {worst}，为 {norm:.3g}。",
        ),
        cost=Text(
            "Steps go anywhere; the loss becomes NaN or stays high.",
            "更新方向混乱，损失变成 NaN 或居高不下。",
        ),
        action=Text(
            "Look at input range and initialisation first; then clip to norm 1.0 and warm up.",
            "先检查输入范围和初始化；再把梯度裁剪到范数 1.0 并做预热。",
        ),
        effect=Text("Gradient norms between 0.1 and 10.", "梯度范数在 0.1 到 10 之间。"),
    ),
    Cause(
        name="gradients_vanishing",
        title=Text("Gradients vanish", "梯度消失"),
        evidence=Text(
            "All gradients together have norm {total:.2g}; those of the first layers {first:.2g}, of the last "
            "{last:.2g}.",
            "全部梯度的范数为 {total:.2g}；最前几层为 {first:.2g}，最后几层为 {last:.2g}。",
        ),
        cost=Text("The first layers do not learn.", "最前面的层学不到东西。"),
        action=Text(
            "Add residual connections and normalisation, use GELU or ReLU instead of sigmoid or tanh, and "
            "initialise for it.",
            "加入残差连接和归一化，用 GELU 或 ReLU 代替 sigmoid 或 tanh，并相应初始化。",
        ),
        effect=Text("Gradients of like size in all layers.", "各层梯度大小相近。"),
    ),
    Cause(
        name="dead_units",
        title=Text("Most units are dead", "大多数单元已失活"),
        evidence=Text(
            "{mean:.0%} of the units are off for every picture and place (worst: {worst} with {share:.0%}).",
            "{mean:.0%} 的单元对所有图像和位置都不激活（最严重：{worst}，{share:.0%}）。",
        ),
        cost=Text(
            "They have no gradient and never come back: the model is that much smaller.",
            "它们没有梯度，也不会恢复：模型相当于缩小了。",
        ),
        action=Text(
            "Begin anew with a lower learning rate and Kaiming weights, normalise the input, or use GELU.",
            "以更低学习率和 Kaiming 权重重新开始，归一化输入，或改用 GELU。",
        ),
        effect=Text("Less than a fifth of the units is off.", "不激活的单元少于五分之一。"),
    ),
    Cause(
        name="steps_uphill",
        title=Text("Steps go up the loss, not down", "更新方向反了：损失越走越高"),
        evidence=Text(
            "The first step of {optimizer} at lr {lr:.2g} goes the way the loss rises (cosine with its gradient "
            "{uphill:+.2f}; sound ones are below 0).",
            "{optimizer} 在学习率 {lr:.2g} 下的第一步朝着损失上升的方向（与梯度的余弦为 {uphill:+.2f}；正常值小于 0）。",
        ),
        cost=Text(
            "The longer it trains, the worse it gets, at any learning rate.",
            "训练越久越差，任何学习率都一样。",
        ),
        action=Text(
            "Look for maximize=True, a negative learning rate, or a minus sign before the loss of your step.",
            "检查是否设置了 maximize=True、学习率为负，或训练步骤里的损失多了一个负号。",
        ),
        effect=Text("The loss falls within the first steps.", "损失在最初几步内开始下降。"),
    ),
    *step.CAUSES,
    *schedule.CAUSES,
    Cause(
        name="clip_too_small",
        title=Text("Gradients are clipped to almost nothing", "梯度被裁剪得几乎为零"),
        evidence=Text(
            "Of a gradient of norm {norm:.3g} the optimiser gets {given:.2g}: {share:.2g} of it.",
            "梯度范数为 {norm:.3g}，优化器只得到 {given:.2g}，即 {share:.2g}。",
        ),
        cost=Text(
            "With SGD nothing moves; with Adam the smallest layers stand still, and all steps count alike.",
            "用 SGD 时几乎不动；用 Adam 时最小的层停滞，且所有步的权重都一样。",
        ),
        action=Text("Clip to norm 1.0.", "把裁剪范数设为 1.0。"),
        effect=Text("Only unusually large gradients are shortened.", "只缩短异常大的梯度。"),
    ),
    Cause(
        name="weight_decay_too_high",
        title=Text("Weight decay undoes what is learned", "权重衰减抵消了学习"),
        evidence=Text(
            "Decay {decay:g} pulls with {share:.2g} of the gradient's greatest pull (median of the layers); lr "
            "{lr:.2g}.",
            "权重衰减 {decay:g} 的拉力是梯度最大拉力的 {share:.2g}（各层中位数）；学习率 {lr:.2g}。",
        ),
        cost=Text(
            "Weights shrink towards zero and the model forgets as it learns.",
            "权重不断缩向零，模型边学边忘。",
        ),
        action=Text("Set weight decay to {propose:g}.", "把权重衰减设为 {propose:g}。"),
        effect=Text("Weights keep their size, and the loss falls.", "权重保持大小，损失下降。"),
    ),
    Cause(
        name="updates_too_large",
        title=Text("One step replaces the weights", "一步更新就覆盖了权重"),
        evidence=Text(
            "A step of {optimizer} at lr {lr:.2g} is {ratio:.2g} times as large as the weights it moves "
            "(healthy: 0.001 to 0.05).",
            "{optimizer} 在学习率 {lr:.2g} 下的一步是权重本身的 {ratio:.2g} 倍（健康值：0.001 到 0.05）。",
        ),
        cost=Text(
            "What was learned is overwritten each step; the loss jumps or diverges.",
            "每一步都覆盖已学内容，损失跳动或发散。",
        ),
        action=Text(
            "Lower the learning rate; the check `lr_test`, asked for by its name, looks for one that is stable.",
            "降低学习率；单独要求 `lr_test` 这项检查可找出稳定的学习率。",
        ),
        effect=Text("The loss falls steadily.", "损失稳定下降。"),
    ),
    Cause(
        name="updates_too_small",
        title=Text("Steps are too small to move the weights", "更新太小，权重几乎不动"),
        evidence=Text(
            "A step of {optimizer} at lr {lr:.2g} is {ratio:.1g} of the weights' size (healthy: about 0.001).",
            "{optimizer} 在学习率 {lr:.2g} 下的一步只有权重大小的 {ratio:.1g}（健康值约 0.001）。",
        ),
        cost=Text("The model stays as it is.", "模型停留在原地。"),
        action=Text(
            "Raise the learning rate, and look whether clipping or a scale takes the gradient away.",
            "提高学习率，并检查裁剪或缩放是否削掉了梯度。",
        ),
        effect=Text("The loss begins to fall.", "损失开始下降。"),
    ),
    Cause(
        name="fp16_without_scaler",
        title=Text("fp16 without a gradient scaler", "使用 fp16 却没有梯度缩放"),
        evidence=Text(
            "The step computes in fp16 and the gradient arrives at the logits {scale:.2g} times the loss's own: "
            "unscaled. {share:.1%} of the gradients are below fp16's normal range.",
            "该步以 fp16 计算，到达 logits 的梯度是损失自身的 {scale:.2g} 倍，即没有缩放。{share:.1%} 的梯度低于 "
            "fp16 的正常范围。",
        ),
        cost=Text(
            "Small gradients lose bits or become zero, the more the better the model gets.",
            "小梯度丢失精度或变成零，模型越好越严重。",
        ),
        action=Text(
            "Use bf16, or torch.amp.GradScaler around backward() and step(); if you do so already, pass your own "
            "step=... to be examined.",
            "改用 bf16，或在 backward() 和 step() 处使用 torch.amp.GradScaler；若已使用，请用 step "
            "参数传入自己的训练步再检查。",
        ),
        effect=Text("The same curve as in float32.", "与 float32 的曲线一致。"),
    ),
)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="unused_parameters",
        text=Text(
            "{count} parameters ({share:.1%}) take no part in the answer: {names}.",
            "{count} 个参数（{share:.1%}）不参与输出：{names}。",
        ),
    ),
    Remark(
        name="reached_beside",
        text=Text(
            "{count} parameters ({share:.1%}) learn nothing from the loss of the logits, only from what the model gives "
            "besides or your own step adds: {names}.",
            "{count} 个参数（{share:.1%}）不从 logits 的损失中学习，只从模型的其他输出或您自己的训练步骤中学习：{names}。",
        ),
    ),
    Remark(
        name="linear_probe",
        text=Text(
            "{share:.0%} of the parameters stay as they are, on weights that look trained: a linear probe.",
            "{share:.0%} 的参数保持不变，且权重看起来已训练过：这是线性探测。",
        ),
    ),
    Remark(
        name="some_not_in_optimizer",
        text=Text(
            "{count} parameters that could learn ({share:.1%}) are not in the optimiser: {names}.",
            "{count} 个可学习的参数（{share:.1%}）不在优化器中：{names}。",
        ),
    ),
    Remark(
        name="hidden_weights",
        text=Text(
            "The loss depends on {hidden} parameters ({share:.1%}) that model.parameters() does not list, so that they are "
            "neither trained nor saved: {names}.",
            "损失依赖 {hidden} 个参数（{share:.1%}），而 model.parameters() 中没有它们，因此既不会被训练也不会被保存：{names}。",
        ),
    ),
    Remark(
        name="large_gradient",
        text=Text(
            "{name} has a gradient of norm {norm:.3g}, above 10.",
            "{name} 的梯度范数为 {norm:.3g}，超过 10。",
        ),
    ),
    Remark(
        name="large_gradients",
        text=Text(
            "All gradients together have norm {total:.3g}, above 100: clip to 1.0 if the loss is unsteady.",
            "全部梯度的范数为 {total:.3g}，超过 100：若损失不稳，请裁剪到 1.0。",
        ),
    ),
    *schedule.NOTES,
    Remark(
        name="slow_beginning",
        text=Text(
            "The first step moves the weights by only {ratio:.1g} of their size; later ones by more.",
            "第一步只移动权重大小的 {ratio:.1g}，之后会更多。",
        ),
    ),
)

LEFT_OUT: tuple[Remark, ...] = (
    Remark(
        name="no_optimizer",
        text=Text("No optimiser was given.", "没有给出优化器。"),
    ),
    Remark(
        name="no_gradients",
        text=Text("There are no gradients to look at.", "没有可查看的梯度。"),
    ),
    Remark(
        name="no_activations_to_see",
        text=Text("No activation is a module that can be looked at.", "没有可以查看的激活模块。"),
    ),
    Remark(
        name="no_update_came",
        text=Text("The step made no update that could be watched.", "该步没有产生可观察的更新。"),
    ),
    *schedule.LEFT_OUT,
    Remark(
        name="no_fp16",
        text=Text("Nothing is computed in fp16.", "没有使用 fp16 计算。"),
    ),
)

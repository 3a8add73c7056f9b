"""Causes that show in a run's own record: its learning curves, its gradients, the steps and pictures it left out."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Text

_DIVERGED = Cause(
    name="loss_diverged",
    title=Text("The loss diverged", "损失发散"),
    evidence=Text(
        "The training loss began at {train_first:.3g} and was {train_least:.3g} at its lowest; from epoch {began:g} on it "
        "diverged, and ends at {train_end:.3g} (highest learning rate {lr:.2g}).",
        "训练损失起初为 {train_first:.3g}，最低为 {train_least:.3g}；从第 {began:g} 轮起发散，最后为 {train_end:.3g}（最高学习率 "
        "{lr:.2g}）。",
    ),
    cost=Text("Nothing after that is worth keeping.", "此后的一切都没有保留价值。"),
    action=Text(
        "`vitscope doctor {config}` measures which learning rate is stable; {lower:.2g} (--optim.lr) is a first guess. Warm "
        "up, clip gradients at 1.0 where that is not done yet, and check the range of the input.",
        "用 `vitscope doctor {config}` 测出稳定的学习率；可先试 {lower:.2g}（--optim.lr）。加上预热，若尚未裁剪梯度则裁剪到 1.0，"
        "并检查输入的取值范围。",
    ),
    effect=Text("The loss stays finite and falls.", "损失保持有限并下降。"),
)

_UNDERFITTING = Cause(
    name="underfitting",
    title=Text("The model has not learnt what it could", "模型欠拟合"),
    evidence=Text(
        "It learns: training fell from {train_first:.3g} to {train_end:.3g} in {epochs:g} epochs. But both losses end "
        "high (validation {val_end:.3g}), at {level:.0%} of the loss of guessing.",
        "它在学习：{epochs:g} 轮内训练损失从 {train_first:.3g} 降到 {train_end:.3g}。但两条损失最后都偏高（验证 "
        "{val_end:.3g}），是随机猜测时的 {level:.0%}。",
    ),
    cost=Text("Accuracy stays far below what the data allows.", "准确率远低于数据所能达到的水平。"),
    action=Text(
        "Train longer (`--epochs {longer:g}`). Whether a setting slows it, this record does not say: `vitscope doctor "
        "{config}` tries the learning rate and the rest.",
        "延长训练（`--epochs {longer:g}`）。是否有设置拖慢了它，这份记录看不出来：用 `vitscope doctor {config}` "
        "检查学习率等设置。",
    ),
    effect=Text("Both losses come down together.", "两条损失会一起下降。"),
)
_EXPLODING = Cause(
    name="run_gradients_explode",
    title=Text("Gradients are very large", "梯度爆炸"),
    evidence=Text(
        "The median gradient norm of the last {count} steps is {norm:.3g} (it was {before:.3g} at first).",
        "最近 {count} 步梯度范数的中位数为 {norm:.3g}（最初为 {before:.3g}）。",
    ),
    cost=Text("One step can undo an epoch.", "一步就可能毁掉一整轮。"),
    action=Text(
        "Clip at 1.0 (`--optim.clip-norm 1.0`) and lower the learning rate.",
        "把梯度裁剪到 1.0（`--optim.clip-norm 1.0`），并降低学习率。",
    ),
    effect=Text("Norms stay below 10.", "范数会保持在 10 以下。"),
)
_VANISHING = Cause(
    name="run_gradients_vanish",
    title=Text("Gradients have vanished", "梯度消失"),
    evidence=Text(
        "The median gradient norm of the last {count} steps is {norm:.3g}, at a training loss of {loss:.3g}.",
        "最近 {count} 步梯度范数的中位数为 {norm:.3g}，而训练损失仍为 {loss:.3g}。",
    ),
    cost=Text("Nothing moves any more.", "权重已不再更新。"),
    action=Text(
        "Examine its settings (`vitscope doctor {config}`): initialisation, norms and residuals.",
        "检查它的设置（`vitscope doctor {config}`）：初始化、归一化与残差。",
    ),
    effect=Text("Gradients reach every layer.", "梯度能到达每一层。"),
)
_FAR_UPDATES = Cause(
    name="run_updates_large",
    title=Text("Single updates move the layers too far", "单次更新幅度过大"),
    evidence=Text(
        "At step {at} one update moved {layer} by {ratio:.0%} of its size, and the values of {grown} went from "
        "{first:.3g} to {largest:,.0f} (learning rate {lr:.2g}; usual updates are 0.1%).",
        "第 {at} 步的一次更新就让 {layer} 改变了自身大小的 {ratio:.0%}，{grown} 的数值从 {first:.3g} 涨到 "
        "{largest:,.0f}（学习率 {lr:.2g}；更新通常为 0.1%）。",
    ),
    cost=Text(
        "The first steps threw the weights so far off that later ones cannot bring them back.",
        "最初几步就把权重推得太远，之后再也回不来。",
    ),
    action=Text(
        "Lower the learning rate by 10 times or more and warm up; `vitscope doctor {config}` looks for a rate that is "
        "stable.",
        "把学习率降低 10 倍以上，并加上预热；`vitscope doctor {config}` 会找出稳定的学习率。",
    ),
    effect=Text("Values stay in their range, and the loss falls.", "数值保持在正常范围，损失下降。"),
)

CURVE_CAUSES: tuple[Cause, ...] = (
    Cause(
        name="overfitting",
        title=Text("The model learns its training pictures by heart", "模型过拟合：在死记训练图片"),
        evidence=Text(
            "From epoch {began:g} on validation rose from {val_best:.3g} to {val_end:.3g}, while training went to "
            "{train_end:.3g} (a validation loss has {noise:.1%} of noise here).",
            "从第 {began:g} 轮起，验证损失从 {val_best:.3g} 升到 {val_end:.3g}，而训练损失降到 {train_end:.3g}"
            "（这里验证损失的噪声为 {noise:.1%}）。",
        ),
        cost=Text(
            "Later epochs make the model worse, or only surer of its mistakes, on pictures it has not seen.",
            "此后的训练让模型在没见过的图片上变差，或者只是对错误更加自信。",
        ),
        action=Text(
            "More augmentation first, then dropout 0.1 -> 0.3 and weight decay 1e-4 -> 1e-3; or stop at epoch {best:g} "
            "(`--loop.early-stop`).",
            "先加强数据增强，再把 dropout 从 0.1 提到 0.3、权重衰减从 1e-4 提到 1e-3；或在第 {best:g} 轮提前停止"
            "（`--loop.early-stop`）。",
        ),
        effect=Text("Training loss ends higher, validation loss lower.", "训练损失会略高，验证损失会更低。"),
    ),
    Cause(
        name="overfitting",
        title=Text("The model learns its training pictures by heart", "模型过拟合：在死记训练图片"),
        evidence=Text(
            "Training ends at {train_end:.3g} and validation at {val_end:.3g}; half of that gap was there at epoch "
            "{began:g}.",
            "训练损失最后为 {train_end:.3g}，验证损失为 {val_end:.3g}；到第 {began:g} 轮时差距已达一半。",
        ),
        cost=Text(
            "What it still learns holds for its training pictures only.",
            "它后来学到的东西只对训练图片有效。",
        ),
        action=Text(
            "More augmentation first, then dropout 0.1 -> 0.3 and weight decay 1e-4 -> 1e-3; or more pictures, or "
            "pretrained weights.",
            "先加强数据增强，再把 dropout 从 0.1 提到 0.3、权重衰减从 1e-4 提到 1e-3；或增加图片，或使用预训练权重。",
        ),
        effect=Text("Training loss ends higher, validation loss lower.", "训练损失会略高，验证损失会更低。"),
    ),
    _UNDERFITTING,
    replace(
        _UNDERFITTING,
        evidence=Text(
            "It learns: training fell from {train_first:.3g} to {train_end:.3g} in {epochs:g} of {planned} epochs. But both "
            "losses are high (validation {val_end:.3g}), at {level:.0%} of the loss of guessing.",
            "它在学习：计划 {planned} 轮中的 {epochs:g} 轮内，训练损失从 {train_first:.3g} 降到 {train_end:.3g}。但两条损失都偏高"
            "（验证 {val_end:.3g}），是随机猜测时的 {level:.0%}。",
        ),
        action=Text(
            "The run stopped early; continue it with `{again}`.",
            "训练提前结束：用 `{again}` 继续。",
        ),
    ),
    replace(
        _UNDERFITTING,
        evidence=Text(
            "Both losses end high: training {train_end:.3g}, validation {val_end:.3g}, {level:.0%} of the loss of guessing.",
            "两条损失最后都偏高：训练 {train_end:.3g}，验证 {val_end:.3g}，是随机猜测时的 {level:.0%}。",
        ),
        action=Text(
            "Train longer where the losses still fall; otherwise a larger model, or less dropout, weight decay and "
            "augmentation.",
            "若损失仍在下降就延长训练；否则换更大的模型，或减小 dropout、权重衰减和数据增强。",
        ),
    ),
    Cause(
        name="plateaued",
        title=Text("The loss stopped falling close to where it began", "损失几乎没有下降就停住了"),
        evidence=Text(
            "Since epoch {began:g} nothing came down by more than noise ({noise:.1%} of the loss); it is still {level:.0%} of "
            "that of guessing.",
            "自第 {began:g} 轮起，损失的变化不超过噪声（损失的 {noise:.1%}）；仍是随机猜测时的 {level:.0%}。",
        ),
        cost=Text("More epochs will not help.", "再多训练几轮也没有用。"),
        action=Text(
            "`vitscope doctor {config}` examines its settings: it tells labels that have nothing to do with their pictures, "
            "a learning rate that does not fit and errors in the model from each other.",
            "用 `vitscope doctor {config}` 检查它的设置：可以区分标签与图像无关、学习率不合适和模型有错误这几种原因。",
        ),
        effect=Text("The cause is found before more time is spent.", "在花更多时间之前找到原因。"),
    ),
    Cause(
        name="loss_oscillates",
        title=Text("The training loss swings from epoch to epoch", "训练损失逐轮震荡"),
        evidence=Text(
            "From epoch {began:g} on the mean training loss of an epoch goes up and down by {swing:.0%} around "
            "{train_end:.3g}, which no noise explains (learning rate {lr:.2g}).",
            "从第 {began:g} 轮起，每轮平均训练损失在 {train_end:.3g} 上下摆动 {swing:.0%}，噪声无法解释（学习率 {lr:.2g}）。",
        ),
        cost=Text("Steps overshoot, and the result is a matter of luck.", "步子迈过了头，结果全凭运气。"),
        action=Text(
            "Lower the learning rate by 3 to 10 times, and clip gradients at 1.0 (`--optim.clip-norm 1.0`).",
            "把学习率降低 3 到 10 倍，并把梯度裁剪到 1.0（`--optim.clip-norm 1.0`）。",
        ),
        effect=Text("The curve becomes smooth and goes lower.", "曲线变平滑，并降得更低。"),
    ),
    _DIVERGED,
    replace(
        _DIVERGED,
        evidence=Text(
            "From epoch {began:g} on the validation loss is far above where it began: {val_first:.3g}, and {val_end:.3g} at "
            "the end; training learnt nothing and ends at {train_end:.3g} (highest learning rate {lr:.2g}).",
            "从第 {began:g} 轮起，验证损失远高于起点：起初为 {val_first:.3g}，最后为 {val_end:.3g}；训练什么也没学到，损失最后为 "
            "{train_end:.3g}（最高学习率 {lr:.2g}）。",
        ),
    ),
    replace(
        _DIVERGED,
        evidence=Text(
            "In {bad} of {of} epochs a loss is not finite, the first time in epoch {began:g} (highest learning rate {lr:.2g}).",
            "{of} 轮中有 {bad} 轮的损失不是有限值，首次在第 {began:g} 轮（最高学习率 {lr:.2g}）。",
        ),
    ),
    replace(
        _DIVERGED,
        evidence=Text(
            "Training gave up at step {step}, at a learning rate of {lr:.2g}: steps went wrong again and again.",
            "训练在第 {step} 步放弃，当时学习率为 {lr:.2g}：训练步反复出错。",
        ),
    ),
    Cause(
        name="steps_not_finite",
        title=Text("Steps had to be skipped: something in them was not finite", "有些步出现非有限值，被跳过"),
        evidence=Text(
            "{skipped} of {steps} steps ({share:.2%}), the first at step {first}; {captures} kept for a replay.",
            "{steps} 步中有 {skipped} 步（{share:.2%}），首次在第 {first} 步；保存了 {captures} 个可重放记录。",
        ),
        cost=Text("Those batches teach nothing, and it often gets worse.", "这些批次等于没学，而且往往会恶化。"),
        action=Text(
            "Replay one to see the layer where it began (`vitscope doctor --replay {capture}`); lower the learning rate or use "
            "bf16.",
            "重放其中一步，查看最先出问题的层（`vitscope doctor --replay {capture}`）；降低学习率或改用 bf16。",
        ),
        effect=Text("Every step counts again.", "每一步都重新有效。"),
    ),
    _EXPLODING,
    replace(
        _EXPLODING,
        evidence=Text(
            "Over the monitor's last {looks} samples the median gradient norm was {norm:.3g}, largest in {layer} "
            "({of_layer:.3g}).",
            "监视器最近 {looks} 次查看，梯度范数的中位数为 {norm:.3g}，最大的在 {layer}（{of_layer:.3g}）。",
        ),
        action=Text(
            "Clip at 1.0 (`--optim.clip-norm 1.0`), lower the learning rate, and look at {layer}.",
            "把梯度裁剪到 1.0（`--optim.clip-norm 1.0`），降低学习率，并检查 {layer}。",
        ),
    ),
    _VANISHING,
    replace(
        _VANISHING,
        evidence=Text(
            "Over the monitor's last {looks} samples the median gradient norm was {norm:.3g}, smallest in {layer} "
            "({of_layer:.3g}), at a training loss of {loss:.3g}.",
            "监视器最近 {looks} 次查看，梯度范数的中位数为 {norm:.3g}，最小的在 {layer}（{of_layer:.3g}），而训练损失仍为 {loss:.3g}。",
        ),
        action=Text(
            "Examine its settings (`vitscope doctor {config}`): initialisation, norms and residuals, from {layer} on.",
            "检查它的设置（`vitscope doctor {config}`）：从 {layer} 开始，看初始化、归一化与残差。",
        ),
    ),
    Cause(
        name="run_updates_large",
        title=Text("Single updates move the layers too far", "单次更新幅度过大"),
        evidence=Text(
            "{count} of {of} layers are moved by more than a tenth of their size in one update, {layer} by {ratio:.0%} "
            "(learning rate {lr:.2g}; usual is 0.1%).",
            "{of} 层中有 {count} 层单次更新就改变超过自身大小的十分之一，其中 {layer} 为 {ratio:.0%}（学习率 {lr:.2g}；通常为 0.1%）。",
        ),
        cost=Text("What was learnt is written over within ten steps.", "学到的内容十步之内就会被覆盖。"),
        action=Text("Lower the learning rate by 10 times or more.", "把学习率降低 10 倍或更多。"),
        effect=Text("Layers move by about a thousandth in one update.", "各层单次更新约为千分之一。"),
    ),
    _FAR_UPDATES,
    replace(
        _FAR_UPDATES,
        evidence=Text(
            "At step {at} one update moved half of the layers by {middle:.0%} of their size or more, {layer} by {ratio:.0%} "
            "(learning rate {lr:.2g}; usual is 0.1%), and little was learnt since.",
            "第 {at} 步的一次更新就让半数的层改变了自身大小的 {middle:.0%} 以上，其中 {layer} 为 {ratio:.0%}（学习率 "
            "{lr:.2g}；通常为 0.1%），此后几乎没有学到东西。",
        ),
        cost=Text("What was learnt is written over within ten steps.", "学到的内容十步之内就会被覆盖。"),
        effect=Text("Layers move by about a thousandth in one update.", "各层单次更新约为千分之一。"),
    ),
    Cause(
        name="layer_not_finite",
        title=Text("A layer gives values that are not finite", "有一层输出非有限值"),
        evidence=Text(
            "{layer} was the first at step {at}; {count} layers in all.",
            "在第 {at} 步，{layer} 最先出现；共 {count} 层。",
        ),
        cost=Text("Every answer after that layer is meaningless.", "该层之后的一切输出都没有意义。"),
        action=Text(
            "Lower the learning rate, use bf16 instead of fp16, and look at what {layer} computes.",
            "降低学习率，用 bf16 代替 fp16，并检查 {layer} 的计算。",
        ),
        effect=Text("Activations stay finite.", "激活值保持有限。"),
    ),
    Cause(
        name="pictures_left_out",
        title=Text("Pictures could not be read and were left out", "有图片无法读取，被跳过"),
        evidence=Text(
            "{count} pictures; the first: {where} ({reason}).", "共 {count} 张；第一张：{where}（{reason}）。"
        ),
        cost=Text("The model learns from fewer pictures than you think.", "模型实际学到的图片比你以为的少。"),
        action=Text(
            "List them all: `vitscope data PATH`. Repair or remove them.",
            "用 `vitscope data 路径` 列出全部，修复或删除。",
        ),
        effect=Text("All of the data counts.", "全部数据都派上用场。"),
    ),
)

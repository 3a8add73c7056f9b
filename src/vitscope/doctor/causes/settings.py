"""Causes that lie in the settings."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Remark, Text

NARROW_HEADS = Text("Attention heads that are too narrow", "注意力头的维度太小")
HEADS_OF_WIDTH = Text(
    "Each head has {dim} numbers ({width} wide / {heads} heads): its scores have rank {dim} at most.",
    "每个头只有 {dim} 维（宽度 {width} / {heads} 个头）：其注意力分数的秩最多为 {dim}。",
)
NARROW_HEADS_COST = Text(
    "Narrow heads can hardly pick out single tokens: accuracy may suffer, and training may not converge.",
    "过窄的头很难挑出单个 token：准确率可能下降，训练可能不收敛。",
)

_DROPS_TOO_MUCH = Cause(
    name="dropout_too_high",
    title=Text("Dropout that leaves almost nothing", "dropout 过高，几乎什么都没留下"),
    evidence=Text(
        "In training {share:.0%} of what enters '{layer}' is dropped; {layers} layers drop that much.",
        "训练时进入“{layer}”的激活有 {share:.0%} 被丢弃；共有 {layers} 层丢弃如此之多。",
    ),
    cost=Text(
        "What is left is mostly noise: the loss falls slowly or not at all.",
        "剩下的主要是噪声：损失下降缓慢甚至不下降。",
    ),
    action=Text("Set dropout to 0.1 (at most 0.5).", "把 dropout 设为 0.1（最多 0.5）。"),
    effect=Text("The training loss falls in the first epoch.", "训练损失在第一轮就会下降。"),
)
_DECAYS_TOO_MUCH = Cause(
    name="weight_decay_too_high",
    title=Text("Weight decay that eats the weights", "权重衰减过强，权重被不断抹去"),
    evidence=Text(
        "Decay {decay:g} at lr {lr:g} takes {taken:.0%} of every weight in {steps} steps; it is added to the "
        "gradient, and {ratio:.1f} times as large.",
        "衰减 {decay:g}、学习率 {lr:g} 时，每 {steps} 步抹去每个权重的 {taken:.0%}；它加在梯度上，是梯度的 {ratio:.1f} 倍。",
    ),
    cost=Text(
        "Weights shrink faster than they learn: the output goes to the mean of the classes.",
        "权重缩小得比学习更快：输出趋于各类别的平均。",
    ),
    action=Text("Set weight decay to {usual:g}.", "把权重衰减设为 {usual:g}。"),
    effect=Text("Weights keep their size and the loss falls.", "权重保持大小，损失开始下降。"),
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="head_dim_too_small",
        title=NARROW_HEADS,
        evidence=HEADS_OF_WIDTH,
        cost=NARROW_HEADS_COST,
        action=Text(
            "Fewer heads for the same width: num_heads={better}; 32 to 64 numbers a head work best.",
            "宽度不变，减少头数：num_heads={better}；每个头 32 到 64 维效果最好。",
        ),
        effect=Text("Wider heads at the same cost.", "计算量不变，每个头更宽。"),
    ),
    Cause(
        name="head_dim_too_small",
        title=NARROW_HEADS,
        evidence=HEADS_OF_WIDTH,
        cost=NARROW_HEADS_COST,
        action=Text(
            "A wider model: embed_dim={wider}; 32 to 64 numbers a head work best.",
            "加宽模型：embed_dim={wider}；每个头 32 到 64 维效果最好。",
        ),
        effect=Text("Attention can tell tokens apart.", "注意力能区分各个 token。"),
    ),
    Cause(
        name="head_dim_too_small",
        title=NARROW_HEADS,
        evidence=Text(
            "Each of the {heads} heads is set to {dim} numbers: its scores have rank {dim} at most.",
            "{heads} 个头中每个头的维度被设为 {dim}：其注意力分数的秩最多为 {dim}。",
        ),
        cost=NARROW_HEADS_COST,
        action=Text(
            "Wider heads: head_dim={better_dim} or more; 32 to 64 numbers a head work best.",
            "加宽每个头：head_dim={better_dim} 或更大；每个头 32 到 64 维效果最好。",
        ),
        effect=Text(
            "Attention can tell tokens apart, at the cost of more weights in it.",
            "注意力能区分各个 token，代价是其中的权重更多。",
        ),
    ),
    Cause(
        name="patch_too_coarse",
        title=Text("Patches too large for the picture", "对这种图像来说 patch 太大"),
        evidence=Text(
            "Patch {patch} cuts {height} x {width} pixels into {tokens} patches of {pixels} pixels each.",
            "patch 大小 {patch} 把 {height} x {width} 的图像只切成 {tokens} 块，每块 {pixels} 个像素。",
        ),
        cost=Text(
            "Attention has almost nothing to compare; all detail must pass one linear layer.",
            "注意力几乎没有可比较的内容；所有细节都要挤过一个线性层。",
        ),
        action=Text(
            "Take patch_size={better}: 64 patches or more; it costs more time.",
            "改用 patch_size={better}：至少 64 块；计算时间会增加。",
        ),
        effect=Text("Attention has something to compare.", "注意力有了可比较的内容。"),
    ),
    Cause(
        name="batch_of_one_with_batchnorm",
        title=Text("BatchNorm with one picture at a time", "批大小为 1 却使用 BatchNorm"),
        evidence=Text(
            "{norms} BatchNorm layers see {batch} picture at a time in training.",
            "模型有 {norms} 个 BatchNorm 层，训练时每次只看到 {batch} 张图像。",
        ),
        cost=Text(
            "Each picture is normalised by itself, so training and evaluation are two different models.",
            "每张图像只用自身统计量归一化，训练与评估成了两个不同的模型。",
        ),
        action=Text(
            "Use batches of 16 or more, or GroupNorm or LayerNorm; accumulation does not help here.",
            "使用 16 以上的批大小，或改用 GroupNorm、LayerNorm；梯度累积对此无效。",
        ),
        effect=Text("Validation follows training.", "验证表现会跟上训练表现。"),
    ),
    _DROPS_TOO_MUCH,
    replace(
        _DROPS_TOO_MUCH,
        evidence=Text(
            "The run's drop_rate is {run_rate:g}: that share of the values is dropped in training.",
            "这次训练的 drop_rate 为 {run_rate:g}：训练时丢弃这么大比例的数值。",
        ),
    ),
    _DECAYS_TOO_MUCH,
    replace(
        _DECAYS_TOO_MUCH,
        evidence=Text(
            "Decay {decay:g} at lr {lr:g} takes {taken:.0%} of every weight in {steps} steps.",
            "衰减 {decay:g}、学习率 {lr:g} 时，每 {steps} 步抹去每个权重的 {taken:.0%}。",
        ),
    ),
    Cause(
        name="position_table_wrong_size",
        title=Text("A frozen position table made for another grid", "冻结的位置编码表与当前网格不符"),
        evidence=Text(
            "'{name}' has {places} rows and is not trained; the picture has {down} x {across} = {tokens} patches. "
            "{equal:.0%} of its rows are not their own, its lines are {period} places long (0: none found).",
            "“{name}”有 {places} 行且不参与训练；图像有 {down} x {across} = {tokens} 块。"
            "{equal:.0%} 的行与其他行重复，其行长为 {period}（0 表示未发现）。",
        ),
        cost=Text(
            "Patches are told wrong places, and training cannot mend it.", "图像块得到错误的位置，训练也无法纠正。"
        ),
        action=Text(
            "Resample the table to the grid in two dimensions (model.set_input_size), or let it learn.",
            "按二维网格重采样位置表（model.set_input_size），或让它参与训练。",
        ),
        effect=Text("Neighbouring patches have neighbouring places.", "相邻的图像块得到相邻的位置。"),
    ),
)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="head_dim_small",
        text=Text(
            "Heads of {dim} numbers are narrow; 32 to 64 work best.", "每个头 {dim} 维偏窄；32 到 64 维效果最好。"
        ),
    ),
    Remark(
        name="small_batch_with_batchnorm",
        text=Text("BatchNorm takes its means over {batch} pictures only.", "BatchNorm 只在 {batch} 张图像上统计均值。"),
    ),
    Remark(
        name="position_table_other_size",
        text=Text(
            "The position table '{name}' has {places} rows for {tokens} patches.",
            "位置编码表“{name}”有 {places} 行，而图像有 {tokens} 块。",
        ),
    ),
    Remark(
        name="lr_bold_for_fine_tuning",
        text=Text(
            "lr {lr:g} is high for pretrained weights on a new task; {usual:g} is usual.",
            "把预训练权重用于新任务时，学习率 {lr:g} 偏高；常用值为 {usual:g}。",
        ),
    ),
    Remark(
        name="few_updates",
        text=Text(
            "{updates} updates in all (epochs: {epochs}): too few to learn much; more epochs or a smaller batch.",
            "总共只有 {updates} 次更新（轮数：{epochs}）：太少，学不到多少；增加轮数或减小批次。",
        ),
    ),
    Remark(
        name="guide_differs",
        text=Text(
            "Tuning guide for {pictures:,} pictures, a rule of thumb: {departures}.",
            "调参指南对 {pictures:,} 张图像的经验值：{departures}。",
        ),
    ),
    Remark(
        name="model_large_for_data",
        text=Text(
            "{weights:,} weights for {pictures:,} pictures: a smaller model or pretrained weights may do better.",
            "{pictures:,} 张图像对应 {weights:,} 个权重：更小的模型或预训练权重可能更好。",
        ),
    ),
)

LEFT_OUT: tuple[Remark, ...] = (
    Remark(name="no_attention", text=Text("No attention was found in the model.", "模型中没有找到注意力层。")),
    Remark(
        name="heads_not_known",
        text=Text(
            "There is attention, but how many heads it has could not be told.", "模型有注意力层，但无法得知头数。"
        ),
    ),
    Remark(
        name="patches_not_known",
        text=Text("How the pictures are cut into patches could not be told.", "无法得知图像如何切成块。"),
    ),
    Remark(
        name="patches_too_few",
        text=Text(
            "Too few patches to change places, or they do not fill the picture.",
            "块太少，或没有铺满图像，无法交换位置。",
        ),
    ),
    Remark(name="no_patches", text=Text("The model does not cut pictures into patches.", "模型不把图像切成块。")),
    Remark(
        name="length_unknown",
        text=Text("How long training takes is not known (epochs=...).", "不知道训练多久（epochs=...）。"),
    ),
    Remark(name="no_batch_norm", text=Text("The model has no BatchNorm.", "模型没有 BatchNorm。")),
    Remark(name="no_dropout", text=Text("The model has no dropout.", "模型没有 dropout。")),
    Remark(name="no_optimiser", text=Text("No optimiser was given.", "没有提供优化器。")),
    Remark(name="no_position_table", text=Text("No position table was found.", "没有找到位置编码表。")),
    Remark(
        name="size_of_data_unknown",
        text=Text("The number of training pictures is not known.", "不知道训练图像的数量。"),
    ),
)

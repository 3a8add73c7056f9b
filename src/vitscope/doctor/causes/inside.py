"""Causes that lie inside the model: its blocks, heads and positions. A part of the forward stage."""

from __future__ import annotations

from vitscope.doctor.causes.text import Cause, Text

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="no_position_information",
        title=Text("The model cannot tell where a patch lies", "模型不知道 patch 的位置"),
        evidence=Text(
            "With the {patches} patches of each picture in another order its features move by {moved:.1g} of the "
            "spread between pictures: by rounding only, also after every weight that learns was changed.",
            "把每张图像的 {patches} 个 patch 打乱后，特征只变化图像间差异的 {moved:.1g}，仅为舍入误差；改动所有可"
            "学习权重后依然如此。",
        ),
        cost=Text(
            "A picture is a bag of patches: shapes cannot be learned, several points of accuracy are lost.",
            "图像变成一袋 patch：学不到形状，准确率损失数个百分点。",
        ),
        action=Text(
            "Add a position table that learns (or 2-D sin-cos, or rotary), and see that its rows differ.",
            "加入可学习的位置表（或二维正余弦、旋转位置编码），并确认各行不同。",
        ),
        effect=Text("Shuffled patches change the answer; accuracy rises.", "打乱 patch 会改变回答，准确率上升。"),
    ),
    Cause(
        name="attention_scale_missing",
        title=Text("Attention lacks its scale", "注意力缺少缩放"),
        evidence=Text(
            "{count} of {of} attentions ({name}) compute softmax(q k) without 1/sqrt({head_dim}): the scores are "
            "{times:.1f} times too large, spread {spread:.2g}.",
            "{of} 个注意力中有 {count} 个（{name}）计算 softmax(q k) 时没有除以 sqrt({head_dim})：分数大了 "
            "{times:.1f} 倍，离散度 {spread:.2g}。",
        ),
        cost=Text(
            "Attention soon looks at single tokens, and its gradients vanish.",
            "注意力很快集中到单个 token，梯度消失。",
        ),
        action=Text(
            "Multiply the scores by head_dim ** -0.5, or use F.scaled_dot_product_attention.",
            "把分数乘以 head_dim ** -0.5，或使用 F.scaled_dot_product_attention。",
        ),
        effect=Text("Steadier training, higher learning rates possible.", "训练更稳定，可用更高的学习率。"),
    ),
    Cause(
        name="softmax_wrong_axis",
        title=Text("Attention's softmax goes over the wrong axis", "注意力的 softmax 用错了维度"),
        evidence=Text(
            "In {count} of {of} products with the values, a token's weights come to {least:.2g} to {most:.2g} over the keys, "
            "not to 1; over the {axis} they do.",
            "在 {of} 次与 value 的乘积中有 {count} 次，一个 token 的权重沿 key 之和为 {least:.2g} 到 {most:.2g}，而不是 1；"
            "沿 {axis} 之和才是 1。",
        ),
        cost=Text(
            "A token no longer chooses what to look at: tokens compete for it instead, and answers differ in size.",
            "token 不再选择要看什么，而是相互竞争，输出的大小也参差不齐。",
        ),
        action=Text(
            "Take the softmax of the scores (queries x keys) along their last axis: scores.softmax(dim=-1).",
            "对得分（query × key）的最后一维做 softmax：scores.softmax(dim=-1)。",
        ),
        effect=Text("Each token's weights come to 1.", "每个 token 的权重之和为 1。"),
    ),
    Cause(
        name="heads_merged_wrongly",
        title=Text("Heads are put together without being turned back", "合并多头时缺少转置"),
        evidence=Text(
            "In {count} of {of} attentions ({name}, {heads} heads) a change of one value at one token ends up in "
            "several channels of some tokens, not in one channel of all.",
            "{of} 个注意力中有 {count} 个（{name}，{heads} 头）：改动一个 token 的一个值，影响落到部分 token 的多"
            "个通道，而不是所有 token 的同一个通道。",
        ),
        cost=Text(
            "Tokens get each other's features: the shapes are right, the model is not.",
            "token 之间的特征被打乱：形状正确，模型却是错的。",
        ),
        action=Text(
            "Before the reshape to (batch, tokens, width): .transpose(1, 2).",
            "在 reshape 成 (B, N, C) 之前加 .transpose(1, 2)。",
        ),
        effect=Text("The model learns as its size promises.", "模型能学到与其规模相称的水平。"),
    ),
    Cause(
        name="residual_missing",
        title=Text("A block has lost its input: no residual connection", "模块丢失输入：缺少残差连接"),
        evidence=Text(
            "With {names} silenced nothing of the picture comes through any more ({count} of {of} branches).",
            "让 {names} 静默后，图像信息完全无法通过（{of} 个分支中有 {count} 个）。",
        ),
        cost=Text(
            "Signals and gradients fade from layer to layer; deep models do not train.",
            "信号和梯度逐层衰减，深层模型无法训练。",
        ),
        action=Text(
            "x = x + branch(norm(x)) for attention and for the MLP.",
            "注意力和 MLP 都写成 x = x + branch(norm(x))。",
        ),
        effect=Text("Gradients of equal size in all layers; the loss falls.", "各层梯度大小相近，损失下降。"),
    ),
    Cause(
        name="normalisation_missing",
        title=Text("Nothing is normalised between the blocks", "各模块之间没有归一化"),
        evidence=Text(
            "No normalisation runs between {attentions} attentions; tokens enter the first with size {first:.2g} "
            "and the last with {last:.2g}, and differ among themselves by {uneven:.0%}.",
            "{attentions} 个注意力之间没有任何归一化；token 进入第一个时大小为 {first:.2g}，进入最后一个时为 "
            "{last:.2g}，彼此相差 {uneven:.0%}。",
        ),
        cost=Text(
            "Only small learning rates are stable; training is slow or diverges.",
            "只有很小的学习率才稳定，训练缓慢或发散。",
        ),
        action=Text(
            "Put nn.LayerNorm before attention and before the MLP of each block.",
            "在每个模块的注意力和 MLP 之前加 nn.LayerNorm。",
        ),
        effect=Text("Usual learning rates (1e-3) are stable.", "常用学习率（1e-3）即可稳定。"),
    ),
)

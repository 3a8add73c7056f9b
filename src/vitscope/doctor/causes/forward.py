"""Causes that lie in what the model computes."""

from __future__ import annotations

from vitscope.doctor.causes import average, inside
from vitscope.doctor.causes.text import Cause, Remark, Text

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="forward_fails",
        title=Text("A batch does not get through the model", "一个批次无法通过模型"),
        evidence=Text(
            "Images of shape {shape} end in {error}: {message}",
            "形状为 {shape} 的图像引发 {error}：{message}",
        ),
        cost=Text("Nothing can be trained.", "完全无法训练。"),
        action=Text(
            "Make the model's input size, channels and patch size fit the images the loader gives.",
            "让模型的输入尺寸、通道数和 patch 大小与加载器给出的图像一致。",
        ),
        effect=Text("A batch comes through, and the rest can be examined.", "批次可以通过，其余项目才能检查。"),
    ),
    Cause(
        name="labels_not_taken",
        title=Text("Labels in a form that the loss does not take", "标签的形式不被损失函数接受"),
        evidence=Text(
            "Labels of {dtype} and shape {shape} end in '{message}'; as {form} they are taken.",
            "{dtype}、形状 {shape} 的标签引发错误“{message}”；改为 {form} 后可以接受。",
        ),
        cost=Text("Nothing can be trained.", "完全无法训练。"),
        action=Text(
            "Give the loss {form}, in the dataset or before the loss is called.",
            "在数据集中或调用损失函数之前改为 {form}。",
        ),
        effect=Text("The loss is computed, and training can begin.", "可以计算损失，训练得以开始。"),
    ),
    Cause(
        name="position_table_wrong_size",
        title=Text("The position table does not fit the patches", "位置表与 patch 数量不符"),
        evidence=Text(
            "{name} has {rows} rows, the images have {patches} patches: {message}",
            "{name} 有 {rows} 行，而图像有 {patches} 个 patch：{message}",
        ),
        cost=Text("Nothing can be trained.", "完全无法训练。"),
        action=Text(
            "Make the table for this image and patch size, or resample the old one (bicubic, 2-D): "
            "model.set_input_size(...).",
            "按当前图像和 patch 大小建立位置表，或对旧表做二维双三次插值：model.set_input_size(...)。",
        ),
        effect=Text(
            "A batch comes through; a resampled table keeps what it knew.",
            "批次可以通过；插值后的表保留原有知识。",
        ),
    ),
    Cause(
        name="output_shape_wrong",
        title=Text("The output is not one row of logits for each picture", "输出不是每张图像一行 logits"),
        evidence=Text(
            "{pictures} pictures of {classes} classes give an output of shape {shape}.",
            "{pictures} 张图像、{classes} 个类别，输出形状却是 {shape}。",
        ),
        cost=Text("The loss compares the wrong things, or fails.", "损失比较的对象是错的，或直接报错。"),
        action=Text(
            "Let the model end in (pictures, {classes}): pool the tokens, and set num_classes={classes}.",
            "让模型输出的形状为 (B, {classes})：先汇聚 token，并设 num_classes={classes}。",
        ),
        effect=Text("The loss starts near ln({classes}).", "损失从 ln({classes}) 附近开始。"),
    ),
    Cause(
        name="outputs_not_finite",
        title=Text("The model gives NaN or infinity", "模型输出 NaN 或无穷大"),
        evidence=Text(
            "{share:.0%} of the outputs are not finite; the first layer to give one is {layer} ({kind}), its "
            "largest input was {largest_before:.3g}; weights that are not finite: {bad_weights}.",
            "{share:.0%} 的输出不是有限值；最先出现的是 {layer}（{kind}），其输入最大为 {largest_before:.3g}；非"
            "有限的权重：{bad_weights}。",
        ),
        cost=Text("No gradient is of any use.", "任何梯度都没有用。"),
        action=Text(
            "Begin with fresh weights; if it stays, look at {layer}: a division, a logarithm, a square root, or "
            "inputs too large for the dtype.",
            "用全新的权重重新开始；若仍出现，请检查 {layer}：除法、对数、开方，或输入超出数据类型范围。",
        ),
        effect=Text("Finite outputs.", "输出恢复为有限值。"),
    ),
    Cause(
        name="softmax_before_loss",
        title=Text(
            "Softmax (or sigmoid) is applied before a loss that has its own",
            "在自带 softmax 的损失之前又做了一次 softmax（或 sigmoid）",
        ),
        evidence=Text(
            "However sure the last layer is, what is compared with the labels stays between {least:.3g} and {most:.3g}; "
            "even perfect answers cost {floor:.3f}, where a model that knows nothing has {start:.3f}.",
            "无论最后一层多么确定，与标签比较的数始终在 {least:.3g} 到 {most:.3g} 之间；即使全部答对，损失仍有 "
            "{floor:.3f}，而一无所知的模型为 {start:.3f}。",
        ),
        cost=Text(
            "The loss cannot come near 0, gradients are small, learning is slow and stops early.",
            "损失无法接近 0，梯度很小，学习缓慢且过早停滞。",
        ),
        action=Text("Remove it: give the loss the logits.", "去掉它，把 logits 直接交给损失。"),
        effect=Text(
            "The loss can fall to 0; learning is several times as fast.",
            "损失可以降到 0，学习速度提高数倍。",
        ),
    ),
    Cause(
        name="relu_before_loss",
        title=Text("The logits go through a ReLU", "logits 又经过了一次 ReLU"),
        evidence=Text(
            "However much the last layer says against a class, its logit stays at {least:.3g}; what it says for one comes "
            "through ({most:.3g}).",
            "无论最后一层多么反对某个类别，它的 logit 都停在 {least:.3g}；而支持的数值照常通过（{most:.3g}）。",
        ),
        cost=Text(
            "A class whose logit is cut gets no gradient from its pictures and may never come back: accuracy stops short, at "
            "times even on a single batch.",
            "logit 被截断的类别得不到梯度，可能永远无法恢复：准确率提前停滞，有时连一个批次都背不下来。",
        ),
        action=Text(
            "Take the activation behind the last layer away: give the loss what the layer gives.",
            "去掉最后一层之后的激活函数，把该层的输出直接交给损失。",
        ),
        effect=Text("Every class gets its gradient, from every picture.", "每个类别都能从每张图片得到梯度。"),
    ),
    Cause(
        name="log_softmax_missing",
        title=Text("The loss wants log-probabilities and is given logits", "损失需要对数概率，得到的却是 logits"),
        evidence=Text(
            "Where all logits are raised by {raised:g}, which changes no answer, the loss goes from {start:.3g} to "
            "{end:.3g}: it has no lowest point.",
            "把所有 logits 同时提高 {raised:g}（答案不变），损失就从 {start:.3g} 变为 {end:.3g}：它没有下限。",
        ),
        cost=Text(
            "The loss falls without end while outputs grow; what the pictures show hardly matters.",
            "损失无止境地下降，输出不断变大，图像内容几乎不起作用。",
        ),
        action=Text(
            "Use nn.CrossEntropyLoss (cross_entropy), or let the model end in log_softmax.",
            "改用 nn.CrossEntropyLoss（cross_entropy），或在模型末尾加 log_softmax。",
        ),
        effect=Text(
            "The loss starts near ln(classes) and is never below 0.", "损失从 ln(类别数) 附近开始，且不会低于 0。"
        ),
    ),
    Cause(
        name="init_zero",
        title=Text("Weights begin without any spread", "权重初始时全部相同"),
        evidence=Text(
            "{count} of {of} layers hold one and the same number throughout ({names}).",
            "{of} 层中有 {count} 层的权重全是同一个数（{names}）。",
        ),
        cost=Text(
            "All units of a layer stay alike: nothing is learned, however long it trains.",
            "同一层的所有单元永远一样：训练多久都学不到东西。",
        ),
        action=Text(
            "Initialise by chance: truncated normal 0.02 for transformers, Kaiming for ReLU convolutions.",
            "随机初始化：Transformer 用 0.02 的截断正态，ReLU 卷积用 Kaiming。",
        ),
        effect=Text("The loss begins to fall within a few steps.", "几步之内损失开始下降。"),
    ),
    Cause(
        name="init_too_large",
        title=Text("Weights begin far too large", "初始权重过大"),
        evidence=Text(
            "A layer multiplies the size of its input by {gain:.1f} (median; usual {usual:g}); the worst is "
            "{worst} with {largest:.1f}.",
            "每层把输入放大 {gain:.1f} 倍（中位数；通常为 {usual:g}），最大的是 {worst}，为 {largest:.1f}。",
        ),
        cost=Text(
            "Attention and logits are saturated from the start: the model is sure and wrong, and gradients "
            "explode or vanish.",
            "注意力和 logits 一开始就饱和：模型自信却错误，梯度爆炸或消失。",
        ),
        action=Text(
            "Begin with weights about {divide:.0f} times smaller: std 0.02 for transformers, Kaiming for convolutions.",
            "把初始权重缩小约 {divide:.0f} 倍：Transformer 标准差 0.02，卷积用 Kaiming。",
        ),
        effect=Text("The loss starts at ln(classes) and falls steadily.", "损失从 ln(类别数) 开始并稳定下降。"),
    ),
    Cause(
        name="output_ignores_input",
        title=Text("The model's answer does not depend on the picture", "模型的回答与图像无关"),
        evidence=Text(
            "What the classifier sees has a size of {size:.3g} and differs by {spread:.2g} between pictures.",
            "分类器看到的特征大小为 {size:.3g}，不同图像之间只差 {spread:.2g}。",
        ),
        cost=Text("It can learn how frequent classes are, and nothing more.", "它只能学到各类别的频率。"),
        action=Text(
            "Look for a layer that drops its input: a weight of zeros, a missing residual connection, a pooled "
            "token that never attends.",
            "查找丢掉输入的层：全零权重、缺失的残差连接，或从不参与注意力的汇聚 token。",
        ),
        effect=Text("Different pictures give different answers.", "不同图像得到不同回答。"),
    ),
    Cause(
        name="random_in_eval",
        title=Text("The model answers by chance in evaluation mode", "评估模式下回答仍带随机性"),
        evidence=Text(
            "The same pictures, twice in evaluation mode: the features differ by {again:.0%} of the spread "
            "between pictures.",
            "同样的图像在评估模式下跑两次，特征相差达图像间差异的 {again:.0%}。",
        ),
        cost=Text("Validation is noisy and too low.", "验证结果有噪声且偏低。"),
        action=Text(
            "Use F.dropout(x, p, training=self.training), or nn.Dropout.",
            "使用 F.dropout(x, p, training=self.training) 或 nn.Dropout。",
        ),
        effect=Text("Two evaluations agree to the last digit.", "两次评估完全一致。"),
    ),
    Cause(
        name="batch_mixes_pictures",
        title=Text("Pictures of a batch are mixed up with each other", "同一批次的图像互相混在一起"),
        evidence=Text(
            "The features of {pictures} pictures change by {company:.0%} of the spread between pictures when the "
            "others in the batch are exchanged.",
            "更换批次中的其他图像后，{pictures} 张图像的特征变化达图像间差异的 {company:.0%}。",
        ),
        cost=Text(
            "Each answer is partly about other pictures; learning is impossible or worth nothing.",
            "每个回答都部分来自别的图像，学习无法进行或毫无意义。",
        ),
        action=Text(
            "Look for a reshape or view that moves numbers between the batch and another axis: transpose or "
            "permute first.",
            "查找把数据在批次维与其他维之间移动的 reshape 或 view：应先 transpose 或 permute。",
        ),
        effect=Text("A picture's answer is the same in any company.", "一张图像的回答不再受同批图像影响。"),
    ),
    Cause(
        name="loss_wrong_at_start",
        title=Text("The loss starts far too high", "初始损失过高"),
        evidence=Text(
            "It starts at {loss:.2f}; a model that knows nothing has {expected:.2f}. The logits' spread is "
            "{spread:.2g}, and standardised pictures do not help (+{standard:.2g}).",
            "初始损失为 {loss:.2f}，一无所知的模型应为 {expected:.2f}。logits 的离散度为 {spread:.2g}，把图像标准"
            "化也无济于事（+{standard:.2g}）。",
        ),
        cost=Text(
            "The first epochs are spent on unlearning, or training diverges.",
            "头几个周期都在纠正错误，或训练发散。",
        ),
        action=Text(
            "Make the classifier's first weights small (std 0.02 or zeros), and normalise what it sees.",
            "把分类层的初始权重设小（标准差 0.02 或零），并对其输入做归一化。",
        ),
        effect=Text("The loss starts near {expected:.2f}.", "损失从 {expected:.2f} 附近开始。"),
    ),
    Cause(
        name="input_upsets_model",
        title=Text("The pictures' range is too much for the model", "图像的数值范围使模型失常"),
        evidence=Text(
            "The loss starts at {loss:.2f} instead of {expected:.2f}; with the same pictures standardised it is "
            "within {standard:+.2g} of that.",
            "初始损失为 {loss:.2f} 而非 {expected:.2f}；同样的图像标准化后与之相差 {standard:+.2g}。",
        ),
        cost=Text(
            "Learning is slow or diverges: the first layer's gradients are as large as its inputs.",
            "学习缓慢或发散：第一层梯度和输入一样大。",
        ),
        action=Text(
            "Normalise the pictures to mean 0 and standard deviation 1 per channel.",
            "把图像按通道归一化为均值 0、标准差 1。",
        ),
        effect=Text("The loss starts near {expected:.2f}.", "损失从 {expected:.2f} 附近开始。"),
    ),
    Cause(
        name="dropout_too_high",
        title=Text("Dropout leaves almost nothing", "dropout 过高，几乎什么都不剩"),
        evidence=Text(
            "Two training passes of the same picture agree by {agreement:.2f} (1: the same, 0: unrelated) before "
            "the classifier; the highest rate is {rate:g}.",
            "同一图像的两次训练前向在分类器之前的一致度为 {agreement:.2f}（1 为相同，0 为无关）；最高丢弃率为 "
            "{rate:g}。",
        ),
        cost=Text(
            "The classifier learns from noise; training is many times slower and underfits.",
            "分类器在噪声上学习，训练慢很多倍且欠拟合。",
        ),
        action=Text(
            "Set dropout to 0.1; 0.3 to 0.5 at most for very small data.",
            "把 dropout 设为 0.1；数据很少时最多 0.3 到 0.5。",
        ),
        effect=Text("Training loss falls from the first epoch on.", "训练损失从第一个周期起下降。"),
    ),
    Cause(
        name="evaluated_in_train_mode",
        title=Text("Evaluation runs in training mode", "评估时模型仍处于训练模式"),
        evidence=Text(
            "During evaluation {drops} dropout and {norms} BatchNorm layers were in training mode ({names}).",
            "评估期间有 {drops} 个 dropout 层和 {norms} 个 BatchNorm 层处于训练模式（{names}）。",
        ),
        cost=Text(
            "Validation is noisy and too low, and BatchNorm learns from validation pictures.",
            "验证结果有噪声且偏低，BatchNorm 还会从验证图像中学习。",
        ),
        action=Text(
            "Call model.eval() before evaluating, and model.train() afterwards.",
            "评估前调用 model.eval()，之后再调用 model.train()。",
        ),
        effect=Text("Validation is repeatable and higher.", "验证结果可重复，并且更高。"),
    ),
    *average.CAUSES,
    *inside.CAUSES,
)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="train_mode_without_harm",
        text=Text(
            "Evaluation runs in training mode ({modules} modules), which changes nothing in this model: it has "
            "no dropout and no BatchNorm.",
            "评估在训练模式下进行（{modules} 个模块），但该模型没有 dropout 和 BatchNorm，因此没有影响。",
        ),
    ),
)

LEFT_OUT: tuple[Remark, ...] = (
    Remark(
        name="no_layers",
        text=Text("The model has no linear or convolutional layers.", "模型没有线性层或卷积层。"),
    ),
    Remark(
        name="weights_from_elsewhere",
        text=Text(
            "Training begins with weights from elsewhere: rules for fresh weights do not hold.",
            "训练从已有权重开始，不适用全新权重的规则。",
        ),
    ),
    Remark(
        name="too_few_pictures",
        text=Text("There are too few different pictures to compare.", "可比较的不同图像太少。"),
    ),
    Remark(
        name="no_weights_to_see",
        text=Text("No weights of attention can be seen outside fused calls.", "看不到融合调用之外的注意力权重。"),
    ),
    Remark(
        name="no_attention_to_see",
        text=Text("No attention whose parts can be seen.", "没有可以看到内部结构的注意力。"),
    ),
    Remark(
        name="attention_not_compared",
        text=Text(
            "There is attention, but what it computes could not be compared with its parts.",
            "模型有注意力层，但无法用其各部分重新计算来比较。",
        ),
    ),
    Remark(
        name="nothing_left_to_chance",
        text=Text("Nothing is left to chance in training: no dropout.", "训练中没有随机成分：没有 dropout。"),
    ),
    Remark(
        name="no_evaluation",
        text=Text("No evaluation was given (evaluate=...).", "没有给出评估函数（evaluate=...）。"),
    ),
    Remark(
        name="evaluation_uses_another_model",
        text=Text("The evaluation did not call this model.", "评估没有调用这个模型。"),
    ),
    Remark(
        name="no_average",
        text=Text("No averaged weights are evaluated.", "没有评估平均权重。"),
    ),
)

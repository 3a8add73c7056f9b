"""Causes that lie in labels: which there are, how many of each, in which order, and whether they are true."""

from __future__ import annotations

from vitscope.doctor.causes.text import Cause, Text

LABELS: tuple[Cause, ...] = (
    Cause(
        name="labels_out_of_range",
        title=Text("Labels that no output stands for", "标签超出了模型输出的范围"),
        evidence=Text(
            "Labels go from {least} to {largest}, the model has {outputs} outputs, counted from 0; {wrong} of {pictures} "
            "labels lie outside.",
            "标签范围是 {least} 到 {largest}，而模型只有 {outputs} 个输出（从 0 开始编号）；{pictures} 个标签中有 "
            "{wrong} 个越界。",
        ),
        cost=Text(
            "Cross-entropy fails on them: an index error on the CPU, a device assert on a GPU.",
            "交叉熵无法处理这些标签：CPU 上报索引错误，GPU 上触发 device assert。",
        ),
        action=Text(
            "Count classes from 0, and give the model as many outputs as there are classes.",
            "让类别从 0 开始编号，并让模型的输出数等于类别数。",
        ),
        effect=Text("The loss can be computed for every picture.", "每张图像都能正常计算损失。"),
    ),
    Cause(
        name="labels_change",
        title=Text("The same picture has another label each time", "同一张图像每次读取的标签都不同"),
        evidence=Text(
            "Of {pictures} training pictures that were read twice {changed} ({share:.0%}) had another label the second time.",
            "{pictures} 张训练图像读取两次，其中 {changed} 张（{share:.0%}）第二次的标签不同。",
        ),
        cost=Text("There is nothing to learn: answers change from epoch to epoch.", "没有可学的规律：答案每轮都在变。"),
        action=Text(
            "Look for labels drawn by chance in __getitem__, and for pictures that are shuffled apart from their labels.",
            "检查 __getitem__ 中是否随机生成标签，以及图像与标签是否被分别打乱。",
        ),
        effect=Text("Each picture keeps its label, and the loss falls.", "每张图像的标签固定，损失得以下降。"),
    ),
    Cause(
        name="labels_off_by_one",
        title=Text("Labels that are off by one", "标签整体错位了一个"),
        evidence=Text(
            "Labels go from {least} to {largest} over {classes} classes, and the model has {outputs} outputs, "
            "counted from "
            "0; {wrong} of {pictures} labels are wrong for that.",
            "标签范围是 {least} 到 {largest}，共 {classes} 类；模型有 {outputs} 个输出，从 0 开始编号；"
            "{pictures} 个标签中有 {wrong} 个因此对不上。",
        ),
        cost=Text(
            "The last class has no output, or every validation label is another class than in training.",
            "最后一类没有对应的输出，或者验证集的每个标签都与训练集所指的类别不同。",
        ),
        action=Text("Count classes from 0 everywhere: `labels - 1`.", "所有地方都让类别从 0 开始编号：`labels - 1`。"),
        effect=Text("Every class has its own output.", "每个类别都有自己的输出。"),
    ),
    Cause(
        name="num_classes_wrong",
        title=Text("Another number of outputs than classes", "输出数与类别数不一致"),
        evidence=Text(
            "{classes} classes occur (labels {least} to {largest}), the model has {outputs} outputs.",
            "数据中出现了 {classes} 个类别（标签 {least} 到 {largest}），而模型有 {outputs} 个输出。",
        ),
        cost=Text(
            "With too few outputs the loss cannot be computed; with too many, training first has to silence the "
            "others.",
            "输出太少时无法计算损失；输出太多时，训练要先花时间压低多余的输出。",
        ),
        action=Text("Build the model with num_classes={classes}.", "用 num_classes={classes} 构建模型。"),
        effect=Text("The loss at the start is ln({classes}).", "初始损失将约为 ln({classes})。"),
    ),
    Cause(
        name="data_sorted",
        title=Text("Training pictures sorted by class", "训练数据按类别排序，没有打乱"),
        evidence=Text(
            "{stretch} pictures in a row show {met:.1f} classes; shuffled they would show {expected:.1f}.",
            "连续 {stretch} 张图像平均只出现 {met:.1f} 个类别；打乱后应出现 {expected:.1f} 个。",
        ),
        cost=Text(
            "Each batch pulls all weights to its class, and the next one pulls them away: nothing lasts.",
            "每个批次都把权重拉向自己的类别，下一个批次又拉走：什么也学不住。",
        ),
        action=Text("Shuffle: `DataLoader(..., shuffle=True)`.", "打乱数据：`DataLoader(..., shuffle=True)`。"),
        effect=Text("The loss falls steadily instead of in saw teeth.", "损失会平稳下降，而不是锯齿形波动。"),
    ),
    Cause(
        name="class_imbalance",
        title=Text("One class that drowns the others", "类别极不平衡"),
        evidence=Text(
            "Class {frequent} has {largest} training pictures ({share:.0%}), class {rare} only {least}: {ratio:.0f} to 1.",
            "类别 {frequent} 有 {largest} 张训练图像（占 {share:.0%}），类别 {rare} 只有 {least} 张：比例 {ratio:.0f} : "
            "1。",
        ),
        cost=Text(
            "Always naming the frequent class gives {share:.0%} accuracy; rare ones are never learnt.",
            "总是预测多数类就能得到 {share:.0%} 的准确率；稀有类别永远学不会。",
        ),
        action=Text(
            "Sample classes evenly (data.sampling=balanced, WeightedRandomSampler) or weigh the loss; judge by "
            "balanced "
            "accuracy.",
            "均衡采样（data.sampling=balanced 或 WeightedRandomSampler）或给损失加权；用平衡准确率评价。",
        ),
        effect=Text("Rare classes are found at all.", "稀有类别能够被识别。"),
    ),
    Cause(
        name="class_missing",
        title=Text("Classes that never occur in training", "训练集中从未出现的类别"),
        evidence=Text(
            "Validation has {pictures} pictures of classes (by number) {classes}; among the {looked} training pictures "
            "looked at there is none.",
            "验证集中有 {pictures} 张图像属于类别（编号）{classes}；而查看的 {looked} 张训练图像中一张也没有。",
        ),
        cost=Text(
            "The model cannot learn what it is never shown: these validation pictures stay wrong.",
            "模型学不会从未见过的类别：这些验证图像始终会判错。",
        ),
        action=Text(
            "Look for a filter, a missing folder or a split that left them out of training; split anew by class.",
            "检查是否有过滤条件、缺失的文件夹或数据划分把它们排除在训练集之外；按类别重新划分。",
        ),
        effect=Text("Validation finds these classes too.", "验证时这些类别也能被识别。"),
    ),
    Cause(
        name="labels_shuffled",
        title=Text("Labels that have nothing to do with their pictures", "标签与图像毫无关系（被打乱）"),
        evidence=Text(
            "From {pictures} pictures, labels are predicted right in {agreement:.1%}; by chance {chance:.1%} ({z:.1f} "
            "standard errors apart).",
            "用 {pictures} 张图像预测标签，正确率 {agreement:.1%}；随机水平为 {chance:.1%}（相差 {z:.1f} 个标准误）。",
        ),
        cost=Text(
            "Training can only learn pictures by heart; validation stays at chance.",
            "训练只能死记图像；验证准确率停在随机水平。",
        ),
        action=Text(
            "Look for pictures and labels that were sorted or shuffled apart from each other; show a few with their "
            "names.",
            "检查图像和标签是否被分别排序或打乱；挑几张连同类别名一起看看。",
        ),
        effect=Text("Validation leaves chance in the first epoch.", "第一轮后验证准确率就会高于随机水平。"),
    ),
    Cause(
        name="validation_classes_renamed",
        title=Text("Validation counts its classes in another order", "验证集的类别编号与训练集不同"),
        evidence=Text(
            "Training pictures predict {plain:.0%} of {pictures} validation labels, and {renamed:.0%} where classes are "
            "renamed ({pairs}).",
            "用训练图像预测 {pictures} 个验证标签，正确率 {plain:.0%}；把类别重新编号（{pairs}）后为 {renamed:.0%}。",
        ),
        cost=Text(
            "Validation accuracy stays near 0, however well the model learns, and the best checkpoint is the wrong one.",
            "无论模型学得多好，验证准确率都接近 0，选出的最佳检查点也是错的。",
        ),
        action=Text(
            "Make one list of class names and number both parts by it; folders sorted apart from each other often "
            "differ.",
            "用同一份类别名列表给两部分编号；分别排序的文件夹常常不一致。",
        ),
        effect=Text("Validation follows training.", "验证结果会跟上训练结果。"),
    ),
    Cause(
        name="validation_unlike_training",
        title=Text("Validation does not belong to training", "验证集与训练集对不上"),
        evidence=Text(
            "From training pictures, {own:.0%} of training's own labels are predicted right, but {held_out:.0%} of "
            "{pictures} validation labels; by chance {chance:.0%}.",
            "用训练图像预测：训练标签自身的正确率为 {own:.0%}，而 {pictures} 个验证标签只有 {held_out:.0%}；随机水平为 "
            "{chance:.0%}。",
        ),
        cost=Text(
            "Whatever is learnt, validation shows little of it: every choice made by it is a guess.",
            "学到的东西在验证集上几乎看不出来：凭它做的选择都是瞎猜。",
        ),
        action=Text(
            "Show a few pictures of both parts with their names: labels shuffled in validation, sides exchanged, axes "
            "in another order, negatives, or other pictures altogether.",
            "把两部分的图像连同类别名各看几张：验证标签是否被打乱、长宽是否互换、坐标轴顺序是否不同、是否反相，或根本是另一批图像。",
        ),
        effect=Text("Validation follows training.", "验证结果会跟上训练结果。"),
    ),
    Cause(
        name="label_noise",
        title=Text("Many labels that are wrong", "大量标签是错的"),
        evidence=Text(
            "Of the {confident} pictures easiest to tell, {agrees:.0%} have the label predicted and {low:.0%} one "
            "of the "
            "least likely: about {noise:.0%} of labels look drawn by chance.",
            "在最容易判断的 {confident} 张图像中，{agrees:.0%} 的标签与预测一致，{low:.0%} 的标签属于最不可能的类别："
            "约 {noise:.0%} 的标签像是随机给出的。",
        ),
        cost=Text(
            "The loss cannot fall below that of the wrong labels, and a long training learns them by heart.",
            "损失降不到错误标签的下限以下，长时间训练还会把错误标签背下来。",
        ),
        action=Text(
            "Look at pictures whose label the model finds least likely; until then label smoothing 0.1 and early "
            "stopping.",
            "查看模型认为标签最不可能的图像；在此之前使用 0.1 的标签平滑并提前停止。",
        ),
        effect=Text("Training and validation accuracy both rise.", "训练和验证准确率都会上升。"),
    ),
    Cause(
        name="too_few_images",
        title=Text("Too few pictures to learn from scratch", "图像太少，无法从头训练"),
        evidence=Text(
            "{per_class:.1f} different pictures of each of {classes} classes for {parameters:,} weights; the best "
            "simple "
            "features predict {agreement:.0%} of held-out labels from them.",
            "{classes} 个类别平均每类只有 {per_class:.1f} 张不同图像，而权重有 {parameters:,} 个；"
            "用简单特征从中只能正确预测 {agreement:.0%} 的留出标签。",
        ),
        cost=Text(
            "The model learns the pictures by heart and knows nothing of others.",
            "模型只会死记这些图像，对其他图像一无所知。",
        ),
        action=Text(
            "Gather at least a few hundred of each class, or fine-tune pretrained weights.",
            "每类至少收集几百张，或微调预训练权重。",
        ),
        effect=Text("Validation follows training.", "验证曲线会跟上训练曲线。"),
    ),
)

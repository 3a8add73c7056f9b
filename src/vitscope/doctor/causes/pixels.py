"""Causes that lie in pixels: what they are, their scale, and whether they are there twice."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.text import Cause, Text

_WRONG_NORMALISATION = Cause(
    name="normalisation_wrong",
    title=Text("A normalisation that does not fit the pictures", "归一化的均值和标准差与图像不符"),
    evidence=Text(
        "After normalisation channels have mean {mean} and std {std}: no usual mean and std bring pixels from 0 "
        "to 1 there.",
        "归一化后各通道均值为 {mean}，标准差为 {std}：对 0 到 1 的像素，常用的均值和标准差不可能得到这样的结果。",
    ),
    cost=Text(
        "The picture is a small change on a large constant, or far too large: training is slow or unstable.",
        "图像内容只是一个大常数上的微小变化，或数值过大：训练缓慢或不稳定。",
    ),
    action=Text(
        "Use the mean and std of pixels from 0 to 1: 0.5 and 0.5, or the set's own.",
        "使用 0 到 1 像素的均值和标准差：0.5 和 0.5，或数据集自身的统计值。",
    ),
    effect=Text("Mean near 0, std near 1.", "均值接近 0，标准差接近 1。"),
)

PIXELS: tuple[Cause, ...] = (
    Cause(
        name="nan_in_data",
        title=Text("Pictures with pixels that are no numbers", "图像中含有非数值像素（NaN 或 Inf）"),
        evidence=Text(
            "{bad} of {pictures} pictures ({part}) have NaN or infinite pixels; the first is {which}, label {label}.",
            "{part} 的 {pictures} 张图像中有 {bad} 张含有 NaN 或无穷大的像素；第一张是 {which}，标签为 {label}。",
        ),
        cost=Text(
            "The first step that meets one makes the loss NaN, and every weight with it.",
            "训练只要遇到其中一张，损失就会变成 NaN，随后所有权重都会失效。",
        ),
        action=Text(
            "Take these pictures out, or mend what makes them: often a division by zero or a broken file.",
            "删除这些图像，或修正产生它们的代码：常见原因是除以零或文件损坏。",
        ),
        effect=Text("The loss stays finite.", "损失将保持有限值。"),
    ),
    Cause(
        name="constant_images",
        title=Text("Pictures of a single value", "图像是纯色的，没有内容"),
        evidence=Text(
            "{flat} of {pictures} training pictures ({share:.0%}) have one value in all pixels of a channel.",
            "{pictures} 张训练图像中有 {flat} 张（{share:.0%}）在每个通道内所有像素都相同。",
        ),
        cost=Text(
            "There is nothing to tell classes by: the loss stops at chance.",
            "没有可供区分类别的信息：损失会停在随机水平。",
        ),
        action=Text(
            "Look at what the loader gives (`images[0]`): reading, resizing or normalisation empties it.",
            "检查加载器给出的内容（`images[0]`）：读取、缩放或归一化把图像变空了。",
        ),
        effect=Text("The model sees something and can learn.", "模型能看到内容，才可能学习。"),
    ),
    Cause(
        name="constant_channel",
        title=Text("A channel that never varies", "有通道始终不变"),
        evidence=Text(
            "Channels {channels} of {of} have the same value in all {pictures} pictures.",
            "{of} 个通道中的第 {channels} 通道在全部 {pictures} 张图像里都是同一个值。",
        ),
        cost=Text(
            "What it should show is lost, and weights that were trained with it meet what they never saw.",
            "该通道的信息丢失了；用完整通道训练过的权重会遇到从未见过的输入。",
        ),
        action=Text("Mend how channels are read or stacked.", "修正通道的读取或拼接方式。"),
        effect=Text("All channels take part.", "所有通道都能发挥作用。"),
    ),
    Cause(
        name="input_not_normalised",
        title=Text("Pixels that were never normalised", "输入没有归一化"),
        evidence=Text(
            "Pixels go from {low:.3g} to {high:.3g} (mean {mean}, std {std}); networks are made for about -1 to 1.",
            "像素范围是 {low:.3g} 到 {high:.3g}（均值 {mean}，标准差 {std}）；网络适合的范围大约是 -1 到 1。",
        ),
        cost=Text(
            "The first layer gives numbers a hundred times too large: training is unstable or very slow.",
            "第一层的输出会大上百倍：训练不稳定或非常缓慢。",
        ),
        action=Text(
            "Divide by 255 and normalise: `(images / 255 - 0.5) / 0.5`, in training and validation.",
            "除以 255 再归一化：`(images / 255 - 0.5) / 0.5`，训练和验证都要做。",
        ),
        effect=Text("The usual learning rates work.", "常用的学习率即可正常工作。"),
    ),
    _WRONG_NORMALISATION,
    replace(
        _WRONG_NORMALISATION,
        evidence=Text(
            "The run's mean and std make pixels from 0 to 1 go from {run_low:.3g} to {run_high:.3g}; usual is -3 to 3 at most.",
            "按这次训练设置的均值和标准差，0 到 1 的像素会变成 {run_low:.3g} 到 {run_high:.3g}；通常不超出 -3 到 3。",
        ),
    ),
    Cause(
        name="normalisation_not_that_of_weights",
        title=Text("A normalisation other than the loaded weights know", "归一化与预训练权重所用的不同"),
        evidence=Text(
            "Pictures are normalised with mean {used_mean}, std {used_std}; the weights were trained with mean "
            "{mean}, std "
            "{std}.",
            "当前归一化使用均值 {used_mean}、标准差 {used_std}；而权重训练时使用均值 {mean}、标准差 {std}。",
        ),
        cost=Text(
            "Pretrained features shift: 5 to 19 points of accuracy in published reports.",
            "预训练特征会偏移：公开报告中准确率因此下降 5 到 19 个百分点。",
        ),
        action=Text(
            "Set data.mean to {mean} and data.std to {std}.", "把 data.mean 设为 {mean}，data.std 设为 {std}。"
        ),
        effect=Text("The weights see what they were trained on.", "权重将看到与其训练时一致的输入。"),
    ),
    Cause(
        name="validation_normalised_otherwise",
        title=Text("Training and validation normalised differently", "训练集与验证集的归一化不同"),
        evidence=Text(
            "Training: mean {mean}, std {std}. Validation: mean {other_mean}, std {other_std}.",
            "训练集：均值 {mean}，标准差 {std}；验证集：均值 {other_mean}，标准差 {other_std}。",
        ),
        cost=Text(
            "Validation judges the model on pictures it never learnt to read.",
            "验证是在模型从未学过的图像上进行的，结果不可信。",
        ),
        action=Text("Use one and the same normalisation for both.", "两者使用同一套归一化。"),
        effect=Text("Validation says what the model can do.", "验证结果才能反映模型的真实能力。"),
    ),
    Cause(
        name="duplicate_only_data",
        title=Text("The same few pictures again and again", "数据只是少数图像的重复"),
        evidence=Text(
            "Of {pictures} training pictures only {distinct} differ: each comes {times:.0f} times.",
            "{pictures} 张训练图像中只有 {distinct} 张不同：平均每张重复 {times:.0f} 次。",
        ),
        cost=Text(
            "The model learns these by heart; validation stays near chance.",
            "模型只会死记这些图像；验证准确率接近随机水平。",
        ),
        action=Text(
            "Look for an index that does not advance in the data set, or gather more pictures.",
            "检查数据集里是否有不前进的索引，或收集更多图像。",
        ),
        effect=Text("As many different pictures as rows.", "每一行都是不同的图像。"),
    ),
    Cause(
        name="validation_leaked",
        title=Text("Validation pictures that are in training too", "验证图像泄漏到了训练集"),
        evidence=Text(
            "{found} validation pictures have a copy in training, about {share:.0%} of all.",
            "有 {found} 张验证图像在训练集中存在副本，约占全部的 {share:.0%}。",
        ),
        cost=Text(
            "Validation measures memory: it looks better than new pictures will show, and overfitting stays unseen.",
            "验证测到的是记忆：结果虚高，过拟合也看不出来。",
        ),
        action=Text(
            "Split by picture before copying or augmenting; take the copies out of training.",
            "先按图像划分，再做复制或增强；从训练集中移除这些副本。",
        ),
        effect=Text("Validation falls to its true value.", "验证准确率会降到真实水平。"),
    ),
    Cause(
        name="test_leaked",
        title=Text("Test pictures that are in training too", "测试图像泄漏到了训练集"),
        evidence=Text(
            "{found} of {pictures} test pictures that were looked at have a copy in training, about {share:.0%} of all.",
            "在查看的 {pictures} 张测试图像中，有 {found} 张在训练集中存在副本，约占全部的 {share:.0%}。",
        ),
        cost=Text(
            "The test measures memory: its accuracy is better than new pictures will show.",
            "测试测到的是记忆：准确率虚高，换成新图像就达不到。",
        ),
        action=Text(
            "Take the copies out of training, or test on other pictures; `vitscope data` lists them.",
            "从训练集中移除这些副本，或换用别的图像做测试；`vitscope data` 会列出它们。",
        ),
        effect=Text("Test accuracy falls to its true value.", "测试准确率会降到真实水平。"),
    ),
    Cause(
        name="channels_swapped",
        title=Text("Colours in another order in validation than in training", "训练集与验证集的颜色通道顺序不同"),
        evidence=Text(
            "Channel means of training and validation differ by {distance:.0f} standard errors; with validation's "
            "channels "
            "in the order {order} by {best:.1f}.",
            "训练与验证的通道均值相差 {distance:.0f} 个标准误；把验证集通道按 {order} 重排后只差 {best:.1f} 个。",
        ),
        cost=Text(
            "The model is judged on colours it never saw: red is blue.", "模型在从未见过的颜色上被评价：红变成了蓝。"
        ),
        action=Text(
            "Read both in one order; OpenCV gives BGR: `cv2.cvtColor(image, cv2.COLOR_BGR2RGB)`.",
            "两者用同一通道顺序读取；OpenCV 给出的是 BGR：`cv2.cvtColor(image, cv2.COLOR_BGR2RGB)`。",
        ),
        effect=Text("Validation accuracy rises without training.", "不用训练，验证准确率就会上升。"),
    ),
    Cause(
        name="validation_augmented",
        title=Text("Validation pictures that are varied by chance", "验证时仍在做随机增强"),
        evidence=Text(
            "Of {pictures} validation pictures {changed} ({share:.0%}) were other pixels when looked at again.",
            "{pictures} 张验证图像中有 {changed} 张（{share:.0%}）在第二次读取时像素发生了变化。",
        ),
        cost=Text(
            "Validation is lower than it should be and jumps from epoch to epoch: the best epoch is chosen by luck.",
            "验证准确率偏低，并逐轮跳动：最佳轮次靠运气选出。",
        ),
        action=Text(
            "Give validation its own transform: resize and normalise only.", "给验证集单独的变换：只做缩放和归一化。"
        ),
        effect=Text("The same model gets the same validation accuracy twice.", "同一模型两次验证得到相同的准确率。"),
    ),
)

"""Causes that lie in the pictures and labels."""

from __future__ import annotations

from vitscope.doctor.causes.labels import LABELS
from vitscope.doctor.causes.pixels import PIXELS
from vitscope.doctor.causes.text import Cause, Remark, Text

CAUSES: tuple[Cause, ...] = (*PIXELS, *LABELS)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="classes_without_pictures",
        text=Text(
            "{classes} of the model's {outputs} classes occur in the data.",
            "模型的 {outputs} 个类别中只有 {classes} 个在数据中出现。",
        ),
    ),
    Remark(
        name="some_flat_pictures",
        text=Text(
            "{flat} of {pictures} training pictures have a single colour.",
            "{pictures} 张训练图像中有 {flat} 张是纯色的。",
        ),
    ),
    Remark(
        name="pixels_not_centred",
        text=Text(
            "Pixels go from {low:.3g} to {high:.3g}: usual is about -1 to 1.",
            "像素范围是 {low:.3g} 到 {high:.3g}：通常约为 -1 到 1。",
        ),
    ),
    Remark(
        name="few_leaks",
        text=Text(
            "{found} validation pictures have a copy in training: too few to change the result.",
            "有 {found} 张验证图像在训练集中存在副本：数量太少，不影响结果。",
        ),
    ),
    Remark(
        name="leaks_unclear",
        text=Text(
            "{found} of {pictures} validation pictures that were looked at have a copy in training: too few were looked at "
            "to tell whether that changes the result.",
            "在查看的 {pictures} 张验证图像中，有 {found} 张在训练集中存在副本：查看的图像太少，无法判断是否影响结果。",
        ),
    ),
    Remark(
        name="few_test_leaks",
        text=Text(
            "{found} test pictures have a copy in training: too few to change the result.",
            "有 {found} 张测试图像在训练集中存在副本：数量太少，不影响结果。",
        ),
    ),
    Remark(
        name="test_leaks_unclear",
        text=Text(
            "{found} of {pictures} test pictures that were looked at have a copy in training: too few were looked at "
            "to tell whether that changes the result.",
            "在查看的 {pictures} 张测试图像中，有 {found} 张在训练集中存在副本：查看的图像太少，无法判断是否影响结果。",
        ),
    ),
    Remark(
        name="validation_became_test",
        text=Text(
            "The given '{name}' is the test part here; validation is {share:.0%} of the given '{train}'. With a part "
            "called 'test' beside them both stay as they are.",
            "给定的“{name}”在这里用作测试集；验证集取自给定的“{train}”的 {share:.0%}。若另有名为“test”的部分，两者都保持原样。",
        ),
    ),
    Remark(
        name="classes_unequal",
        text=Text(
            "Class {frequent} has {ratio:.0f} times as many training pictures as class {rare}.",
            "类别 {frequent} 的训练图像是类别 {rare} 的 {ratio:.0f} 倍。",
        ),
    ),
    Remark(
        name="class_not_in_training",
        text=Text(
            "Of classes (by number) {classes} there are {pictures} pictures in validation, and none among the {looked} "
            "training pictures looked at.",
            "类别（编号）{classes} 在验证集中有 {pictures} 张图像，而查看的 {looked} 张训练图像中没有。",
        ),
    ),
    Remark(
        name="few_pictures",
        text=Text(
            "{per_class:.1f} pictures of each class are few; pretrained weights would help.",
            "平均每类 {per_class:.1f} 张图像偏少；使用预训练权重会有帮助。",
        ),
    ),
)

LEFT_OUT: tuple[Remark, ...] = (
    Remark(
        name="labels_are_no_classes",
        text=Text("Labels are not one class each.", "标签不是单一类别，无法判断。"),
    ),
    Remark(
        name="one_output",
        text=Text("The model has a single output, so it names no classes.", "模型只有一个输出，不区分类别。"),
    ),
    Remark(
        name="too_few_to_judge",
        text=Text("There are too few pictures to judge this by.", "图像太少，无法判断。"),
    ),
    Remark(
        name="labels_not_read_again",
        text=Text(
            "Too few pictures could be known again when they were read a second time.",
            "第二次读取时能认出的图像太少。",
        ),
    ),
    Remark(
        name="labels_follow_pixels",
        text=Text(
            "Labels change only where the picture is varied: they may tell how it was.",
            "只有图像被变换时标签才改变：标签可能描述的正是这种变换。",
        ),
    ),
    Remark(
        name="no_validation_part",
        text=Text("There are no validation pictures to compare with.", "没有验证图像可供比较。"),
    ),
    Remark(
        name="pictures_are_all_alike",
        text=Text("The pictures are all alike, so this cannot be asked of them.", "图像几乎都一样，无法判断。"),
    ),
    Remark(
        name="no_colours",
        text=Text("There are no channels whose order could be compared.", "没有可以比较顺序的通道。"),
    ),
    Remark(
        name="validation_comes_in_another_order",
        text=Text(
            "Validation comes in another order each time, and not to its end, so it cannot be compared.",
            "验证数据每次顺序不同且未能读完，无法比较。",
        ),
    ),
    Remark(
        name="one_class_only",
        text=Text("Only one class was seen, so there is nothing to tell apart.", "只看到一个类别，无从区分。"),
    ),
)

"""Every word around the findings, in both languages: headings, verdicts, outcomes, how sure. The findings' own
sentences stand in `causes/`."""

from __future__ import annotations

from vitscope.doctor.causes.text import Language, Text
from vitscope.doctor.thresholds.whole import SURE_ENOUGH

VERDICTS = {
    "healthy": Text("healthy", "健康"),
    "unwell": Text("unwell", "有问题"),
    "cannot tell": Text("cannot tell", "无法判断"),
}
VERDICT_SENTENCES = {
    "healthy": Text(
        "Nothing was found that keeps it from learning.",
        "没有发现妨碍训练的问题。",
    ),
    "unwell": Text("Most likely: {title}", "最可能的原因：{title}"),
    "cannot tell": Text(
        "Something was seen, but none of it is sure enough to blame.",
        "发现了一些迹象，但都不足以确定是原因。",
    ),
    "failed": Text(
        "Nothing was found, but some checks could not be made.",
        "没有发现问题，但有些检查无法进行。",
    ),
    "nothing asked": Text("Nothing could be looked at.", "没有任何可以检查的内容。"),
}
"""The last two are kinds of `cannot tell`."""

OUTCOMES = {
    "fine": Text("fine", "正常"),
    "found something": Text("found something", "发现问题"),
    "left out": Text("left out", "跳过"),
    "failed": Text("failed", "失败"),
    "not asked": Text("not asked", "未检查"),
}
STAGES = {
    "data": Text("data", "数据"),
    "settings": Text("settings", "设置"),
    "forward": Text("forward", "前向"),
    "backward": Text("backward", "反向"),
    "training": Text("training", "训练"),
}
SUBJECT = {
    "source": Text("examined", "检查对象"),
    "run": Text("run", "训练记录"),
    "state": Text("state", "状态"),
    "alive": Text("at work", "正在运行"),
    "problems": Text("damaged", "损坏"),
    "steps": Text("steps", "步数"),
    "train_accuracy": Text("training accuracy", "训练准确率"),
    "best_val_accuracy": Text("best validation accuracy", "最佳验证准确率"),
    "test_accuracy": Text("test accuracy", "测试准确率"),
    "data": Text("data", "数据"),
    "model": Text("model", "模型"),
    "parameters": Text("parameters", "参数量"),
    "classes": Text("classes", "类别数"),
    "pictures": Text("training pictures", "训练图片"),
    "batch_size": Text("batch", "批大小"),
    "optimizer": Text("optimiser", "优化器"),
    "lr": Text("learning rate", "学习率"),
    "epochs": Text("epochs", "轮数"),
    "device": Text("device", "设备"),
    "seed": Text("seed", "随机种子"),
}
"""What a report's subject may hold; other names are shown as they are."""
STATES = {
    "starting": Text("starting", "启动中"),
    "running": Text("running", "运行中"),
    "finished": Text("finished", "已完成"),
    "failed": Text("failed", "失败"),
    "stopped": Text("stopped", "已停止"),
    "diverged": Text("diverged", "已发散"),
}
"""Of a run, as its status names them."""

HEADINGS = {
    "doctor": Text("the doctor's report", "诊断报告"),
    "findings": Text("findings, most likely first", "发现（可能性从高到低）"),
    "evidence": Text("evidence", "依据"),
    "cost": Text("cost", "代价"),
    "action": Text("to do", "怎么办"),
    "flags": Text("as flags", "命令行参数"),
    "effect": Text("then", "预期效果"),
    "notes": Text("notes, worth knowing but no faults", "备注（值得了解，但不是错误）"),
    "checks": Text("checks", "检查项目"),
    "check": Text("check", "检查"),
    "stage": Text("stage", "阶段"),
    "outcome": Text("outcome", "结果"),
    "time": Text("time", "用时"),
    "measured": Text("measured", "测量值"),
    "subject": Text("examined", "检查对象"),
    "cause": Text("cause", "原因"),
    "pictures": Text("pictures", "图"),
    "checking": Text("checking {name}", "正在检查 {name}"),
    "wrote": Text("wrote {path}", "已写入 {path}"),
    "total": Text("{seconds} in all", "共 {seconds}"),
    "seconds": Text("{seconds:.1f} s", "{seconds:.1f} 秒"),
    "checks together": Text("{count} checks, {seconds}", "{count} 项，{seconds}"),
    "check alone": Text("{count} check, {seconds}", "{count} 项，{seconds}"),
    "yes": Text("yes", "是"),
    "no": Text("no", "否"),
    "sure": Text("{word}, {share:.0%}", "{word}，{share:.0%}"),
}
SURENESS: tuple[tuple[float, Text], ...] = (
    (0.95, Text("as good as proven", "几乎可以确定")),
    (0.8, Text("very likely", "很可能")),
    (SURE_ENOUGH, Text("likely", "较可能")),
    (0.0, Text("possible", "有可能")),
)
"""From which confidence on which word is used."""

WHY_NOT = {
    "ended": Text(
        "what was found before makes it meaningless: mend that first",
        "前面发现的问题使这项检查失去意义：请先解决前面的问题",
    ),
    "quick": Text("takes too long for a quick examination", "快速检查中省略（耗时较长）"),
    "not chosen": Text("not among those asked for", "不在所选检查之列"),
    "on request": Text("a comparison, made where it is asked for by its name", "仅供对比，指明其名称时才进行"),
}
"""Why a check was not asked."""

FIX = {
    "wrote": Text("wrote {path}: {count} changed", "已写入 {path}：修改了 {count}"),
    "settings": Text("{number} settings", "{number} 项设置"),
    "setting": Text("1 setting", "1 项设置"),
    "again": Text("examine it again: {command}", "再次检查：{command}"),
    "healthy": Text("nothing to change: {path} was not written", "无需修改：未写入 {path}"),
    "unsure": Text(
        "nothing is sure enough to change a setting for: {path} was not written",
        "没有足够把握修改任何设置：未写入 {path}",
    ),
    "none": Text(
        "no setting mends what was found: {path} was not written",
        "所发现的问题无法通过修改设置解决：未写入 {path}",
    ),
    "left": Text("not by settings: {title}. {action}", "无法通过设置解决：{title}。{action}"),
    "head": Text(
        "The settings of {source}, with what the doctor would change: {keys}.",
        "{source} 的设置，按诊断建议修改了：{keys}。",
    ),
    "change": Text("{cause} ({sure}): {title}", "{cause}（{sure}）：{title}"),
    "was": Text("was: {before}", "原值：{before}"),
    "see": Text("{command} writes these settings to a file", "{command} 可将这些设置写入文件"),
}

BESIDE = Text(
    "a run with these settings lies beside them, and its record is called: {verdict} (`{command}`); where the two "
    "differ, the record knows what came of the whole run, this examination what a few steps of its own show",
    "这些设置旁边有一次实际训练，其记录的结论是：{verdict}（`{command}`）；若两者不同，记录反映的是整个训练的结果，"
    "而本次检查反映的是自己试训的几步",
)
"""After the examination of a run's own settings."""

REPLAY = {
    "bad": Text("step {step} goes wrong again", "第 {step} 步重现了问题"),
    "good": Text(
        "step {step} is finite when it is taken again: what broke it is not in the settings, weights and pictures",
        "第 {step} 步重做后一切有限：问题不在设置、权重和图片之中",
    ),
    "loss": Text("loss {loss:g}, gradient norm {norm:g}", "损失 {loss:g}，梯度范数 {norm:g}"),
    "pictures": Text(
        "pictures that hold NaN or infinity themselves, by their place in the batch: {places}",
        "本身含有 NaN 或无穷大的图片（在批次中的位置）：{places}",
    ),
    "forward": Text(
        "first in the forward pass: {operation} in {layer} gave {kind}; the largest value it was given: {largest}",
        "前向传播中最先出错的是 {layer} 的 {operation}：结果出现 {kind}；输入的最大绝对值为 {largest}",
    ),
    "backward": Text(
        "the forward pass is finite; first in the backward pass: {operation} of {layer} gave {kind}; the largest value "
        "it was given: {largest}",
        "前向传播正常；反向传播中最先出错的是 {layer} 的 {operation}：结果出现 {kind}；输入的最大绝对值为 {largest}",
    ),
    "layer": Text(
        "the first layer whose output is not finite: {layer}; which operation it was cannot be seen",
        "最先输出非有限值的层：{layer}；无法看出是哪个运算",
    ),
    "loss itself": Text("the loss", "损失函数"),
    "whole model": Text("the model itself", "模型本身"),
    "gradients": Text(
        "parameters whose gradient is not finite: {count}, such as {names}",
        "梯度非有限的参数：{count} 个，例如 {names}",
    ),
    "no gradients": Text("every gradient is finite", "所有梯度都是有限的"),
}


def sureness(confidence: float, language: Language) -> str:
    """0.83 -> 'very likely, 83%'."""
    word = next(text for least, text in SURENESS if confidence >= least or least == 0.0)
    return HEADINGS["sure"].said(language, {"word": word.said(language, {}), "share": confidence})


def heading(name: str, language: Language, /, **numbers: object) -> str:
    return HEADINGS[name].said(language, numbers)

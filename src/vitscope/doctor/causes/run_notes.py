"""What is said beside the causes of a run, and why a check of it was left out."""

from __future__ import annotations

from vitscope.doctor.causes.text import Remark, Text

RUN_NOTES: tuple[Remark, ...] = (
    Remark(
        name="still_improving",
        text=Text(
            "both losses still fell at the end of {epoch:g} epochs, by more than noise: training longer may help",
            "到第 {epoch:g} 轮结束时两条损失仍在下降，且超过噪声：延长训练可能有帮助",
        ),
    ),
    Remark(
        name="too_short_to_tell",
        text=Text(
            "{epochs} evaluated epochs are too few to judge a curve by, which takes {least}: go on, or examine the settings "
            "with `vitscope doctor {config}`",
            "只有 {epochs} 轮评估，至少要 {least} 轮才能判断曲线：继续训练，或用 `vitscope doctor {config}` 检查设置",
        ),
    ),
    Remark(
        name="too_noisy_to_tell",
        text=Text(
            "the curve is too noisy, or evaluated too seldom, to judge it: more validation pictures or epochs would tell more; "
            "`vitscope doctor {config}` examines the settings",
            "曲线噪声太大或评估次数太少，无法判断：更多的验证图片或更多轮次会更清楚；可用 `vitscope doctor {config}` 检查设置",
        ),
    ),
    Remark(
        name="stop_earlier",
        text=Text(
            "validation was best at epoch {best:g} of {epoch:g}: `--loop.early-stop` would have saved the rest",
            "验证损失在第 {best:g} 轮最好（共 {epoch:g} 轮）：用 `--loop.early-stop` 可省去其余",
        ),
    ),
    Remark(
        name="some_steps_skipped",
        text=Text(
            "{skipped} of {steps} steps were skipped, too few to matter", "{steps} 步中跳过了 {skipped} 步，无关大局"
        ),
    ),
    Remark(name="run_failed", text=Text("the run ended with an error: {what}", "训练因错误而结束：{what}")),
    Remark(
        name="run_killed",
        text=Text("its process ended early; continue it with `{again}`", "训练进程中途消失；用 `{again}` 继续"),
    ),
    Remark(
        name="overconfident",
        text=Text(
            "validation loss rises since epoch {best:g} while accuracy still rises: answers get surer faster than better "
            "(`--loss.smoothing 0.1` helps)",
            "自第 {best:g} 轮起验证损失上升，而准确率仍在提高：自信增长快于能力（可用 `--loss.smoothing 0.1`）",
        ),
    ),
    Remark(
        name="layers_with_long_gradients",
        text=Text(
            "{count} layers have a median gradient norm above {limit:g} over the monitor's samples, {layer} {norm:.3g}",
            "监视器显示 {count} 层的梯度范数中位数超过 {limit:g}，其中 {layer} 为 {norm:.3g}",
        ),
    ),
    Remark(
        name="layers_move_far",
        text=Text(
            "{count} of {of} layers are moved by more than a tenth of their size in one update, {layer} by {ratio:.0%}",
            "{of} 层中有 {count} 层单次更新超过自身大小的十分之一，其中 {layer} 为 {ratio:.0%}",
        ),
    ),
)

RUN_LEFT_OUT: tuple[Remark, ...] = (
    Remark(
        name="too_few_epochs",
        text=Text("too few evaluations, or too noisy ones, for a verdict", "评估次数太少或噪声太大，无法下结论"),
    ),
    Remark(
        name="too_few_steps",
        text=Text("the run has recorded too few steps to tell", "记录的步数太少，无法判断"),
    ),
    Remark(
        name="rate_shows_nothing",
        text=Text(
            "nothing was learnt, and the losses alone do not show whether the rate is why",
            "什么也没有学到，仅凭损失无法判断是否与学习率有关",
        ),
    ),
    Remark(name="nothing_recorded", text=Text("the run has recorded nothing of it", "这次训练没有相关记录")),
    Remark(
        name="started_elsewhere",
        text=Text(
            "its first loss is far from that of guessing: rises since then may have other reasons",
            "它最初的损失与随机猜测相差很远：此后的上升可能另有原因",
        ),
    ),
    Remark(
        name="not_monitored",
        text=Text("layers were not watched (`vitscope train --monitor` does)", "没有逐层监视（训练时加 `--monitor`）"),
    ),
    Remark(
        name="too_few_looks",
        text=Text("the monitor has looked too few times yet", "监视器查看的次数还太少"),
    ),
)

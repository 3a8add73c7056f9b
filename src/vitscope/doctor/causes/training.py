"""Causes that lie in how training goes."""

from __future__ import annotations

from dataclasses import replace

from vitscope.doctor.causes.curve import CURVE_CAUSES
from vitscope.doctor.causes.run_notes import RUN_LEFT_OUT, RUN_NOTES
from vitscope.doctor.causes.text import Cause, Remark, Text

STEP_WANTS_CLOSURE = Remark(
    name="step_wants_closure",
    text=Text(
        "the optimiser's step wants a closure, as LBFGS's: pass your own step (step=...) to have it examined",
        "优化器的 step 需要 closure（如 LBFGS）：请用 step 参数传入自己的训练步再检查",
    ),
)
_TOO_HIGH = Cause(
    name="lr_too_high",
    title=Text("The learning rate is too high", "学习率过高"),
    evidence=Text(
        "Held at {lr:.2g}, each step changed the weights by {move:.2g} % of their length; after {fresh_steps} steps on "
        "fresh batches the loss was {fresh_own:.3g}, and {fresh_better:.3g} at {proposal:.2g}. The stable edge is near "
        "{edge:.2g}; with {batch} pictures a batch the loss at {proposal:.2g} went from {batch_start:.3g} to "
        "{batch_end:.3g} in {batch_steps} steps.",
        "学习率保持在 {lr:.2g} 时，每一步权重改变其长度的 {move:.2g} %；在新批次上训练 {fresh_steps} 步后损失为 "
        "{fresh_own:.3g}，而用 {proposal:.2g} 时为 {fresh_better:.3g}。稳定边界约为 {edge:.2g}；每批 {batch} 张图片、学习率 "
        "{proposal:.2g} 时，{batch_steps} 步内损失从 {batch_start:.3g} 变为 {batch_end:.3g}。",
    ),
    cost=Text(
        "Steps overshoot: the loss swings, stays high or diverges.",
        "步子迈得过大：损失震荡、居高不下，甚至发散。",
    ),
    action=Text("Use a learning rate of {proposal:.2g}.", "把学习率改为 {proposal:.2g}。"),
    effect=Text(
        "The loss comes down instead of swinging or rising.",
        "损失会下降，而不是震荡或上升。",
    ),
)

_NO_WARM_UP = Cause(
    name="warmup_missing",
    title=Text("There is no warm-up, and this model needs one", "缺少学习率预热，而这个模型需要它"),
    evidence=Text(
        "The first steps at {lr:.2g} change the weights by {first:.2g} % of their length each; after {steps} steps on "
        "fresh batches the loss was {cold:.3g} (at first {start:.3g}), with a rate that rises as long {warm:.3g}",
        "学习率为 {lr:.2g} 时，最初几步每一步都使权重改变其长度的 {first:.2g} %；在新批次上训练 {steps} 步后损失为 "
        "{cold:.3g}（开始时为 {start:.3g}），学习率在同样步数内逐步上升时为 {warm:.3g}",
    ),
    cost=Text(
        "The first steps push the weights to where they do not come back from.",
        "最初几步就把权重推到了回不来的地方。",
    ),
    action=Text(
        "Let the learning rate rise over the first 10 % of the steps.",
        "让学习率在前 10 % 的步数内线性上升。",
    ),
    effect=Text("The same rate then works.", "同样的学习率就能正常训练。"),
)

CAUSES: tuple[Cause, ...] = (
    Cause(
        name="cannot_overfit",
        title=Text("The model cannot learn a single batch by heart", "模型连一个批次都背不下来"),
        evidence=Text(
            "{accuracy:.0%} of {pictures} pictures after {steps} steps of Adam without any regularisation; the loss went "
            "from {first_loss:.3g} to {last_loss:.3g} (learning rates tried: {lrs}).",
            "关闭全部正则化后用 Adam 训练 {steps} 步，{pictures} 张图片只答对 {accuracy:.0%}；损失从 {first_loss:.3g} "
            "变为 {last_loss:.3g}（试过的学习率：{lrs}）。",
        ),
        cost=Text(
            "No setting mends this: the network, its inputs or its labels are wrong.",
            "调任何参数都无济于事：网络、输入或标签本身有错。",
        ),
        action=Text(
            "Look for the error in the model's code: a missing residual, merged heads, a detached tensor, a softmax before "
            "the loss, labels that do not belong to their pictures.",
            "检查模型代码：残差丢失、多头合并出错、张量被 detach、损失之前多做了 softmax，或标签与图片对不上。",
        ),
        effect=Text(
            "A sound model has all of them right within about 60 steps.",
            "正确的模型大约 60 步内就能全部答对。",
        ),
    ),
    _TOO_HIGH,
    replace(
        _TOO_HIGH,
        evidence=Text(
            "Held at {lr:.2g}, the loss went from {start:.3g} to {end:.3g} and each step changed the weights by "
            "{move:.2g} % of their length; at {proposal:.2g} it came to {better_end:.3g}. The stable edge is near "
            "{edge:.2g}; with {batch} pictures a batch the loss at {proposal:.2g} went from {batch_start:.3g} to "
            "{batch_end:.3g} in {batch_steps} steps.",
            "学习率保持在 {lr:.2g} 时，损失从 {start:.3g} 变为 {end:.3g}，每一步权重改变其长度的 {move:.2g} %；"
            "保持在 {proposal:.2g} 时损失降到 {better_end:.3g}。稳定边界约为 {edge:.2g}；每批 {batch} 张图片、学习率 "
            "{proposal:.2g} 时，{batch_steps} 步内损失从 {batch_start:.3g} 变为 {batch_end:.3g}。",
        ),
    ),
    replace(
        _TOO_HIGH,
        evidence=Text(
            "At {lr:.2g} the loss started at {start:.3g} and diverged after {lost_after} steps; at {proposal:.2g} it came to "
            "{better_end:.3g}. The stable edge is near {edge:.2g}; with {batch} pictures a batch the loss at {proposal:.2g} went from {batch_start:.3g} to "
            "{batch_end:.3g} in {batch_steps} steps.",
            "学习率为 {lr:.2g} 时，损失从 {start:.3g} 开始，{lost_after} 步后发散；"
            "保持在 {proposal:.2g} 时损失降到 {better_end:.3g}。稳定边界约为 {edge:.2g}；每批 {batch} 张图片、学习率 "
            "{proposal:.2g} 时，{batch_steps} 步内损失从 {batch_start:.3g} 变为 {batch_end:.3g}。",
        ),
    ),
    Cause(
        name="lr_too_high",
        title=Text("The learning rate is too high", "学习率过高"),
        evidence=Text(
            "The loss rose from {run_start:.3g} at the start to {run_peak:.3g} near step {run_step}, at a learning rate of "
            "{run_lr:.2g}, before anything was learnt; it ended at {run_end:.3g} (highest rate {lr:.2g}).",
            "在学到任何东西之前，损失从开始时的 {run_start:.3g} 升到第 {run_step} 步附近的 {run_peak:.3g}，当时学习率为 "
            "{run_lr:.2g}；最后为 {run_end:.3g}（最高学习率 {lr:.2g}）。",
        ),
        cost=Text(
            "The first steps threw the weights so far off that later ones hardly bring them back.",
            "最初几步就把权重推得太远，之后很难再回来。",
        ),
        action=Text(
            "Begin with {lower:.2g} (--optim.lr); `vitscope doctor {config}` measures which rate is stable.",
            "先改用 {lower:.2g}（--optim.lr）；`vitscope doctor {config}` 会测出稳定的学习率。",
        ),
        effect=Text("The loss falls from its start.", "损失从一开始就下降。"),
    ),
    Cause(
        name="lr_too_high",
        title=Text("The learning rate is too high", "学习率过高"),
        evidence=Text(
            "While the rate warmed up the loss fell to {run_learnt:.3g}; at its top ({lr:.2g}) it went back up to "
            "{run_peak:.3g} and stayed there, and it ended at {run_end:.3g}.",
            "预热期间损失降到 {run_learnt:.3g}；学习率到达最高（{lr:.2g}）后又回升到 {run_peak:.3g} 并停在那里，最后为 "
            "{run_end:.3g}。",
        ),
        cost=Text(
            "What the warm-up taught is forgotten at the top of the rate.",
            "预热中学到的东西在最高学习率下又丢失了。",
        ),
        action=Text(
            "Begin with {lower:.2g} (--optim.lr); `vitscope doctor {config}` measures which rate is stable.",
            "先改用 {lower:.2g}（--optim.lr）；`vitscope doctor {config}` 会测出稳定的学习率。",
        ),
        effect=Text("The loss goes on falling after the warm-up.", "预热之后损失继续下降。"),
    ),
    Cause(
        name="lr_too_low",
        title=Text("The learning rate is too low", "学习率过低"),
        evidence=Text(
            "Held at {lr:.2g}, the loss crawled from {start:.3g} to {end:.3g}, each step changing the weights by "
            "{move:.2g} % of their length; in as many steps at {proposal:.2g} it fell to {better_end:.3g} (with {batch} "
            "pictures a batch from {batch_start:.3g} to {batch_end:.3g} in {batch_steps}).",
            "学习率保持在 {lr:.2g} 时，损失只从 {start:.3g} 缓慢变为 {end:.3g}，每一步权重仅改变其长度的 {move:.2g} %；"
            "同样步数下用 {proposal:.2g}，损失降到 {better_end:.3g}（每批 {batch} 张图片时，{batch_steps} 步内从 "
            "{batch_start:.3g} 变为 {batch_end:.3g}）。",
        ),
        cost=Text(
            "Training ends long before the model has learnt what it could.",
            "训练结束时，模型远未学到它能学到的东西。",
        ),
        action=Text("Use a learning rate of {proposal:.2g}.", "把学习率改为 {proposal:.2g}。"),
        effect=Text(
            "The loss falls clearly within the first steps, as it did when this was measured.",
            "损失在最初几步内就会明显下降，与实测一致。",
        ),
    ),
    _NO_WARM_UP,
    replace(
        _NO_WARM_UP,
        evidence=Text(
            "{steps} steps at {lr:.2g} from the first one on brought the loss from {start:.3g} to {cold:.3g}; with a rise "
            "to the same rate it came to {warm:.3g}.",
            "从第一步起就用 {lr:.2g} 训练 {steps} 步，损失从 {start:.3g} 变为 {cold:.3g}；逐步升到同样的学习率，损失降到 "
            "{warm:.3g}。",
        ),
    ),
    Cause(
        name="weight_decay_too_high",
        title=Text("Weight decay that eats the weights", "权重衰减过强，权重被不断抹去"),
        evidence=Text(
            "A weight decay of {weight_decay:g} at a learning rate of {lr:.2g} halves the weights every {half_life:.0f} "
            "steps; the loss came to {end:.3g} with it and to {better_end:.3g} without, in {steps} steps.",
            "权重衰减 {weight_decay:g}、学习率 {lr:.2g} 时，权重每 {half_life:.0f} 步减半；{steps} 步后带衰减的损失为 "
            "{end:.3g}，去掉后为 {better_end:.3g}。",
        ),
        cost=Text(
            "Weights shrink faster than gradients can build them: the model forgets as it learns.",
            "权重收缩得比梯度建立得还快：模型一边学一边忘。",
        ),
        action=Text(
            "Lower it to {proposal:g}.",
            "降到 {proposal:g}。",
        ),
        effect=Text("Weights keep what they learn.", "权重能保住学到的东西。"),
    ),
    Cause(
        name="dropout_too_high",
        title=Text("Dropout that leaves almost nothing", "dropout 过高，几乎什么都没留下"),
        evidence=Text(
            "With dropout at {drop_rate:g} the loss went from {start:.3g} to {end:.3g} in {steps} steps; with none, all else "
            "equal, to {better_end:.3g}.",
            "dropout 为 {drop_rate:g} 时，{steps} 步内损失从 {start:.3g} 变为 {end:.3g}；其余不变而关闭 dropout，损失降到 "
            "{better_end:.3g}。",
        ),
        cost=Text(
            "So little of each layer is left that the next cannot read it.",
            "每层剩下的信息太少，下一层无从读取。",
        ),
        action=Text("Lower it to 0.1, 0.3 at most.", "降到 0.1，至多 0.3。"),
        effect=Text("The training loss falls as it does without.", "训练损失会像没有 dropout 时那样下降。"),
    ),
    Cause(
        name="clip_too_small",
        title=Text("Gradients are clipped to almost nothing", "梯度被裁剪到几乎为零"),
        evidence=Text(
            "Gradients have a norm of {grad_norm:.3g} and are cut to {clip_norm:g}; the loss came to {end:.3g} with that and "
            "to {better_end:.3g} without, in {steps} steps.",
            "梯度范数为 {grad_norm:.3g}，却被裁剪到 {clip_norm:g}；{steps} 步后带裁剪的损失为 {end:.3g}，不裁剪为 "
            "{better_end:.3g}。",
        ),
        cost=Text(
            "With SGD hardly anything moves; with Adam every batch counts the same, however wrong the model is on it.",
            "用 SGD 时权重几乎不动；用 Adam 时，无论错得多离谱，每个批次的分量都一样。",
        ),
        action=Text("Clip at 1.0.", "把裁剪阈值设为 1.0。"),
        effect=Text("Only the rare large gradient is cut.", "只有少数过大的梯度会被裁剪。"),
    ),
    Cause(
        name="does_not_learn",
        title=Text("It does not learn, and no single cause shows itself", "模型学不动，且没有发现单一原因"),
        evidence=Text(
            "In {steps} steps on the same {pictures} pictures the loss went from {start:.3g} to {end:.3g}; it did not fall at "
            "any learning rate tried, from {lowest:.2g} to {highest:.2g}.",
            "在同样的 {pictures} 张图片上训练 {steps} 步，损失从 {start:.3g} 变为 {end:.3g}；学习率从 {lowest:.2g} 到 "
            "{highest:.2g} 都试过，损失均未下降。",
        ),
        cost=Text("More epochs will not help.", "再训练更多轮也没有用。"),
        action=Text(
            "Look at the findings before this one first; then at what your training step does besides the loss.",
            "先处理前面的发现；再检查训练步骤里除损失之外还做了什么。",
        ),
        effect=Text("A sound set-up falls clearly within these steps.", "正常的设置在这些步数内会明显下降。"),
    ),
    Cause(
        name="does_not_learn",
        title=Text("The loss falls, and the model gets worse", "损失在下降，模型却越来越差"),
        evidence=Text(
            "In {steps} steps the loss went from {start:.3g} to {end:.3g}, while the cross-entropy of the same pictures' "
            "labels rose from {known_before:.3g} to {known_after:.3g}",
            "{steps} 步内损失从 {start:.3g} 变为 {end:.3g}，而同样图片的标签交叉熵却从 {known_before:.3g} 升到 "
            "{known_after:.3g}",
        ),
        cost=Text(
            "Training takes the model away from the labels, the longer the further.",
            "训练让模型离标签越来越远，训练越久越远。",
        ),
        action=Text(
            "Look at the loss: its sign, the order of its arguments, and which labels it is given.",
            "检查损失函数：正负号、参数顺序，以及传入的标签。",
        ),
        effect=Text("Both fall together.", "两者会一起下降。"),
    ),
    *CURVE_CAUSES,
)

NOTES: tuple[Remark, ...] = (
    Remark(
        name="almost_by_heart",
        text=Text(
            "The model learnt {accuracy:.0%} of {pictures} pictures by heart, not all (learning rates tried: {lrs}): look "
            "for a picture that is there twice, under two names.",
            "{pictures} 张图片模型背下了 {accuracy:.0%}，没有全部答对（试过的学习率：{lrs}）：请检查是否有同一张图片带着两个不同的标签。",
        ),
    ),
    Remark(
        name="clip_small",
        text=Text(
            "Gradients have a norm of {grad_norm:.3g} and are cut to {clip_norm:.3g}; Adam and Muon learn all the same, but "
            "every batch counts alike, however wrong the model is on it.",
            "梯度范数为 {grad_norm:.3g}，却被裁剪到 {clip_norm:.3g}；Adam 和 Muon 照样能学习，但无论错得多离谱，每个批次的分量"
            "都一样。",
        ),
    ),
    Remark(
        name="rate_may_heal",
        text=Text(
            "{share:.0%} of the weights stand before a normalisation over the batch: SGD's steps on them shrink as they grow, "
            "so a rate that is too high in the first steps may still be right for a long run.",
            "{share:.0%} 的权重后面接着按批次的归一化：权重变长后 SGD 对它们的步子会变小，因此开头几步显得过高的学习率，在长时间训练中"
            "仍可能是合适的。",
        ),
    ),
    Remark(
        name="rate_of_its_batch",
        text=Text(
            "With {pictures} pictures a step, as many as there was time for, a learning rate of {lr:.2g} is too high; training "
            "has {batch}, and SGD's rate belongs to its batch: at {lower:.2g}, as much lower as these batches are smaller, "
            "the loss comes down.",
            "每步 {pictures} 张图片（检查时间只够这么多）时，学习率 {lr:.2g} 过高；但训练时每批有 {batch} 张，SGD 的学习率应与批次"
            "大小相配：把学习率随批次缩小到 {lower:.2g} 后，损失会下降。",
        ),
    ),
    Remark(
        name="classic_sweep",
        text=Text(
            "A classic sweep has its lowest loss at {lowest:.2g} and would propose {classic:.2g}; runs that hold their rate "
            "are stable up to {edge:.2g}. Where they differ, go by the held ones.",
            "传统的学习率扫描在 {lowest:.2g} 处损失最低，会建议 {classic:.2g}；而保持学习率的短训练在 {edge:.2g} 以内是稳定的。"
            "两者不同时，以后者为准。",
        ),
    ),
    *RUN_NOTES,
)

LEFT_OUT: tuple[Remark, ...] = (
    STEP_WANTS_CLOSURE,
    Remark(
        name="no_rate_works",
        text=Text(
            "the loss rises at its learning rate, and no other that was tried does better: the rate cannot be judged",
            "在当前学习率下损失上升，而试过的其他学习率也没有更好：无法判断学习率",
        ),
    ),
    Remark(
        name="one_class_to_overfit",
        text=Text(
            "the first pictures are all of one class: nothing to learn by heart", "前面的图片同属一类，没有可背的内容"
        ),
    ),
    Remark(
        name="labels_do_not_fit_outputs",
        text=Text("labels lie outside the model's outputs, so it cannot be trained", "标签超出模型输出范围，无法训练"),
    ),
    Remark(
        name="overfit_had_no_time",
        text=Text("time ran out while the model was still learning the batch", "时间用完时模型仍在学习这个批次"),
    ),
    Remark(
        name="warm_up_not_known",
        text=Text("it is not known whether the learning rate is warmed up", "不清楚是否有学习率预热"),
    ),
    Remark(
        name="sweep_was_lost",
        text=Text("the sweep's first step was not finite", "扫描的第一步就出现了非有限值"),
    ),
    *RUN_LEFT_OUT,
)

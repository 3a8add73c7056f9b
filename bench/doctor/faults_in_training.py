"""Faults in the optimiser, the step and the evaluation."""

from __future__ import annotations

from functools import partial

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, MultiStepLR

from fault import Faults
from faults_in_model import head_of
from script import Script

FAULTS = Faults("training")
TOO_FAST = ("lr_too_high", "updates_too_large")
TOO_SLOW = ("lr_too_low", "updates_too_small")


@FAULTS("head_frozen", "no_gradient_for", also=("model",))
def head_frozen(script: Script) -> None:
    """the new head was frozen along with the rest that should have been"""

    def freeze(model: nn.Module) -> nn.Module:
        head_of(model).requires_grad_(False)
        return model

    script.surgery.append(freeze)
    script.chosen = lambda model: [one for one in model.parameters() if one.requires_grad]


@FAULTS("not_in_optimizer")
def backbone_not_in_optimizer(script: Script) -> None:
    """the optimiser was given model.head.parameters() while all was meant to train"""
    script.chosen = lambda model: head_of(model).parameters()


@FAULTS(*TOO_FAST)
def lr_x100(script: Script) -> None:
    """learning rate x 100"""
    script.lr *= 100


@FAULTS(*TOO_FAST, needs=("vit",))
def lr_x10(script: Script) -> None:
    """learning rate x 10"""
    script.lr *= 10


@FAULTS(*TOO_SLOW)
def lr_over_100(script: Script) -> None:
    """learning rate / 100"""
    script.lr /= 100


@FAULTS("warmup_missing", needs=("narrow",), also=("model",))
def no_warmup(script: Script) -> None:
    """8 post-norm blocks at a learning rate (3e-3) that trains after a warm-up and never without one"""
    script.model_changes |= {"norm_order": "post", "depth": 8}
    script.lr, script.warmup_steps = 3e-3, 0


@FAULTS("warmup_missing", needs=("narrow",), also=("model",))
def post_norm_deep_no_warmup(script: Script) -> None:
    """12 post-norm blocks without warm-up"""
    script.model_changes |= {"norm_order": "post", "depth": 12}
    script.lr, script.warmup_steps = 2e-3, 0


@FAULTS("weight_decay_too_high")
def weight_decay_10(script: Script) -> None:
    """weight decay 10"""
    script.weight_decay = 10.0


@FAULTS("accumulation_not_divided", needs=("sgd",))
def accumulation_not_divided(script: Script) -> None:
    """8 parts of a batch, each part's mean loss added up whole"""
    script.accumulation, script.divides, script.has_own_step, script.clip_norm = 8, False, True, None


@FAULTS("clip_too_small", needs=("sgd",))
def clip_1e_4(script: Script) -> None:
    """gradients clipped to a norm of 1e-4 (Adam would not feel it)"""
    script.clip_norm = 1e-4


@FAULTS("evaluated_in_train_mode", needs=("dropout|batchnorm",))
def evaluated_in_train_mode(script: Script) -> None:
    """model.eval() forgotten in the evaluation"""
    script.evaluates_in_eval_mode = False


@FAULTS("ema_stale", never=("fp16",))
def ema_stale(script: Script) -> None:
    """the running mean of the weights is evaluated and never updated"""
    script.ema, script.updates_ema, script.has_own_step = True, False, True


@FAULTS("batch_of_one_with_batchnorm", needs=("batchnorm",))
def batch_of_one(script: Script) -> None:
    """batch size 1 with BatchNorm"""
    script.batch_size = 1


@FAULTS("fp16_without_scaler", never=("batchnorm",))
def fp16_without_scaler(script: Script) -> None:
    """float16 autocast without a GradScaler"""
    script.dtype, script.scales_loss = torch.float16, False


@FAULTS(*TOO_SLOW, "does_not_learn", "not_in_optimizer", is_listed=False)
def lr_zero(script: Script) -> None:
    """a schedule that begins, and stays, at 0"""
    script.lr = 0.0


@FAULTS(*TOO_FAST, "accumulation_not_divided", needs=("sgd",), never=("ours",), is_listed=False)
def summed_loss(script: Script) -> None:
    """the loss is summed over the batch at a learning rate meant for its mean"""
    script.loss = partial(F.cross_entropy, reduction="sum")
    script.clip_norm = None


@FAULTS("gradients_not_zeroed", needs=("sgd",), is_listed=False)
def grad_never_zeroed(script: Script) -> None:
    """optimizer.zero_grad() forgotten"""
    script.zeroes_grad, script.has_own_step, script.clip_norm = False, True, None


@FAULTS("not_in_optimizer", "head_frozen", is_listed=False)
def optimizer_before_new_head(script: Script) -> None:
    """the head was replaced after the optimiser had been made"""

    def all_but_head(model: nn.Module) -> list[nn.Parameter]:
        left_out = {id(one) for one in head_of(model).parameters()}
        return [one for one in model.parameters() if id(one) not in left_out]

    script.chosen = all_but_head


@FAULTS("does_not_learn", "cannot_overfit", "lr_too_high", "updates_too_large", never=("fp16",), is_listed=False)
def loss_upside_down(script: Script) -> None:
    """the sign of the loss is wrong: training climbs"""
    plain = script.loss
    script.loss = lambda logits, labels: -plain(logits, labels)


@FAULTS("schedule_too_fast", is_listed=False)
def steps_for_epochs_each_batch(script: Script) -> None:
    """a schedule that falls to a tenth twice, at half and at three quarters of the epochs, stepped once a batch"""
    script.has_own_step, marks = True, [script.epochs // 2, 3 * script.epochs // 4]
    script.schedule = lambda optimizer, steps: MultiStepLR(optimizer, marks)


@FAULTS("schedule_too_fast", is_listed=False)
def wave_for_epochs_each_batch(script: Script) -> None:
    """a half wave over the number of epochs, stepped once a batch"""
    script.has_own_step, epochs = True, script.epochs
    script.schedule = lambda optimizer, steps: CosineAnnealingLR(optimizer, epochs)

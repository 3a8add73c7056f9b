"""What a run begins with: the model, what moves it, and the objective it is moved by."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from torch import nn

from vitscope.core.seed import derive_seed, seed_everything
from vitscope.models.model import VisionModel
from vitscope.train.basis import Basis
from vitscope.train.losses import class_weights
from vitscope.train.objective import Objective
from vitscope.train.optim.groups import freeze
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.optim.schedule import lr_table
from vitscope.train.precision import choose_dtype
from vitscope.train.start import starting_model
from vitscope.train.state import TrainState
from vitscope.train.teacher import Teacher

Say = Callable[[str], None]
HIGH_FOR_FINE_TUNING = 3e-4


def make_model(basis: Basis, say: Say, *, resumes: bool = False) -> VisionModel:
    """The model as training begins with it. Where a checkpoint will be loaded into it (`resumes`), the weights a run
    began with are not asked for again."""
    config, dataset = basis.config, basis.dataset
    seed_everything(derive_seed(config.loop.seed, "weights"))
    model, remarks = starting_model(
        config.model,
        num_classes=dataset.num_classes,
        init_from=None if resumes else config.checkpoint.init_from,
        labels=list(dataset.class_names),
    )
    for remark in remarks:
        say(remark)
    # Weights that keep their head go on with their own task, as a round of a sparse experiment does.
    is_fine_tuned = model.certificate is not None and model.certificate.has_new_head
    if is_fine_tuned and config.optim.name in ("adam", "adamw") and config.lr > HIGH_FOR_FINE_TUNING:
        usual = "for pretrained weights 3e-5 to 3e-4 is usual (--lr)"
        say(f"learning rate {config.lr:g} suits training from scratch; {usual}")
    model.preprocessing = basis.preprocess
    return model


def make_teacher(basis: Basis) -> Teacher | None:
    config, dataset = basis.config, basis.dataset
    if config.loss.teacher is None:
        return None
    return Teacher.load(
        config.loss.teacher,
        student_preprocess=basis.preprocess,
        num_classes=dataset.num_classes,
        device=basis.device,
        labels=list(dataset.class_names),
    )


def make_state(
    basis: Basis,
    steps_per_epoch: int,
    say: Say,
    *,
    resumes: bool = False,
    model: VisionModel | None = None,
    teacher: Teacher | None = None,
) -> tuple[TrainState, Objective]:
    """The model, what moves it, and what it is moved by. Model and teacher are made here where they are not given."""
    config, device = basis.config, basis.device
    model = make_model(basis, say, resumes=resumes) if model is None else model
    teacher = make_teacher(basis) if teacher is None else teacher
    if config.precision.grad_checkpointing:
        model.set_grad_checkpointing()
    frozen = freeze(model, config.optim.freeze)
    training_mode(model)
    if frozen:
        say(f"{len(frozen)} tensors of parameters stay as they are (optim.freeze)")
    basis.processes.place(model, device)
    optimizer = Optimizer(model, config.optim, lr=config.lr)
    say(optimizer.describe())
    state = TrainState(
        model,
        optimizer,
        lr_table=lr_table(config.schedule, lr=config.lr, steps_per_epoch=steps_per_epoch, epochs=config.loop.epochs),
        device=device,
        dtype=choose_dtype(config.precision, device),
        micro_batch=config.loop.micro_batch,
        clip_norm=config.optim.clip_norm,
        clip_value=config.optim.clip_value,
        ledger_rows=1 if device.type == "cpu" else config.loop.log_every,
        processes=basis.processes,
    )
    if teacher is not None:
        how = f"{config.loss.distill}, a share of {config.loss.distill_share:g} of the loss"
        say(f"teacher: {config.loss.teacher} ({how})")
        if teacher.remark is not None:
            say(teacher.remark)
    return state, _objective(basis, state, teacher)


def training_mode(model: nn.Module) -> None:
    """All of it trains, but a frozen BatchNorm keeps its running means too."""
    model.train()
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if hasattr(module, "running_mean") and own and not any(parameter.requires_grad for parameter in own):
            module.eval()


def _objective(basis: Basis, state: TrainState, teacher: Teacher | None) -> Objective:
    config, dataset = basis.config, basis.dataset
    weights = None
    if config.loss.class_balance:
        labels = dataset.source.labels[dataset.splits["train"]]
        counts = np.bincount(labels, minlength=dataset.num_classes)
        weights = class_weights(counts, config.loss.class_balance).to(basis.device)
    return Objective(
        state.model,
        config.loss,
        class_weights=weights,
        teacher=teacher,
        l1=config.optim.l1,
        decayed=state.optimizer.decayed,
    )

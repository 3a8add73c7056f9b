"""Puts a run together: data, loaders, model, optimiser, hooks. What a setting means for training is decided here."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property, partial

import numpy as np
import torch
from safetensors import SafetensorError
from torch import Tensor, nn

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, expected
from vitscope.core.files import append_line
from vitscope.core.run_folder import RunFolder
from vitscope.core.seed import derive_seed, seed_everything
from vitscope.data.config import PreprocessConfig
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.choose import loader_kind, make_loader
from vitscope.data.loaders.loader import BadSample, Loader
from vitscope.data.order import ALONE, Lane
from vitscope.models.accounting.account import Account
from vitscope.models.config import pair
from vitscope.models.model import VisionModel
from vitscope.train.checkpoints.content import require_finite
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.config import TrainConfig
from vitscope.train.course import Course
from vitscope.train.ema import Ema
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.launch import Launcher, choose_launch
from vitscope.train.loop import is_asked_to_stop
from vitscope.train.losses import class_weights
from vitscope.train.objective import Objective
from vitscope.train.optim.groups import freeze
from vitscope.train.optim.optimizer import Optimizer
from vitscope.train.optim.schedule import Plateau, lr_table
from vitscope.train.precision import bf16_would_pay, choose_dtype
from vitscope.train.processes import ALONE_PROCESSES, Processes
from vitscope.train.said_of_steps import said_of_updates
from vitscope.train.show.observer import Observer
from vitscope.train.shown_pictures import said_of_pictures
from vitscope.train.signals import StopFlag
from vitscope.train.start import starting_model
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep
from vitscope.train.teacher import Teacher
from vitscope.train.watch import Watch
from vitscope.train.work import BetweenSteps, Work
from vitscope.weights.folder import save_model

log = logging.getLogger("vitscope")
Say = Callable[[str], None]
OnBad = Callable[[BadSample], None]
HIGH_FOR_FINE_TUNING = 3e-4


@dataclass(frozen=True)
class Basis:
    """What a run is built on: settings, pictures, preprocessing, device, and who takes part."""

    config: TrainConfig
    dataset: Dataset
    preprocess: PreprocessConfig
    device: torch.device
    processes: Processes = ALONE_PROCESSES
    epochs_done: float = 0.0
    """Of a run that is resumed."""

    @cached_property
    def launch(self) -> str:
        wish, alone = self.config.precision.launch, self.processes.world == 1
        work = self.multiply_adds() if wish == "auto" and alone and self.device.type == "cuda" else 0.0
        return choose_launch(wish, self.device, work=work, alone=alone)

    def multiply_adds(self) -> float:
        """Of what is left of the run: a backward pass costs twice the forward pass."""
        epochs = max(0.0, self.config.loop.epochs - self.epochs_done)
        return 3.0 * Account(self.config.model.bare).macs * len(self.dataset.splits["train"]) * epochs

    def loader(
        self, part: str, *, training: bool, say: Say, on_bad: OnBad | None = None, lane: Lane | None = None
    ) -> Loader:
        """Of a training batch each process has its part, or that of another `lane`; evaluation sees every picture in
        every process. `on_bad` hears of pictures that are left out; by default they are said."""
        config = self.config
        batch = config.data.batch_size if training else config.loop.eval_batch or config.data.batch_size
        return make_loader(
            self.dataset,
            part,  # pyright: ignore[reportArgumentType]
            preprocess=self.preprocess,
            augment=config.augment,
            training=training,
            seed=config.loop.seed,
            device=self.device,
            batch_size=batch,
            lane=(lane or self.processes.lane) if training else ALONE,
            compiled=training and self.launch.startswith("compiled"),
            on_bad=on_bad or recorder(None, say),
        )


def settle(config: TrainConfig, dataset: Dataset) -> TrainConfig:
    """The settings with what the data decides: the number of classes."""
    return updated(config, model=config.model.changed(num_classes=dataset.num_classes))


def lay_out(
    config: TrainConfig,
    dataset: Dataset,
    device: torch.device,
    processes: Processes = ALONE_PROCESSES,
    *,
    epochs_done: float = 0.0,
) -> Basis:
    model = config.model.bare
    preprocess = config.data.preprocess(pair(model.img_size), model.in_chans)
    if processes.world > 1:
        # Each would choose its loader by the memory it finds, and two kinds may count batches differently.
        kind = processes.by_first(
            lambda: loader_kind(dataset, preprocess=preprocess, augment=config.augment, device=device)
        )
        dataset = replace(dataset, config=updated(dataset.config, loader=kind))
    return Basis(config, dataset, preprocess, device, processes, epochs_done)


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


def make_state(
    basis: Basis, steps_per_epoch: int, say: Say, *, resumes: bool = False, model: VisionModel | None = None
) -> tuple[TrainState, Objective]:
    """The model (made here where none is given), what moves it, and what it is moved by."""
    config, device = basis.config, basis.device
    model = make_model(basis, say, resumes=resumes) if model is None else model
    if config.precision.grad_checkpointing:
        model.set_grad_checkpointing()
    frozen = freeze(model, config.optim.freeze)
    training_mode(model)
    if frozen:
        say(f"{len(frozen)} tensors of parameters stay as they are (optim.freeze)")
    _refuse_in_shards(basis)
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
    if config.loss.teacher is not None:
        how = f"{config.loss.distill}, a share of {config.loss.distill_share:g} of the loss"
        say(f"teacher: {config.loss.teacher} ({how})")
    return state, _objective(basis, state)


def set_up(
    basis: Basis,
    run: RunFolder,
    *,
    observers: Observer,
    after: Sequence[AfterStep],
    between: Sequence[BetweenSteps] = (),
    stop: StopFlag,
    say: Say,
    resumes: bool = False,
) -> Work:
    """Everything that takes part, at step 0."""
    config, processes = basis.config, basis.processes
    model = make_model(basis, say, resumes=resumes)  # first: weights that are refused need no pictures prepared
    left_out = recorder(run, say)
    on_bad = left_out if processes.is_first else partial(_pass_on, processes)
    train_loader = basis.loader("train", training=True, say=say, on_bad=on_bad)
    val_loader = basis.loader("val", training=False, say=say, on_bad=on_bad)
    say(f"training pictures: {train_loader.why}")
    if not resumes:
        updates = said_of_updates(
            config, pictures=len(basis.dataset.splits["train"]), steps_per_epoch=train_loader.num_batches
        )
        for sentence in (*said_of_pictures(basis.dataset, basis.preprocess), *updates):
            say(sentence)
    state, objective = make_state(basis, train_loader.num_batches, say, model=model)
    ema = Ema(state.model, config.loop.ema_decay, warmup=config.loop.ema_warmup) if config.loop.ema_decay else None
    hooks: list[AfterStep] = [*after, *([ema] if ema is not None else [])]
    refuse_nameless(hooks)
    if processes.world > 1:
        say(f"{processes.world} processes, {config.data.batch_size // processes.world} pictures of each batch to each")
    say(_said_of_launch(basis))
    if bf16_would_pay(config.precision, config.model.bare, basis.device):
        say("this CPU supports bf16 natively: `--precision.dtype bf16` should train faster")
    if processes.is_sharded:
        say(f"fsdp: weights, gradients, optimiser and running mean are cut into {processes.world} shards")
    elif config.loop.parallel == "fsdp":
        say("loop.parallel 'fsdp' is for several processes: this one is alone and holds everything")
    launcher = Launcher(
        state,
        train_loader,
        objective,
        launch=basis.launch,
        batch_size=config.data.batch_size,
        seed=config.loop.seed,
        after=hooks,
        say=say,
    )
    course = Course()
    num_classes = basis.dataset.num_classes
    most_at_once = config.loop.eval_batch or config.data.batch_size

    def evaluate_now() -> Evaluation | None:
        with processes.together(), ema.in_place() if ema is not None else torch.no_grad():
            found = evaluate(
                state.model,
                val_loader,
                num_classes=num_classes,
                dtype=state.dtype,
                batch=course.eval_batch or most_at_once,
                can_halve=not processes.is_sharded,
                stop=lambda: is_asked_to_stop(stop, processes),
                say=say,
            )
        if found is not None and found.batch < most_at_once:
            course.eval_batch = found.batch  # what did not fit once is not tried again
        return found

    def write_model(weights: Mapping[str, Tensor], step: int) -> None:
        require_finite(weights)
        try:
            save_model(
                state.model,
                run.model,
                weights=weights,
                preprocessing=basis.preprocess,
                labels=list(basis.dataset.class_names),
                notes={"step": str(step)},
                overwrite=True,
            )
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"the model cannot be saved: {error}", where=str(run.model)) from error

    work = Work(
        config=config,
        run=run,
        state=state,
        course=course,
        launcher=launcher,
        checkpoints=Checkpoints(run.checkpoints, keep=config.checkpoint.keep),
        plateau=Plateau(config.schedule, lr=config.lr),
        watch=Watch(course, most_bad_steps=config.loop.most_bad_steps, loss_at_chance=objective.at_chance(num_classes)),
        observers=observers,
        stop=stop,
        processes=processes,
        evaluate=evaluate_now,
        weights=state.model.state_dict if ema is None else ema.state_dict,
        loaders=(train_loader, val_loader),
        write_model=write_model,
        left_out=on_bad,
        after=hooks,
        between=between,
        steps_per_epoch=train_loader.num_batches,
        split_hash=basis.dataset.splits.hash,
    )
    for probe in between:
        probe.begin(work, lambda: next(iter(val_loader.epoch(0))))
    return work


def _said_of_launch(basis: Basis) -> str:
    wish, several = basis.config.precision.launch, basis.processes.world > 1
    if wish == "auto" and not several:
        why = "chosen automatically for this device and the work to come"
    elif several:
        unlike = "" if wish in ("auto", "eager") else f"; '{wish}' is for one"
        why = f"kernel by kernel, because there are several processes{unlike}"
    else:
        why = "as asked for" if wish == basis.launch else f"'{wish}' is for CUDA, this is {basis.device}"
    return f"launch mode: {basis.launch} ({why})"


def _refuse_in_shards(basis: Basis) -> None:
    """What needs whole weights in every step."""
    l1 = basis.config.optim.l1
    if basis.processes.is_sharded and l1:
        raise ConfigError(
            expected("optim.l1", "0 with --loop.parallel fsdp, where no process has the weights to add up", l1),
            fix="--loop.parallel ddp, or leave the penalty out: --optim.l1 0",
        )


def refuse_nameless(hooks: Sequence[AfterStep]) -> None:
    """What a hook remembers is saved under its name."""
    names = [getattr(hook, "name", None) for hook in hooks if hasattr(hook, "state_dict")]
    for name in names:
        if not isinstance(name, str) or names.count(name) > 1:
            raise ConfigError(
                expected("a hook with a state_dict", "a `name` of its own", repr(name)),
                where="after_step",
                fix="give each hook that remembers something another `name`",
            )


def _objective(basis: Basis, state: TrainState) -> Objective:
    config, dataset = basis.config, basis.dataset
    weights = None
    if config.loss.class_balance:
        labels = dataset.source.labels[dataset.splits["train"]]
        counts = np.bincount(labels, minlength=dataset.num_classes)
        weights = class_weights(counts, config.loss.class_balance).to(basis.device)
    teacher = None
    if config.loss.teacher is not None:
        teacher = Teacher.load(
            config.loss.teacher,
            student_preprocess=basis.preprocess,
            num_classes=dataset.num_classes,
            device=basis.device,
            labels=list(dataset.class_names),
        )
    return Objective(
        state.model,
        config.loss,
        class_weights=weights,
        teacher=teacher,
        l1=config.optim.l1,
        decayed=state.optimizer.decayed,
    )


def training_mode(model: nn.Module) -> None:
    """All of it trains, but a frozen BatchNorm keeps its running means too."""
    model.train()
    for module in model.modules():
        own = list(module.parameters(recurse=False))
        if hasattr(module, "running_mean") and own and not any(parameter.requires_grad for parameter in own):
            module.eval()


def recorder(run: RunFolder | None, say: Say) -> OnBad:
    """Says which picture is left out and writes it down, once, however many processes met it."""
    known: set[int] = set()

    def record(sample: BadSample) -> None:
        if sample.index in known:
            return
        known.add(sample.index)
        say(f"left out: {sample.where}: {sample.reason}")
        if run is not None:
            append_line(run.bad_samples_path, json.dumps(asdict(sample)))

    return record


def _pass_on(processes: Processes, sample: BadSample) -> None:
    """In a process that keeps no record: the first one does."""
    log.warning("left out: %s: %s", sample.where, sample.reason)
    processes.put_up(sample)

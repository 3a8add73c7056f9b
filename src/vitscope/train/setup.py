"""Puts a run together: on its basis loaders, the first state, hooks, evaluation, and how the best model is written."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from safetensors import SafetensorError
from torch import Tensor

from vitscope.core.errors import ConfigError, expected
from vitscope.core.run_folder import RunFolder
from vitscope.data.loaders.loader import Loader
from vitscope.models.model import VisionModel
from vitscope.train.basis import Basis
from vitscope.train.checkpoints.content import require_finite
from vitscope.train.checkpoints.store import CheckpointError, Checkpoints
from vitscope.train.course import Course
from vitscope.train.ema import Ema
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.first_state import make_model, make_state, make_teacher
from vitscope.train.launch import Launcher
from vitscope.train.left_out import pass_on, recorder
from vitscope.train.loop import is_asked_to_stop
from vitscope.train.optim.schedule import Plateau
from vitscope.train.precision import bf16_would_pay
from vitscope.train.said_of_steps import said_of_updates
from vitscope.train.show.observer import Observer
from vitscope.train.shown_pictures import said_of_pictures
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep
from vitscope.train.watch import Watch
from vitscope.train.work import BetweenSteps, Work
from vitscope.weights.folder import save_model


def set_up(
    basis: Basis,
    run: RunFolder,
    *,
    observers: Observer,
    after: Sequence[AfterStep],
    between: Sequence[BetweenSteps] = (),
    stop: StopFlag,
    say: Callable[[str], None],
    resumes: bool = False,
) -> Work:
    """Everything that takes part, at step 0. The loaders are the work's to close; where it is not made, they are
    closed here."""
    config, processes = basis.config, basis.processes
    # First what may be refused: that needs no pictures prepared.
    _refuse_in_shards(basis)
    model, teacher = make_model(basis, say, resumes=resumes), make_teacher(basis)
    left_out = recorder(run, say)
    on_bad = left_out if processes.is_first else partial(pass_on, processes)
    with contextlib.ExitStack() as on_failure:
        train_loader = basis.loader("train", training=True, say=say, on_bad=on_bad)
        on_failure.callback(train_loader.close)
        val_loader = basis.loader("val", training=False, say=say, on_bad=on_bad)
        on_failure.callback(val_loader.close)
        say(f"training pictures: {train_loader.why}")
        if not resumes:
            updates = said_of_updates(
                config, pictures=len(basis.dataset.splits["train"]), steps_per_epoch=train_loader.num_batches
            )
            for sentence in (*said_of_pictures(basis.dataset, basis.preprocess), *updates):
                say(sentence)
        state, objective = make_state(basis, train_loader.num_batches, say, model=model, teacher=teacher)
        ema = Ema(state.model, config.loop.ema_decay, warmup=config.loop.ema_warmup) if config.loop.ema_decay else None
        hooks: list[AfterStep] = [*after, *([ema] if ema is not None else [])]
        refuse_nameless(hooks)
        for sentence in _said_of_launch(basis):
            say(sentence)
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
        chance = objective.at_chance(basis.dataset.num_classes)
        work = Work(
            config=config,
            run=run,
            state=state,
            course=course,
            launcher=launcher,
            checkpoints=Checkpoints(run.checkpoints, keep=config.checkpoint.keep),
            plateau=Plateau(config.schedule, lr=config.lr),
            watch=Watch(course, most_bad_steps=config.loop.most_bad_steps, loss_at_chance=chance),
            observers=observers,
            stop=stop,
            processes=processes,
            evaluate=_evaluation(basis, state, val_loader, ema=ema, course=course, stop=stop, say=say),
            weights=state.model.state_dict if ema is None else ema.state_dict,
            loaders=(train_loader, val_loader),
            write_model=_model_writer(basis, state.model, run),
            left_out=on_bad,
            after=hooks,
            between=between,
            steps_per_epoch=train_loader.num_batches,
            split_hash=basis.dataset.splits.hash,
        )
        for probe in between:
            probe.begin(work, lambda: next(iter(val_loader.epoch(0))))
        on_failure.pop_all()
    return work


def _evaluation(
    basis: Basis,
    state: TrainState,
    loader: Loader,
    *,
    ema: Ema | None,
    course: Course,
    stop: StopFlag,
    say: Callable[[str], None],
) -> Callable[[], Evaluation | None]:
    """Of the weights as they would be used, with as many pictures at once as have fitted so far."""
    processes = basis.processes
    most_at_once = basis.config.loop.eval_batch or basis.config.data.batch_size

    def evaluate_now() -> Evaluation | None:
        with processes.together(), ema.in_place() if ema is not None else torch.no_grad():
            found = evaluate(
                state.model,
                loader,
                num_classes=basis.dataset.num_classes,
                dtype=state.dtype,
                batch=course.eval_batch or most_at_once,
                can_halve=not processes.is_sharded,
                stop=lambda: is_asked_to_stop(stop, processes),
                say=say,
            )
        if found is not None and found.batch < most_at_once:
            course.eval_batch = found.batch  # what did not fit once is not tried again
        return found

    return evaluate_now


def _model_writer(basis: Basis, model: VisionModel, run: RunFolder) -> Callable[[Mapping[str, Tensor], int], None]:
    def write_model(weights: Mapping[str, Tensor], step: int) -> None:
        require_finite(weights)
        try:
            save_model(
                model,
                run.model,
                weights=weights,
                preprocessing=basis.preprocess,
                labels=list(basis.dataset.class_names),
                notes={"step": str(step)},
                overwrite=True,
            )
        except (OSError, SafetensorError) as error:
            raise CheckpointError(f"the model cannot be saved: {error}", where=str(run.model)) from error

    return write_model


def _said_of_launch(basis: Basis) -> list[str]:
    """How the processes share the work, and how steps are launched."""
    config, processes, said = basis.config, basis.processes, list[str]()
    wish, several = config.precision.launch, processes.world > 1
    if several:
        each = config.data.batch_size // processes.world
        said.append(f"{processes.world} processes, {each} pictures of each batch to each")
    if wish == "auto" and not several:
        why = "chosen automatically for this device and the work to come"
    elif several:
        unlike = "" if wish in ("auto", "eager") else f"; '{wish}' is for one"
        why = f"kernel by kernel, because there are several processes{unlike}"
    else:
        why = "as asked for" if wish == basis.launch else f"'{wish}' is for CUDA, this is {basis.device}"
    said.append(f"launch mode: {basis.launch} ({why})")
    if bf16_would_pay(config.precision, config.model.bare, basis.device):
        said.append("this CPU supports bf16 natively: `--precision.dtype bf16` should train faster")
    if processes.is_sharded:
        said.append(f"fsdp: weights, gradients, optimiser and running mean are cut into {processes.world} shards")
    elif config.loop.parallel == "fsdp":
        said.append("loop.parallel 'fsdp' is for several processes: this one is alone and holds everything")
    return said


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

"""Back to a checkpoint: everything as it was then, and the run's model that of the best step so far."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Mapping

import torch
from torch import Tensor

from vitscope.core.errors import DivergedError, VitscopeError
from vitscope.train.checkpoints.store import Checkpoint, CheckpointError
from vitscope.train.ema import Ema
from vitscope.train.shards import cut_up
from vitscope.train.work import Work, say
from vitscope.weights.folder import read_notes


def restore(work: Work, checkpoint: Checkpoint) -> list[str]:
    """Everything as it was when the checkpoint was made, in the memory it has now. The names of the hooks whose state
    nobody claims."""
    trainer = checkpoint.trainer()
    with torch.no_grad():
        model = work.state.model
        model.load_state_dict(cut_up(model.state_dict(), checkpoint.model()))
        work.state.load_state_dict(trainer["state"])
        for hook in work.hooks_with_state:
            if hook.name not in trainer["hooks"]:
                raise VitscopeError(
                    f"the checkpoint holds nothing of the hook '{hook.name}'",
                    where=str(checkpoint.path),
                    fix="resume with the hooks the run began with",
                )
            hook.load_state_dict(trainer["hooks"][hook.name])
    work.course.load(trainer["course"])
    work.plateau.load_state_dict(trainer["plateau"])
    work.state.ledger.clear()
    work.state.keep_buffers()
    work.steps_unread, work.saved_step = [], checkpoint.step
    return sorted(trainer["hooks"].keys() - {hook.name for hook in work.hooks_with_state})


def stand_by_best(work: Work) -> None:
    """The model folder may hold weights of steps that were taken back: it becomes that of the best step known where the
    run stands now. Where that step's weights are gone, whatever is evaluated next is the best."""
    if not work.processes.by_first(lambda: _rebuild_model(work)):
        work.course.best_so_far = None, None, None


def _rebuild_model(work: Work) -> bool:
    """Whether the model folder now holds the weights of the best step."""
    best_step, folder = work.course.best_step, work.run.model
    best = None
    if best_step is not None:
        with contextlib.suppress(CheckpointError):
            best = work.checkpoints.open(f"step-{best_step:06d}")
    if best is None:
        if best_step is not None and read_notes(folder).get("step") == str(best_step):
            return True
        shutil.rmtree(folder, ignore_errors=True)
        return False
    try:
        work.write_model(_weights(work, best), best.step)
        work.checkpoints.mark_best(best.step)
    except CheckpointError as error:  # a full disk; the next evaluation tries again
        say(work, f"warning: {error.what}; the model folder is of another step")
        return False
    return True


def _weights(work: Work, checkpoint: Checkpoint) -> Mapping[str, Tensor]:
    """As they would be used."""
    return checkpoint.trainer()["hooks"][Ema.name] if work.config.loop.ema_decay else checkpoint.model()


def go_back(work: Work, trouble: Exception) -> None:
    """Back to the last good checkpoint with half the learning rate; the second time, give up."""
    course, went_back = work.course, work.course.went_back
    reason = trouble.what if isinstance(trouble, VitscopeError) else str(trouble)
    lr = float(work.state.lr_table.max() * work.state.lr_factor)

    def find() -> Checkpoint:
        checkpoint = _last_proved(work)
        if not went_back and checkpoint is not None:
            return checkpoint
        raise DivergedError(
            f"training diverged with a learning rate of {lr:g}{', for the second time' * bool(went_back)}: {reason}",
            where=_evidence(work),
            fix=f"go on with a lower one (it was {work.config.optim.lr:g}): vitscope train --resume --out "
            f"{work.run.path} --optim.lr {work.config.optim.lr / 10:g}; or lengthen the warm-up, or clip lower",
        ) from None

    checkpoint = work.processes.by_first(find)
    restore(work, checkpoint)
    stand_by_best(work)
    course.went_back = went_back + 1
    course.bad_in_a_row = course.high_in_a_row = 0
    course.trouble_since = None
    work.state.lr_factor.mul_(0.5)
    say(work, f"{reason}: back to step {work.step}, with half the learning rate ({lr / 2:g} at most)")


def _last_proved(work: Work) -> Checkpoint | None:
    """The newest checkpoint from which a step went well. A step's loss is that of the weights before it: weights that
    have just exploded are found out by the next step, when they may have been saved. Such checkpoints are removed, as
    a resume would begin with them; unless there is no other."""
    since = work.course.trouble_since
    proved = None if since is None else work.checkpoints.newest(before=since - 1)
    if proved is None:
        return work.checkpoints.newest()
    work.checkpoints.drop_after(proved.step)
    return proved


def _evidence(work: Work) -> str:
    records = sorted(work.run.diagnostics.glob("bad-step-*"))
    return str(records[-1]) if records else str(work.run.metrics_path)

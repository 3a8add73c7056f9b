"""One run of the ordinary engine inside an experiment: begun, gone on with, or found finished."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitscope.core.config import updated
from vitscope.models.model import VisionModel
from vitscope.sparse.ground import Ground, StoppedError
from vitscope.train.config import TrainConfig
from vitscope.train.fit import Run, fit
from vitscope.train.step import AfterStep
from vitscope.train.work import BetweenSteps
from vitscope.weights.folder import save_model

START, RUN = "start", "run"
"""In a stage's folder: the model it began with, and the run."""


@dataclass(frozen=True)
class Trained:
    """What came of a run that has finished."""

    model: Path
    val_accuracy: float | None
    test_accuracy: float | None
    test_count: int | None


def train_stage(
    ground: Ground,
    folder: Path,
    *,
    epochs: int,
    number: int | None,
    start: Callable[[], VisionModel] | None = None,
    after_step: Sequence[AfterStep] = (),
    between_steps: Sequence[BetweenSteps] = (),
) -> Trained:
    """Train to the end, from `start` (asked for once: it is saved) or from new weights. `number`: of the round, None
    for the dense network. A signal raises StoppedError when everything is saved."""
    config = stage_config(ground, folder, epochs=epochs, number=number, start=start)
    run = fit(
        config,
        out=folder / RUN,
        resume=True,
        after_step=after_step,
        between_steps=between_steps,
        stop=ground.stop,
    )
    return trained(ground, run)


def trained(ground: Ground, run: Run) -> Trained:
    if run.state != "finished":
        raise StoppedError(run.exit_code)
    best, test = run.best or {}, run.test or {}
    count = test.get("test/count")
    return Trained(
        run.model_folder, best.get("val/accuracy"), test.get("test/accuracy"), None if count is None else int(count)
    )


def stage_config(
    ground: Ground, folder: Path, *, epochs: int, number: int | None, start: Callable[[], VisionModel] | None = None
) -> TrainConfig:
    """The settings of a stage. None ends early: networks are compared at equal epochs."""
    loop = updated(ground.config.loop, epochs=epochs, early_stop=False, data_seed=ground.data_seed(number))
    config = updated(ground.config, loop=loop)
    if start is None:
        return config
    place = folder / START
    if not place.exists():
        folder.mkdir(parents=True, exist_ok=True)
        save_model(start(), place)
    return updated(
        config,
        model=ground.section(ground.load(place).config),
        checkpoint=updated(config.checkpoint, init_from=str(place)),
    )

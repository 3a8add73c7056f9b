"""The end of a run: the best model meets the test pictures once, and what happened becomes pictures and a page."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vitscope.core.environment import describe_versions
from vitscope.core.files import write_atomically
from vitscope.core.run_view import read_run
from vitscope.models.model import VisionModel
from vitscope.train.basis import Basis
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.loop import is_asked_to_stop, write_rows
from vitscope.train.shards import cut_up
from vitscope.train.show.card import model_card
from vitscope.train.show.plots.confusion import draw_confusion
from vitscope.train.show.plots.curves import draw_curves
from vitscope.train.show.plots.first_batches import draw_first_batches
from vitscope.train.show.plots.grad_norms import draw_grad_norms
from vitscope.train.show.plots.lr import draw_lr
from vitscope.train.show.plots.worst import draw_worst
from vitscope.train.work import Work, say
from vitscope.weights.folder import model_folder, stored_in
from vitscope.weights.load import load_model

FIRST_BATCHES = 2

log = logging.getLogger("vitscope")


def require_model(work: Work) -> None:
    """The test needs one. For all processes."""
    if not work.processes.by_first(lambda: (work.run.model / "config.json").exists()):
        say(work, f"no evaluation gave a finite {work.config.loop.monitor}: the last weights become the model")
        work.save_model()


def finish(work: Work, basis: Basis) -> bool:
    """Test, pictures, model card; False when asked to stop in the test. What it found is written once, also when this
    is done twice. For all processes: where each holds its rows of the model they test together, else the first does."""
    has_test, processes = len(basis.dataset.splits["test"]) > 0, work.processes
    if not has_test:
        say(work, "there are no test pictures: accuracy is known on the validation pictures only")

    def conclude(found: Evaluation | None) -> bool:
        if has_test and found is None:
            return False
        _tell(work, basis, found)
        return True

    if has_test and processes.is_sharded:
        found = _test(work, basis)
        return processes.by_first(lambda: conclude(found))
    return processes.by_first(lambda: conclude(_test(work, basis) if has_test else None))


def _tell(work: Work, basis: Basis, found: Evaluation | None) -> None:
    rows = work.run.metrics.read()
    done = [row for row in rows if "test/accuracy" in row]
    test: dict[str, Any] = done[-1] if done else {}
    if found is not None and not done:
        test = {
            "step": work.step,
            "epoch": work.course.epoch,
            "test/loss": found.loss,
            "test/accuracy": found.accuracy,
            "test/count": found.count,
        }
        write_rows(work, [test])
        log.info("test: loss %.5g, accuracy %.5g on %d pictures", found.loss, found.accuracy, found.count)
        work.observers.epoch(test)
    draw(work, basis, found)
    best = read_run(work.run.path).best or {}
    card = model_card(
        config=work.config,
        dataset_line=basis.dataset.in_words(),
        classes=list(basis.dataset.class_names),
        params=sum(parameter.numel() for parameter in work.state.model.parameters()),
        best={**best, "val/count": len(basis.dataset.splits["val"])},
        test=test or None,
        commands=work.run.commands or ["vitscope.fit(config)"],
        versions=describe_versions(),
    )
    write_atomically(work.run.model / "README.md", card.encode())


def _test(work: Work, basis: Basis) -> Evaluation | None:
    """With the model as it was saved: what is tested is what will be used."""
    processes, is_sharded = work.processes, work.processes.is_sharded
    model = _in_place(work) if is_sharded else load_model(work.run.model).to(basis.device)
    loader = basis.loader("test", training=False, say=lambda text: say(work, text), on_bad=work.left_out)
    try:
        with processes.together():
            return evaluate(
                model,
                loader,
                num_classes=basis.dataset.num_classes,
                dtype=work.state.dtype,
                batch=work.course.eval_batch or work.config.loop.eval_batch,
                can_halve=not is_sharded,
                stop=lambda: is_asked_to_stop(work.stop, processes) if is_sharded else bool(work.stop),
                say=lambda text: say(work, text),
            )
    finally:
        loader.close()


def _in_place(work: Work) -> VisionModel:
    """The saved weights in the memory of those that were trained, which nobody needs any more: beside shards, gradients
    and optimiser there may be no room for a whole model on any device."""
    model = work.state.model
    with torch.no_grad():
        model.load_state_dict(cut_up(model.state_dict(), stored_in(model_folder(work.run.model))))
    return model


def draw(work: Work, basis: Basis, found: Evaluation | None) -> None:
    """All pictures that can be drawn now. One that fails is named in the log and costs only itself."""
    folder, rows, names = work.run.plots, work.run.metrics.read(), basis.dataset.class_names
    loop = work.config.loop
    _draw(
        folder,
        "curves",
        lambda path: draw_curves(rows, path, monitor=loop.monitor, larger_is_better=loop.larger_is_better),
    )
    _draw(folder, "lr", lambda path: draw_lr(rows, path))
    _draw(folder, "grad_norms", lambda path: draw_grad_norms(rows, path))
    if found is None:
        return
    _draw(folder, "confusion_matrix", lambda path: draw_confusion(found.confusion, names, path))
    if found.worst:
        source = basis.dataset.source
        pictures = [np.asarray(source.picture(wrong.index).convert("RGB")) for wrong in found.worst]
        captions = [
            f"{names[wrong.label]}, said {names[wrong.predicted]} ({wrong.confidence:.0%})" for wrong in found.worst
        ]
        _draw(folder, "worst_predictions", lambda path: draw_worst(pictures, captions, path))


def draw_first(work: Work, basis: Basis) -> None:
    """The first batches as the model sees them: drawn before training, when a mistake can still be seen in time."""
    batches = []
    for batch in work.launcher.loader.epoch(0):
        batches.append((batch.images.cpu(), batch.labels.cpu()))
        if len(batches) == FIRST_BATCHES:
            break
    names = basis.dataset.class_names
    _draw(work.run.plots, "first_batches", lambda path: draw_first_batches(batches, basis.preprocess, names, path))


def _draw(folder: Path, name: str, call: Callable[[Path], object]) -> None:
    try:
        folder.mkdir(exist_ok=True)
        call(folder / f"{name}.png")
    except Exception:  # a picture is never worth a run
        log.warning("plots/%s.png could not be drawn", name, exc_info=True)

"""Any network and loader as a patient: what its owner's script has at hand."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import IterableDataset, RandomSampler

from vitscope.core.errors import InputError, expected
from vitscope.core.seed import preserved_rng
from vitscope.doctor.anatomy import Anatomy, anatomy_of
from vitscope.doctor.as_it_came import module_as_it_came
from vitscope.doctor.batch import as_pair, refuse_dataset, refuse_other_shapes
from vitscope.doctor.callables import refuse_other_calls
from vitscope.doctor.loss_of_output import for_logits
from vitscope.doctor.patient import Batches, Facts, Loss, Pair, Patient, as_logits, one_class_each
from vitscope.doctor.schedules import schedulers_of
from vitscope.doctor.torch_trainer import TorchTrainer
from vitscope.doctor.uncompiled import as_written

Step = Callable[[Tensor, Tensor], Any]


def module_patient(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    loss: Loss | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    val_loader: Iterable[Any] | None = None,
    step: Step | None = None,
    evaluate: Callable[[], Any] | None = None,
    evaluated: nn.Module | None = None,
    num_classes: int | None = None,
    clip_norm: float | None = None,
    epochs: int | None = None,
    warmup_steps: int | None = None,
    dtype: torch.dtype | None = None,
    pretrained: bool = False,
) -> Patient:
    """`step(images, labels)` is the owner's own training step, update included; without it the loss and the optimiser
    are one. `loader` is gone through several times: a list, a DataLoader, or anything else that can be."""
    refuse_other_calls(loss, step, evaluate)
    model, evaluated = as_written(model), as_written(evaluated)
    device = next((tensor.device for tensor in (*model.parameters(), *model.buffers())), torch.device("cpu"))
    batches = _batches(loader)
    generators = tuple(_generators(loader, val_loader))
    with preserved_rng(), _drawing_nothing(generators):  # even iter() of a DataLoader draws
        if iter(loader) is loader:
            raise InputError(
                expected("loader", "something that can be gone through again", type(loader).__name__),
                fix="give a DataLoader, or list(...) of what the iterator gives",
            )
        refuse_dataset(loader, "loader")
        refuse_dataset(val_loader, "val_loader")
        first = next(batches(), None)
        if first is None:
            raise InputError(
                expected("loader", "at least one batch", "none"),
                where="the loader",
                fix="a smaller batch, or drop_last=False: with fewer pictures than a batch nothing is left",
            )
        images, labels = first
        refuse_other_shapes(images, labels)
        output = _output(model, images[:2].to(device))
        num_classes = num_classes or _outputs(model, output, labels)
        anatomy = _anatomy(model, images[:2].to(device))
        judge: Loss = F.cross_entropy if loss is None else loss
        if loss is not None and output is not None:
            judge = for_logits(loss, output, labels[:2].to(device))

    def make_trainer() -> TorchTrainer:
        if optimizer is None:
            raise InputError("no optimiser was given", fix="pass optimizer=..., or leave out what trains")
        return TorchTrainer(model, judge, optimizer, step=step, clip_norm=clip_norm, dtype=dtype)

    return Patient(
        model=model,
        train=batches,
        loss=judge,
        num_classes=num_classes,
        device=device,
        val=None if val_loader is None else _batches(val_loader),
        make_trainer=None if optimizer is None else make_trainer,
        facts=replace(
            _facts(loader, images, anatomy),
            epochs=epochs,
            warmup_steps=warmup_steps,
            clip_norm=clip_norm,
            dtype=dtype,
            is_pretrained=pretrained,
        ),
        optimizer=optimizer,
        schedulers=() if optimizer is None or step is None else schedulers_of(optimizer),
        evaluate=evaluate,
        evaluated=evaluated,
        generators=generators,
        rows=_rows(loader),
        is_by_lot=isinstance(getattr(loader, "sampler", None), RandomSampler),
    )


def _batches(loader: Iterable[Any]) -> Batches:
    def epoch() -> Iterator[Pair]:
        for batch in loader:
            yield as_pair(batch)

    return epoch


def _output(model: nn.Module, images: Tensor) -> Any:
    """What the model gives; None where it fails, which a check has to say."""
    with module_as_it_came(model), torch.no_grad():
        try:
            return model.eval()(images)
        except Exception:  # a model may fail in any way, and `forward_pass` tells how
            return None


def _outputs(model: nn.Module, output: Any, labels: Tensor) -> int:
    """For each picture. A model that fails has as many classes as it seems."""
    with contextlib.suppress(Exception):  # of an output that holds no logits, too
        return as_logits(output).shape[-1]
    heads = [module for module in model.modules() if isinstance(module, nn.Linear)]
    return heads[-1].out_features if heads else int(one_class_each(labels).max()) + 1


def _anatomy(model: nn.Module, images: Tensor) -> Anatomy:
    with module_as_it_came(model):
        try:
            return anatomy_of(model.eval(), images)
        except Exception:  # what fails in a pass is told by `forward_pass`
            return anatomy_of(model)


@contextlib.contextmanager
def _drawing_nothing(generators: Sequence[torch.Generator]) -> Iterator[None]:
    states = [generator.get_state() for generator in generators]
    try:
        yield
    finally:
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)


def _generators(*loaders: Any) -> Iterator[torch.Generator]:
    holders: list[Any] = []
    for loader in loaders:
        batch_sampler = getattr(loader, "batch_sampler", None)
        holders += [loader, getattr(loader, "sampler", None), batch_sampler, getattr(batch_sampler, "sampler", None)]
    found = [getattr(holder, "generator", None) for holder in holders]
    yield from dict.fromkeys(one for one in found if isinstance(one, torch.Generator))


def _rows(loader: Any) -> Any:
    rows = getattr(loader, "dataset", None)
    if isinstance(rows, IterableDataset):
        return None  # it inherits __getitem__, which only raises
    return rows if hasattr(rows, "__getitem__") and hasattr(rows, "__len__") else None


def _facts(loader: Any, images: Tensor, anatomy: Anatomy) -> Facts:
    try:
        steps = len(loader)
    except TypeError:
        steps = None
    dataset = getattr(loader, "dataset", None)
    try:
        pictures = len(dataset) if dataset is not None else None
    except TypeError:
        pictures = None
    return Facts(
        batch_size=len(images),
        steps_per_epoch=steps,
        train_pictures=pictures,
        img_size=(images.shape[-2], images.shape[-1]),
        patch_size=anatomy.patch_size,
        embed_dim=anatomy.embed_dim,
        depth=anatomy.depth,
        num_heads=anatomy.num_heads,
        head_dim=anatomy.head_dim,
        drop_rate=anatomy.drop_rate,
    )

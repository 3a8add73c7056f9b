"""A training script as data: what a person decides before the loop begins. Faults change a decision, `assemble` makes
of it what the loop would hold.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import LRScheduler
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from torch.utils.data import DataLoader, Dataset

from pictures import Pictures
from vitscope.doctor.check_up import check_up
from vitscope.doctor.examination import Report
from vitscope.doctor.patient import as_logits

Transform = Callable[[Tensor], Tensor]
Surgery = Callable[[nn.Module], nn.Module]
"""What is done to a model before its optimiser is made."""


@dataclass
class Script:
    """Pictures are from 0 to 1 until `mean` and `std` are applied."""

    name: str
    seed: int
    train: Pictures
    val: Pictures
    make_model: Callable[..., nn.Module]
    """Takes changes by the names of our configurations: num_classes, num_heads, patch_size, position."""
    make_optimizer: Callable[..., torch.optim.Optimizer]
    """(parameters, lr, weight_decay)."""
    lr: float
    weight_decay: float = 0.0
    optimizer: str = "adamw"
    mean: tuple[float, ...] = (0.5,)
    std: tuple[float, ...] = (0.5,)
    val_mean: tuple[float, ...] | None = None
    """None: as in training."""
    val_std: tuple[float, ...] | None = None
    augment: Transform | None = None
    val_augment: Transform | None = None
    batch_size: int = 64
    shuffle: bool = True
    draws_labels: bool = False
    """Whether a training picture's label is drawn by chance whenever it is read."""
    epochs: int = 20
    warmup_steps: int | None = 50
    loss: Callable[[Tensor, Tensor], Tensor] = F.cross_entropy
    clip_norm: float | None = None
    accumulation: int = 1
    divides: bool = True
    """Whether the loss of a part of the batch weighs as much as its share of it."""
    zeroes_grad: bool = True
    dtype: torch.dtype | None = None
    scales_loss: bool = False
    ema: bool = False
    updates_ema: bool = True
    evaluates_in_eval_mode: bool = True
    has_own_step: bool = False
    """Whether the doctor is given the script's own step; otherwise the loss and the optimiser."""
    schedule: Callable[[torch.optim.Optimizer, int], LRScheduler] | None = None
    """(optimiser, steps of training), turned on in each step."""
    model_changes: dict[str, Any] = field(default_factory=dict)
    surgery: list[Surgery] = field(default_factory=list)
    chosen: Callable[[nn.Module], Iterable[nn.Parameter]] = nn.Module.parameters
    """What the optimiser is given."""

    @property
    def img_size(self) -> int:
        return self.train.images.shape[-1]


@dataclass
class Setup:
    """What the loop of a script holds."""

    model: nn.Module
    train_loader: DataLoader[Any]
    val_loader: DataLoader[Any]
    loss: Callable[[Tensor, Tensor], Tensor]
    optimizer: torch.optim.Optimizer
    step: Callable[[Tensor, Tensor], Tensor]
    evaluate: Callable[[], float]
    """Share of the validation pictures named rightly."""
    evaluated: nn.Module | None
    """The running mean of the weights, where there is one."""
    facts: dict[str, Any]
    has_own_step: bool = False

    def examine(self, *, quick: bool) -> Report:
        return check_up(
            self.model,
            self.train_loader,
            loss=self.loss,
            optimizer=self.optimizer,
            val_loader=self.val_loader,
            step=self.step if self.has_own_step else None,
            evaluate=self.evaluate,
            evaluated=self.evaluated,
            quick=quick,
            **self.facts,
        )


def assemble(script: Script) -> Setup:
    """The order of a script: seed, model, surgery, optimiser, loaders, step."""
    torch.manual_seed(script.seed)
    model = script.make_model(**script.model_changes)
    for operate in script.surgery:
        model = operate(model)
    parameters = list(script.chosen(model))
    optimizer = script.make_optimizer(parameters, lr=script.lr, weight_decay=script.weight_decay)
    ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99), use_buffers=True) if script.ema else None
    # A `Subset`-like split of tensors; each loader draws its order from a generator of its own.
    order = torch.Generator().manual_seed(script.seed)
    training = Shown(script.train, script.mean, script.std, script.augment, draws_labels=script.draws_labels)
    judging = Shown(script.val, script.val_mean or script.mean, script.val_std or script.std, script.val_augment)
    train_loader = DataLoader(training, script.batch_size, shuffle=script.shuffle, generator=order)
    val_loader = DataLoader(judging, 128)
    return Setup(
        model=model,
        train_loader=train_loader,
        val_loader=val_loader,
        loss=script.loss,
        optimizer=optimizer,
        step=_step(script, model, parameters, optimizer, ema, script.epochs * len(train_loader)),
        evaluate=_evaluation(model if ema is None else ema, val_loader, script.evaluates_in_eval_mode),
        evaluated=ema,
        facts={
            "clip_norm": script.clip_norm,
            "epochs": script.epochs,
            "warmup_steps": script.warmup_steps,
            "dtype": script.dtype,
        },
        has_own_step=script.has_own_step,
    )


class Shown(Dataset[tuple[Tensor, Tensor]]):
    """Augmented, then normalised: the usual chain of transforms."""

    def __init__(
        self,
        pictures: Pictures,
        mean: tuple[float, ...],
        std: tuple[float, ...],
        augment: Transform | None,
        *,
        draws_labels: bool = False,
    ) -> None:
        self.pictures, self.augment, self.draws_labels = pictures, augment, draws_labels
        self.mean, self.std = (torch.tensor(numbers).view(-1, 1, 1) for numbers in (mean, std))

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        image = self.pictures.images[index]
        image = image if self.augment is None else self.augment(image)
        place = int(torch.randint(len(self.pictures), ())) if self.draws_labels else index
        return (image - self.mean) / self.std, self.pictures.labels[place]


def crop_and_flip(image: Tensor, *, padding: int = 4, flips: bool = True) -> Tensor:
    size = image.shape[-1]
    top, left, flip = torch.randint(0, 2 * padding + 1, (3,)).tolist()
    moved = F.pad(image, (padding,) * 4)[:, top : top + size, left : left + size]
    return moved.flip(-1) if flips and flip % 2 else moved


def shift(image: Tensor) -> Tensor:
    """For signs that mean something else when mirrored."""
    return crop_and_flip(image, padding=max(1, image.shape[-1] // 16), flips=False)


def _step(
    script: Script,
    model: nn.Module,
    parameters: list[nn.Parameter],
    optimizer: torch.optim.Optimizer,
    ema: AveragedModel | None,
    steps: int,
) -> Callable[[Tensor, Tensor], Tensor]:
    scaler = torch.amp.GradScaler("cpu", enabled=script.scales_loss)  # pyright: ignore[reportPrivateImportUsage]
    schedule = None if script.schedule is None else script.schedule(optimizer, steps)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        if script.zeroes_grad:
            optimizer.zero_grad()
        total = torch.zeros(())
        size = -(-len(images) // script.accumulation)
        for x, y in zip(images.split(size), labels.split(size), strict=True):
            with contextlib.nullcontext() if script.dtype is None else torch.autocast("cpu", script.dtype):
                part = script.loss(as_logits(model(x)), y)
            part = part * (len(x) / len(images)) if script.divides else part
            cast(Tensor, scaler.scale(part)).backward()
            total += part.detach().float()
        scaler.unscale_(optimizer)
        if script.clip_norm is not None:
            nn.utils.clip_grad_norm_(parameters, script.clip_norm)
        scaler.step(optimizer)
        scaler.update()
        if schedule is not None:
            schedule.step()
        if ema is not None and script.updates_ema:
            ema.update_parameters(model)
        return total

    return step


def _evaluation(model: nn.Module, loader: DataLoader[Any], in_eval_mode: bool) -> Callable[[], float]:
    def evaluate() -> float:
        if in_eval_mode:
            model.eval()
        right = 0
        with torch.no_grad():
            for images, labels in loader:
                right += int((as_logits(model(images)).argmax(-1) == labels).sum())
        return right / len(cast(Shown, loader.dataset))

    return evaluate


def endless(loader: DataLoader[Any]) -> Iterator[tuple[Tensor, Tensor]]:
    while True:
        yield from loader

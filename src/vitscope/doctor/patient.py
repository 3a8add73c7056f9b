"""Whom the doctor examines: a model, its training batches, the loss, and what moves it, wherever they come from.

B pictures, K classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler

from vitscope.data.config import PreprocessConfig
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.loader import Loader

Pair = tuple[Tensor, Tensor]
"""Images (B, C, H, W) and labels (B,), or shares (B, K) where pictures are mixed."""
Batches = Callable[[], Iterator[Pair]]
"""An epoch, from its beginning, as the model is given it; the device may be another."""
Loss = Callable[[Tensor, Tensor], Tensor]
"""(what the model gives, labels) -> 0-d."""


class Trainer(Protocol):
    """What moves the patient, as its owner would: their optimiser, their step."""

    optimizer_name: str
    """adamw, adam, sgd, muon, or the class's own name."""
    lr: float
    """At the top of the schedule."""
    weight_decay: float
    moved: frozenset[str]
    """Names of the parameters it moves."""

    def step(self, images: Tensor, labels: Tensor) -> float:
        """One update on a batch; the loss before it. May give what is not finite."""
        ...

    def hold_lr(self, lr: float | None) -> None:
        """From now on this learning rate, whatever the schedule says; None for the schedule's own."""
        ...

    def relax(self, *, decay: bool = False, clip: bool = False) -> None:
        """From now on without weight decay, without clipping: to see whether that is what holds it back."""
        ...


def has_own_step(trainer: Trainer) -> bool:
    """Whether its steps are a function of the owner's; else they are the doctor's or the engine's."""
    return getattr(trainer, "own_step", None) is not None


@dataclass(frozen=True)
class Facts:
    """Settings, as far as they are known. None: not known, and nothing is concluded from it."""

    batch_size: int | None = None
    epochs: int | None = None
    steps_per_epoch: int | None = None
    warmup_steps: int | None = None
    clip_norm: float | None = None
    accumulation: int | None = None
    """Micro batches in a step."""
    smoothing: float = 0.0
    dtype: torch.dtype | None = None
    """Of products under autocast; None: those of the weights."""
    train_pictures: int | None = None
    img_size: tuple[int, int] | None = None
    patch_size: tuple[int, int] | None = None
    embed_dim: int | None = None
    depth: int | None = None
    num_heads: int | None = None
    head_dim: int | None = None
    """Where it is set and does not follow from width and heads."""
    drop_rate: float | None = None
    is_pretrained: bool = False
    """Whether training begins with weights from elsewhere."""
    keeps_head: bool = False
    """Whether those weights keep their head: they go on with a task of their own, as rounds of a sparse experiment."""


@dataclass
class Patient:
    """Checks read it and may train it; `as_it_came` puts it back."""

    model: nn.Module
    train: Batches
    loss: Loss
    num_classes: int
    device: torch.device
    val: Batches | None = None
    make_trainer: Callable[[], Trainer] | None = None
    """Anew for each experiment, from whatever state the owner's optimiser is in."""
    facts: Facts = field(default_factory=Facts)
    settings: Any = None
    """The TrainConfig, where there is one: only then can settings be proposed by their names."""
    dataset: Dataset | None = None
    """Where the pictures lie, if they can be looked at before any loader has had them."""
    preprocess: PreprocessConfig | None = None
    expects: PreprocessConfig | None = None
    """What the weights it begins with were trained on, where they say so."""
    optimizer: torch.optim.Optimizer | None = None
    """The owner's, to be put back."""
    schedulers: tuple[LRScheduler, ...] = ()
    """Of its rate, which a step of the owner's may turn on."""
    evaluate: Callable[[], Any] | None = None
    """The owner's own evaluation."""
    evaluated: nn.Module | None = None
    """What that evaluates, where it is another module (a running mean of the weights)."""
    generators: tuple[torch.Generator, ...] = ()
    """Which the owner's loaders draw from, to be put back."""
    loaders: tuple[Loader, ...] = ()
    """Of ours, to be closed."""
    is_quick: bool = False
    """Whether checks are to take seconds; the examination says so."""
    rows: Any = None
    """The owner's own rows (`rows[3]` is a picture and its label), where a picture can be looked up by its number."""
    is_by_lot: bool = False
    """Whether the owner's loader is known to draw each epoch's order by lot."""
    glances: dict[str, Any] = field(default_factory=dict, repr=False)
    """What the checks of the data have seen of each part (`glance`)."""
    tried: dict[str, Any] = field(default_factory=dict, repr=False)
    """What one experiment found out and the next can use: the pool of pictures, the run at the patient's own rate."""
    _samples: dict[str, Pair] = field(default_factory=dict, repr=False)

    def sample(self, count: int, part: str = "train") -> Pair:
        """The first `count` pictures of a part (fewer where there are fewer) with one class each, on the device. Looked
        at once; each caller has the same."""
        batches = self.train if part == "train" else self.val
        if batches is None:
            raise ValueError("there is no validation part to sample")
        held = self._samples.get(part)
        if held is None or len(held[0]) < count:
            held = _first(batches, count)
            self._samples[part] = held
        images, labels = held
        return images[:count].to(self.device), labels[:count].to(self.device)

    def close(self) -> None:
        for loader in self.loaders:
            loader.close()

    def logits(self, images: Tensor) -> Tensor:
        """(B, K), of models that give several things the first, or `.logits`."""
        return as_logits(self.model(images))


def as_logits(output: Any) -> Tensor:
    if isinstance(output, Tensor):
        return output
    if hasattr(output, "logits"):
        return output.logits
    if isinstance(output, dict):
        return output["logits"] if "logits" in output else next(iter(output.values()))
    return output[0]


def one_class_each(labels: Tensor) -> Tensor:
    """(B,) int64, of mixed pictures the class with the largest share; other numbers than whole ones as they are."""
    if labels.ndim == 2 and labels.shape[-1] > 1:
        return labels.argmax(-1)
    labels = labels.reshape(-1)
    return labels if labels.is_floating_point() or labels.is_complex() else labels.long()


def class_numbers(labels: Tensor) -> Tensor:
    """For what the doctor computes itself: whole numbers are classes in any dtype. The owner's own loss and step are
    given labels as they are, and may bring them into form."""
    is_whole = labels.is_floating_point() and bool((labels == labels.round()).all())
    return labels.long() if is_whole else labels


def _first(batches: Batches, count: int) -> Pair:
    images: list[Tensor] = []
    labels: list[Tensor] = []
    for x, y in batches():
        images.append(x.detach())
        labels.append(one_class_each(y.detach()))
        if sum(len(one) for one in images) >= count:
            break
    return torch.cat(images), torch.cat(labels)

"""A run's settings as a patient: everything is made as `fit` would make it, and nothing is written."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.data.dataset import Dataset
from vitscope.data.loaders.loader import Loader
from vitscope.doctor.patient import Facts, Pair, Patient
from vitscope.models.config import ViTConfig, pair
from vitscope.models.model import VisionModel
from vitscope.train.basis import Basis, lay_out, settle
from vitscope.train.config import TrainConfig
from vitscope.train.config.duration import duration_steps
from vitscope.train.first_state import make_model, make_state, training_mode
from vitscope.train.launch import seed_step
from vitscope.train.losses import binary_cross_entropy, cross_entropy
from vitscope.train.precision import choose_dtype
from vitscope.train.step import train_step


def config_patient(config: TrainConfig, dataset: Dataset, device: torch.device) -> Patient:
    """Holds loaders: `patient.close()` gives them back; where there will be no patient, they are closed here."""
    config = settle(config, dataset)
    # A few batches are looked at: compiling what makes them would take longer than all of the rest.
    plainly = updated(config, precision=updated(config.precision, launch="eager"))
    basis = lay_out(plainly, dataset, device)
    model = make_model(basis, _unheard).to(device)

    def loss(logits: Tensor, labels: Tensor) -> Tensor:
        plain = binary_cross_entropy if config.loss.name == "binary_cross_entropy" else cross_entropy
        return plain(logits, labels, smoothing=config.loss.smoothing)

    with contextlib.ExitStack() as on_failure:
        train = basis.loader("train", training=True, say=_unheard)
        on_failure.callback(train.close)
        val = basis.loader("val", training=False, say=_unheard)
        on_failure.callback(val.close)
        patient = Patient(
            model=model,
            train=lambda: _pairs(train),
            val=lambda: _pairs(val),
            loss=loss,
            num_classes=dataset.num_classes,
            device=device,
            make_trainer=lambda: EngineTrainer(basis, patient, train.num_batches),
            facts=_facts(basis, train.num_batches, keeps_head=_keeps_head(model)),
            settings=config,
            dataset=dataset,
            preprocess=basis.preprocess,
            expects=model.preprocessing if config.checkpoint.init_from is not None else None,
            loaders=(train, val),
        )
        on_failure.pop_all()
    return patient


class EngineTrainer:
    """The engine's own step on the patient's model: its optimiser, clipping, precision and schedule."""

    def __init__(self, basis: Basis, patient: Patient, steps_per_epoch: int) -> None:
        config = basis.config
        self.basis, self.patient, self.steps_per_epoch = basis, patient, steps_per_epoch
        self.seed = config.loop.seed
        self.optimizer_name = config.optim.name
        self.lr, self.weight_decay = config.lr, config.optim.decay
        self._begin(basis)
        self.moved = frozenset(name for group in self.state.optimizer.groups for name in group.names)
        self.table = self.state.lr_table.clone()
        self.steps = 0

    def _begin(self, basis: Basis) -> None:
        model = self.patient.model
        self.state, self.objective = make_state(basis, self.steps_per_epoch, _unheard, model=model)  # pyright: ignore[reportArgumentType]

    def hold_lr(self, lr: float | None) -> None:
        if lr is None:
            self.state.lr_table.copy_(self.table)
        else:
            self.state.lr_table.fill_(lr)

    def relax(self, *, decay: bool = False, clip: bool = False) -> None:
        """Before the first step: what moves the model is made anew."""
        optim = self.basis.config.optim
        changes: dict[str, Any] = {"weight_decay": 0.0} if decay else {}
        changes |= {"clip_norm": None, "clip_value": None} if clip else {}
        self._begin(replace(self.basis, config=updated(self.basis.config, optim=updated(optim, **changes))))

    def step(self, images: Tensor, labels: Tensor) -> float:
        training_mode(self.state.model)
        seed_step(self.seed, 0, self.steps)
        train_step(self.state, images, labels, objective=self.objective)
        self.steps += 1
        return float(self.state.scalars["train/loss"])


def _pairs(loader: Loader) -> Iterator[Pair]:
    for batch in loader.epoch(0):
        yield batch.images, batch.labels


def _keeps_head(model: VisionModel) -> bool:
    return model.certificate is not None and not model.certificate.has_new_head


def _facts(basis: Basis, steps_per_epoch: int, *, keeps_head: bool) -> Facts:
    config, network = basis.config, basis.config.model.bare
    vit = network if isinstance(network, ViTConfig) else None
    return Facts(
        batch_size=config.data.batch_size,
        epochs=config.loop.epochs,
        steps_per_epoch=steps_per_epoch,
        warmup_steps=duration_steps(
            config.schedule.warmup,
            steps_per_epoch=steps_per_epoch,
            total_steps=steps_per_epoch * config.loop.epochs,
        ),
        clip_norm=config.optim.clip_norm,
        accumulation=1 if config.loop.micro_batch is None else -(-config.data.batch_size // config.loop.micro_batch),
        smoothing=config.loss.smoothing,
        dtype=choose_dtype(config.precision, basis.device),
        train_pictures=len(basis.dataset.splits["train"]),
        img_size=pair(network.img_size),
        patch_size=None if vit is None else pair(vit.patch_size),
        embed_dim=None if vit is None else vit.embed_dim,
        depth=None if vit is None else vit.depth,
        num_heads=vit.num_heads if vit is not None and isinstance(vit.num_heads, int) else None,
        head_dim=None if vit is None else vit.head_dim,
        drop_rate=getattr(network, "drop_rate", None),
        is_pretrained=config.checkpoint.init_from is not None,
        keeps_head=keeps_head,
    )


def _unheard(text: str) -> None:
    """The report says what matters."""

"""Healthy set-ups: what people really train, each with choices that a careless doctor would call ill.

`prove.py` trains each for a while and shows that it learns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.optim.lr_scheduler import CosineAnnealingLR, LinearLR, LRScheduler, SequentialLR

from muon_with_adam import MuonWithAdam
from networks import EncoderViT, hugging_face_vit, plain_cnn, timm_vit
from pictures import BUILT_IN, draw
from script import Script, crop_and_flip, shift
from vitscope import create_model

CIFAR: dict[str, Any] = {"mean": (0.4914, 0.4822, 0.4465), "std": (0.247, 0.2435, 0.2616)}
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}
MNIST: dict[str, Any] = {"mean": (0.1307,), "std": (0.3081,)}
HALF: dict[str, Any] = {"mean": (0.5,) * 3, "std": (0.5,) * 3}
SGD = partial(torch.optim.SGD, momentum=0.9, nesterov=True)


def warm_up_and_wave(optimizer: torch.optim.Optimizer, steps: int, warm_up: int = 500) -> LRScheduler:
    rises = LinearLR(optimizer, 1 / warm_up, total_iters=warm_up)
    return SequentialLR(optimizer, [rises, CosineAnnealingLR(optimizer, steps - warm_up)], [warm_up])


@dataclass(frozen=True)
class Healthy:
    """A set-up by name; its tags say which faults mean something to it."""

    name: str
    data: str
    tags: frozenset[str]
    make: Callable[[int], Script]

    @property
    def is_built_in(self) -> bool:
        return self.data in BUILT_IN


SETUPS: dict[str, Healthy] = {}


def healthy(data: str, *tags: str) -> Callable[[Callable[[int], Script]], Callable[[int], Script]]:
    """Tags: ours (a ViT of the package), timm, encoder, vit (those and more), cls (reads the class token), guide,
    narrow (at most 128 wide, moved by Adam), resnet (of the package), batchnorm, dropout, sgd, augmented, px32, fp16;
    photographs, by the data."""

    def register(make: Callable[[int], Script]) -> Callable[[int], Script]:
        seen = ("photographs",) if data in ("cifar10", "imagenette160") else ()
        SETUPS[make.__name__] = Healthy(make.__name__, data, frozenset((*tags, *seen)), make)
        return make

    return register


def _vit(**settings: Any) -> Callable[..., nn.Module]:
    return partial(create_model, "vit_tiny", **settings)


def _script(name: str, data: str, seed: int, *, train: int, val: int = 512, size: int, chans: int = 3, **rest: Any):
    first, second = draw(data, seed, img_size=size, in_chans=chans, train=train, val=val)
    return Script(name, seed, first, second, **rest)


@healthy("digits", "ours", "vit", "narrow", "augmented")
def digits_vit(seed: int) -> Script:
    """8 px and 2-pixel patches: small is not ill."""
    shape = {"img_size": 8, "patch_size": 2, "in_chans": 1, "embed_dim": 96, "depth": 4, "num_heads": 3}
    return _script(
        "digits_vit", "digits", seed, train=1222, val=216, size=8, chans=1,
        make_model=_vit(**shape, pool="mean", class_token=False), make_optimizer=torch.optim.AdamW,
        lr=2e-3, weight_decay=0.05, augment=shift, loss=partial(F.cross_entropy, label_smoothing=0.1), epochs=40,
    )  # fmt: skip


@healthy("digits", "fp16")
def digits_cnn_fp16(seed: int) -> Script:
    """Half precision with its scaler, inside the script's own step."""
    return _script(
        "digits_cnn_fp16", "digits", seed, train=1222, val=216, size=8, chans=1,
        make_model=partial(plain_cnn, in_chans=1, width=16), make_optimizer=torch.optim.AdamW,
        lr=2e-3, weight_decay=0.01, warmup_steps=None, dtype=torch.float16, scales_loss=True, has_own_step=True,
    )  # fmt: skip


@healthy("shapes", "ours", "vit", "cls", "px32")
def shapes_vit_muon(seed: int) -> Script:
    """Rotary positions: there is no table, and the order still matters."""
    shape = {"embed_dim": 64, "depth": 3, "num_heads": 2, "position": "rope", "drop_path_rate": 0.1}
    return _script(
        "shapes_vit_muon", "shapes", seed, train=3500, size=32,
        make_model=_vit(**shape), make_optimizer=MuonWithAdam, optimizer="muon", lr=2e-3, weight_decay=0.05,
        **HALF,
    )  # fmt: skip


@healthy("cifar10", "ours", "vit", "narrow", "guide", "dropout", "augmented", "px32")
def cifar_guide_tiny(seed: int) -> Script:
    return _script(
        "cifar_guide_tiny", "cifar10", seed, train=7500, val=800, size=32,
        make_model=partial(create_model, "guide_tiny"), make_optimizer=torch.optim.AdamW,
        lr=1e-3, weight_decay=1e-3, augment=crop_and_flip, **CIFAR,
    )  # fmt: skip


@healthy("cifar10", "ours", "vit", "guide", "dropout", "augmented", "px32")
def cifar_guide_small(seed: int) -> Script:
    return _script(
        "cifar_guide_small", "cifar10", seed, train=7500, val=800, size=32,
        make_model=partial(create_model, "guide_small"), make_optimizer=torch.optim.AdamW,
        lr=5e-4, weight_decay=1e-3, augment=crop_and_flip, clip_norm=1.0, **HALF,
    )  # fmt: skip


@healthy("shapes", "ours", "vit", "narrow", "guide", "px32")
def shapes_guide_overfit(seed: int) -> Script:
    """Adam without any regularisation. At 1e-3 without a warm-up it learns nothing in 500 steps."""
    return _script(
        "shapes_guide_overfit", "shapes", seed, train=3500, size=32,
        make_model=partial(create_model, "guide_overfit"), make_optimizer=torch.optim.Adam, optimizer="adam",
        lr=3e-4, **IMAGENET,
    )  # fmt: skip


@healthy("cifar10", "ours", "vit", "cls", "augmented", "px32")
def cifar_vit_tiny(seed: int) -> Script:
    """EMA and clipping inside the script's own step."""
    return _script(
        "cifar_vit_tiny", "cifar10", seed, train=7500, val=400, size=32,
        make_model=_vit(drop_path_rate=0.1), make_optimizer=torch.optim.AdamW,
        lr=1e-3, weight_decay=0.05, augment=crop_and_flip, clip_norm=1.0, ema=True, has_own_step=True, epochs=100,
        warmup_steps=500, schedule=warm_up_and_wave, **CIFAR,
    )  # fmt: skip


@healthy("shapes", "ours", "vit", "narrow", "cls", "px32", "dropout")
def shapes_post_norm(seed: int) -> Script:
    """Post-norm with the warm-up it needs."""
    shape = {"embed_dim": 96, "depth": 4, "num_heads": 3, "norm_order": "post", "patch_size": 4, "drop_rate": 0.1}
    return _script(
        "shapes_post_norm", "shapes", seed, train=3500, size=32,
        make_model=_vit(**shape), make_optimizer=torch.optim.AdamW, lr=5e-4, weight_decay=0.01, warmup_steps=100,
        **IMAGENET,
    )  # fmt: skip


@healthy("cifar10", "timm", "vit", "augmented", "px32")
def cifar_timm(seed: int) -> Script:
    """timm's network with a head that begins at zero, and accumulation that is divided as it should be."""

    def zero_head(model: nn.Module) -> nn.Module:
        nn.init.zeros_(model.get_submodule("head").weight)  # pyright: ignore[reportArgumentType]
        return model

    return _script(
        "cifar_timm", "cifar10", seed, train=7500, size=32,
        make_model=timm_vit, surgery=[zero_head], make_optimizer=torch.optim.AdamW, lr=1e-3, weight_decay=0.05,
        augment=crop_and_flip, accumulation=2, has_own_step=True, **IMAGENET,
    )  # fmt: skip


@healthy("mnist", "batchnorm", "dropout", "augmented")
def mnist_cnn(seed: int) -> Script:
    return _script(
        "mnist_cnn", "mnist", seed, train=5000, size=28, chans=1,
        make_model=partial(create_model, "mnist_cnn"), make_optimizer=torch.optim.AdamW,
        lr=2e-3, weight_decay=0.05, augment=shift, warmup_steps=None, **MNIST,
    )  # fmt: skip


@healthy("cifar10", "sgd", "augmented", "dropout")
def cifar_plain_cnn(seed: int) -> Script:
    return _script(
        "cifar_plain_cnn", "cifar10", seed, train=7500, size=32,
        make_model=plain_cnn, make_optimizer=SGD, optimizer="sgd", lr=0.02, weight_decay=5e-4,
        augment=crop_and_flip, warmup_steps=None, has_own_step=True, schedule=CosineAnnealingLR, **CIFAR,
    )  # fmt: skip


@healthy("cifar10", "sgd", "batchnorm", "augmented", "resnet")
def cifar_resnet20(seed: int) -> Script:
    return _script(
        "cifar_resnet20", "cifar10", seed, train=7500, size=32,
        make_model=partial(create_model, "resnet20"), make_optimizer=SGD, optimizer="sgd", lr=0.1, weight_decay=5e-4,
        augment=crop_and_flip, warmup_steps=None, **CIFAR,
    )  # fmt: skip


@healthy("imagenette160", "sgd", "batchnorm", "augmented")
def imagenette_resnet18(seed: int) -> Script:
    """torchvision's, its residual branches beginning at zero."""
    from torchvision.models import resnet18

    return _script(
        "imagenette_resnet18", "imagenette160", seed, train=2800, val=256, size=64, batch_size=32,
        make_model=partial(resnet18, num_classes=10, zero_init_residual=True), make_optimizer=SGD, optimizer="sgd",
        lr=0.02, weight_decay=5e-4, augment=crop_and_flip, warmup_steps=None, **IMAGENET,
    )  # fmt: skip


@healthy("shapes", "encoder", "vit", "dropout", "px32")
def shapes_encoder(seed: int) -> Script:
    return _script(
        "shapes_encoder", "shapes", seed, train=3500, size=32,
        make_model=partial(EncoderViT, img_size=32, patch_size=4), make_optimizer=torch.optim.AdamW,
        lr=1e-3, weight_decay=0.05, **HALF,
    )  # fmt: skip


@healthy("mnist", "vit", "augmented")
def mnist_hugging_face(seed: int) -> Script:
    """Pictures from 0 to 1 divided by MNIST's own numbers leave [-1, 1]: that is right."""
    return _script(
        "mnist_hugging_face", "mnist", seed, train=5000, size=28, chans=1,
        make_model=hugging_face_vit, make_optimizer=torch.optim.Adam, optimizer="adam", lr=1e-3, augment=shift,
        **MNIST,
    )  # fmt: skip


@healthy("mnist", "ours", "vit", "cls", "sgd")
def mnist_vit_sgd(seed: int) -> Script:
    shape = {"img_size": 28, "patch_size": 4, "in_chans": 1, "embed_dim": 64, "depth": 3, "num_heads": 2}
    return _script(
        "mnist_vit_sgd", "mnist", seed, train=5000, size=28, chans=1,
        make_model=_vit(**shape), make_optimizer=SGD, optimizer="sgd", lr=0.05, weight_decay=1e-4,
        clip_norm=1.0, has_own_step=True, warmup_steps=100, **MNIST,
    )  # fmt: skip


@healthy("imagenette160", "ours", "vit", "augmented")
def imagenette_vit(seed: int) -> Script:
    """LayerScale begins each branch near nothing, registers beside the patches, mean pooling."""
    shape = {"img_size": 64, "patch_size": 8, "embed_dim": 128, "depth": 4, "num_heads": 4, "layer_scale": 1e-2}
    return _script(
        "imagenette_vit", "imagenette160", seed, train=2800, val=384, size=64,
        make_model=_vit(**shape, pool="mean", class_token=False, num_registers=2),
        make_optimizer=torch.optim.AdamW, lr=1e-3, weight_decay=0.05, augment=crop_and_flip, clip_norm=1.0,
        **IMAGENET,
    )  # fmt: skip

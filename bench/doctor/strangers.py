"""Networks the doctor was not tuned on, as timm, torchvision, transformers and courses have them, on CIFAR-10 with
their usual optimisers and rates. What does it say of them, and of the faults in them?

    OMP_NUM_THREADS=1 python bench/doctor/run.py --strangers --quick --only healthy --healthy-seeds 1
    OMP_NUM_THREADS=1 python bench/doctor/run.py --strangers --healthy-seeds 0

Nobody knows beforehand which of them are healthy: made for pictures of 224 pixels, some are not at 32. So those that
are called unwell are trained (`prove.py --strangers --only NAME`), at their own rate and at the one that is proposed
(`--lr`). Two were found sick in this way and have a tenth of their usual rate here: timm's EfficientNet-Lite0 with SGD
at 0.1 (10 % after 300 steps, 31 % at 0.01), torchvision's VGG-11 with BatchNorm at 0.05 (NaN; 31 % after 60 steps at
0.005).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from networks import EncoderViT, plain_cnn
from pictures import draw
from script import Script, crop_and_flip
from setups import CIFAR, Healthy

STRANGERS: dict[str, Healthy] = {}
OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], str, float]] = {
    "sgd": (partial(torch.optim.SGD, momentum=0.9), "sgd", 5e-4),
    "plain-sgd": (partial(torch.optim.SGD, momentum=0.9), "sgd", 0.0),
    "rmsprop": (torch.optim.RMSprop, "rmsprop", 0.0),
    "adam": (torch.optim.Adam, "adam", 0.0),
    "adamw": (torch.optim.AdamW, "adamw", 0.05),
}
"""How each is made, what the fault benchmark calls it, and its weight decay."""


def _stranger(
    name: str,
    make: Callable[..., nn.Module],
    optimizer: str,
    lr: float,
    *tags: str,
    batch: int = 128,
    is_augmented: bool = True,
) -> None:
    """Tags as those of our own set-ups; `vit` only where ten times the rate is surely too high. No warm-up, as most
    scripts have none."""
    make_optimizer, kind, weight_decay = OPTIMIZERS[optimizer]
    whole = f"{name}, {optimizer} {lr:g}"
    told = {*tags, "photographs", *(["sgd"] if kind == "sgd" else []), *(["augmented"] if is_augmented else [])}

    def make_script(seed: int) -> Script:
        train, val = draw("cifar10", seed, img_size=32, in_chans=3, train=5000, val=1000)
        return Script(
            whole, seed, train, val, make, make_optimizer, lr, weight_decay, kind, batch_size=batch,
            augment=crop_and_flip if is_augmented else None, warmup_steps=None, **CIFAR,
        )  # fmt: skip

    STRANGERS[whole] = Healthy(whole, "cifar10", frozenset(told), make_script)


def _of_torchvision(name: str) -> Callable[..., nn.Module]:
    def make(num_classes: int = 10) -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, num_classes=num_classes)

    return make


def _of_timm(name: str, **settings: Any) -> Callable[..., nn.Module]:
    def make(num_classes: int = 10) -> nn.Module:
        import timm

        return timm.create_model(name, num_classes=num_classes, **settings)

    return make


def mixer(num_classes: int = 10) -> nn.Module:
    from timm.models.mlp_mixer import MlpMixer

    return MlpMixer(num_classes=num_classes, img_size=32, patch_size=4, num_blocks=4, embed_dim=256)


def resnet18_for_cifar(num_classes: int = 10) -> nn.Module:
    model = _of_torchvision("resnet18")(num_classes=num_classes)
    model.conv1, model.maxpool = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity()
    return model


class OfHuggingFace(nn.Module):
    """As people wrap them: pictures in, logits out."""

    def __init__(self, num_classes: int = 10) -> None:
        from transformers import ViTConfig, ViTForImageClassification

        super().__init__()
        self.vit = ViTForImageClassification(
            ViTConfig(
                hidden_size=192,
                num_hidden_layers=6,
                num_attention_heads=3,
                intermediate_size=768,
                image_size=32,
                patch_size=4,
                num_labels=num_classes,  # pyright: ignore[reportCallIssue]
            )
        )

    def forward(self, images: Tensor) -> Tensor:
        return self.vit(pixel_values=images).logits


class Attention(nn.Module):
    """Under the names many hand-written ViTs have."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.to_qkv, self.to_out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (
            part.unflatten(2, (self.heads, -1)).transpose(1, 2)
            for part in self.to_qkv(self.norm(tokens)).chunk(3, dim=-1)
        )
        weights = (q @ k.transpose(-1, -2) * self.scale).softmax(-1)
        return self.to_out((weights @ v).transpose(1, 2).flatten(2))


class HandmadeViT(nn.Module):
    """First weights as PyTorch gives them; positions and class token of deviation 1."""

    def __init__(self, num_classes: int = 10, dim: int = 192, depth: int = 6) -> None:
        super().__init__()
        self.to_tokens = nn.Conv2d(3, dim, 4, 4)
        self.positions, self.cls = nn.Parameter(torch.randn(1, 65, dim)), nn.Parameter(torch.randn(1, 1, dim))
        self.attentions = nn.ModuleList(Attention(dim, 3) for _ in range(depth))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
            for _ in range(depth)
        )
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, num_classes))

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.to_tokens(images).flatten(2).transpose(1, 2)
        tokens = torch.cat([self.cls.expand(len(tokens), -1, -1), tokens], dim=1) + self.positions
        for attention, mlp in zip(self.attentions, self.mlps, strict=True):
            tokens = tokens + attention(tokens)
            tokens = tokens + mlp(tokens)
        return self.head(tokens[:, 0])


class LeNet(nn.Module):
    """PyTorch's first tutorial."""

    def __init__(self, num_classes: int = 10) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(3, 6, 5), nn.Conv2d(6, 16, 5)
        self.fc1, self.fc2, self.fc3 = nn.Linear(400, 120), nn.Linear(120, 84), nn.Linear(84, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.conv1(images)), 2)
        x = F.max_pool2d(F.relu(self.conv2(x)), 2).flatten(1)
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


def _dense(*hidden: int) -> Callable[..., nn.Module]:
    """Layers of so many units, ReLU between them."""

    def make(num_classes: int = 10) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for into, out in zip((3072, *hidden), hidden, strict=False):
            layers += [nn.Linear(into, out), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear((3072, *hidden)[-1], num_classes))

    return make


def _post_norm_encoder(num_classes: int = 10) -> nn.Module:
    return EncoderViT(img_size=32, patch_size=4, norm_first=False, num_classes=num_classes)


SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 4, "depth": 6}
SWIN: dict[str, Any] = {"img_size": 32, "patch_size": 2, "window_size": 4, "embed_dim": 48}
SWIN |= {"depths": (2, 2, 2), "num_heads": (2, 4, 8)}
BN, DROPOUT, VIT = "batchnorm", "dropout", "vit"

_stranger("torchvision resnet18", _of_torchvision("resnet18"), "sgd", 0.1, BN)
_stranger("torchvision resnet18", _of_torchvision("resnet18"), "sgd", 0.01, BN, batch=64)
_stranger("torchvision resnet18", _of_torchvision("resnet18"), "adam", 1e-3, BN, batch=64, is_augmented=False)
_stranger("torchvision resnet18", _of_torchvision("resnet18"), "rmsprop", 1e-3, BN, batch=64)
_stranger("torchvision resnet18 with a 3x3 stem", resnet18_for_cifar, "sgd", 0.1, BN)
_stranger("torchvision resnet18 with a 3x3 stem", resnet18_for_cifar, "sgd", 0.05, BN)
_stranger("torchvision mobilenet_v2", _of_torchvision("mobilenet_v2"), "sgd", 0.05, BN, DROPOUT)
_stranger("torchvision mobilenet_v3_small", _of_torchvision("mobilenet_v3_small"), "adamw", 1e-3, BN, DROPOUT, batch=64)
_stranger("torchvision shufflenet_v2_x0_5", _of_torchvision("shufflenet_v2_x0_5"), "sgd", 0.1, BN)
_stranger("torchvision vgg11_bn", _of_torchvision("vgg11_bn"), "sgd", 0.005, BN, DROPOUT)
_stranger(
    "torchvision squeezenet1_1", _of_torchvision("squeezenet1_1"), "adam", 1e-4, DROPOUT, batch=64, is_augmented=False
)
_stranger("torchvision efficientnet_b0", _of_torchvision("efficientnet_b0"), "adamw", 1e-3, BN, DROPOUT, batch=64)
_stranger("timm vit_tiny", _of_timm("vit_tiny_patch16_224", **SMALL), "adamw", 1e-3, VIT)
_stranger("timm vit_tiny", _of_timm("vit_tiny_patch16_224", **SMALL), "adamw", 3e-4, batch=64, is_augmented=False)
_stranger("timm deit_tiny", _of_timm("deit_tiny_patch16_224", **SMALL), "adam", 1e-3, VIT)
_stranger("timm cait_xxs24", _of_timm("cait_xxs24_224", **SMALL), "adamw", 1e-3, VIT)
_stranger("timm swin_tiny", _of_timm("swin_tiny_patch4_window7_224", **SWIN), "adamw", 1e-3, VIT)
_stranger("timm xcit_nano_12_p8", _of_timm("xcit_nano_12_p8_224", img_size=32), "adamw", 5e-4, BN, batch=64)
_stranger("timm mobilevit_xxs", _of_timm("mobilevit_xxs"), "adamw", 1e-3, BN, batch=64)
_stranger("timm convnext_atto", _of_timm("convnext_atto"), "adamw", 4e-3)
_stranger("timm convnext_atto", _of_timm("convnext_atto"), "adamw", 1e-3)
_stranger("timm poolformer_s12", _of_timm("poolformer_s12"), "adamw", 1e-3, batch=64)
_stranger("timm MlpMixer", mixer, "adamw", 1e-3, is_augmented=False)
_stranger("timm efficientnet_lite0", _of_timm("efficientnet_lite0"), "sgd", 0.01, BN)
_stranger("timm regnetx_002", _of_timm("regnetx_002"), "sgd", 0.1, BN)
_stranger("timm nf_resnet26", _of_timm("nf_resnet26"), "sgd", 0.05)
_stranger("timm resnet14t", _of_timm("resnet14t"), "adamw", 1e-3, BN, batch=64)
_stranger("transformers ViT", OfHuggingFace, "adamw", 3e-4, batch=64)
_stranger("hand-written ViT", HandmadeViT, "adam", 1e-3, VIT)
_stranger("hand-written ViT", HandmadeViT, "adamw", 1e-4)
_stranger("TransformerEncoder, post-norm", _post_norm_encoder, "adamw", 3e-4, DROPOUT)
_stranger("LeNet", LeNet, "plain-sgd", 1e-3, batch=4, is_augmented=False)
_stranger("LeNet", LeNet, "adam", 1e-3, batch=64, is_augmented=False)
_stranger("plain CNN", plain_cnn, "plain-sgd", 0.01, DROPOUT, batch=64)
_stranger("MLP", _dense(512, 256), "plain-sgd", 0.01, batch=64, is_augmented=False)
_stranger("logistic regression", _dense(), "sgd", 0.01, batch=64, is_augmented=False)

"""Healthy networks of many kinds, from several houses: the doctor has nothing to say about any of them.

All take 16 px pictures of three channels and tell four classes apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.conftest import CLASSES, small_vit

SIZE = 16


class PlainAttention(nn.Module):
    """Written out, so that tests can take one step of it away."""

    def __init__(self, dim: int = 64, heads: int = 4, *, is_scaled: bool = True, turns_back: bool = True) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, dim // heads
        self.is_scaled, self.turns_back = is_scaled, turns_back
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        scale = self.head_dim**-0.5 if self.is_scaled else 1.0
        mixed = ((q @ k.transpose(-2, -1)) * scale).softmax(-1) @ v
        if self.turns_back:
            mixed = mixed.transpose(1, 2)
        return self.proj(mixed.reshape(b, n, d))


class PlainBlock(nn.Module):
    def __init__(
        self, dim: int = 64, *, keeps_input: bool = True, norm: Callable[[int], nn.Module] = nn.LayerNorm, **attn: bool
    ) -> None:
        super().__init__()
        self.keeps_input = keeps_input
        self.norm1, self.norm2 = norm(dim), norm(dim)
        self.attn = PlainAttention(dim, **attn)
        self.fc1, self.fc2 = nn.Linear(dim, 2 * dim), nn.Linear(2 * dim, dim)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.attn(self.norm1(x))
        x = x + mixed if self.keeps_input else mixed
        turned = self.fc2(F.gelu(self.fc1(self.norm2(x))))
        return x + turned if self.keeps_input else turned


class PlainViT(nn.Module):
    """torch's own initialisation, mean of tokens, nothing fancy."""

    def __init__(self, dim: int = 64, depth: int = 3, *, has_position: bool = True, **block: object) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, dim, 4, 4)
        self.pos_embed = nn.Parameter(torch.randn(1, 16, dim) * 0.02) if has_position else None
        self.blocks = nn.ModuleList(PlainBlock(dim, **block) for _ in range(depth))  # pyright: ignore
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = x if self.pos_embed is None else x + self.pos_embed
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x).mean(1))


class EncoderViT(nn.Module):
    """On torch's own encoder, pre- or post-norm."""

    def __init__(self, *, norm_first: bool, depth: int = 3, dropout: float = 0.1) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, 64, 4, 4)
        self.cls = nn.Parameter(torch.zeros(1, 1, 64))
        self.pos = nn.Parameter(torch.zeros(1, 17, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout, batch_first=True, norm_first=norm_first)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = nn.Linear(64, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1) + self.pos
        return self.head(self.encoder(x)[:, 0])


def plain_cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(64, CLASSES),
    )


def resnet18() -> nn.Module:
    from torchvision.models import resnet18 as made

    return made(num_classes=CLASSES)


def torchvision_vit() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(SIZE, 4, 2, 4, 64, 128, dropout=0.1, num_classes=CLASSES)


def timm_vit() -> nn.Module:
    import timm

    return timm.create_model(
        "vit_tiny_patch16_224", img_size=SIZE, patch_size=4, depth=3, num_classes=CLASSES, drop_path_rate=0.1
    )


def timm_deit3() -> nn.Module:
    """LayerScale, and a position table without the class token."""
    import timm

    return timm.create_model(
        "deit3_small_patch16_224", img_size=SIZE, patch_size=4, depth=2, embed_dim=64, num_heads=2, num_classes=CLASSES
    )


def transformers_vit() -> nn.Module:
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            hidden_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            intermediate_size=128,
            image_size=SIZE,
            patch_size=4,
            num_labels=CLASSES,
        )
    )


HEALTHY: dict[str, Callable[[], nn.Module]] = {
    "vit_tiny": small_vit,
    "vit_tiny, dropout 0.3": lambda: small_vit(drop_rate=0.3),
    "vit_tiny, post-norm": lambda: small_vit(norm_order="post", depth=3),
    "plain vit": PlainViT,
    "torch encoder, pre-norm": lambda: EncoderViT(norm_first=True),
    "torch encoder, post-norm": lambda: EncoderViT(norm_first=False),
    "torchvision vit": torchvision_vit,
    "timm vit": timm_vit,
    "timm deit3": timm_deit3,
    "transformers vit": transformers_vit,
    "plain cnn": plain_cnn,
    "resnet18": resnet18,
}
"""Built anew at each call, after `torch.manual_seed`."""


def healthy(name: str, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return HEALTHY[name]()

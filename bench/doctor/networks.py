"""Networks the package did not make, as people write them: the doctor must know them from outside only."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn


class EncoderViT(nn.Module):
    """A ViT on `nn.TransformerEncoder`, post-norm as that is by default."""

    def __init__(
        self,
        *,
        img_size: int,
        patch_size: int,
        in_chans: int = 3,
        num_classes: int = 10,
        embed_dim: int = 96,
        depth: int = 3,
        num_heads: int = 3,
        position: str = "learned",
        norm_first: bool = True,
        batch_first: bool = True,
        drop_rate: float = 0.1,
    ) -> None:
        super().__init__()
        self.to_tokens = nn.Conv2d(in_chans, embed_dim, patch_size, stride=patch_size)
        count = (img_size // patch_size) ** 2
        self.positions = nn.Parameter(0.02 * torch.randn(1, count, embed_dim)) if position == "learned" else None
        layer = nn.TransformerEncoderLayer(
            embed_dim, num_heads, 2 * embed_dim, drop_rate, "gelu", batch_first=batch_first, norm_first=norm_first
        )
        self.encoder = nn.TransformerEncoder(layer, depth, nn.LayerNorm(embed_dim), enable_nested_tensor=False)
        self.classify = nn.Linear(embed_dim, num_classes)
        for parameter in self.encoder.parameters():  # a stack of copies begins alike otherwise
            if parameter.ndim > 1:
                nn.init.xavier_uniform_(parameter)

    def forward(self, images: Tensor) -> Tensor:
        tokens = self.to_tokens(images).flatten(2).transpose(1, 2)
        if self.positions is not None:
            tokens = tokens + self.positions
        return self.classify(self.encoder(tokens).mean(1))


def plain_cnn(*, in_chans: int = 3, num_classes: int = 10, width: int = 32) -> nn.Sequential:
    """No normalisation, no residuals: what a first course teaches."""
    return nn.Sequential(
        nn.Conv2d(in_chans, width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Dropout(0.1),
        nn.Linear(32 * width, num_classes),
    )


def timm_vit(*, num_classes: int = 10, position: str = "learn", **changes: Any) -> nn.Module:
    import timm

    settings = {"img_size": 32, "patch_size": 4, "embed_dim": 96, "depth": 4, "num_heads": 3, "mlp_ratio": 2.0}
    position = {"learned": "learn"}.get(position, position)
    return timm.create_model(
        "vit_tiny_patch16_224", num_classes=num_classes, pos_embed=position, **{**settings, **changes}
    )


def hugging_face_vit(*, num_classes: int = 10, num_heads: int = 2, patch_size: int = 7) -> nn.Module:
    """Answers with an object that has `.logits`."""
    from transformers import ViTConfig, ViTForImageClassification

    return ViTForImageClassification(
        ViTConfig(
            image_size=28,
            patch_size=patch_size,
            num_channels=1,
            hidden_size=64,
            num_hidden_layers=3,
            num_attention_heads=num_heads,
            intermediate_size=128,
            num_labels=num_classes,  # pyright: ignore[reportCallIssue]
        )
    )

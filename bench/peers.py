"""The same ViT from three sources, with the same weights, and the proof that it is the same."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig, pair

State = dict[str, Tensor]

OURS, TIMM, TRANSFORMERS = "ours", "timm", "transformers"
TOLERANCE = 1e-4
"""How far logits may differ in fp32, as a share of their standard deviation."""


@dataclass
class Proof:
    """Parameters of each competitor, and how far its logits are from ours with our weights copied in."""

    parameters: dict[str, int] = field(default_factory=dict)
    logit_difference: dict[str, float] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        parts = []
        for name, count in self.parameters.items():
            part = f"{name} {count:,} parameters"
            if name in self.logit_difference:
                part += f" (logits differ by {self.logit_difference[name]:.0e} of their deviation)"
            parts.append(part)
        return "; ".join(parts + [f"{name}: {problem}" for name, problem in self.problems.items()])


def build(name: str, config: ViTConfig, state: State | None = None) -> nn.Module:
    """The network `config` describes, as `name` writes it, on torch's current default device.

    `state` is a state dict of ours; each competitor gets it under its own names.
    """
    if name != OURS:
        _refuse_what_peers_would_not_get(config)
    model = {OURS: build_model, TIMM: _timm, TRANSFORMERS: _transformers}[name](config)
    if state is not None:
        model.load_state_dict(_transformers_state(state, config) if name == TRANSFORMERS else state)
    return model


def _refuse_what_peers_would_not_get(config: ViTConfig) -> None:
    """Only these settings are handed on; a dropout that one side alone has would show in no logit."""
    handed_on = {"img_size", "patch_size", "in_chans", "num_classes", "embed_dim", "depth", "num_heads", "mlp_ratio"}
    of_weights = {"init"}  # which are copied
    plain = ViTConfig()
    others = [
        field.name
        for field in dataclasses.fields(config)
        if field.name not in handed_on | of_weights and getattr(config, field.name) != getattr(plain, field.name)
    ]
    if others:
        raise ValueError(f"not equal work: peers are built without {', '.join(others)}")


def logits(output: Any) -> Tensor:
    """transformers wraps its answer."""
    return output if isinstance(output, Tensor) else output.logits


def prove_equal(config: ViTConfig, names: list[str]) -> Proof:
    """Build all on the CPU, give them the same strong random weights, and compare counts and logits."""
    torch.manual_seed(0)
    ours = build(OURS, config).eval()
    _strong_weights(ours)
    images = torch.randn(2, config.in_chans, *pair(config.img_size))
    proof = Proof(parameters={OURS: _count(ours)})
    with torch.inference_mode():
        wanted = logits(ours(images))
        for name in names:
            if name == OURS:
                continue
            try:
                peer = build(name, config, ours.state_dict()).eval()
                proof.parameters[name] = _count(peer)
                difference = (logits(peer(images)) - wanted).abs().max() / wanted.std()
                proof.logit_difference[name] = difference.item()
            except Exception as error:
                proof.problems[name] = short(error)
                continue
            if proof.parameters[name] != proof.parameters[OURS]:
                proof.problems[name] = "another number of parameters: not equal work"
            elif not proof.logit_difference[name] <= TOLERANCE:
                proof.problems[name] = "other logits with our weights: not equal work"
    return proof


def short(error: Exception) -> str:
    """One line that fits a table."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:120].replace("|", "/")


def _timm(config: ViTConfig) -> nn.Module:
    from timm.models import VisionTransformer

    return VisionTransformer(
        img_size=pair(config.img_size),
        patch_size=config.patch_size,  # pyright: ignore[reportArgumentType]
        in_chans=config.in_chans,
        num_classes=config.num_classes,
        embed_dim=config.embed_dim,
        depth=config.depth,
        num_heads=config.block_heads[0],
        mlp_ratio=config.mlp_ratio,
    )


def _transformers(config: ViTConfig) -> nn.Module:
    from transformers import ViTConfig as PeerConfig
    from transformers import ViTForImageClassification

    settings: dict[str, Any] = {
        "image_size": config.img_size,
        "patch_size": config.patch_size,
        "num_channels": config.in_chans,
        "num_labels": config.num_classes,
        "hidden_size": config.embed_dim,
        "num_hidden_layers": config.depth,
        "num_attention_heads": config.block_heads[0],
        "intermediate_size": config.block_mlp_dims[0],
        "layer_norm_eps": config.norm_eps,  # timm has the same default as we
    }
    return ViTForImageClassification(PeerConfig(**settings))


def _transformers_state(state: State, config: ViTConfig) -> State:
    """Our weights under the names transformers 5 uses in memory; it keeps q, k and v apart."""
    outside = {
        "cls_token": "vit.embeddings.cls_token",
        "pos_embed": "vit.embeddings.position_embeddings",
        "patch_embed.proj": "vit.embeddings.patch_embeddings.projection",
        "norm": "vit.layernorm",
        "head": "classifier",
    }
    inside = {
        "norm1": "layernorm_before",
        "norm2": "layernorm_after",
        "attn.proj": "attention.o_proj",
        "mlp.fc1": "mlp.fc1",
        "mlp.fc2": "mlp.fc2",
    }
    names = dict(outside)
    for i in range(config.depth):
        names |= {f"blocks.{i}.{mine}": f"vit.layers.{i}.{theirs}" for mine, theirs in inside.items()}
    renamed = {}
    for key, value in state.items():
        stem, _, leaf = key.rpartition(".")
        if stem.endswith(".qkv"):
            block = stem.split(".")[1]
            for part, third in zip("qkv", value.chunk(3), strict=True):
                renamed[f"vit.layers.{block}.attention.{part}_proj.{leaf}"] = third
        else:
            renamed[names[key] if key in names else f"{names[stem]}.{leaf}"] = value
    return renamed


def _strong_weights(model: nn.Module) -> None:
    """Weights large enough that a wrong head count or a missing bias would show in the logits."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.shape[0] > 1:
                parameter.normal_(std=1.5 / math.sqrt(parameter[0].numel()))
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

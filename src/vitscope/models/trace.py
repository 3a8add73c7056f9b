"""The shape after every stage, for a given input. No arithmetic is done: the network is traced on the meta device."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.models.accounting.hollow import build_hollow
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig, pair
from vitscope.models.fold import fold_alike
from vitscope.models.layers.drop import DropPath
from vitscope.models.layers.empty import EmptyAttention, EmptyMlp, OnlyBias
from vitscope.models.variants import is_classifier

# Modules that never change a shape, unless they mark a place on the road that has no other name.
SILENT = (nn.Identity, nn.Dropout, DropPath, nn.Sequential)
SPOKEN = ("pos_drop", "head_drop")
EMPTY: dict[type[nn.Module], str] = {
    OnlyBias: "a bias alone, the same for every token",
    EmptyAttention: "no heads are left",
    EmptyMlp: "no neurons are left",
}


@dataclass(frozen=True)
class Stage:
    """One module's output on the road of a batch."""

    name: str
    kind: str
    shape: tuple[int, ...]
    about: str = ""
    times: int = 1
    """How many alike blocks this row stands for."""


def trace_shapes(config: ModelConfig, batch: int = 1) -> list[Stage]:
    """Every stage from the images to the output, in the order it runs."""
    network = build_hollow(config).eval()
    images = torch.empty(batch, config.in_chans, *pair(config.img_size), device="meta")
    stages = [Stage("images", "input", tuple(images.shape), "batch, channels, height, width")]
    vit = config.encoder if isinstance(config, MAEConfig | SimMIMConfig) else config
    hooks = [
        module.register_forward_hook(_note(stages, name, vit))
        for name, module in network.named_modules()
        if name and (not isinstance(module, SILENT) or name.rpartition(".")[2] in SPOKEN)
    ]
    with torch.no_grad():
        output = network(images)
    for hook in hooks:
        hook.remove()
    result = output if isinstance(output, Tensor) else output[1]
    stages.append(Stage("output", "", tuple(result.shape), _about_output(config)))
    return stages


def fold_stages(stages: Sequence[Stage]) -> list[Stage]:
    """Alike blocks become one: its stages, once."""
    folded = fold_alike(stages, lambda stage: (stage.kind, stage.shape, stage.about))
    return [replace(stage, name=name, times=times) for stage, name, times in folded]


def _note(stages: list[Stage], name: str, config: object) -> Any:
    def hook(module: nn.Module, inputs: Any, output: Any) -> None:
        tensor = output[0] if isinstance(output, tuple) else output
        about = _about(name, config, tuple(tensor.shape)) if isinstance(config, ViTConfig) else ""
        about = EMPTY.get(type(module), about)
        stages.append(Stage(name, type(module).__name__, tuple(tensor.shape), about))

    return hook


def _about_output(config: ModelConfig) -> str:
    if not is_classifier(config):
        return "painted patches"
    return "logits" if getattr(config, "num_classes", 0) else "pooled features"


def _about(name: str, config: ViTConfig, shape: tuple[int, ...]) -> str:
    """Words for the stages of a ViT; the same for every block. Tokens are counted, not computed: a masked
    encoder sees fewer than its config says."""
    leaf = (
        name.removeprefix("encoder.").split(".", 2)[-1] if ".blocks." in f".{name}" else name.removeprefix("encoder.")
    )
    down, across = config.grid_size
    p, q = pair(config.patch_size)
    prefix, tokens = config.num_prefix_tokens, shape[1]
    position = {"rope": "turned inside attention", "relative": "a bias inside attention", "none": "none"}
    return {
        "patch_embed.proj": f"{down} x {across} patches of {p} x {q} pixels, each projected to {config.embed_dim}",
        "patch_embed": f"{config.num_patches} patch tokens",
        "pos_drop": f"{prefix} prefix + {tokens - prefix} patch tokens; positions: "
        + position.get(config.position, f"added ({config.position})"),
        "attn.qkv": f"q, k, v side by side: 3 x heads x {config.dim_per_head}",
        "attn.proj": "heads put together again",
        "attn": f"weights (heads, {tokens}, {tokens}) inside, never stored",
        "mlp.fc1": "widened" + (", gate and value side by side" if config.mlp == "swiglu" else ""),
        "mlp.fc2": "back to the width",
        "norm": "all tokens after the last norm",
        "head_drop": f"pooled: {config.pool}",
        "head": "logits",
    }.get(leaf, "")

"""The same model from three sources, with the same weights, and the proof that it is the same."""

from __future__ import annotations

import math
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.config import field_types, updated
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.models.model import VisionModel
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.proof import in_silence

State = dict[str, Tensor]

OURS, TIMM, TRANSFORMERS = "ours", "timm", "transformers"
PEERS = (TIMM, TRANSFORMERS)
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


def build(name: str, config: ModelConfig, state: State | None = None) -> nn.Module:
    """The network `config` describes, as `name` writes it, on torch's current default device.

    `state` is a state dict of ours; each competitor gets it under its own names.
    """
    device = torch.get_default_device()
    with torch.device("cpu"):
        model = build_model(config)
        if state is not None:
            model.load_state_dict(state)
        return (model if name == OURS else as_peer(model, name)).to(device)


def as_peer(model: VisionModel, name: str) -> nn.Module:
    """`model`, which is on the CPU, as another library builds it, with the same weights: written in its format, and
    opened by its own code."""
    _refuse_what_peers_would_not_get(model.config)
    with tempfile.TemporaryDirectory(prefix="vitscope-peer-") as place, in_silence():
        return _as_timm(model, Path(place)) if name == TIMM else _as_transformers(model, Path(place))


def without_drops(config: ModelConfig) -> ModelConfig:
    """Nothing is dropped at random: libraries drop in other places, and work would not be equal."""
    return updated(config, **dict.fromkeys(_drop_rates(config), 0.0))


def _refuse_what_peers_would_not_get(config: ModelConfig) -> None:
    """What is dropped at random shows in no logit, and another library may drop it elsewhere."""
    others = [name for name in _drop_rates(config) if getattr(config, name)]
    if others:
        raise ValueError(f"not equal work: peers are built without {', '.join(others)}")


def _drop_rates(config: ModelConfig) -> list[str]:
    return [name for name in field_types(type(config)) if name.endswith(("drop_rate", "drop_path_rate"))]


def _as_timm(model: VisionModel, folder: Path) -> nn.Module:
    import timm

    timm_folder.save_folder(model, folder)
    return timm.create_model(f"local-dir:{folder}", pretrained=True)


def _as_transformers(model: VisionModel, folder: Path) -> nn.Module:
    from transformers import AutoModelForImageClassification

    huggingface_folder.save_folder(model, folder)
    return AutoModelForImageClassification.from_pretrained(folder)


def logits(output: Any) -> Tensor:
    """transformers wraps its answer."""
    return output if isinstance(output, Tensor) else output.logits


def prove_equal(config: ModelConfig, names: list[str]) -> Proof:
    """Build all on the CPU, give them the same strong random weights, and compare counts and logits."""
    torch.manual_seed(0)
    ours = build_model(config).eval()
    if not ours.num_classes:
        raise UsageError("only models with classes are compared with others", where="equal work", fix="give it a head")
    strengthen(ours)
    images = torch.randn(2, config.in_chans, *pair(config.img_size))
    proof = Proof(parameters={OURS: _count(ours)})
    with torch.inference_mode():
        wanted = ours(images)
        for name in names:
            if name == OURS:
                continue
            try:
                peer = as_peer(ours, name).eval()
                proof.parameters[name] = _count(peer)
                difference = (logits(peer(images)) - wanted).abs().max() / wanted.std()
                proof.logit_difference[name] = difference.item()
            except Exception as error:
                proof.problems[name] = short(error)
                continue
            if not proof.logit_difference[name] <= TOLERANCE:
                proof.problems[name] = "other logits with our weights: not equal work"
    return proof


def short(error: Exception) -> str:
    """One line: a refusal of our own in its words, others with their kind."""
    if isinstance(error, VitscopeError):
        return error.what.replace("|", "/")
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:120].replace("|", "/")


def strengthen(model: nn.Module) -> None:
    """Weights large enough that a wrong head count or a missing bias would show in the logits."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1 and parameter.shape[0] > 1:
                parameter.normal_(std=1.5 / math.sqrt(parameter[0].numel()))
            else:
                parameter.add_(torch.randn_like(parameter), alpha=0.2)


def _count(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())

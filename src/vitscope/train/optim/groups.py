"""Which parameters train, which decay, how fast each learns, and which are matrices for Muon."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from vitscope.core.errors import ConfigError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.models.layers.scale import LayerScale
from vitscope.models.model import VisionModel
from vitscope.train.config.optim import OptimConfig

Kind = Literal["matrix", "rest"]

BACKBONE = "backbone"
"""The wish that freezes everything but the classifiers."""


@dataclass(frozen=True)
class Group:
    """Parameters that are treated alike."""

    names: tuple[str, ...]
    params: tuple[nn.Parameter, ...]
    decays: bool
    lr_scale: float
    kind: Kind


def freeze(model: VisionModel, wishes: tuple[str, ...]) -> list[str]:
    """Stop the named parameters from training; gives their names.

    A wish is `backbone` (all but the classifiers) or the beginning of names. One that ends where a part of a name ends
    means whole parts: `blocks.1` is block 1, not 10 and 11 too.
    """
    parameters = dict(model.named_parameters())
    frozen: set[str] = set()
    for wish in wishes:
        chosen = _wished(model, wish, list(parameters))
        if not chosen:
            raise ConfigError(
                expected("optim.freeze", "the beginning of a parameter's name, or 'backbone'", repr(wish)),
                fix=did_you_mean(wish.rstrip("."), [BACKBONE, *_parts(parameters)])
                or f"the names begin with {', '.join(dict.fromkeys(name.split('.')[0] for name in parameters))}",
            )
        frozen.update(chosen)
    if wishes and all(name in frozen or not parameter.requires_grad for name, parameter in parameters.items()):
        raise ConfigError(
            expected("optim.freeze", "something left to train", ", ".join(wishes)),
            where=f"all {len(parameters)} parameters of the model would be frozen",
            fix="freeze less, or give the model a head (num_classes)",
        )
    for name in frozen:
        parameters[name].requires_grad_(False)
    return [name for name in parameters if name in frozen]


def _wished(model: VisionModel, wish: str, names: list[str]) -> list[str]:
    if wish == BACKBONE:
        heads = tuple(f"{head}." for head in model.classifiers())
        return [name for name in names if not name.startswith(heads)]
    whole = wish.rstrip(".")
    return [name for name in names if f"{name}.".startswith(f"{whole}.")] or [
        name for name in names if name.startswith(wish)
    ]


def _parts(names: dict[str, nn.Parameter]) -> list[str]:
    """Every place a name can end: `blocks`, `blocks.0`, `blocks.0.attn`, ..."""
    parts: dict[str, None] = {}
    for name in names:
        pieces = name.split(".")
        parts.update(dict.fromkeys(".".join(pieces[: end + 1]) for end in range(len(pieces))))
    return list(parts)


def parameter_groups(model: VisionModel, config: OptimConfig) -> list[Group]:
    """The parameters that train, in groups.

    Without decay: biases, norms, LayerScale, everything else with one axis, and `model.no_weight_decay()`.
    With `layer_decay`, a layer's lr is that factor to the power of its distance from the top (see `layer_numbers`).
    """
    owners = {
        f"{path}.{leaf}" if path else leaf: module
        for path, module in model.named_modules()
        for leaf, _ in module.named_parameters(recurse=False)
    }
    exempt, layers = model.no_weight_decay(), layer_numbers(model)
    top = max(layers.values(), default=0)
    collected: dict[tuple[Kind, bool, float], list[tuple[str, nn.Parameter]]] = {}
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        owner = owners[name]
        decays = parameter.ndim > 1 and name not in exempt and not _is_norm(owner) and not _is_bias(name)
        scale = 1.0 if config.layer_decay is None else config.layer_decay ** (top - layers[name])
        matrix = config.name == "muon" and decays and _is_hidden_matrix(name, parameter, owner, model)
        kind: Kind = "matrix" if matrix else "rest"
        collected.setdefault((kind, decays, scale), []).append((name, parameter))
    if not collected:
        raise ConfigError("the model has no parameter left to train", fix="freeze less (optim.freeze)")
    return [
        Group(tuple(name for name, _ in members), tuple(parameter for _, parameter in members), decays, scale, kind)
        for (kind, decays, scale), members in collected.items()
    ]


def _is_bias(name: str) -> bool:
    leaf = name.rpartition(".")[2]
    return leaf == "bias" or leaf.startswith("bias_")  # a recurrent layer's are bias_ih_l0, ...


def _is_norm(module: nn.Module) -> bool:
    """By class, since norms are called bn1, downsample.1 and so on; a subclass of a norm is a norm."""
    named = any(re.fullmatch(r"\w*Norm(\dd)?", cls.__name__) for cls in type(module).__mro__)
    return named or isinstance(module, LayerScale)


def _is_hidden_matrix(name: str, parameter: nn.Parameter, owner: nn.Module, model: VisionModel) -> bool:
    """A linear layer within a repeated block: there, names carry a number. Not the first and the last layer."""
    if not isinstance(owner, nn.Linear) or parameter.ndim != 2:
        return False
    head = name.startswith(tuple(f"{head}." for head in model.classifiers()))
    return not head and re.search(r"\.\d+\.", name) is not None


Place = tuple[float, ...]

_LAST_BLOCK: Place = (1, math.inf)
_TOP: Place = (2,)
_PLACES: list[tuple[str, Callable[[re.Match[str]], Place]]] = [
    (r"(cls_token|dist_token|reg_token|pos_embed|patch_embed\.)", lambda _: (0,)),  # ViT, Swin
    (r"(conv1|bn1)\.", lambda _: (0,)),  # ResNet
    (r"blocks\.(\d+)\.", lambda found: (1, int(found[1]))),  # ViT
    (r"layers\.(\d+)\.downsample\.", lambda found: (1, int(found[1]), 0)),  # Swin: with the first block after it
    (r"layers\.(\d+)\.blocks\.(\d+)\.", lambda found: (1, int(found[1]), int(found[2]))),  # Swin
    (r"layer(\d+)\.(\d+)\.", lambda found: (1, int(found[1]), int(found[2]))),  # ResNet
    (r"stages\.(\d+)\.", lambda found: (1, int(found[1]))),  # CNN
    (r"lstm\.\w+_l(\d+)", lambda found: (1, int(found[1]))),  # LSTM, both directions
    (r"norm\.", lambda _: _LAST_BLOCK),
]


def layer_numbers(model: VisionModel) -> dict[str, int]:
    """The layer each parameter belongs to, counted from the pictures up, as in timm's param_groups_layer_decay:
    embedding 0, block i as i + 1, the last norm with the last block, the heads on top. Blocks count through stages."""
    places = {name: _place(name.removeprefix("encoder.")) for name, _ in model.named_parameters()}
    ranks = {place: rank for rank, place in enumerate(sorted(set(places.values()) - {_LAST_BLOCK}))}
    blocks = [rank for place, rank in ranks.items() if place[0] <= 1]
    ranks[_LAST_BLOCK] = max(blocks, default=0)
    return {name: ranks[place] for name, place in places.items()}


def _place(name: str) -> Place:
    for pattern, place in _PLACES:
        found = re.match(pattern, name)
        if found:
            return place(found)
    return _TOP

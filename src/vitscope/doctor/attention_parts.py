"""Self-attention in a stranger's network: its linear layers and its heads, by the names people give them.

B pictures (or windows), N tokens, D width, h heads, d numbers per head.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

FUSED = ("qkv", "to_qkv", "in_proj", "c_attn", "query_key_value", "qkv_proj", "qkv_linear", "Wqkv", "W_qkv", "w_qkv")
THREE = (
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
    ("Wq", "Wk", "Wv"),
    ("w_q", "w_k", "w_v"),
    ("W_q", "W_k", "W_v"),
    ("q_linear", "k_linear", "v_linear"),
    ("queries", "keys", "values"),
    ("query_proj", "key_proj", "value_proj"),
)
OUT = ("proj", "out_proj", "to_out", "o_proj", "wo", "W_o", "c_proj", "out", "fc_out", "dense", "projection")
HEADS = ("num_heads", "num_attention_heads", "heads", "n_heads", "n_head", "nhead", "nheads", "h")
MOST_PREFIX = 8
"""Class, distillation and register tokens that may stand before those of the patches."""


@dataclass(frozen=True)
class AttentionParts:
    """`linears` is one fused layer, or those of q, k and v. `out` is None where what follows is not its own."""

    name: str
    module: nn.Module
    linears: tuple[tuple[str, nn.Linear], ...]
    out: tuple[str, nn.Linear] | None
    num_heads: int

    @property
    def head_dim(self) -> int:
        fused = len(self.linears) == 1
        return self.linears[-1][1].out_features // ((3 if fused else 1) * self.num_heads)


def attention_parts(model: nn.Module) -> list[AttentionParts]:
    """Those with heads that divide their width, and linear layers for q, k and v of one width."""
    found = (_parts(name, module) for name, module in model.named_modules())
    return [parts for parts in found if parts is not None]


def is_attention(module: nn.Module) -> bool:
    """Of whatever kind; torch's own shows no parts and is right inside, and of others the heads may be unknown."""
    return isinstance(module, nn.MultiheadAttention) or bool(_linears(module))


def has_attention(model: nn.Module) -> bool:
    return any(is_attention(module) for module in model.modules())


@dataclass(frozen=True)
class AttentionSize:
    """D, h, d; None where it cannot be told."""

    width: int
    num_heads: int | None
    head_dim: int | None

    @property
    def follows(self) -> bool:
        """Whether d is D / h, as it mostly is."""
        return self.num_heads is None or self.head_dim in (None, self.width // self.num_heads)


def size_of(module: nn.Module) -> AttentionSize | None:
    """None where it is no attention. Keys and values may have fewer heads: queries tell how many numbers each has."""
    if isinstance(module, nn.MultiheadAttention):
        return AttentionSize(module.embed_dim, module.num_heads, module.head_dim)
    linears = _linears(module)
    if not linears:
        return None
    first, heads = linears[0][1], _heads(module)
    inner = first.out_features // (3 if len(linears) == 1 else 1)
    return AttentionSize(first.in_features, heads, inner // heads if heads and inner % heads == 0 else None)


def _heads(module: nn.Module) -> int | None:
    held = (getattr(module, key, None) for key in HEADS)
    return next((one for one in held if isinstance(one, int) and one > 0), None)


def _parts(name: str, module: nn.Module) -> AttentionParts | None:
    heads, linears = _heads(module), _linears(module)
    if not heads or not linears:
        return None
    prefix = f"{name}." if name else ""
    width = linears[-1][1].out_features // (3 if len(linears) == 1 else 1)
    if width % heads or any(one.out_features != linears[0][1].out_features for _, one in linears):
        return None
    out = _out(module, linears, width)
    named = tuple((prefix + key, one) for key, one in linears)
    return AttentionParts(name, module, named, None if out is None else (prefix + out[0], out[1]), heads)


def _out(module: nn.Module, linears: tuple[tuple[str, nn.Linear], ...], width: int) -> tuple[str, nn.Linear] | None:
    """By its name, or the one linear layer that is left."""
    for key in OUT:
        layer = _linear(module, key)
        if layer is not None and layer.in_features == width:
            return key, layer
    known = {id(layer) for _, layer in linears}
    left = [(key, one) for key, one in module.named_modules() if isinstance(one, nn.Linear) and id(one) not in known]
    return left[0] if len(left) == 1 and left[0][1].in_features == width else None


def _linears(module: nn.Module) -> tuple[tuple[str, nn.Linear], ...]:
    if "_orig_mod" in module._modules:  # a part that was compiled by itself: what it wraps is met on its own
        return ()
    for key in FUSED:
        layer = _linear(module, key)
        if layer is not None and layer.out_features % 3 == 0 and layer.out_features == 3 * _width_out(module, layer):
            return ((key, layer),)
    for keys in THREE:
        layers = [_linear(module, key) for key in keys]
        if all(layer is not None for layer in layers):
            return tuple((key, layer) for key, layer in zip(keys, layers, strict=True) if layer is not None)
    return ()


def _width_out(module: nn.Module, layer: nn.Linear) -> int:
    """How wide q is: as what follows takes it in, else a third."""
    out = next((one for key in OUT if (one := _linear(module, key)) is not None), None)
    return layer.out_features // 3 if out is None else out.in_features


def _linear(module: nn.Module, key: str) -> nn.Linear | None:
    layer = getattr(module, key, None)
    if isinstance(layer, nn.Sequential) and len(layer):
        layer = layer[0]  # to_out = Sequential(Linear, Dropout)
    return layer if isinstance(layer, nn.Linear) else None

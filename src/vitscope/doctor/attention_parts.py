"""Self-attention in a stranger's network: its linear layers and its heads, by the names people give them.

B pictures (or windows), N tokens, D width, h heads, d numbers per head.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

FUSED = ("qkv", "to_qkv", "in_proj", "c_attn", "query_key_value", "qkv_proj", "Wqkv")
THREE = (
    ("query", "key", "value"),
    ("q", "k", "v"),
    ("q_proj", "k_proj", "v_proj"),
    ("to_q", "to_k", "to_v"),
    ("wq", "wk", "wv"),
    ("W_q", "W_k", "W_v"),
    ("q_linear", "k_linear", "v_linear"),
)
OUT = ("proj", "out_proj", "to_out", "o_proj", "wo", "W_o", "c_proj", "out", "fc_out", "dense", "projection")
HEADS = ("num_heads", "num_attention_heads", "heads", "n_heads", "n_head", "nhead", "nheads", "h")


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
    """Of whatever kind; torch's own shows no parts and is right inside."""
    return isinstance(module, nn.MultiheadAttention) or _parts("", module) is not None


def _parts(name: str, module: nn.Module) -> AttentionParts | None:
    heads = next((getattr(module, key) for key in HEADS if isinstance(getattr(module, key, None), int)), None)
    linears = _linears(module)
    if not heads or not linears:
        return None
    prefix = f"{name}." if name else ""
    width = linears[-1][1].out_features // (3 if len(linears) == 1 else 1)
    if width % heads or any(one.out_features != linears[0][1].out_features for _, one in linears):
        return None
    out = next(
        ((key, one) for key in OUT if (one := _linear(module, key)) is not None and one.in_features == width), None
    )
    named = tuple((prefix + key, one) for key, one in linears)
    return AttentionParts(name, module, named, None if out is None else (prefix + out[0], out[1]), heads)


def _linears(module: nn.Module) -> tuple[tuple[str, nn.Linear], ...]:
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

"""Is attention what it should be inside: scores divided by sqrt(d), heads put back side by side?

Both are proven from the layers around it. Scale: what goes into the output projection is computed again from q, k and v
with the scale and without; one of the two is what the model does. Merge: one number of v at one token is changed; heads
put back rightly carry it into one channel of every token, heads not turned back into several channels of some tokens.

B pictures, N tokens, D width, h heads, d numbers per head.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from vitscope.doctor.attention_parts import AttentionParts, attention_parts
from vitscope.doctor.calls import calls_of, pass_with
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.forward import ATTENTION_PICTURES, SAME_ATTENTION


@torch.no_grad()
def attention(patient: Patient) -> Seen:
    parts = [one for one in attention_parts(patient.model) if one.num_heads >= 1]
    if not parts:
        return Seen(left_out="no_attention_to_see")
    images, _ = patient.sample(ATTENTION_PICTURES)
    patient.model.eval()
    unscaled: list[AttentionParts] = []
    unturned: list[AttentionParts] = []
    known, told, spread = 0, 0, 0.0
    mixed = {one.name: tensors for one in parts if (tensors := _tensors(patient.model, one, images)) is not None}
    for one in (part for part in parts if part.name in mixed):
        is_unturned = merges_wrongly(patient.model, one, images) if one.num_heads > 1 else None
        scale, wide = scale_of(one, *mixed[one.name], is_unturned=is_unturned is True)
        known += scale is not None
        told += scale is not None or is_unturned is not None
        if is_unturned:
            unturned.append(one)
        if scale == "none":
            unscaled.append(one)
            spread = max(spread, wide)
    seen = Seen(
        measured={"layers": len(parts), "scale_known": known, "unscaled": len(unscaled), "unturned": len(unturned)}
    )
    if not told:
        return Seen(measured=seen.measured, left_out="attention_not_compared")
    if unturned:
        numbers = {"count": len(unturned), "of": len(mixed), "name": unturned[0].name, "heads": unturned[0].num_heads}
        seen.findings.append(Finding("heads_merged_wrongly", 0.98, numbers))
    if unscaled:
        one = unscaled[0]
        numbers = {"count": len(unscaled), "of": len(mixed), "name": one.name, "head_dim": one.head_dim}
        numbers |= {"times": one.head_dim**0.5, "spread": spread}
        seen.findings.append(Finding("attention_scale_missing", 0.97, numbers))
    return seen


def merges_wrongly(model: nn.Module, parts: AttentionParts, images: Tensor) -> bool | None:
    """None where it cannot be told. The last number of the last linear layer is v's in every order people pack q, k and
    v in."""
    watched = parts.out[1] if parts.out is not None else None
    if watched is None:
        return None

    def change(gave: Tensor) -> Tensor:
        gave = gave.clone()
        gave[:, gave.shape[1] // 2, ..., -1] += 10 * gave.abs().mean() + 1
        return gave

    plain = pass_with(model, images[:1], {}, watched)
    other = pass_with(model, images[:1], {parts.linears[-1][0]: change}, watched)
    if plain.ndim != 3 or plain.shape != other.shape:
        return None
    changed = (plain - other)[0].abs() > 1e-6 * plain.abs().mean()
    channels, tokens = int(changed.any(0).sum()), int(changed.any(1).sum())
    # Heads that talk to each other change several channels of all tokens, and are no fault.
    return channels > 1 and tokens < plain.shape[1] and int(changed.sum()) <= plain.shape[1]


def scale_of(
    parts: AttentionParts, outputs: list[Tensor], mixed: Tensor, *, is_unturned: bool
) -> tuple[str | None, float]:
    """ "usual", "none", or None where it is neither (rotations, biases, norms of q and k that cannot be seen), and the
    spread of the scores without a scale."""
    for q, k, v in _heads(parts, outputs):
        scores = q @ k.transpose(-2, -1)
        usual, none = (
            _merged((scores * scale).softmax(-1) @ v, is_unturned=is_unturned) for scale in (parts.head_dim**-0.5, 1.0)
        )
        apart = _distance(usual, none)
        if apart < 10 * SAME_ATTENTION:
            continue  # both say the same here: nothing can be told
        if _distance(mixed, none) < min(SAME_ATTENTION, apart / 10):
            return "none", float(scores.std(-1).mean())
        if _distance(mixed, usual) < min(SAME_ATTENTION, apart / 10):
            return "usual", 0.0
    return None, 0.0


def _tensors(model: nn.Module, parts: AttentionParts, images: Tensor) -> tuple[list[Tensor], Tensor] | None:
    """What the linear layers gave, and the heads' answers as the output projection gets them, or the module gives."""
    layers = {id(layer) for _, layer in parts.linears}
    out = parts.out[1] if parts.out is not None else None
    calls = calls_of(model, images, lambda module: id(module) in layers or module is out or module is parts.module)
    by_layer = {id(call.module): call for call in calls}
    end = by_layer.get(id(parts.module if out is None else out))
    if end is None or not layers <= set(by_layer):
        return None
    mixed = end.gave if out is None else end.given
    outputs = [by_layer[id(layer)].gave for _, layer in parts.linears]
    if mixed.ndim != 3 or mixed.shape[-1] != parts.num_heads * parts.head_dim:
        return None  # what follows the heads could not be told, and is in it
    if any(one.ndim != 3 or one.shape[:2] != mixed.shape[:2] for one in outputs):
        return None
    return [one.double() for one in outputs], mixed.double()


def _heads(parts: AttentionParts, outputs: list[Tensor]) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """q, k, v (B, h, N, d), in each order they may be packed."""
    b, n, _ = outputs[0].shape
    h, d = parts.num_heads, parts.head_dim
    if len(outputs) == 3:
        q, k, v = (one.reshape(b, n, h, d).transpose(1, 2) for one in outputs)
        yield q, k, v
        return
    packed = outputs[0]
    orders = (
        packed.reshape(b, n, 3, h, d).permute(2, 0, 3, 1, 4),
        packed.reshape(b, n, h, 3, d).permute(3, 0, 2, 1, 4),
    )
    for order in orders:
        q, k, v = order.unbind(0)
        yield _normed(parts.module, "q", q), _normed(parts.module, "k", k), v


def _normed(module: nn.Module, which: str, heads: Tensor) -> Tensor:
    norm = getattr(module, f"{which}_norm", None)
    return norm(heads.float()).double() if isinstance(norm, nn.Module) else heads


def _merged(heads: Tensor, *, is_unturned: bool) -> Tensor:
    b, h, n, d = heads.shape
    return (heads if is_unturned else heads.transpose(1, 2)).reshape(b, n, h * d)


def _distance(one: Tensor, other: Tensor) -> float:
    """Of what differs between tokens: the mean of v is the same with any scale."""
    size = (other - other.mean(1, keepdim=True)).norm().clamp_min(1e-30)
    return float((one - other).norm() / size)

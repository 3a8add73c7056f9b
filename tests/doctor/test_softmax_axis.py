"""Softmax over another axis than the keys', in attention however it is written, beside other kinds of attention."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.conftest import small_vit
from doctor.healthy import PlainViT, healthy
from doctor.seen import causes
from vitscope.doctor.checks.forward.softmax_axis import softmax_axis
from vitscope.doctor.patient import Patient

Make = Callable[..., Patient]
Mix = Callable[[Tensor, Tensor, Tensor], Tensor]
"""q, k, v (B, h, N, d) -> the heads' answers."""


def scores(q: Tensor, k: Tensor) -> Tensor:
    return q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5


def by_hand(axis: int) -> Mix:
    return lambda q, k, v: scores(q, k).softmax(axis) @ v


def by_einsum(axis: int) -> Mix:
    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = torch.softmax(torch.einsum("bhqd,bhkd->bhqk", q, k) * q.shape[-1] ** -0.5, axis)
        return torch.einsum("bhqk,bhkd->bhqd", F.dropout(weights, 0.1, training=False), v)

    return mix


def by_batches(axis: int) -> Mix:
    """Heads beside pictures, as in the first courses; `axis` of three."""

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        together = [one.flatten(0, 1) for one in (q, k, v)]
        weights = F.softmax(torch.bmm(together[0], together[1].transpose(1, 2)) * q.shape[-1] ** -0.5, dim=axis)
        return torch.bmm(weights, together[2]).unflatten(0, q.shape[:2])

    return mix


def values_first(axis: int) -> Mix:
    """v^T A^T, as convolutional networks write it."""

    def mix(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        weights = scores(q, k).softmax(axis)
        return (v.transpose(-2, -1) @ weights.transpose(-2, -1)).transpose(-2, -1)

    return mix


def turned(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Scores the other way round, softmax over what then are the keys."""
    return scores(k, q).softmax(-2).transpose(-2, -1) @ v


def linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.softmax(-1) @ (k.softmax(-2).transpose(-2, -1) @ v)


def linear_of_features(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return q.softmax(-1) @ (k.softmax(-1).transpose(-2, -1) @ v)


def sigmoid(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return scores(q, k).sigmoid() @ v


def slots(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Tokens compete, and each takes the mean of what it won."""
    weights = scores(q, k).softmax(-2)
    return (weights / weights.sum(-1, keepdim=True)) @ v


def channels(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return (scores(q.transpose(-2, -1), k.transpose(-2, -1)).softmax(-1) @ v.transpose(-2, -1)).transpose(-2, -1)


def context_first(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """A softmax over channels x channels, which the queries are multiplied with."""
    return q @ (k.transpose(-2, -1) @ v).softmax(-1)


class Mixing(nn.Module):
    def __init__(self, mix: Mix, heads: int) -> None:
        super().__init__()
        self.mix, self.num_heads = mix, heads
        self.qkv, self.proj = nn.Linear(64, 192), nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.num_heads, d // self.num_heads).permute(2, 0, 3, 1, 4)
        return self.proj(self.mix(q, k, v).transpose(1, 2).reshape(b, n, d))


def vit_of(mix: Mix, heads: int = 2) -> PlainViT:
    torch.manual_seed(0)
    model = PlainViT()
    for block in model.blocks:
        block.attn = Mixing(mix, heads)  # pyright: ignore
    return model


@pytest.mark.parametrize(
    ("mix", "axis"),
    [
        (by_hand(-2), "queries"),
        (by_hand(1), "heads"),
        (by_hand(0), "pictures"),
        (by_einsum(2), "queries"),
        (by_batches(1), "queries"),
        (values_first(-2), "queries"),
    ],
)
def test_a_softmax_over_another_axis(patient: Make, mix: Mix, axis: str) -> None:
    seen = softmax_axis(patient(vit_of(mix)))
    assert causes(seen) == ["softmax_wrong_axis"]
    (found,) = seen.findings
    assert (found.numbers["axis"], found.numbers["count"], found.numbers["of"]) == (axis, 3, 3)
    assert found.numbers["least"] < 1 < found.numbers["most"] or axis != "queries"


@pytest.mark.parametrize("mix", [by_hand(-1), by_einsum(3), by_batches(2), values_first(-1), turned])
def test_a_softmax_over_the_keys(patient: Make, mix: Mix) -> None:
    seen = softmax_axis(patient(vit_of(mix)))
    assert causes(seen) == []
    assert seen.measured == {"products": 3, "wrong": 0}


@pytest.mark.parametrize("mix", [linear, linear_of_features, sigmoid, slots, channels, context_first])
@pytest.mark.parametrize("heads", [2, 4])
def test_attention_of_another_kind_is_left_alone(patient: Make, mix: Mix, heads: int) -> None:
    """Heads of 16 numbers with 16 tokens too, where features and tokens cannot be told apart."""
    assert softmax_axis(patient(vit_of(mix, heads))).left_out == "no_weights_to_see"


def test_queries_that_begin_at_zero_hide_nothing(patient: Make) -> None:
    model = vit_of(by_hand(-2))
    for block in model.blocks:
        nn.init.zeros_(block.attn.qkv.weight)  # pyright: ignore
    assert causes(softmax_axis(patient(model))) == ["softmax_wrong_axis"]


@pytest.mark.parametrize("name", ["timm vit", "timm deit3", "torch encoder, pre-norm", "transformers vit"])
def test_networks_of_other_houses(patient: Make, name: str) -> None:
    model = healthy(name)
    for module in model.modules():
        if hasattr(module, "fused_attn"):
            module.fused_attn = False  # pyright: ignore
    assert causes(softmax_axis(patient(model))) == []


def test_ours_is_fused_and_right(patient: Make) -> None:
    assert softmax_axis(patient(small_vit())).left_out == "no_weights_to_see"

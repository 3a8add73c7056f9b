"""Random numbers that are functions of what they are for, on any device, without a generator.

A generator's state would have to be saved, split between workers and kept in step between processes. Here each picture
of an epoch has a key, made from (seed, epoch, index, copy); every draw hashes the key with the number of its stream.
Integer arithmetic only, so CPU and GPU agree to the bit; no host sync, so it can be compiled and captured.

The hash is SplitMix64's finaliser (Steele, Lea, Flood 2014), which passes the usual test batteries on counters.
B pictures.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.core.seed import derive_seed

_GOLDEN = 0x9E3779B97F4A7C15
_FIRST = 0xBF58476D1CE4E5B9
_SECOND = 0x94D049BB133111EB
_BITS = 24
"""A float32 holds 24 bits exactly."""


def epoch_key(seed: int, epoch: int, purpose: str) -> int:
    """What distinguishes one epoch of one run from all others, for one purpose."""
    return derive_seed(seed, purpose, epoch)


def picture_keys(key: Tensor | int, indices: Tensor, copies: Tensor | int = 0) -> Tensor:
    """A key (B,) for each picture; `copies` tells the variations of one picture within an epoch apart."""
    return scrambled(scrambled(indices * _signed(_GOLDEN) + copies) ^ key)


def uniform(keys: Tensor, stream: int, low: float = 0.0, high: float = 1.0) -> Tensor:
    """(B,) float32 in [low, high)."""
    unit = _bits(keys, stream).to(torch.float32) * (1.0 / 2**_BITS)
    return unit if (low, high) == (0.0, 1.0) else low + unit * (high - low)


def uniforms(keys: Tensor, stream: int, count: int) -> Tensor:
    """(B, count) float32 in [0, 1), from `count` streams on from `stream`.

    Stream by stream: a product of counted numbers and a 64-bit constant is index arithmetic to torch's compiler, which
    takes it for a mistake.
    """
    return torch.stack([uniform(keys, stream + place) for place in range(count)], dim=1)


def integers(keys: Tensor, stream: int, limit: Tensor | int) -> Tensor:
    """(B,) int64 from 0 to limit - 1; `limit` may differ between pictures. Uneven by less than limit / 2**24."""
    return (_bits(keys, stream) * limit) >> _BITS


def coins(keys: Tensor, stream: int, chance: float) -> Tensor:
    """(B,) bool, true with this chance."""
    return uniform(keys, stream) < chance


def scrambled(values: Tensor) -> Tensor:
    """SplitMix64's finaliser on int64, read as 64 bits without a sign."""
    values = (values ^ _shifted(values, 30)) * _signed(_FIRST)
    values = (values ^ _shifted(values, 27)) * _signed(_SECOND)
    return values ^ _shifted(values, 31)


def scrambled_bits(values: Tensor) -> Tensor:
    return _shifted(scrambled(values), 64 - _BITS)


def _bits(keys: Tensor, stream: int) -> Tensor:
    return scrambled_bits(keys + _signed(_GOLDEN * stream))


def _shifted(values: Tensor, places: int) -> Tensor:
    """A right shift that brings in zeros; torch's own repeats the sign."""
    return (values >> places) & ((1 << (64 - places)) - 1)


def _signed(constant: int) -> int:
    """64 bits as the int64 that has them."""
    constant &= (1 << 64) - 1
    return constant - (1 << 64) if constant >> 63 else constant

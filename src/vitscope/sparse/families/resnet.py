"""A ResNet's units: the inner channels of its blocks, one group for each convolution of a block but the last.

What the last one writes is added to the residual stream, which all blocks of a stage share: those channels stay.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from vitscope.core.config import updated
from vitscope.models.config import ResNetConfig
from vitscope.sparse.families.channels import channels, require_some
from vitscope.sparse.pieces import CHANNELS, Group


def groups(config: ResNetConfig) -> tuple[Group, ...]:
    """Block by block; of a bottleneck the outputs of conv1, then of conv2."""
    places = [(at, number) for at, inner, _ in _blocks(config) for number in range(1, inner + 1)]
    return tuple(
        channels(group, count, filters=f"{at}.conv{number}", norm=f"{at}.bn{number}", reader=f"{at}.conv{number + 1}")
        for group, ((at, number), count) in enumerate(zip(places, config.block_widths, strict=True))
    )


def smaller_config(config: ResNetConfig, counts: Mapping[str, tuple[int, ...]]) -> ResNetConfig:
    require_some(counts[CHANNELS])
    small = updated(config, inner_widths=counts[CHANNELS])
    plain = updated(config, inner_widths=None)
    return plain if plain.block_widths == small.block_widths else small


def prunable(config: ResNetConfig, *, patch_embed: bool) -> list[str]:
    """All convolutions, the first and the shortcuts' too. There are no patches to ask for."""
    names = ["conv1.weight"]
    for at, inner, has_shortcut in _blocks(config):
        names += [f"{at}.conv{number}.weight" for number in range(1, inner + 2)]
        names += [f"{at}.downsample.0.weight"] if has_shortcut else []
    return names


def _blocks(config: ResNetConfig) -> Iterator[tuple[str, int, bool]]:
    """Of each block its name, its inner convolutions, and whether its shortcut is a convolution."""
    inner = config.inner_convolutions
    for stage, depth in enumerate(config.depths, start=1):
        for block in range(depth):
            first = block == 0 and (stage > 1 or config.block == "bottleneck")
            yield f"layer{stage}.{block}", inner, first

"""A CNN's units: the channels of every convolution, a group each; the next convolution or the head reads them."""

from __future__ import annotations

from collections.abc import Mapping

from vitscope.core.config import updated
from vitscope.models.config import CNNConfig
from vitscope.sparse.families.channels import channels, require_some
from vitscope.sparse.pieces import CHANNELS, Group


def groups(config: CNNConfig) -> tuple[Group, ...]:
    """Stage by stage, conv1 and conv2. Where there is no head, the last channels are the features, and stay."""
    names = [(f"stages.{stage}", number) for stage in range(len(config.widths)) for number in (1, 2)]
    counts = [count for pair in zip(config.block_widths, config.widths, strict=True) for count in pair]
    readers = [f"{at}.conv{number}" for at, number in names[1:]] + (["head"] if config.num_classes else [])
    return tuple(
        channels(group, count, filters=f"{at}.conv{number}", norm=f"{at}.bn{number}", reader=reader)
        for group, ((at, number), count, reader) in enumerate(zip(names, counts, readers, strict=False))
    )


def smaller_config(config: CNNConfig, counts: Mapping[str, tuple[int, ...]]) -> CNNConfig:
    require_some(counts[CHANNELS])
    inner, outer = counts[CHANNELS][0::2], counts[CHANNELS][1::2]
    if not config.num_classes:
        outer = (*outer, config.widths[-1])
    return updated(config, widths=outer, inner_widths=None if inner == outer else inner)


def prunable(config: CNNConfig, *, patch_embed: bool) -> list[str]:
    """All convolutions. There are no patches to ask for."""
    return [f"stages.{stage}.conv{number}.weight" for stage in range(len(config.widths)) for number in (1, 2)]

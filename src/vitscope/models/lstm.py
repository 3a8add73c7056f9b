"""An image read row by row by a recurrent network (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

B batch, C channels, H rows (the steps), W columns, D width of the state (twice that when read both ways).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.errors import ConfigError, expected
from vitscope.models.config import LSTMConfig, Size, pair
from vitscope.models.init import init_recurrent
from vitscope.models.model import VisionModel, make_head


class LSTM(VisionModel):
    """Images (B, C, H, W) -> logits (B, num_classes)."""

    config: LSTMConfig

    def __init__(self, config: LSTMConfig) -> None:
        super().__init__(config)
        self.num_features = config.embed_dim * (2 if config.bidirectional else 1)
        self.lstm = nn.LSTM(
            config.in_chans * pair(config.img_size)[1],
            config.embed_dim,
            config.depth,
            batch_first=True,
            bidirectional=config.bidirectional,
            dropout=config.drop_rate if config.depth > 1 else 0.0,  # between layers: one layer has none
        )
        self.head_drop = nn.Dropout(config.head_drop_rate)
        init_recurrent(self.lstm)
        self.head = make_head(self.num_features, config.num_classes)

    def forward_features(self, images: Tensor) -> Tensor:
        """The state of the last layer after every row: (B, H, D)."""
        self.check_images(images)
        rows = images.transpose(1, 2).flatten(2)
        states, _ = self.lstm(rows)
        return states

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor:
        """Classify the last state; the one that reads upwards ends at the first row."""
        last = features[:, -1]
        if self.config.bidirectional:
            down, up = last[:, : self.config.embed_dim], features[:, 0, self.config.embed_dim :]
            last = torch.cat([down, up], dim=1)
        last = self.head_drop(last)
        return last if pre_logits else self.head(last)

    def set_input_size(self, img_size: Size, *, patch_size: Size | None = None, **how: Any) -> None:
        """Any number of rows; their width is built in."""
        width = pair(self.config.img_size)[1]
        if pair(img_size)[1] != width:
            raise ConfigError(
                expected("img_size", f"a width of {width}, which the weights are made for", img_size),
                fix=f"resize the images to width {width}, or build a new model",
            )
        super().set_input_size(img_size, patch_size=patch_size)

"""Of a masked model (MAE, SimMIM) the encoder alone, as the plain ViT it is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Entry, Ledger

BEFORE = "encoder."
PAINTS = "paints hidden patches, which only masked training does"


def encoder_of(masked: Any, config: ModelConfig, ledger: Ledger) -> tuple[VisionModel, Ledger]:
    """The encoder of `masked` as a model of `config`, which has its layers, and the entries of its tensors alone."""
    tensors = masked.encoder.state_dict()
    with torch.device("meta"):
        model = build_model(config)
    model.load_state_dict(tensors, strict=True, assign=True)
    model.reset_buffers()
    taken = Ledger(others=list(ledger.others), remarks=list(ledger.remarks), cast=ledger.cast)
    for entry in ledger.said.values():
        name = str(entry.ours)
        if name.startswith(BEFORE):
            taken.add(replace(entry, ours=name.removeprefix(BEFORE)))
        elif entry.theirs:
            taken.add(Entry("left out", None, None, entry.theirs, entry.their_shapes, PAINTS))
    return model, taken

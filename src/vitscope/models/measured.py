"""What the six named models take on a real GPU: `python bench/six_models.py`, one NVIDIA H200. Imports no torch.

Training: compiled, bf16 autocast, fp32 weights, fused AdamW. Inference: compiled, bf16.
"""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    batch: int
    train_images_per_s: int
    train_memory_gb: float
    infer_images_per_s: int


HARDWARE = "one NVIDIA H200"
MEASURED: dict[str, Measured] = {}

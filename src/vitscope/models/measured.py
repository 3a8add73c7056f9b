"""What the six named models take on a real GPU (bf16 autocast, fp32 weights, AdamW). Imports no torch.

Memory: `python bench/six_models.py`. Speed: `python bench/six_models.py --compile --large-batch`. docs/benchmarks.md
has the spread.
"""

from __future__ import annotations

from typing import NamedTuple


class Measured(NamedTuple):
    memory_batch: int
    train_memory_gb: float
    """Peak, eager, at `memory_batch` images."""
    speed_batch: int
    train_images_per_s: int
    """Compiled, at `speed_batch` images."""
    infer_images_per_s: int
    """Compiled, in bf16."""


HARDWARE = "one NVIDIA H200"
MEASURED = {
    "vit_tiny": Measured(128, 0.54, 1024, 59_121, 386_889),
    "vit_small": Measured(128, 1.87, 1024, 30_834, 105_899),
    "vit_base": Measured(128, 4.19, 1024, 11_520, 38_442),
    "vit_small_imagenet": Measured(64, 2.68, 256, 9_569, 33_999),
    "vit_base_imagenet": Measured(64, 5.77, 256, 3_690, 12_547),
    "vit_large_imagenet": Measured(64, 15.88, 256, 1_235, 3_942),
}

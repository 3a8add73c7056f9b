"""Types of numbers by the short names people give them. Imports torch: whoever parses arguments comes here after it."""

from __future__ import annotations

import torch

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SHORT_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}


def usual_dtype(device: torch.device) -> torch.dtype:
    """What a model is asked in where nobody says, and what torchao's kernels want around 8 bits: bf16 on a GPU, fp32
    elsewhere."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32


def type_name(dtype: torch.dtype) -> str:
    """As torch writes it: 'float32'."""
    return str(dtype).removeprefix("torch.")

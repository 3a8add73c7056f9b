"""Types of numbers by the short names people give them. Imports torch: whoever parses arguments comes here after it."""

from __future__ import annotations

import torch

TORCH_DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
SHORT_NAMES = {dtype: name for name, dtype in TORCH_DTYPES.items()}

"""How numbers are computed: their type, and how a step is launched."""

from __future__ import annotations

from typing import Literal

from vitscope.core.config import config


@config
class PrecisionConfig:
    """How numbers are computed: their type, and how a step is launched."""

    dtype: Literal["auto", "fp32", "bf16", "fp16"] = "auto"
    """Type of the arithmetic; weights stay fp32. `auto`: bf16 on a GPU that has it, else fp32. fp16 scales its loss."""
    launch: Literal["auto", "eager", "compiled", "graph", "compiled_graph"] = "auto"
    """How a step is launched: kernel by kernel, through `torch.compile`, as one CUDA graph, or both. `auto`: eager on
    the CPU, on a GPU a CUDA graph, and of compiled kernels where the run is long enough to pay for compiling."""
    tf32: bool = False
    """Let fp32 matrix products on a GPU round to tf32: faster, three digits."""
    grad_checkpointing: bool = False
    """Recompute activations in the backward pass instead of keeping them: less memory, more time."""
    deterministic: bool = False
    """Use only algorithms that give the same bits every time, on a GPU too. Slower."""

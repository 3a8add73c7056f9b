"""Did the memory run out? Evaluation and the training step then go on with fewer pictures at once."""

from __future__ import annotations

import torch

SAID_OF_FULL_MEMORY = (
    "can't allocate memory",  # the CPU allocator on Linux and macOS
    "not enough memory",  # on Windows
    "CUDA out of memory",
    "CUDA error: out of memory",
    "MPS backend out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED",
    "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether fewer pictures at once may help: told by the kind of the error, and where torch has no kind for it (the
    CPU, cuBLAS, cuDNN) by its words."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in SAID_OF_FULL_MEMORY)

"""A model in smaller numbers: half precision, or linear layers in 8 bits.

`int8` keeps weights in 8 bits and rounds what goes into a layer to 8 bits too, row by row, as it comes; `int8_weights`
rounds the weights alone. Both are torchao's. The first pays only when compiled.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from vitscope.core.dtypes import TORCH_DTYPES, usual_dtype
from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.models.model import VisionModel
from vitscope.weights.proof import in_silence

Dtype = Literal["fp32", "bf16", "fp16", "int8", "int8_weights"]
DTYPES: tuple[Dtype, ...] = get_args(Dtype)


def in_dtype(
    model: VisionModel, dtype: Dtype | torch.dtype, device: torch.device, *, keep_float: Sequence[str] = ()
) -> tuple[VisionModel, torch.dtype]:
    """`model` on a device in such numbers, in eval mode, and the type its images must have.

    Where its numbers are others a copy is made: the given one keeps them. `keep_float` names layers that stay floats,
    as patterns: 'head', 'blocks.0.*'.
    """
    if isinstance(dtype, torch.dtype) or dtype in TORCH_DTYPES:
        kind = dtype if isinstance(dtype, torch.dtype) else TORCH_DTYPES[dtype]
        if keep_float:
            raise UsageError("keep_float is for 8 bits", where=f"dtype {dtype}", fix="take dtype 'int8'")
        if any(tensor.is_floating_point() and tensor.dtype != kind for tensor in model.state_dict().values()):
            model = deepcopy(model)
        return model.to(device, kind).eval(), kind
    if dtype not in DTYPES:
        fix = did_you_mean(str(dtype), DTYPES) or "leave it out for fp32"
        raise UsageError(expected("dtype", f"one of {', '.join(DTYPES)}", dtype), where="a model's numbers", fix=fix)
    around = usual_dtype(device)
    copied = deepcopy(model).to(device, around).eval()
    chosen = set(linear_layers(copied)) - set(matching(linear_layers(copied), keep_float))
    quantise(copied, dtype, chosen)
    return copied, around


def linear_layers(model: nn.Module) -> list[str]:
    """The layers 8 bits are for, by name, from the first to the last."""
    return [name for name, module in model.named_modules() if isinstance(module, nn.Linear)]


def matching(layers: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The layers some pattern fits; a pattern that fits none is an error."""
    found: list[str] = []
    for pattern in patterns:
        fitting = fnmatch.filter(layers, pattern)
        if not fitting:
            wanted = f"the name of a linear layer, such as {', '.join(layers[:2])}, or a pattern of such names"
            fix = did_you_mean(pattern, layers) or "`vitscope bench MODEL --cheaper --sensitivity` lists the layers"
            raise UsageError(expected("keep_float", wanted, pattern), where="layers to keep in floats", fix=fix)
        found += fitting
    return [name for name in layers if name in set(found)]


def quantise(module: nn.Module, dtype: str, layers: set[str]) -> None:
    """Round the named linear layers of `module`, in place."""
    try:
        with in_silence():  # it warns of its own enums
            from torchao import quantization
    except ImportError:
        raise VitscopeError(
            "8 bits need torchao, which is not installed", where=f"dtype {dtype}", fix="pip install 'vitscope[quant]'"
        ) from None
    weights_alone = dtype == "int8_weights"
    how = quantization.Int8WeightOnlyConfig if weights_alone else quantization.Int8DynamicActivationInt8WeightConfig
    quantization.quantize_(module, how(), filter_fn=lambda layer, name: isinstance(layer, nn.Linear) and name in layers)


def quantised(model: nn.Module) -> bool:
    """Whether some of its weights are kept in 8 bits."""
    return any(hasattr(parameter, "__tensor_flatten__") for parameter in model.parameters())


def size_bytes(model: nn.Module) -> int:
    """Of all tensors, however they are kept. What several places share counts once."""
    tensors = {id(tensor): tensor for tensor in [*model.parameters(), *model.buffers()]}
    return sum(_bytes(tensor) for tensor in tensors.values())


def _bytes(tensor: Tensor) -> int:
    inside: Any = getattr(tensor, "__tensor_flatten__", None)
    if inside is None:
        return tensor.numel() * tensor.element_size()
    return sum(_bytes(getattr(tensor, name)) for name in inside()[0])

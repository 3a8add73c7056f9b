"""2:4 sparsity: of every four neighbours along a weight's input axis two stay, a pattern that GPUs have units for
(Mishra et al. 2021, arXiv 2104.08378). Masks of it for any device, and the network on the sparse units of a GPU."""

from __future__ import annotations

import copy
import logging
import warnings
from collections.abc import Iterator

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.core.dtypes import type_name
from vitscope.core.errors import InputError, UsageError, VitscopeError, expected
from vitscope.models.model import VisionModel
from vitscope.sparse.layout import network_of
from vitscope.sparse.masks import Masks, prunable

GROUP, KEPT = 4, 2
LEAST_CAPABILITY = (8, 0)
"""Ampere: the first GPUs with sparse units."""
DTYPES = (torch.bfloat16, torch.float16)

log = logging.getLogger("vitscope")


@torch.no_grad()
def two_of_four(model: nn.Module) -> Masks:
    """Masks of all prunable linear weights whose input axis is a multiple of four: in each four the two largest by |w|
    stay, of equal ones those that come first. Exactly half of each is left. A weight that does not fit has no mask."""
    masks = {name: _largest_two(name, layer.weight) for name, layer in _linears(model) if _fits(layer)}
    if not masks:
        raise InputError(
            expected("model", "prunable linear weights with inputs in fours", "a network that has none"),
            where="2:4 sparsity",
            fix="take a ViT; filters of convolutions have no 2:4 kernels",
        )
    return masks


def is_two_of_four(weight: Tensor) -> bool:
    """Whether no four neighbours along the last axis hold more than two numbers that are not 0."""
    return weight.shape[-1] % GROUP == 0 and bool(
        ((weight.detach() != 0).unflatten(-1, (-1, GROUP)).sum(-1) <= 2).all()
    )


def why_no_two_of_four(device: torch.device) -> str | None:
    """None where a device has units for it and torch can reach them."""
    if device.type != "cuda":
        return f"'{device.type}' has no 2:4 units: they are in NVIDIA GPUs of compute capability 8.0 and later"
    if not torch.cuda.is_available():
        return "no CUDA GPU is here"
    capability = torch.cuda.get_device_capability(device)
    if capability < LEAST_CAPABILITY:
        return f"{torch.cuda.get_device_name(device)} has compute capability {capability[0]}.{capability[1]}, not 8.0"
    if not hasattr(torch.sparse, "to_sparse_semi_structured"):
        return f"torch {torch.__version__} has no torch.sparse.to_sparse_semi_structured"
    return None


class TwoOfFour(nn.Module):
    """A network for inference whose linear layers run on a GPU's sparse units. It is neither trained nor saved."""

    def __init__(self, network: VisionModel, sparse: tuple[str, ...], left_dense: dict[str, str]) -> None:
        super().__init__()
        self.network = network
        self.sparse = sparse
        """Weights that the sparse units multiply by."""
        self.left_dense = left_dense
        """Prunable weights that stayed dense, and why."""

    def forward(self, images: Tensor) -> Tensor:
        return self.network(images)


class SparseLinear(nn.Module):
    """`nn.Linear` with a weight that only sparse units read. No parameter: casts and moves would not know it."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.weight, self.bias = weight, bias

    def forward(self, x: Tensor) -> Tensor:
        # Some backends give the transposed product, which attention would have to copy anyway.
        return F.linear(x, self.weight, self.bias).contiguous()


@torch.no_grad()
def as_two_of_four(model: nn.Module, device: torch.device | str, *, dtype: torch.dtype = torch.bfloat16) -> TwoOfFour:
    """A copy of `model`, whose prunable weights are 2:4 already, for inference on a GPU. Layers whose shape torch has
    no kernel for stay dense: they are in `left_dense`, and the log names them."""
    device = torch.device(device)
    missing = why_no_two_of_four(device)
    if missing is not None:
        raise UsageError(
            f"2:4 kernels cannot run here: {missing}",
            where="as_two_of_four",
            fix="take a GPU that has them, or the masked network",
        )
    if dtype not in DTYPES:
        wanted = " or ".join(type_name(one) for one in DTYPES)
        raise UsageError(expected("dtype", wanted, type_name(dtype)), where="as_two_of_four")
    _refuse_other_patterns(model)
    network = copy.deepcopy(network_of(model)).to(device, dtype).eval()
    left_dense: dict[str, str] = {}
    done: list[str] = []
    for name, layer in list(_linears(network)):
        try:
            _put_in_place(network, name, SparseLinear(_compressed(layer.weight), _plain(layer.bias)))
            done.append(name)
        except (RuntimeError, NotImplementedError) as error:  # how torch refuses a shape
            left_dense[name] = str(error).splitlines()[0]
    if not done:
        name, reason = next(iter(left_dense.items()), ("", "the network has no prunable linear weights"))
        raise VitscopeError(
            f"torch takes no weight of this network as 2:4: {reason}",
            where=name or "as_two_of_four",
            fix="take a network whose widths are multiples of 64, or a torch with cuSPARSELt",
        )
    for name, reason in left_dense.items():
        log.warning("%s stays dense: %s", name, reason)
    return TwoOfFour(network, tuple(done), left_dense)


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Prunable weights of linear layers by their names, with the layers."""
    network = network_of(model)
    for name in prunable(network):
        layer = network.get_submodule(name.rpartition(".")[0])
        if isinstance(layer, nn.Linear):
            yield name, layer


def _fits(layer: nn.Linear) -> bool:
    return layer.in_features % GROUP == 0


def _largest_two(name: str, weight: Tensor) -> Tensor:
    sizes = weight.detach().abs()
    if not bool(torch.isfinite(sizes).all()):
        raise InputError(f"{name} is not finite: its weights cannot be compared", fix="take a good checkpoint")
    fours = sizes.unflatten(-1, (-1, GROUP))
    largest = fours.sort(dim=-1, descending=True, stable=True).indices[..., :KEPT]
    return torch.zeros_like(fours, dtype=torch.bool).scatter_(-1, largest, value=True).flatten(-2)


def _refuse_other_patterns(model: nn.Module) -> None:
    for name, layer in _linears(model):
        if _fits(layer) and not is_two_of_four(layer.weight):
            raise InputError(
                expected(name, "at most two of each four neighbours that are not 0", "more"),
                where="as_two_of_four",
                fix="apply_masks(model, two_of_four(model)) first, and train on with MaskHook",
            )


def _compressed(weight: Tensor) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The PyTorch API of SparseSemiStructuredTensor is in prototype", UserWarning)
        sparse = torch.sparse.to_sparse_semi_structured(weight.detach().contiguous())
    # Where the backend can, the product comes out as the next layer reads it, not transposed.
    sparse.fuse_transpose_cusparselt = True
    return sparse


def _plain(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else bias.detach()


def _put_in_place(network: nn.Module, name: str, layer: nn.Module) -> None:
    path, _, _ = name.rpartition(".")
    parent, _, leaf = path.rpartition(".")
    setattr(network.get_submodule(parent), leaf, layer)

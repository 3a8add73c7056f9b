"""Tensors that several processes hold together, each its rows: what torch's FSDP2 makes of a model's parameters.

A sharded tensor (a DTensor) has the shape of the whole, and `local` is this process's part of it: with P processes and
n rows ceil(n / P) of them, in order, so that the last ones may hold fewer, or none. A plain tensor is asked the same
questions and answers as one that is held alone. What `made_whole`, `gathered` and `with_all_rows` say must be asked by
all processes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

import torch
from torch import Tensor, distributed, nn

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.tensor import DTensor


def make_mesh(device: torch.device, world: int) -> DeviceMesh:
    """All processes in a row."""
    from torch.distributed.device_mesh import init_device_mesh

    return init_device_mesh(device.type, (world,))


def cut_parameters(model: nn.Module, mesh: DeviceMesh) -> None:
    """Leave each process its rows of every parameter, on the mesh's device. A block is whole only while it works; what
    lies outside of blocks is whole while the model works. Says nothing to other processes."""
    from torch.distributed.fsdp import fully_shard

    stacks = [module for name, module in model.named_modules() if name.rpartition(".")[2].endswith("blocks")]
    for stack in stacks:
        for block in stack.children():
            fully_shard(block, mesh=mesh, reshard_after_forward=True)
    # The root too gives its parameters back after an evaluation: what was whole would outlive a change of the rows.
    fully_shard(model, mesh=mesh, reshard_after_forward=True)


def is_sharded(tensor: Tensor) -> TypeGuard[DTensor]:
    """Asked by name: a torch built without `distributed` has no DTensor to compare with."""
    return hasattr(tensor, "to_local")


@torch.no_grad()
def local(tensor: Tensor) -> Tensor:
    """What this process holds, in the memory where it lies."""
    return tensor.to_local() if is_sharded(tensor) else tensor


@torch.no_grad()
def made_whole(tensor: Tensor) -> Tensor:
    """All of it, on its device, in every process."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def leaf(parameter: nn.Parameter) -> nn.Parameter:
    """What this process holds as a parameter of its own, in the same memory; a plain one itself."""
    return nn.Parameter(local(parameter).detach()) if is_sharded(parameter) else parameter


def like(wanted: Tensor, rows: Tensor, whole: Tensor | None = None) -> Tensor:
    """This process's `rows` as a tensor cut up as `wanted` is; of the shape of `whole`, where that is another."""
    if not is_sharded(wanted):
        return rows
    from torch.distributed.tensor import DTensor

    shown = wanted if whole is None else whole
    return DTensor.from_local(
        rows, wanted.device_mesh, wanted.placements, run_check=False, shape=shown.shape, stride=shown.stride()
    )


def own_part(wanted: Tensor, whole: Tensor, axis: int = 0) -> Tensor:
    """Of a `whole` tensor the rows that this process holds where it is cut up as `wanted` is."""
    if not is_sharded(wanted):
        return whole
    rows = _most_rows(wanted, whole.shape[axis])
    start = min(wanted.device_mesh.get_local_rank() * rows, whole.shape[axis])
    return whole.narrow(axis, start, min(rows, whole.shape[axis] - start))


@torch.no_grad()
def copy_into(tensor: Tensor, whole: Tensor) -> None:
    """Let `tensor` have the values of `whole`, in the memory it has."""
    local(tensor).copy_(own_part(tensor, whole))


def cut_up(wanted: Mapping[str, Tensor], wholes: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Whole tensors, each cut up as the one of its name in `wanted` is, for a model's `load_state_dict`."""
    return {
        name: like(wanted[name], own_part(wanted[name], whole), whole) if name in wanted else whole
        for name, whole in wholes.items()
    }


@torch.no_grad()
def gathered(value: Any, *, keeps: bool) -> Any:
    """Every sharded tensor in dicts and lists made whole, on the CPU; None in its place where a process does not keep
    it. One after the other, so that no more than one is whole on a device. What is not sharded stays as it is."""
    if isinstance(value, Tensor):
        if not is_sharded(value):
            return value
        found = made_whole(value)
        return found.cpu() if keeps else None
    if isinstance(value, Mapping):
        return {key: gathered(item, keeps=keeps) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(gathered(item, keeps=keeps) for item in value)
    return value


def with_all_rows(wanted: Tensor, rows: Tensor) -> Tensor:
    """(n, own rows, c) of n matrices cut up as `wanted` is -> (n, all rows, c), in every process."""
    if not is_sharded(wanted):
        return rows
    mesh, count = wanted.device_mesh, wanted.shape[0]
    most = _most_rows(wanted, count)
    own = rows.new_zeros(len(rows), most, rows.shape[2])
    own[:, : rows.shape[1]] = rows
    found = own.new_empty(mesh.size() * len(rows), most, rows.shape[2])
    distributed.all_gather_into_tensor(found, own, group=mesh.get_group())
    return found.unflatten(0, (mesh.size(), len(rows))).transpose(0, 1).flatten(1, 2)[:, :count]


def _most_rows(wanted: DTensor, count: int) -> int:
    return -(-count // wanted.device_mesh.size())

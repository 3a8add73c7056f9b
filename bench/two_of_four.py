"""What 2:4 sparsity brings on this GPU: inference of a network on the sparse units beside itself dense, and whether a
training step on them pays.

    python bench/two_of_four.py --device cuda                        # as in docs/benchmarks.md
    python bench/two_of_four.py --device cuda --works inference      # without training
    python bench/two_of_four.py --device cpu --quick                 # masks only: a CPU has no such units

Inference: bf16 weights, both launched the same way, in turns; the logits on the sparse units are first proved to be
those of the masked dense network. Training: fp32 weights under bf16 autocast, fused AdamW. There the weights are cut to
2:4 along both axes in every step (4 x 4 tiles), since the backward pass multiplies by the transposed weight. torch has
the kernels of that (`prune_dense_static_sort`), but no linear layer that trains with them; the one below is as
torchao's SemiSparseLinear: sparse products forward and for the inputs' gradient, a dense one for the weights'.
What cannot be timed is named, with the reason, and has no number.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.sparse import SparseSemiStructuredTensorCUSPARSELT as SparseTensor

from report import report
from vitscope.infer.benchmark.contest import Row, release, run_row
from vitscope.infer.benchmark.peers import short
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Clock, paired_ratio, summary
from vitscope.infer.benchmark.work import make_batch, prepare_device
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.sparse.fresh_two_of_four import CLOSE, fresh_two_of_four, masked_two_of_four, prove_two_of_four
from vitscope.sparse.masks import density, prunable
from vitscope.sparse.two_of_four import as_two_of_four, two_of_four, why_no_two_of_four
from vitscope.train.config import named_model

MODELS = {"vit_base_patch16_224": 256, "vit_small": 1024, "vit_tiny": 256}
"""With the pictures of a batch."""
LAUNCHES = {"inference": ("eager", "graph", "compiled_graph"), "train": ("eager", "compiled")}
LEGEND = "Milliseconds of a batch, medians; dense / 2:4 above 1: the sparse units are faster (quartiles)."


class SparseProduct(torch.autograd.Function):
    """x W^T + b with W cut to 2:4 along both axes as it is used."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        sparse = SparseTensor.prune_dense_static_sort(weight.detach())
        sparse.fuse_transpose_cusparselt = True
        ctx.save_for_backward(x)
        ctx.sparse = sparse
        return torch.addmm(bias, x, sparse.t())

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (x,), (grad,) = ctx.saved_tensors, grads
        grad = grad.contiguous()
        return torch.mm(grad, ctx.sparse), grad.t() @ x, grad.sum(0)


class TrainedSparse(nn.Module):
    """A linear layer that trains on the sparse units, in bf16."""

    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: Tensor) -> Tensor:
        flat, weight, bias = (t.to(torch.bfloat16) for t in (x.flatten(0, -2), self.weight, self.bias))
        with torch.autocast(x.device.type, enabled=False):
            out: Any = SparseProduct.apply(flat, weight, bias)
        return out.unflatten(0, x.shape[:-1])


def trained_sparse(config: ModelConfig) -> nn.Module:
    """The network with its prunable layers on the sparse units."""
    model = build_model(config)
    for name in prunable(model):
        path = name.removesuffix(".weight")
        parent, _, leaf = path.rpartition(".")
        layer = model.get_submodule(path)
        if isinstance(layer, nn.Linear) and isinstance(layer.bias, Tensor):
            setattr(model.get_submodule(parent), leaf, TrainedSparse(layer))
    return model


def prove_training(device: torch.device) -> float:
    """How far a layer's outputs and gradients are from those of a dense one with the weight that the cut leaves, over
    their deviation."""
    torch.manual_seed(0)
    layer = TrainedSparse(nn.Linear(256, 512).to(device))
    x = torch.randn(4, 64, 256, device=device, requires_grad=True)
    said = layer(x)
    (mine,) = torch.autograd.grad(said.float().square().sum(), x)
    cut = SparseTensor.prune_dense_static_sort(layer.weight.detach().to(torch.bfloat16)).to_dense()
    wanted = x.to(torch.bfloat16) @ cut.t() + layer.bias.to(torch.bfloat16)
    (theirs,) = torch.autograd.grad(wanted.float().square().sum(), x)
    pairs = ((said.detach().float(), wanted.detach().float()), (mine, theirs))
    apart = max(float((one - other).abs().max() / other.std()) for one, other in pairs)
    if not apart <= CLOSE:
        raise ValueError(f"a sparse layer's outputs or gradients are {apart:.2g} of their deviation from a dense one's")
    return apart


def settings(name: str, *, quick: bool) -> ModelConfig:
    named = named_model(name)
    return (named.changed(depth=1) if quick else named).bare


def measure(
    name: str, config: ModelConfig, work: str, launch: str, batch: int, device: torch.device, wish: argparse.Namespace
) -> dict[str, Any]:
    """Both competitors in turns, or why not."""
    told: dict[str, Any] = {"model": name, "work": work, "launch": launch, "batch": batch}
    images, labels = make_batch(batch, pair(config.img_size), config.in_chans, config.num_classes, device)
    sparse = partial(fresh_two_of_four, config, device) if work == "inference" else partial(trained_sparse, config)
    result = run_row(
        Row(name, work, launch, batch),  # pyright: ignore[reportArgumentType]
        {"dense": partial(build_model, config), "2:4": sparse},
        images,
        labels,
        clock=Clock(device),
        rounds=wish.rounds,
        least_seconds=0.01 if wish.quick else 0.3,
    )
    release(device)
    return told | {"seconds": result.seconds, "problems": result.problems}


def masks_hold(config: ModelConfig, device: torch.device) -> str:
    """What needs no such units: the masks of this network."""
    masks = two_of_four(masked_two_of_four(config, device))
    return f"{len(masks)} weights masked, {density(masks):.1%} of them left"


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        LEGEND,
        "",
        "| model | work | launch | batch | dense, ms | 2:4, ms | dense / 2:4 |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for row in rows:
        times: dict[str, list[float]] = row["seconds"]
        cells = [f"{1e3 * summary(times[who]).median:.3f}" if who in times else "not timed" for who in ("dense", "2:4")]
        ratio = paired_ratio(times["dense"], times["2:4"]) if {"dense", "2:4"} <= set(times) else None
        cells.append("-" if ratio is None else f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")
        lines.append(f"| {' | '.join([row['model'], row['work'], row['launch'], str(row['batch']), *cells])} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    parser.add_argument("--works", nargs="+", default=list(LAUNCHES), choices=list(LAUNCHES))
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does the script work?")
    parser.add_argument("--json", type=Path)
    wish = parser.parse_args()
    device = torch.device(wish.device)
    prepare_device(device)
    rows: list[dict[str, Any]] = []
    for name in wish.models:
        config, batch = settings(name, quick=wish.quick), 8 if wish.quick else MODELS[name]
        print(f"{name}: {masks_hold(config, device)}", flush=True)
        for work in wish.works:
            problem = why_no_two_of_four(device) or _unproved(name, config, work, device)
            for launch in LAUNCHES[work]:
                if problem is None:
                    rows.append(measure(name, config, work, launch, batch, device, wish))
                else:
                    row = {"model": name, "work": work, "launch": launch, "batch": batch, "seconds": {}}
                    rows.append(row | {"problems": {"2:4": problem}})
                for who, why in rows[-1]["problems"].items():
                    print(f"{name}, {work}, {launch}, {who}: not timed: {why}", flush=True)
    report(surroundings(device), rows, table(rows), wish.json)


def _unproved(name: str, config: ModelConfig, work: str, device: torch.device) -> str | None:
    """None where the kernels are right; what stays dense is said."""
    try:
        if work == "train":
            print(f"a layer in training: within {prove_training(device):.2g} of a dense one's deviation", flush=True)
            return None
        apart = prove_two_of_four(config, device)
        made = as_two_of_four(masked_two_of_four(config, device), device)
    except Exception as error:
        return short(error)
    print(f"{name}: logits within {apart:.2g} of their deviation, {len(made.sparse)} weights on the sparse units")
    for weight, why in made.left_dense.items():
        print(f"{name}: {weight} stays dense: {why}", flush=True)
    return None


if __name__ == "__main__":
    main()

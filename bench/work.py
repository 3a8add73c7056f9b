"""What is timed: one training step, or one forward pass; the same lines of code for every competitor.

On a GPU training keeps fp32 weights under bf16 autocast and inference has bf16 weights; on a CPU all is fp32.
"""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from peers import logits
from timing import Call

Mode = Literal["eager", "compiled", "graphs"]


def prepare_device(device: torch.device) -> None:
    torch.manual_seed(0)
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def make_batch(
    batch: int, img_size: tuple[int, int], in_chans: int, num_classes: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Random images (B, C, H, W) and labels (B). Never zeros: they draw less power and run faster."""
    images = torch.randn(batch, in_chans, *img_size, device=device)
    return images, torch.randint(num_classes, (batch,), device=device)


def training_step(model: nn.Module, images: Tensor, labels: Tensor, mode: Mode) -> Call:
    """Forward, cross-entropy, backward, AdamW."""
    device = images.device
    network = compiled(model.to(device).train(), mode)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            loss = F.cross_entropy(logits(network(images)).float(), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def forward_pass(model: nn.Module, images: Tensor, mode: Mode) -> Call:
    """Logits of one batch."""
    dtype = torch.bfloat16 if images.device.type == "cuda" else torch.float32
    images = images.to(dtype)
    network = compiled(model.to(images.device, dtype).eval(), mode)

    def forward() -> None:
        if mode == "graphs":  # the last answer is no longer needed: its graph may run again
            torch.compiler.cudagraph_mark_step_begin()
        with torch.inference_mode():
            logits(network(images))

    return forward


def compiled(model: nn.Module, mode: Mode) -> nn.Module:
    if mode == "eager":
        return model
    how = "reduce-overhead" if mode == "graphs" else "default"
    return torch.compile(model, mode=how)  # pyright: ignore[reportReturnType]


def warm_up(call: Call, device: torch.device) -> float | None:
    """Compile, fill caches, settle clocks; then the most GPU memory in GiB that a few calls used."""
    for _ in range(6 if device.type == "cuda" else 2):
        call()
    if device.type != "cuda":
        return None
    torch.cuda.synchronize(device)
    torch.cuda.reset_peak_memory_stats(device)
    for _ in range(2):
        call()
    torch.cuda.synchronize(device)
    return torch.cuda.max_memory_allocated(device) / 2**30

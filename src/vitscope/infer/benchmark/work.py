"""What is timed: one training step, or one forward pass; the same lines of code for every competitor.

Training keeps fp32 weights; where its type is another, products are in that (autocast).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.core.dtypes import usual_dtype
from vitscope.infer.benchmark.peers import logits
from vitscope.infer.benchmark.timing import Call
from vitscope.infer.launched import Launch, launched


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


def training_step(
    model: nn.Module, images: Tensor, labels: Tensor, launch: Launch, *, dtype: torch.dtype | None = None
) -> Call:
    """Forward, cross-entropy, backward, AdamW; eager or compiled. Products are in `dtype`, the device's usual one by
    default; fp16's loss is not scaled, which costs next to nothing."""
    device = images.device
    dtype = dtype or usual_dtype(device)
    network: Callable[[Tensor], Tensor] = model.to(device).train()
    if launch != "eager":
        network = torch.compile(network)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)

    def step() -> None:
        with torch.autocast(device.type, dtype, enabled=dtype is not torch.float32):
            loss = F.cross_entropy(logits(network(images)).float(), labels)
        loss.backward()
        optimiser.step()
        optimiser.zero_grad(set_to_none=True)

    return step


def forward_pass(model: nn.Module, images: Tensor, launch: Launch, *, dtype: torch.dtype | None = None) -> Call:
    """Logits of one batch. The weights are cast to `dtype`, the device's usual one by default."""
    dtype = dtype or usual_dtype(images.device)
    images = images.to(dtype)
    network = model.to(images.device, dtype).eval()
    ask = launched(lambda x: logits(network(x)), launch, device=images.device, batch_size=len(images))

    @torch.inference_mode()
    def forward() -> None:
        ask(images)

    return forward


def warm_up(call: Call, device: torch.device) -> None:
    """Compile, fill caches, settle clocks."""
    for _ in range(6 if device.type == "cuda" else 2):
        call()

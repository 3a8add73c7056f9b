"""Is a patch embedding faster as a strided convolution, or as cutting and one matrix product?

    python bench/patch_embed.py

Times forward and backward. Both ways end in placed tokens behind a class token, as in the model,
since memory layout is part of the cost.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.core.environment import why_no_compiler
from vitscope.infer.benchmark.contest import release
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import Call, Clock, interleaved, paired_ratio, summary
from vitscope.infer.benchmark.work import prepare_device, warm_up
from vitscope.models.layers.patch import cut_patches

#        img_size, patch_size, embed_dim, batch
CASES = ((224, 16, 768, 64), (224, 16, 768, 256), (224, 16, 384, 64), (32, 4, 384, 512), (32, 4, 192, 512))


class Tokens(nn.Module):
    """Images -> class token and placed patch tokens, the patches projected in one of two ways."""

    def __init__(self, img_size: int, patch_size: int, embed_dim: int, *, cut: bool) -> None:
        super().__init__()
        self.cut = cut
        self.patch_size = patch_size
        self.proj = nn.Conv2d(3, embed_dim, kernel_size=patch_size, stride=patch_size)
        self.position = nn.Parameter(torch.randn(1, (img_size // patch_size) ** 2, embed_dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, embed_dim))

    def forward(self, images: Tensor) -> Tensor:
        if self.cut:
            patches = cut_patches(images, (self.patch_size, self.patch_size))
            tokens = F.linear(patches, self.proj.weight.flatten(1), self.proj.bias)
        else:
            tokens = self.proj(images).flatten(2).transpose(1, 2)
        return torch.cat([self.cls_token.expand(len(images), -1, -1), tokens + self.position], dim=1)


def forward_backward(case: tuple[int, int, int, int], cut: bool, launch: str, device: torch.device) -> Call:
    img_size, patch_size, embed_dim, batch = case
    torch.manual_seed(0)
    with device:
        module = Tokens(img_size, patch_size, embed_dim, cut=cut)
        images = torch.randn(batch, 3, img_size, img_size)
        network = torch.compile(module) if launch == "compiled" else module
        gradient = torch.randn(batch, module.position.shape[1] + 1, embed_dim)

    def call() -> None:
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            tokens = network(images)
        tokens.backward(gradient)
        module.zero_grad(set_to_none=True)

    return call


def main() -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default: 5)")
    parser.add_argument("--no-compile", action="store_true", help="only eager")
    args = parser.parse_args()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepare_device(device)
    launches = ["eager"]
    if not args.no_compile and why_no_compiler(device.type) is None:
        launches.append("compiled")
    lines = ["| img | patch | width | batch | launch | conv, ms | cut, ms | conv / cut |", "|" + " ---: |" * 8]
    for case in CASES:
        for launch in launches:
            calls = {way: forward_backward(case, way == "cut", launch, device) for way in ("conv", "cut")}
            for call in calls.values():
                warm_up(call, device)
            seconds = interleaved(calls, Clock(device), rounds=args.rounds, least_seconds=0.3)
            conv, cut = (1e3 * summary(seconds[way]).median for way in ("conv", "cut"))
            ratio = paired_ratio(seconds["conv"], seconds["cut"])
            cells = [*map(str, case), launch, f"{conv:.2f}", f"{cut:.2f}"]
            cells.append(f"{ratio.median:.2f} ({ratio.low:.2f} to {ratio.high:.2f})")
            lines.append(f"| {' | '.join(cells)} |")
            print(lines[-1], flush=True)
            release(device)
    print()
    for word, fact in surroundings(device).items():
        print(f"- {word}: {fact}")
    print("\n" + "\n".join(lines), flush=True)


if __name__ == "__main__":
    main()

"""What `make demo` shows last: where the patches of an untrained ViT look, on a built-in photograph.

python examples/first_look.py [FOLDER]
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import vitscope
from vitscope.data.config import half_normalised
from vitscope.data.photographs import builtin_picture
from vitscope.infer.attention_picture import draw_attention


def main(folder: Path) -> None:
    torch.manual_seed(0)
    picture = builtin_picture("flower")
    preprocessing = half_normalised((224, 224), 3)
    for init, looks in (("vit", "everywhere alike"), ("mimetic", "around itself")):
        model = vitscope.create_model("vit_tiny_patch16_224", init=init)
        path = draw_attention(
            model,
            picture,
            preprocessing,
            folder / f"attention-{init}.png",
            layer=0,
            patch=(6, 7),
            title=f"untrained vit_tiny_patch16_224, layer 0, init '{init}': a patch looks {looks}",
        )
        print(f"wrote {path}")
    with torch.no_grad():
        weights = model.eval().attention_maps(torch.zeros(1, 3, 224, 224), layers=[0])[0]
    sums = weights.sum(dim=-1)
    print(f"attention of layer 0: {tuple(weights.shape)} (batch, heads, tokens, tokens)")
    print(f"its rows sum to {sums.min():.6f} .. {sums.max():.6f}")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo-out"))

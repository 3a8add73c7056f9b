"""Recipes for scikit-learn's handwritten digits: built in, small enough for a CPU."""

from __future__ import annotations

from vitscope.data.config import AugmentConfig, DataConfig
from vitscope.models.config import ViTConfig
from vitscope.recipes.registry import recipe
from vitscope.train.config import LoopConfig, LossConfig, OptimConfig, TrainConfig, named_model


@recipe
def digits_vit() -> TrainConfig:
    """A small ViT on the built-in digits: the quickest proof that everything works.

    command: vitscope train digits_vit
    time: 48 s on one CPU core
    images/s: 1,000 end to end
    accuracy: 98.9 % (98.6 to 99.2, 3 seeds)

    From command to prompt on an AMD EPYC, torch 2.15. Test accuracy of seeds 0, 1, 2: 98.89, 99.16, 98.61 %, of 359
    pictures each, so that one picture is 0.28 %.
    """
    # Strokes are a pixel or two wide: patches of 2 x 2 keep them apart, and 16 tokens are quick on a CPU.
    model = ViTConfig(
        img_size=8,
        patch_size=2,
        in_chans=1,
        num_classes=10,
        embed_dim=96,
        depth=4,
        num_heads=3,
        mlp_ratio=2.0,
        pool="mean",
        class_token=False,
    )
    return TrainConfig(
        model=named_model("vit", model),
        data=DataConfig(name="digits", batch_size=64),
        augment=AugmentConfig(crop="padded", padding=1),  # no flip: a mirrored digit is another sign
        optim=OptimConfig(name="muon", lr=3e-3),
        loss=LossConfig(smoothing=0.1),
        loop=LoopConfig(epochs=40, threads=1, monitor="val/loss"),  # 216 pictures: accuracy moves in steps
    )

"""The table of models: one row a variant. A name that timm has too means the same network with the same keys."""

from __future__ import annotations

from dataclasses import dataclass, replace

from vitscope.core.registry import Registry
from vitscope.models.config import (
    CNNConfig,
    LSTMConfig,
    MAEConfig,
    ModelConfig,
    ResNetConfig,
    SimMIMConfig,
    SwinConfig,
    ViTConfig,
)


@dataclass(frozen=True)
class Variant:
    """A row of the table."""

    name: str
    config: ModelConfig
    about: str

    @property
    def family(self) -> str:
        return self.config.family

    @property
    def is_classifier(self) -> bool:
        return is_classifier(self.config)


VARIANTS: Registry[Variant] = Registry("model")


def list_models(pattern: str | None = None) -> list[str]:
    """Names of all models, or of those that match a wildcard: `list_models("vit_*")`."""
    return VARIANTS.names(pattern)


def model_config(name: str) -> ModelConfig:
    """The settings behind a name."""
    return VARIANTS[name].config


def is_classifier(config: ModelConfig) -> bool:
    """Whether the network gives logits or pooled features; the others paint patches."""
    return not isinstance(config, MAEConfig | SimMIMConfig)


def register_model(name: str, config: ModelConfig, about: str = "") -> Variant:
    """Add a row: afterwards the name works everywhere a model name does."""
    return VARIANTS.register(name, Variant(name, config, about))


#            embed_dim, depth, num_heads
SIZES = {
    "tiny": (192, 12, 3),
    "small": (384, 12, 6),
    "base": (768, 12, 12),
    "large": (1024, 24, 16),
    "huge": (1280, 32, 16),
}


def _sized(size: str, **settings: object) -> ViTConfig:
    embed_dim, depth, num_heads = SIZES[size]
    return ViTConfig(**{"embed_dim": embed_dim, "depth": depth, "num_heads": num_heads, **settings})  # pyright: ignore[reportArgumentType]


def _named_models() -> None:
    """Three for CIFAR-sized pictures, three for photographs."""
    small_picture = ViTConfig(img_size=32, patch_size=4, num_classes=10)
    tiny = replace(small_picture, embed_dim=192, depth=9, num_heads=3, mlp_ratio=2.0)
    register_model("vit_tiny", tiny, "CIFAR-sized pictures, quick trials")
    register_model("vit_small", replace(small_picture, embed_dim=384, num_heads=6), "CIFAR-sized pictures, the default")
    register_model("vit_base", small_picture, "CIFAR-sized pictures, the largest")
    for size in ("small", "base", "large"):
        register_model(f"vit_{size}_imagenet", _sized(size), f"photographs at 224, {size}")


def _guide_presets() -> None:
    """The tuning guide's models: 32 px, patch 8, mean pooling without a class token."""
    guide = ViTConfig(img_size=32, patch_size=8, num_classes=10, pool="mean", class_token=False, drop_rate=0.1)
    rows = {
        "tiny": (128, 4, 4, 512),
        "small": (256, 6, 8, 1024),
        "base": (512, 6, 8, 2048),
        "large": (512, 12, 8, 2048),
    }
    for size, (embed_dim, depth, num_heads, mlp_dim) in rows.items():
        preset = replace(guide, embed_dim=embed_dim, depth=depth, num_heads=num_heads, mlp_dim=mlp_dim)
        register_model(f"guide_{size}", preset, f"the tuning guide's {size.title()}")
    overfit = replace(guide, embed_dim=128, depth=6, num_heads=4, mlp_dim=256, drop_rate=0.0)
    register_model("guide_overfit", overfit, "the tuning guide's model for the overfit test")


# Names whose first published weights, and so timm's default, have no head.
HEADLESS = ("vit_small_patch8_224", "vit_large_patch32_224", "vit_huge_patch14_224")


def _standard_vits() -> None:
    for size in SIZES:
        for patch, img_sizes in ((8, (224, 384)), (14, (224, 378)), (16, (224, 384)), (32, (224, 384))):
            for img_size in img_sizes:
                name = f"vit_{size}_patch{patch}_{img_size}"
                classes = 0 if name in HEADLESS else 1000
                config = _sized(size, patch_size=patch, img_size=img_size, num_classes=classes)
                register_model(name, config, f"ViT-{size.title()}/{patch}")


def _deits() -> None:
    for size, img_size in (("tiny", 224), ("small", 224), ("base", 224), ("base", 384)):
        plain = _sized(size, img_size=img_size)
        register_model(f"deit_{size}_patch16_{img_size}", plain, f"DeiT-{size.title()}")
        name = f"deit_{size}_distilled_patch16_{img_size}"
        register_model(name, replace(plain, distilled=True), f"DeiT-{size.title()} with a distillation token")


def _dinov2() -> None:
    """Backbones without a head, as they were published."""
    for size in ("small", "base", "large", "giant"):
        shared = {"img_size": 518, "patch_size": 14, "num_classes": 0, "layer_scale": 1e-5}
        if size == "giant":
            plain = ViTConfig(embed_dim=1536, depth=40, num_heads=24, mlp="swiglu", mlp_dim=4096, **shared)  # pyright: ignore[reportArgumentType]
        else:
            plain = _sized(size, **shared)
        register_model(f"vit_{size}_patch14_dinov2", plain, f"DINOv2 {size.title()}")
        with_registers = replace(plain, num_registers=4, prefix_position=False)
        register_model(f"vit_{size}_patch14_reg4_dinov2", with_registers, f"DINOv2 {size.title()} with registers")


def _swins() -> None:
    rows = {
        "tiny": (96, (2, 2, 6, 2), (3, 6, 12, 24)),
        "small": (96, (2, 2, 18, 2), (3, 6, 12, 24)),
        "base": (128, (2, 2, 18, 2), (4, 8, 16, 32)),
    }
    for size, (embed_dim, depths, num_heads) in rows.items():
        swin = SwinConfig(embed_dim=embed_dim, depths=depths, num_heads=num_heads)
        register_model(f"swin_{size}_patch4_window7_224", swin, f"Swin-{size.title()}")
        if size == "base":
            large_picture = replace(swin, img_size=384, window_size=12)
            register_model("swin_base_patch4_window12_384", large_picture, "Swin-Base at 384")


def _masked() -> None:
    for size, patch in (("base", 16), ("large", 16), ("huge", 14)):
        encoder = _sized(size, patch_size=patch, num_classes=0, position="sincos", init="xavier")
        register_model(f"mae_vit_{size}_patch{patch}", MAEConfig(encoder=encoder), f"MAE, ViT-{size.title()}/{patch}")
    register_model("simmim_vit_base_patch16_224", SimMIMConfig(), "SimMIM, ViT-Base/16")


def _baselines() -> None:
    register_model("resnet18", ResNetConfig(), "ResNet-18")
    cifar = ResNetConfig(img_size=32, num_classes=10, depths=(3, 3, 3), stem="cifar", stem_width=16)
    register_model("resnet20", cifar, "ResNet-20 for CIFAR-sized pictures")
    register_model("resnet34", ResNetConfig(depths=(3, 4, 6, 3)), "ResNet-34")
    register_model("resnet50", ResNetConfig(block="bottleneck", depths=(3, 4, 6, 3)), "ResNet-50")
    register_model("mnist_cnn", CNNConfig(), "convolutional baseline for digits")
    register_model("mnist_lstm", LSTMConfig(), "reads a digit row by row")


for _rows in (_named_models, _guide_presets, _standard_vits, _deits, _dinov2, _swins, _masked, _baselines):
    _rows()

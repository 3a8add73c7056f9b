"""Small models of transformers, with large random weights, as folders."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.models.layers.position import sincos_2d

transformers = pytest.importorskip("transformers")

VIT = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 80,
    "image_size": 32,
    "patch_size": 8,
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.2,
}
DINO = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "mlp_ratio": 2,
    "image_size": 42,
    "patch_size": 14,
    "layerscale_value": 0.5,
    "drop_path_rate": 0.1,
}
DECODER = {
    "decoder_hidden_size": 24,
    "decoder_num_hidden_layers": 2,
    "decoder_num_attention_heads": 3,
    "decoder_intermediate_size": 40,
    "mask_ratio": 0.6,
}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTModel", VIT),
    "vit_classes": ("ViTForImageClassification", {**VIT, "num_labels": 7}),
    "vit_simmim": ("ViTForMaskedImageModeling", {**VIT, "encoder_stride": 8}),
    "vit_options": (
        "ViTForImageClassification",
        {
            **VIT,
            "image_size": [24, 40],
            "num_channels": 1,
            "qkv_bias": False,
            "hidden_act": "gelu_new",
            "layer_norm_eps": 1e-2,
        },
    ),
    "mae_encoder": ("ViTMAEModel", {**VIT, **DECODER}),
    "mae": ("ViTMAEForPreTraining", {**VIT, **DECODER}),
    "mae_learned": ("ViTMAEForPreTraining", {**VIT, **DECODER, "norm_pix_loss": True}),
    "deit": ("DeiTModel", VIT),
    "deit_classes": ("DeiTForImageClassification", {**VIT, "num_labels": 7}),
    "deit_teacher": ("DeiTForImageClassificationWithTeacher", {**VIT, "num_labels": 7}),
    "deit_simmim": ("DeiTForMaskedImageModeling", {**VIT, "encoder_stride": 8}),
    "dinov2": ("Dinov2Model", DINO),
    "dinov2_swiglu": ("Dinov2Model", {**DINO, "use_swiglu_ffn": True}),
    "dinov2_classes": ("Dinov2ForImageClassification", {**DINO, "num_labels": 7}),
    "dinov2_registers": ("Dinov2WithRegistersModel", {**DINO, "num_register_tokens": 3}),
    "dinov2_registers_classes": ("Dinov2WithRegistersForImageClassification", {**DINO, "use_swiglu_ffn": True}),
}
CONFIGS = {
    "ViTMAE": "ViTMAEConfig",
    "ViT": "ViTConfig",
    "DeiT": "DeiTConfig",
    "Dinov2WithR": "Dinov2WithRegistersConfig",
}


def their_model(case: str, seed: int = 0) -> Any:
    """Filled, in eval mode. The fixed tables are MAE's own: a fresh model of transformers 5.22 has zeros there."""
    name, settings = CASES[case]
    config = next((config for start, config in CONFIGS.items() if name.startswith(start)), "Dinov2Config")
    model = getattr(transformers, name)(getattr(transformers, config)(**settings))
    fill_with_large_random_weights(model, seed=seed)
    if name.startswith("ViTMAE"):
        side = settings["image_size"] // settings["patch_size"]
        encoder = model.vit if hasattr(model, "vit") else model
        with torch.no_grad():
            encoder.embeddings.position_embeddings[0, 1:] = sincos_2d((side, side), settings["hidden_size"])
            if case == "mae_learned":
                encoder.embeddings.position_embeddings.normal_(std=0.2)
            if hasattr(model, "decoder"):
                table = sincos_2d((side, side), settings["decoder_hidden_size"])
                model.decoder.decoder_pos_embed[0, 1:] = table
    return model.eval()


def saved_by_transformers(model: Any, folder: Path) -> Path:
    with quiet():
        model.save_pretrained(folder)
    return folder


def tensors_in(folder: Path) -> dict[str, Tensor]:
    with safe_open(folder / "model.safetensors", framework="pt") as file:
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    """As a share of the largest output."""
    assert ours.shape == theirs.shape
    assert theirs.std() > 0.2, "the weights are too small to show an error"
    return ((ours - theirs).abs().max() / theirs.abs().max()).item()


def pictures_for(model: Any, batch: int = 2) -> Tensor:
    config = model.config
    size = config.image_size if isinstance(config.image_size, list) else [config.image_size] * 2
    return torch.randn(batch, config.num_channels, *size, generator=torch.Generator().manual_seed(1))


@contextmanager
def quiet() -> Iterator[None]:
    """transformers reports what it misses; that is checked here by other means."""
    logger = logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    logger.setLevel(before)

"""The shape after every stage: what the table says is what the network does."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from vitscope.core.config import updated
from vitscope.models.build import build_model
from vitscope.models.config import LSTMConfig, MAEConfig, ResNetConfig, SimMIMConfig, SwinConfig, ViTConfig, pair
from vitscope.models.trace import Stage, fold_stages, trace_shapes
from vitscope.models.variants import list_models, model_config

SMALL = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=10)
SMALL_MAE = MAEConfig(
    encoder=updated(SMALL, num_classes=0, position="sincos"),
    decoder_embed_dim=16,
    decoder_depth=2,
    decoder_num_heads=2,
)


def stages_of(config: Any, batch: int = 2) -> dict[str, Stage]:
    return {stage.name: stage for stage in trace_shapes(config, batch)}


def test_the_road_through_vit_base() -> None:
    stages = stages_of(model_config("vit_base_patch16_224"), batch=4)
    assert stages["images"].shape == (4, 3, 224, 224)
    assert stages["patch_embed"].shape == (4, 196, 768)
    assert stages["pos_drop"].shape == (4, 197, 768)
    for block in range(12):
        assert stages[f"blocks.{block}.attn.qkv"].shape == (4, 197, 2304)
        assert stages[f"blocks.{block}.mlp.fc1"].shape == (4, 197, 3072)
        assert stages[f"blocks.{block}"].shape == (4, 197, 768)
    assert stages["norm"].shape == (4, 197, 768)
    assert stages["head_drop"].shape == (4, 768)
    assert stages["head"].shape == stages["output"].shape == (4, 1000)


def test_stages_come_in_the_order_they_run() -> None:
    names = [stage.name for stage in trace_shapes(SMALL)]
    assert names[0] == "images"
    assert names[-1] == "output"
    road = ["patch_embed", "pos_drop", "blocks.0.norm1", "blocks.0.attn", "blocks.0.norm2", "blocks.0.mlp", "blocks.0"]
    road += ["blocks.2", "norm", "head_drop", "head"]
    places = [names.index(name) for name in road]
    assert places == sorted(places)


CONFIGS = {
    "vit": SMALL,
    "options": updated(
        SMALL, num_registers=3, mlp="swiglu", mlp_dim=40, layer_scale=0.1, qk_norm=True, pool="attention"
    ),
    "non-square": updated(SMALL, img_size=(32, 64), class_token=False, pool="mean", position="rope"),
    "distilled": updated(SMALL, distilled=True),
    "heads per block": updated(SMALL, num_heads=(3, 1, 4), head_dim=8),
    "swin": SwinConfig(img_size=32, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=10),
    "resnet": ResNetConfig(img_size=32, depths=(1, 2), stem_width=8, num_classes=10),
    "lstm": LSTMConfig(),
    "mae": SMALL_MAE,
    "simmim": SimMIMConfig(encoder=updated(SMALL, num_classes=0)),
}


@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_every_shape_is_that_of_a_real_run(config: Any) -> None:
    """A real network on real tensors, hooked here, says the same."""
    network = build_model(config).eval()
    real: list[tuple[str, tuple[int, ...]]] = []

    def note(name: str) -> Any:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            real.append((name, tuple((output[0] if isinstance(output, tuple) else output).shape)))

        return hook

    for name, module in network.named_modules():
        if name:
            module.register_forward_hook(note(name))
    stages = trace_shapes(config, batch=2)
    with torch.no_grad():
        output = network(torch.randn(stages[0].shape))
    said = [(stage.name, stage.shape) for stage in stages[1:-1]]
    told = {name for name, _ in said}
    assert [pair for pair in real if pair[0] in told] == said
    silent = {type(network.get_submodule(name)) for name, _ in real if name not in told}
    assert {kind.__name__ for kind in silent} <= {"Identity", "Dropout", "DropPath", "Sequential"}
    assert stages[-1].shape == tuple((output if isinstance(output, torch.Tensor) else output[1]).shape)


@pytest.mark.parametrize("name", [*list_models("*_base_*224"), *list_models("*res*"), "mnist_cnn", "mnist_lstm"])
def test_registered_models_can_be_traced(name: str) -> None:
    config: Any = model_config(name)
    image = getattr(config, "encoder", config)
    stages = trace_shapes(config)
    assert stages[0].shape == (1, image.in_chans, *pair(image.img_size))
    if image.num_classes:
        assert stages[-1].shape == (1, image.num_classes)


def test_words_name_the_real_tokens() -> None:
    stages = stages_of(updated(SMALL, num_registers=4, img_size=(32, 64)))
    assert stages["patch_embed.proj"].about == "4 x 8 patches of 8 x 8 pixels, each projected to 32"
    assert stages["pos_drop"].about == "5 prefix + 32 patch tokens; positions: added (learned)"
    assert stages["blocks.0.attn"].about == "weights (heads, 37, 37) inside, never stored"
    assert stages["output"].about == "logits"


def test_words_of_a_masked_encoder_count_what_it_sees() -> None:
    stages = stages_of(SMALL_MAE)
    # Every patch gets its position first; what is hidden leaves after that.
    assert stages["encoder.pos_drop"].shape == (2, 17, 32)
    assert stages["encoder.pos_drop"].about == "1 prefix + 16 patch tokens; positions: added (sincos)"
    assert stages["encoder.blocks.0.attn"].shape == (2, 5, 32)
    assert stages["encoder.blocks.0.attn"].about == "weights (heads, 5, 5) inside, never stored"
    assert stages["output"].about == "painted patches"


@pytest.mark.parametrize(
    ("position", "words"),
    [("rope", "turned inside attention"), ("relative", "a bias inside attention"), ("none", "none")],
)
def test_words_say_where_positions_are(position: str, words: str) -> None:
    assert stages_of(updated(SMALL, position=position))["pos_drop"].about.endswith(f"positions: {words}")


def test_without_a_head_the_output_is_features() -> None:
    output = stages_of(updated(SMALL, num_classes=0))["output"]
    assert (output.shape, output.about) == ((2, 32), "pooled features")


def test_folding_keeps_every_stage() -> None:
    stages = trace_shapes(SMALL)
    folded = fold_stages(stages)
    assert sum(stage.times for stage in folded) == len(stages)
    assert {stage.name: stage.times for stage in folded}["blocks.0-2.attn.qkv"] == 3
    pruned = {stage.name for stage in fold_stages(trace_shapes(updated(SMALL, num_heads=(4, 4, 1), head_dim=8)))}
    assert {"blocks.0-1.attn.qkv", "blocks.2.attn.qkv"} <= pruned

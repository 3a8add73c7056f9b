"""What happens to a model that is moved, cast, resized or handed odd input."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

from vitscope.core.errors import InputError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ResNetConfig, SwinConfig, ViTConfig
from vitscope.models.layers.mlp import GatedMlp
from vitscope.models.model import VisionModel

SMALL = {"img_size": 16, "patch_size": 4, "embed_dim": 32, "depth": 2, "num_heads": 4, "num_classes": 5}
CONFIGS: dict[str, Any] = {
    "learned": ViTConfig(**SMALL),
    "sincos": ViTConfig(**SMALL, position="sincos"),
    "rope": ViTConfig(**SMALL, position="rope"),
    "relative": ViTConfig(**SMALL, position="relative"),
    "swin": SwinConfig(
        img_size=16, patch_size=2, embed_dim=8, depths=(2, 2), num_heads=(2, 4), window_size=4, num_classes=5
    ),
    "mae": MAEConfig(
        encoder=ViTConfig(**{**SMALL, "num_classes": 0}, position="sincos"),
        decoder_embed_dim=16,
        decoder_depth=1,
        decoder_num_heads=2,
    ),
}


def images(count: int = 2) -> torch.Tensor:
    return torch.randn(count, 3, 16, 16, generator=torch.Generator().manual_seed(0))


def said(model: VisionModel, x: torch.Tensor) -> torch.Tensor:
    return model.eval().forward_features(x)


@pytest.fixture(params=CONFIGS)
def model(request: pytest.FixtureRequest) -> VisionModel:
    torch.manual_seed(0)
    return build_model(CONFIGS[request.param])


def test_a_trip_through_bf16_leaves_fixed_tables_exact(model: VisionModel) -> None:
    before = {name: buffer.clone() for name, buffer in model.named_buffers()}
    model.bfloat16()
    model.float()
    after = dict(model.named_buffers())
    assert after.keys() == before.keys()
    for name, buffer in before.items():
        assert torch.equal(after[name], buffer), name


def test_memory_that_was_only_allocated_gets_its_tables(model: VisionModel) -> None:
    """The road of sharded training: build on meta, allocate, load."""
    with torch.device("meta"):
        empty = build_model(model.config)
    empty.to_empty(device="cpu")
    empty.load_state_dict(model.state_dict())
    assert torch.equal(said(empty, images()), said(model, images()))


def test_on_meta_everything_stays_on_meta_when_the_size_changes(model: VisionModel) -> None:
    with torch.device("meta"):
        empty = build_model(model.config)
    empty.set_input_size(32)
    assert all(tensor.is_meta for tensor in [*empty.parameters(), *empty.buffers()])
    assert empty.eval().forward_features(torch.empty(2, 3, 32, 32, device="meta")).shape[0] == 2


def test_the_same_size_keeps_the_parameters_an_optimiser_holds(model: VisionModel) -> None:
    before = {name: id(parameter) for name, parameter in model.named_parameters()}
    model.set_input_size(16)
    assert {name: id(parameter) for name, parameter in model.named_parameters()} == before


@pytest.mark.parametrize("name", [name for name in CONFIGS if name != "mae"])
def test_no_images_give_no_logits(name: str) -> None:
    assert build_model(CONFIGS[name]).eval()(images(0)).shape == (0, 5)


def test_byte_images_are_refused_with_a_remedy() -> None:
    with pytest.raises(InputError, match=r"expected floating-point numbers, received torch\.uint8"):
        build_model(CONFIGS["learned"])(torch.zeros(1, 3, 16, 16, dtype=torch.uint8))


@pytest.mark.parametrize("wished", [-1, 1, (1,), torch.tensor([1])])
def test_layers_are_given_as_a_person_would(wished: Any) -> None:
    assert list(build_model(CONFIGS["learned"]).attention_maps(images(), wished)) == [1]


@pytest.mark.parametrize("autocast", [False, True])
def test_attention_rows_sum_to_one_in_half_precision(autocast: bool) -> None:
    model = build_model(CONFIGS["learned"]).eval()
    x = images()
    if not autocast:
        model, x = model.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        rows = model.attention_maps(x, 0)[0].sum(-1)
    assert rows.dtype == torch.float32
    assert (rows - 1).abs().max() < 1e-6


def test_swiglu_is_gated_by_silu_unless_told_otherwise() -> None:
    config = ViTConfig(**SMALL, mlp="swiglu", mlp_dim=24)
    mlp = build_model(config).blocks[0].mlp
    assert isinstance(mlp, GatedMlp)
    x = torch.randn(2, 3, 32)
    gate, value = mlp.fc1(x).chunk(2, dim=-1)
    torch.testing.assert_close(mlp(x), mlp.fc2(F.silu(gate) * value))
    assert config.activation == "silu"
    assert ViTConfig(**SMALL).activation == "gelu"
    assert ViTConfig(**SMALL, mlp="swiglu", act="gelu").activation == "gelu"


def test_checkpointing_counts_a_batch_once_in_synchronised_batchnorm() -> None:
    """SyncBatchNorm is no BatchNorm2d; in eval of its statistics it must be frozen while recomputing all the same."""
    from vitscope.models.resnet import frozen_statistics

    model = build_model(ResNetConfig(img_size=32, num_classes=5, depths=(1,), stem="cifar", stem_width=4))
    model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)
    norms = [module for module in model.modules() if isinstance(module, torch.nn.SyncBatchNorm)]
    assert norms
    with frozen_statistics(model):
        assert all(norm.momentum == 0.0 for norm in norms)
    assert all(norm.momentum == 0.1 for norm in norms)


@pytest.mark.parametrize("settings", [{"norm_eps": float("inf")}, {"layer_scale": float("nan")}])
def test_numbers_that_are_none_are_refused(settings: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        ViTConfig(**SMALL, **settings)


def test_a_new_head_forgets_the_old_labels() -> None:
    model = build_model(CONFIGS["learned"])
    model.labels = ["cat", "dog", "fox", "owl", "elk"]
    model.reset_classifier(5)
    assert model.labels is None

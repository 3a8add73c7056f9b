"""X2: weights that do not fit. Faults are listed, what can be adapted is adapted and said, strict refuses."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import SwinConfig, ViTConfig
from vitscope.models.model import VisionModel
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=5)
SWIN = SwinConfig(img_size=32, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=5)
State = dict[str, torch.Tensor]


def network(config: Any = TINY) -> VisionModel:
    model = build_model(config)
    fill_with_large_random_weights(model)
    return model.eval()


@pytest.fixture(params=["safetensors", "pth"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[State], Path]:
    """Weights as a bare file, as others give them."""

    def write(state: State) -> Path:
        path = tmp_path / f"weights.{request.param}"
        save_file(state, path) if request.param == "safetensors" else torch.save(state, path)
        return path

    return write


def fates(model: VisionModel, *wanted: Any) -> list[str]:
    return [entry.ours or entry.theirs[0] for entry in model.certificate.of(*wanted)]


def test_missing_extra_and_mismatched_keys_are_listed(store: Callable[[State], Path]) -> None:
    state = network().state_dict()
    del state["blocks.1.attn.qkv.weight"]
    state["stranger.weight"] = torch.zeros(2, 2)
    state["norm.bias"] = torch.zeros(31)
    with pytest.raises(VitscopeError) as refused:
        load_model(store(state), config=TINY)
    what = refused.value.what
    assert "1 missing: blocks.1.attn.qkv.weight" in what
    assert "1 unexpected: stranger.weight" in what
    assert "1 that do not fit: norm.bias (31,) of float32 instead of (32,) of float32" in what
    assert "allow_partial=True" in str(refused.value.fix)


@pytest.mark.parametrize("fault", ["missing", "extra", "mismatched"])
def test_a_single_one_is_enough(fault: str, store: Callable[[State], Path]) -> None:
    state = network().state_dict()
    if fault == "missing":
        del state["blocks.0.norm1.bias"]
    elif fault == "extra":
        state["stranger"] = torch.zeros(1)
    else:
        state["blocks.0.norm1.bias"] = torch.zeros(33)
    with pytest.raises(VitscopeError, match="the weights do not fit the config"):
        load_model(store(state), config=TINY)


def test_allow_partial_begins_anew_what_is_missing_and_says_so(
    store: Callable[[State], Path], caplog: pytest.LogCaptureFixture
) -> None:
    whole = network().state_dict()
    state = {name: tensor for name, tensor in whole.items() if not name.startswith("blocks.1.")}
    state["stranger"] = torch.zeros(1)
    state["norm.bias"] = torch.zeros(31)
    with caplog.at_level(logging.WARNING, "vitscope"):
        model = load_model(store(state), config=TINY, allow_partial=True)
    assert fates(model, "missing") == [*(name for name in whole if name.startswith("blocks.1.")), "norm.bias"]
    assert fates(model, "unexpected") == ["stranger"]
    assert model.certificate.backbone_covered < 1
    assert not model.certificate.is_whole
    said = caplog.text
    assert "not in the source, begins anew: blocks.1." in said
    assert "in the source, unknown here: stranger" in said
    for name, tensor in model.state_dict().items():
        if name.startswith("blocks.1.") or name == "norm.bias":
            assert tensor.isfinite().all(), name
        else:
            assert torch.equal(tensor, whole[name]), name
    assert model(torch.zeros(1, 3, 32, 32)).isfinite().all()


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_what_is_missing_is_never_called_resampled(kind: torch.dtype, store: Callable[[State], Path]) -> None:
    """Moved to another size it is still not the source's; and it is of the type of the others."""
    state = {name: tensor.to(kind) for name, tensor in network().state_dict().items() if name != "pos_embed"}
    model = load_model(store(state), config=TINY, img_size=64, allow_partial=True)
    assert fates(model, "missing") == ["pos_embed"]
    assert model.certificate.of("missing")[0].shape == (1, 65, 32)
    assert fates(model, "resampled") == []
    assert model.certificate.backbone_covered < 1
    assert {parameter.dtype for parameter in model.parameters()} == {kind}


def test_other_weights_altogether_are_refused(store: Callable[[State], Path]) -> None:
    with pytest.raises(VitscopeError, match="the weights do not fit the config"):
        load_model(store(network(SWIN).state_dict()), config=TINY)
    with pytest.raises(VitscopeError, match="are of no known format"):
        load_model(store({"conv.weight": torch.zeros(1)}), config=TINY)


def test_another_width_is_refused(store: Callable[[State], Path]) -> None:
    wide = ViTConfig(**{**vars(TINY), "embed_dim": 64})
    with pytest.raises(VitscopeError, match=r"that do not fit: .* instead of \(1, 1, 64\)"):
        load_model(store(network().state_dict()), config=wide)


@pytest.mark.parametrize("img_size", [48, 16, (32, 64)])
def test_another_size_interpolates_the_position_table(
    img_size: Any, store: Callable[[State], Path], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "vitscope"):
        model = load_model(store(network().state_dict()), config=TINY, img_size=img_size)
    assert fates(model, "resampled") == ["pos_embed"]
    (entry,) = model.certificate.of("resampled")
    assert entry.their_shapes == ((1, 17, 32),)
    assert entry.how
    assert "resampled: pos_embed" in caplog.text
    height, width = img_size if isinstance(img_size, tuple) else (img_size, img_size)
    assert entry.shape == (1, 1 + height * width // 64, 32)
    assert model(torch.zeros(1, 3, height, width)).shape == (1, 5)
    same = network()
    same.set_input_size(img_size)
    assert (model.get_parameter("pos_embed") - same.get_parameter("pos_embed")).abs().max() < 0.2
    assert torch.equal(model.get_parameter("pos_embed")[:, 0], same.get_parameter("pos_embed")[:, 0])


def test_a_file_of_another_size_than_its_config_says(store: Callable[[State], Path]) -> None:
    """A name says 32 px; the table is for 48. The file is right about itself, the name about what is wanted."""
    large = ViTConfig(**{**vars(TINY), "img_size": 48})
    model = load_model(store(network(large).state_dict()), config=TINY)
    assert fates(model, "resampled") == ["pos_embed"]
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, 5)


@pytest.mark.parametrize("num_classes", [7, 2])
def test_other_classes_make_a_new_head_with_a_warning(
    num_classes: int, store: Callable[[State], Path], caplog: pytest.LogCaptureFixture
) -> None:
    state = network().state_dict()
    with caplog.at_level(logging.WARNING, "vitscope"):
        model = load_model(store(state), config=TINY, num_classes=num_classes)
    assert fates(model, "new") == ["head.weight", "head.bias"]
    assert "begins anew: head.weight, head.bias" in caplog.text
    assert model.certificate.backbone_covered == 1
    assert model.certificate.covered < 1
    assert model(torch.zeros(1, 3, 32, 32)).shape == (1, num_classes)
    assert all(torch.equal(model.state_dict()[name], state[name]) for name in state if not name.startswith("head."))


def test_no_classes_leave_the_head_out(store: Callable[[State], Path]) -> None:
    model = load_model(store(network().state_dict()), config=TINY, num_classes=0)
    assert "head.weight" not in model.state_dict()
    assert model.certificate.backbone_covered == 1


@pytest.mark.parametrize(
    "settings", [{"num_classes": 7}, {"img_size": 48}, {"allow_partial": True}], ids=["classes", "size", "partial"]
)
def test_strict_refuses_what_would_only_be_said(settings: dict[str, Any], store: Callable[[State], Path]) -> None:
    state = network().state_dict()
    if "allow_partial" in settings:
        del state["norm.bias"]
    path = store(state)
    load_model(path, config=TINY, **settings)
    with pytest.raises(VitscopeError, match="strict: ") as refused:
        load_model(path, config=TINY, strict=True, **settings)
    assert refused.value.fix == "leave strict out to accept this"


def test_strict_takes_what_fits(store: Callable[[State], Path], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "vitscope"):
        model = load_model(store(network().state_dict()), config=TINY, strict=True)
    assert model.certificate.covered == 1
    assert caplog.text == ""


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_comes_as_it_is_and_goes_where_it_is_told(
    dtype: torch.dtype, store: Callable[[State], Path]
) -> None:
    state = {name: tensor.to(dtype) for name, tensor in network().state_dict().items()}
    path = store(state)
    model = load_model(path, config=TINY)
    assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert model(torch.zeros(1, 3, 32, 32, dtype=dtype)).dtype == dtype
    wide = load_model(path, config=TINY, dtype=torch.float32)
    assert all(torch.equal(tensor, state[name].float()) for name, tensor in wide.state_dict().items())


def test_mixed_precision_becomes_the_widest(store: Callable[[State], Path]) -> None:
    state = {
        name: tensor.bfloat16() if name.startswith("blocks.") else tensor
        for name, tensor in network().state_dict().items()
    }
    model = load_model(store(state), config=TINY)
    assert {tensor.dtype for tensor in model.state_dict().values()} == {torch.float32}
    assert model(torch.zeros(1, 3, 32, 32)).isfinite().all()
    assert any(remark.startswith("the source mixes ") for remark in model.certificate.remarks)


def test_a_file_without_a_config_names_what_fits(store: Callable[[State], Path]) -> None:
    """Nothing is guessed in silence."""
    from vitscope.models.variants import model_config

    with torch.device("meta"):
        shapes = {name: tensor.shape for name, tensor in build_model(model_config("vit_tiny")).state_dict().items()}
    path = store({name: torch.zeros(shape) for name, shape in shapes.items()})
    with pytest.raises(VitscopeError, match="does not say which model it is for") as refused:
        load_model(path)
    assert "vit_tiny" in str(refused.value.fix)

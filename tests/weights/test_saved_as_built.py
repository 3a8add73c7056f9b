"""Only what can be loaded is saved: wrappers come off, and weights the config does not describe are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ViTConfig
from vitscope.weights.folder import load_config, save_model, unwrapped
from vitscope.weights.load import load_model

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 16, "depth": 2, "num_heads": 2}
TINY = ViTConfig(**SMALL, num_classes=3)


def small_mae(position: Any = "sincos") -> Any:
    encoder = ViTConfig(**SMALL, num_classes=0, position=position)
    return build_model(MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2))


@pytest.fixture
def process_group(tmp_path: Path) -> Iterator[None]:
    torch.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    torch.distributed.destroy_process_group()


def assert_comes_back(wrapper: nn.Module, model: nn.Module, place: Path) -> None:
    save_model(wrapper, place)
    loaded = load_model(place).state_dict()
    assert list(loaded) == list(model.state_dict())
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in model.state_dict().items())


WRAPPERS: dict[str, Callable[[nn.Module], Any]] = {
    "compiled": torch.compile,
    "data parallel": nn.DataParallel,
    "averaged": torch.optim.swa_utils.AveragedModel,
    "compiled data parallel": lambda model: torch.compile(nn.DataParallel(model)),
    "data parallel compiled": lambda model: nn.DataParallel(torch.compile(model)),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_wrappers_come_off(wrap: Callable[[nn.Module], Any], tmp_path: Path) -> None:
    model = build_model(TINY)
    assert_comes_back(wrap(model), model, tmp_path / "m")


def test_ddp_comes_off(process_group: None, tmp_path: Path) -> None:
    model = build_model(TINY)
    wrapper = nn.parallel.DistributedDataParallel(model)
    assert unwrapped(wrapper) is model
    assert_comes_back(wrapper, model, tmp_path / "m")


def test_a_layer_compiled_by_itself_keeps_its_name(tmp_path: Path) -> None:
    model: Any = build_model(TINY)
    save_model(model, tmp_path / "a")
    model.blocks[1] = torch.compile(model.blocks[1])
    save_model(model, tmp_path / "b")
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


@pytest.mark.parametrize("thing", [nn.Linear(2, 2), nn.DataParallel(nn.Linear(2, 2)), None], ids=str)
def test_what_is_no_model_of_ours_is_refused(thing: Any, tmp_path: Path) -> None:
    with pytest.raises(VitscopeError, match="model: expected a vitscope model, wrapped or not, received"):
        save_model(thing, tmp_path / "m")
    assert list(tmp_path.iterdir()) == []


def other_head(model: Any) -> None:
    model.head = nn.Linear(16, 7)


def more_layers(model: Any) -> None:
    model.extra = nn.Linear(2, 2)


def fewer_layers(model: Any) -> None:
    model.blocks = model.blocks[:1]


def renamed(model: Any) -> None:
    parametrizations.weight_norm(model.head)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (other_head, r"2 of another shape: head.bias \(7,\) instead of \(3,\), head.weight"),
        (more_layers, "2 unexpected: extra.bias, extra.weight"),
        (fewer_layers, "12 missing: blocks.1."),
        (renamed, "1 missing: head.weight; 2 unexpected: head.parametrizations"),
    ],
)
def test_layers_changed_behind_the_configs_back_are_refused(
    change: Callable[[Any], None], fault: str, tmp_path: Path
) -> None:
    model = build_model(TINY)
    change(model)
    with pytest.raises(VitscopeError, match=f"the weights do not fit the config; {fault}") as refused:
        save_model(model, tmp_path / "m")
    assert refused.value.where
    assert refused.value.fix
    assert list(tmp_path.iterdir()) == []


def test_a_masked_model_whose_encoder_got_a_classifier_is_refused(tmp_path: Path) -> None:
    model = small_mae()
    model.encoder.reset_classifier(3)
    with pytest.raises(ConfigError, match=r"the encoder no longer fits its MAE: encoder\.num_classes") as refused:
        save_model(model, tmp_path / "m")
    assert refused.value.fix == "use or save the encoder by itself: encoder = model.encoder"
    assert list(tmp_path.iterdir()) == []
    save_model(model.encoder, tmp_path / "encoder")
    assert load_config(tmp_path / "encoder") == model.encoder.config


@pytest.mark.parametrize("position", ["sincos", "learned"])
def test_a_masked_model_whose_encoder_got_another_size_is_saved_as_it_is(position: str, tmp_path: Path) -> None:
    model = small_mae(position)
    model.encoder.set_input_size(48)
    save_model(model, tmp_path / "m")
    loaded: Any = load_model(tmp_path / "m")
    assert loaded.config.encoder.img_size == 48
    assert loaded(torch.randn(1, 3, 48, 48)).prediction.shape == (1, 36, 192)


def test_saving_draws_no_random_numbers(tmp_path: Path) -> None:
    model = build_model(TINY)
    before = torch.get_rng_state()
    save_model(model, tmp_path / "m")
    assert torch.equal(torch.get_rng_state(), before)

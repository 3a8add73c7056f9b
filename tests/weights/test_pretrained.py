"""`create_model(..., pretrained=True)`: the table is true, and what it names arrives, moved to where it is wanted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models import get_pretrained_cfg

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import pair
from vitscope.models.variants import VARIANTS, list_models, model_config
from vitscope.weights.create import create_model, with_settings
from vitscope.weights.fit import refuse_other_layers
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model
from vitscope.weights.pretrained import PRETRAINED, SAME_LAYERS
from weights.stand_in_hub import Client, StandInHub, running_hub

OF_TIMM = sorted(name for name in PRETRAINED if name not in SAME_LAYERS)

# --- the table ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", OF_TIMM)
def test_it_is_timms_first_choice_and_fits_our_layers(name: str) -> None:
    hub = PRETRAINED[name].hub
    assert hub.removeprefix("timm/") in timm.list_pretrained(f"{name}.*")
    theirs = get_pretrained_cfg(name)
    assert theirs is not None
    assert hub == theirs.hf_hub_id
    config = model_config(name)
    assert (config.in_chans, *pair(config.img_size)) == theirs.input_size
    assert config.num_classes == theirs.num_classes


@pytest.mark.parametrize("name", [name for name in OF_TIMM if "giant" not in name and "huge" not in name])
def test_the_layers_are_timms(name: str) -> None:
    """Every tensor's name and shape; the giants have the same code in other sizes."""
    with torch.device("meta"):
        theirs = timm.create_model(name).state_dict()
        ours = build_model(model_config(name)).state_dict()
    computed = ("relative_position_index", "attn_mask")
    wanted = {key: tuple(tensor.shape) for key, tensor in theirs.items() if not key.endswith(computed)}
    assert {key: tuple(tensor.shape) for key, tensor in ours.items()} == wanted


@pytest.mark.parametrize("name", sorted(SAME_LAYERS))
def test_our_own_names_have_the_layers_of_what_they_begin_with(name: str) -> None:
    published = PRETRAINED[name]
    assert published.model == SAME_LAYERS[name]
    assert refuse_other_layers(model_config(published.model), model_config(name), where="here") == []


def test_every_model_timm_has_weights_for_is_in_the_table() -> None:
    both = [name for name in list_models() if timm.is_model(name)]
    published = {name for name in both if (cfg := get_pretrained_cfg(name)) is not None and cfg.has_weights}
    assert published == set(OF_TIMM)


# --- refusals -----------------------------------------------------------------------------------------------------


def test_vit_tiny_has_none_and_names_some_that_have() -> None:
    with pytest.raises(
        VitscopeError, match="'vit_tiny' has no pretrained weights: nobody has published any"
    ) as refused:
        create_model("vit_tiny", pretrained=True)
    fix = str(refused.value.fix)
    assert "create_model('vit_tiny_patch16_224', pretrained=True)" in fix
    assert "create_model('vit_small', pretrained=True)" in fix
    assert "load_model" in fix
    assert create_model("vit_tiny", pretrained=False, depth=1).config.depth == 1


@pytest.mark.parametrize("name", [name for name in list_models() if name not in PRETRAINED])
def test_whoever_has_none_says_so_and_names_only_models_that_have(name: str) -> None:
    with pytest.raises(VitscopeError, match=f"'{name}' has no pretrained weights") as refused:
        create_model(name, pretrained=True)
    named = [part.partition("'")[0] for part in str(refused.value.fix).split("create_model('")[1:]]
    assert set(named) <= set(PRETRAINED)
    family = VARIANTS[name].family
    assert bool(named) is (family not in ("cnn", "lstm"))


def test_other_layers_are_refused_before_anything_is_fetched() -> None:
    with pytest.raises(ConfigError, match=r"model\.depth: expected 12, as the weights have it, received 6") as refused:
        create_model("vit_small", pretrained=True, depth=6)
    assert "create_model('vit_small', pretrained=True)" in str(refused.value.where)


# --- through the hub ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def hub() -> Iterator[StandInHub]:
    with running_hub() as running:
        yield running


@pytest.fixture(scope="module")
def client(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with Client(tmp_path_factory.mktemp("hub_cache"), hub.url) as one:
        yield one


@pytest.fixture(scope="module")
def tiny(hub: StandInHub, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return publish(hub, "vit_tiny_patch16_224", tmp_path_factory.mktemp("tiny"))


def publish(hub: StandInHub, name: str, folder: Path) -> Path:
    """Large random weights under the name the real ones have."""
    model = build_model(model_config(name))
    fill_with_large_random_weights(model)
    save_model(model, folder / "model")
    hub.add(PRETRAINED[name].hub, folder / "model")
    return folder / "model"


def features(folder: Path, **settings: Any) -> torch.Tensor:
    model = load_model(folder, say=False, **settings)
    images = torch.randn(
        2, model.config.in_chans, *pair(model.config.img_size), generator=torch.Generator().manual_seed(0)
    )
    with torch.inference_mode():
        return model.forward_head(model.forward_features(images), pre_logits=True)


def fates(told: dict[str, Any]) -> dict[str, str]:
    return {entry["ours"]: entry["fate"] for entry in told["certificate"]["entries"] if entry["fate"] != "matched"}


def test_as_it_was_published(client: Client, tiny: Path) -> None:
    told = client.ask("create", "vit_tiny_patch16_224")
    torch.testing.assert_close(torch.tensor(told["features"]), features(tiny))
    assert fates(told) == {}
    assert told["was_train"]
    assert told["certificate"]["source"] == PRETRAINED["vit_tiny_patch16_224"].hub


def test_for_other_classes_and_pictures(client: Client, tiny: Path) -> None:
    told = client.ask("create", "vit_tiny_patch16_224", num_classes=10, img_size=64, drop_path_rate=0.1)
    wanted = with_settings(model_config("vit_tiny_patch16_224"), {"num_classes": 10, "img_size": 64})
    assert (told["config"]["num_classes"], told["config"]["img_size"]) == (10, 64)
    assert told["config"]["drop_path_rate"] == 0.1
    torch.testing.assert_close(torch.tensor(told["features"]), features(tiny, config=wanted))
    assert fates(told) == {"pos_embed": "resampled", "head.weight": "new", "head.bias": "new"}


def test_vit_small_begins_with_imagenets_weights(client: Client, hub: StandInHub, tmp_path: Path) -> None:
    """32 pixels in patches of 4: positions 14 x 14 -> 8 x 8 in one step, the filter 16 -> 4, a new head."""
    folder = publish(hub, "vit_small_patch16_224", tmp_path)
    told = client.ask("create", "vit_small")
    assert told["config"]["patch_size"] == 4
    torch.testing.assert_close(torch.tensor(told["features"]), features(folder, img_size=32, patch_size=4))
    changed = {"pos_embed": "resampled", "patch_embed.proj.weight": "resampled"}
    assert fates(told) == {**changed, "head.weight": "new", "head.bias": "new"}
    how = {entry["ours"]: entry.get("how") for entry in told["certificate"]["entries"]}
    assert how["pos_embed"] == "bicubic with antialias, 14 x 14 -> 8 x 8"
    assert how["patch_embed.proj.weight"] == "pseudo-inverse, 16 x 16 -> 4 x 4 pixels"
    assert how["head.weight"] == "a new head: 10 classes instead of 1000"


def test_what_is_not_published_where_one_looks_is_said(client: Client) -> None:
    told = client.ask("create", "vit_base")
    name = PRETRAINED["vit_base_patch16_224"].hub
    assert f"'{name}'" in told["error"]
    assert name in told["where"]
    assert "load_model(folder)" in told["fix"]

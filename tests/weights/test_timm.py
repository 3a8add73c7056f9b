"""timm's weights files: read as they are, written as they were, with timm's own answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, pair
from vitscope.models.variants import VARIANTS, model_config
from vitscope.weights.files import Stored
from vitscope.weights.formats import recognised
from vitscope.weights.formats.timm import TIMM
from vitscope.weights.formats.timm_arguments import ARCHITECTURES
from vitscope.weights.formats.timm_folder import peer_of_file
from vitscope.weights.formats.timm_folder import save_file as save_timm_file
from vitscope.weights.formats.timm_spelling import spelled
from vitscope.weights.load import load_model

NARROW = {"embed_dim": 48, "depth": 2, "num_heads": 4}
SWIN = {"embed_dim": 24, "depths": (2, 2, 2, 2), "num_heads": (2, 2, 4, 4)}
# name: (settings both know by the same word, timm's own words, ours)
TWINS: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "vit_tiny_patch16_224": (NARROW, {}, {}),
    "vit_small_patch16_384": (NARROW, {}, {}),
    "vit_base_patch8_224": ({**NARROW, "img_size": 64}, {}, {}),
    "vit_base_patch16_224": ({**NARROW, "num_classes": 10, "in_chans": 1}, {}, {}),
    "vit_base_patch32_224": (NARROW, {}, {}),
    "vit_base_patch32_384": (NARROW, {}, {}),
    "vit_large_patch14_224": (NARROW, {}, {}),
    "vit_huge_patch14_224": (NARROW, {}, {}),
    "deit_tiny_patch16_224": (NARROW, {}, {}),
    "deit_small_distilled_patch16_224": (NARROW, {}, {}),
    "deit_base_distilled_patch16_384": (NARROW, {}, {}),
    "vit_small_patch14_dinov2": ({**NARROW, "img_size": 98}, {}, {}),
    "vit_base_patch14_reg4_dinov2": ({**NARROW, "img_size": (70, 126)}, {}, {}),
    "vit_giant_patch14_dinov2": ({**NARROW, "img_size": 98}, {}, {"mlp_dim": 128}),
    "swin_tiny_patch4_window7_224": (SWIN, {}, {}),
    "swin_base_patch4_window12_384": (SWIN, {}, {}),
    "resnet18": ({}, {"layers": [1, 1, 1, 1]}, {"depths": (1, 1, 1, 1)}),
    "resnet50": ({"num_classes": 0}, {"layers": [1, 1, 1, 1]}, {"depths": (1, 1, 1, 1)}),
}


def twin(name: str) -> tuple[Any, ModelConfig]:
    """timm's network, small, under large random weights, and the settings of ours."""
    shared, theirs, ours = TWINS[name]
    peer = timm.create_model(name, **shared, **theirs)
    fill_with_large_random_weights(peer)
    return peer.eval(), updated(model_config(name), **shared, **ours)


def pictures(config: ModelConfig, batch: int = 2) -> Tensor:
    size = (batch, config.in_chans, *pair(config.img_size))
    return torch.randn(size, generator=torch.Generator().manual_seed(1))


def answers(model: Any, images: Tensor) -> Tensor:
    with torch.no_grad():
        return model(images) if model.num_classes else model.forward_features(images)


def assert_same_answers(found: Tensor, wanted: Tensor) -> None:
    assert found.shape == wanted.shape
    largest = wanted.abs().max().item()
    assert largest > 0.3, "the weights are too small to show an error"
    assert (found - wanted).abs().max().item() <= 1e-5 * largest


def assert_same_tensors(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        assert found[name].dtype == tensor.dtype, name
        assert torch.equal(found[name], tensor), name


PICKLED = ("vit_base_patch16_224", "resnet18")


@pytest.mark.parametrize(
    ("name", "ending"), [*((name, "safetensors") for name in TWINS), *((name, "pth") for name in PICKLED)]
)
def test_a_file_of_timms_to_ours_and_back(name: str, ending: str, tmp_path: Path) -> None:
    peer, config = twin(name)
    file = tmp_path / f"theirs.{ending}"
    save_file(peer.state_dict(), file) if ending == "safetensors" else torch.save(peer.state_dict(), file)

    ours = load_model(file, config=config)
    assert ours.config == config
    assert_same_answers(answers(ours, pictures(config)), answers(peer, pictures(config)))
    assert ours.certificate.format == "timm"
    assert {entry.fate for entry in ours.certificate.entries} == {"matched"}
    assert ours.certificate.covered == 1

    back = tmp_path / f"back.{ending}"
    save_timm_file(ours, back)
    written = load_file(back) if ending == "safetensors" else torch.load(back, weights_only=True)
    assert_same_tensors(written, peer.state_dict())


@pytest.mark.parametrize("name", TWINS)
def test_timm_opens_what_we_write(name: str, tmp_path: Path) -> None:
    """By the very words the remark gives."""
    peer, config = twin(name)
    ours = build_model(config).eval()
    ours.load_state_dict(peer.state_dict())
    remarks = save_timm_file(ours, tmp_path / "ours.safetensors")
    call = remarks[0].removeprefix("open it with ").replace("'ours", f"'{tmp_path}/ours")
    opened = eval(call, {"timm": timm})
    assert_same_tensors(opened.state_dict(), peer.state_dict())
    assert_same_answers(answers(opened.eval(), pictures(config)), answers(ours, pictures(config)))


def test_the_table_has_just_the_names_timm_has_too() -> None:
    assert all(timm.is_model(name) for name in ARCHITECTURES)
    shared = {name for name in VARIANTS if timm.is_model(name)}
    assert set(ARCHITECTURES) - {"vit_base_patch16_clip_224"} == shared
    assert len(shared) == 41


def shapes(model: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("name", [name for name in VARIANTS if name in ARCHITECTURES])
def test_every_tensor_of_the_full_models_is_matched(name: str) -> None:
    """Names and shapes alone: no number is read."""
    with torch.device("meta"):
        peer, ours = timm.create_model(name), build_model(model_config(name))
    stored = Stored(shapes(peer), lambda name: pytest.fail("a number was read"), files=(Path("none"),))
    assert recognised(stored, where="here") is TIMM
    find = TIMM.reading(stored, model_config(name))
    matches = {name: find(name) for name in ours.state_dict()}
    assert {part for match in matches.values() if match for part in match.theirs} == set(stored)
    assert {name: stored.shapes[match.theirs[0]] for name, match in matches.items() if match} == shapes(ours)
    spelling = spelled(model_config(name))
    assert (spelling.architecture, spelling.arguments) == (name, {}) or name.startswith("deit_")


OURS_ALONE = [name for name in VARIANTS if VARIANTS[name].family == "vit" and name not in ARCHITECTURES]


@pytest.mark.parametrize("name", OURS_ALONE)
def test_every_vit_of_ours_has_a_spelling_in_timm(name: str) -> None:
    spelling = spelled(model_config(name))
    with torch.device("meta"):
        peer = timm.create_model(spelling.architecture, **spelling.arguments)
        ours = build_model(model_config(name))
    assert shapes(peer) == shapes(ours)


# --- what a file may bring with it ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("prefix", "nested"),
    [("", "model"), ("module.", "state_dict"), ("_orig_mod.", "state_dict_ema"), ("module._orig_mod.", "model")],
)
def test_wrappers_are_taken_off_and_said(prefix: str, nested: str, tmp_path: Path) -> None:
    peer, config = twin("vit_tiny_patch16_224")
    weights = {f"{prefix}{name}": tensor for name, tensor in peer.state_dict().items()}
    torch.save({nested: weights, "epoch": 3, "arch": "vit"}, tmp_path / "checkpoint.pth.tar")
    ours = load_model(tmp_path / "checkpoint.pth.tar", config=config)
    assert_same_tensors(ours.state_dict(), peer.state_dict())
    said = " | ".join(ours.certificate.remarks)
    assert f"'{nested}'" in said
    assert (f"'{prefix}'" in said) == bool(prefix)


def test_the_running_mean_is_preferred_and_said(tmp_path: Path) -> None:
    peer, config = twin("vit_tiny_patch16_224")
    other = {name: tensor + 1 for name, tensor in peer.state_dict().items()}
    torch.save({"model": other, "model_ema": peer.state_dict()}, tmp_path / "checkpoint.pth")
    ours = load_model(tmp_path / "checkpoint.pth", config=config)
    assert_same_tensors(ours.state_dict(), peer.state_dict())
    assert ours.certificate.remarks == ("of the checkpoint, its 'model_ema', not its 'model'",)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"global_pool": "avg"}, "fc_norm"),
        ({"pre_norm": True}, "norm_pre"),
    ],
    ids=["fc_norm", "norm_pre"],
)
def test_layers_we_do_not_have_are_refused_with_a_hint(settings: dict[str, Any], words: str, tmp_path: Path) -> None:
    peer = timm.create_model("vit_tiny_patch16_224", **NARROW, **settings)
    save_file(peer.state_dict(), tmp_path / "a.safetensors")
    config = updated(model_config("vit_tiny_patch16_224"), **NARROW)
    with pytest.raises(VitscopeError) as caught:
        load_model(tmp_path / "a.safetensors", config=config)
    assert "unexpected" in caught.value.what
    assert words in str(caught.value.fix)


def test_pre_logits_are_left_out_only_without_a_head(tmp_path: Path) -> None:
    peer, config = twin("vit_tiny_patch16_224")
    more = {"pre_logits.fc.weight": torch.ones(48, 48), "pre_logits.fc.bias": torch.ones(48)}
    save_file({**peer.state_dict(), **more}, tmp_path / "a.safetensors")
    with pytest.raises(VitscopeError, match="pre_logits") as caught:
        load_model(tmp_path / "a.safetensors", config=config)
    assert "num_classes=0" in str(caught.value.fix)
    ours = load_model(tmp_path / "a.safetensors", config=updated(config, num_classes=0))
    assert {entry.theirs[0] for entry in ours.certificate.of("left out")} == {*more, "head.weight", "head.bias"}
    peer.reset_classifier(0)
    assert_same_answers(answers(ours, pictures(config)), answers(peer, pictures(config)))


def test_a_file_timm_can_open_has_a_peer(tmp_path: Path) -> None:
    peer, config = twin("deit_small_distilled_patch16_224")
    torch.save({"model": peer.state_dict()}, tmp_path / "a.pth")
    found = peer_of_file(tmp_path / "a.pth", config)
    assert found is not None
    assert torch.equal(found(pictures(config)), answers(peer, pictures(config)))
    torch.save({"model": {"nothing": torch.ones(1)}}, tmp_path / "b.pth")
    with pytest.raises(RuntimeError, match="nothing"):
        peer_of_file(tmp_path / "b.pth", config)


def test_the_name_of_a_file_says_how_it_is_written(tmp_path: Path) -> None:
    _, config = twin("vit_tiny_patch16_224")
    with pytest.raises(UsageError, match=r"\.safetensors"):
        save_timm_file(build_model(config), tmp_path / "model.onnx")

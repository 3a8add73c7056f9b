"""Models of transformers become ours and go back: same outputs, same tensors, under both of its namings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_models import (
    CASES,
    largest_difference,
    pictures_for,
    quiet,
    saved_by_transformers,
    tensors_in,
    their_model,
    transformers,
)
from safetensors.torch import save_file
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, SimMIMConfig, ViTConfig
from vitscope.models.variants import model_config
from vitscope.weights.formats.huggingface import HUGGINGFACE, naming
from vitscope.weights.formats.huggingface_folder import answer, fixed_mask, fixed_noise, peer, save_folder
from vitscope.weights.load import load_model

OUTPUTS = 1e-5
LOST = {
    "vit": {"pooler.dense.weight", "pooler.dense.bias"},
    "deit": {"pooler.dense.weight", "pooler.dense.bias"},
    "dinov2": {"embeddings.mask_token"},
    "dinov2_swiglu": {"embeddings.mask_token"},
    "dinov2_registers": {"embeddings.mask_token"},
    "dinov2_classes": {"classifier.weight", "classifier.bias", "dinov2.embeddings.mask_token"},
    "dinov2_registers_classes": {
        "classifier.weight",
        "classifier.bias",
        "dinov2_with_registers.embeddings.mask_token",
    },
    "mae": {"vit.embeddings.position_embeddings", "decoder.decoder_pos_embed"},
    "mae_learned": {"decoder.decoder_pos_embed"},
    "mae_encoder": {"embeddings.position_embeddings"},
}
"""What has no place here: computed anew, or not needed."""


@torch.inference_mode()
def their_answer(model: Any, images: Tensor) -> Tensor:
    """Written out here once more, so that `peer` is held against something."""
    name = type(model).__name__
    if "ForMasked" in name:
        mask = fixed_mask(images, 16)
        return model(images, bool_masked_pos=mask).reconstruction
    if name == "ViTMAEForPreTraining":
        return model(images, noise=fixed_noise(images, 16)).logits
    if name == "ViTMAEModel":
        model.config.mask_ratio = 0.0
        return model(images, noise=fixed_noise(images, 16)).last_hidden_state
    if name.startswith("Dinov2"):
        backbone = getattr(model, "dinov2", getattr(model, "dinov2_with_registers", model))
        return backbone(images).last_hidden_state
    told = model(images)
    return told.logits if hasattr(told, "logits") else told.last_hidden_state


@pytest.mark.parametrize("case", CASES)
def test_outputs_are_theirs(case: str, tmp_path: Path) -> None:
    theirs = their_model(case)
    ours = load_model(saved_by_transformers(theirs, tmp_path))
    images = pictures_for(theirs)
    wanted = their_answer(theirs, images)
    assert largest_difference(answer(ours, images), wanted) <= OUTPUTS
    with quiet():
        asked = peer(tmp_path)
    assert asked is not None
    assert largest_difference(asked(images), wanted) <= 1e-6
    certificate = ours.certificate
    assert certificate is not None
    assert (certificate.format, certificate.covered) == ("huggingface", 1.0)
    assert certificate.is_whole
    assert {entry.theirs[0] for entry in certificate.of("left out")} == LOST.get(case, set())
    assert all(entry.how for entry in certificate.of("left out", "transformed"))
    assert not certificate.of("missing", "unexpected", "new", "resampled")


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("prefixed", [True, False], ids=["prefixed", "bare"])
def test_names_of_transformers_5_are_read_alike(case: str, prefixed: bool, tmp_path: Path) -> None:
    """The names a model has in memory, with the backbone's name in front or not; and a mixture with those of files."""
    theirs = their_model(case)
    saved_by_transformers(theirs, tmp_path)
    wanted = load_model(tmp_path).state_dict()
    in_memory = dict(theirs.state_dict())
    if not prefixed:
        start = f"{theirs.base_model_prefix}."
        in_memory = {name.removeprefix(start): tensor for name, tensor in in_memory.items()}
    assert not any(".query." in name or ".intermediate." in name for name in in_memory)
    save_file({name: tensor.contiguous() for name, tensor in in_memory.items()}, tmp_path / "model.safetensors")
    found = load_model(tmp_path).state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


def test_names_of_published_mae_files(tmp_path: Path) -> None:
    """transformers 5.22 writes `decoder.decoder_encoder.layer`; the files there are have `decoder.decoder_layers`."""
    saved_by_transformers(their_model("mae"), tmp_path)
    wanted, stored = load_model(tmp_path).state_dict(), tensors_in(tmp_path)
    published = {name.replace("decoder_encoder.layer", "decoder_layers"): tensor for name, tensor in stored.items()}
    assert any("decoder_encoder" in name for name in stored)
    save_file(published, tmp_path / "model.safetensors")
    found = load_model(tmp_path).state_dict()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


# --- there and back ---------------------------------------------------------------------------------------------


def as_published(name: str) -> str:
    return name.replace("decoder_encoder.layer", "decoder_layers")


@pytest.mark.parametrize("case", CASES)
def test_theirs_comes_back_tensor_by_tensor(case: str, tmp_path: Path) -> None:
    """All but what the certificate names, under the names of the files."""
    theirs = their_model(case)
    stored = tensors_in(saved_by_transformers(theirs, tmp_path / "theirs"))
    ours = load_model(tmp_path / "theirs")
    (tmp_path / "again").mkdir()
    save_folder(ours, tmp_path / "again")
    again = tensors_in(tmp_path / "again")
    backbone = f"{theirs.base_model_prefix}."
    if case in ("dinov2_classes", "dinov2_registers_classes"):  # without its head it is the backbone alone
        stored = {name.removeprefix(backbone): tensor for name, tensor in stored.items()}
    stored = {as_published(name): tensor for name, tensor in stored.items()}
    lost = {
        name.removeprefix(backbone) if "classes" in case and "dino" in case else name for name in LOST.get(case, ())
    }
    folded = {"embeddings.cls_token", "embeddings.position_embeddings"} if "registers" in case else set()
    assert stored.keys() - again.keys() <= lost
    assert again.keys() <= stored.keys()
    for name in stored.keys() - lost - folded:
        assert torch.equal(again[name], stored[name]), name
    if folded:
        token, table = again["embeddings.cls_token"], again["embeddings.position_embeddings"]
        row = stored["embeddings.position_embeddings"][:, :1]
        assert torch.equal(table[:, 1:], stored["embeddings.position_embeddings"][:, 1:])
        assert not table[:, 0].any()
        assert torch.equal(token, stored["embeddings.cls_token"] + row)
    if "sincos" in str(getattr(ours.config, "encoder", ours.config).position):
        place = next(name for name in again if name.endswith("position_embeddings"))
        assert (again[place] - stored[place]).abs().max() <= 1e-6
    images = pictures_for(theirs)
    with quiet():
        asked = peer(tmp_path / "again")
    assert asked is not None
    assert largest_difference(asked(images), their_answer(theirs, images)) <= OUTPUTS


SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4}
OURS: dict[str, Any] = {
    "classes": ViTConfig(**SMALL, num_classes=5, norm_eps=1e-5, act="quick_gelu"),
    "headless": ViTConfig(**SMALL, num_classes=0, mlp_dim=50, qkv_bias=False),
    "rectangle": ViTConfig(**{**SMALL, "img_size": (16, 40), "patch_size": (8, 4)}, num_classes=5),
    "wide_heads": ViTConfig(**SMALL, num_classes=5, head_dim=6),
    "distilled": ViTConfig(**SMALL, num_classes=5, distilled=True),
    "distilled_headless": ViTConfig(**SMALL, num_classes=0, distilled=True),
    "one_register": ViTConfig(**SMALL, num_classes=5, num_registers=1),
    "one_register_headless": ViTConfig(**SMALL, num_classes=0, num_registers=1),
    "dinov2": ViTConfig(**SMALL, num_classes=0, layer_scale=0.1, mlp_ratio=3.0, act="gelu_tanh"),
    "dinov2_swiglu": ViTConfig(**SMALL, num_classes=0, layer_scale=0.1, mlp="swiglu", mlp_dim=128),
    "dinov2_registers": ViTConfig(**SMALL, num_classes=0, layer_scale=0.1, num_registers=4, prefix_position=False),
    "sincos": ViTConfig(**SMALL, num_classes=0, position="sincos"),
    "mae": MAEConfig(
        encoder=ViTConfig(**SMALL, num_classes=0, position="sincos", mlp_ratio=2.5),
        decoder_embed_dim=24,
        decoder_depth=1,
        decoder_num_heads=3,
    ),
    "simmim": SimMIMConfig(encoder=ViTConfig(**SMALL, num_classes=0), mask_ratio=0.3),
}


def filled(config: Any) -> Any:
    model = build_model(config).eval()
    fill_with_large_random_weights(model, seed=3)
    return model


@pytest.mark.parametrize("case", OURS)
def test_ours_comes_back_bit_by_bit(case: str, tmp_path: Path) -> None:
    model = filled(OURS[case])
    save_folder(model, tmp_path)
    again = load_model(tmp_path)
    assert type(again) is type(model)
    wanted, found = model.state_dict(), again.state_dict()
    assert found.keys() == wanted.keys()
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    encoder = getattr(model.config, "encoder", model.config)
    height, width = encoder.img_size if isinstance(encoder.img_size, tuple) else (encoder.img_size,) * 2
    images = torch.randn(2, 3, height, width, generator=torch.Generator().manual_seed(1))
    assert torch.equal(answer(again, images), answer(model, images))
    with quiet():
        asked = peer(tmp_path)
    assert asked is not None
    assert largest_difference(answer(model, images), asked(images)) <= OUTPUTS


@pytest.mark.parametrize(
    ("settings", "remark"),
    [
        ({"prefix_position": False}, "its row was written as zeros"),
        ({"position": "none"}, "a table of zeros was written"),
        ({"position": "sincos"}, "sin-cos positions were written as a table"),
    ],
    ids=["no_class_position", "no_positions", "sincos"],
)
def test_what_is_filled_in_is_said_and_computes_the_same(settings: dict[str, Any], remark: str, tmp_path: Path) -> None:
    model = filled(ViTConfig(**SMALL, num_classes=5, **settings))
    remarks = save_folder(model, tmp_path)
    assert any(remark in said for said in remarks)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))
    assert largest_difference(load_model(tmp_path)(images), model(images)) <= OUTPUTS


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_types_stay(dtype: torch.dtype, tmp_path: Path) -> None:
    model = filled(OURS["mae"]).to(dtype)
    save_folder(model, tmp_path)
    again = load_model(tmp_path)
    assert {tensor.dtype for tensor in tensors_in(tmp_path).values()} == {dtype}
    assert again.config == updated(model.config, encoder=updated(model.config.encoder, init="xavier"))
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())
    with quiet():
        assert transformers.ViTMAEForPreTraining.from_pretrained(tmp_path).dtype == dtype


# --- full size --------------------------------------------------------------------------------------------------


@torch.inference_mode()
def test_vit_base_224(tmp_path: Path) -> None:
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    fill_with_large_random_weights(theirs)
    ours = load_model(saved_by_transformers(theirs.eval(), tmp_path))
    assert ours.config.norm_eps == 1e-12
    images = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    assert largest_difference(ours(images), theirs(images).logits) <= OUTPUTS


FULL_SIZE = {
    "vit_base_patch32_384": ("ViTForImageClassification", {"patch_size": 32, "image_size": 384, "num_labels": 1000}),
    "deit_tiny_distilled_patch16_224": (
        "DeiTForImageClassificationWithTeacher",
        {"hidden_size": 192, "num_attention_heads": 3, "intermediate_size": 768, "num_labels": 1000},
    ),
    "vit_small_patch14_dinov2": ("Dinov2Model", {"hidden_size": 384, "num_attention_heads": 6, "image_size": 518}),
    "vit_giant_patch14_reg4_dinov2": (
        "Dinov2WithRegistersModel",
        {
            "hidden_size": 1536,
            "num_hidden_layers": 40,
            "num_attention_heads": 24,
            "use_swiglu_ffn": True,
            "image_size": 518,
            "patch_size": 14,
        },
    ),
    "mae_vit_base_patch16": ("ViTMAEForPreTraining", {}),
    "simmim_vit_base_patch16_224": ("ViTForMaskedImageModeling", {}),
}


@pytest.mark.parametrize("name", FULL_SIZE)
def test_every_tensor_of_a_full_size_model_has_its_counterpart(name: str) -> None:
    """Names and shapes, nothing computed: all of theirs are written from ours, but for what has no place here."""
    kind, settings = FULL_SIZE[name]
    config_class = getattr(transformers, kind).config_class
    config = model_config(name)
    with torch.device("meta"):
        theirs = getattr(transformers, kind)(config_class(**settings))
        ours = build_model(config)
    known = theirs.state_dict()
    backbone = f"{theirs.base_model_prefix}." if "For" in kind else ""
    find = naming(config, backbone, known)
    written = {}
    for ours_name, tensor in ours.state_dict().items():
        match = find(ours_name)
        assert match is not None, ours_name
        written |= dict(zip(match.written, match.write(tensor), strict=True))
    assert all(tensor.shape == known[their_name].shape for their_name, tensor in written.items())
    fixed = {"position_embeddings", "decoder_pos_embed"} if "MAE" in kind else set()
    free = {"mask_token"} if kind.startswith("Dinov2") else set()
    assert {missing.rpartition(".")[2] for missing in known.keys() - written.keys()} == fixed | free


# --- what must not pass in silence ------------------------------------------------------------------------------


def test_another_decoder_table_is_refused(tmp_path: Path) -> None:
    """A decoder here computes its positions; one that has learned others would paint something else."""
    theirs = their_model("mae")
    with torch.no_grad():
        theirs.decoder.decoder_pos_embed += 0.01
    saved_by_transformers(theirs, tmp_path)
    with pytest.raises(VitscopeError, match=r"unexpected: decoder\.decoder_pos_embed"):
        load_model(tmp_path)


def test_a_bare_file_of_another_table_is_refused(tmp_path: Path) -> None:
    saved_by_transformers(their_model("mae_learned"), tmp_path)
    told = load_model(tmp_path).config
    assert isinstance(told, MAEConfig)
    assert told.encoder.position == "learned"
    sincos = updated(told, encoder=updated(told.encoder, position="sincos"))
    with pytest.raises(VitscopeError, match=r"unexpected: vit\.embeddings\.position_embeddings"):
        load_model(tmp_path / "model.safetensors", config=sincos)


def test_the_encoder_of_a_bare_mae_file(tmp_path: Path) -> None:
    theirs = their_model("mae")
    saved_by_transformers(theirs, tmp_path)
    encoder: Any = load_model(tmp_path).config
    alone = load_model(tmp_path / "model.safetensors", config=encoder.encoder)
    images = pictures_for(theirs)
    theirs.config.mask_ratio = 0.0
    with torch.inference_mode():
        wanted = theirs.vit(images, noise=fixed_noise(images, 16)).last_hidden_state
        assert largest_difference(alone.forward_features(images), wanted) <= OUTPUTS
    assert alone.certificate is not None
    assert all("decoder" in entry.theirs[0] or "sin-cos" in entry.how for entry in alone.certificate.of("left out"))


@pytest.mark.parametrize("lost", ["vit.encoder.layer.1.attention.attention.key.weight", "vit.layernorm.bias"])
def test_a_lost_tensor_is_named(lost: str, tmp_path: Path) -> None:
    saved_by_transformers(their_model("vit_classes"), tmp_path)
    stored = tensors_in(tmp_path)
    del stored[lost]
    save_file(stored, tmp_path / "model.safetensors")
    ours = "blocks.1.attn.qkv.weight" if "key" in lost else "norm.bias"
    with pytest.raises(VitscopeError, match=rf"1 missing: {ours}"):
        load_model(tmp_path)


def test_other_models_of_theirs_are_not_taken_for_these() -> None:
    with torch.device("meta"):
        swin = transformers.SwinModel(transformers.SwinConfig(embed_dim=24, depths=[1], num_heads=[2]))
    names = {f"swin.{name}" for name in swin.state_dict()}
    assert "swin.embeddings.patch_embeddings.projection.weight" in names
    assert not HUGGINGFACE.recognises(names)  # type: ignore[arg-type]


def test_the_class_that_was_left_without_its_head_says_why(tmp_path: Path) -> None:
    ours = load_model(saved_by_transformers(their_model("dinov2_classes"), tmp_path))
    assert ours.num_classes == 0
    assert ours.certificate is not None
    why = {entry.theirs[0]: entry.how for entry in ours.certificate.of("left out")}
    assert "side by side" in why["classifier.weight"]


def test_deits_second_token_is_explained(tmp_path: Path) -> None:
    ours: Any = load_model(saved_by_transformers(their_model("deit_classes"), tmp_path))
    assert (ours.config.distilled, ours.config.num_registers, ours.config.prefix_position) == (False, 1, True)
    assert any("held as a register" in remark for remark in ours.certificate.remarks)


def test_the_fold_of_registers_is_said(tmp_path: Path) -> None:
    ours: Any = load_model(saved_by_transformers(their_model("dinov2_registers"), tmp_path))
    entry = next(entry for entry in ours.certificate.entries if entry.ours == "cls_token")
    assert entry.fate == "transformed"
    assert entry.theirs == ("embeddings.cls_token", "embeddings.position_embeddings")
    assert "position table" in entry.how


def test_settings_that_change_numbers_are_carried(tmp_path: Path) -> None:
    saved_by_transformers(their_model("vit_options"), tmp_path)
    config: Any = load_model(tmp_path).config
    assert (config.norm_eps, config.act, config.qkv_bias) == (1e-2, "gelu_tanh", False)
    assert (config.img_size, config.in_chans, config.num_classes) == ((24, 40), 1, 2)
    assert (config.drop_rate, config.attn_drop_rate) == (0.1, 0.2)
    assert json.loads((tmp_path / "config.json").read_text())["layer_norm_eps"] == 1e-2

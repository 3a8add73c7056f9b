"""The authors' own checkpoints of DINO, DINOv2, MAE, DeiT and Swin. timm's own converters are the oracle."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from timm.models.swin_transformer import checkpoint_filter_fn as swin_filter
from timm.models.vision_transformer import checkpoint_filter_fn as vit_filter
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig, pair
from vitscope.models.variants import model_config
from vitscope.weights.files import Stored, read_file
from vitscope.weights.formats import recognised
from vitscope.weights.formats.dinov2 import DINOV2
from vitscope.weights.formats.mae import MAE_ORIGINAL
from vitscope.weights.load import load_model

NARROW: dict[str, Any] = {"embed_dim": 48, "depth": 4, "num_heads": 4}
Weights = dict[str, Tensor]


def twin(name: str, **settings: Any) -> Any:
    peer = timm.create_model(name, **{**NARROW, **settings})
    fill_with_large_random_weights(peer)
    return peer.eval()


def ours_of(name: str, **settings: Any) -> ModelConfig:
    return updated(model_config(name), **{**NARROW, **settings})


@torch.no_grad()
def assert_same_features(ours: Any, peer: Any) -> None:
    config = ours.config
    images = torch.randn(2, 3, *pair(config.img_size), generator=torch.Generator().manual_seed(1))
    found, wanted = ours.forward_features(images), peer.forward_features(images)
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= 1e-5 * wanted.abs().max().item()


def saved(path: Path, content: Any) -> Path:
    torch.save(content, path)
    return path


def left_out(model: Any) -> set[str]:
    return {entry.theirs[0] for entry in model.certificate.of("left out")}


# --- DINOv2 -----------------------------------------------------------------------------------------------------


def dinov2(peer: Any, seed: int = 5) -> Weights:
    """timm's weights under DINOv2's names. What timm folded is taken apart again: the class token's position."""
    rng = torch.Generator().manual_seed(seed)
    weights = {name: tensor.clone() for name, tensor in peer.state_dict().items()}
    if "reg_token" in weights:
        place = torch.randn(1, 1, peer.embed_dim, generator=rng)
        weights["register_tokens"] = weights.pop("reg_token")
        weights["pos_embed"] = torch.cat([place, weights["pos_embed"]], dim=1)
        weights["cls_token"] = weights["cls_token"] - place
    weights["mask_token"] = torch.randn(1, peer.embed_dim, generator=rng)
    gated = hasattr(peer.blocks[0].mlp, "gate_last")
    for old, new in (("mlp.fc1", "mlp.w12"), ("mlp.fc2", "mlp.w3")) if gated else ():
        weights = {name.replace(old, new): tensor for name, tensor in weights.items()}
    return weights


def chunked(weights: Weights, *, anew: bool) -> Weights:
    """Two blocks a chunk; indices go on, or begin anew in each chunk."""

    def renamed(name: str) -> str:
        if not name.startswith("blocks."):
            return name
        _, index, rest = name.split(".", 2)
        return f"blocks.{int(index) // 2}.{int(index) % 2 if anew else index}.{rest}"

    return {renamed(name): tensor for name, tensor in weights.items()}


DINOV2_NAMES = {
    "vit_small_patch14_dinov2": {},
    "vit_small_patch14_reg4_dinov2": {},
    "vit_giant_patch14_dinov2": {"mlp_dim": 128},
    "vit_giant_patch14_reg4_dinov2": {"mlp_dim": 128},
}


@pytest.mark.parametrize("name", DINOV2_NAMES)
def test_dinov2_as_timm_reads_it(name: str, tmp_path: Path) -> None:
    weights = dinov2(twin(name, img_size=98))
    peer: Any = timm.create_model(name, **NARROW, img_size=98).eval()
    peer.load_state_dict(vit_filter(dict(weights), peer))
    config = ours_of(name, img_size=98, **DINOV2_NAMES[name])
    ours = load_model(saved(tmp_path / "dinov2.pth", weights), config=config)
    assert ours.config == config
    assert ours.certificate.format == "DINOv2's own"
    assert ours.certificate.covered == 1
    assert left_out(ours) == {"mask_token"}
    for key, tensor in peer.state_dict().items():
        assert torch.equal(ours.state_dict()[key], tensor), key
    assert_same_features(ours, peer)
    folded = ours.certificate.of("transformed")
    assert {entry.ours for entry in folded} == ({"cls_token", "pos_embed"} if "reg4" in name else set())


def test_a_wrong_order_of_gate_and_value_would_show(tmp_path: Path) -> None:
    name = "vit_giant_patch14_dinov2"
    peer = twin(name, img_size=98)
    weights = {
        key: tensor.roll(len(tensor) // 2, dims=0) if ".w12." in key else tensor for key, tensor in dinov2(peer).items()
    }
    ours = load_model(saved(tmp_path / "a.pth", weights), config=ours_of(name, img_size=98, mlp_dim=128))
    with pytest.raises(AssertionError):
        assert_same_features(ours, peer)


@pytest.mark.parametrize("anew", [False, True], ids=["going_on", "anew"])
def test_dinov2_training_checkpoint(anew: bool, tmp_path: Path) -> None:
    """Blocks in chunks, the teacher's backbone beside its heads, all of it in 'teacher'."""
    name = "vit_small_patch14_reg4_dinov2"
    peer = twin(name, img_size=98)
    inner = {f"backbone.{key}": tensor for key, tensor in chunked(dinov2(peer), anew=anew).items()}
    heads = {f"{head}.mlp.0.weight": torch.ones(2, 2) for head in ("dino_head", "ibot_head")}
    file = saved(tmp_path / "teacher_checkpoint.pth", {"teacher": {**inner, **heads}})
    ours = load_model(file, config=ours_of(name, img_size=98))
    assert_same_features(ours, peer)
    assert left_out(ours) == {"mask_token", *heads}
    assert ours.certificate.covered == 1
    said = ours.certificate.remarks
    assert "of the checkpoint, its 'teacher'" in said
    assert "names without their 'backbone.'" in said


def test_teacher_and_student_side_by_side(tmp_path: Path) -> None:
    """In one flat mapping, the student first."""
    name = "vit_small_patch14_dinov2"
    peer = twin(name, img_size=98)
    weights = dinov2(peer)
    flat = {f"student.backbone.{key}": tensor + 1 for key, tensor in weights.items()}
    flat |= {f"teacher.backbone.{key}": tensor for key, tensor in weights.items()}
    flat |= {"teacher.dino_head.mlp.0.weight": torch.ones(2, 2), "dino_loss.center": torch.ones(1, 3)}
    ours = load_model(saved(tmp_path / "model.pth", {"model": flat}), config=ours_of(name, img_size=98))
    assert_same_features(ours, peer)
    student = {f"student.backbone.{key}" for key in weights}
    assert left_out(ours) == {"mask_token", "dino_head.mlp.0.weight", "dino_loss.center", *student}


def test_what_the_dinov2_matches_write_is_read_back() -> None:
    """Also where chunks and the gated MLP rename: the class token's position stays in the token."""
    name = "vit_giant_patch14_reg4_dinov2"
    config = ours_of(name, img_size=98, mlp_dim=128)
    ours = build_model(config)
    fill_with_large_random_weights(ours)
    example = chunked(dinov2(twin(name, img_size=98)), anew=False)
    like = Stored({key: tuple(t.shape) for key, t in example.items()}, example.__getitem__, files=(Path("none"),))
    assert recognised(like, where="here") is DINOV2
    find = DINOV2.reading(like, config)
    back: Weights = {}
    for key, tensor in ours.state_dict().items():
        match = find(key)
        assert match is not None
        back |= dict(zip(match.written, match.write(tensor), strict=True))
    assert {key: tuple(tensor.shape) for key, tensor in back.items()} == {
        key: shape for key, shape in like.shapes.items() if key != "mask_token"
    }
    for key, tensor in ours.state_dict().items():
        match = find(key)
        assert match is not None
        assert torch.equal(match.read(*(back[part] for part in match.theirs)), tensor), key


# --- DINO -------------------------------------------------------------------------------------------------------


def dino_head() -> Weights:
    return {
        "head.mlp.0.weight": torch.ones(4, 48),
        "head.mlp.0.bias": torch.ones(4),
        "head.last_layer.weight_g": torch.ones(3, 1),
        "head.last_layer.weight_v": torch.ones(3, 4),
    }


@pytest.mark.parametrize("wrapped", [False, True], ids=["plain", "module"])
def test_dino_checkpoint_takes_the_teacher(wrapped: bool, tmp_path: Path) -> None:
    name = "vit_small_patch16_224"
    peer = twin(name, num_classes=0)

    def whole(shift: float, outer: str) -> Weights:
        backbone = {f"backbone.{key}": tensor + shift for key, tensor in peer.state_dict().items()}
        return {outer + key: tensor for key, tensor in {**backbone, **dino_head()}.items()}

    content = {
        "student": whole(1.0, "module."),
        "teacher": whole(0.0, "module." if wrapped else ""),
        "epoch": 3,
        "args": argparse.Namespace(arch="vit_small"),
        "dino_loss": {"center": torch.ones(1, 3)},
    }
    ours = load_model(saved(tmp_path / "checkpoint.pth", content), config=ours_of(name))
    assert ours.certificate.remarks[0] == "of the checkpoint, its 'teacher', not its 'student'"
    assert left_out(ours) == set(dino_head())
    assert ours.num_classes == 1000
    assert {entry.fate for entry in ours.certificate.entries if entry.in_head} == {"new"}
    assert_same_features(ours, peer)


def test_dino_backbone_alone(tmp_path: Path) -> None:
    peer = twin("vit_small_patch16_224", num_classes=0)
    config = ours_of("vit_small_patch16_224", num_classes=0)
    ours = load_model(saved(tmp_path / "dino_deitsmall16.pth", peer.state_dict()), config=config)
    assert ours.certificate.covered == 1
    assert_same_features(ours, peer)


# --- MAE --------------------------------------------------------------------------------------------------------

ENCODER = ViTConfig(**NARROW, img_size=64, num_classes=0)
MAE = MAEConfig(encoder=updated(ENCODER, position="sincos"), decoder_embed_dim=32, decoder_depth=2, decoder_num_heads=4)


def numpy_sincos(width: int, side: int) -> Tensor:
    """The authors' table, written from the paper's formula: sines and cosines of the column, then of the row."""
    rows: list[list[float]] = [[0.0] * width]
    for row in range(side):
        for column in range(side):
            line: list[float] = []
            for place in (column, row):
                angles = torch.tensor([place / 10000 ** (k / (width / 4)) for k in range(width // 4)]).double()
                line += [*angles.sin().tolist(), *angles.cos().tolist()]
            rows.append(line)
    return torch.tensor(rows, dtype=torch.float32)[None]


def mae(*, decoder: bool = True) -> tuple[Any, Weights]:
    """Our MAE under large random weights, and its authors' file of it."""
    model = build_model(MAE)
    fill_with_large_random_weights(model)
    weights = {name.removeprefix("encoder."): tensor for name, tensor in model.state_dict().items()}
    weights["pos_embed"] = numpy_sincos(48, 4)
    weights["decoder_pos_embed"] = numpy_sincos(32, 4)
    if not decoder:
        weights = {
            name: tensor for name, tensor in weights.items() if not name.startswith("decoder_") and name != "mask_token"
        }
    return model.eval(), weights


@torch.no_grad()
def test_mae_with_its_decoder(tmp_path: Path) -> None:
    model, weights = mae()
    file = saved(tmp_path / "mae_visualize.pth", {"model": weights})
    ours = load_model(file, config=MAE)
    assert ours.certificate.format == "MAE's own"
    assert ours.certificate.covered == 1
    assert left_out(ours) == {"pos_embed", "decoder_pos_embed"}
    assert all("computed here" in entry.how for entry in ours.certificate.of("left out"))
    for name, tensor in model.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    images, noise = torch.randn(2, 3, 64, 64), torch.rand(2, 16)
    assert torch.equal(ours(images, noise=noise).prediction, model(images, noise=noise).prediction)


@pytest.mark.parametrize("position", ["learned", "sincos"])
@pytest.mark.parametrize("decoder", [True, False], ids=["with_decoder", "encoder_alone"])
def test_mae_for_a_vit(decoder: bool, position: str, tmp_path: Path) -> None:
    _, weights = mae(decoder=decoder)
    peer = twin("vit_base_patch16_224", img_size=64, num_classes=0)
    encoder = {name: tensor for name, tensor in weights.items() if name in peer.state_dict()}
    peer.load_state_dict(vit_filter(dict(encoder), peer))
    config = updated(ENCODER, position=position, num_classes=3)
    ours = load_model(saved(tmp_path / "mae.pth", {"model": weights}), config=config)
    assert ours.certificate.backbone_covered == 1
    assert ours.num_classes == 3
    assert_same_features(ours, peer)
    away = {name for name in weights if name.startswith("decoder_") or name == "mask_token"}
    assert left_out(ours) == away | ({"pos_embed"} if position == "sincos" else set())
    reasons = {entry.how for entry in ours.certificate.of("left out") if entry.theirs[0] in away}
    assert reasons == ({"the decoder, which only pre-training needs"} if decoder else set())


def test_another_table_than_ours_is_never_dropped(tmp_path: Path) -> None:
    _, weights = mae(decoder=False)
    weights["pos_embed"] = weights["pos_embed"] + 1e-3
    file = saved(tmp_path / "mae.pth", {"model": weights})
    with pytest.raises(VitscopeError, match="pos_embed") as caught:
        load_model(file, config=updated(ENCODER, position="sincos"))
    assert "position='learned'" in str(caught.value.fix)
    learned = load_model(file, config=ENCODER)
    assert torch.equal(learned.state_dict()["pos_embed"], weights["pos_embed"])


def test_another_table_of_the_decoder_is_never_dropped(tmp_path: Path) -> None:
    _, weights = mae()
    weights["decoder_pos_embed"] = weights["decoder_pos_embed"] * 1.1
    file = saved(tmp_path / "mae.pth", {"model": weights})
    with pytest.raises(VitscopeError, match="decoder_pos_embed"):
        load_model(file, config=MAE)


def test_an_encoder_alone_does_not_make_an_mae(tmp_path: Path) -> None:
    _, weights = mae(decoder=False)
    file = saved(tmp_path / "mae.pth", {"model": weights})
    with pytest.raises(VitscopeError, match=r"missing: mask_token"):
        load_model(file, config=MAE)
    ours = load_model(file, config=MAE, allow_partial=True)
    assert torch.equal(ours.state_dict()["encoder.norm.weight"], weights["norm.weight"])


def test_the_names_of_full_maes() -> None:
    for name in ("mae_vit_base_patch16", "mae_vit_large_patch16", "mae_vit_huge_patch14"):
        config = model_config(name)
        with torch.device("meta"):
            shapes = {key: tuple(tensor.shape) for key, tensor in build_model(config).state_dict().items()}
        theirs = {key.removeprefix("encoder."): shape for key, shape in shapes.items()}
        stored = Stored(theirs, lambda name: pytest.fail("a number was read"), files=(Path("none"),))
        assert recognised(stored, where="here") is MAE_ORIGINAL
        find = MAE_ORIGINAL.reading(stored, config)
        assert {match.theirs[0] for key in shapes if (match := find(key)) is not None} == set(theirs)


def test_a_plain_vit_becomes_the_encoder_of_a_simmim(tmp_path: Path) -> None:
    peer = twin("vit_base_patch16_224", img_size=64, num_classes=0)
    config = SimMIMConfig(encoder=ENCODER)
    file = saved(tmp_path / "a.pth", peer.state_dict())
    ours = load_model(file, config=config, allow_partial=True)
    assert_same_features(ours.encoder, peer)
    assert {entry.ours for entry in ours.certificate.of("missing")} == {
        "mask_token",
        "decoder.0.weight",
        "decoder.0.bias",
    }


# --- DeiT, Swin -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["deit_tiny_patch16_224", "deit_base_distilled_patch16_384"])
@torch.no_grad()
def test_deit(name: str, tmp_path: Path) -> None:
    peer = twin(name)
    ours = load_model(saved(tmp_path / "deit.pth", {"model": peer.state_dict()}), config=ours_of(name))
    assert ours.certificate.covered == 1
    assert ours.certificate.remarks == ("of the checkpoint, its 'model'",)
    images = torch.randn(1, 3, *pair(ours.config.img_size))
    found, wanted = ours(images), peer(images)
    assert (found - wanted).abs().max().item() <= 1e-5 * wanted.abs().max().item()


def test_deit_3_names_its_layer_scale_otherwise(tmp_path: Path) -> None:
    peer = twin("deit3_small_patch16_224")
    weights = {
        name.replace("ls1.gamma", "gamma_1").replace("ls2.gamma", "gamma_2"): tensor
        for name, tensor in peer.state_dict().items()
    }
    config = ours_of("vit_small_patch16_224", layer_scale=1e-6, prefix_position=False)
    ours = load_model(saved(tmp_path / "deit3.pth", {"model": weights}), config=config)
    assert ours.certificate.covered == 1
    assert_same_features(ours, peer)


SWIN: dict[str, Any] = {"embed_dim": 24, "depths": (2, 2, 2, 2), "num_heads": (2, 2, 4, 4)}


@pytest.mark.parametrize("classes", [5, 0])
def test_swin_as_its_authors_saved_it(classes: int, tmp_path: Path) -> None:
    """Merging at the end of a stage, the head without 'fc', indices and masks among the weights."""
    name = "swin_tiny_patch4_window7_224"
    source = timm.create_model(name, **SWIN, num_classes=classes)
    fill_with_large_random_weights(source)
    weights: Weights = {}
    for key, tensor in source.state_dict().items():
        old = key.replace("head.fc.", "head.")
        if ".downsample." in old:
            stage = int(old.split(".")[1])
            old = old.replace(f"layers.{stage}.", f"layers.{stage - 1}.")
        weights[old] = tensor
    buffers = {
        "layers.0.blocks.0.attn.relative_position_index": torch.zeros(49, 49, dtype=torch.long),
        "layers.0.blocks.1.attn_mask": torch.zeros(64, 49, 49),
    }
    peer = timm.create_model(name, **SWIN, num_classes=classes).eval()
    peer.load_state_dict(swin_filter({"model": {**weights, **buffers}}, peer))
    config = updated(model_config(name), **SWIN, num_classes=classes)
    ours = load_model(saved(tmp_path / "swin.pth", {"model": {**weights, **buffers}}), config=config)
    assert ours.certificate.covered == 1
    assert left_out(ours) == set(buffers)
    assert ours.num_classes == classes
    assert_same_features(ours, peer)


def test_an_unsafe_checkpoint_is_still_refused(tmp_path: Path) -> None:
    torch.save({"teacher": {"a": torch.ones(1)}, "thing": print}, tmp_path / "a.pth")
    with pytest.raises(VitscopeError, match="more than tensors"):
        read_file(tmp_path / "a.pth")

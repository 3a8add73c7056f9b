"""What goes with weights that say nothing of themselves: a folder given as config, a config.json beside them, what is
known of the code that writes such files."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import NORMALISATIONS, PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ViTConfig
from vitscope.weights.convert import convert
from vitscope.weights.folder import load_labels, save_model
from vitscope.weights.formats import huggingface_folder
from vitscope.weights.load import load_model

NAMES = ["cat", "dog", "fox"]
SMALL = ViTConfig(img_size=32, patch_size=8, embed_dim=24, depth=1, num_heads=2, num_classes=3)
MEAN, STD = NORMALISATIONS["imagenet"]
PICTURES = PreprocessConfig(img_size=(32, 32), crop_share=0.875, mean=MEAN, std=STD)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_model(build_model(SMALL), tmp_path / "model", labels=NAMES, preprocessing=PICTURES)


def bare(place: Path, config: Any = SMALL) -> Path:
    torch.save(build_model(config).state_dict(), place)
    return place


# --- a folder as config -------------------------------------------------------------------------------------------


def test_a_folder_given_as_config_brings_pictures_and_names(folder: Path, tmp_path: Path) -> None:
    file = bare(tmp_path / "weights.pth")
    model = load_model(file, config=folder)
    assert (model.preprocessing, model.labels) == (PICTURES, NAMES)
    assert model.certificate.preprocessing["mean"] == list(MEAN)
    assert f"preprocessing and class names: those of {folder}, given as config" in model.certificate.remarks
    convert(file, tmp_path / "out", config=folder, prove=False)
    assert load_labels(tmp_path / "out") == NAMES
    assert load_model(tmp_path / "out").preprocessing == PICTURES


def test_its_names_go_where_the_head_is_of_other_classes(folder: Path, tmp_path: Path) -> None:
    file = bare(tmp_path / "weights.pth", updated(SMALL, num_classes=5))
    model = load_model(file, config=folder)
    assert (model.num_classes, model.labels) == (3, None)  # a folder says how many there are to be
    assert "3 classes are named, and the head has 5: the names are left out" in model.certificate.warnings


def test_a_folder_that_is_loaded_keeps_its_own(folder: Path, tmp_path: Path) -> None:
    other = save_model(build_model(SMALL), tmp_path / "other", labels=["x", "y", "z"])
    model = load_model(folder, config=other)
    assert (model.preprocessing, model.labels) == (PICTURES, NAMES)


def test_a_description_of_hugging_face_needs_no_weights_of_its_own(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    huggingface_folder.save_folder(load_model(folder), theirs)
    shutil.move(theirs / "model.safetensors", tmp_path / "weights.safetensors")
    model = load_model(tmp_path / "weights.safetensors", config=theirs)
    assert (model.num_classes, model.labels, model.preprocessing.mean) == (3, NAMES, MEAN)


# --- folders in parts ---------------------------------------------------------------------------------------------


def test_a_folder_with_weights_alone_is_as_good_as_the_file(folder: Path, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    shutil.copy(folder / "model.safetensors", alone)
    model = load_model(alone, config=folder)
    assert all(
        torch.equal(tensor, model.state_dict()[name]) for name, tensor in load_model(folder).state_dict().items()
    )
    with pytest.raises(ConfigError, match=r"it has no config\.json, and weights alone do not say") as caught:
        load_model(alone)
    assert "config= (--model)" in str(caught.value.fix)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_file_of_a_folder_stands_for_it_and_it_is_said(name: str, folder: Path) -> None:
    model = load_model(folder / name)
    assert (model.preprocessing, model.labels) == (PICTURES, NAMES)
    assert any("config.json" in remark for remark in model.certificate.remarks)


def test_a_config_that_is_given_wins_over_the_one_beside_a_file(folder: Path) -> None:
    (folder / "config.json").write_text('{"architecture": "nobody knows it"}')
    with pytest.raises(VitscopeError, match="architecture"):
        load_model(folder / "model.safetensors")
    model = load_model(folder / "model.safetensors", config=SMALL)
    assert (model.num_classes, model.labels) == (3, None)


def test_of_another_file_in_a_folder_the_description_is_pointed_at(folder: Path) -> None:
    file = bare(folder / "epoch-3.pth")
    with pytest.raises(ConfigError, match="a bare weights file does not say") as caught:
        load_model(file)
    assert f"config= (--model), '{folder}'" in str(caught.value.fix)
    assert load_model(file, config=folder).labels == NAMES


# --- what is known of the code behind a file ----------------------------------------------------------------------


def dinov2() -> tuple[Any, dict[str, torch.Tensor]]:
    config = updated(SMALL, num_classes=0, layer_scale=1.0)
    tensors = dict(build_model(config).state_dict())
    return config, {**tensors, "mask_token": torch.zeros(1, 24)}


def mae() -> tuple[Any, dict[str, torch.Tensor]]:
    config = MAEConfig(
        encoder=updated(SMALL, num_classes=0), decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2
    )
    tensors = build_model(config).state_dict()
    return config, {name.removeprefix("encoder."): tensor for name, tensor in tensors.items()}


def dino() -> tuple[Any, dict[str, torch.Tensor]]:
    config = updated(SMALL, num_classes=0)
    return config, {**build_model(config).state_dict(), "head.mlp.0.weight": torch.zeros(4, 4)}


@pytest.mark.parametrize("make", [dinov2, mae, dino])
def test_metas_code_has_imagenets_mean_and_std(make: Any, tmp_path: Path) -> None:
    config, tensors = make()
    save_file({name: tensor.clone() for name, tensor in tensors.items()}, tmp_path / "theirs.safetensors")
    model = load_model(tmp_path / "theirs.safetensors", config=config)
    assert (model.preprocessing.mean, model.preprocessing.std) == (MEAN, STD)
    assert any(
        remark.startswith("mean and std are ImageNet's, as the code has it") for remark in model.certificate.remarks
    )
    grey = load_model(tmp_path / "theirs.safetensors", config=config, in_chans=1)
    assert grey.preprocessing.mean == (sum(MEAN) / 3,)


def test_dinos_code_is_named_and_a_student_alone_is_not_dinos(tmp_path: Path) -> None:
    config, tensors = dino()
    torch.save(tensors, tmp_path / "a.pth")
    told = load_model(tmp_path / "a.pth", config=config).certificate.remarks
    assert "mean and std are ImageNet's, as the code has it that writes such files (DINO's)" in told
    plain = build_model(config).state_dict()
    torch.save(
        {f"{who}.{key}": one for who in ("teacher", "student") for key, one in plain.items()}, tmp_path / "b.pth"
    )
    model = load_model(tmp_path / "b.pth", config=config)
    assert model.preprocessing is None
    assert model.certificate.of("left out")


def test_of_a_file_anybody_could_have_written_nothing_is_claimed(tmp_path: Path) -> None:
    model = load_model(bare(tmp_path / "weights.pth"), config=SMALL)
    assert model.preprocessing is None
    assert "the source does not say; mean and std 0.5 are taken" in str(model.certificate).replace("\n" + " " * 14, " ")
    save_model(model, tmp_path / "out")
    assert load_model(tmp_path / "out").preprocessing.mean == (0.5, 0.5, 0.5)  # as was said

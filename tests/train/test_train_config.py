"""A run's settings as a file: short forms, both ways, and what is wrong said with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, UsageError
from vitscope.core.yaml import to_yaml
from vitscope.data.config import AugmentConfig, DataConfig, augmentation
from vitscope.models.config import ViTConfig
from vitscope.models.variants import list_models, model_config
from vitscope.train.config import LoopConfig, LossConfig, OptimConfig, TrainConfig, named_model
from vitscope.train.config.read import read_train_config

OWN = ViTConfig(img_size=(8, 16), patch_size=4, embed_dim=24, depth=2, num_heads=(1, 2), head_dim=8)


def read(tmp_path: Path, text: str) -> TrainConfig:
    path = tmp_path / "run.yaml"
    path.write_text(text, encoding="utf-8")
    return read_train_config(path)


def refused(tmp_path: Path, text: str) -> UsageError:
    with pytest.raises(UsageError) as caught:
        read(tmp_path, text)
    error = caught.value
    assert error.exit_code == 2
    assert error.where
    assert error.fix
    return error


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        TrainConfig(model=named_model("swin_tiny_patch4_window7_224"), augment=augmentation("strong", 224)),
        TrainConfig(
            model=named_model("vit", OWN),
            optim=OptimConfig(name="muon", lr=3e-4, freeze=("blocks.0.", "head")),
            loss=LossConfig(teacher="a: b"),
            loop=LoopConfig(ema_decay=0.99, early_stop=True, patience=5),
        ),
    ],
    ids=["defaults", "swin", "own"],
)
def test_what_a_run_writes_reads_back(config: TrainConfig, tmp_path: Path) -> None:
    assert read(tmp_path, to_yaml(config)) == config


@pytest.mark.parametrize("name", list_models())
def test_every_model_survives_the_trip(name: str, tmp_path: Path) -> None:
    config = TrainConfig(model=named_model(name))
    back = read(tmp_path, to_yaml(config))
    assert back == config
    assert back.model.bare == model_config(name)


def test_an_empty_file_is_the_defaults(tmp_path: Path) -> None:
    assert read(tmp_path, "") == read(tmp_path, "# nothing\n") == TrainConfig()


def test_short_forms(tmp_path: Path) -> None:
    told = read(tmp_path, "model: resnet18\ndata: cifar10\naugment: basic\noptim: {name: sgd, lr: 1e-1}\n")
    assert told == TrainConfig(
        model=named_model("resnet18"),
        data=DataConfig(name="cifar10"),
        augment=augmentation("basic", 224),
        optim=OptimConfig(name="sgd", lr=0.1),
    )


@pytest.mark.parametrize(
    ("text", "side"),
    [
        ("augment: medium", 32),  # vit_tiny's
        ("model: vit_tiny\naugment: medium", 32),
        ("augment: medium\nmodel: {name: vit_tiny, img_size: 128}", 128),
        ("augment: medium\nmodel: {name: vit_tiny, img_size: [32, 128]}", 128),
        ("augment: medium\nmodel: vit_base_patch16_224", 224),
    ],
)
def test_a_strength_is_resolved_for_the_model(text: str, side: int, tmp_path: Path) -> None:
    assert augmentation("medium", 32) != augmentation("medium", 128)
    assert read(tmp_path, text).augment == augmentation("medium", side)


def test_a_name_with_changes(tmp_path: Path) -> None:
    told: Any = read(tmp_path, "model:\n  name: vit_small\n  depth: 3\naugment:\n  flip: random\n")
    assert told.model.bare == updated(model_config("vit_small"), depth=3)
    assert told.augment == AugmentConfig(flip="random")


@pytest.mark.parametrize(
    ("text", "what", "place", "fix"),
    [
        ("modle: vit_tiny", "TrainConfig has no setting 'modle'", "", "did you mean 'model'"),
        ("modle: {depth: 3}", "TrainConfig has no setting 'modle'", "", "did you mean 'model'"),
        ("model: vit_smal", "unknown model 'vit_smal'", "", "did you mean 'vit_small'"),
        ("model: {name: vit_tiny, dpeth: 3}", "has no setting 'dpeth'", " > model", "did you mean 'depth'"),
        ("model: {name: vit_tiny, depth: three}", "depth: expected int, received 'three'", " > model", "correct"),
        ("augment: stong", "unknown augmentation 'stong'", " > augment", "did you mean 'strong'?"),
        ("augment: zzz", "unknown augmentation 'zzz'", " > augment", "known: none, basic"),
        ("augment: 3", "augment: expected", "", "correct the file"),
        ("optim: adamw", "optim: expected a mapping of settings, received 'adamw'", "", "indent"),
        ("data: 3", "data: expected a name, or a mapping of settings, received 3", "", "indent"),
        ("model:\noptim: {lr: 1.0}", "model: expected a name, or a mapping", "", "indent"),
        ("optim: {lr: fast}", "lr: expected float, received 'fast'", " > optim", "correct the file"),
        ("loop: {micro_batch: 64}\ndata: {batch_size: 32}", "loop.micro_batch: expected at most", "", "correct"),
        ("- a\n- b", "settings: expected sections", "", "--print-config"),
        ("just words", "settings: expected sections", "", "--print-config"),
        ("model: {name: [}", "not valid YAML", "", "correct the file"),
        ("optim: {lr: 1, lr: 2}", "not valid YAML", "", "correct the file"),
    ],
)
def test_refusals_say_what_where_and_what_to_do(text: str, what: str, place: str, fix: str, tmp_path: Path) -> None:
    error = refused(tmp_path, text)
    assert what in error.what
    assert fix in str(error.fix)
    assert str(error.where).startswith(str(tmp_path / "run.yaml") + place)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\x00")
    for place in ("nowhere.yaml", ".", "bytes.yaml"):
        with pytest.raises(ConfigError, match="cannot read the settings") as caught:
            read_train_config(tmp_path / place)
        assert caught.value.where == str(tmp_path / place)
        assert caught.value.fix

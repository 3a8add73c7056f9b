"""Recipes: each can be built, written and read, names its own command, and trains what it says."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from vitscope.cli.main import main
from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.core.yaml import to_yaml
from vitscope.data.config import AugmentConfig, augmentation
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.variants import is_classifier
from vitscope.recipes import RECIPES, find_recipe, recipe
from vitscope.train.config import LoopConfig, TrainConfig
from vitscope.train.config.read import read_train_config
from vitscope.train.fit import fit
from vitscope.weights.folder import save_model

NOT_YET = "not measured yet"
HARDWARE = ("AMD EPYC", "H200")


@pytest.mark.parametrize("name", RECIPES)
def test_the_settings_of_every_recipe_can_be_seen(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Of one that cannot run without more than its name, too."""
    assert main(["train", name, "--print-config"]) == 0
    (tmp_path / "shown.yaml").write_text(capsys.readouterr().out)
    assert read_train_config(tmp_path / "shown.yaml") == find_recipe(name)()


@pytest.fixture
def own_recipe() -> Iterator[str]:
    @recipe
    def seven_epochs() -> TrainConfig:
        """Seven epochs: no more.

        Words that are no figure: they do not stand alone on a line
            and: this neither, nobody asked
        time: 3 s on one core
        images/s: 100 end to end
        accuracy: 12.5 % on test,
            as far as it goes

        note: after a gap
        """
        return TrainConfig(loop=LoopConfig(epochs=7))

    assert seven_epochs() == TrainConfig(loop=LoopConfig(epochs=7))  # still the function it was
    yield "seven_epochs"
    del RECIPES._entries["seven_epochs"]


def test_a_recipe_is_known_by_its_function_and_docstring(own_recipe: str) -> None:
    told = find_recipe(own_recipe)
    assert told().loop.epochs == 7
    assert told.about == "Seven epochs: no more."
    assert told.measured == {
        "time": "3 s on one core",
        "images/s": "100 end to end",
        "accuracy": "12.5 % on test, as far as it goes",
        "note": "after a gap",
    }


def test_a_recipe_is_registered_once(own_recipe: str) -> None:
    with pytest.raises(UsageError, match="registered twice"):
        recipe(RECIPES[own_recipe].make)


def test_a_recipe_without_a_word_is_refused() -> None:
    def silent() -> TrainConfig:
        return TrainConfig()

    with pytest.raises(UsageError, match="'silent' has no docstring"):
        recipe(silent)
    assert "silent" not in RECIPES


def test_an_unknown_one_gets_a_did_you_mean() -> None:
    with pytest.raises(UsageError) as caught:
        find_recipe("digit_vit")
    assert caught.value.fix == "did you mean 'digits_vit'?"
    with pytest.raises(UsageError) as caught:
        find_recipe("qqqq")
    assert caught.value.fix == "`vitscope train --list` shows the recipes"


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_is_whole(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = find_recipe(name)
    assert told.about.endswith(".")
    assert {"command", "time", "images/s", "accuracy"} <= set(told.measured)
    config = told()
    assert config == told()
    assert is_classifier(config.model.bare)
    (tmp_path / "run.yaml").write_text(to_yaml(config))
    assert read_train_config(tmp_path / "run.yaml") == config
    verb, *words = shlex.split(told.measured["command"])
    assert verb == "vitscope"
    assert words[:2] == ["train", name]
    if "--device" in words:  # what was measured there is told with it; the recipe itself leaves it open
        config = updated(config, loop=updated(config.loop, device=words[words.index("--device") + 1]))
    if not told.needs:
        assert main([*words, "--print-config"]) == 0
        assert capsys.readouterr().out == to_yaml(config)


@pytest.mark.parametrize("name", list(RECIPES))
def test_every_recipe_says_what_was_measured_and_on_what(name: str) -> None:
    told, text = find_recipe(name), inspect.getdoc(find_recipe(name).make) or ""
    assert NOT_YET not in text
    assert re.search(r"\d (s|min|h)\b", told.measured["time"])
    assert re.search(r"\d %.*\d seeds?", told.measured["accuracy"])
    assert any(machine in text for machine in HARDWARE)
    assert re.search(r"\d (in training|end to end)\b", told.measured["images/s"])


def test_what_a_recipe_needs_is_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_model(build_model(ViTConfig(img_size=32, embed_dim=64, depth=1, num_heads=2, num_classes=3)), tmp_path / "old")
    given = ["--from", str(tmp_path / "old"), "--data", "shapes"]
    for missing in ((), given[:2], given[2:]):
        assert main(["train", "finetune", *missing]) == 2
        wanted = "--data" if missing == given[:2] else "--from"
        first, *_, last = capsys.readouterr().err.splitlines()
        assert first == f"error: the recipe 'finetune' needs {wanted}"
        assert last == "to do: `vitscope train finetune --from RUN --data NAME`"
    assert main(["train", "finetune", *given, "--print-config"]) == 0
    (tmp_path / "told.yaml").write_text(capsys.readouterr().out)
    told = read_train_config(tmp_path / "told.yaml")
    assert (told.model.bare.embed_dim, told.optim.lr, told.optim.layer_decay) == (64, 3e-5, 0.75)


@pytest.mark.parametrize("side", [32, 128])
def test_fine_tuning_varies_pictures_as_their_size_asks(
    side: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """`basic` moves CIFAR's pictures by a few pixels, and cuts photographs from a larger frame."""
    config = ViTConfig(img_size=side, patch_size=16, embed_dim=64, depth=1, num_heads=2, num_classes=3)
    save_model(build_model(config), tmp_path / "old")
    given = ["train", "finetune", "--from", str(tmp_path / "old"), "--data", "shapes", "--print-config"]

    def told(*words: str) -> AugmentConfig:
        assert main([*given, *words]) == 0
        (tmp_path / "told.yaml").write_text(capsys.readouterr().out)
        return read_train_config(tmp_path / "told.yaml").augment

    assert told() == augmentation("basic", side)
    assert told().crop == ("padded" if side == 32 else "margin")
    assert told("--augment.flip", "none") == updated(augmentation("basic", side), flip="none")
    assert told("--augment", "strong") == augmentation("strong", side)
    assert told("--model.img-size", "64") == augmentation("basic", 64)


def test_the_overfit_test_learns_its_pictures_by_heart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On pictures that are built in; of its curves nothing is drawn, which takes seconds."""
    monkeypatch.setattr("vitscope.train.finish._draw", lambda *_: None)
    config = find_recipe("overfit")()
    config = updated(config, data=updated(config.data, name="shapes:size=32,count=400"))
    config = updated(config, loop=updated(config.loop, device="cpu", threads=1))
    run = fit(config, out=tmp_path / "run", quiet=True)
    last = [row for row in run.metrics if "train/epoch_accuracy" in row][-1]
    assert last["train/epoch_accuracy"] == 1.0
    assert last["step"] == 100, "32 pictures are one batch"


def test_the_digits_fit_the_network() -> None:
    config = find_recipe("digits_vit")()
    dataset = open_dataset(config.data)
    assert dataset.num_classes == config.model.bare.num_classes == 10
    preprocess = config.data.preprocess(config.model.bare.img_size, config.model.bare.in_chans)
    loader = make_loader(dataset, "train", preprocess=preprocess, augment=config.augment)
    batch = next(iter(loader.epoch(0)))
    loader.close()
    assert batch.images.shape == (config.data.batch_size, 1, 8, 8)  # pictures as they are, none resized
    model = build_model(config.model.bare)
    assert model(batch.images).shape == (config.data.batch_size, 10)
    assert torch.isfinite(model(batch.images)).all()
    assert sum(p.numel() for p in model.parameters()) < 500_000

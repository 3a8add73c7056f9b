"""A run folder stands for the model in it; a saved model may bring its README.md along."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import vitscope
from vitscope.core.errors import VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights import shards as shards_file
from vitscope.weights.folder import load_config, load_labels, load_preprocessing, model_folder, save_model
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)
SEEN = PreprocessConfig(img_size=(16, 16), mean=(0.1, 0.2, 0.3))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "config.yaml").write_text("model: {}\n")
    (folder / "status.json").write_text("{}")
    return folder


def test_a_run_is_its_model(run: Path) -> None:
    model = build_model(TINY)
    save_model(model, run / "model", preprocessing=SEEN, labels=["a", "b", "c"])
    for source in (run, str(run), run / "model"):
        assert load_config(source) == TINY
        assert load_preprocessing(source) == SEEN
        assert load_labels(source) == ["a", "b", "c"]
        assert model_folder(source) == run / "model"
        loaded = vitscope.load_model(source)
        assert all(torch.equal(tensor, loaded.state_dict()[name]) for name, tensor in model.state_dict().items())
        assert loaded.preprocessing == SEEN
        assert loaded.labels == ["a", "b", "c"]


@pytest.mark.parametrize("load", [load_model, load_config, load_labels, load_preprocessing])
def test_a_run_without_a_model_says_so(run: Path, load) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(VitscopeError, match="holds no model yet"):
        load(run)


def test_a_model_beside_a_runs_files_is_still_itself(run: Path) -> None:
    """Whoever keeps a status.json in a model folder means that model."""
    save_model(build_model(TINY), run.parent / "model")
    (run.parent / "model" / "status.json").write_text("{}")
    assert load_config(run.parent / "model") == TINY


def test_damage_in_a_runs_model_names_the_file(run: Path) -> None:
    save_model(build_model(TINY), run / "model")
    (run / "model" / "config.json").write_text('{"format": 99}')
    with pytest.raises(VitscopeError) as caught:
        load_model(run)
    assert str(run / "model" / "config.json") in str(caught.value)
    (run / "model" / "config.json").unlink()
    with pytest.raises(VitscopeError, match=r"it has no config\.json"):
        load_model(run)


def test_readme_comes_with_the_weights_and_goes_with_them(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model(build_model(TINY), folder, readme="# Ein Modell für Bilder\n")
    assert (folder / "README.md").read_text(encoding="utf-8") == "# Ein Modell für Bilder\n"
    assert load_config(folder) == TINY
    save_model(build_model(TINY), folder, readme="second", overwrite=True)
    assert (folder / "README.md").read_text() == "second"
    save_model(build_model(TINY), folder, overwrite=True)
    assert "second" not in (folder / "README.md").read_text()


def test_readme_is_part_of_all_or_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "model"
    save_model(build_model(TINY), folder, readme="first")

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(shards_file, "save_file", full)
    with pytest.raises(OSError, match="No space"):
        save_model(build_model(TINY), folder, readme="second", overwrite=True)
    assert (folder / "README.md").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]

"""Models by name, from a hub on loopback: fetched once, found again without it, and every failure said in words."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.folder import save_model
from vitscope.weights.hub import fetch, is_hub_name
from vitscope.weights.load import load_model
from weights.stand_in_hub import Client, StandInHub, running_hub

CONFIG = ViTConfig(img_size=16, patch_size=4, embed_dim=32, depth=2, num_heads=2, num_classes=3)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = build_model(CONFIG)
    fill_with_large_random_weights(made)
    return save_model(made, tmp_path_factory.mktemp("made") / "model", labels=["ant", "bee", "cat"])


@pytest.fixture(scope="module")
def hub() -> Iterator[StandInHub]:
    with running_hub() as running:
        yield running


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hub_cache")


@pytest.fixture(scope="module")
def client(hub: StandInHub, cache: Path) -> Iterator[Client]:
    with Client(cache, hub.url) as one:
        yield one
        said = one.close()
    assert "%|" not in said, "no progress bar where nobody watches"
    assert "Traceback" not in said


def expected_features(folder: Path) -> Any:
    model = load_model(folder)
    images = torch.randn(2, 3, *model.preprocessing.img_size, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        return model.forward_head(model.forward_features(images), pre_logits=True)


# --- names ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "timm/vit_base_patch16_224.augreg2_in21k_ft_in1k",
        "google/vit-base-patch16-224",
        "hf-hub:google/vit-base-patch16-224",
        "hf_hub:timm/resnet18.a1_in1k",
        "google/vit-base-patch16-224@refs/pr/3",
        "google/vit-base-patch16-224@" + "a" * 40,
    ],
)
def test_names_on_the_hub(name: str) -> None:
    assert is_hub_name(name)


@pytest.mark.parametrize(
    "name",
    [
        "vit_small",
        "./runs/old",
        "../models/mine",
        "/models/mine",
        "~/models/mine",
        "runs/old/model",
        "weights/mine.safetensors",
        "weights/mine.pth",
        "a b/c",
        "",
        "/",
    ],
)
def test_no_names_on_the_hub(name: str) -> None:
    assert not is_hub_name(name)
    assert not is_hub_name(Path(name))


def test_what_could_lie_in_a_folder_that_is_here_is_no_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert is_hub_name("timm/vit_tiny")
    (tmp_path / "timm").mkdir()
    assert not is_hub_name("timm/vit_tiny")
    assert is_hub_name("hf-hub:timm/vit_tiny")
    with pytest.raises(VitscopeError, match="there is no such folder or file") as caught:
        load_model("timm/vit_tiny")
    assert "the folder 'timm' here" in str(caught.value.where)
    assert "'hf-hub:timm/vit_tiny'" in str(caught.value.fix)
    with pytest.raises(VitscopeError) as caught:
        load_model("elsewhere/no_such_folder/model")  # nothing the hub could have
    assert "hf-hub" not in str(caught.value)


def test_a_prefix_before_no_name_is_refused() -> None:
    with pytest.raises(VitscopeError, match="'hf-hub:nothing' is no name of a model on the hub"):
        fetch("hf-hub:nothing")


# --- fetching ---------------------------------------------------------------------------------------------------


def test_load_by_name_gives_the_model_and_all_it_carries(hub: StandInHub, client: Client, model: Path) -> None:
    hub.add("org/first", model)
    told = client.ask("load", "org/first")
    torch.testing.assert_close(torch.tensor(told["features"]), expected_features(model))
    assert told["labels"] == ["ant", "bee", "cat"]
    certificate = told["certificate"]
    assert certificate["source"] == "org/first"
    assert certificate["covered_percent"] == 100
    assert len(certificate["sha256"]["model.safetensors"]) == 64
    assert not told["loaded_transformers"]


def test_the_second_load_downloads_nothing(hub: StandInHub, client: Client, model: Path) -> None:
    hub.add("org/twice", model)
    first = client.ask("fetch", "org/twice")
    before = hub.downloads()
    assert client.ask("fetch", "hf-hub:org/twice") == first
    assert hub.downloads() == before


def test_weights_come_as_safetensors_or_pickled_never_both(
    hub: StandInHub, client: Client, model: Path, tmp_path: Path
) -> None:
    both = shutil.copytree(model, tmp_path / "both")
    for name in ("pytorch_model.bin", "tf_model.h5", "model.fp16.safetensors", "README.md", "training_args.bin"):
        (both / name).write_bytes(name.encode())
    hub.add("org/both", both)
    folder = Path(client.ask("fetch", "org/both")["folder"])
    assert sorted(path.name for path in folder.iterdir()) == [
        "config.json",
        "labels.json",
        "model.safetensors",
        "preprocessing.json",
    ]
    (both / "model.safetensors").unlink()
    hub.add("org/pickled", both)
    folder = Path(client.ask("fetch", "org/pickled")["folder"])
    assert (folder / "pytorch_model.bin").read_bytes() == b"pytorch_model.bin"


def test_shards_come_with_their_index(hub: StandInHub, client: Client, tmp_path: Path) -> None:
    names = ["config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"]
    names.append("model.safetensors.index.json")
    for name in names:
        (tmp_path / name).write_bytes(b"{}")
    hub.add("org/shards", tmp_path)
    folder = Path(client.ask("fetch", "org/shards")["folder"])
    assert sorted(path.name for path in folder.iterdir()) == sorted(names)


def test_a_revision_is_another_model(hub: StandInHub, client: Client, model: Path, tmp_path: Path) -> None:
    other = build_model(CONFIG)
    fill_with_large_random_weights(other, seed=5)
    save_model(other, tmp_path / "old", labels=["x", "y", "z"])
    hub.add("org/versions", model)
    hub.add("org/versions", tmp_path / "old", sha="b" * 40, names=("v1",))
    new, old = client.ask("load", "org/versions"), client.ask("load", "org/versions@v1")
    assert (new["labels"], old["labels"]) == (["ant", "bee", "cat"], ["x", "y", "z"])
    torch.testing.assert_close(torch.tensor(old["features"]), expected_features(tmp_path / "old"))
    assert client.ask("fetch", f"org/versions@{'b' * 40}") == client.ask("fetch", "org/versions@v1")


def test_training_takes_the_model_and_the_preprocessing_of_a_name(hub: StandInHub, client: Client, model: Path) -> None:
    hub.add("org/to_train", model)
    told = client.ask("train_settings", "org/to_train")
    assert told["code"] == 0
    assert told["checkpoint"]["init_from"] == "org/to_train"
    assert (told["model"]["embed_dim"], told["model"]["depth"], told["model"]["img_size"]) == (32, 2, 16)
    assert told["data"]["mean"] == [0.5, 0.5, 0.5]
    assert client.ask("train_settings", "org/not_to_train")["code"] == 1


# --- refusals ---------------------------------------------------------------------------------------------------


def assert_told(told: dict[str, Any], what: str, hub: StandInHub, cache: Path) -> None:
    assert what in told["error"], told
    assert hub.url in told["where"]
    assert str(cache) in told["where"]
    assert "load_model(folder)" in told["fix"]


def test_no_such_repository(hub: StandInHub, client: Client, cache: Path) -> None:
    told = client.ask("load", "org/nowhere")
    assert_told(told, "no such model on the hub", hub, cache)
    assert "no folder or file 'org/nowhere' here" in told["error"]


def test_no_such_revision(hub: StandInHub, client: Client, cache: Path, model: Path) -> None:
    hub.add("org/one_version", model)
    assert_told(client.ask("fetch", "org/one_version@v9"), "'org/one_version' has no revision 'v9'", hub, cache)


def test_a_gated_repository(hub: StandInHub, client: Client, cache: Path, model: Path) -> None:
    hub.add("org/gated", model, behaviour="gates")
    assert_told(client.ask("fetch", "org/gated"), "only for those whom its owner has let in", hub, cache)


def test_a_broken_hub(hub: StandInHub, client: Client, cache: Path, model: Path) -> None:
    hub.add("org/broken", model, behaviour="breaks")
    assert_told(client.ask("fetch", "org/broken"), "'org/broken' could not be fetched", hub, cache)


def test_a_repository_without_weights(hub: StandInHub, client: Client, model: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "model.safetensors").unlink()
    hub.add("org/weightless", bare)
    told = client.ask("load", "org/weightless")
    assert told["error"] == "'org/weightless' holds no weights that can be read here"
    assert "model.safetensors and pytorch_model.bin" in told["where"]


def test_a_repository_without_a_config(hub: StandInHub, client: Client, model: Path, tmp_path: Path) -> None:
    bare = shutil.copytree(model, tmp_path / "bare")
    (bare / "config.json").unlink()
    hub.add("org/undescribed", bare)
    assert "it has no config.json" in client.ask("load", "org/undescribed")["error"]


def test_a_download_cut_off_leaves_no_model_that_loads(
    hub: StandInHub, client: Client, cache: Path, model: Path
) -> None:
    cut = hub.add("org/cut", model, behaviour="cuts")
    assert_told(client.ask("load", "org/cut"), "'org/cut' could not be fetched", hub, cache)
    with Client(cache, hub.url, offline=True) as offline:
        assert "not in the cache, or not all of it" in offline.ask("fetch", "org/cut")["error"]
    cut.behaviour = "answers"
    told = client.ask("load", "org/cut")
    torch.testing.assert_close(torch.tensor(told["features"]), expected_features(model))


def test_without_the_hub_the_cache_serves(model: Path, tmp_path: Path) -> None:
    """The server goes down, and then the user says so too."""
    with ExitStack() as opened:
        with running_hub() as hub:
            hub.add("org/kept", model)
            client = opened.enter_context(Client(tmp_path, hub.url))
            first = client.ask("load", "org/kept")
        assert client.ask("load", "org/kept") == first
        refused = client.ask("load", "org/never_seen")
        assert_told(refused, "'org/never_seen' could not be fetched: ConnectError", hub, tmp_path)
        assert "check the connection" in refused["fix"]
        offline = opened.enter_context(Client(tmp_path, hub.url, offline=True))
        assert offline.ask("load", "org/kept") == first
        refused = offline.ask("load", "org/never_seen")
        assert_told(refused, "the hub is switched off (HF_HUB_OFFLINE)", hub, tmp_path)
        assert "unset HF_HUB_OFFLINE" in refused["fix"]

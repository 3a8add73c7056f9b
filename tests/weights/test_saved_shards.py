"""Saved in another type, or in several files: bit for bit what was asked for, and still all of it or nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ResNetConfig, ViTConfig
from vitscope.weights import shards as shards_file
from vitscope.weights.folder import LABELS, WRITTEN, load_config, save_model
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=32, depth=12, num_heads=2, num_classes=3)
RESNET = ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=5)


def network(seed: int = 0, config: Any = TINY) -> Any:
    model = build_model(config)
    fill_with_large_random_weights(model, seed)
    return model.eval()


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_equal(wanted: dict[str, torch.Tensor], found: dict[str, torch.Tensor]) -> None:
    assert list(wanted) == list(found)
    for name, tensor in wanted.items():
        assert tensor.dtype == found[name].dtype, name
        assert torch.equal(tensor, found[name]), name


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("config", [TINY, RESNET], ids=["vit", "resnet"])
def test_weights_are_cast_on_their_way_to_the_file(config: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = network(config=config)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_model(model, tmp_path / "m", dtype=dtype)
    assert_equal(before, model.state_dict())  # the model itself stays as it is
    loaded = load_model(tmp_path / "m")
    wanted = {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor for name, tensor in model.state_dict().items()
    }
    assert_equal(wanted, loaded.state_dict())
    save_model(loaded, tmp_path / "again")
    assert (tmp_path / "m/model.safetensors").read_bytes() == (tmp_path / "again/model.safetensors").read_bytes()


def test_numbers_too_large_for_fp16_are_refused(tmp_path: Path) -> None:
    model = network()
    with torch.no_grad():
        model.head.bias[0] = 7e4
    with pytest.raises(VitscopeError, match=r"head\.bias holds numbers up to 7e\+04, more than torch\.float16 can"):
        save_model(model, tmp_path / "m", dtype=torch.float16)
    assert names_in(tmp_path) == []
    save_model(model, tmp_path / "m", dtype=torch.bfloat16)


@pytest.mark.parametrize("dtype", [torch.int8, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_other_types_are_refused(dtype: torch.dtype, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="dtype: expected one of"):
        save_model(network(), tmp_path / "m", dtype=dtype)
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("dtype", [None, torch.bfloat16], ids=["fp32", "bf16"])
def test_shards_come_back_bit_for_bit(dtype: torch.dtype | None, tmp_path: Path) -> None:
    model = network()
    save_model(model, tmp_path / "m", dtype=dtype, shard_bytes=200_000)
    index = json.loads((tmp_path / "m/model.safetensors.index.json").read_text())
    wanted = {name: tensor if dtype is None else tensor.to(dtype) for name, tensor in model.state_dict().items()}
    assert list(index["weight_map"]) == list(wanted)  # block 2 before block 10
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in wanted.values())
    files = sorted(set(index["weight_map"].values()))
    assert files == [f"model-{number:05}-of-{len(files):05}.safetensors" for number in range(1, len(files) + 1)]
    assert len(files) == (4 if dtype is None else 2)
    assert list(dict.fromkeys(index["weight_map"].values())) == files
    for name in files:
        stored = load_file(tmp_path / "m" / name)
        assert {key for key, home in index["weight_map"].items() if home == name} == set(stored)
        assert sum(tensor.nbytes for tensor in stored.values()) <= 200_000
    loaded = load_model(tmp_path / "m")
    assert_equal(wanted, loaded.state_dict())
    assert set(loaded.certificate.sha256) == {"model.safetensors.index.json", *files}


def test_a_tensor_larger_than_a_shard_has_one_for_itself(tmp_path: Path) -> None:
    model = network()
    save_model(model, tmp_path / "m", shard_bytes=1)
    assert len(list((tmp_path / "m").glob("model-*.safetensors"))) == len(model.state_dict())
    assert_equal(model.state_dict(), load_model(tmp_path / "m").state_dict())


@pytest.mark.parametrize("shard_bytes", [0, -1])
def test_a_shard_must_hold_something(shard_bytes: int, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="shard_bytes: expected a positive number of bytes"):
        save_model(network(), tmp_path / "m", shard_bytes=shard_bytes)


def test_from_shards_to_one_file_and_back_nothing_stale_is_left(tmp_path: Path) -> None:
    sharded, single = network(1), network(2)
    save_model(sharded, tmp_path / "m", shard_bytes=100_000)
    many = names_in(tmp_path / "m")
    with pytest.raises(VitscopeError, match="already holds a model"):  # shards are no strangers
        save_model(single, tmp_path / "m")
    save_model(single, tmp_path / "m", overwrite=True)
    assert names_in(tmp_path / "m") == sorted(name for name in WRITTEN if name != LABELS)
    assert_equal(single.state_dict(), load_model(tmp_path / "m").state_dict())
    save_model(sharded, tmp_path / "m", shard_bytes=100_000, overwrite=True)
    assert names_in(tmp_path / "m") == many
    save_model(sharded, tmp_path / "m", shard_bytes=200_000, overwrite=True)
    assert len(names_in(tmp_path / "m")) < len(many)
    assert_equal(sharded.state_dict(), load_model(tmp_path / "m").state_dict())


def test_a_failure_in_the_second_shard_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = network(1)
    save_model(old, tmp_path / "m")
    written = []
    save_file = shards_file.save_file

    def second_fails(tensors: Any, path: Path, **settings: Any) -> None:
        written.append(path)
        if len(written) == 2:
            raise OSError(28, "No space left on device")
        save_file(tensors, path, **settings)

    monkeypatch.setattr(shards_file, "save_file", second_fails)
    with pytest.raises(OSError, match="No space"):
        save_model(network(2), tmp_path / "m", shard_bytes=100_000, overwrite=True)
    assert names_in(tmp_path) == ["m"]
    assert_equal(old.state_dict(), load_model(tmp_path / "m").state_dict())


KILLED = """
import os, sys
from vitscope.weights import shards
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

model = load_model(sys.argv[1])
save_file, calls = shards.save_file, []

def third_dies(*args, **kwargs):
    calls.append(1)
    save_file(*args, **kwargs)
    if len(calls) == 3:
        os._exit(9)

shards.save_file = third_dies
save_model(model, sys.argv[2], shard_bytes=100_000, overwrite=True)
"""


def test_a_process_killed_between_shards_leaves_a_whole_model(tmp_path: Path) -> None:
    """As by kill -9: no `except` runs."""
    old = network(1)
    save_model(old, tmp_path / "m", shard_bytes=200_000)
    save_model(network(2), tmp_path / "new")
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "new", tmp_path / "m"], check=False)
    assert done.returncode == 9
    assert_equal(old.state_dict(), load_model(tmp_path / "m").state_dict())


def test_a_lost_shard_is_named(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "m", shard_bytes=200_000)
    (tmp_path / "m/model-00002-of-00004.safetensors").unlink()
    with pytest.raises(VitscopeError, match="model-00002-of-00004"):
        load_model(tmp_path / "m")


# --- the card ---------------------------------------------------------------------------------------------------


def test_the_card_says_what_the_model_is_and_its_code_runs(tmp_path: Path) -> None:
    from vitscope.data.photographs import builtin_picture

    builtin_picture().save(tmp_path / "picture.png")
    save_model(network(), tmp_path / "m", labels=["cat", "dog", "owl"], dtype=torch.bfloat16)
    card = (tmp_path / "m/README.md").read_text(encoding="utf-8")
    count = sum(parameter.numel() for parameter in network().parameters())
    assert f"family vit with {count:,} parameters (bfloat16)" in card
    assert "16 x 16 pixels with 3 channels and says which of 3 classes" in card
    assert "mean 0.5, 0.5, 0.5 and std 0.5, 0.5, 0.5" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace('"FOLDER"', repr(str(tmp_path / "m"))).replace('"PICTURE"', repr(str(tmp_path / "picture.png")))
    exec(compile(code, "card", "exec"), {})


def test_the_card_of_a_model_without_classes(tmp_path: Path) -> None:
    from vitscope.data.photographs import builtin_picture

    builtin_picture().save(tmp_path / "picture.png")
    save_model(network(config=ViTConfig(**{**vars(TINY), "num_classes": 0})), tmp_path / "m")
    card = (tmp_path / "m/README.md").read_text(encoding="utf-8")
    assert "gives features, it has no classes" in card
    code = card.partition("```python\n")[2].partition("```")[0]
    code = code.replace('"FOLDER"', repr(str(tmp_path / "m"))).replace('"PICTURE"', repr(str(tmp_path / "picture.png")))
    names: dict[str, Any] = {}
    exec(compile(code, "card", "exec"), names)
    assert names["features"].shape == (1, 5, 32)


def test_only_convert_writes_a_certificate(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.certificate is not None
    save_model(loaded, tmp_path / "again")
    assert "certificate.json" not in names_in(tmp_path / "again")
    assert load_config(tmp_path / "again") == TINY

"""A saved model: bit for bit the same when it comes back, all of it or nothing on the disk, damage told in words."""

from __future__ import annotations

import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import vitscope
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, LSTMConfig, MAEConfig, ResNetConfig, SimMIMConfig, SwinConfig, ViTConfig
from vitscope.weights import folder as folder_file
from vitscope.weights import place as place_file
from vitscope.weights import shards as shards_file
from vitscope.weights.folder import LABELS, WRITTEN, load_config, load_labels, load_preprocessing, save_model
from vitscope.weights.load import load_model

SMALL = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
TINY = ViTConfig(**SMALL)  # type: ignore[arg-type]

CONFIGS: dict[str, Any] = {
    "learned": TINY,
    "sincos": ViTConfig(**SMALL, position="sincos"),  # type: ignore[arg-type]
    "rope": ViTConfig(**SMALL, position="rope", num_registers=2),  # type: ignore[arg-type]
    "relative": ViTConfig(**SMALL, position="relative"),  # type: ignore[arg-type]
    "options": ViTConfig(
        **SMALL,
        distilled=True,
        layer_scale=0.5,
        qk_norm=True,
        mlp="swiglu",
        norm_order="post",  # type: ignore[arg-type]
    ),
    "attention pool": ViTConfig(**SMALL, pool="attention", position="none"),  # type: ignore[arg-type]
    "pruned": ViTConfig(**{**SMALL, "num_heads": (2, 1), "head_dim": 16, "mlp_dim": (24, 8)}),  # type: ignore[arg-type]
    "swin": SwinConfig(img_size=32, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=5),
    "resnet": ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=5),
    "cnn": CNNConfig(img_size=16, widths=(4, 8), num_classes=5),
    "lstm": LSTMConfig(img_size=8, embed_dim=16, num_classes=5),
    "mae": MAEConfig(
        encoder=ViTConfig(**{**SMALL, "num_classes": 0}, position="sincos"),  # type: ignore[arg-type]
        decoder_embed_dim=16,
        decoder_depth=1,
        decoder_num_heads=2,
    ),
    "simmim": SimMIMConfig(encoder=ViTConfig(**{**SMALL, "num_classes": 0})),  # type: ignore[arg-type]
}


def network(config: Any, seed: int = 0) -> Any:
    """Every tensor differs from what building alone gives, buffers of BatchNorm too."""
    torch.manual_seed(seed)
    model = build_model(config)
    with torch.no_grad():
        for tensor in model.state_dict().values():
            if tensor.is_floating_point():
                tensor.add_(torch.rand_like(tensor) * 0.1)
            else:
                tensor.add_(7)
    return model.eval()


def pictures(model: Any, batch: int = 2) -> torch.Tensor:
    image = getattr(model.config, "encoder", model.config)
    side = image.img_size
    height, width = side if isinstance(side, tuple) else (side, side)
    images = torch.randn(batch, image.in_chans, height, width, generator=torch.Generator().manual_seed(3))
    return images.to(next(model.parameters()).dtype)


@torch.no_grad()
def outputs(model: Any) -> list[torch.Tensor]:
    torch.manual_seed(1)  # masked models draw what they hide
    output = model(pictures(model))
    return [output] if isinstance(output, torch.Tensor) else list(output)


def assert_same(first: Any, second: Any) -> None:
    assert first.config == second.config
    mine, theirs = first.state_dict(), second.state_dict()
    assert list(mine) == list(theirs)
    for name, tensor in mine.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name
    for name, tensor in first.named_buffers():
        assert torch.equal(tensor, second.get_buffer(name).to(tensor.dtype)), name
    for a, b in zip(outputs(first), outputs(second), strict=True):
        assert torch.equal(a, b)


NAMELESS = [name for name in WRITTEN if name != LABELS]
"""What a model is written as whose classes nobody has named."""


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


# --- there and back ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=["fp32", "bf16", "fp64"])
@pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)
def test_a_model_comes_back_bit_for_bit(config: Any, dtype: torch.dtype, tmp_path: Path) -> None:
    model = network(config).to(dtype)
    assert save_model(model, tmp_path / "m") == tmp_path / "m"
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(NAMELESS)
    loaded = load_model(tmp_path / "m")
    assert not loaded.training
    assert {name for name, p in model.named_parameters() if p.requires_grad} == {
        name for name, p in loaded.named_parameters() if p.requires_grad
    }
    assert not any(tensor.is_meta for tensor in [*loaded.parameters(), *loaded.buffers()])
    assert_same(model, loaded)


def test_saving_changes_nothing_in_the_model(tmp_path: Path) -> None:
    model = network(CONFIGS["resnet"]).train()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    save_model(model, tmp_path / "m")
    assert model.training
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize("name", ["learned", "sincos", "rope", "relative", "options"])
@pytest.mark.parametrize("img_size", [48, (32, 64)])
def test_after_another_input_size(name: str, img_size: Any, tmp_path: Path) -> None:
    model = network(CONFIGS[name])
    model.set_input_size(img_size)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.config.img_size == img_size
    assert_same(model, loaded)


def test_swin_after_another_input_size(tmp_path: Path) -> None:
    model = network(CONFIGS["swin"])
    model.set_input_size(64)
    save_model(model, tmp_path / "m")
    assert_same(model, load_model(tmp_path / "m"))


@pytest.mark.parametrize("name", ["learned", "options", "swin", "resnet", "cnn", "lstm"])
@pytest.mark.parametrize("num_classes", [3, 0])
def test_after_another_classifier(name: str, num_classes: int, tmp_path: Path) -> None:
    model = network(CONFIGS[name])
    model.reset_classifier(num_classes)
    save_model(model, tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert load_labels(tmp_path / "m") == [str(i) for i in range(num_classes)]
    assert_same(model, loaded)


def test_a_loaded_model_trains_and_is_saved_again(tmp_path: Path) -> None:
    save_model(network(TINY), tmp_path / "a")
    loaded = load_model(tmp_path / "a").train()
    loaded(pictures(loaded)).sum().backward()
    assert all(parameter.grad is not None for parameter in loaded.parameters())
    with torch.no_grad():
        loaded.head.bias.add_(1)
    save_model(loaded, tmp_path / "b")
    assert_same(loaded.eval(), load_model(tmp_path / "b"))


def test_shared_and_strided_weights_are_saved_as_they_are(tmp_path: Path) -> None:
    model = network(TINY)
    model.blocks[1].mlp.fc1.weight = model.blocks[0].mlp.fc1.weight
    model.head.weight = torch.nn.Parameter(torch.randn(32, 5).t())
    save_model(model, tmp_path / "m")
    mine, theirs = model.state_dict(), load_model(tmp_path / "m").state_dict()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in mine.items())
    assert theirs["head.weight"].is_contiguous()


def test_public_names_do_the_same(tmp_path: Path) -> None:
    model = vitscope.create_model("vit_tiny", depth=1)
    vitscope.save_model(model, tmp_path / "m")
    assert_same(model.eval(), vitscope.load_model(str(tmp_path / "m")))


# --- what travels beside the weights ----------------------------------------------------------------------------


def test_labels_and_preprocessing_travel(tmp_path: Path) -> None:
    preprocessing = PreprocessConfig(img_size=(32, 32), crop_share=0.9, mean=(0.4, 0.5, 0.6), std=(0.1, 0.2, 0.3))
    labels = ["cat", "Hund", "犬", "", "cat"]
    save_model(network(TINY), tmp_path / "m", preprocessing=preprocessing, labels=labels)
    assert load_labels(tmp_path / "m") == labels
    assert load_preprocessing(tmp_path / "m") == preprocessing
    assert load_config(tmp_path / "m") == TINY


def test_without_them_classes_are_numbers_and_pixels_go_from_minus_1_to_1(tmp_path: Path) -> None:
    config = ViTConfig(**{**SMALL, "img_size": (32, 64), "in_chans": 1})  # type: ignore[arg-type]
    save_model(network(config), tmp_path / "m")
    assert load_labels(tmp_path / "m") == ["0", "1", "2", "3", "4"]
    wanted = PreprocessConfig(img_size=(32, 64), in_chans=1, mean=(0.5,), std=(0.5,))
    assert load_preprocessing(tmp_path / "m") == wanted


def test_the_header_tells_no_time_and_no_path(tmp_path: Path) -> None:
    """The same model gives the same bytes, wherever and whenever it is saved."""
    for place in ("a", "b/c"):
        save_model(network(TINY), tmp_path / place / "m")
    assert snapshot(tmp_path / "a/m") == snapshot(tmp_path / "b/c/m")
    with safe_open(tmp_path / "a/m/model.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_config_json_is_plain_and_complete(tmp_path: Path) -> None:
    save_model(network(TINY), tmp_path / "m")
    told = json.loads((tmp_path / "m/config.json").read_text())
    assert (told["format"], told["family"]) == (1, "vit")
    assert told["config"]["embed_dim"] == 32
    assert set(told["config"]) == set(vars(TINY))


@pytest.mark.parametrize("labels", [["a"], ["a"] * 6, []])
def test_a_wrong_number_of_labels_is_refused(labels: list[str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"labels: expected 5 names, one per class, received {len(labels)}"):
        save_model(network(TINY), tmp_path / "m", labels=labels)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], "owner"])
def test_labels_that_are_no_list_of_names_are_refused(labels: Any, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="labels: expected a list of names"):
        save_model(network(TINY), tmp_path / "m", labels=labels)
    assert list(tmp_path.iterdir()) == []


# --- all or nothing ---------------------------------------------------------------------------------------------


def test_an_old_model_is_replaced_only_when_told(tmp_path: Path) -> None:
    old, new = network(TINY), network(CONFIGS["cnn"], seed=9)
    save_model(old, tmp_path / "m")
    with pytest.raises(VitscopeError, match="already holds a model") as refused:
        save_model(new, tmp_path / "m")
    assert "overwrite=True" in str(refused.value.fix)
    assert_same(old, load_model(tmp_path / "m"))
    save_model(new, tmp_path / "m", overwrite=True)
    assert_same(new, load_model(tmp_path / "m"))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_an_empty_folder_is_filled(tmp_path: Path) -> None:
    (tmp_path / "m").mkdir()
    save_model(network(TINY), tmp_path / "m")
    assert load_config(tmp_path / "m") == TINY
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("files", [["thesis.tex"], ["config.json", "notes.md"], ["labels.json"]], ids="-".join)
def test_a_folder_with_other_things_is_never_touched(files: list[str], overwrite: bool, tmp_path: Path) -> None:
    place = tmp_path / "mine"
    place.mkdir()
    for name in files:
        (place / name).write_text("precious")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="is not a saved model: it h") as refused:
        save_model(network(TINY), place, overwrite=overwrite)
    assert refused.value.fix == "choose a new folder"
    assert snapshot(tmp_path) == before


def test_what_others_add_does_not_make_it_a_stranger(tmp_path: Path) -> None:
    """They speak of the old weights, so they go with them."""
    save_model(network(TINY), tmp_path / "m")
    for name in ("README.md", "certificate.json"):
        (tmp_path / "m" / name).write_text("of the old weights")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match="already holds a model"):
        save_model(network(TINY), tmp_path / "m")
    assert snapshot(tmp_path) == before
    save_model(network(TINY, seed=5), tmp_path / "m", overwrite=True)
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == sorted(NAMELESS)
    assert "old weights" not in (tmp_path / "m/README.md").read_text()


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("config", ['{"model_type": "vit"}', "[1]", "{", ""])
def test_somebody_elses_model_is_never_touched(config: str, overwrite: bool, tmp_path: Path) -> None:
    """Others' folders have the same file names; ours is known by the format in its config.json."""
    place = tmp_path / "theirs"
    place.mkdir()
    (place / "config.json").write_text(config)
    (place / "model.safetensors").write_text("precious")
    (place / "README.md").write_text("precious")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match=r"is not a saved model: it has no config\.json of vitscope's"):
        save_model(network(TINY), place, overwrite=overwrite)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_model_folder_with_other_things_is_never_touched(overwrite: bool, tmp_path: Path) -> None:
    save_model(network(TINY), tmp_path / "m")
    (tmp_path / "m/notes.md").write_text("precious")
    before = snapshot(tmp_path)
    with pytest.raises(VitscopeError, match=r"holds more than a model, which would be lost: notes\.md"):
        save_model(network(TINY), tmp_path / "m", overwrite=overwrite)
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_in_the_way_is_never_touched(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "m").write_text("precious")
    with pytest.raises(VitscopeError, match="is not a saved model"):
        save_model(network(TINY), tmp_path / "m", overwrite=overwrite)
    assert snapshot(tmp_path) == {"m": b"precious"}


def disk_full(*args: object, **kwargs: object) -> None:
    raise OSError(28, "No space left on device")


def half_written(tensors: object, path: Path, **kwargs: object) -> None:
    Path(path).write_bytes(b"half of the wei")
    disk_full()


@pytest.mark.parametrize(
    ("name", "broken"),
    [("save_file", half_written), ("flush", disk_full), ("write_json", disk_full), ("swap", disk_full)],
)
@pytest.mark.parametrize("there_before", [True, False])
def test_a_failure_in_the_middle_leaves_what_was_there(
    name: str, broken: Any, there_before: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if there_before:
        save_model(network(TINY), tmp_path / "m")
    before = snapshot(tmp_path)
    monkeypatch.setattr(shards_file if name in ("save_file", "flush") else folder_file, name, broken)
    with pytest.raises(OSError, match="No space left"):
        save_model(network(TINY, seed=5), tmp_path / "m", overwrite=True)
    assert snapshot(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == (["m"] if there_before else [])


@pytest.mark.parametrize("failing", [1, 2])
def test_a_failure_in_the_swap_itself_leaves_the_old_model(
    failing: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where two folders cannot change places at once, the old one steps aside before the new one comes; when the new
    one cannot come, the old one returns."""
    monkeypatch.setattr(place_file, "exchange", lambda first, second: False)
    save_model(network(TINY), tmp_path / "m")
    before = snapshot(tmp_path)
    rename, calls = Path.rename, []

    def failing_rename(self: Path, target: Any) -> Path:
        if self.parent == tmp_path or Path(target).parent == tmp_path:
            calls.append(target)
            if len(calls) == failing:
                raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing_rename)
    with pytest.raises(OSError, match="Input/output"):
        save_model(network(TINY, seed=5), tmp_path / "m", overwrite=True)
    assert snapshot(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


def test_without_the_exchange_an_old_model_is_replaced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(place_file, "exchange", lambda first, second: False)
    new = network(TINY, seed=5)
    save_model(network(TINY), tmp_path / "m")
    save_model(new, tmp_path / "m", overwrite=True)
    assert_same(new, load_model(tmp_path / "m"))
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


KILLED = """
import os, sys, shutil
from pathlib import Path
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

def killed(function):
    def then_dead(*args, **kwargs):
        function(*args, **kwargs)
        os._exit(9)
    return then_dead

model = load_model(sys.argv[1])
Path.rename = killed(Path.rename)
shutil.rmtree = killed(lambda *args, **kwargs: None)
save_model(model, sys.argv[2], overwrite=True)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="folders change places in one step on Linux only")
def test_a_process_killed_in_the_swap_leaves_a_whole_model(tmp_path: Path) -> None:
    """As by kill -9: no `except` runs. It dies after its first rename, or before it clears the old folder away."""
    old, new = network(TINY), network(TINY, seed=5)
    save_model(old, tmp_path / "m")
    save_model(new, tmp_path / "new")
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "new", tmp_path / "m"], check=False)
    assert done.returncode == 9
    assert_same(new, load_model(tmp_path / "m"))


def test_exchange_says_what_it_could_do(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    assert not place_file.exchange(tmp_path / "a", tmp_path / "nowhere")
    assert (tmp_path / "a").is_dir()


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    save_model(network(TINY), tmp_path / "real")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    new = network(TINY, seed=5)
    assert save_model(new, tmp_path / "link", overwrite=True) == tmp_path / "link"
    assert (tmp_path / "link").is_symlink()
    assert_same(new, load_model(tmp_path / "real"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "real"]


def test_ctrl_c_in_the_middle_leaves_the_old_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_model(network(TINY), tmp_path / "m")
    before = snapshot(tmp_path)

    def interrupted(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(folder_file, "write_json", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_model(network(TINY, seed=5), tmp_path / "m", overwrite=True)
    assert snapshot(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir()] == ["m"]


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("umask", [0o022, 0o077])
def test_the_umask_says_who_may_read(umask: int, tmp_path: Path) -> None:
    before = os.umask(umask)
    try:
        save_model(network(TINY), tmp_path / "m")
    finally:
        os.umask(before)
    assert (tmp_path / "m").stat().st_mode & 0o777 == 0o777 & ~umask
    modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "m").iterdir()}
    assert modes == dict.fromkeys(NAMELESS, 0o666 & ~umask)


# --- damage -----------------------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return save_model(network(TINY), tmp_path / "m")


def refusal(saved: Path) -> VitscopeError:
    with pytest.raises(VitscopeError) as refused:
        load_model(saved)
    assert refused.value.fix
    assert len(str(refused.value)) < 1000
    return refused.value


def change_config(saved: Path, **changes: object) -> None:
    told = json.loads((saved / "config.json").read_text())
    (saved / "config.json").write_text(json.dumps({**told, **changes}))


def absurd_header(content: bytes) -> bytes:
    return struct.pack("<Q", 2**62) + content[8:]


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: content[: len(content) // 2],
        lambda content: content[:-1],
        lambda content: b"",
        lambda content: b"not weights at all" * 9,
        absurd_header,
    ],
    ids=["half", "one byte short", "empty", "text", "absurd header"],
)
def test_damaged_weights_are_told(damage: Any, saved: Path) -> None:
    weights = saved / "model.safetensors"
    weights.write_bytes(damage(weights.read_bytes()))
    error = refusal(saved)
    assert error.what.startswith("cannot read the weights: ")
    assert error.where == str(weights)


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(name: str, saved: Path) -> None:
    (saved / name).unlink()
    assert name in str(refusal(saved))


def test_preprocessing_is_missed_only_by_who_asks_for_it(saved: Path) -> None:
    (saved / "preprocessing.json").unlink()
    load_model(saved)
    with pytest.raises(VitscopeError, match=r"preprocessing\.json"):
        load_preprocessing(saved)


def test_classes_nobody_named_have_no_names(tmp_path: Path) -> None:
    """Numbers in their place would pass for names one day, and cost a trained head."""
    save_model(network(TINY), tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    assert loaded.labels is None
    assert load_labels(tmp_path / "m") == ["0", "1", "2", "3", "4"]
    save_model(loaded, tmp_path / "again", labels=["0", "1", "2", "3", "4"])
    assert load_model(tmp_path / "again").labels == ["0", "1", "2", "3", "4"]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    error = refusal(tmp_path / "nowhere")
    assert "is not a saved model: there is no such folder or file" in error.what


def test_a_file_instead_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "weights.pt").write_bytes(b"\x80\x02")
    assert "cannot read the weights" in refusal(tmp_path / "weights.pt").what


def test_missing_unexpected_and_misshapen_keys_are_listed(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    del tensors["head.bias"]
    tensors["stranger"] = torch.zeros(1)
    tensors["cls_token"] = torch.zeros(1, 1, 31)
    save_file(tensors, saved / "model.safetensors")
    what = refusal(saved).what
    assert "1 missing: head.bias" in what
    assert "1 unexpected: stranger" in what
    assert "1 that do not fit: cls_token (1, 1, 31) of float32 instead of (1, 1, 32) of float32" in what


def test_a_long_list_of_keys_is_cut(saved: Path) -> None:
    save_file({"x": torch.zeros(1)}, saved / "model.safetensors")
    what = refusal(saved).what
    assert f"{len(network(TINY).state_dict())} missing: " in what
    assert " ...; 1 unexpected: x" in what


def test_weights_that_are_no_floats_are_refused(saved: Path) -> None:
    tensors = load_file(saved / "model.safetensors")
    tensors["head.bias"] = tensors["head.bias"].to(torch.int64)
    save_file(tensors, saved / "model.safetensors")
    assert "1 that do not fit: head.bias (5,) of int64 instead of (5,) of float32" in refusal(saved).what


@pytest.mark.parametrize("family", ["vti", "", None, [], 3])
def test_an_unknown_family(family: object, saved: Path) -> None:
    change_config(saved, family=family)
    with pytest.raises(ConfigError, match="family: expected one of vit, swin") as refused:
        load_model(saved)
    assert refused.value.fix == "did you mean 'vit'?" or family != "vti"


@pytest.mark.parametrize("number", [2, 0, "1", None])
def test_another_format(number: object, saved: Path) -> None:
    change_config(saved, format=number)
    with pytest.raises(ConfigError, match=f"format: expected 1, received {number}"):
        load_model(saved)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "\x00", '{"format": 1}'])
def test_a_config_that_is_no_config(text: str, saved: Path) -> None:
    (saved / "config.json").write_text(text)
    with pytest.raises(VitscopeError, match=r"config\.json|format|family"):
        load_model(saved)


@pytest.mark.parametrize(
    ("settings", "what"),
    [
        ({"depht": 2}, "ViTConfig has no setting 'depht'"),
        ({"depth": "2"}, "depth: expected int, received '2'"),
        ({"num_heads": 3}, "num_heads: expected a divisor of embed_dim 32, received 3"),
    ],
)
def test_settings_that_cannot_be(settings: dict[str, Any], what: str, saved: Path) -> None:
    change_config(saved, config={**SMALL, **settings})
    with pytest.raises(ConfigError) as refused:
        load_model(saved)
    assert refused.value.what == what
    assert str(saved / "config.json") in str(refused.value.where)


@pytest.mark.parametrize("text", ["{}", "[1, 2]", '"cat"', "nonsense"])
def test_labels_that_are_no_names(text: str, saved: Path) -> None:
    (saved / "labels.json").write_text(text)
    with pytest.raises(VitscopeError, match="labels"):
        load_labels(saved)


def test_preprocessing_that_cannot_be(saved: Path) -> None:
    told = json.loads((saved / "preprocessing.json").read_text())
    (saved / "preprocessing.json").write_text(json.dumps({**told, "crop_share": 2}))
    with pytest.raises(ConfigError, match="crop_share"):
        load_preprocessing(saved)


def test_a_loaded_model_does_not_depend_on_its_file(saved: Path) -> None:
    loaded = load_model(saved)
    with (saved / "model.safetensors").open("r+b") as file:
        file.write(b"\xff" * (saved / "model.safetensors").stat().st_size)
    assert_same(network(TINY), loaded)


def test_a_copied_folder_is_the_same_model(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved, tmp_path / "copy")
    assert_same(load_model(saved), load_model(tmp_path / "copy"))

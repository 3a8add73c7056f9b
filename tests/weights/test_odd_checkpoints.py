"""Checkpoints as people have them: empty places, compiled layers, mixed types, far too many names."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.variants import VARIANTS
from vitscope.weights.bounds import MOST_TENSORS
from vitscope.weights.files import read_file
from vitscope.weights.load import load_model

TINY = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=1, num_heads=2, num_classes=3)


def weights() -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in build_model(TINY).state_dict().items()}


def loaded(content: Any, folder: Path, **settings: Any) -> Any:
    torch.save(content, folder / "a.pth")
    return load_model(folder / "a.pth", config=TINY, say=False, **settings)


def has(model: Any, wanted: dict[str, Tensor]) -> bool:
    return all(torch.equal(tensor, wanted[name]) for name, tensor in model.state_dict().items())


# --- wrappers that hold nothing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("empty", [{}, {"decay": 0.99}, {"model": {}}, {"state_dict": {"model": {}}}], ids=str)
@pytest.mark.parametrize("key", ["state_dict", "model"])
def test_an_empty_place_hides_nothing(empty: dict[str, Any], key: str, tmp_path: Path) -> None:
    wanted = weights()
    model = loaded({"state_dict_ema": empty, "teacher": {}, key: wanted, "epoch": 3}, tmp_path)
    assert has(model, wanted)
    assert f"of the checkpoint, its '{key}'" in model.certificate.remarks


def test_an_empty_place_among_the_weights_themselves(tmp_path: Path) -> None:
    wanted = weights()
    assert has(loaded({**wanted, "model": {}}, tmp_path), wanted)


def test_a_running_mean_is_still_preferred(tmp_path: Path) -> None:
    wanted = weights()
    model = loaded({"state_dict": weights(), "state_dict_ema": wanted}, tmp_path)
    assert has(model, wanted)
    assert "of the checkpoint, its 'state_dict_ema', not its 'state_dict'" in model.certificate.remarks


@pytest.mark.parametrize("within", ["module", "model", "state_dict", "model_state_dict"])
def test_a_running_mean_is_preferred_however_deep(within: str, tmp_path: Path) -> None:
    wanted = weights()
    model = loaded({"state_dict_ema": {"decay": 0.9, within: wanted}, "state_dict": weights()}, tmp_path)
    assert has(model, wanted)
    assert f"of the checkpoint, its 'state_dict_ema.{within}', not its 'state_dict'" in model.certificate.remarks


@pytest.mark.parametrize("key", ["ema_state_dict", "ema"])
@pytest.mark.parametrize("other", ["model_state_dict", "model", "module"])
def test_running_means_by_other_names(key: str, other: str, tmp_path: Path) -> None:
    wanted = weights()
    assert has(loaded({other: weights(), key: wanted}, tmp_path), wanted)
    assert has(loaded({other: wanted, "optimizer": {"state": {}}}, tmp_path), wanted)


def test_a_mean_that_was_not_found_is_told(tmp_path: Path) -> None:
    wanted = weights()
    for odd in ({"decay": torch.tensor(0.9)}, {"shadow": weights()}):
        model = loaded({"model": wanted, "ema": odd, "teacher": {}}, tmp_path)
        assert has(model, wanted)
        told = [remark for remark in model.certificate.remarks if "no weights were found in it" in remark]
        assert told == ["its 'ema' would be preferred, and no weights were found in it"]


# --- layers compiled or wrapped by themselves -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("blocks.0.", "blocks.0._orig_mod.", "'_orig_mod.'"),
        ("blocks.0.attn.", "blocks.0.attn.module.", "'module.'"),
        ("blocks.0.attn.qkv.", "blocks.0._orig_mod.attn.qkv.module.", "'_orig_mod.' and 'module.'"),
        ("patch_embed.", "patch_embed._orig_mod.", "'_orig_mod.'"),
        ("head.", "head._orig_mod.", "'_orig_mod.'"),
    ],
)
@pytest.mark.parametrize("before", ["", "module.", "_orig_mod.module."])
def test_wrapped_layers(old: str, new: str, told: str, before: str, tmp_path: Path) -> None:
    wanted = weights()
    model = loaded({before + name.replace(old, new): tensor for name, tensor in wanted.items()}, tmp_path)
    assert has(model, wanted)
    assert f"names without the {told} within them" in model.certificate.remarks
    assert not before or f"names without their '{before}'" in model.certificate.remarks


def test_two_tensors_never_get_one_name(tmp_path: Path) -> None:
    both = {**weights(), "blocks.0._orig_mod.norm1.weight": torch.ones(16)}
    with pytest.raises(VitscopeError, match=r"1 unexpected: blocks\.0\._orig_mod\.norm1\.weight"):
        loaded(both, tmp_path)


# --- our own other families -------------------------------------------------------------------------------------

BASELINES = [name for name in VARIANTS if VARIANTS[name].config.family in ("cnn", "lstm", "resnet")]


@pytest.mark.parametrize("name", BASELINES)
def test_bare_weights_of_the_baselines(name: str, tmp_path: Path) -> None:
    model = build_model(VARIANTS[name].config)
    wanted = model.state_dict()
    save_file(dict(wanted), tmp_path / "a.safetensors")
    found = load_model(tmp_path / "a.safetensors", config=name, say=False)
    assert has(found, wanted)
    torch.save({"state_dict": {f"module.{key}": tensor for key, tensor in wanted.items()}}, tmp_path / "a.pth")
    assert has(load_model(tmp_path / "a.pth", config=name, say=False), wanted)
    with pytest.raises(VitscopeError) as refused:
        load_model(tmp_path / "a.safetensors")
    assert name in str(refused.value.fix), "without a config the error names what fits"


# --- types ------------------------------------------------------------------------------------------------------


def test_one_float64_does_not_double_the_model(tmp_path: Path) -> None:
    mixed = weights()
    mixed["norm.weight"] = mixed["norm.weight"].double()
    model = loaded(mixed, tmp_path)
    assert {tensor.dtype for tensor in model.parameters()} == {torch.float32}
    assert "the source mixes float32 and float64; all were cast to float32" in model.certificate.remarks


def test_mostly_float64_stays_float64(tmp_path: Path) -> None:
    mixed = {name: tensor.double() for name, tensor in weights().items()}
    mixed["norm.weight"] = mixed["norm.weight"].float()
    assert {tensor.dtype for tensor in loaded(mixed, tmp_path).parameters()} == {torch.float64}


def test_a_float64_that_float32_cannot_hold(tmp_path: Path) -> None:
    mixed = weights()
    mixed["norm.weight"] = mixed["norm.weight"].double() * 1e300
    with pytest.raises(VitscopeError, match=r"norm\.weight holds numbers up to 1e\+300"):
        loaded(mixed, tmp_path)


@pytest.mark.parametrize(
    "kinds", [(torch.float16, torch.bfloat16), (torch.bfloat16, torch.float32), (torch.float16, torch.float64)]
)
def test_smaller_types_mixed_become_float32(kinds: tuple[torch.dtype, torch.dtype], tmp_path: Path) -> None:
    mixed = {name: tensor.to(kinds[0]) for name, tensor in weights().items()}
    mixed["norm.weight"] = mixed["norm.weight"].to(kinds[1])
    assert {tensor.dtype for tensor in loaded(mixed, tmp_path).parameters()} == {torch.float32}


@pytest.mark.parametrize("kind", [torch.float8_e4m3fn, torch.float8_e5m2, torch.complex64], ids=str)
def test_types_no_model_has(kind: torch.dtype, tmp_path: Path) -> None:
    torch.save({name: tensor.to(kind) for name, tensor in weights().items()}, tmp_path / "a.pth")
    with pytest.raises(VitscopeError, match="which no model here has") as refused:
        load_model(tmp_path / "a.pth", config=TINY)
    assert "float32" in str(refused.value.fix)


# --- too many names ---------------------------------------------------------------------------------------------


def test_far_too_many_names(tmp_path: Path) -> None:
    names = [f"blocks.{number}.weight" for number in range(MOST_TENSORS + 1)]
    entries = {name: {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for name in names}
    header = json.dumps(entries).encode()
    (tmp_path / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header)
    torch.save(dict.fromkeys(names, torch.zeros(1)), tmp_path / "a.pth")
    for name in ("a.safetensors", "a.pth"):
        with pytest.raises(VitscopeError, match=r"holds 50,001 tensors, and 50,000 are the most"):
            read_file(tmp_path / name)


@pytest.mark.parametrize("with_config", [True, False])
def test_of_many_unknown_names_few_are_shown(with_config: bool, tmp_path: Path) -> None:
    names = [f"blocks.{number}.strange.weight" for number in range(3000)]
    save_file({**weights(), **{name: torch.zeros(1) for name in names}}, tmp_path / "a.safetensors")
    with pytest.raises(VitscopeError) as refused:
        load_model(tmp_path / "a.safetensors", config=TINY if with_config else None)
    assert len(str(refused.value)) < 1000


# --- weights of which nothing fits ------------------------------------------------------------------------------


def test_partial_is_not_nothing(tmp_path: Path) -> None:
    other = {f"blocks.{number}.strange": torch.zeros(2, 2) for number in range(3)}
    strange = {**other, "patch_embed.proj.weight": torch.zeros(5, 3, 2, 2), "head.bias": torch.zeros(3)}
    for allow_partial in (False, True):
        with pytest.raises(VitscopeError, match="nothing of the backbone") as refused:
            loaded(strange, tmp_path, allow_partial=allow_partial)
        assert "allow_partial" not in str(refused.value.fix)
    one = {**strange, "norm.weight": torch.full((16,), 3.0)}
    assert torch.equal(loaded(one, tmp_path, allow_partial=True).norm.weight.detach(), one["norm.weight"])


# --- archives packed anew ---------------------------------------------------------------------------------------


def packed_anew(path: Path, to: Path, *, renamed: dict[str, str] | None = None, order: int = 1) -> Path:
    """As `zip -0` or a mender of archives does: the same entries elsewhere, in another order, by other names."""
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(to, "w") as new:
        top = old.namelist()[0].split("/")[0]
        for name in old.namelist()[::order]:
            inner = name.removeprefix(f"{top}/")
            new.writestr(f"{top}/{(renamed or {}).get(inner, inner)}", old.read(name))
    return to


@pytest.mark.parametrize("order", [1, -1])
def test_a_torch_file_packed_anew(order: int, tmp_path: Path) -> None:
    wanted = weights()
    torch.save(wanted, tmp_path / "a.pth")
    stored = read_file(packed_anew(tmp_path / "a.pth", tmp_path / "b.pth", order=order))
    assert all(torch.equal(stored[name], tensor) for name, tensor in wanted.items())


def with_exchanged_names(path: Path) -> None:
    """By bytes, so that everything stays where torch's own writer put it."""
    content = path.read_bytes()
    one, two, none = b"a/data/1", b"a/data/2", b"a/data/x"
    path.write_bytes(content.replace(one, none).replace(two, one).replace(none, two))


def test_tensors_are_found_by_name_not_by_where_torch_would_have_put_them(tmp_path: Path) -> None:
    torch.save({"p": torch.zeros(4), "q": torch.ones(4), "r": torch.full((4,), 2.0)}, tmp_path / "a.pth")
    with_exchanged_names(tmp_path / "a.pth")
    stored, wanted = read_file(tmp_path / "a.pth"), torch.load(tmp_path / "a.pth", weights_only=True)
    assert float(wanted["q"][0]) == 2.0, "the names were not exchanged"
    assert {name: stored[name].tolist() for name in stored} == {name: wanted[name].tolist() for name in wanted}


@pytest.mark.parametrize("name", ["a.pth", "a.safetensors"])
def test_numbers_are_numbers_whatever_the_default_device_is(name: str, tmp_path: Path) -> None:
    wanted = {**weights(), "empty": torch.zeros(0, 3)}
    (save_file if name.endswith("safetensors") else torch.save)(wanted, tmp_path / name)
    with torch.device("meta"):
        stored = read_file(tmp_path / name)
        found = {one: stored[one] for one in stored}
    assert {tensor.device.type for tensor in found.values()} == {"cpu"}
    assert all(torch.equal(found[one], tensor) for one, tensor in wanted.items())

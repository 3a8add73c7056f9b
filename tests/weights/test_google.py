"""Google's .npz files: timm reads them, we read them, and both give the same answers."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models.vision_transformer import VisionTransformer
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import SwinConfig, ViTConfig
from vitscope.models.variants import model_config
from vitscope.weights.files import Stored, read_file
from vitscope.weights.formats import recognised
from vitscope.weights.formats.google import GOOGLE
from vitscope.weights.formats.timm_folder import peer_of_file
from vitscope.weights.load import load_model

SMALL: dict[str, Any] = {"img_size": 32, "patch_size": 8, "embed_dim": 48, "depth": 2, "num_heads": 4, "num_classes": 7}
PLAIN = ViTConfig(**SMALL)
MAP: dict[str, Any] = {"class_token": False, "pool": "attention"}
THEIR_MAP: dict[str, Any] = {"class_token": False, "global_pool": "map"}


def theirs(**settings: Any) -> VisionTransformer:
    model = VisionTransformer(**{**SMALL, **settings})
    fill_with_large_random_weights(model)
    return model.eval()


def flax(model: Any, *, big_vision: bool = False) -> dict[str, np.ndarray]:
    """A ViT as Flax saves it, written down from its layers: kernels (in, out), heads apart."""
    heads = model.blocks[0].attn.num_heads
    attention, norm, mlp = (0, 1, 0) if big_vision else (1, 2, 3)
    arrays: dict[str, Tensor] = {
        "embedding/kernel": model.patch_embed.proj.weight.permute(2, 3, 1, 0),
        "embedding/bias": model.patch_embed.proj.bias,
        "Transformer/encoder_norm/scale": model.norm.weight,
        "Transformer/encoder_norm/bias": model.norm.bias,
        "pos_embedding" if big_vision else "Transformer/posembed_input/pos_embedding": model.pos_embed,
    }
    if model.cls_token is not None:
        arrays["cls"] = model.cls_token

    def dense(name: str, layer: Any) -> None:
        arrays[f"{name}/kernel"], arrays[f"{name}/bias"] = layer.weight.T, layer.bias

    def scale(name: str, layer: Any) -> None:
        arrays[f"{name}/scale"], arrays[f"{name}/bias"] = layer.weight, layer.bias

    def attend(name: str, weights: dict[str, tuple[Tensor, Tensor]], out: Any) -> None:
        for part, (weight, bias) in weights.items():
            arrays[f"{name}/{part}/kernel"] = weight.T.reshape(weight.shape[1], heads, -1)
            arrays[f"{name}/{part}/bias"] = bias.reshape(heads, -1)
        arrays[f"{name}/out/kernel"] = out.weight.T.reshape(heads, -1, out.weight.shape[0])
        arrays[f"{name}/out/bias"] = out.bias

    for i, block in enumerate(model.blocks):
        at = f"Transformer/encoderblock_{i}"
        scale(f"{at}/LayerNorm_0", block.norm1)
        scale(f"{at}/LayerNorm_{norm}", block.norm2)
        qkv = zip(block.attn.qkv.weight.chunk(3), block.attn.qkv.bias.chunk(3), strict=True)
        parts: dict[str, tuple[Tensor, Tensor]] = dict(zip(("query", "key", "value"), qkv, strict=True))
        attend(f"{at}/MultiHeadDotProductAttention_{attention}", parts, block.attn.proj)
        dense(f"{at}/MlpBlock_{mlp}/Dense_0", block.mlp.fc1)
        dense(f"{at}/MlpBlock_{mlp}/Dense_1", block.mlp.fc2)
    if model.attn_pool is not None:
        pool = model.attn_pool
        arrays["MAPHead_0/probe"] = pool.latent
        (key, value), (key_bias, value_bias) = pool.kv.weight.chunk(2), pool.kv.bias.chunk(2)
        parts = {"query": (pool.q.weight, pool.q.bias), "key": (key, key_bias), "value": (value, value_bias)}
        attend("MAPHead_0/MultiHeadDotProductAttention_0", parts, pool.proj)
        scale("MAPHead_0/LayerNorm_0", pool.norm)
        dense("MAPHead_0/MlpBlock_0/Dense_0", pool.mlp.fc1)
        dense("MAPHead_0/MlpBlock_0/Dense_1", pool.mlp.fc2)
    if model.num_classes:
        dense("head", model.head)
    return {name: np.ascontiguousarray(tensor.detach().numpy()) for name, tensor in arrays.items()}


def written(path: Path, arrays: dict[str, np.ndarray], prefix: str = "", *, small: bool = False) -> Path:
    save: Any = np.savez_compressed if small else np.savez
    save(path, **{prefix + name: array for name, array in arrays.items()})
    return path


def stacked(arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """All blocks in one array, as big_vision's scan leaves them."""
    outside = {name: array for name, array in arrays.items() if "encoderblock_" not in name}
    names = [name for name in arrays if "encoderblock_0/" in name]
    blocks = {
        name.replace("encoderblock_0", "encoderblock"): np.stack(
            [arrays[name.replace("encoderblock_0", f"encoderblock_{i}")] for i in range(SMALL["depth"])]
        )
        for name in names
    }
    return {**outside, **blocks}


def pictures() -> Tensor:
    return torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same_answers(ours: Any, peer: Any) -> None:
    found, wanted = ours(pictures()), peer(pictures())
    assert found.shape == wanted.shape
    assert (found - wanted).abs().max().item() <= 1e-5 * wanted.abs().max().item()


CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # timm's words, ours, and how it lies
    "first": ({}, {}, {}),
    "optimiser": ({}, {}, {"prefix": "opt/target/"}),
    "compressed": ({}, {}, {"small": True}),
    "headless": ({"num_classes": 0}, {"num_classes": 0}, {}),
    "big_vision": ({"no_embed_class": True}, {"prefix_position": False}, {"prefix": "params/", "big_vision": True}),
    "big_vision_map": (THEIR_MAP, MAP, {"prefix": "params/", "big_vision": True}),
    "siglip": (
        {**THEIR_MAP, "num_classes": 0},
        {**MAP, "num_classes": 0},
        {"prefix": "params/img/", "big_vision": True},
    ),
    "stacked": ({"no_embed_class": True}, {"prefix_position": False}, {"big_vision": True, "stacked": True}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_answers_are_timms(case: str, tmp_path: Path) -> None:
    words, settings, how = CASES[case]
    model = theirs(**words)
    arrays = flax(model, big_vision=how.get("big_vision", False))
    arrays = stacked(arrays) if how.get("stacked") else arrays
    file = written(tmp_path / "a.npz", arrays, how.get("prefix", ""), small=how.get("small", False))

    by_timm = VisionTransformer(**{**SMALL, **words})
    by_timm.load_pretrained(str(file))
    config = updated(PLAIN, **settings)
    ours = load_model(file, config=config)
    assert_same_answers(ours, by_timm.eval())
    for name, tensor in model.state_dict().items():
        assert torch.equal(ours.state_dict()[name], tensor), name
    certificate = ours.certificate
    assert certificate.format == "Google's npz"
    assert certificate.covered == 1
    assert not certificate.of("left out", "unexpected", "missing")
    assert "gelu_tanh" in " ".join(certificate.remarks)

    if case not in ("stacked", "siglip"):
        asked = peer_of_file(file, config)
        assert asked is not None
        found = asked(pictures())
        wanted = ours(pictures()) if config.num_classes else ours.forward_features(pictures())
        assert (found - wanted).abs().max().item() <= 1e-5 * wanted.abs().max().item()


@pytest.mark.parametrize("case", ["first", "optimiser", "big_vision", "big_vision_map"])
def test_what_the_matches_write_is_what_they_read(case: str, tmp_path: Path) -> None:
    words, settings, how = CASES[case]
    arrays = flax(theirs(**words), big_vision=how.get("big_vision", False))
    prefix = how.get("prefix", "")
    file = written(tmp_path / "a.npz", arrays, prefix)
    config = updated(PLAIN, **settings)
    ours, find = load_model(file, config=config), GOOGLE.reading(read_file(file), config)
    back: dict[str, np.ndarray] = {}
    for name, tensor in ours.state_dict().items():
        match = find(name)
        assert match is not None, name
        back |= {part: array.numpy() for part, array in zip(match.written, match.write(tensor), strict=True)}
    assert back.keys() == {prefix + name for name in arrays}
    for name, array in arrays.items():
        assert np.array_equal(back[prefix + name], array), name
    again = load_model(written(tmp_path / "b.npz", back), config=config)
    assert all(torch.equal(again.state_dict()[name], tensor) for name, tensor in ours.state_dict().items())


@pytest.mark.parametrize("name", ["vit_tiny_patch16_224", "vit_base_patch32_384", "vit_large_patch16_224"])
def test_every_tensor_of_full_models_is_matched(name: str) -> None:
    with torch.device("meta"):
        model: Any = timm.create_model(name, num_classes=21843)
        ours = build_model(model_config(name))
    heads = model.blocks[0].attn.num_heads
    # The shapes of the published file, from the formulas of its layers.
    d, n, m, p = model.embed_dim, model.pos_embed.shape[1], 4 * model.embed_dim, model.patch_embed.patch_size[0]
    shapes: dict[str, tuple[int, ...]] = {
        "cls": (1, 1, d),
        "embedding/kernel": (p, p, 3, d),
        "embedding/bias": (d,),
        "Transformer/posembed_input/pos_embedding": (1, n, d),
        "Transformer/encoder_norm/scale": (d,),
        "Transformer/encoder_norm/bias": (d,),
        "head/kernel": (d, 21843),
        "head/bias": (21843,),
    }
    for i in range(len(model.blocks)):
        at = f"Transformer/encoderblock_{i}"
        shapes |= {f"{at}/LayerNorm_{k}/{leaf}": (d,) for k in (0, 2) for leaf in ("scale", "bias")}
        for part in ("query", "key", "value"):
            shapes[f"{at}/MultiHeadDotProductAttention_1/{part}/kernel"] = (d, heads, d // heads)
            shapes[f"{at}/MultiHeadDotProductAttention_1/{part}/bias"] = (heads, d // heads)
        shapes[f"{at}/MultiHeadDotProductAttention_1/out/kernel"] = (heads, d // heads, d)
        shapes[f"{at}/MultiHeadDotProductAttention_1/out/bias"] = (d,)
        shapes |= {f"{at}/MlpBlock_3/Dense_0/kernel": (d, m), f"{at}/MlpBlock_3/Dense_0/bias": (m,)}
        shapes |= {f"{at}/MlpBlock_3/Dense_1/kernel": (m, d), f"{at}/MlpBlock_3/Dense_1/bias": (d,)}
    stored = Stored(shapes, lambda name: pytest.fail("a number was read"), files=(Path("none"),))
    assert recognised(stored, where="here") is GOOGLE
    find = GOOGLE.reading(stored, model_config(name))
    used = set()
    for ours_name, wanted in ours.state_dict().items():
        match = find(ours_name)
        assert match is not None, ours_name
        used |= set(match.theirs)
        tensor = match.read(*(torch.empty(shapes[part], device="meta") for part in match.theirs))
        assert tensor.shape[1:] == wanted.shape[1:], ours_name
    assert used == set(shapes)


# --- refusals ---------------------------------------------------------------------------------------------------


def test_another_number_of_heads_is_refused(tmp_path: Path) -> None:
    """The fused matrix would fit all the same."""
    file = written(tmp_path / "a.npz", flax(theirs()))
    with pytest.raises(ConfigError, match="num_heads: expected 4"):
        load_model(file, config=updated(PLAIN, num_heads=6))


def test_another_family_is_refused(tmp_path: Path) -> None:
    file = written(tmp_path / "a.npz", flax(theirs()))
    with pytest.raises(ConfigError, match="'vit'"):
        load_model(file, config=SwinConfig())


def test_pre_logits_are_refused_unless_headless(tmp_path: Path) -> None:
    model = theirs()
    more = {"pre_logits/kernel": np.ones((48, 48), np.float32), "pre_logits/bias": np.ones(48, np.float32)}
    file = written(tmp_path / "a.npz", {**flax(model), **more})
    with pytest.raises(VitscopeError, match="pre_logits") as caught:
        load_model(file, config=PLAIN)
    assert "num_classes=0" in str(caught.value.fix)
    ours = load_model(file, config=updated(PLAIN, num_classes=0))
    left = {entry.theirs[0] for entry in ours.certificate.of("left out")}
    assert left == {*more, "head/kernel", "head/bias"}
    model.reset_classifier(0)
    assert_same_answers(ours, model)


def test_attention_pooling_needs_a_config_that_has_it(tmp_path: Path) -> None:
    file = written(tmp_path / "a.npz", flax(theirs(**THEIR_MAP), big_vision=True), "params/")
    with pytest.raises(VitscopeError) as caught:
        load_model(file, config=updated(PLAIN, class_token=False, pool="mean"))
    assert "pool='attention'" in str(caught.value.fix)


def test_the_text_half_is_left_out(tmp_path: Path) -> None:
    arrays = {f"params/img/{name}": array for name, array in flax(theirs(**THEIR_MAP), big_vision=True).items()}
    text = {"params/txt/Embed_0/embedding": np.ones((3, 3), np.float32), "params/t": np.ones(1, np.float32)}
    ours = load_model(written(tmp_path / "a.npz", {**arrays, **text}), config=updated(PLAIN, **MAP))
    assert {entry.theirs[0] for entry in ours.certificate.of("left out")} == set(text)


# --- the file itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("small", [False, True], ids=["stored", "compressed"])
def test_arrays_of_every_kind_are_read(small: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "single": rng.standard_normal((3, 4)).astype(np.float32),
        "double": rng.standard_normal((2, 3, 4)),
        "half": rng.standard_normal(5).astype(np.float16),
        "number": np.float32(3.5).reshape(()),
        "empty": np.zeros((0, 4), np.float32),
        "fortran": np.asfortranarray(rng.standard_normal((3, 5)).astype(np.float32)),
        "other_end": rng.standard_normal(4).astype(">f4"),
        "long": np.arange(5),
    }
    stored = read_file(written(tmp_path / "a.npz", arrays, small=small))
    assert set(stored) == set(arrays)
    for name, array in arrays.items():
        assert stored.shapes[name] == array.shape
        assert stored[name].is_contiguous()
        assert np.array_equal(stored[name].numpy(), array), name
    assert str(stored["half"].dtype) == "torch.float16"


@pytest.mark.parametrize("small", [False, True], ids=["stored", "compressed"])
def test_bfloat16_is_read(small: bool, tmp_path: Path) -> None:
    wanted = torch.randn(3, 4).bfloat16()
    bits = wanted.view(torch.int16).numpy().view(np.dtype("V2"))
    stored = read_file(written(tmp_path / "a.npz", {"a": bits}, small=small))
    assert torch.equal(stored["a"], wanted)


def test_a_flipped_bit_is_noticed(tmp_path: Path) -> None:
    file = written(tmp_path / "a.npz", {"a": np.arange(1000, dtype=np.float32), "b": np.ones(3, np.float32)})
    content = bytearray(file.read_bytes())
    content[2000] ^= 1
    file.write_bytes(content)
    stored = read_file(file)
    assert stored["b"].tolist() == [1, 1, 1]
    with pytest.raises(VitscopeError, match="a: its checksum"):
        stored["a"]


@pytest.mark.parametrize("length", [20, 200, 3000], ids=str)
def test_a_file_cut_short_is_refused(length: int, tmp_path: Path) -> None:
    file = written(tmp_path / "a.npz", {"a": np.arange(1000, dtype=np.float32)})
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(VitscopeError):
        read_file(file)["a"]


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=np.array([print], dtype=object))
    with pytest.raises(VitscopeError, match="unpickled"):
        read_file(tmp_path / "a.npz")


def test_an_entry_that_is_no_array_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", b"not an array")
    with pytest.raises(VitscopeError):
        read_file(tmp_path / "a.npz")

"""Where a model looks: the numbers are the model's own, whatever kind it is, and it stays as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from infer.looking_models import KINDS, SMALL, photograph, predictor, seeing, vit
from vitscope.core.errors import InputError, UsageError, VitscopeError
from vitscope.data.decode import BadImageError
from vitscope.infer.explain.explain import METHODS, explain
from vitscope.infer.explain.reader import pool_weights
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, LSTMConfig, MAEConfig, SwinConfig, ViTConfig
from vitscope.weights.folder import save_model

PICTURE = photograph()


@torch.no_grad()
def rows_read(model: Any, images: torch.Tensor) -> torch.Tensor:
    """(T,): what the head reads of each token, straight from the definition of each kind of pooling."""
    cfg, prefix = model.config, model.config.num_prefix_tokens
    shares = torch.zeros(cfg.num_tokens)
    if cfg.pool == "cls":
        shares[0] = 1
        if cfg.distilled:
            shares[:2] = 0.5
    elif cfg.pool == "mean":
        shares[prefix:] = 1 / cfg.num_patches
    else:
        shares[prefix:] = pool_weights(model.attn_pool, model.forward_features(images)[0, prefix:]).mean(0)
    return shares


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_attention_is_what_the_head_reads(settings: dict[str, Any]) -> None:
    asked = predictor(**settings)
    model, images = asked.model, seeing(asked, PICTURE)
    cfg: Any = model.config
    with torch.no_grad():
        maps = model.attention_maps(images)
    shares = rows_read(model, images)
    for layer in range(cfg.depth):
        row = torch.einsum("q,hqk->hk", shares, maps[layer][0])[:, cfg.num_prefix_tokens :]
        wanted = row.unflatten(1, cfg.grid_size).numpy()
        found = explain(asked, PICTURE, layer=layer, draws=None)
        assert found.map.shape == cfg.grid_size
        np.testing.assert_allclose(found.map, wanted.mean(0), atol=1e-6)
        np.testing.assert_allclose(found.looks[layer], wanted, atol=1e-6)
        one = explain(asked, PICTURE, layer=layer - cfg.depth, head=-1, draws=None)
        np.testing.assert_allclose(one.map, wanted[-1], atol=1e-6)
        assert (one.layer, one.head) == (layer, len(wanted) - 1)


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_a_predictors_attention_is_the_models_own(settings: dict[str, Any]) -> None:
    asked = predictor(**settings)
    with torch.no_grad():
        wanted = asked.model.attention_maps(seeing(asked, PICTURE))
    found = asked.attention(PICTURE)
    assert list(found.layers) == list(wanted)
    for layer, weights in wanted.items():
        torch.testing.assert_close(found.layers[layer], weights[0], atol=1e-6, rtol=0)
    assert len(found.prefix) == asked.model.config.num_prefix_tokens
    assert found.reader.sum().item() == pytest.approx(1)
    np.testing.assert_allclose(found.look(), explain(asked, PICTURE, draws=None).map, atol=1e-6)
    some = asked.attention(PICTURE, layers=[-1])
    assert list(some.layers) == [2]
    with pytest.raises(InputError, match="layer: expected one of 2, received 0"):
        some.look(0)


@pytest.mark.parametrize("settings", [KINDS["registers"], KINDS["mean pool"], KINDS["non-square"]])
def test_one_patchs_look_is_its_own_row(settings: dict[str, Any]) -> None:
    asked = predictor(**settings)
    cfg: Any = asked.model.config
    with torch.no_grad():
        weights = asked.model.attention_maps(seeing(asked, PICTURE), [1])[1][0]
    for row, column in ((0, 0), (1, 2), (cfg.grid_size[0] - 1, cfg.grid_size[1] - 1)):
        query = cfg.num_prefix_tokens + row * cfg.grid_size[1] + column
        wanted = weights[:, query, cfg.num_prefix_tokens :].unflatten(1, cfg.grid_size).mean(0).numpy()
        found = explain(asked, PICTURE, layer=1, patch=(row, column), draws=None)
        np.testing.assert_allclose(found.map, wanted, atol=1e-6)
        np.testing.assert_allclose(asked.attention(PICTURE).look(1, patch=(row, column)), wanted, atol=1e-6)


def rolled_out(maps: dict[int, torch.Tensor], last: int) -> np.ndarray:
    """Abnar and Zuidema, by plain loops over NumPy matrices in float64."""
    tokens = maps[0].shape[-1]
    reached = np.eye(tokens)
    for layer in range(last + 1):
        mean = maps[layer][0].double().numpy().mean(axis=0)
        step = 0.5 * mean + 0.5 * np.eye(tokens)
        step /= step.sum(axis=1, keepdims=True)
        reached = step @ reached
    return reached


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_rollout_is_a_plain_product(settings: dict[str, Any]) -> None:
    asked = predictor(**settings)
    model, images = asked.model, seeing(asked, PICTURE)
    cfg: Any = model.config
    with torch.no_grad():
        maps = model.attention_maps(images)
    shares = rows_read(model, images).double().numpy()
    for layer in (0, cfg.depth - 1):
        wanted = (shares @ rolled_out(maps, layer))[cfg.num_prefix_tokens :].reshape(cfg.grid_size)
        found = explain(asked, PICTURE, "rollout", layer=layer, draws=None)
        np.testing.assert_allclose(found.map, wanted, atol=1e-6)


def snapshot(model: Any) -> tuple[Any, ...]:
    hooks = [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in model.modules()]
    modes = [part.training for part in model.modules()]
    wants = [parameter.requires_grad for parameter in model.parameters()]
    return modes, hooks, wants, [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["distilled", "attention pool"])
def test_the_model_is_left_as_it_was(method: Any, kind: str) -> None:
    model = vit(**KINDS[kind], drop_rate=0.5, attn_drop_rate=0.5)
    asked = Predictor(model, device="cpu")
    model.train()
    model.blocks[0].eval()
    model.blocks[1].requires_grad_(False)
    model.head.weight.grad = torch.ones_like(model.head.weight)
    before, weights = snapshot(model), {key: value.clone() for key, value in model.state_dict().items()}
    first, second = (explain(asked, PICTURE, method, draws=19 if method == "rollout" else None) for _ in range(2))
    assert np.array_equal(first.map, second.map)  # looked without dropout
    with pytest.raises(InputError):
        explain(asked, PICTURE, method, layer=9)
    modes, hooks, wants, gradients = snapshot(model)
    assert (modes, hooks, wants) == before[:3]
    assert all(mine is old for mine, old in zip(gradients, before[3], strict=True))
    assert torch.equal(model.head.weight.grad, torch.ones_like(model.head.weight))
    assert all(torch.equal(value, weights[key]) for key, value in model.state_dict().items())


def test_the_class_explained_is_the_likeliest_or_the_one_asked_for() -> None:
    model = vit()
    model.labels = ["cat", "dog", "fox", "3", "0"]
    asked = Predictor(model, device="cpu")
    told = asked.classify(PICTURE)[0]
    found = explain(asked, PICTURE, draws=None)
    assert found.prediction == told
    assert found.target is not None
    assert (found.target.index, found.target.probability) == (told.index, pytest.approx(told.confidence))
    for target, index in (("dog", 1), (1, 1), ("2", 2), ("3", 3), ("0", 4), (0, 0)):
        chosen = explain(asked, PICTURE, target=target, draws=None).target
        assert chosen is not None
        assert chosen.index == index
    with pytest.raises(UsageError, match="target: expected a label, or a number from 0 to 4") as refused:
        explain(asked, PICTURE, target="dgo", draws=None)
    assert "dog" in (refused.value.fix or "")
    with pytest.raises(UsageError, match="received 5"):
        explain(asked, PICTURE, target=5, draws=None)


def test_whatever_a_picture_comes_as(tmp_path: Path) -> None:
    asked = predictor()
    PICTURE.save(tmp_path / "a.png")
    wanted = explain(asked, PICTURE, draws=None)
    pixels = torch.from_numpy(np.array(PICTURE)).permute(2, 0, 1)
    for given in (tmp_path / "a.png", str(tmp_path / "a.png"), (tmp_path / "a.png").read_bytes(), np.array(PICTURE)):
        found = explain(asked, given, draws=None)
        assert np.array_equal(found.map, wanted.map)
        assert found.overlay().size == PICTURE.size
    assert np.array_equal(explain(asked, pixels, draws=None).map, wanted.map)
    prepared = explain(asked, seeing(asked, PICTURE), draws=None)
    np.testing.assert_allclose(prepared.map, wanted.map, atol=1e-6)
    assert prepared.overlay().size == (32, 32)
    with pytest.raises(InputError, match="picture: expected one picture, received 2"):
        explain(asked, [PICTURE, PICTURE], draws=None)
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8 torn")
    with pytest.raises(BadImageError):
        explain(asked, tmp_path / "torn.jpg", draws=None)


def test_a_saved_model_looks_as_it_did(tmp_path: Path) -> None:
    asked = predictor(num_registers=2)
    save_model(asked.model, tmp_path / "model")
    again = Predictor.load(tmp_path / "model", device="cpu")
    for method in METHODS:
        assert np.array_equal(
            explain(again, PICTURE, method, draws=None).map, explain(asked, PICTURE, method, draws=None).map
        )


def test_bf16_models_look_too() -> None:
    asked = Predictor(vit(), device="cpu", dtype=torch.bfloat16)
    for method in METHODS:
        found = explain(asked, PICTURE, method)
        assert found.map.dtype == np.float32
        assert np.isfinite(found.map).all()
        assert found.faithfulness is not None


def test_models_without_classes_are_judged_by_their_features() -> None:
    asked = predictor(num_classes=0)
    found = explain(asked, PICTURE, "rollout")
    assert found.prediction is None
    assert found.target is None
    assert found.faithfulness is not None
    assert "likeness of the features" in found.faithfulness.measure
    assert found.faithfulness.deletion[0] == pytest.approx(1)
    assert found.faithfulness.insertion[-1] == pytest.approx(1)
    for settings in ({"method": "gradient_rollout"}, {"target": 1}):
        with pytest.raises(UsageError, match="the model has no classes"):
            explain(asked, PICTURE, **settings)  # type: ignore[arg-type]


def test_a_masked_model_looks_with_its_encoder() -> None:
    encoder = ViTConfig(**{**SMALL, "num_classes": 0, "position": "sincos"})
    torch.manual_seed(0)
    model: Any = build_model(MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2))
    found = explain(Predictor(model, device="cpu"), PICTURE)
    wanted = explain(Predictor(model.encoder, device="cpu"), PICTURE, draws=None)
    assert np.array_equal(found.map, wanted.map)


SWIN = SwinConfig(img_size=32, embed_dim=16, depths=(2,), num_heads=(2,), window_size=4)
OTHERS = {
    "swin": (SWIN, "Swin attends inside small windows", "--feature-maps"),
    "cnn": (CNNConfig(img_size=16, in_chans=3, widths=(4,)), "CNN has no attention", "feature_maps_of"),
    "lstm": (LSTMConfig(img_size=16, in_chans=3, embed_dim=8), "neither attention nor feature maps", "predict"),
}


@pytest.mark.parametrize("kind", OTHERS)
def test_models_without_attention_over_the_whole_picture(kind: str) -> None:
    config, what, fix = OTHERS[kind]
    asked = Predictor(build_model(config), device="cpu")
    for look in (explain, Predictor.attention):
        with pytest.raises(InputError, match=what) as refused:
            look(asked, PICTURE)
        assert fix in (refused.value.fix or "")


def test_what_is_refused() -> None:
    asked = predictor()
    cases: list[tuple[dict[str, Any], str]] = [
        ({"method": "rolout"}, "method: expected one of attention, rollout"),
        ({"layer": 3}, "layers: expected numbers from -3 to 2"),
        ({"head": 4}, "head: expected a number from -4 to 3"),
        ({"patch": (4, 0)}, r"patch: expected \(row, column\) within 4 x 4"),
        ({"method": "rollout", "head": 0}, "goes through all heads"),
        ({"method": "gradient_rollout", "layer": 0}, "it takes no layer"),
        ({"method": "gradient_rollout", "patch": (0, 0)}, "it takes no patch"),
        ({"draws": 3}, "draws: expected at least 19"),
    ]
    for settings, said in cases:
        with pytest.raises(VitscopeError, match=said):
            explain(asked, PICTURE, **settings)


def test_a_model_that_answers_no_number_is_said_so() -> None:
    asked = predictor()
    with torch.no_grad():
        asked.model.get_parameter("head.weight").fill_(float("nan"))
    with pytest.raises(VitscopeError, match="not a number"):
        explain(asked, PICTURE)


def test_a_colour_picture_stays_in_colour_for_a_grey_model() -> None:
    found = explain(predictor(in_chans=1), PICTURE, draws=None)
    assert np.array_equal(np.asarray(found.picture), np.asarray(PICTURE))
    assert isinstance(found.overlay(), Image.Image)


def test_by_default_the_last_layer_that_has_heads() -> None:
    """Pruning may leave the last block none."""
    asked = predictor(num_heads=(2, 2, 0), head_dim=8)
    assert explain(asked, PICTURE, draws=None).layer == 1
    assert explain(asked, PICTURE, "rollout", draws=None).layer == 2
    with pytest.raises(InputError, match="block 2, without"):
        explain(asked, PICTURE, layer=-1, draws=None)

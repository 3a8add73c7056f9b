"""MAE: the encoder sees exactly the visible patches, the loss counts exactly the hidden ones."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitscope.core.config import to_dict, updated
from vitscope.core.errors import ConfigError, InputError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ViTConfig
from vitscope.models.layers.position import sincos_2d
from vitscope.models.mae import MAE, decoder_config, patch_statistics
from vitscope.models.reconstruction import Reconstruction, cut_pixels, join_pixels, random_noise, ranked

ENCODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"num_registers": 3},
    "no class token": {"class_token": False, "pool": "mean"},
    "registers only": {"class_token": False, "num_registers": 2, "pool": "mean"},
    "learned": {"position": "learned"},
    "learned, patches only": {"position": "learned", "prefix_position": False, "num_registers": 1},
    "wide image": {"img_size": (16, 48)},
    "wide patch": {"img_size": (24, 40), "patch_size": (4, 8), "in_chans": 1},
    "options": {"layer_scale": 0.1, "qk_norm": True, "mlp": "swiglu", "act": "silu", "qkv_bias": False},
}


def small_config(encoder: dict[str, Any] | None = None, **settings: Any) -> MAEConfig:
    plain = {"img_size": 32, "patch_size": 8, "num_classes": 0, "embed_dim": 16, "depth": 2, "num_heads": 2}
    inside = ViTConfig(**{**plain, "position": "sincos", "init": "xavier", **(encoder or {})})
    return MAEConfig(
        **{"encoder": inside, "decoder_embed_dim": 12, "decoder_depth": 1, "decoder_num_heads": 3, **settings}
    )


def small_mae(encoder: dict[str, Any] | None = None, **settings: Any) -> MAE:
    torch.manual_seed(0)
    return MAE(small_config(encoder, **settings))


def pictures(config: MAEConfig, batch: int = 2, seed: int = 1) -> Tensor:
    size = config.encoder.img_size
    height, width = (size, size) if isinstance(size, int) else size
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch, config.encoder.in_chans, height, width, generator=rng)


def some_noise(config: MAEConfig, batch: int = 2, seed: int = 2) -> Tensor:
    return torch.rand(batch, config.encoder.num_patches, generator=torch.Generator().manual_seed(seed))


def target_of(model: MAE, images: Tensor) -> Tensor:
    """What the decoder should say, written from the paper: each patch minus its mean, over its spread."""
    (p, q) = (size, size) if isinstance(size := model.config.encoder.patch_size, int) else size
    rows = []
    for top in range(0, images.shape[2], p):
        for left in range(0, images.shape[3], q):
            pixels = images[:, :, top : top + p, left : left + q].permute(0, 2, 3, 1).flatten(1)
            if model.config.normalize_pixels:
                pixels = (pixels - pixels.mean(1, keepdim=True)) / (pixels.var(1, keepdim=True) + 1e-6).sqrt()
            rows.append(pixels)
    return torch.stack(rows, dim=1)


# --- shapes and masks ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_shapes_and_a_gradient_for_every_parameter(encoder: dict[str, Any]) -> None:
    model = small_mae(encoder)
    images, patches = pictures(model.config), model.config.encoder.num_patches
    result = model(images)
    pixels = images[0].numel() // patches
    assert isinstance(result, Reconstruction)
    assert result.loss.shape == ()
    assert result.prediction.shape == (2, patches, pixels)
    assert result.mask.shape == (2, patches)
    assert result.mask.dtype == torch.bool
    assert model.reconstruct(images).shape == images.shape
    result.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(("ratio", "visible"), [(0.75, 4), (0.5, 8), (0.6, 6), (0.9, 1), (0.1, 14)])
def test_exactly_the_visible_tokens_reach_the_encoder(ratio: float, visible: int) -> None:
    model = small_mae({"num_registers": 2}, mask_ratio=ratio)
    seen: list[Tensor] = []
    model.encoder.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images = pictures(model.config, batch=3)
    noise = some_noise(model.config, batch=3)
    mask = model(images, noise=noise).mask
    assert (~mask).sum(dim=1).tolist() == [visible] * 3
    # And they are the right ones: the tokens of a full pass, in the order of the noise.
    whole = model.encoder.place(model.encoder.patch_embed(images))
    places = 3 + noise.argsort(dim=1)[:, :visible]
    for sample in range(3):
        wanted = torch.cat([whole[sample, :3], whole[sample, places[sample]]])
        torch.testing.assert_close(seen[0][sample], wanted)


def test_the_highest_noise_is_hidden() -> None:
    model = small_mae()
    noise = torch.arange(16.0).flip(0).expand(2, 16)
    assert model(pictures(model.config), noise=noise).mask.tolist() == [[True] * 12 + [False] * 4] * 2


def test_samples_and_calls_get_their_own_masks() -> None:
    model = small_mae()
    images = pictures(model.config, batch=16)
    first, second = model(images).mask, model(images).mask
    assert not torch.equal(first, second)
    assert len({tuple(row) for row in first.tolist()}) > 8


def test_every_patch_is_hidden_equally_often() -> None:
    model = small_mae(mask_ratio=0.5)
    images = torch.zeros(2000, 3, 32, 32)
    noise = torch.rand(2000, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        share = model(images, noise=noise).mask.float().mean(dim=0)
    assert (share - 0.5).abs().max() < 4 * (0.25 / 2000) ** 0.5


def test_same_noise_same_result() -> None:
    model = small_mae()
    images, noise = pictures(model.config), some_noise(model.config)
    for first, second in zip(model(images, noise=noise), model(images, noise=noise), strict=True):
        assert torch.equal(first, second)
    torch.manual_seed(5)
    drawn = model(images)
    torch.manual_seed(5)
    assert torch.equal(drawn.loss, model(images).loss)


def test_ties_go_to_the_first_patches() -> None:
    order, rank = ranked(torch.zeros(1, 6))
    assert order.tolist() == rank.tolist() == [[0, 1, 2, 3, 4, 5]]


def test_half_precision_still_draws_noise_in_single() -> None:
    """A uniform bf16 draw has 256 values, so many of 196 patches would tie."""
    assert random_noise(torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16), 196).dtype == torch.float32
    model = small_mae({"position": "learned"}).to(torch.bfloat16)
    result = model(pictures(model.config).bfloat16())
    assert result.prediction.dtype == torch.bfloat16
    assert result.loss.dtype == torch.float32
    assert result.mask.sum(dim=1).tolist() == [12, 12]
    assert model.reconstruct(pictures(model.config).bfloat16()).dtype == torch.bfloat16


# --- the loss -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("encoder", ["plain", "wide patch"])
def test_loss_is_the_mean_square_over_hidden_patches(normalize: bool, encoder: str) -> None:
    model = small_mae(ENCODERS[encoder], normalize_pixels=normalize)
    images, noise = pictures(model.config), some_noise(model.config)
    loss, prediction, mask = model(images, noise=noise)
    wanted = (prediction - target_of(model, images))[mask].square().mean()
    torch.testing.assert_close(loss, wanted)


def test_predictions_of_visible_patches_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_mae()
    images, noise = pictures(model.config), some_noise(model.config)
    loss, prediction, mask = model(images, noise=noise)
    elsewhere = prediction + 100 * torch.randn_like(prediction) * ~mask[..., None]
    monkeypatch.setattr(model, "decode", lambda tokens, rank: elsewhere)
    assert torch.equal(model(images, noise=noise).loss, loss)
    hidden = (prediction + 0.1 * mask[..., None]).detach()
    monkeypatch.setattr(model, "decode", lambda tokens, rank: hidden)
    assert model(images, noise=noise).loss != loss


def test_hidden_pixels_do_not_leak() -> None:
    """The prediction must not change with what it is meant to guess."""
    model = small_mae().eval()
    images, noise = pictures(model.config), some_noise(model.config)
    _, prediction, mask = model(images, noise=noise)
    pixels = cut_pixels(images, (8, 8))
    other = join_pixels(torch.where(mask[..., None], torch.randn_like(pixels), pixels), (8, 8), (4, 4))
    assert not torch.equal(other, images)
    assert torch.equal(model(other, noise=noise).prediction, prediction)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("encoder", ["plain", "wide image", "wide patch"])
def test_a_perfect_prediction_costs_nothing_and_paints_the_picture(
    encoder: str, normalize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_mae(ENCODERS[encoder], normalize_pixels=normalize)
    images, noise = 3 + 2 * pictures(model.config), some_noise(model.config)
    monkeypatch.setattr(model, "decode", lambda tokens, rank: target_of(model, images))
    assert model(images, noise=noise).loss < 1e-10
    torch.testing.assert_close(model.reconstruct(images, noise), images)


def test_reconstruct_keeps_what_was_visible() -> None:
    model = small_mae(normalize_pixels=False)
    images, noise = pictures(model.config), some_noise(model.config)
    _, prediction, mask = model(images, noise=noise)
    patches = cut_pixels(model.reconstruct(images, noise), (8, 8))
    assert torch.equal(patches[~mask], cut_pixels(images, (8, 8))[~mask])
    assert torch.equal(patches[mask], prediction[mask])


def test_a_patch_of_one_colour_has_a_finite_target() -> None:
    model = small_mae()
    result = model(torch.full((1, 3, 32, 32), 0.7))
    result.loss.backward()
    assert result.loss.isfinite()
    mean, spread = patch_statistics(torch.full((1, 1, 8), 0.7))
    torch.testing.assert_close(mean, torch.tensor([[[0.7]]]))
    torch.testing.assert_close(spread, torch.tensor([[[1e-3]]]))


def test_one_batch_can_be_learned() -> None:
    model = small_mae({"embed_dim": 48}, decoder_embed_dim=48, decoder_depth=2, decoder_num_heads=4, mask_ratio=0.5)
    images, noise = pictures(model.config, batch=4), some_noise(model.config, batch=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(120):
        loss = model(images, noise=noise).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(1.0, abs=1.0)
    assert losses[-1] < 0.2 * losses[0]


# --- pixels -------------------------------------------------------------------------------------------------


def test_pixels_are_cut_channels_last() -> None:
    images = torch.arange(2 * 3 * 4 * 6.0).reshape(2, 3, 4, 6)
    patches = cut_pixels(images, (2, 3))
    assert patches.shape == (2, 4, 18)
    wanted = images[1, :, 2:4, 0:3].permute(1, 2, 0).flatten()  # the third patch in reading order
    assert torch.equal(patches[1, 2], wanted)
    assert torch.equal(join_pixels(patches, (2, 3), (2, 2)), images)


# --- the interface ------------------------------------------------------------------------------------------


def test_features_are_the_encoders() -> None:
    model = small_mae({"num_registers": 1}).eval()
    images = pictures(model.config)
    tokens = model.forward_features(images)
    assert tokens.shape == (2, 18, 16)
    assert torch.equal(tokens, model.encoder.forward_features(images))
    assert torch.equal(model.forward_head(tokens), model.encoder(images))
    assert list(model.attention_maps(images)) == [0, 1]
    assert list(model.forward_intermediates(images, [-1])) == [1]
    assert (model.num_classes, model.num_features, model.classifiers()) == (0, 16, [])


def test_no_classifier() -> None:
    model = small_mae()
    images = pictures(model.config)
    with pytest.raises(VitscopeError, match=r"encoder = model\.encoder; encoder\.reset_classifier\(10\)"):
        model.reset_classifier(10)
    encoder = model.encoder
    encoder.reset_classifier(10)
    assert encoder(images).shape == (2, 10)
    with pytest.raises(ConfigError, match=r"the encoder no longer fits its MAE: encoder\.num_classes: expected 0"):
        _ = model.config
    encoder.reset_classifier(0)
    assert model.config == small_config()


def test_the_config_follows_an_encoder_changed_by_itself() -> None:
    model = small_mae()
    model.encoder.set_input_size(48)
    assert model.config == small_config({"img_size": 48})
    assert (model.config.img_size, model.config.num_visible) == (48, 9)
    assert model.config is model.config


def test_a_size_it_refuses_leaves_it_as_it_was() -> None:
    model = small_mae()
    with pytest.raises(ConfigError, match="mask_ratio"):
        model.set_input_size(8)
    assert model.config == small_config()
    assert model.encoder.config == small_config().encoder


def test_the_config_answers_for_its_encoder() -> None:
    config = small_config({"img_size": (16, 48), "in_chans": 1})
    assert (config.img_size, config.patch_size, config.in_chans, config.num_classes) == ((16, 48), 8, 1, 0)
    assert "img_size" not in to_dict(config)


@pytest.mark.parametrize("position", ["sincos", "learned"])
@pytest.mark.parametrize("size", [48, (16, 40)])
def test_another_input_size(position: str, size: int | tuple[int, int]) -> None:
    model = small_mae({"position": position})
    model.set_input_size(size)
    grid = model.config.encoder.grid_size
    assert model.config.encoder.img_size == size
    assert model.config.encoder == model.encoder.config
    assert torch.equal(model.decoder_sincos[0], sincos_2d(grid, 12))
    images = pictures(model.config)
    assert model(images).prediction.shape == (2, grid[0] * grid[1], 192)
    again = MAE(model.config)
    again.load_state_dict(model.state_dict())
    noise = some_noise(model.config)
    assert torch.equal(again(images, noise=noise).prediction, model(images, noise=noise).prediction)


def test_a_refused_size_changes_nothing() -> None:
    model = small_mae()
    before = model.config
    with pytest.raises(ConfigError, match="multiple of patch_size 8"):
        model.set_input_size(33)
    assert model.config == before == updated(before, encoder=model.encoder.config)
    model(pictures(before))


@pytest.mark.parametrize("position", ["sincos", "learned"])
def test_keys_and_what_must_not_decay(position: str) -> None:
    model = small_mae({"position": position, "num_registers": 1})
    outside = {key for key in model.state_dict() if not key.startswith(("encoder.", "decoder_blocks."))}
    assert outside == {
        "mask_token",
        *(
            f"{part}.{leaf}"
            for part in ("decoder_embed", "decoder_norm", "decoder_pred")
            for leaf in ("weight", "bias")
        ),
    }
    tokens = {"mask_token", "encoder.cls_token", "encoder.reg_token"}
    assert model.no_weight_decay() == (tokens | {"encoder.pos_embed"} if position == "learned" else tokens)


def test_buffers_come_back_after_the_meta_device() -> None:
    model = small_mae()
    with torch.device("meta"):
        other = build_model(model.config)
    other.load_state_dict(model.state_dict(), assign=True)
    other.reset_buffers()
    images, noise = pictures(model.config), some_noise(model.config)
    assert torch.equal(other(images, noise=noise).prediction, model(images, noise=noise).prediction)


def test_checkpointing_changes_no_number() -> None:
    model = small_mae().train()
    images, noise = pictures(model.config), some_noise(model.config)
    grads = []
    for enable in (False, True):
        model.set_grad_checkpointing(enable)
        assert model.encoder.grad_checkpointing is enable
        model.zero_grad()
        model(images, noise=noise).loss.backward()
        grads.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    for plain, recomputed in zip(*grads, strict=True):
        assert torch.equal(plain, recomputed)


def test_decoder_takes_the_encoders_conventions() -> None:
    config = small_config({"norm_eps": 1e-12, "act": "gelu_tanh", "qkv_bias": False, "drop_rate": 0.5, "mlp_dim": 20})
    decoder = decoder_config(config)
    assert (decoder.norm_eps, decoder.act, decoder.qkv_bias) == (1e-12, "gelu_tanh", False)
    assert (decoder.drop_rate, decoder.block_mlp_dims) == (0.0, (48,))
    norms = [module for module in MAE(config).modules() if isinstance(module, nn.LayerNorm)]
    assert {norm.eps for norm in norms} == {1e-12}


@pytest.mark.parametrize("scheme", ["vit", "jax", "xavier", "mimetic"])
def test_every_scheme_initialises_the_decoder_too(scheme: str) -> None:
    model = small_mae({"init": scheme, "position": "learned"})
    torch.testing.assert_close(model.decoder_norm.weight, torch.ones(12), rtol=0, atol=0)
    assert torch.equal(model.decoder_pred.bias, torch.zeros(192))
    assert 0 < model.mask_token.abs().max() < 0.1
    bound = (6 / (12 + 192)) ** 0.5
    spread = bound / 3**0.5 if scheme in ("jax", "xavier") else 0.02
    assert model.decoder_pred.weight.std().item() == pytest.approx(spread, rel=0.1)


def test_mimetic_positions_survive_the_decoder() -> None:
    model = small_mae({"init": "mimetic", "position": "learned"})
    assert model.encoder.pos_embed is not None
    assert torch.equal(model.encoder.pos_embed[0, 1:].detach(), sincos_2d((4, 4), 16))


# --- errors -------------------------------------------------------------------------------------------------


def test_wrong_noise_is_refused() -> None:
    model = small_mae()
    with pytest.raises(InputError, match=r"noise: expected .*\(2, 16\), received \(2, 17\)"):
        model(pictures(model.config), noise=torch.rand(2, 17))


def test_wrong_images_are_refused() -> None:
    with pytest.raises(InputError, match=r"images: expected \(batch, 3, 32, 32\), received \(2, 3, 40, 40\)"):
        small_mae()(torch.zeros(2, 3, 40, 40))


@pytest.mark.parametrize("ratio", [0.95, 1e-20])
def test_a_share_that_hides_all_or_nothing_is_refused(ratio: float) -> None:
    with pytest.raises(ConfigError, match="mask_ratio: expected a share that hides some and leaves some"):
        small_mae(mask_ratio=ratio)

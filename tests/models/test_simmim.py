"""SimMIM: hidden patches become the mask token, and the loss counts exactly the hidden pixels."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from vitscope.core.errors import ConfigError, InputError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import SimMIMConfig, ViTConfig
from vitscope.models.layers.patch import cut_patches, join_patches
from vitscope.models.layers.position import sincos_2d
from vitscope.models.reconstruction import Reconstruction
from vitscope.models.simmim import SimMIM

ENCODERS: dict[str, dict[str, Any]] = {
    "plain": {},
    "registers": {"num_registers": 3},
    "no class token": {"class_token": False, "pool": "mean"},
    "sincos": {"position": "sincos"},
    "rope": {"position": "rope"},
    "relative": {"position": "relative"},
    "wide image": {"img_size": (16, 48)},
    "one channel": {"img_size": (24, 40), "patch_size": 4, "in_chans": 1},
    "options": {"layer_scale": 0.1, "qk_norm": True, "mlp": "swiglu", "act": "silu", "norm_order": "post"},
}


def small_simmim(encoder: dict[str, Any] | None = None, **settings: Any) -> SimMIM:
    torch.manual_seed(0)
    plain = {"img_size": 32, "patch_size": 8, "num_classes": 0, "embed_dim": 16, "depth": 2, "num_heads": 2}
    return SimMIM(SimMIMConfig(encoder=ViTConfig(**{**plain, **(encoder or {})}), **settings))


def pictures(model: SimMIM, batch: int = 2, seed: int = 1) -> Tensor:
    size = model.config.encoder.img_size
    height, width = (size, size) if isinstance(size, int) else size
    rng = torch.Generator().manual_seed(seed)
    return torch.randn(batch, model.config.encoder.in_chans, height, width, generator=rng)


def some_mask(model: SimMIM, batch: int = 2, seed: int = 2) -> Tensor:
    return torch.rand(batch, model.config.encoder.num_patches, generator=torch.Generator().manual_seed(seed)) < 0.6


@pytest.mark.parametrize("encoder", ENCODERS.values(), ids=ENCODERS)
def test_shapes_and_a_gradient_for_every_parameter(encoder: dict[str, Any]) -> None:
    model = small_simmim(encoder)
    images = pictures(model)
    result = model(images)
    assert isinstance(result, Reconstruction)
    assert result.loss.shape == ()
    assert result.prediction.shape == images.shape
    assert result.mask.shape == (2, model.config.encoder.num_patches)
    assert result.mask.dtype == torch.bool
    assert model.reconstruct(images).shape == images.shape
    result.loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.isfinite().all(), name
        assert parameter.grad.abs().sum() > 0, name


@pytest.mark.parametrize(("ratio", "hidden"), [(0.6, 10), (0.5, 8), (0.01, 1)])
def test_the_random_share_is_hidden(ratio: float, hidden: int) -> None:
    model = small_simmim(mask_ratio=ratio)
    images = pictures(model, batch=16)
    mask = model(images).mask
    assert mask.sum(dim=1).tolist() == [hidden] * 16
    assert len({tuple(row) for row in mask.tolist()}) > 5
    assert not torch.equal(mask, model(images).mask)


def test_mask_token_stands_in_before_positions() -> None:
    """All tokens reach the encoder; a hidden one is the mask token plus its position."""
    model = small_simmim({"num_registers": 2})
    seen: list[Tensor] = []
    model.encoder.blocks[0].register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    images, mask = pictures(model), some_mask(model)
    model(images, mask)
    assert seen[0].shape == (2, 19, 16)
    assert model.encoder.pos_embed is not None
    positions = model.encoder.pos_embed[:, 3:]  # behind those of the class token and two registers
    hidden = (model.mask_token + positions).expand(2, -1, -1)
    visible = model.encoder.patch_embed(images) + positions
    torch.testing.assert_close(seen[0][:, 3:], torch.where(mask[..., None], hidden, visible))


def test_loss_is_the_mean_absolute_error_over_hidden_pixels() -> None:
    model = small_simmim(ENCODERS["one channel"])
    images, mask = pictures(model), some_mask(model)
    loss, picture, returned = model(images, mask)
    assert torch.equal(returned, mask)
    wanted = (cut_patches(picture, (4, 4)) - cut_patches(images, (4, 4)))[mask].abs().mean()
    torch.testing.assert_close(loss, wanted)


class Painter(torch.nn.Module):
    """A decoder that ignores what it reads."""

    def __init__(self, picture: Tensor) -> None:
        super().__init__()
        self.picture = picture

    def forward(self, features: Tensor) -> Tensor:
        return self.picture


def test_predictions_of_visible_pixels_do_not_count() -> None:
    model = small_simmim()
    images, mask = pictures(model), some_mask(model)
    loss, picture, _ = model(images, mask)
    hidden = join_patches(mask[..., None].expand(-1, -1, 192).float(), (8, 8), (4, 4)).bool()
    model.decoder = Painter(picture + 100 * torch.randn_like(picture) * ~hidden)  # pyright: ignore[reportAttributeAccessIssue]
    assert torch.equal(model(images, mask).loss, loss)
    model.decoder = Painter(picture + 0.1 * hidden)  # pyright: ignore[reportAttributeAccessIssue]
    assert model(images, mask).loss != loss


def test_a_perfect_prediction_costs_nothing_and_paints_the_picture() -> None:
    model = small_simmim(ENCODERS["wide image"])
    images, mask = pictures(model), some_mask(model)
    model.decoder = Painter(images)  # pyright: ignore[reportAttributeAccessIssue]
    assert model(images, mask).loss == 0
    assert torch.equal(model.reconstruct(images, mask), images)


def test_reconstruct_keeps_what_was_visible() -> None:
    model = small_simmim()
    images, mask = pictures(model), some_mask(model)
    painted = cut_patches(model.reconstruct(images, mask), (8, 8))
    assert torch.equal(painted[~mask], cut_patches(images, (8, 8))[~mask])
    assert torch.equal(painted[mask], cut_patches(model(images, mask).prediction, (8, 8))[mask])


def test_hidden_pixels_do_not_leak() -> None:
    model = small_simmim()
    images, mask = pictures(model), some_mask(model)
    pixels = cut_patches(images, (8, 8))
    other = join_patches(torch.where(mask[..., None], torch.randn_like(pixels), pixels), (8, 8), (4, 4))
    assert torch.equal(model(other, mask).prediction, model(images, mask).prediction)


def test_nothing_hidden_costs_nothing() -> None:
    model = small_simmim()
    result = model(pictures(model), torch.zeros(2, 16, dtype=torch.bool))
    assert result.loss == 0


def test_half_precision() -> None:
    model = small_simmim().to(torch.bfloat16)
    result = model(pictures(model).bfloat16())
    assert (result.prediction.dtype, result.loss.dtype) == (torch.bfloat16, torch.float32)
    assert result.mask.sum(dim=1).tolist() == [10, 10]


def test_one_batch_can_be_learned() -> None:
    model = small_simmim({"embed_dim": 48, "num_heads": 4})
    images, mask = pictures(model, batch=4), some_mask(model, batch=4)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    losses = []
    for _ in range(150):
        loss = model(images, mask).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[0] == pytest.approx((2 / torch.pi) ** 0.5, rel=0.1)  # of pixels N(0, 1), by a prediction near 0
    assert losses[-1] < 0.4 * losses[0]


def test_interface() -> None:
    model = small_simmim().eval()
    images = pictures(model)
    assert torch.equal(model.forward_features(images), model.encoder.forward_features(images))
    assert set(model.attention_maps(images)) == {0, 1}
    assert model.no_weight_decay() == {"mask_token", "encoder.cls_token", "encoder.pos_embed"}
    outside = {key for key in model.state_dict() if not key.startswith("encoder.")}
    assert outside == {"mask_token", "decoder.0.weight", "decoder.0.bias"}
    with pytest.raises(VitscopeError, match=r"encoder = model\.encoder; encoder\.reset_classifier\(5\)"):
        model.reset_classifier(5)


@pytest.mark.parametrize("position", ["learned", "sincos", "relative"])
def test_another_input_size(position: str) -> None:
    model = small_simmim({"position": position})
    model.set_input_size((16, 40))
    assert model.config.encoder == model.encoder.config
    images, mask = pictures(model), some_mask(model)
    assert images.shape == (2, 3, 16, 40)
    again = build_model(model.config)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again(images, mask).prediction, model(images, mask).prediction)


def test_the_config_follows_and_answers_for_its_encoder() -> None:
    model = small_simmim({"in_chans": 1})
    model.encoder.set_input_size((16, 40))
    config = model.config
    assert config.encoder == model.encoder.config
    assert (config.img_size, config.patch_size, config.in_chans, config.num_classes) == ((16, 40), 8, 1, 0)


def test_checkpointing_changes_no_number() -> None:
    model = small_simmim().train()
    images, mask = pictures(model), some_mask(model)
    model(images, mask).loss.backward()
    wanted = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    model.set_grad_checkpointing()
    model(images, mask).loss.backward()
    for plain, parameter in zip(wanted, model.parameters(), strict=True):
        assert plain is not None
        assert parameter.grad is not None
        assert torch.equal(plain, parameter.grad)


def test_mimetic_positions_survive_the_decoder() -> None:
    model = small_simmim({"init": "mimetic"})
    assert model.encoder.pos_embed is not None
    assert torch.equal(model.encoder.pos_embed[0, 1:].detach(), sincos_2d((4, 4), 16))


def test_wrong_masks_are_refused() -> None:
    model = small_simmim()
    images = pictures(model)
    with pytest.raises(InputError, match=r"bool_masked_pos: expected .*\(2, 16\), received \(1, 16\)"):
        model(images, torch.ones(1, 16, dtype=torch.bool))
    with pytest.raises(InputError, match=r"expected a boolean tensor, True = hidden, received torch.int64"):
        model(images, torch.ones(2, 16, dtype=torch.int64))


def test_wrong_images_and_patches_are_refused() -> None:
    with pytest.raises(InputError, match="images: expected"):
        small_simmim()(torch.zeros(2, 1, 32, 32))
    with pytest.raises(ConfigError, match="a square patch"):
        small_simmim({"patch_size": (4, 8)})

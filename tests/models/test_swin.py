"""Swin: shapes, windows, shifts and everything that can be changed after building."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, InputError, VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import SwinConfig, pair
from vitscope.models.layers.window import FORBIDDEN, cut_windows, fit_window, join_windows, shift_mask
from vitscope.models.swin import PatchMerging, Swin

SMALL = SwinConfig(
    img_size=32,
    num_classes=10,
    embed_dim=16,
    depths=(2, 2),
    num_heads=(2, 4),
    window_size=4,
    drop_path_rate=0.0,
)


def images(config: SwinConfig, batch: int = 2) -> torch.Tensor:
    rng = torch.Generator().manual_seed(0)
    return torch.randn(batch, config.in_chans, *pair(config.img_size), generator=rng)


def test_shapes_of_every_stage():
    model = Swin(SMALL).eval()
    x = images(SMALL)
    assert model(x).shape == (2, 10)
    assert model.forward_features(x).shape == (2, 4, 4, 32)
    assert model.forward_head(model.forward_features(x), pre_logits=True).shape == (2, 32)
    assert model.num_features == 32
    stages = model.forward_intermediates(x)
    assert {i: tuple(t.shape) for i, t in stages.items()} == {0: (2, 8, 8, 16), 1: (2, 4, 4, 32)}
    assert list(model.forward_intermediates(x, [-2])) == [0]
    torch.testing.assert_close(model.norm(stages[1]), model.forward_features(x))


@pytest.mark.parametrize("indices", [[2], [-3], []])
def test_an_unknown_stage_is_refused(indices):
    with pytest.raises(InputError, match="layers: expected"):
        Swin(SMALL).forward_intermediates(images(SMALL), indices)


def test_windows_are_cut_in_reading_order_and_joined_again():
    grid = torch.arange(4 * 6).view(1, 4, 6, 1)
    windows = cut_windows(grid, (2, 3))
    assert windows[..., 0].tolist()[:2] == [[0, 1, 2, 6, 7, 8], [3, 4, 5, 9, 10, 11]]
    assert torch.equal(join_windows(windows, (2, 3), (4, 6)), grid)


@pytest.mark.parametrize(
    ("grid", "window", "shift"),
    [
        ((14, 14), (7, 7), (3, 3)),
        ((7, 7), (7, 7), (0, 0)),
        ((7, 14), (7, 7), (0, 3)),
        ((14, 2), (7, 2), (3, 0)),
    ],
)
def test_a_side_that_fits_in_one_window_is_not_shifted(grid, window, shift):
    assert fit_window(grid, 7, shifted=True) == (window, shift)
    assert fit_window(grid, 7, shifted=False) == (window, (0, 0))


@pytest.mark.parametrize(
    ("grid", "window", "shift"),
    [((8, 8), (4, 4), (2, 2)), ((4, 8), (4, 4), (0, 2)), ((6, 3), (3, 3), (1, 0))],
)
def test_the_mask_lets_only_true_neighbours_meet(grid, window, shift):
    """Two tokens of a shifted window may meet exactly when they are nowhere further apart than the window."""
    places = torch.stack(torch.meshgrid(*map(torch.arange, grid), indexing="ij"), dim=-1)[None]
    shifted = places.roll((-shift[0], -shift[1]), dims=(1, 2))
    seats = cut_windows(shifted, window)
    apart = (seats[:, :, None] - seats[:, None, :]).abs()
    near = (apart < torch.tensor(window)).all(dim=-1)
    mask = shift_mask(grid, window, shift)
    assert torch.equal(mask == 0, near)
    assert set(mask.unique().tolist()) == {FORBIDDEN, 0.0}


def test_an_unshifted_block_keeps_windows_apart_and_a_shifted_one_joins_them():
    model = Swin(SMALL).eval()
    x = torch.randn(1, 8, 8, 16)
    moved = x.clone()
    moved[:, 0, 0] = torch.randn(16)
    for block, reached in zip(model.layers[0].blocks, ([0, 1, 2, 3], [0, 1]), strict=True):
        changed = (block(moved) - block(x)).abs().amax(dim=(0, 3)) > 1e-7
        assert changed.any(dim=1).nonzero().flatten().tolist() == reached
        assert changed.any(dim=0).nonzero().flatten().tolist() == reached


def test_merging_keeps_the_published_order_of_neighbours():
    merge = PatchMerging(1, norm_eps=1e-5)
    merge.norm, merge.reduction = torch.nn.Identity(), torch.nn.Identity()
    four = merge(torch.tensor([[0.0, 1.0], [2.0, 3.0]]).view(1, 2, 2, 1))
    assert four.flatten().tolist() == [0, 2, 1, 3]


def test_wrong_images_are_refused_in_words():
    model = Swin(SMALL)
    with pytest.raises(InputError, match=r"expected \(batch, 3, 32, 32\), received \(2, 1, 32, 32\)"):
        model(torch.zeros(2, 1, 32, 32))
    with pytest.raises(InputError, match="set_input_size"):
        model(torch.zeros(2, 3, 64, 64))
    with pytest.raises(VitscopeError, match="no attention over the whole image"):
        model.attention_maps(images(SMALL))


def test_another_input_size_moves_windows_masks_and_tables():
    torch.manual_seed(0)
    model = Swin(SMALL)
    before = model.layers[0].blocks[1].attn.relative_position_bias_table.detach().clone()
    model.set_input_size((64, 32))
    assert pair(model.config.img_size) == (64, 32)
    assert torch.equal(model.layers[0].blocks[1].attn.relative_position_bias_table, before)
    assert model.layers[0].blocks[1].attn_mask.shape == (8, 16, 16)
    assert model.layers[1].blocks[1].shift == (2, 0)

    model.set_input_size(16)
    assert model.layers[1].blocks[1].attn.window == (2, 2)
    assert model.layers[1].blocks[1].attn.relative_position_bias_table.shape == (9, 4)
    assert model.layers[0].blocks[1].attn_mask is None
    assert model(images(model.config)).shape == (2, 10)
    twin = build_model(model.config)
    twin.load_state_dict(model.state_dict(), strict=True)
    torch.testing.assert_close(twin.eval()(images(twin.config)), model.eval()(images(twin.config)))


def test_an_input_size_that_does_not_fit_changes_nothing():
    model = Swin(SMALL)
    with pytest.raises(ConfigError, match="img_size: expected"):
        model.set_input_size(40)
    assert model(images(SMALL)).shape == (2, 10)


def test_a_new_classifier():
    model = Swin(SMALL)
    model.reset_classifier(7)
    assert model(images(SMALL)).shape == (2, 7)
    assert model.state_dict()["head.fc.weight"].shape == (7, 32)
    model.reset_classifier(0)
    assert model(images(SMALL)).shape == (2, 32)
    assert not any(key.startswith("head") for key in model.state_dict())


def gradients(model: Swin, checkpointing: bool) -> dict[str, torch.Tensor]:
    model.set_grad_checkpointing(checkpointing)
    model.zero_grad()
    torch.manual_seed(3)
    model(images(SMALL)).square().sum().backward()
    return {name: p.grad.clone() for name, p in model.named_parameters()}


def test_checkpointing_gives_equal_gradients():
    model = Swin(updated(SMALL, drop_rate=0.1, attn_drop_rate=0.1, drop_path_rate=0.2)).train()
    plain, saved = gradients(model, False), gradients(model, True)
    assert all(torch.isfinite(grad).all() and grad.abs().sum() > 0 for grad in plain.values())
    for name in plain:
        torch.testing.assert_close(saved[name], plain[name], msg=name)


def test_tables_do_not_decay():
    model = Swin(SMALL)
    assert len(model.no_weight_decay()) == 4
    assert all(name.endswith("relative_position_bias_table") for name in model.no_weight_decay())


def test_buffers_are_not_saved_and_come_back_after_the_meta_device():
    model = Swin(SMALL).eval()
    assert not any("index" in key or "mask" in key for key in model.state_dict())
    with torch.device("meta"):
        twin = Swin(SMALL).eval()
    assert twin.layers[0].blocks[1].attn_mask.is_meta
    twin.to_empty(device="cpu")
    twin.reset_buffers()
    twin.load_state_dict(model.state_dict(), strict=True)
    assert torch.equal(twin(images(SMALL)), model(images(SMALL)))


def test_half_precision_follows_the_module():
    model = Swin(SMALL).to(torch.bfloat16).eval()
    assert model(images(SMALL).bfloat16()).dtype == torch.bfloat16
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.isfinite(Swin(SMALL).eval()(images(SMALL))).all()


def test_fused_attention_is_the_plain_formula():
    attn = Swin(SMALL).eval().layers[0].blocks[1].attn
    torch.nn.init.normal_(attn.relative_position_bias_table)
    windows, mask = torch.randn(8, 16, 16), shift_mask((8, 8), (4, 4), (2, 2))
    q, k, v = attn.qkv(windows).reshape(8, 16, 3, 2, 8).permute(2, 0, 3, 1, 4).unbind(0)
    scores = q @ k.transpose(-2, -1) * 8**-0.5 + attn.bias() + mask.repeat(2, 1, 1)[:, None]
    plain = attn.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2))
    torch.testing.assert_close(attn(windows, mask), plain)


@pytest.mark.parametrize("training", [True, False])
def test_fresh_weights(training):
    torch.manual_seed(0)
    model = Swin(updated(SMALL, embed_dim=32)).train(training)
    assert model.layers[0].blocks[0].attn.qkv.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.layers[1].downsample.reduction.weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert model.layers[0].blocks[0].attn.relative_position_bias_table.std().item() == pytest.approx(0.02, rel=0.3)
    loss = F.cross_entropy(model(images(SMALL, 20)), torch.arange(20) % 10).item()
    assert loss == pytest.approx(math.log(10), rel=0.05)

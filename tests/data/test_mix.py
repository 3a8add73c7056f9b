"""Mixup and CutMix: the right blend, the right labels, torchvision's distributions, a picture at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats
from torch.nn import functional as F
from torchvision.transforms import v2

from vitscope.data.config import AugmentConfig
from vitscope.data.draws import picture_keys
from vitscope.data.mix import Mixer, beta_quantiles, cut_box

BATCH, CLASSES = 62, 5
torch.manual_seed(0)
IMAGES = torch.randn(BATCH, 3, 12, 16)
LABELS = torch.arange(BATCH) % CLASSES
KEYS = picture_keys(7, torch.arange(BATCH))
HOT = F.one_hot(LABELS, CLASSES).float()


def mixer(**settings: float) -> Mixer:
    return Mixer(AugmentConfig(**settings), CLASSES)  # type: ignore[arg-type]


def test_mixup_blends_pictures_as_it_blends_labels() -> None:
    images, shares = mixer(mixup_alpha=0.8)(IMAGES, LABELS, KEYS)
    torch.testing.assert_close(shares.sum(-1), torch.ones(BATCH))
    weight = shares[torch.arange(BATCH), LABELS]  # the neighbour has another label
    torch.testing.assert_close(
        images, IMAGES * weight[:, None, None, None] + IMAGES.roll(BATCH // 2, 0) * (1 - weight)[:, None, None, None]
    )
    assert len(weight.unique()) == BATCH  # each picture its own


def test_cutmix_pastes_a_rectangle_and_labels_by_its_area() -> None:
    images, shares = mixer(cutmix_alpha=1.0)(IMAGES, LABELS, KEYS)
    pasted = (images != IMAGES).any(1)
    torch.testing.assert_close(images, torch.where(pasted[:, None], IMAGES.roll(BATCH // 2, 0), IMAGES), rtol=0, atol=0)
    kept = 1 - pasted.float().mean((1, 2))
    torch.testing.assert_close(shares, HOT * kept[:, None] + HOT.roll(BATCH // 2, 0) * (1 - kept)[:, None])
    for mask in pasted:
        rows, columns = mask.any(1), mask.any(0)
        assert torch.equal(mask, rows[:, None] & columns[None])  # a rectangle
    assert 0.2 < pasted.float().mean() < 0.6


def test_chances() -> None:
    keys = picture_keys(1, torch.arange(20_000))
    labels = (torch.arange(20_000) + torch.arange(20_000) // 10_000) % CLASSES  # partners differ
    tiny = torch.arange(20_000, dtype=torch.float32)[:, None, None, None].expand(-1, 1, 2, 2).contiguous()
    _, shares = mixer(mixup_alpha=1.0, mix_prob=0.3)(tiny, labels, keys)
    assert (shares.max(-1).values < 1).float().mean().item() == pytest.approx(0.3, abs=0.02)
    both = mixer(mixup_alpha=1.0, cutmix_alpha=1.0, cutmix_prob=0.25)
    images, _ = both(tiny[:, :, :1, :1].expand(-1, 1, 8, 8), labels, keys)
    blended = (images != images.round()).flatten(1).any(1)
    assert blended.float().mean().item() == pytest.approx(0.75, abs=0.02)


def test_nothing_to_mix_changes_nothing() -> None:
    for off in (mixer(mixup_alpha=0.5, mix_prob=0.0), mixer()):
        images, shares = off(IMAGES, LABELS, KEYS)
        assert torch.equal(images, IMAGES)
        assert torch.equal(shares, HOT)


@pytest.mark.parametrize("alpha", [0.1, 0.2, 0.8, 1.0, 4.0])
def test_shares_are_beta(alpha: float) -> None:
    table = beta_quantiles(alpha).double().numpy()
    half = len(table) // 2
    np.testing.assert_allclose(
        stats.beta(alpha, alpha).cdf(table[:half]), (np.arange(half) + 0.5) / len(table), rtol=1e-5
    )
    np.testing.assert_allclose(table[half:], 1 - table[:half][::-1], atol=1e-7)
    keys = picture_keys(1, torch.arange(5000))
    drawn = mixer(mixup_alpha=alpha)._drawn(beta_quantiles(alpha), keys).double().numpy()
    theirs = np.random.default_rng(0).beta(alpha, alpha, 5000).astype(np.float32)  # ties at 1 alike
    assert stats.ks_2samp(drawn, theirs).pvalue > 1e-3
    assert stats.ks_2samp(drawn, np.random.default_rng(0).beta(alpha * 1.5, alpha * 1.5, 5000)).pvalue < 1e-3


def test_boxes_are_torchvisions() -> None:
    """Area left and corners, against a thousand boxes of v2.CutMix for the same size."""
    theirs = v2.CutMix(num_classes=2, alpha=1.0)
    torch.manual_seed(0)
    found = []
    for _ in range(2000):
        params = theirs.make_params([torch.zeros(2, 3, 24, 32)])
        x1, y1, x2, y2 = params["box"]
        found.append((params["lam_adjusted"], x1, y1, x2, y2))
    their_left, *their_corners = np.array(found).T
    keys = picture_keys(3, torch.arange(2000))
    wanted = mixer(cutmix_alpha=1.0)._drawn(beta_quantiles(1.0), keys)
    box, left = cut_box(wanted, keys, 24, 32)
    assert stats.ks_2samp(left.numpy(), their_left).pvalue > 1e-3
    columns = [(row.any(0).nonzero().flatten(), row.any(1).nonzero().flatten()) for row in box if row.any()]
    ours = np.array([(c[0], r[0], c[-1] + 1, r[-1] + 1) for c, r in columns]).T
    nonempty = np.array(found)[:, 0] < 1
    for mine, theirs_ in zip(ours, their_corners, strict=True):
        assert stats.ks_2samp(mine, theirs_[nonempty]).pvalue > 1e-3


def test_a_pictures_share_does_not_depend_on_its_batch() -> None:
    """With the same partner it comes out the same, whoever else is there."""
    both = mixer(mixup_alpha=0.8, cutmix_alpha=1.0)
    whole = both(IMAGES, LABELS, KEYS)
    rows = torch.tensor([10, 10 + BATCH // 2])  # each other's partners
    pair = both(IMAGES[rows], LABELS[rows], KEYS[rows])
    torch.testing.assert_close(pair[0], whole[0][rows], rtol=0, atol=0)
    torch.testing.assert_close(pair[1], whole[1][rows], rtol=0, atol=0)


def test_variations_of_one_picture_are_not_mixed_with_each_other() -> None:
    """Repeated augmentation puts them side by side."""
    labels = torch.arange(60) // 3
    _, shares = Mixer(AugmentConfig(mixup_alpha=1.0), 20)(torch.zeros(60, 1, 2, 2), labels, KEYS[:60])
    assert ((shares > 0).sum(1) == 2).all()


def test_it_traces_whole() -> None:
    compiled = torch.compile(mixer(mixup_alpha=0.8, cutmix_alpha=1.0), fullgraph=True, backend="eager")
    for ours, theirs in zip(
        compiled(IMAGES, LABELS, KEYS), mixer(mixup_alpha=0.8, cutmix_alpha=1.0)(IMAGES, LABELS, KEYS), strict=True
    ):
        torch.testing.assert_close(ours, theirs)

"""The order of an epoch: every picture, at random, the same for all processes and from any place on."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from vitscope.core.errors import ConfigError, DataError
from vitscope.data.order import Lane, batch_count, batch_places, epoch_order, in_sequence, refuse_batch

LABELS = torch.tensor([0] * 700 + [1] * 250 + [2] * 50)


def test_shuffled_shows_every_picture_once() -> None:
    order = epoch_order(LABELS, seed=0, epoch=0)
    assert sorted(order.rows.tolist()) == list(range(1000))
    assert not order.copies.any()


def test_order_depends_on_seed_and_epoch_only() -> None:
    rows = epoch_order(LABELS, seed=3, epoch=7).rows
    assert torch.equal(rows, epoch_order(LABELS, seed=3, epoch=7).rows)
    assert not torch.equal(rows, epoch_order(LABELS, seed=3, epoch=8).rows)
    assert not torch.equal(rows, epoch_order(LABELS, seed=4, epoch=7).rows)
    before = torch.get_rng_state()
    epoch_order(LABELS, seed=3, epoch=9)
    assert torch.equal(before, torch.get_rng_state())


PINNED = [2, 3, 4, 10, 8, 1, 6, 0, 5, 9, 11, 7]


def test_order_is_pinned() -> None:
    """A changed hash would change every run that is resumed with a newer version."""
    assert epoch_order(torch.zeros(12, dtype=torch.int64), seed=0, epoch=0).rows.tolist() == PINNED


def test_every_place_is_equally_likely() -> None:
    counts = np.zeros((10, 10))
    for epoch in range(2000):
        rows = epoch_order(torch.zeros(10, dtype=torch.int64), seed=0, epoch=epoch).rows.numpy()
        counts[np.arange(10), rows] += 1
    assert stats.chisquare(counts.ravel()).pvalue > 1e-3


def test_balanced_shows_every_class_equally_often() -> None:
    order = epoch_order(LABELS, seed=0, epoch=0, sampling="balanced")
    counts = torch.bincount(LABELS[order.rows])
    assert len(order.rows) == 1000
    assert counts.sum() == 1000
    assert counts.max() - counts.min() <= 1
    # Rare pictures as seldom as can be: 333 of 50 is six or seven times each.
    shown = torch.bincount(order.rows, minlength=1000)
    assert set(shown[950:].tolist()) == {6, 7}
    assert shown[:700].max() == 1


def test_balanced_copies_count_how_often_a_picture_came() -> None:
    order = epoch_order(LABELS, seed=0, epoch=0, sampling="balanced")
    pairs = set(zip(order.rows.tolist(), order.copies.tolist(), strict=True))
    assert len(pairs) == 1000
    for row in (950, 975, 999):
        copies = sorted(copy for other, copy in pairs if other == row)
        assert copies == list(range(len(copies)))


def test_balanced_is_mixed() -> None:
    """Not class after class in turn: neighbours share a class one time in three."""
    classes = LABELS[epoch_order(LABELS, seed=0, epoch=0, sampling="balanced").rows]
    assert (classes[1:] == classes[:-1]).float().mean().item() == pytest.approx(1 / 3, abs=0.06)


def test_balanced_copes_with_an_empty_class() -> None:
    labels = torch.tensor([0] * 30 + [3] * 10)
    counts = torch.bincount(labels[epoch_order(labels, seed=0, epoch=0, sampling="balanced").rows])
    assert counts.tolist() == [20, 0, 0, 20]


def test_repeats_keep_the_length_and_the_neighbours() -> None:
    plain = epoch_order(LABELS, seed=0, epoch=0)
    order = epoch_order(LABELS, seed=0, epoch=0, repeats=3)
    assert len(order.rows) == 1000
    assert order.copies[:6].tolist() == [0, 1, 2, 0, 1, 2]
    assert torch.equal(order.rows[::3], plain.rows[:334])
    assert torch.equal(order.rows[:999].reshape(-1, 3)[:, 1], order.rows[:999:3])


def test_batches_of_processes_make_up_the_batch_of_one() -> None:
    places = 1000
    for training in (True, False):
        for batch in range(batch_count(places, 96, training=training)):
            whole = batch_places(batch, places, 96, Lane())
            shares = [batch_places(batch, places, 96, Lane(rank, 4)) for rank in range(4)]
            assert [place for share in shares for place in range(share.start, share.stop)] == list(
                range(whole.start, whole.stop)
            )
            if training:
                assert {share.stop - share.start for share in shares} == {24}


def test_training_leaves_an_incomplete_batch_out_and_evaluation_does_not() -> None:
    assert batch_count(1000, 96, training=True) == 10
    assert batch_count(1000, 96, training=False) == 11
    assert batch_places(10, 1000, 96, Lane()) == slice(960, 1000)
    assert in_sequence(4).rows.tolist() == [0, 1, 2, 3]


def test_impossible_batches_are_refused() -> None:
    refuse_batch(100, 100, Lane())
    with pytest.raises(DataError, match="larger than the training set of 100") as caught:
        refuse_batch(100, 128, Lane())
    assert caught.value.exit_code == 3
    assert str(caught.value.fix) == "--batch-size 32, or any up to 100"
    with pytest.raises(ConfigError, match="evenly by 3") as caught:
        refuse_batch(100, 64, Lane(0, 3))
    assert caught.value.exit_code == 2
    assert str(caught.value.fix) == "--batch-size 63, or another multiple of 3"

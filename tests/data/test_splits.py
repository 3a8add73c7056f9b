"""Train, validation and test: stratified, of the right size, and the same for ever."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vitscope.core.errors import DataError
from vitscope.data.splits import PARTS, make_splits, part_called

LABELS = np.repeat([0, 1, 2], [700, 250, 50])


def parts_of(**sizes: int) -> dict[str, np.ndarray]:
    bounds = np.cumsum([0, *sizes.values()])
    return {name: np.arange(a, b) for name, a, b in zip(sizes, bounds[:-1], bounds[1:], strict=True)}


def test_one_pool_is_split_68_12_20_in_every_class() -> None:
    splits = make_splits(LABELS, {})
    assert [len(splits[part]) for part in PARTS] == [680, 120, 200]
    for label, count in enumerate([700, 250, 50]):
        found = [int((LABELS[splits[part]] == label).sum()) for part in PARTS]
        np.testing.assert_allclose(found, np.array([0.68, 0.12, 0.2]) * count, atol=1)
    together = np.concatenate([splits[part] for part in PARTS])
    assert sorted(together) == list(range(1000))


def test_two_parts_are_train_and_test_and_validation_is_carved() -> None:
    for name in ("test", "validation", "VAL", "t10k"):
        splits = make_splits(LABELS[::-1], parts_of(train=800, **{name: 200}))
        assert splits.test.tolist() == list(range(800, 1000))
        assert (len(splits.train), len(splits.val)) == (720, 80)
        assert sorted([*splits.train, *splits.val]) == list(range(800))
        assert f"test is the given '{name}'" in splits.how


def test_three_parts_stay() -> None:
    splits = make_splits(LABELS, parts_of(train=500, val=300, test=200))
    assert [len(splits[part]) for part in PARTS] == [500, 300, 200]
    assert splits.val.tolist() == list(range(500, 800))


def test_a_single_named_part_is_a_pool() -> None:
    splits = make_splits(LABELS, {"train": np.arange(500)})
    assert [len(splits[part]) for part in PARTS] == [340, 60, 100]
    assert max(splits.test) < 500


def test_two_names_for_one_part_are_refused() -> None:
    with pytest.raises(DataError, match="mean the same"):
        make_splits(LABELS, parts_of(train=500, val=300, validation=200))


def test_the_seed_decides_and_nothing_else() -> None:
    splits = make_splits(LABELS, {})
    assert splits.hash == make_splits(LABELS.copy(), {}).hash
    assert splits.hash != make_splits(LABELS, {}, seed=1).hash
    assert splits.hash != make_splits(LABELS, {}, pool_shares=(0.7, 0.1, 0.2)).hash


def test_the_split_is_pinned() -> None:
    """Results on a test set cannot be compared with those on another."""
    assert make_splits(LABELS, {}).hash == "b9f56b069a9bf321"


@given(
    counts=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    val_share=st.floats(0.01, 0.9),
    seed=st.integers(0, 10),
)
def test_any_counts_are_split_cleanly(counts: list[int], val_share: float, seed: int) -> None:
    labels = np.repeat(np.arange(len(counts)), counts)
    splits = make_splits(
        labels, {"train": np.arange(len(labels)), "test": np.arange(0)}, val_share=val_share, seed=seed
    )
    assert sorted([*splits.train, *splits.val]) == list(range(len(labels)))
    found = np.bincount(labels[splits.train], minlength=len(counts))
    assert (found >= 1).all()
    off = np.abs(np.bincount(labels[splits.val], minlength=len(counts)) - np.array(counts) * val_share)
    assert off.max() < 2


def test_names_of_parts() -> None:
    assert [part_called(name) for name in ("Train", "validation", "DEV", "t10k", "extra")] == [
        "train", "val", "val", "test", None,
    ]  # fmt: skip
    with pytest.raises(DataError, match="unknown part"):
        make_splits(LABELS, {})["dev"]


def test_fewer_training_pictures_with_the_shares_kept() -> None:
    whole, few = make_splits(LABELS, {}), make_splits(LABELS, {}, train_limit=68)
    assert len(few.train) == 68
    assert set(few.train) <= set(whole.train)
    np.testing.assert_allclose(np.bincount(LABELS[few.train]), [47.6, 17, 3.4], atol=1)
    assert few.val.tolist() == whole.val.tolist()
    assert few.test.tolist() == whole.test.tolist()
    assert few.hash != whole.hash
    assert "68 of 680 training pictures" in few.how
    assert make_splits(LABELS, {}, train_limit=680).hash == whole.hash

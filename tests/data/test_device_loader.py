"""The device loader: a function of (seed, epoch, batch), whatever the processes, the start or the company."""

from __future__ import annotations

import functools
import shutil
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from vitscope.core.config import updated
from vitscope.core.errors import DataError, VitscopeError
from vitscope.data.config import AugmentConfig, DataConfig, PreprocessConfig, augmentation
from vitscope.data.dataset import Dataset, open_dataset
from vitscope.data.loaders import device as device_module
from vitscope.data.loaders import storage as storage_module
from vitscope.data.loaders.choose import choose_loader, make_loader
from vitscope.data.loaders.device import DeviceLoader
from vitscope.data.loaders.loader import Batch, Loader
from vitscope.data.loaders.storage import Storage, common_size, decode_all, load_pictures, plan_storage
from vitscope.data.order import Lane, epoch_order
from vitscope.data.preprocess import preprocess
from vitscope.data.sources.source import Stored

SET = DataConfig(name="shapes:size=16,count=300", batch_size=32, loader="device")
COLOUR = SET.preprocess((16, 16), 3)


@pytest.fixture(scope="module")
def shapes() -> Dataset:
    return open_dataset(SET)


def train_loader(dataset: Dataset, strength: str = "strong", **settings: object) -> DeviceLoader:
    augment = settings.pop("augment", augmentation(strength, 16))
    loader = make_loader(dataset, "train", preprocess=COLOUR, augment=augment, **settings)  # type: ignore[arg-type]
    assert isinstance(loader, DeviceLoader)
    return loader


def same(one: Batch, other: Batch) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_evaluation_is_preprocess_picture_by_picture(shapes: Dataset) -> None:
    loader = make_loader(shapes, "val", preprocess=COLOUR)
    batches = list(loader.epoch(0))
    assert [len(batch.images) for batch in batches] == [32, 4]
    images = torch.cat([batch.images for batch in batches])
    indices = torch.cat([batch.indices for batch in batches])
    assert indices.tolist() == shapes.splits.val.tolist()
    for image, index in zip(images, indices.tolist(), strict=True):
        assert torch.equal(image, preprocess(shapes.source.picture(index), COLOUR))
    assert torch.cat([batch.labels for batch in batches]).tolist() == shapes.labels("val").tolist()


def test_training_without_augmentation_is_preprocess_in_random_order(shapes: Dataset) -> None:
    loader = train_loader(shapes, "none")
    batches = list(loader.epoch(3))
    assert len(batches) == loader.num_batches == len(shapes.splits.train) // 32
    order = epoch_order(torch.from_numpy(shapes.labels("train")), seed=0, epoch=3).rows
    expected = shapes.splits.train[order.numpy()][: len(batches) * 32]
    assert torch.cat([batch.indices for batch in batches]).tolist() == expected.tolist()
    assert torch.equal(batches[1].images[5], preprocess(shapes.source.picture(int(expected[37])), COLOUR))
    assert batches[1].labels[5] == shapes.source.labels[expected[37]]


def test_epochs_repeat_and_differ(shapes: Dataset) -> None:
    loader, again = train_loader(shapes), train_loader(shapes)
    first = list(loader.epoch(0))
    assert all(same(a, b) for a, b in zip(first, again.epoch(0), strict=True))
    assert all(same(a, b) for a, b in zip(first, loader.epoch(0), strict=True))
    assert not same(first[0], next(loader.epoch(1)))
    assert not same(first[0], next(train_loader(shapes, seed=1).epoch(0)))


def test_an_epoch_can_be_resumed_anywhere(shapes: Dataset) -> None:
    loader = train_loader(shapes)
    whole = list(loader.epoch(2))
    for start in range(loader.num_batches + 1):
        rest = list(train_loader(shapes).epoch(2, start))
        assert len(rest) == loader.num_batches - start
        assert all(same(a, b) for a, b in zip(whole[start:], rest, strict=True))


def test_processes_share_the_batch_of_one(shapes: Dataset) -> None:
    """Without mixing, which takes partners from a process's own share."""
    plain = updated(augmentation("strong", 16), mixup_alpha=0.0, cutmix_alpha=0.0)
    whole = list(train_loader(shapes, augment=plain).epoch(1))
    shares = [list(train_loader(shapes, augment=plain, lane=Lane(rank, 4)).epoch(1)) for rank in range(4)]
    for step, batch in enumerate(whole):
        joined = Batch(*(torch.cat(parts) for parts in zip(*(share[step] for share in shares), strict=True)))
        assert same(batch, joined)
    evaluated = [list(make_loader(shapes, "test", preprocess=COLOUR, lane=Lane(r, 4)).epoch(0)) for r in range(4)]
    seen = [index for share in evaluated for batch in share for index in batch.indices.tolist()]
    assert sorted(seen) == shapes.splits.test.tolist()


def test_the_global_generator_is_left_alone(shapes: Dataset) -> None:
    before = torch.get_rng_state()
    list(train_loader(shapes).epoch(0))
    assert torch.equal(before, torch.get_rng_state())


def test_repeated_pictures_are_varied_differently(shapes: Dataset) -> None:
    dataset = open_dataset(updated(SET, repeats=2))
    batch = next(train_loader(dataset, "basic").epoch(0))
    assert torch.equal(batch.indices[::2], batch.indices[1::2])
    assert len(batch.indices.unique()) == 16
    assert (batch.images[::2] != batch.images[1::2]).flatten(1).any(1).all()


def test_balanced_sampling_reaches_the_batches(tmp_path: Path) -> None:
    labels = np.array([0] * 180 + [1] * 20)
    np.savez(tmp_path / "set.npz", images=np.zeros((200, 16, 16, 3), np.uint8), labels=labels)
    shares = {}
    for sampling in ("shuffled", "balanced"):
        config = updated(SET, name=str(tmp_path / "set.npz"), sampling=sampling, batch_size=16)
        drawn = torch.cat([batch.labels for batch in train_loader(open_dataset(config), "basic").epoch(0)])
        shares[sampling] = drawn.float().mean().item()
    assert shares["shuffled"] < 0.15
    assert 0.45 < shares["balanced"] < 0.55


def test_mixed_labels_are_shares(shapes: Dataset) -> None:
    batch = next(train_loader(shapes).epoch(0))
    assert batch.labels.shape == (32, 10)
    torch.testing.assert_close(batch.labels.sum(-1), torch.ones(32))
    assert batch.images.dtype == torch.float32


@pytest.mark.parametrize("strength", ["none", "basic", "medium", "strong"])
@pytest.mark.parametrize("in_chans", [1, 3])
def test_every_strength_and_both_channel_counts(shapes: Dataset, strength: str, in_chans: int) -> None:
    for size in ((16, 16), (24, 20)):
        wish = SET.preprocess(size, in_chans)
        augment = augmentation(strength, size)
        batch = next(make_loader(shapes, "train", preprocess=wish, augment=augment).epoch(0))
        assert batch.images.shape == (32, in_chans, *size)
        assert torch.isfinite(batch.images).all()


def test_photograph_strengths_on_the_device(shapes: Dataset) -> None:
    augment = updated(augmentation("medium", 224), margin=8)
    loader = train_loader(shapes, augment=augment)
    assert loader.pictures.shape[-2:] == (24, 24)
    assert next(loader.epoch(0)).images.shape == (32, 3, 16, 16)


def test_draw_traces_whole(shapes: Dataset) -> None:
    """What a training step captures: no graph break anywhere between bytes and batch."""
    loader = train_loader(shapes)
    traced = torch.compile(loader._make, fullgraph=True, backend="eager")
    loader.begin(0)
    torch.testing.assert_close(traced(torch.arange(32)), loader._make(torch.arange(32)))


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch compiles for a CPU with g++")
@pytest.mark.parametrize("strength", ["basic", "strong"])
def test_compiled_is_eager_to_a_level_here_and_there(shapes: Dataset, strength: str) -> None:
    """The compiler may fuse a product and a sum, which rounds once instead of twice."""
    eager, compiled = train_loader(shapes, strength), train_loader(shapes, strength, compiled=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        one, other = next(eager.epoch(0)), next(compiled.epoch(0))
    assert torch.equal(one.indices, other.indices)
    off = (one.images - other.images).abs()
    assert (off > 1e-5).float().mean() < 1e-3
    torch.testing.assert_close(one.labels, other.labels)


def test_batch_larger_than_the_data_is_refused(shapes: Dataset) -> None:
    with pytest.raises(DataError, match="larger than the training set of 204"):
        train_loader(shapes, batch_size=205)


# Storage


def test_pictures_are_decoded_once_and_kept(shapes: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    wish = plan_storage((16, 16), COLOUR, None, 10**8)
    first, bad = load_pictures(shapes.source, wish)
    assert bad == []
    monkeypatch.setattr(storage_module, "decode_all", lambda *_, **__: pytest.fail("was decoded again"))
    again, _ = load_pictures(shapes.source, wish)
    np.testing.assert_array_equal(first, again)
    other = updated(COLOUR, mean=(0.1, 0.2, 0.3))  # normalisation comes later and needs no other copy
    load_pictures(shapes.source, plan_storage((16, 16), other, None, 10**8))


@pytest.mark.parametrize(("side", "threads"), [(32, 0), (128, 2)])
def test_small_pictures_for_a_large_model_are_decoded_in_threads(
    shapes: Dataset, side: int, threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is made of them is the work, not what is read. Two threads that begin meet; one alone would wait in vain."""
    decoding: set[threading.Thread] = set()
    meeting = threading.Barrier(2, timeout=20)
    pixels = Storage.pixels

    def counted(storage: Storage, stored: Stored) -> np.ndarray:
        here = threading.current_thread()
        if here is not threading.main_thread() and here not in decoding:
            decoding.add(here)
            meeting.wait()
        return pixels(storage, stored)

    monkeypatch.setattr(storage_module, "usable_cpus", lambda: 2)
    monkeypatch.setattr(Storage, "pixels", counted)
    pictures, bad, _ = decode_all(shapes.source, Storage(SET.preprocess((side, side), 3), 10**6))
    assert (len(pictures), bad) == (300, [])
    assert len(decoding) == threads


def test_the_cache_follows_content_and_settings(shapes: Dataset) -> None:
    wish = plan_storage((16, 16), COLOUR, None, 10**8)
    first, _ = load_pictures(shapes.source, wish)
    other = open_dataset("shapes:size=16,count=300,seed=5")
    assert not np.array_equal(first, load_pictures(other.source, wish)[0])
    smaller = plan_storage((16, 16), updated(COLOUR, img_size=(8, 8)), None, 10**8)
    assert load_pictures(shapes.source, smaller)[0].shape == (300, 3, 8, 8)


def test_a_cache_that_cannot_be_written_is_no_error(
    shapes: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("VITSCOPE_CACHE", str(tmp_path / "file" / "cache"))
    pictures, _ = load_pictures(shapes.source, plan_storage((16, 16), COLOUR, None, 10**8))
    assert pictures.shape == (300, 3, 16, 16)
    assert "nothing is kept" in caplog.text


def test_progress_is_told(shapes: Dataset) -> None:
    told: list[tuple[int, int]] = []
    decode_all(shapes.source, plan_storage((16, 16), COLOUR, None, 10**8), progress=lambda *now: told.append(now))
    assert told[-1] == (300, 300)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize(
    ("crop", "one_size", "size"),
    [
        ("none", (40, 60), (16, 16)),
        ("padded", (40, 60), (16, 16)),
        ("resized", (40, 60), (40, 60)),
        ("resized", None, (18, 18)),
        ("margin", (40, 60), (48, 72)),
        ("margin", None, (48, 48)),
    ],
)
def test_how_pictures_are_stored(crop: str, one_size: tuple[int, int] | None, size: tuple[int, int]) -> None:
    augment = AugmentConfig(crop=crop)  # type: ignore[arg-type]
    assert plan_storage(one_size, COLOUR, augment, 10**8).size == size
    squashed = plan_storage(one_size, updated(COLOUR, crop="squash"), augment, 10**8)
    assert squashed.size == ((48, 48) if crop == "margin" else size)


def test_training_and_evaluation_share_storage_where_they_can(shapes: Dataset) -> None:
    strong = plan_storage((16, 16), COLOUR, augmentation("strong", 16), 10**8)
    assert strong.key == plan_storage((16, 16), COLOUR, None, 10**8).key


def test_pictures_of_the_stored_size_are_stored_as_they_are(shapes: Dataset) -> None:
    kept = plan_storage((16, 16), updated(COLOUR, img_size=(8, 8)), augmentation("strong", 8), 10**8)
    pictures, _ = load_pictures(shapes.source, kept)
    np.testing.assert_array_equal(pictures[7], np.moveaxis(shapes.source.read(7), 2, 0))


def test_a_failure_that_may_pass_is_not_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VITSCOPE_CACHE", str(tmp_path / "cache"))
    source = open_dataset("shapes:size=16,count=100,seed=9").source
    wish = plan_storage((16, 16), COLOUR, None, 10**8)
    sound = storage_module.decode_image
    monkeypatch.setattr(storage_module, "decode_image", _fails_with(MemoryError()))
    assert len(load_pictures(source, wish)[1]) == 100
    monkeypatch.setattr(storage_module, "decode_image", sound)
    assert load_pictures(source, wish)[1] == []
    monkeypatch.setattr(storage_module, "decode_image", _fails_with(ValueError("broken")))
    other = open_dataset("shapes:size=16,count=100,seed=10").source
    assert load_pictures(other, wish)[1][3].reason == "broken"
    monkeypatch.setattr(storage_module, "decode_image", sound)
    assert load_pictures(other, wish)[1][3].where == other.where(3)


def _fails_with(error: Exception) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


def test_one_size_is_found_by_looking(shapes: Dataset) -> None:
    assert common_size(shapes.source, shapes.splits.train) == (16, 16)


# The choice


def test_auto_takes_the_device_loader_where_pictures_fit(shapes: Dataset) -> None:
    dataset = open_dataset(updated(SET, loader="auto"))
    loader: Loader = make_loader(dataset, "train", preprocess=COLOUR)
    assert isinstance(loader, DeviceLoader)
    assert loader.why.startswith("device loader: 300 pictures of 16 x 16 are 0.2 MB as bytes, which fit on cpu")


def test_auto_takes_workers_for_many_sizes_or_too_much(shapes: Dataset) -> None:
    cpu = torch.device("cpu")
    plain = Storage(COLOUR, 10**8)
    huge = Storage(updated(COLOUR, img_size=(50_000, 50_000)), 10**8)
    assert choose_loader("auto", shapes, plain, None, cpu)[1] == "worker loader: the pictures have many sizes"
    kind, why = choose_loader("auto", shapes, huge, (50_000, 50_000), cpu)
    assert kind == "worker"
    assert "2,250.0 GB as bytes, more than" in why
    assert choose_loader("device", shapes, plain, None, cpu)[1] == (
        "device loader, as asked for; pictures of many sizes are first brought to 16 x 16"
    )
    assert choose_loader("worker", shapes, plain, (16, 16), cpu) == ("worker", "worker loader, as asked for")


def test_closed_loaders_hold_nothing_and_say_so(shapes: Dataset) -> None:
    loader = train_loader(shapes)
    batches = loader.epoch(0)
    next(batches)
    loader.close()
    assert loader.pictures.numel() == 0
    for use in (lambda: next(batches), lambda: loader.epoch(0)):
        with pytest.raises(VitscopeError, match="closed"):
            use()


def test_an_epoch_begun_ends_the_one_before(shapes: Dataset) -> None:
    loader = train_loader(shapes)
    first = loader.epoch(0)
    next(first)
    second = loader.epoch(1)
    with pytest.raises(VitscopeError, match="another epoch was begun"):
        next(first)
    assert all(same(a, b) for a, b in zip(second, train_loader(shapes).epoch(1), strict=True))


def test_drawing_too_often_is_no_crash(shapes: Dataset) -> None:
    loader = train_loader(shapes)
    loader.begin(0, loader.num_batches)
    for _ in range(3):
        assert loader.draw().indices.max() < len(shapes.source)


def test_many_compiled_loaders_in_one_process(shapes: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch gives up on one function after eight compilations."""
    compile_eagerly = functools.partial(torch.compile, backend="eager")
    monkeypatch.setattr(device_module.torch, "compile", compile_eagerly)
    for batch_size in range(4, 15):
        assert (
            len(next(train_loader(shapes, "none", batch_size=batch_size, compiled=True).epoch(0)).images) == batch_size
        )


def test_a_name_and_a_side_are_enough(shapes: Dataset) -> None:
    named = make_loader(shapes, "train", preprocess=16, augment="basic")
    assert same(next(named.epoch(0)), next(train_loader(shapes, "basic").epoch(0)))
    assert repr(named).startswith("DeviceLoader(6 batches of 32; device loader, as asked for")
    assert repr(shapes).endswith("built-in shapes, 10 classes, train 204, val 36, test 60)")
    assert len(shapes) == 300
    one = next(make_loader(shapes, "val", preprocess=16).epoch(0))
    assert same(one, next(make_loader(shapes, "val", preprocess=COLOUR).epoch(0)))


def test_preprocess_settings_of_data_configs() -> None:
    assert PreprocessConfig(img_size=(16, 16), in_chans=3) == COLOUR
    mnist = updated(SET, normalisation="mnist")
    assert mnist.preprocess((28, 28), 1).mean == (0.1307,)
    assert mnist.preprocess((28, 28), 3).std == (0.3081,) * 3
    imagenet = updated(SET, normalisation="imagenet", mean=(0.1, 0.2, 0.3))
    assert imagenet.preprocess((8, 8), 3).mean == (0.1, 0.2, 0.3)
    assert imagenet.preprocess((8, 8), 3).std == (0.229, 0.224, 0.225)

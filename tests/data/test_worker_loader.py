"""The worker loader: the same batches whatever the workers, processes and interruptions; nothing left behind."""

from __future__ import annotations

import gc
import io
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from vitscope.core.errors import ConfigError, DataError, VitscopeError
from vitscope.data.config import AugmentConfig, PreprocessConfig, augmentation, half_normalised
from vitscope.data.decode import decode_image
from vitscope.data.loaders.loader import BadSample, Batch, Loader
from vitscope.data.loaders.worker import WorkerLoader
from vitscope.data.order import Lane
from vitscope.data.preprocess import normalise, preprocess
from vitscope.data.sources.source import Source, Stored
from vitscope.data.transforms.batch import BatchTransform

CONFIG = half_normalised((16, 16), 3)
STRONG = AugmentConfig(
    crop="resized",
    flip="random",
    rotate_degrees=10,
    jitter=(0.4, 0.4, 0.4, 0.1),
    randaugment_ops=2,
    erase_prob=0.5,
)
Make = Callable[..., WorkerLoader]


class Files(Source):
    """Encoded pictures in memory; `broken` ones are no pictures."""

    kind = "list of files"

    def __init__(self, count: int, classes: int = 3, broken: tuple[int, ...] = ()) -> None:
        super().__init__("memory", np.arange(count) % classes, [f"class {i}" for i in range(classes)])
        rng = np.random.default_rng(0)
        self.files: list[bytes] = []
        for i in range(count):
            file = io.BytesIO()
            Image.fromarray(rng.integers(0, 256, (20, 24, 3), dtype=np.uint8)).save(file, "PNG")
            self.files.append(b"not a picture" if i in broken else file.getvalue())

    def read(self, index: int) -> Stored:
        return self.files[index]

    def where(self, index: int) -> str:
        return f"memory/{index}.png"

    def content_hash(self) -> str:
        return "0"


@pytest.fixture
def make() -> Iterator[Make]:
    """Loaders that are closed after the test."""
    made: list[WorkerLoader] = []

    def build(source: Source, rows: Any = None, *, training: bool = True, **changes: Any) -> WorkerLoader:
        augment = changes.pop("augment", STRONG)
        config = changes.pop("preprocess", CONFIG)
        settings = {
            "batch_size": 8,
            "seed": 1,
            "device": torch.device("cpu"),
            "workers": 0,
            "finish": BatchTransform(augment if training else AugmentConfig(), config).finish,
            **changes,
        }
        rows = np.arange(len(source)) if rows is None else np.asarray(rows)
        made.append(WorkerLoader(source, rows, preprocess=config, augment=augment, training=training, **settings))
        return made[-1]

    yield build
    for loader in made:
        loader.close()


def same(first: list[Batch], second: list[Batch]) -> bool:
    pairs = zip(first, second, strict=True)
    return all(torch.equal(a, b) for one, two in pairs for a, b in zip(one, two, strict=True))


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def pids(loader: WorkerLoader) -> list[int]:
    assert loader._stream is not None
    return [process.pid for process in loader._stream.processes]


# --- what a batch is --------------------------------------------------------------------------------------------


def test_it_is_a_loader(make: Make) -> None:
    loader: Loader = make(Files(20), why="because")
    batch = next(loader.epoch(0))
    assert (loader.num_batches, loader.num_pictures, loader.why, loader.bad_samples) == (2, 20, "because", [])
    assert (batch.images.dtype, batch.images.shape) == (torch.float32, (8, 3, 16, 16))
    assert (batch.labels.dtype, batch.labels.shape) == (torch.int64, (8,))
    assert batch.indices.dtype == torch.int64


def test_evaluation_shows_every_picture_once_in_order_as_prediction_does(make: Make) -> None:
    source = Files(30)
    rows = np.array([3, 1, 4, 15, 9, 26, 5, 8, 29, 7])
    loader = make(source, rows, training=False, batch_size=4)
    batches = list(loader.epoch(0))
    assert [len(batch.images) for batch in batches] == [4, 4, 2]
    assert torch.cat([batch.indices for batch in batches]).tolist() == rows.tolist()
    assert torch.cat([batch.labels for batch in batches]).tolist() == source.labels[rows].tolist()
    wanted = torch.stack([preprocess(decode_image(source.files[i]), CONFIG) for i in rows])
    assert torch.equal(torch.cat([batch.images for batch in batches]), wanted)
    assert same(batches, list(loader.epoch(7)))


def test_training_shows_whole_batches_of_other_pictures_each_epoch(make: Make) -> None:
    source, rows = Files(50), np.arange(10, 40)
    loader = make(source, rows)
    for epoch in range(2):
        batches = list(loader.epoch(epoch))
        assert [len(batch.images) for batch in batches] == [8, 8, 8]
        shown = torch.cat([batch.indices for batch in batches]).tolist()
        assert len(set(shown)) == 24
        assert set(shown) <= set(rows.tolist())
        assert torch.cat([batch.labels for batch in batches]).tolist() == source.labels[shown].tolist()
    assert not same(list(loader.epoch(0)), list(loader.epoch(1)))


def test_a_picture_is_varied_anew_each_epoch_copy_and_seed(make: Make) -> None:
    def first_picture(epoch: int, **changes: Any) -> Tensor:
        """Of number 0, whatever its place."""
        for batch in make(Files(8), **changes).epoch(epoch):
            return batch.images[batch.indices == 0][0]
        raise AssertionError

    variations = [first_picture(0), first_picture(1), first_picture(0, seed=2)]
    assert torch.equal(variations[0], first_picture(0))
    assert not any(torch.equal(variations[i], variations[j]) for i, j in ((0, 1), (0, 2), (1, 2)))
    batch = next(make(Files(8), repeats=4).epoch(0))
    index = int(batch.indices[0])
    copies = batch.images[batch.indices == index]
    assert len(copies) == 4
    assert len({copy.numpy().tobytes() for copy in copies}) == 4


def test_balanced_sampling_shows_every_class_equally(make: Make) -> None:
    source = Files(40)
    source.labels = np.array([0] * 30 + [1] * 6 + [2] * 4)
    shown = torch.cat([batch.labels for batch in make(source, sampling="balanced", batch_size=10).epoch(0)])
    assert set(torch.bincount(shown).tolist()) <= {13, 14}


@pytest.mark.parametrize("flip", ["random", "alternating"])
def test_flips(make: Make, flip: Any) -> None:
    source = Files(40)
    loader = make(source, augment=AugmentConfig(flip=flip), batch_size=40)
    plain = torch.stack([preprocess(decode_image(file), CONFIG) for file in source.files])
    mirrored = []
    for epoch in range(4):
        batch = next(loader.epoch(epoch))
        images = batch.images[batch.indices.argsort()]
        is_mirrored = (images != plain).flatten(1).any(1)
        assert torch.equal(images, torch.where(is_mirrored[:, None, None, None], plain.flip(-1), plain))
        assert 5 < is_mirrored.sum() < 35
        mirrored.append(is_mirrored)
    alternates = torch.equal(mirrored[0], ~mirrored[1]) and torch.equal(mirrored[0], mirrored[2])
    assert alternates == (flip == "alternating")


def test_what_comes_after_gets_images_labels_and_a_key_for_each_picture(make: Make) -> None:
    seen: list[Tensor] = []

    def mix(images: Tensor, labels: Tensor, keys: Tensor) -> tuple[Tensor, Tensor]:
        seen.append(keys)
        return images * 2, torch.nn.functional.one_hot(labels, 3).float()

    def finish(pixels: Tensor, keys: Tensor) -> Tensor:
        assert pixels.dtype == torch.uint8
        seen.append(keys)
        return normalise(pixels, CONFIG)

    changes: dict[str, Any] = {"augment": AugmentConfig(), "finish": finish}
    mixed, plain = (next(make(Files(8), mix=how, **changes).epoch(0)) for how in (mix, None))
    assert torch.equal(mixed.images, plain.images * 2)
    assert torch.equal(mixed.labels.argmax(1), plain.labels)
    assert all(torch.equal(keys, seen[0]) and len(keys.unique()) == 8 for keys in seen)
    assert next(make(Files(8), training=False, mix=mix, **changes).epoch(0)).labels.ndim == 1


# --- the same whatever happens ----------------------------------------------------------------------------------


def test_the_number_of_workers_does_not_show(make: Make) -> None:
    source = Files(50)
    epochs = []
    for workers in range(4):
        loader = make(source, workers=workers)
        epochs.append([batch for epoch in range(2) for batch in loader.epoch(epoch)])
        assert len(pids(loader)) == workers
    assert all(same(epochs[0], others) for others in epochs[1:])


@pytest.mark.parametrize("workers", [0, 2])
def test_an_epoch_goes_on_at_any_batch(make: Make, workers: int) -> None:
    loader = make(Files(50), workers=workers, repeats=2)
    whole = list(loader.epoch(3))
    for start in range(len(whole) + 1):
        assert same(list(loader.epoch(3, start=start)), whole[start:])


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("world", [2, 4])
def test_processes_share_the_batch_of_one(make: Make, world: int, training: bool) -> None:
    source = Files(42)
    alone = list(make(source, training=training).epoch(1))
    parts = [list(make(source, training=training, lane=Lane(rank, world)).epoch(1)) for rank in range(world)]
    for i, batch in enumerate(alone):
        shares = [part[i] for part in parts if i < len(part)]
        assert same([Batch(*map(torch.cat, zip(*shares, strict=True)))], [batch])


def test_an_epoch_broken_off_leaves_the_workers_fit_for_the_next(make: Make) -> None:
    source = Files(60)
    loader = make(source, workers=2)
    for _ in zip(range(2), loader.epoch(0), strict=False):
        pass
    first = pids(loader)
    assert same(list(loader.epoch(1)), list(make(source).epoch(1)))
    second = pids(loader)
    assert same(list(loader.epoch(0)), list(make(source).epoch(0)))
    assert pids(loader) == second  # an epoch read to its end keeps its workers
    assert not any(map(is_alive, set(first) - set(second)))


def test_an_older_epoch_cannot_be_read_on_beside_a_newer(make: Make) -> None:
    loader = make(Files(30), workers=1)
    older = loader.epoch(0)
    next(older)
    newer = loader.epoch(1)
    with pytest.raises(VitscopeError, match="given up when another epoch was begun"):
        next(older)
    assert len(list(newer)) == 3


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("fails", [False, True])
def test_global_generators_are_left_as_they_were(make: Make, workers: int, fails: bool) -> None:
    loader = make(Files(30), workers=workers)
    assert loader._stream is not None
    if fails:
        loader._stream.dataset.transform = Faulty("broken on purpose")  # type: ignore[assignment]
    torch.manual_seed(11), random.seed(12), np.random.seed(13)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    if fails:
        with pytest.raises(ValueError, match="broken on purpose"):
            list(loader.epoch(0))
    else:
        list(loader.epoch(0))
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]  # type: ignore[index]


# --- what goes wrong --------------------------------------------------------------------------------------------


class Faulty:
    """A transform with a mistake in it."""

    preprocess = CONFIG
    is_random = True

    def __init__(self, message: str, kind: type[Exception] = ValueError) -> None:
        self.error = kind(message)

    def __call__(self, picture: Image.Image, *, mirrored: bool) -> Tensor:
        raise self.error


@pytest.mark.parametrize("workers", [0, 2])
def test_a_mistake_in_a_transform_comes_out_as_itself(
    make: Make, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if it looks like a worker's death."""
    loader = make(Files(30), workers=workers)
    assert loader._stream is not None
    message = "DataLoader worker (pid 1) exited unexpectedly; DataLoader timed out"
    loader._stream.dataset.transform = Faulty(message, RuntimeError)  # type: ignore[assignment]
    with pytest.raises(RuntimeError, match="exited unexpectedly; DataLoader timed out"):
        list(loader.epoch(0))
    assert caplog.records == []
    assert loader.bad_samples == []


@pytest.mark.parametrize("workers", [0, 2])
def test_bad_pictures_are_left_out_and_told_once(make: Make, workers: int) -> None:
    told: list[BadSample] = []
    broken = (2, 9, 17)
    loader = make(Files(24, broken=broken), workers=workers, bad_limit=0.2, on_bad=told.append)
    sound = make(Files(24))
    for epoch in range(2):
        for batch, whole in zip(loader.epoch(epoch), sound.epoch(epoch), strict=True):
            keep = ~torch.isin(whole.indices, torch.tensor(broken))
            assert torch.equal(batch.indices, whole.indices[keep])
            assert torch.equal(batch.images, whole.images[keep])
            assert torch.equal(batch.labels, whole.labels[keep])
    assert sorted(sample.index for sample in told) == list(broken)
    assert told == loader.bad_samples
    assert {(sample.where, sample.reason) for sample in told} == {
        (f"memory/{i}.png", "not a picture in any known format") for i in broken
    }


def test_a_batch_without_any_good_picture_is_skipped(make: Make) -> None:
    loader = make(Files(12, broken=(4, 5, 6, 7)), training=False, batch_size=4, bad_limit=0.5)
    assert [batch.indices.tolist() for batch in loader.epoch(0)] == [[0, 1, 2, 3], [8, 9, 10, 11]]


def test_processes_in_step_cannot_skip(make: Make) -> None:
    loader = make(Files(8, broken=tuple(range(8))), bad_limit=1.0, lane=Lane(1, 2))
    with pytest.raises(DataError, match="no picture of process 1's part of batch 0"):
        list(loader.epoch(0))


def test_too_many_bad_pictures_stop(make: Make) -> None:
    loader = make(Files(40, broken=(1, 2, 3)), bad_limit=0.05)
    with pytest.raises(
        DataError, match=r"3 of 40 pictures.*\n.*memory/\d.png: not a picture[^$]*--data.bad-limit"
    ) as stop:
        list(loader.epoch(0))
    assert stop.value.exit_code == 3
    assert len(loader.bad_samples) == 3


def test_impossible_batches_are_refused(make: Make) -> None:
    with pytest.raises(DataError, match="a batch of 8 is larger than the training set of 5"):
        make(Files(5))
    with pytest.raises(ConfigError, match="cannot be shared evenly by 3"):
        make(Files(30), lane=Lane(0, 3))
    two = PreprocessConfig(img_size=(8, 8), in_chans=2, mean=(0, 0), std=(1, 1))
    with pytest.raises(DataError, match="in_chans: expected 1"):
        WorkerLoader(
            Files(8),
            np.arange(8),
            preprocess=two,
            augment=None,
            batch_size=2,
            seed=0,
            device=torch.device("cpu"),
            training=False,
            finish=lambda pixels, keys: pixels,
        )


def test_a_closed_loader_says_so(make: Make) -> None:
    loader = make(Files(30), workers=1)
    half = loader.epoch(0)
    next(half)
    loader.close()
    loader.close()
    for batches in (half, loader.epoch(0)):
        with pytest.raises(VitscopeError, match="closed"):
            next(batches)


# --- nothing stays behind ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["closed", "forgotten"])
@pytest.mark.parametrize("broken_off", [True, False])
def test_workers_end_with_their_loader(make: Make, how: str, broken_off: bool) -> None:
    source = Files(60)
    loader = WorkerLoader(
        source,
        np.arange(60),
        preprocess=CONFIG,
        augment=augmentation("medium"),
        batch_size=8,
        seed=0,
        device=torch.device("cpu"),
        training=True,
        finish=lambda pixels, keys: pixels.float(),
        workers=2,
    )
    for _ in loader.epoch(0):
        if broken_off:
            break
    workers = pids(loader)
    assert len(workers) == 2
    assert all(map(is_alive, workers))
    if how == "closed":
        loader.close()
    gc.disable()  # counting references must do
    try:
        del loader
    finally:
        gc.enable()
    deadline = time.monotonic() + 10
    while any(map(is_alive, workers)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(is_alive, workers))


PROGRAM = """
import signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
sys.path.insert(0, {folder!r})
import torch
from test_worker_loader import CONFIG, STRONG, Files
from vitscope.data.loaders.worker import WorkerLoader
import numpy as np

class Slow(Files):
    def read(self, index):
        time.sleep(0.05)  # an epoch of 10 s: it must not end before the signal comes
        return super().read(index)

loader = WorkerLoader(Slow(400), np.arange(400), preprocess=CONFIG, augment=STRONG, batch_size=8, seed=0,
                      device=torch.device("cpu"), training=True, finish=lambda pixels, keys: pixels.float(), workers=2)
batches = loader.epoch(0)
next(batches)
if {handled}:  # as a trainer that saves a checkpoint first
    stopped = []
    signal.signal(signal.SIGINT, lambda *_: stopped.append(True))
pids = [process.pid for process in loader._stream.processes]
try:
    print(*pids, flush=True)  # from here on the signal may come
    for batch in batches:
        if {handled} and stopped:
            break
    for _ in range(5):
        next(batches)
    print("went on" if pids == [process.pid for process in loader._stream.processes] else "new workers", flush=True)
except KeyboardInterrupt:
    print("stopped", flush=True)
"""


@pytest.mark.parametrize("handled", [False, True])
def test_ctrl_c_is_the_main_process_own_affair(handled: bool) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(folder=str(Path(__file__).parent), handled=handled)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert child.stdout is not None
    workers = [int(word) for word in child.stdout.readline().split()]
    assert len(workers) == 2, child.communicate()[1]
    os.killpg(child.pid, signal.SIGINT)  # as a terminal does: all of them
    output, errors = child.communicate(timeout=60)
    assert (output.strip(), errors, child.returncode) == ("went on" if handled else "stopped", "", 0)
    assert not any(map(is_alive, workers))

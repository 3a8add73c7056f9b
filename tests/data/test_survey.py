"""One pass over the pictures: counts, sizes, bad and odd ones, mean and std, planted copies."""

from __future__ import annotations

import io
import json
import random

import numpy as np
import pytest
from pictures_in_memory import dataset_of, encoded, photograph
from PIL import Image

from vitscope.core.errors import DataError
from vitscope.core.strict_json import encode
from vitscope.data import in_threads as in_threads_module
from vitscope.data.survey import survey as survey_module
from vitscope.data.survey.survey import survey
from vitscope.data.survey.warn import imbalance, warnings_of


def test_mean_and_std_are_those_of_the_training_pictures_each_counted_alike() -> None:
    sizes = [(40, 30), (17, 64), (64, 64), (8, 200)]
    train = [photograph(seed, 80).resize(size) for seed, size in enumerate(sizes)]
    test = [photograph(seed, 50) for seed in range(10, 14)]
    told = survey(dataset_of({"train": [encoded(p) for p in train], "test": [encoded(p) for p in test]}))
    pixels = [np.asarray(p).reshape(-1, 3) / 255 for p in train]
    mean = np.mean([p.mean(axis=0) for p in pixels], axis=0)
    std = np.sqrt(np.mean([(p**2).mean(axis=0) for p in pixels], axis=0) - mean**2)
    np.testing.assert_allclose(told.mean, mean, rtol=0, atol=1e-9)
    np.testing.assert_allclose(told.std, std, rtol=0, atol=1e-9)
    assert np.abs(np.concatenate(pixels).mean(axis=0) - mean).max() > 1e-3  # the large one does not count for more


def test_sizes_formats_modes_and_colours() -> None:
    grey = photograph(3).convert("L")
    contents = [
        encoded(photograph(0, 32), "PNG"),
        encoded(photograph(1, 48), "JPEG"),
        encoded(photograph(2, 48), "JPEG"),
        encoded(grey, "PNG"),
        encoded(grey.convert("RGB").rotate(90), "PNG"),
        np.asarray(photograph(4, 32)),
        encoded(Image.new("RGB", (20, 10), "red"), "PNG"),
    ]
    told = survey(dataset_of({"train": contents}))
    assert told.formats == {"PNG": 4, "JPEG": 2, "pixels": 1}
    assert told.modes == {"RGB": 6, "L": 1}
    assert told.sizes == {(32, 32): 2, (48, 48): 2, (64, 64): 2, (10, 20): 1}
    assert told.grey == 2
    assert [row.where for row in told.plain] == ["memory 6"]
    assert (told.total, told.looked_at, told.good, told.bad) == (7, 7, 7, [])


def test_bad_and_unusual_pictures_are_told_with_place_part_and_reason() -> None:
    good = encoded(photograph(0), "JPEG")
    told = survey(
        dataset_of(
            {
                "train": [good, b"", b"this is no picture", good[: len(good) // 2]],
                "val": [encoded(photograph(1).convert("CMYK"), "JPEG"), encoded(photograph(2))],
                "test": [encoded(photograph(3).quantize(16))],
            }
        )
    )
    assert [(row.index, row.where, row.part) for row in told.bad] == [
        (1, "memory 1", "train"),
        (2, "memory 2", "train"),
        (3, "memory 3", "train"),
    ]
    assert all(row.what for row in told.bad)
    assert [(row.index, row.part) for row in told.unusual] == [(4, "val"), (6, "test")]
    assert "CMYK" in told.unusual[0].what
    assert "palette" in told.unusual[1].what
    assert sum(told.counts["train"]) == 4  # counts are of what the set holds, not of what can be read
    assert told.good == 4


def test_a_read_that_fails_is_a_bad_picture() -> None:
    dataset = dataset_of({"train": [encoded(photograph(n)) for n in range(3)]})
    dataset.source.contents[1] = None  # type: ignore[attr-defined]
    read = dataset.source.read

    def failing(index: int) -> bytes:
        if index == 1:
            raise FileNotFoundError(2, "gone")
        return read(index)  # type: ignore[return-value]

    dataset.source.read = failing  # type: ignore[method-assign]
    assert [(row.index, row.what) for row in survey(dataset).bad] == [(1, "the file is missing")]


def resized(picture: Image.Image) -> bytes:
    return encoded(picture.resize((picture.width - 2, picture.height - 2), Image.Resampling.BICUBIC))


def lighter(picture: Image.Image) -> bytes:
    return encoded(picture.point(lambda value: min(255, value + 2)))


def test_planted_copies_are_found_across_parts_and_nothing_else() -> None:
    train = [photograph(seed) for seed in range(60)]
    contents = [encoded(picture) for picture in train]
    planted = {
        "exact": encoded(train[5], "BMP"),  # other file, same pixels
        "re-encoded": encoded(train[6], "JPEG", quality=70),
        "resized": resized(train[7]),
        "lighter": lighter(train[8]),
    }
    others = [encoded(photograph(seed)) for seed in range(100, 130)]
    told = survey(dataset_of({"train": contents, "val": others[:15], "test": [*others[15:], *planted.values()]}))
    first = 60 + 15 + 15
    assert {group.members: group.exact for group in told.duplicates.groups} == {
        (5, first): True,
        (6, first + 1): False,
        (7, first + 2): False,
        (8, first + 3): False,
    }
    (leak,) = told.duplicates.leaks
    assert (leak.seen, leak.held_out, leak.exact, leak.near) == ("train", "test", 1, 3)


def test_a_limit_spreads_evenly_over_all_parts() -> None:
    dataset = dataset_of(
        {
            "train": [encoded(photograph(n, 16)) for n in range(60)],
            "test": [encoded(photograph(n, 16)) for n in range(60, 80)],
        }
    )
    told = survey(dataset, limit=8)
    assert (told.total, told.looked_at, told.good) == (80, 8, 8)
    assert sum(told.sizes.values()) == 8
    with pytest.raises(DataError, match="nothing to look at"):
        survey(dataset, limit=0)


def test_progress_is_told_once_per_picture() -> None:
    steps: list[tuple[int, int]] = []
    contents = [encoded(photograph(n, 16)) for n in range(5)]
    survey(dataset_of({"train": contents}), progress=lambda done, total: steps.append((done, total)))
    assert steps == [(n, 5) for n in range(1, 6)]


@pytest.mark.parametrize("small_bytes", [1e-9, 1e9])
def test_few_pictures_wait_at_a_time(monkeypatch: pytest.MonkeyPatch, small_bytes: float) -> None:
    """The scan is not read ahead of the decoding by more than the chunks in flight."""
    monkeypatch.setattr(in_threads_module, "CHUNK_PICTURES", 2)
    monkeypatch.setattr(in_threads_module, "SMALL_BYTES", small_bytes)
    monkeypatch.setattr(survey_module, "MOST_THREADS", 1)
    content = encoded(photograph(0, 16))
    read = 0

    def scan():
        nonlocal read
        for index in range(100):
            read += 1
            yield index, content

    looked = survey_module._look(scan(), 10**6)
    next(looked)
    assert read <= 8


def test_order_and_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    contents = [encoded(photograph(n % 20, 16 + n % 3)) for n in range(50)]
    dataset = dataset_of({"train": contents[:30], "test": contents[30:]})
    plain = survey(dataset)
    scan = type(dataset.source).scan

    def shuffled(self, indices):
        order = list(indices)
        random.Random(0).shuffle(order)
        return scan(self, order)

    monkeypatch.setattr(type(dataset.source), "scan", shuffled)
    monkeypatch.setattr(in_threads_module, "CHUNK_PICTURES", 3)
    monkeypatch.setattr(in_threads_module, "SMALL_BYTES", 1e-9)
    other = survey(dataset)
    assert (other.mean, other.std, other.sizes) == (plain.mean, plain.std, plain.sizes)
    assert {frozenset(g.members) for g in other.duplicates.groups} == {
        frozenset(g.members) for g in plain.duplicates.groups
    }


def test_the_survey_is_plain_data() -> None:
    contents = [encoded(photograph(n % 4)) for n in range(6)]
    told = survey(dataset_of({"train": [*contents, b""]})).to_dict()
    again = json.loads(json.dumps(encode(told), allow_nan=False))
    assert again["sizes"] == [[64, 64, 6]]
    assert again["duplicates"]["exact"] == 2
    assert again["bad"][0]["where"] == "memory 6"


def test_without_training_pictures_there_is_no_mean() -> None:
    told = survey(dataset_of({"test": [encoded(photograph(0))]}))
    assert told.mean is None
    assert told.std is None


def test_a_truncated_survey_of_nothing_readable() -> None:
    told = survey(dataset_of({"train": [b"", b"x"]}))
    assert (told.good, len(told.bad), told.sizes) == (0, 2, {})


def warned(labels: dict[str, list[int]], classes: int, contents: bytes | None = None) -> list[str]:
    pictures = {
        part: [encoded(photograph(1000 * place + n, 16)) for n in range(len(found))]
        for place, (part, found) in enumerate(labels.items())
    }
    dataset = dataset_of(pictures, labels, classes)  # type: ignore[arg-type]
    return warnings_of(dataset, survey(dataset))


def test_warnings_about_classes() -> None:
    told = warned({"train": [0, 0, 1, 1], "val": [0, 2], "test": [0, 1]}, 4)
    assert any(line.startswith("classes without any picture: 'class 3'; they count") for line in told)
    assert any("training never shows: 'class 2'" in line for line in told)
    assert any("absent in val" in line and "'class 1'" in line for line in told)
    assert any("absent in test" in line and "'class 2'" in line for line in told)


def test_a_sound_set_gives_no_warnings() -> None:
    assert warned({"train": [0, 1, 0, 1], "val": [0, 1], "test": [0, 1]}, 2) == []


def test_warnings_about_one_class_an_empty_part_and_imbalance() -> None:
    assert any("only one class" in line for line in warned({"train": [0], "val": [0], "test": [0]}, 1))
    assert any("no pictures for val" in line for line in warned({"train": [0, 1], "val": [], "test": [0, 1]}, 2))
    told = warned({"train": [0] * 7 + [1] * 2, "val": [0, 1], "test": [0, 1]}, 2)
    assert any("'class 0' has 3.5 times as many training pictures as 'class 1'" in line for line in told)


def test_imbalance_counts_only_classes_that_have_pictures() -> None:
    assert imbalance(np.array([30, 10, 0])) == 3.0
    assert imbalance(np.array([5, 0])) is None


def test_exif_is_turned_before_anything_is_counted() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    file = io.BytesIO()
    photograph(0).crop((0, 0, 64, 32)).save(file, "JPEG", exif=exif)
    told = survey(dataset_of({"train": [file.getvalue()]}))
    assert told.sizes == {(64, 32): 1}
    assert "turned upright" in told.unusual[0].what

"""Parquet in Hugging Face's layout: the real CIFAR-10 and Imagenette, and files with every oddity."""

from __future__ import annotations

import io
import json
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from vitscope.core.environment import data_roots
from vitscope.core.errors import DataError
from vitscope.data.config import DataConfig
from vitscope.data.decode import BadImageError
from vitscope.data.sources.open import open_source
from vitscope.data.sources.parquet import ParquetFiles
from vitscope.data.sources.source import SourceLostError
from vitscope.data.splits import make_splits

RNG = np.random.default_rng(1)


def real(name: str) -> Path:
    found = [root / name for root in data_roots() if (root / name).is_dir()]
    if not found:
        pytest.skip(f"no {name} under $VITSCOPE_DATA or data/")
    return found[0]


def png(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def write(
    path: Path, pixels: np.ndarray, labels: list[Any], *, names: list[str] | None = None, rows: int = 4, **columns: str
) -> None:
    """A file as `datasets` writes it."""
    image, label = columns.get("image", "image"), columns.get("label", "label")
    cells = [{"bytes": png(picture), "path": f"{number}.png"} for number, picture in enumerate(pixels)]
    table = pa.table({image: cells, label: labels})
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=rows)


def pictures(count: int) -> np.ndarray:
    return RNG.integers(0, 256, (count, 6, 5, 3), dtype=np.uint8)


def opened(path: Path, **settings: Any) -> ParquetFiles:
    source = open_source(str(path), DataConfig(name=str(path), **settings))
    assert isinstance(source, ParquetFiles)
    return source


@pytest.fixture
def two_parts(tmp_path: Path) -> tuple[Path, np.ndarray, list[int]]:
    pixels, labels = pictures(30), [number % 3 for number in range(30)]
    write(tmp_path / "train-00000-of-00002.parquet", pixels[:11], labels[:11], names=["ant", "bee", "cat"])
    write(tmp_path / "train-00001-of-00002.parquet", pixels[11:22], labels[11:22], names=["ant", "bee", "cat"])
    write(tmp_path / "validation-00000-of-00001.parquet", pixels[22:], labels[22:], names=["ant", "bee", "cat"])
    return tmp_path, pixels, labels


def test_pixels_labels_names_and_parts(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    folder, pixels, labels = two_parts
    source = opened(folder)
    assert source.class_names == ("ant", "bee", "cat")
    assert source.labels.tolist() == labels
    assert {name: numbers.tolist() for name, numbers in source.parts.items()} == {
        "train": list(range(22)),
        "validation": list(range(22, 30)),
    }
    for index in (0, 3, 4, 10, 11, 21, 22, 29):
        np.testing.assert_array_equal(np.asarray(source.picture(index)), pixels[index])
    assert source.where(12).endswith("train-00001-of-00002.parquet, row 1")


def test_scan_gives_what_read_gives(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    source = opened(two_parts[0])
    asked = [29, 0, 7, 22, 8, 3]
    scanned = dict(source.scan(asked))
    assert sorted(scanned) == sorted(asked)
    assert all(scanned[index] == source.read(index) for index in asked)


def test_random_access_after_the_spool_is_the_same_and_pickles(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    source, plain = opened(two_parts[0]), opened(two_parts[0])
    source.prepare_random_access()
    copy = pickle.loads(pickle.dumps(source))
    for index in range(30):
        assert source.read(index) == plain.read(index) == copy.read(index)


def test_a_spool_is_made_once(two_parts: tuple[Path, np.ndarray, list[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    opened(two_parts[0]).prepare_random_access()
    monkeypatch.setattr(ParquetFiles, "_stored", lambda *_: pytest.fail("was read again"))
    again = opened(two_parts[0])
    again.prepare_random_access()
    assert again.read(5)[:4] == b"\x89PNG"


def test_without_a_cache_folder_a_temporary_spool_serves(
    two_parts: tuple[Path, np.ndarray, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    monkeypatch.setenv("VITSCOPE_CACHE", str(blocked / "cache"))
    source = opened(two_parts[0])
    source.prepare_random_access()
    np.testing.assert_array_equal(np.asarray(source.picture(13)), two_parts[1][13])


def test_content_hash_follows_content(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    folder, pixels, labels = two_parts
    before = opened(folder).content_hash()
    assert before == opened(folder).content_hash()
    write(folder / "validation-00000-of-00001.parquet", 255 - pixels[22:], labels[22:], names=["ant", "bee", "cat"])
    assert opened(folder).content_hash() != before


def test_one_file_is_a_pool_and_text_labels_are_sorted(tmp_path: Path) -> None:
    write(tmp_path / "all.parquet", pictures(4), ["owl", "elk", "owl", "fox"])
    source = opened(tmp_path / "all.parquet")
    assert source.class_names == ("elk", "fox", "owl")
    assert source.labels.tolist() == [2, 0, 2, 1]
    assert source.parts == {}


def test_columns_by_name(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pictures(4), [0, 1, 0, 1], image="photo", label="species")
    with pytest.raises(DataError, match="no column of labels") as caught:
        opened(tmp_path)
    assert "photo, species" in str(caught.value)
    assert opened(tmp_path, label_column="species").labels.tolist() == [0, 1, 0, 1]
    with pytest.raises(DataError, match="no column 'specie'") as caught:
        opened(tmp_path, label_column="specie")
    assert "did you mean 'species'" in str(caught.value)


def test_a_part_without_labels_is_left_out(tmp_path: Path) -> None:
    for part, labels in (("train", [0, 1] * 10), ("validation", [1, 0] * 4), ("test", [-1] * 6)):
        write(tmp_path / f"{part}-00000-of-00001.parquet", pictures(len(labels)), labels, names=["a", "b"])
    source = opened(tmp_path)
    assert source.notes == ["'test' has no labels (all -1) and is left out"]
    splits = make_splits(source.labels, source.parts)
    assert "test is the given 'validation'" in splits.how
    assert len(splits.train) + len(splits.val) + len(splits.test) == 28


def test_wrong_labels_are_named_with_their_row(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pictures(5), [0, 1, 7, 0, 1], names=["a", "b"])
    with pytest.raises(DataError, match="expected 0 to 1, received 7") as caught:
        opened(tmp_path)
    assert str(caught.value.where).endswith("a.parquet, row 2")
    write(tmp_path / "a.parquet", pictures(3), [0, None, 1])
    with pytest.raises(DataError, match="1 rows have no label"):
        opened(tmp_path)


def test_empty_cells_and_paths(tmp_path: Path) -> None:
    pixels = pictures(1)
    (tmp_path / "beside.png").write_bytes(png(pixels[0]))
    cells = [{"bytes": None, "path": "beside.png"}, {"bytes": None, "path": None}, {"bytes": b"junk", "path": None}]
    pq.write_table(pa.table({"image": cells, "label": [0, 1, 1]}), tmp_path / "a.parquet")
    source = opened(tmp_path)
    np.testing.assert_array_equal(np.asarray(source.picture(0)), pixels[0])
    for prepared in (False, True):
        if prepared:
            source.prepare_random_access()
        for index, reason in ((1, "the cell is empty"), (2, "not a picture")):
            with pytest.raises(BadImageError, match=reason) as caught:
                source.picture(index)
            assert str(caught.value.where).endswith(f"a.parquet, row {index}")


def test_damaged_files_are_clean_errors(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    victim = two_parts[0] / "train-00001-of-00002.parquet"
    victim.write_bytes(victim.read_bytes()[:200])
    with pytest.raises(DataError, match="cannot be read as Parquet"):
        opened(two_parts[0])


def test_a_file_of_another_layout_is_refused(two_parts: tuple[Path, np.ndarray, list[int]]) -> None:
    write(two_parts[0] / "train-00001-of-00002.parquet", pictures(3), [0, 1, 2], label="kind")
    with pytest.raises(DataError, match="no column 'label', which the other files have"):
        opened(two_parts[0])


def test_real_cifar10() -> None:
    source = opened(real("cifar10"))
    assert source.class_names[0] == "airplane"
    assert {name: len(numbers) for name, numbers in source.parts.items()} == {"test": 10_000, "train": 50_000}
    assert np.bincount(source.labels[source.parts["train"]]).tolist() == [5000] * 10
    table = pq.read_table(real("cifar10") / "train-00000-of-00001.parquet")
    for row in (0, 999, 1000, 31_415):
        index = int(source.parts["train"][row])
        assert source.read(index) == table.column("img")[row].as_py()["bytes"]
        assert source.labels[index] == table.column("label")[row].as_py()


def test_a_file_is_never_loaded_whole() -> None:
    """Opening, one picture and a pass over all hold a small part of the 58 MB at a time."""
    folder = real("imagenette160")
    size = (folder / "train-00000-of-00001.parquet").stat().st_size
    pool = pa.system_memory_pool() if hasattr(pa, "system_memory_pool") else pa.default_memory_pool()
    before = pa.default_memory_pool()
    pa.set_memory_pool(pool)
    try:
        base, most = pool.bytes_allocated(), 0
        source = opened(folder)
        source.read(5000)
        count = 0
        for _, stored in source.scan(np.arange(len(source))):
            assert isinstance(stored, bytes)
            count += 1
            most = max(most, pool.bytes_allocated() - base)
        assert count == 13_394
        assert 0 < most < size / 4
    finally:
        pa.set_memory_pool(before)


def test_pictures_outside_the_file_belong_to_its_content(tmp_path: Path) -> None:
    (tmp_path / "beside.png").write_bytes(png(pictures(1)[0]))
    cells = [{"bytes": None, "path": "beside.png"}, {"bytes": png(pictures(1)[0]), "path": None}]
    pq.write_table(pa.table({"image": cells, "label": [0, 1]}), tmp_path / "a.parquet")
    before = opened(tmp_path).content_hash()
    assert before == opened(tmp_path).content_hash()
    (tmp_path / "beside.png").write_bytes(png(pictures(1)[0]))
    assert opened(tmp_path).content_hash() != before


def test_a_spool_can_be_removed_while_it_is_read(
    two_parts: tuple[Path, np.ndarray, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITSCOPE_CACHE", str(tmp_path / "cache"))
    source = opened(two_parts[0])
    source.prepare_random_access()
    pickled = pickle.dumps(source)
    shutil.rmtree(tmp_path / "cache")
    np.testing.assert_array_equal(np.asarray(source.picture(13)), two_parts[1][13])
    with pytest.raises(SourceLostError, match="cannot be read"):  # and not 30 bad pictures
        pickle.loads(pickled)


def test_without_a_cache_nothing_is_kept(
    two_parts: tuple[Path, np.ndarray, list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VITSCOPE_CACHE", str(tmp_path / "cache"))
    source = opened(two_parts[0])
    source.prepare_random_access(keep=False)
    np.testing.assert_array_equal(np.asarray(source.picture(13)), two_parts[1][13])
    assert not (tmp_path / "cache").exists()


def test_whole_numbers_written_as_floats_are_numbers(tmp_path: Path) -> None:
    write(tmp_path / "a.parquet", pictures(12), [float(number) for number in range(12)])
    assert opened(tmp_path).class_names == tuple(str(number) for number in range(12))

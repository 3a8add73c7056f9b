"""Image folders: classes, order, odd names, links, and what is refused. torchvision's ImageFolder is the oracle."""

from __future__ import annotations

import io
import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from torchvision.datasets import ImageFolder as TorchvisionFolder

from vitscope.core.errors import EXIT_DATA, DataError
from vitscope.data.config import DataConfig
from vitscope.data.decode import BadImageError
from vitscope.data.sources.files import PathList, printable
from vitscope.data.sources.folder import ImageFolder
from vitscope.data.splits import make_splits

CONFIG = DataConfig(name="folder")


def png(value: int, size: int = 3) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((size, size, 3), value, dtype=np.uint8)).save(file, "PNG")
    return file.getvalue()


def put(path: Path, value: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(value))
    return path


def opened(path: Path) -> ImageFolder:
    return ImageFolder.open(path, CONFIG)


def paths(source: ImageFolder) -> list[str]:
    return [str(source.path(index)) for index in range(len(source))]


def test_a_pool_is_what_torchvision_reads(tmp_path: Path) -> None:
    names = ["dog/b.png", "dog/a.PNG", "dog/deep/er/z.jpg", "dog/deep.png", "Cat/10.png", "Cat/9.png", "ant/x.webp"]
    for number, name in enumerate(names):
        put(tmp_path / name, number)
    source, oracle = opened(tmp_path), TorchvisionFolder(tmp_path)
    assert source.class_names == tuple(oracle.classes) == ("Cat", "ant", "dog")
    assert list(zip(paths(source), source.labels.tolist(), strict=True)) == oracle.samples
    assert source.parts == {}
    assert source.notes == []
    for index in range(len(source)):
        assert np.array_equal(np.asarray(source.picture(index)), np.asarray(oracle[index][0]))
        assert source.read(index) == source.path(index).read_bytes()


def test_parts_share_the_classes_and_keep_their_names(tmp_path: Path) -> None:
    for part, names in {"Train": "abc", "VALIDATION": "ac", "test": "b"}.items():
        for name in names:
            put(tmp_path / part / name / "1.png")
            put(tmp_path / part / name / "2.png")
    source = opened(tmp_path)
    assert source.class_names == ("a", "b", "c")
    of_part = {part: [paths(source)[n] for n in numbers] for part, numbers in source.parts.items()}
    for part in ("Train", "VALIDATION", "test"):
        oracle = TorchvisionFolder(tmp_path / part)
        assert of_part[part] == [path for path, _ in oracle.samples]
        expected = [source.class_names.index(oracle.classes[label]) for _, label in oracle.samples]
        assert source.labels[source.parts[part]].tolist() == expected
    assert "as given" in make_splits(source.labels, source.parts).how


def test_only_train_is_a_pool(tmp_path: Path) -> None:
    put(tmp_path / "train/a/1.png")
    put(tmp_path / "train/b/1.png")
    source = opened(tmp_path)
    assert (source.parts, source.class_names, len(source)) == ({}, ("a", "b"), 2)


def test_train_may_be_a_class(tmp_path: Path) -> None:
    for name in ("bus", "train", "tram"):
        put(tmp_path / name / "1.png")
    assert opened(tmp_path).class_names == ("bus", "train", "tram")


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ([], "no pictures found"),
        (["a.png", "b.png"], "2 pictures, but no folders that say their class"),
        (["train/a.png", "test/b.png"], "parts without classes"),
        (["train/a/1.png", "unlabelled/1.png"], "neither all parts nor all classes"),
        (["train/a/1.png", "val/a/1.png", "val/zebra/1.png"], "class in 'val' without a picture in 'train': 'zebra'"),
        (["a/readme.txt"], "no pictures found"),
    ],
)
def test_refused_with_the_layout_that_is_expected(tmp_path: Path, files: list[str], words: str) -> None:
    for name in files:
        put(tmp_path / name)
    with pytest.raises(DataError) as refusal:
        opened(tmp_path)
    assert words in refusal.value.what
    assert refusal.value.exit_code == EXIT_DATA
    assert refusal.value.where == str(tmp_path)
    assert refusal.value.fix


def test_a_class_that_is_empty_in_train_cannot_be_tested(tmp_path: Path) -> None:
    (tmp_path / "train/b").mkdir(parents=True)
    for name in ("train/a/1.png", "test/a/1.png", "test/b/1.png"):
        put(tmp_path / name)
    with pytest.raises(DataError, match="without a picture in 'train': 'b'"):
        opened(tmp_path)


def test_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="the file is missing"):
        opened(tmp_path / "nowhere")


def test_notes_say_what_was_passed_by(tmp_path: Path) -> None:
    put(tmp_path / "train/a/1.png")
    put(tmp_path / "val/a/1.png")
    put(tmp_path / "test/loose1.png")
    put(tmp_path / "test/loose2.png")
    put(tmp_path / "extra/a/1.png")
    (tmp_path / "train/empty").mkdir()
    for name in ("x.txt", "y.txt", ".hidden.png"):
        (tmp_path / "train/a" / name).write_text("text")
    put(tmp_path / "train/.git/1.png")
    put(tmp_path / "train/__MACOSX/a/1.png")
    source = opened(tmp_path)
    assert [Path(path).relative_to(tmp_path).as_posix() for path in paths(source)] == ["train/a/1.png", "val/a/1.png"]
    assert source.class_names == ("a", "empty")
    assert source.notes == [
        "2 folders beside the parts were left out, e.g. extra/",
        "2 pictures in no class's folder were left out, e.g. test/loose1.png",
        "2 files that are no pictures were ignored, e.g. train/a/x.txt",
        "class 'empty' has no pictures",
    ]


def test_a_folder_around_the_classes_is_pointed_out(tmp_path: Path) -> None:
    put(tmp_path / "set/a/1.png")
    put(tmp_path / "set/b/1.png")
    source = opened(tmp_path)
    assert source.class_names == ("set",)
    assert "open that folder itself" in source.notes[0]


def test_links_are_followed_and_loops_are_not(tmp_path: Path) -> None:
    outside = put(tmp_path / "outside/far.png", 7).parent
    root = tmp_path / "root"
    put(root / "train/a/1.png")
    put(root / "test/a/1.png")
    (root / "train/a/more").symlink_to(outside)
    (root / "train/a/one.png").symlink_to(outside / "far.png")
    (root / "train/a/gone.jpg").symlink_to(tmp_path / "nowhere.jpg")
    (root / "train/a/self.png").symlink_to("self.png")
    (root / "train/a/gone.txt").symlink_to(tmp_path / "nowhere.txt")
    for name, target in {"here": ".", "part": "..", "top": "../.."}.items():
        (root / "train/a" / name).symlink_to(target)
    (root / "train/all").symlink_to(root)
    source = opened(root)
    names = [Path(path).relative_to(root).as_posix() for path in paths(source)]
    mine = ["train/a/1.png", "train/a/gone.jpg", "train/a/one.png", "train/a/self.png", "train/a/more/far.png"]
    assert names == [*mine, "test/a/1.png"]
    assert source.class_names == ("a",)
    assert np.asarray(source.picture(4)).max() == 7
    assert "1 file that is no picture was ignored: train/a/gone.txt" in source.notes
    assert any(note.startswith("4 links lead back") for note in source.notes)
    with pytest.raises(BadImageError, match="the file is missing"):
        source.picture(1)
    with pytest.raises(BadImageError, match="symbolic links"):
        source.picture(3)


def test_many_crossed_links_end(tmp_path: Path) -> None:
    folders = [tmp_path / "class" / f"d{number}" for number in range(12)]
    for folder in folders:
        put(folder / "1.png")
    for folder in folders:
        for other in folders:
            if other != folder:
                (folder / f"to-{other.name}").symlink_to(other)
    assert len(opened(tmp_path)) == 12


def test_a_pipe_is_no_picture(tmp_path: Path) -> None:
    put(tmp_path / "a/1.png")
    os.mkfifo(tmp_path / "a/pipe.png")
    source = opened(tmp_path)
    assert len(source) == 1
    assert "a/pipe.png" in source.notes[0]


def test_odd_names_are_read(tmp_path: Path) -> None:
    names = ["two words.png", "-rf.png", "line\nbreak.png", "日本語.png", "a'b\"c.png", "x.tar.png", "%41.png"]
    for number, name in enumerate(names):
        put(tmp_path / "-class é" / name, number)
    raw = os.fsencode(tmp_path) + b"/-class \xc3\xa9/undecodable-\xff\xfe.png"
    Path(os.fsdecode(raw)).write_bytes(png(99))
    source = opened(tmp_path)
    assert source.class_names == ("-class é",)
    values = {source.path(index).name: int(np.asarray(source.picture(index)).max()) for index in range(len(source))}
    assert values == {name: number for number, name in enumerate(names)} | {
        os.fsdecode(b"undecodable-\xff\xfe.png"): 99
    }
    for index in range(len(source)):
        source.where(index).encode()  # can be printed and logged
        assert "\n" not in source.where(index)
    assert len(source.content_hash()) == 32


def test_undecodable_class_names_can_be_written_down(tmp_path: Path) -> None:
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c\xff")).mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/c\xff/1.png")).write_bytes(png(3))
    source = opened(tmp_path)
    assert source.class_names == ("c\\udcff",)
    assert np.asarray(source.picture(0)).max() == 3


def test_printable_keeps_what_can_be_printed() -> None:
    assert printable("é 日本 \u200d") == "é 日本 \u200d"
    assert printable("a\tb\udc80") == "a\\tb\\udc80"


def test_the_hash_follows_content_names_and_labels(tmp_path: Path) -> None:
    put(tmp_path / "a/1.png", 1)
    put(tmp_path / "b/1.png", 2)
    first = opened(tmp_path).content_hash()
    assert opened(tmp_path).content_hash() == first
    put(tmp_path / "b/1.png", 3)
    changed = opened(tmp_path).content_hash()
    (tmp_path / "b/1.png").rename(tmp_path / "b/2.png")
    renamed = opened(tmp_path).content_hash()
    (tmp_path / "b/2.png").unlink()
    (tmp_path / "b/2.png").symlink_to("nowhere")
    broken = opened(tmp_path).content_hash()
    assert len({first, changed, renamed, broken}) == 4


def test_the_hash_does_not_depend_on_where_the_folder_is(tmp_path: Path) -> None:
    for place in ("here", "there/deep"):
        put(tmp_path / place / "a/1.png", 5)
    assert opened(tmp_path / "here").content_hash() == opened(tmp_path / "there/deep").content_hash()


def test_a_copy_reads_the_same_and_is_small(tmp_path: Path) -> None:
    for number in range(300):
        put(tmp_path / f"c{number % 3}" / f"{number:04}.png", number % 256)
    source = opened(tmp_path)
    packed = pickle.dumps(source)
    assert len(packed) < 300 * 40  # path of 11 letters, offset and label
    copy = pickle.loads(packed)
    assert [copy.read(n) for n in range(300)] == [source.read(n) for n in range(300)]
    assert copy.content_hash() == source.content_hash()


def test_files_are_as_they_were(tmp_path: Path) -> None:
    put(tmp_path / "a/1.png", 1)
    (tmp_path / "a/bad.jpg").write_text("no picture")
    before = {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.*g")}
    source = opened(tmp_path)
    source.content_hash()
    source.picture(0)
    with pytest.raises(BadImageError, match="not a picture"):
        source.picture(1)
    assert {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in tmp_path.rglob("*.*g")} == before


def test_looks_like(tmp_path: Path) -> None:
    put(tmp_path / "deep/er/a/1.PNG")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("a")
    (tmp_path / "texts/loop").symlink_to(tmp_path / "texts")
    assert ImageFolder.looks_like(tmp_path / "deep")
    assert not ImageFolder.looks_like(tmp_path / "texts")
    assert not ImageFolder.looks_like(tmp_path / "nowhere")
    assert not ImageFolder.looks_like(tmp_path / "texts/a.txt")
    assert not ImageFolder.looks_like(Path("a\0b"))


def test_a_list_of_paths_gives_back_what_it_got() -> None:
    names = ["a", "", "日本", os.fsdecode(b"\xff"), "b/c"]
    packed = PathList(names)
    assert list(packed) == names
    with pytest.raises(IndexError):
        packed[5]

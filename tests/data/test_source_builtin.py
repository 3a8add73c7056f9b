"""The sets that need no download, and how names become sources."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from vitscope.core.errors import DataError, UsageError
from vitscope.data.dataset import open_dataset
from vitscope.data.sources.open import open_source
from vitscope.data.sources.shapes import FORMS


def test_digits_are_scikit_learns() -> None:
    source = open_source("digits")
    theirs = load_digits()
    assert len(source) == 1797
    assert source.labels.tolist() == theirs.target.tolist()
    assert source.labels.dtype == np.int64
    for index in range(1797):
        pixels = np.asarray(source.picture(index, in_chans=1), dtype=float)
        np.testing.assert_allclose(pixels * 16 / 255, theirs.images[index], atol=0.04)


def test_digits_whose_file_has_moved_are_asked_of_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    known = open_source("digits").content_hash()
    monkeypatch.setattr("vitscope.data.sources.digits.FILE", "elsewhere.csv")
    assert open_source("digits").content_hash() == known


def test_digits_do_not_wait_for_scikit_learn() -> None:
    """It takes a second to import, with pandas and pyarrow behind it, and only one of its files is read."""
    words = "import sys, vitscope; vitscope.open_dataset('digits'); print({'sklearn', 'pandas'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


def test_shapes_of_any_size_are_functions_of_seed_and_number() -> None:
    for size in (8, 32, 100):
        source = open_source(f"shapes:size={size},count=100")
        assert source.picture(7).size == (size, size)
        assert source.class_names == tuple(FORMS)
        again = pickle.loads(pickle.dumps(source))
        np.testing.assert_array_equal(source.read(7), again.read(7))
    one = open_source("shapes:count=100")
    other = open_source("shapes:count=100,seed=1")
    assert not np.array_equal(one.read(7), other.read(7))
    assert one.content_hash() != other.content_hash()
    larger = open_source("shapes:count=200")
    np.testing.assert_array_equal(one.read(7), larger.read(7))


def test_shapes_cannot_be_told_by_colour_or_brightness() -> None:
    """A linear model on mean colours knows no more than chance (one in ten): only the form tells."""
    source = open_source("shapes:size=16,count=1500")
    colours = np.stack([source.read(index).reshape(-1, 3).mean(0) for index in range(1500)]) / 255
    model = LogisticRegression(max_iter=200).fit(colours[:1000], source.labels[:1000])
    assert model.score(colours[1000:], source.labels[1000:]) < 0.2


def test_shapes_show_their_form() -> None:
    """The picture without noise and clutter has the outline's own area."""
    source = open_source("shapes:size=64,count=1000")
    areas = {name: [] for name in FORMS}
    for index in range(300):
        pixels = source.read(index).astype(int)
        corner = np.median(pixels.reshape(-1, 3), axis=0)
        areas[source.class_names[source.labels[index]]].append(float((np.abs(pixels - corner).sum(-1) > 100).mean()))
    means = {name: np.mean(found) for name, found in areas.items()}
    assert means["circle"] > means["square"] > means["triangle"] > means["bar"]
    assert means["circle"] > means["ring"]
    assert means["square"] > means["frame"]


def test_synthetic_has_its_label_in_the_brightness() -> None:
    source = open_source("synthetic:size=8,count=100,classes=5,channels=1")
    means = [np.asarray(source.picture(index, in_chans=1), dtype=float).mean() for index in range(100)]
    by_class = [np.mean([m for m, label in zip(means, source.labels, strict=True) if label == k]) for k in range(5)]
    assert np.all(np.diff(by_class) > 20)
    assert len(open_source("synthetic:count=1000000")) == 10**6


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("shapes:sise=3", "did you mean 'size'"),
        ("shapes:size=big", "no setting"),
        ("shapes:size", "no setting"),
        ("shapes:size=2", "expected from 8"),
        ("shapes:count=20", "expected from 100 (10 per class)"),
        ("digits:size=3", "no setting 'size'"),
        ("synthetic:channels=2", "expected 1 or 3"),
        ("digitz", "did you mean 'digits'"),
        ("no-such-thing-anywhere", "known here: digits, shapes, synthetic"),
        ("a" * 5000, "unknown data set"),
        ("nul\0name", "unknown data set"),
        ("~nobody-of-this-name/pictures", "unknown data set"),
        ("hf:", "unknown data set"),
    ],
)
def test_mistakes_in_names_are_usage_errors(name: str, words: str) -> None:
    with pytest.raises(UsageError) as caught:
        open_source(name)
    assert words in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_name_is_looked_for_under_the_data_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for label in ("cat", "dog"):
        (tmp_path / "roots" / "pets" / label).mkdir(parents=True)
        Image.new("RGB", (4, 4)).save(tmp_path / "roots" / "pets" / label / "1.png")
    monkeypatch.setenv("VITSCOPE_DATA", str(tmp_path / "roots"))
    assert open_source("pets").class_names == ("cat", "dog")
    with pytest.raises(UsageError, match="did you mean 'pets'"):
        open_source("pest")


def test_empty_and_unrecognised_folders_are_data_errors(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an empty folder") as caught:
        open_source(str(tmp_path))
    assert caught.value.exit_code == 3
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError):
        open_source(str(tmp_path))
    with pytest.raises(DataError):
        open_source(str(tmp_path / "notes.txt"))


def test_a_dataset_knows_its_parts() -> None:
    dataset = open_dataset("digits")
    assert dataset.num_classes == 10
    assert [len(dataset.splits[part]) for part in ("train", "val", "test")] == [1222, 216, 359]
    assert dataset.counts("train").sum() == 1222
    assert dataset.counts("train").min() > 110
    np.testing.assert_array_equal(dataset.labels("val"), dataset.source.labels[dataset.splits.val])
    dataset.require_trainable()

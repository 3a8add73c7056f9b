"""The predictor: whatever pictures come as, in order, prepared as the model learnt them; a bad one is told."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import vitscope
from vitscope.core.errors import DataError, InputError, UsageError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import preprocess
from vitscope.infer.pictures import find_pictures
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import SimMIMConfig, ViTConfig
from vitscope.models.model import VisionModel
from vitscope.weights.folder import save_model

SEEN = PreprocessConfig(img_size=(16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.4), crop_share=0.8)
LABELS = ["ant", "bee", "cat", "dog"]


def loud(config: Any) -> VisionModel:
    torch.manual_seed(0)
    model = build_model(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


@pytest.fixture
def model() -> VisionModel:
    made = loud(ViTConfig(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=4))
    made.preprocessing, made.labels = SEEN, list(LABELS)
    return made


@pytest.fixture
def predictor(model: VisionModel) -> Predictor:
    return Predictor(model, device="cpu", batch_size=3)


def picture(seed: int, size: tuple[int, int] = (23, 31)) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (*size, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(7):
        place = tmp_path / "photos" / f"{'odd' if number % 2 else 'even'}"
        place.mkdir(parents=True, exist_ok=True)
        picture(number).save(place / f"{number}.png")
    (tmp_path / "photos" / "notes.txt").write_text("no picture")
    (tmp_path / "photos" / ".hidden.png").write_bytes(b"no picture either")
    return tmp_path / "photos"


def test_it_says_what_the_model_says_of_the_prepared_picture(model: VisionModel, predictor: Predictor) -> None:
    shown = picture(3)
    [told] = predictor.classify(shown, top_k=4)
    wanted = model(preprocess(shown, SEEN)[None]).softmax(-1)[0]
    assert [guess.index for guess in told.top_k] == wanted.argsort(descending=True).tolist()
    for guess in told.top_k:
        assert guess.probability == pytest.approx(wanted[guess.index].item(), abs=1e-6)
        assert guess.label == LABELS[guess.index]
    assert (told.label, told.index, told.confidence) == (
        told.top_k[0].label,
        told.top_k[0].index,
        told.top_k[0].probability,
    )
    assert told.path is None


def test_whatever_a_picture_comes_as_it_is_the_same_picture(predictor: Predictor, tmp_path: Path) -> None:
    shown = picture(5)
    shown.save(tmp_path / "one.png")
    pixels = np.asarray(shown)
    tensor = torch.from_numpy(pixels.copy()).permute(2, 0, 1)
    ways: list[Any] = [
        tmp_path / "one.png",
        str(tmp_path / "one.png"),
        (tmp_path / "one.png").read_bytes(),
        shown,
        pixels,
        tensor,
        preprocess(shown, SEEN),
    ]
    found = predictor.classify(ways)
    assert len(found) == len(ways)
    assert {told.label for told in found} == {found[0].label}
    assert max(abs(told.confidence - found[0].confidence) for told in found) < 1e-6  # type: ignore[operator]
    for batch in (np.stack([pixels, pixels]), torch.stack([tensor, tensor]), [shown, [shown]]):
        assert [told.label for told in predictor.classify(batch)] == [found[0].label] * 2


def test_a_folder_a_pattern_and_a_list_are_in_order(predictor: Predictor, folder: Path) -> None:
    below = sorted(folder.rglob("[0-9].png"))
    one_by_one = [predictor.classify(path)[0] for path in below]
    assert len({told.confidence for told in one_by_one}) == 7
    for given in (folder, str(folder), str(folder / "**" / "*.png"), below, map(str, below)):
        found = predictor.classify(given)  # type: ignore[arg-type]
        assert [told.path for told in found] == [str(path) for path in below]
        for told, alone in zip(found, one_by_one, strict=True):
            assert told.label == alone.label
            assert told.confidence == pytest.approx(alone.confidence, abs=1e-6)


def test_bad_pictures_are_told_in_their_place(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    (tmp_path / "empty.png").touch()
    good = folder / "even" / "0.png"
    given = [good, tmp_path / "torn.jpg", tmp_path / "gone.png", good, tmp_path / "empty.png", torch.zeros(3, 8, 8)]
    found = predictor.classify(given)
    assert [told.error is None for told in found] == [True, False, False, True, False, False]
    assert found[0].label == found[3].label
    assert found[2].error == "the file is missing"
    assert found[4].error == "an empty file (0 bytes)"
    assert "(3, 16, 16)" in (found[5].error or "")
    assert found[1].to_dict() == {"path": str(tmp_path / "torn.jpg"), "error": found[1].error}
    assert found[0].to_dict()["top_k"][0]["label"] == found[0].label


def test_all_bad_is_no_crash_either(predictor: Predictor, tmp_path: Path) -> None:
    found = predictor.classify([tmp_path / f"{number}.png" for number in range(8)])
    assert [told.error for told in found] == ["the file is missing"] * 8


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        (lambda folder: folder / "nothing*.jpg", DataError, "no picture is called"),
        (lambda folder: "https://example.org/cat.jpg", DataError, "is an address"),
        (lambda folder: 3, InputError, "a path, a folder"),
        (lambda folder: torch.zeros(3, 8, 8, dtype=torch.int64), InputError, "int64"),
        (lambda folder: torch.zeros(8, 8), InputError, r"\(8, 8\)"),
        (lambda folder: "", DataError, "an empty text"),
        (lambda folder: io.StringIO("text"), InputError, "open for bytes"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    predictor: Predictor, folder: Path, given: Callable[[Path], Any], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        predictor.classify(given(folder))


def test_an_empty_folder_is_refused_with_what_was_looked_for(predictor: Predictor, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there are no pictures in") as caught:
        predictor.classify(tmp_path)
    assert ".avif" in (caught.value.where or "")


def test_an_open_file_is_its_content(predictor: Predictor, folder: Path, tmp_path: Path) -> None:
    path = folder / "even/0.png"
    (wanted,) = predictor.classify(path)
    with path.open("rb") as file, tempfile.NamedTemporaryFile(dir=tmp_path) as other:
        other.write(path.read_bytes())
        other.seek(0)
        found = predictor.classify([file, io.BytesIO(path.read_bytes()), other])
    assert [told.path for told in found] == [str(path), None, other.name]
    assert [told.confidence for told in found] == pytest.approx([wanted.confidence] * 3)


def test_nothing_given_is_nothing_said(predictor: Predictor) -> None:
    assert predictor.classify([]) == []


def test_a_model_without_classes_is_refused(model: VisionModel) -> None:
    model.reset_classifier(0)
    with pytest.raises(UsageError, match="the model has no classes"):
        Predictor(model, device="cpu").classify(picture(0))
    encoder = ViTConfig(img_size=16, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=0)
    masked = build_model(SimMIMConfig(encoder=encoder))
    with pytest.raises(UsageError, match="the model has no classes"):
        Predictor(masked, device="cpu").classify(picture(0))


def test_without_labels_classes_are_numbers_and_without_preprocessing_half(model: VisionModel) -> None:
    model.labels = model.preprocessing = None
    predictor = Predictor(model, device="cpu")
    assert predictor.labels == ["0", "1", "2", "3"]
    assert predictor.preprocessing == PreprocessConfig(img_size=(16, 16))


def test_a_saved_folder_brings_its_own(model: VisionModel, tmp_path: Path) -> None:
    shown = picture(1)
    save_model(model, tmp_path / "model", preprocessing=SEEN, labels=LABELS)
    loaded = vitscope.Predictor.load(tmp_path / "model", device="cpu")
    assert loaded.preprocessing == SEEN
    assert loaded.classify(shown) == Predictor(model, device="cpu").classify(shown)


def test_temperature_softens(model: VisionModel) -> None:
    sure = Predictor(model, device="cpu").classify(picture(2))[0]
    soft = Predictor(model, device="cpu", temperature=10.0).classify(picture(2))[0]
    assert soft.label == sure.label
    assert soft.confidence < sure.confidence  # type: ignore[operator]


@pytest.mark.parametrize(
    ("key", "value"),
    [("batch_size", 0), ("threads", 0), ("temperature", 0.0), ("temperature", -1.0), ("temperature", float("nan"))],
)
def test_settings_that_make_no_sense_are_refused(model: VisionModel, key: str, value: float) -> None:
    with pytest.raises(UsageError, match=key):
        Predictor(model, device="cpu", **{key: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("batch_size", [0, -1])
def test_no_batch_size_loses_pictures_in_silence(predictor: Predictor, batch_size: int) -> None:
    with pytest.raises(UsageError, match="batch_size"):
        predictor.classify(picture(0), batch_size=batch_size)


def test_answers_that_are_no_numbers_are_errors(model: VisionModel) -> None:
    with torch.no_grad():
        model.head.bias[1] = float("nan")  # type: ignore[union-attr,index]
    [told] = Predictor(model, device="cpu").classify(picture(0))
    assert told.error == "the model's answer is not a number"
    assert told.label is None


def test_a_batch_that_does_not_fit_goes_in_parts(predictor: Predictor, folder: Path) -> None:
    wanted = predictor.classify(folder)
    seen: list[int] = []
    model = predictor.model

    def short_of_memory(images: torch.Tensor) -> torch.Tensor:
        seen.append(len(images))
        if len(images) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return model.forward_head(model.forward_features(images))

    model.forward = short_of_memory  # type: ignore[method-assign,assignment]
    found = predictor.classify(folder, batch_size=7)
    assert seen[:3] == [7, 3, 1]
    assert [told.label for told in found] == [told.label for told in wanted]

    def out_of_memory(images: torch.Tensor) -> torch.Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    model.forward = out_of_memory  # type: ignore[method-assign,assignment]
    with pytest.raises(VitscopeError, match="not even one picture fits"):
        predictor.classify(folder)


def test_a_mistake_inside_the_model_is_not_swallowed(predictor: Predictor) -> None:
    def broken(images: torch.Tensor) -> torch.Tensor:
        raise ValueError("shapes")

    predictor.model.forward = broken  # type: ignore[method-assign,assignment]
    with pytest.raises(ValueError, match="shapes"):
        predictor.classify(picture(0))


def test_progress_counts_every_picture(predictor: Predictor, folder: Path) -> None:
    told: list[tuple[int, int]] = []
    predictor.classify([folder, "gone.png"], progress=lambda done, count: told.append((done, count)))
    assert told == [(3, 8), (6, 8), (8, 8)]


def test_pictures_are_not_read_long_before_they_are_needed(predictor: Predictor, monkeypatch: Any) -> None:
    """A folder of a million must not be in memory at once."""
    import vitscope.infer.stream as room

    read = 0

    def counted(*args: Any, **settings: Any) -> Any:
        nonlocal read
        read += 1
        return decode(*args, **settings)

    decode = room.decode_image
    monkeypatch.setattr(room, "decode_image", counted)
    given = find_pictures([picture(number) for number in range(40)])
    answers = predictor.ask(given, predictor.probabilities)
    next(answers)
    assert read <= 3 + 2 * 3
    answers.close()  # type: ignore[attr-defined]


def test_bf16_weights_and_images(model: VisionModel) -> None:
    exact = Predictor(model, device="cpu").classify(picture(4))[0]
    less = Predictor(model, device="cpu", dtype=torch.bfloat16).classify(picture(4))[0]
    assert less.confidence == pytest.approx(exact.confidence, abs=0.05)
    assert less.confidence != exact.confidence

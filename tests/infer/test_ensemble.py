"""Several views, several models: means of probabilities, by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from vitscope.core.errors import UsageError
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import preprocess
from vitscope.infer.ensemble import Ensemble
from vitscope.infer.predictor import Predictor
from vitscope.infer.views import corners
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.weights.folder import save_model

NAMES = ["ant", "bee", "cat"]


def member(seed: int, size: int = 16, labels: list[str] | None = None) -> Predictor:
    torch.manual_seed(seed)
    model = build_model(ViTConfig(img_size=size, patch_size=4, embed_dim=16, depth=2, num_heads=2, num_classes=3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.4)
    model.labels = labels or list(NAMES)
    model.preprocessing = PreprocessConfig(img_size=(size, size), crop_share=0.8, mean=(0.4,) * 3, std=(0.3,) * 3)
    return Predictor(model, device="cpu", batch_size=2)


def pictures(count: int = 5) -> list[Image.Image]:
    rng = np.random.default_rng(0)
    return [Image.fromarray(rng.integers(0, 256, (24, 30, 3), dtype=np.uint8)) for _ in range(count)]


def shares(model: VisionModel, images: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return model(images).softmax(-1)


def test_a_mirrored_view_counts_half() -> None:
    asked = member(0)
    for shown, told in zip(pictures(), asked.classify(pictures(), top_k=3, views=["flip"]), strict=True):
        plain = preprocess(shown, asked.preprocessing)
        wanted = shares(asked.model, torch.stack([plain, plain.flip(-1)])).mean(0)
        for guess in told.top_k:
            assert guess.probability == pytest.approx(wanted[guess.index].item(), abs=1e-6)


def test_corners() -> None:
    pixels = torch.arange(36.0).view(1, 6, 6)
    found = corners(pixels, (4, 4))
    assert found.shape == (4, 1, 4, 4)
    assert found[:, 0, 0, 0].tolist() == [0.0, 2.0, 12.0, 14.0]


def test_ten_views_and_the_first_is_the_plain_one() -> None:
    asked = member(1)
    seen: list[torch.Tensor] = []
    forward = asked.model.forward

    def watched(images: torch.Tensor) -> torch.Tensor:
        seen.append(images)
        return forward(images)

    asked.model.forward = watched  # type: ignore[method-assign]
    shown = pictures(1)[0]
    asked.classify(shown, views=["crops", "flip"])
    assert seen[0].shape == (10, 3, 16, 16)
    assert torch.equal(seen[0][5:], seen[0][:5].flip(-1))
    assert torch.allclose(seen[0][0], preprocess(shown, asked.preprocessing), atol=1e-6)
    # At the same scale there is a margin: each corner of 19 x 19 of the 20 x 25 pixels, of which the plain view has 16.
    assert len({view.numpy().tobytes() for view in seen[0]}) == 10


def test_unknown_views_are_refused_and_prepared_tensors_have_none() -> None:
    with pytest.raises(UsageError, match="did you mean 'flip'"):
        member(0).classify(pictures(1), views=["flipp"])
    [told] = member(0).classify(torch.zeros(3, 16, 16), views=["flip"])
    assert "no other views" in (told.error or "")


def test_one_view_need_not_be_a_list() -> None:
    assert member(0).classify(pictures(2), views="flip") == member(0).classify(pictures(2), views=["flip"])


def test_the_mean_of_members_of_other_sizes_and_orders() -> None:
    first, second = member(0), member(1, size=24, labels=["cat", "ant", "bee"])
    shown = pictures()
    for weights, (a, b) in ((None, (0.5, 0.5)), ([3.0, 1.0], (0.75, 0.25))):
        found = Ensemble([first, second], weights).classify(shown, top_k=3)
        for picture, told in zip(shown, found, strict=True):
            one = shares(first.model, preprocess(picture, first.preprocessing)[None])[0]
            other = shares(second.model, preprocess(picture, second.preprocessing)[None])[0][[1, 2, 0]]
            wanted = a * one + b * other
            assert told.index == wanted.argmax().item()
            for guess in told.top_k:
                assert guess.probability == pytest.approx(wanted[guess.index].item(), abs=1e-6)
            agreed = a * (one.argmax() == told.index) + b * (other.argmax() == told.index)
            assert told.agreement == pytest.approx(float(agreed))
            assert told.to_dict()["agreement"] == told.agreement


def test_an_ensemble_of_one_is_that_one() -> None:
    alone = member(2).classify(pictures())
    for told, wanted in zip(Ensemble([member(2)]).classify(pictures()), alone, strict=True):
        assert told.label == wanted.label
        assert told.confidence == pytest.approx(wanted.confidence, abs=1e-6)
        assert told.agreement == 1.0


def test_many_pictures_go_some_at_a_time(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Else the memory grows with pictures times classes."""
    shown = [*pictures(3), tmp_path / "gone.png", *pictures(1)]
    asked = Ensemble([member(0), member(1)])
    wanted, held, told = asked.classify(shown), [], []
    zeros = torch.zeros
    monkeypatch.setattr("vitscope.infer.ensemble.AT_ONCE", 2)
    monkeypatch.setattr("vitscope.infer.ensemble.torch.zeros", lambda *size: held.append(size[0]) or zeros(*size))
    found = asked.classify(shown, progress=lambda done, count: told.append((done, count)))
    assert max(held) == 2
    assert [one.label for one in found] == [one.label for one in wanted]
    assert [one.error for one in found] == [one.error for one in wanted]
    assert [one.confidence for one in found] == pytest.approx([one.confidence for one in wanted])
    assert [done for done, _ in told] == sorted(done for done, _ in told)
    assert (told[-1], {count for _, count in told}) == ((10, 10), {10})


def test_one_source_need_not_be_a_list(tmp_path: Path) -> None:
    saved = save_model(member(2).model, tmp_path / "model")
    assert len(Ensemble.load(str(saved), device="cpu").members) == 1
    assert len(Ensemble.load([saved, saved], device="cpu").members) == 2


def test_bad_pictures_are_errors_and_progress_counts_all(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    shown = [pictures(1)[0], tmp_path / "gone.png", pictures(1)[0]]
    found = Ensemble([member(0), member(1)]).classify(shown, progress=lambda done, count: told.append((done, count)))
    assert [one.error for one in found] == [None, "the file is missing", None]
    assert told[-1] == (6, 6)
    assert [done for done, _ in told] == sorted(done for done, _ in told)


@pytest.mark.parametrize("weights", [[1.0], [1.0, -1.0], [0.0, 0.0], [float("nan"), 1.0]])
def test_weights_that_make_no_sense(weights: list[float]) -> None:
    with pytest.raises(UsageError, match="weights"):
        Ensemble([member(0), member(1)], weights)


def test_weights_are_advised_upon() -> None:
    with pytest.raises(UsageError, match="expected one number, none negative, not all 0, received 1, 2") as caught:
        Ensemble([member(0)], [1.0, 2.0])
    assert caught.value.fix == "give a weight for each model, or none: then all count alike"


def test_other_classes_are_refused() -> None:
    with pytest.raises(UsageError, match="model 2 has other classes than model 1: dog"):
        Ensemble([member(0), member(1, labels=["ant", "bee", "dog"])])
    with pytest.raises(UsageError, match="of models of 3 and 2 classes"):
        Ensemble([member(0), member(1, labels=["ant", "bee"])])
    with pytest.raises(UsageError, match="at least one"):
        Ensemble([])


def test_no_classes_at_all_cannot_be_asked_for() -> None:
    with pytest.raises(UsageError, match="top_k"):
        Ensemble([member(0)]).classify(torch.zeros(1, 3, 16, 16), top_k=0)

"""How good features are: neighbours as scikit-learn counts them, probes as each would be trained alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.neighbors import KNeighborsClassifier
from torch import Tensor, nn

import vitscope
from vitscope.core.errors import InputError, UsageError
from vitscope.infer.features.judge import Labelled, judge_neighbours, judge_probes, labelled_features
from vitscope.infer.features.knn import knn_accuracy, nearest_rows, usable_grid, votes
from vitscope.infer.features.probe import Standard, default_epochs, epoch_order, judge_heads, train_heads
from vitscope.infer.predictor import Predictor
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig


def digits() -> tuple[Tensor, Tensor]:
    """Pixels as features: a baseline whose accuracy is known."""
    pixels, labels = load_digits(return_X_y=True)
    return torch.from_numpy(pixels).float(), torch.from_numpy(labels).long()


@pytest.mark.parametrize("k", [1, 5, 20])
def test_plain_neighbours_are_scikit_learns(k: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitscope.infer.features.knn.COMPARED_AT_ONCE", 50_000)  # many chunks
    values, labels = digits()
    bank, asked = values[:1000], values[1000:]
    theirs = KNeighborsClassifier(k, metric="cosine", algorithm="brute").fit(bank.numpy(), labels[:1000].numpy())
    said = []
    for near in nearest_rows(bank, asked, k):
        said.append(votes(near, labels[:1000], k, num_classes=10, temperature=None).argmax(1))
    np.testing.assert_array_equal(torch.cat(said).numpy(), theirs.predict(asked.numpy()))
    share = knn_accuracy(bank, labels[:1000], asked, labels[1000:], grid=[k], temperature=None)[k]
    assert share == pytest.approx(theirs.score(asked.numpy(), labels[1000:].numpy()))


def test_weights_are_the_exponential_of_the_cosine() -> None:
    """DINO's formula, one picture and one neighbour at a time."""
    values, labels = digits()
    bank, known, asked = values[:300].double(), labels[:300], values[300:320].double()
    (near,) = nearest_rows(bank, asked, 20)
    found = votes(near, known, 20, num_classes=10, temperature=0.07)
    for row, picture in enumerate(asked):
        cosines = [float(picture @ other / (picture.norm() * other.norm())) for other in bank]
        wanted = [0.0] * 10
        for place in sorted(range(300), key=lambda place: -cosines[place])[:20]:
            wanted[int(known[place])] += math.exp(cosines[place] / 0.07)
        assert found[row].tolist() == pytest.approx(wanted, rel=1e-4)


def test_more_neighbours_than_pictures_are_left_out() -> None:
    assert usable_grid((10, 20, 100), 50) == [10, 20]
    assert usable_grid((10, 20), 4) == [4]
    with pytest.raises(UsageError, match="k: expected"):
        usable_grid((0,), 4)
    with pytest.raises(InputError, match="one vector per picture"):
        list(nearest_rows(torch.zeros(3, 4, 2), torch.zeros(3, 4), 1))


def alone(values: Tensor, labels: Tensor, lr: float, epochs: int, seed: int) -> nn.Linear:
    """One head by torch's own layer, loss, optimiser and schedule."""
    head = nn.Linear(values.shape[1], 10)
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    images = (values - values.mean(0)) / torch.where(values.std(0) > 0, values.std(0, correction=0), 1.0)
    optimizer = torch.optim.SGD(head.parameters(), lr=lr, momentum=0.9)
    steps = epochs * -(-len(values) // 256)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 0.5 * (1 + math.cos(math.pi * s / steps)))
    for epoch in range(epochs):
        for rows in epoch_order(len(values), seed, epoch).split(256):
            optimizer.zero_grad()
            nn.functional.cross_entropy(head(images[rows]), labels[rows]).backward()
            optimizer.step()
            schedule.step()
    return head


def test_a_head_of_the_grid_is_the_head_trained_alone() -> None:
    values, labels = digits()
    values, labels, asked, truth = values[:1000], labels[:1000], values[1000:], labels[1000:]
    lrs = (0.003, 0.03, 0.3)
    heads = train_heads(values, labels, num_classes=10, lrs=lrs, epochs=5, seed=3)
    shares, losses = judge_heads(heads, asked, truth)
    standard = Standard.of(values)
    for place, lr in enumerate(lrs):
        wanted = alone(values, labels, lr, 5, 3)(standard(asked)).detach()
        torch.testing.assert_close(heads.logits(asked)[:, place], wanted, atol=2e-4, rtol=1e-4)
        assert shares[place].item() == (wanted.argmax(1) == truth).double().mean().item()
        assert losses[place].item() == pytest.approx(nn.functional.cross_entropy(wanted, truth).item(), abs=1e-5)


def test_linear_classifiers_on_the_digits_pixels_reach_what_is_known() -> None:
    """Logistic regression on these pixels gets 96 to 97 % of held-out digits right."""
    values, labels = digits()
    order = epoch_order(len(values), 7, 0)
    cuts = {"train": order[:1200], "val": order[1200:1450], "test": order[1450:]}
    labelled = Labelled({part: ({"pixels": values[rows]}, labels[rows]) for part, rows in cuts.items()}, 10, [])
    verdict = judge_probes(labelled)
    assert verdict.test_accuracy is not None
    assert verdict.test_accuracy > 0.94
    assert verdict.epochs == 200
    best = max(one.val_accuracy for one in verdict.tried)
    assert verdict.best.val_accuracy == best > 0.94
    assert verdict.heads is not None
    said = verdict.heads.logits(values[cuts["test"]])[:, 0].argmax(1)
    assert (said == labels[cuts["test"]]).double().mean().item() == pytest.approx(verdict.test_accuracy)
    near = judge_neighbours(labelled)
    assert near.test_accuracy is not None
    assert near.test_accuracy > 0.96
    assert near.best.setting == 10
    assert [one.setting for one in near.tried] == [10, 20, 100, 200]


def test_layers_are_chosen_on_validation_and_test_has_no_say() -> None:
    """One layer knows the classes in validation, another in test alone: the first is chosen, and judged as it is."""
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(200) % 4
    known = nn.functional.one_hot(labels, 4).float() + 0.01 * torch.randn(200, 4, generator=generator)
    noise = torch.randn(200, 4, generator=generator)
    parts: dict[str, Any] = {
        "train": ({"good": known, "bad": known}, labels),
        "val": ({"good": known, "bad": noise}, labels),
        "test": ({"good": noise, "bad": known}, labels),
    }
    for judge in (judge_neighbours, judge_probes):
        verdict = judge(Labelled(parts, 4, []))
        assert verdict.best.feature == "good"
        assert verdict.test_accuracy is not None
        assert verdict.test_accuracy < 0.5
    parts["test"] = ({"good": known[:0], "bad": known[:0]}, labels[:0])
    assert judge_probes(Labelled(parts, 4, [])).test_accuracy is None
    assert judge_neighbours(Labelled(parts, 4, [])).test_interval is None


def test_features_that_never_vary_do_no_harm() -> None:
    values, labels = digits()
    assert (values.std(0) == 0).any()
    heads = train_heads(values, labels, num_classes=10, lrs=[1.0], epochs=2)
    assert heads.weights.isfinite().all()
    assert heads.biases.isfinite().all()


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"lrs": []}, UsageError), ({"lrs": [-1.0]}, UsageError), ({"num_classes": 2}, InputError)],
)
def test_what_cannot_be_trained_is_refused(changes: dict[str, Any], error: type[Exception]) -> None:
    values, labels = digits()
    with pytest.raises(error):
        train_heads(values, labels, **({"num_classes": 10} | changes))


def test_few_pictures_are_shown_more_often() -> None:
    assert [default_epochs(count) for count in (100, 20_000, 10_000_000)] == [200, 50, 10]


def test_a_data_set_goes_through_the_model_once_for_all_layers() -> None:
    torch.manual_seed(0)
    predictor = Predictor(build_model(CNNConfig(img_size=8, widths=(8, 16))), device="cpu", batch_size=256)
    seen: list[int] = []
    dataset = vitscope.open_dataset("digits")
    labelled = labelled_features(predictor, dataset, layers=None, progress=lambda done, count: seen.append(count))
    assert seen == [1797] * -(-1797 // 256)
    for part in ("train", "val", "test"):
        values, labels = labelled[part]
        assert {name: tuple(found.shape[1:]) for name, found in values.items()} == {
            "stage0_pooled": (8,),
            "stage1_pooled": (16,),
        }
        np.testing.assert_array_equal(labels.numpy(), dataset.labels(part))
        row = dataset.splits[part][3]
        wanted = predictor.features(dataset.source.picture(int(row), in_chans=1)).only[0]
        torch.testing.assert_close(values["stage1_pooled"][3], wanted)
    with pytest.raises(UsageError, match="one vector per picture"):
        labelled_features(predictor, dataset, tokens="map")

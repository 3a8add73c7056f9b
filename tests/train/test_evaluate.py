"""Evaluation: every picture once, the same figures whatever the batch, also when memory runs out or logits are NaN."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import confusion_matrix, log_loss, top_k_accuracy_score
from torch import Tensor, nn

from vitscope.core.errors import DataError, InputError, VitscopeError
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.data.loaders.loader import BadSample, Batch
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig
from vitscope.train.evaluate import Evaluation, evaluate
from vitscope.train.memory import is_out_of_memory

K = 8


class Fixed:
    """A loader of given logits: its images are what `Readout` says of them."""

    why, position, bad_samples = "", 0, list[BadSample]()

    def __init__(self, logits: Tensor, labels: Tensor, batch: int = 10) -> None:
        self.logits, self.labels, self.batch = logits, labels, batch
        self.num_pictures = len(labels)
        self.num_batches = math.ceil(len(labels) / batch)

    def epoch(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        indices = torch.arange(len(self.labels)) + 1000
        for first in range(start * self.batch, len(self.labels), self.batch):
            part = slice(first, first + self.batch)
            yield Batch(self.logits[part, :, None, None], self.labels[part], indices[part])

    def close(self) -> None: ...


class Readout(nn.Module):
    """Answers with its images; remembers how many came at once."""

    def __init__(self, most: int | None = None, error: BaseException | None = None) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)
        self.most, self.error = most, error or torch.OutOfMemoryError("out of memory, in a test")
        self.came: list[int] = []

    def forward(self, images: Tensor) -> Tensor:
        self.came.append(len(images))
        if self.most is not None and len(images) > self.most:
            raise self.error
        return self.drop(images.flatten(1))


def random_case(count: int = 97, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, K, (count,), generator=rng)
    logits = torch.randn(count, K, generator=rng) * 2
    logits[torch.arange(count), labels] += 1.5
    return logits, labels


def judged(model: nn.Module, loader: Any, **settings: Any) -> Evaluation:
    found = evaluate(model, loader, num_classes=settings.pop("num_classes", K), **settings)
    assert found is not None
    return found


def test_figures_are_those_of_scikit_learn() -> None:
    logits, labels = random_case()
    found = judged(Readout(), Fixed(logits, labels))
    predicted, classes = logits.argmax(-1), list(range(K))
    assert found.count == 97
    assert found.accuracy == pytest.approx(float((predicted == labels).float().mean()))
    assert 0.3 < found.accuracy < 0.9, "the case tells right from wrong"
    assert found.loss == pytest.approx(log_loss(labels, logits.double().softmax(-1), labels=classes), rel=1e-6)
    assert found.top5 == pytest.approx(top_k_accuracy_score(labels, logits, k=5, labels=classes))
    assert found.confusion.dtype == torch.int64
    assert found.confusion.device.type == "cpu"
    np.testing.assert_array_equal(found.confusion.numpy(), confusion_matrix(labels, predicted, labels=classes))


def test_the_batch_changes_nothing() -> None:
    logits, labels = random_case()
    whole = judged(Readout(), Fixed(logits, labels, 97))
    for size, batch in ((1, None), (10, None), (10, 3), (97, 7), (50, 1000)):
        part = judged(Readout(), Fixed(logits, labels, size), batch=batch)
        assert (part.loss, part.accuracy, part.top5) == (whole.loss, whole.accuracy, whole.top5)
        assert torch.equal(part.confusion, whole.confusion)
        assert part.worst == whole.worst


def test_batch_is_the_most_that_goes_through_at_once() -> None:
    model = Readout()
    found = judged(model, Fixed(*random_case(25), 10), batch=4)
    assert model.came == [4, 4, 2, 4, 4, 2, 4, 1]
    assert found.batch == 4
    assert judged(Readout(), Fixed(*random_case(25), 10)).batch == 10


def test_no_top_five_of_five_classes() -> None:
    logits, labels = random_case()
    found = judged(Readout(), Fixed(logits[:, :5], labels % 5), num_classes=5)
    assert found.top5 is None


def test_equal_logits_are_not_all_at_the_top() -> None:
    labels = torch.arange(K)
    found = judged(Readout(), Fixed(torch.zeros(K, K), labels))
    assert found.accuracy == 1 / K
    assert found.top5 == 5 / K
    assert found.loss == pytest.approx(math.log(K))


def test_the_worst_are_the_most_confidently_wrong() -> None:
    logits, labels = random_case()
    found = judged(Readout(), Fixed(logits, labels), worst=6)
    probabilities = logits.softmax(-1)
    wrong = [i for i in range(97) if logits[i].argmax() != labels[i]]
    order = sorted(wrong, key=lambda i: -float(probabilities[i].max()))[:6]
    assert [worst.index for worst in found.worst] == [1000 + i for i in order]
    for worst, i in zip(found.worst, order, strict=True):
        assert worst.label == labels[i]
        assert worst.predicted == logits[i].argmax() != labels[i]
        assert worst.confidence == pytest.approx(float(probabilities[i].max()), rel=1e-5)
        assert worst.loss == pytest.approx(-math.log(float(probabilities[i, labels[i]])), rel=1e-4)
    assert len(judged(Readout(), Fixed(logits, labels), worst=1000).worst) == len(wrong)
    perfect = judged(Readout(), Fixed(torch.eye(K) * 9, torch.arange(K)))
    assert perfect.worst == []
    assert perfect.accuracy == 1


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_wrong_and_shows_in_the_loss(value: float) -> None:
    logits, labels = torch.eye(K) * 9, torch.arange(K)
    logits[3, 3] = value  # argmax would call it right
    found = judged(Readout(), Fixed(logits, labels))
    assert found.accuracy == 7 / 8
    assert found.top5 == 7 / 8
    assert math.isnan(found.loss)
    assert found.confusion.sum() == 7
    assert found.confusion[3].sum() == 0
    assert found.worst == []
    assert found.count == 8


def test_a_class_ruled_out_is_a_number() -> None:
    logits, labels = torch.eye(K) * 9, torch.arange(K)
    logits[3, 4] = -math.inf
    found = judged(Readout(), Fixed(logits, labels))
    assert found.accuracy == 1
    assert math.isfinite(found.loss)


def test_modes_come_back_and_dropout_is_off() -> None:
    logits, labels = random_case()
    model = nn.Sequential(Readout(), nn.Dropout(0.9).eval())
    model.train()
    model[1].eval()
    found = judged(model, Fixed(logits, labels))
    assert found.accuracy == judged(Readout().eval(), Fixed(logits, labels)).accuracy
    assert model.training
    assert model[0].training
    assert not model[1].training


def test_no_gradient_is_kept() -> None:
    class Watched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(K))

        def forward(self, images: Tensor) -> Tensor:
            logits = images.flatten(1) * self.weight
            assert not logits.requires_grad
            return logits

    judged(Watched(), Fixed(*random_case()))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, None])
def test_half_precision_is_the_models_and_not_the_losses(dtype: torch.dtype | None) -> None:
    class Linear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(K, K, bias=False)
            nn.init.eye_(self.linear.weight)
            self.seen: set[torch.dtype] = set()

        def forward(self, images: Tensor) -> Tensor:
            logits = self.linear(images.flatten(1))
            self.seen.add(logits.dtype)
            return logits

    logits, labels = random_case()
    model = Linear()
    found = judged(model, Fixed(logits, labels), dtype=dtype)
    half = dtype in (torch.bfloat16, torch.float16)
    assert model.seen == {dtype if half else torch.float32}
    exact = judged(Readout(), Fixed(logits, labels))
    assert found.loss == pytest.approx(exact.loss, rel=1e-2 if half else 1e-6)
    rounded = judged(Readout(), Fixed(logits.to(dtype or torch.float32).float(), labels))
    assert found.loss == pytest.approx(rounded.loss, rel=1e-6), "only the logits are rounded"


def real_cpu_error() -> BaseException:
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**50, dtype=torch.uint8)
    return caught.value


@pytest.mark.parametrize("error", [None, real_cpu_error(), MemoryError()])
def test_out_of_memory_halves_and_every_picture_is_still_counted_once(error: BaseException | None) -> None:
    logits, labels = random_case()
    said: list[str] = []
    model = Readout(most=6, error=error)
    found = judged(model, Fixed(logits, labels, 32), say=said.append)
    whole = judged(Readout(), Fixed(logits, labels, 32))
    assert (found.loss, found.accuracy, found.count) == (whole.loss, whole.accuracy, 97)
    assert torch.equal(found.confusion, whole.confusion)
    assert model.came[:4] == [32, 16, 8, 4]
    assert max(model.came[3:]) == 4, "what was learned holds for later batches"
    assert found.batch == 4
    assert len(said) == 3
    assert "32" in said[0]
    assert "now 16" in said[0]


def test_one_picture_too_many_is_told_in_words() -> None:
    model = Readout(most=0).train()
    with pytest.raises(VitscopeError, match="not even one picture") as caught:
        evaluate(model, Fixed(*random_case()), num_classes=K)
    assert "in a test" in str(caught.value)
    assert model.training


def test_other_errors_pass_through() -> None:
    with pytest.raises(RuntimeError, match="something else"):
        evaluate(Readout(most=0, error=RuntimeError("something else")), Fixed(*random_case()), num_classes=K)


def test_stopped_between_two_batches() -> None:
    model = Readout().train()
    answers = iter([False, False, True])
    assert evaluate(model, Fixed(*random_case(), 10), num_classes=K, stop=lambda: next(answers)) is None
    assert model.came == [10, 10]
    assert model.training
    assert judged(Readout(), Fixed(*random_case()), stop=lambda: False).count == 97


def test_nothing_mixed_and_other_widths_are_refused() -> None:
    logits, labels = random_case()
    with pytest.raises(DataError, match="no pictures"):
        evaluate(Readout(), Fixed(logits[:0], labels[:0]), num_classes=K)
    with pytest.raises(InputError, match="training=False"):
        evaluate(Readout(), Fixed(logits, torch.eye(K)[labels]), num_classes=K)
    with pytest.raises(InputError, match=r"\(10, 9\), received \(10, 8\)"):
        evaluate(Readout(), Fixed(logits, labels), num_classes=9)


@pytest.mark.parametrize("kind", ["device", "worker"])
def test_real_pictures_through_both_loaders(kind: Any) -> None:
    dataset = open_dataset(DataConfig(name="digits", loader=kind, workers=0, batch_size=50))
    torch.manual_seed(0)
    model = build_model(CNNConfig(img_size=8, in_chans=1, widths=(4, 8), num_classes=10))
    preprocess = dataset.config.preprocess(8, 1)
    loader = make_loader(dataset, "test", preprocess=preprocess, training=False)
    found = judged(model, loader, num_classes=10)
    again = judged(model, loader, num_classes=10, batch=17)
    loader.close()
    assert found.count == len(dataset.splits["test"])
    np.testing.assert_array_equal(found.confusion.sum(1).numpy(), dataset.counts("test"))
    assert again.loss == pytest.approx(found.loss, rel=1e-6)
    assert again.accuracy == found.accuracy
    source = dataset.source
    assert all(source.labels[worst.index] == worst.label for worst in found.worst)
    assert len(found.worst) == 16
    assert {worst.index for worst in found.worst} <= set(dataset.splits["test"].tolist())


def test_what_is_out_of_memory() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"))
    assert is_out_of_memory(real_cpu_error())
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"))
    assert not is_out_of_memory(RuntimeError("shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("can't allocate memory"))
    assert not is_out_of_memory(VitscopeError("not even one picture fits: CUDA out of memory"))

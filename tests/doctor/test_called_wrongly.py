"""`check_up` called in ways that would fail in every check: said once, before anything is examined, with what to do."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, Dataset, TensorDataset

import vitscope
from doctor.conftest import loader_of, pictures, small_vit
from train.tiny_runs import tiny
from vitscope.core.errors import InputError
from vitscope.doctor.callables import refuse_other_calls

FEW = ("label_range", "forward_pass")


def refused(loader: Any = None, **given: Any) -> InputError:
    loader = loader_of(*pictures()) if loader is None else loader
    with pytest.raises(InputError) as caught:
        vitscope.check_up(small_vit(), loader, **{"only": FEW, **given})
    return caught.value


def nothing(*given: Any) -> None:
    pass


@pytest.mark.parametrize(
    ("step", "names"),
    [
        (lambda batch: None, "batch"),
        (lambda: None, ""),
        (lambda x, y, z, w=1, *v, **k: None, "x, y, z, w=..., *v, **k"),
    ],
)
def test_a_step_of_other_things(step: Callable[..., Any], names: str) -> None:
    assert refused(step=step).what == f"step: expected a function of (images, labels), received one of ({names})"


def test_an_evaluation_that_wants_to_be_given_something() -> None:
    error = refused(evaluate=lambda model, loader: 1)
    assert error.what == "evaluate: expected a function that is given nothing, received one of (model, loader)"
    assert refused(evaluate=0.9).what.endswith("received float")


def test_the_class_of_a_loss() -> None:
    error = refused(loss=nn.CrossEntropyLoss)
    assert (error.what, error.fix) == (
        "loss: expected a function of (logits, labels), received the class nn.CrossEntropyLoss",
        "loss=nn.CrossEntropyLoss()",
    )


def test_what_can_be_called_so_is_taken() -> None:
    for loss in (None, F.cross_entropy, nn.CrossEntropyLoss(), partial(F.cross_entropy, label_smoothing=0.1), max):
        refuse_other_calls(loss, nothing, nothing)
        refuse_other_calls(loss, lambda x, y, scale=1.0: None, lambda part="val": None)


def turned(images: Tensor, labels: Tensor) -> DataLoader[Any]:
    return DataLoader(TensorDataset(labels, images), 32)


def test_labels_first() -> None:
    error = refused(turned(*pictures()))
    assert error.what == "the first of the pair: expected images (B, C, H, W) or (B, H, W), received shape (32,)"
    assert "(images, labels)" in str(error.fix)


@pytest.mark.parametrize("flat", [lambda images: images.flatten(1), lambda images: images.flatten(1)[:, 0]])
def test_batches_that_are_no_pictures(flat: Callable[[Tensor], Tensor]) -> None:
    images, labels = pictures()
    error = refused(loader_of(flat(images), labels))
    assert f"received shape {(32, *flat(images).shape[1:])}" in error.what
    assert "pictures" in str(error.fix)


class Rows(Dataset[Any]):
    def __init__(self, form: Callable[[Tensor, int], Any]) -> None:
        self.images, self.labels = pictures(64)
        self.form = form

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, number: int) -> Any:
        if number >= len(self):
            raise IndexError
        return self.form(self.images[number], int(self.labels[number]))


FORMS = (
    lambda image, label: (image, label),
    lambda image, label: (image, torch.tensor(label)),
    lambda image, label: {"pixel_values": image, "label": label},
)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["loader", "val_loader"])
def test_a_dataset_in_place_of_a_loader(form: Callable[[Tensor, int], Any], name: str) -> None:
    error = refused(**{name: Rows(form)})
    assert error.what == f"{name}: expected batches of (images, labels), received a Rows of single pictures, a Dataset"
    assert "DataLoader(dataset" in str(error.fix)


@pytest.mark.parametrize("form", FORMS)
def test_a_loader_of_it_and_a_list_of_batches_are_taken(form: Callable[[Tensor, int], Any]) -> None:
    loader = DataLoader(Rows(form), 32)
    for one in (loader, list(loader)):
        report = vitscope.check_up(small_vit(), one, val_loader=one, only=("label_range",))
        assert [asked.failed for asked in report.asked] == [None]


def test_a_batch_under_other_names() -> None:
    images, labels = pictures()
    error = refused([{"input": images, "answer": labels}])
    assert error.what.endswith("received dict with input (Tensor), answer (Tensor)")
    assert refused([(images, labels.tolist())]).what.endswith("received tuple of (Tensor, list)")


def test_a_check_that_is_not_there(tmp_path: Path) -> None:
    error = refused(only=("foward",))
    assert (error.what, error.where, error.fix) == ("unknown check 'foward'", "only", "did you mean 'forward'?")
    for door in (partial(vitscope.examine_settings, tiny()), partial(vitscope.examine_run, tmp_path)):
        with pytest.raises(InputError, match="unknown check 'foward'"):
            door(only=("foward",))


@pytest.mark.parametrize("only", ["label_range", ("label-range",)])
def test_one_name_may_be_a_word(only: Any) -> None:
    report = vitscope.check_up(small_vit(), loader_of(*pictures()), only=only)
    assert [asked.check.name for asked in report.asked] == ["label_range"]

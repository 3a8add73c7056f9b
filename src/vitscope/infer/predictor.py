"""A model with everything it needs to be asked about pictures: its preprocessing, its labels, a device."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor

from vitscope.core.device import pick_device
from vitscope.core.dtypes import TORCH_DTYPES
from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.infer.cheaper.dtypes import Dtype, in_dtype
from vitscope.infer.features.extract import features_of
from vitscope.infer.features.features import Features
from vitscope.infer.features.layouts import Tokens
from vitscope.infer.launched import Forward, Launch, launched
from vitscope.infer.pictures import Given, Pictures, find_pictures
from vitscope.infer.prediction import Prediction, predictions
from vitscope.infer.stream import Prepare, prepare_for, stacked, stream
from vitscope.infer.views import prepare_views
from vitscope.models.config import pair
from vitscope.models.model import VisionModel
from vitscope.models.modes import in_mode
from vitscope.models.reconstruction import MaskedModel
from vitscope.train.memory import is_out_of_memory
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.load import load_model

if TYPE_CHECKING:
    from vitscope.infer.explain.attention import AttentionMaps

BATCH_SIZE = 32
Progress = Callable[[int, int], None]
"""Told how many pictures are done, and of how many."""
Ask = Callable[[Tensor], Tensor]
"""From images (B, C, H, W) to something of each, (B, ...)."""


class Predictor:
    """Asks a model about pictures, whatever they come as. The model is put on `device` and in eval mode, and stays the
    caller's: nothing else about it changes. Where `dtype` is another than its own, a copy is asked."""

    def __init__(
        self,
        model: VisionModel,
        *,
        device: str | torch.device = "auto",
        dtype: Dtype | torch.dtype = "fp32",
        launch: Launch = "eager",
        keep_float: Sequence[str] = (),
        batch_size: int = BATCH_SIZE,
        threads: int | None = None,
        temperature: float = 1.0,
    ) -> None:
        """`dtype` and `launch` are how logits are computed: `vitscope bench --cheaper` measures which pay. With
        `int8` a copy of the model is asked, in which the layers `keep_float` names stay floats. `threads` decode
        pictures, as many as there are CPUs by default. `temperature` divides logits before they become probabilities:
        above 1 a model is less sure of itself."""
        for name, value in (("batch_size", batch_size), ("threads", threads), ("temperature", temperature)):
            if value is not None and not value > 0:
                raise UsageError(expected(name, "a positive number", value), where="Predictor")
        self.device = pick_device(device) if isinstance(device, str) else device
        self.batch_size, self.threads, self.temperature = batch_size, threads, temperature
        self.launch: Launch = launch
        self.model, self.dtype = in_dtype(model, dtype, self.device, keep_float=keep_float)
        self._forward: Forward = launched(self.model, launch, device=self.device, batch_size=batch_size)
        self.labels = _labels_of(model)
        self.preprocessing = preprocessing_of(model)

    @classmethod
    def load(cls, source: str | Path, *, config: Any = None, **settings: Any) -> Self:
        """From whatever `load_model` takes: a run, a folder of ours, timm's or Hugging Face's, a hub name, or, with
        `config`, a weights file. `settings` are those of the class."""
        dtype = settings.get("dtype", "fp32")
        kind = dtype if isinstance(dtype, torch.dtype) else TORCH_DTYPES.get(dtype)
        return cls(load_model(source, config=config, dtype=kind), **settings)

    @property
    def num_classes(self) -> int:
        return len(self.labels)

    def classify(
        self,
        pictures: Pictures,
        *,
        top_k: int = 5,
        views: Sequence[str] = (),
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> list[Prediction]:
        """What each picture shows, in the order given. One that cannot be read has its reason in `error`. `views` are
        looked at too, and the mean of all answers counts: 'flip', 'crops' or both."""
        self.require_classes()
        if top_k < 1:
            raise UsageError(expected("top_k", "a number from 1", top_k), where="classify")
        given = find_pictures(pictures)
        answers: list[Prediction | None] = [None] * len(given)
        for places, found in self.ask_probabilities(given, views=views, batch_size=batch_size, progress=progress):
            if isinstance(found, str):
                answers[places[0]] = Prediction(given[places[0]].name, error=found)
                continue
            names = [given[place].name for place in places]
            for place, told in zip(places, predictions(names, found, self.labels, top_k=top_k), strict=True):
                answers[place] = told
        return [told for told in answers if told is not None]

    def features(
        self,
        pictures: Pictures,
        *,
        layers: int | Sequence[int] | None = -1,
        tokens: Tokens = "pooled",
        norm: bool = True,
        dtype: torch.dtype = torch.float32,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Features:
        """What the model makes of each picture before it names classes, in the order given; those that cannot be read
        are in `bad`. A folder of class folders, or a data set's name, brings labels.

        `layers` are numbers (negative ones count from the end) or None for all. `tokens`: `pooled` as for the model's
        head, `cls`, `mean` of the patches, `patch` (N, D), `map` (D, h, w) or `all` tokens. `norm`: after the model's
        last norm, wherever it fits; every feature's name says whether it does. `dtype` is what they are kept in."""
        return features_of(
            self,
            pictures,
            layers=layers,
            tokens=tokens,
            norm=norm,
            dtype=dtype,
            batch_size=batch_size,
            progress=progress,
        )

    def logits(self, images: Tensor) -> Tensor:
        """(B, K), for images that are prepared, as in evaluation whatever mode the model was put into meanwhile."""
        with in_mode(self.model, training=False):
            return self._forward(images)

    def probabilities(self, images: Tensor) -> Tensor:
        """(B, K) in float32, for images that are prepared."""
        return (self.logits(images).float() / self.temperature).softmax(-1)

    def ask_probabilities(
        self,
        given: Sequence[Given],
        *,
        views: Sequence[str] = (),
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[list[int], Tensor | str]]:
        """`ask`, for the probabilities of the classes (B, K), as a mean over `views` where there are some."""
        if not views:
            yield from self.ask(given, self.probabilities, batch_size=batch_size, progress=progress)
            return
        prepare = prepare_views(self.preprocessing, views)

        def mean_of_views(images: Tensor) -> Tensor:
            return self.probabilities(images.flatten(0, 1)).unflatten(0, images.shape[:2]).mean(1)

        yield from self.ask(given, mean_of_views, prepare=prepare, batch_size=batch_size, progress=progress)

    def ask(
        self,
        given: Sequence[Given],
        question: Ask,
        *,
        prepare: Prepare | None = None,
        batch_size: int | None = None,
        progress: Progress | None = None,
    ) -> Iterator[tuple[list[int], Tensor | str]]:
        """`question` of every picture, batch by batch: the pictures' places and what came of them; or one place and
        why it could not be read. Where memory runs out a batch goes in parts."""
        at_once, done = self.batch_size if batch_size is None else batch_size, 0
        if at_once < 1:
            raise UsageError(expected("batch_size", "a number from 1", at_once), where="Predictor")
        prepare = prepare or prepare_for(self.preprocessing)
        for batch in stream(given, prepare, batch_size=at_once, threads=self.threads):
            for place, reason in batch.errors.items():
                yield [place], reason
            start = 0
            while start < len(batch.images):
                end = start + at_once
                found = self._attempt(question, batch.images[start:end])
                if isinstance(found, Tensor):
                    yield batch.places[start:end], found
                    start = end
                else:
                    at_once = self._fewer(min(at_once, len(batch.images) - start), found)
            done += len(batch.places) + len(batch.errors)
            if progress is not None:
                progress(done, len(given))

    @torch.inference_mode()
    def _attempt(self, question: Ask, images: Sequence[Tensor]) -> Tensor | str:
        """The answers, or what was said when memory ran out: an error under way would keep what it passed through."""
        try:
            with in_mode(self.model, training=False):
                return question(stacked(images, self.preprocessing, self.device, self.dtype))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            return str(error).partition("\n")[0]

    def _fewer(self, count: int, said: str) -> int:
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        if count == 1:
            raise VitscopeError(
                f"not even one picture fits into the memory of {self.device}",
                where=said,
                fix="take a smaller model or another device, or dtype='bf16'",
            )
        if self.launch != "eager":  # which fills batches up to one size
            self._forward = launched(self.model, self.launch, device=self.device, batch_size=count // 2)
        return count // 2

    def attention(self, picture: Pictures, *, layers: int | Sequence[int] | None = None) -> AttentionMaps:
        """The true attention weights of one picture, of all layers or some (negative ones count from the end).
        `explain` makes maps of them."""
        from vitscope.infer.explain.attention import attention_of  # it asks predictors itself

        return attention_of(self, picture, layers=layers)

    def require_classes(self) -> None:
        if not self.labels:
            raise UsageError(
                "the model has no classes",
                where=f"{type(self.model).__name__} without a head",
                fix="give a classifier; `features` takes any model",
            )


def preprocessing_of(model: VisionModel) -> PreprocessConfig:
    """What its pictures must go through, at the size it now has; by default pixels from -1 to 1."""
    config = model.encoder.config if isinstance(model, MaskedModel) else model.config
    return fitted_preprocessing(model.preprocessing, config) or half_normalised(pair(config.img_size), config.in_chans)


def _labels_of(model: VisionModel) -> list[str]:
    count = 0 if isinstance(model, MaskedModel) else model.num_classes
    return list(model.labels) if model.labels and count else [str(number) for number in range(count)]

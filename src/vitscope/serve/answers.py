"""What becomes of one picture: decoded as `vitscope predict` does, looked at with others, told."""

from __future__ import annotations

import io
from collections.abc import Sequence

import torch
from PIL import Image
from torch import Tensor

from vitscope.core.errors import InputError, VitscopeError
from vitscope.data.decode import BadImageError, NoRoomError, TooManyPixelsError, decode_image, stored_pixels
from vitscope.infer.pictures import Given
from vitscope.infer.predictor import Ask, Predictor
from vitscope.infer.stream import prepare_for, stacked
from vitscope.serve.batcher import LOOK
from vitscope.serve.kinds import NAMES, is_known
from vitscope.serve.overlay import LARGEST, Wish, draw_overlay
from vitscope.serve.refusal import Refusal
from vitscope.serve.uploads import Upload
from vitscope.train.memory import is_out_of_memory

WHOLE = "send the whole file, as it opens in a program that shows pictures"
OTHER = "send another value, or leave it out"


class Answers:
    """The work on pictures, free of HTTP: every method may be called from any thread, those of the model from one."""

    def __init__(self, predictor: Predictor, *, pixel_limit: int) -> None:
        self.predictor, self.pixel_limit = predictor, pixel_limit
        self._prepare = prepare_for(predictor.preprocessing, pixel_limit=pixel_limit)

    def pixels(self, upload: Upload) -> int:
        """How many it has, by its head alone. Raises Refusal."""
        try:
            return stored_pixels(self._known(upload), pixel_limit=self.pixel_limit)
        except BadImageError as error:
            raise _refused(error) from None

    def prepare(self, upload: Upload) -> Tensor:
        """(C, H, W) of uint8: the same pixels `predict` and evaluation show the model. Raises Refusal."""
        try:
            return self._prepare(Given(upload.name, self._known(upload)))
        except BadImageError as error:
            raise _refused(error) from None

    def picture(self, upload: Upload) -> Image.Image:
        """To draw on, so not larger than is sensible."""
        try:
            picture = decode_image(self._known(upload), pixel_limit=self.pixel_limit)
        except BadImageError as error:
            raise _refused(error) from None
        shrink = (LARGEST / (picture.width * picture.height)) ** 0.5
        if shrink < 1:
            size = (max(1, round(picture.width * shrink)), max(1, round(picture.height * shrink)))
            picture = picture.resize(size, Image.Resampling.BICUBIC, reducing_gap=3.0)
        return picture

    def ask(self, question: Ask, images: Sequence[Tensor]) -> Sequence[Tensor]:
        """An answer for each. Where memory runs out, the batch goes in halves."""
        answered = self._attempt(question, images)
        if answered is not None:
            return answered
        if self.predictor.device.type == "cuda":
            torch.cuda.empty_cache()
        half = len(images) // 2
        return [*self.ask(question, images[:half]), *self.ask(question, images[half:])]

    def draw(self, asked: Sequence[tuple[Image.Image, Wish]]) -> list[bytes | Refusal]:
        """A PNG of each picture."""
        return [self._drawn(picture, wish) for picture, wish in asked]

    @torch.inference_mode()
    def _attempt(self, question: Ask, images: Sequence[Tensor]) -> Sequence[Tensor] | None:
        predictor = self.predictor
        try:
            found = question(stacked(images, predictor.preprocessing, predictor.device, predictor.dtype))
            return found.float().cpu().unbind()
        except (RuntimeError, MemoryError) as error:
            if len(images) == 1 or not is_out_of_memory(error):
                raise
            return None

    def _drawn(self, picture: Image.Image, wish: Wish) -> bytes | Refusal:
        try:
            drawn = draw_overlay(self.predictor, picture, wish)
        except InputError as error:
            return Refusal(400, error.what, fix=error.fix or OTHER)
        except VitscopeError as error:
            return Refusal(500, error.what, fix=error.fix or LOOK)
        file = io.BytesIO()
        drawn.save(file, "PNG", compress_level=1)
        return file.getvalue()

    def _known(self, upload: Upload) -> bytes | memoryview:
        if not len(upload.content):
            raise Refusal(400, "an empty file (0 bytes)", fix=WHOLE)
        if not is_known(upload.content):
            raise Refusal(415, f"not a picture this server reads: {NAMES}", fix="save it as one of these")
        return upload.content


def no_memory(what: str) -> Refusal:
    """It may be there again soon."""
    return Refusal(503, what, fix="try again after the seconds in Retry-After", retry_after_s=1)


def _refused(error: BadImageError) -> Refusal:
    """Too many pixels is one thing, a damaged file another, and neither is a server without memory."""
    if isinstance(error, NoRoomError):
        return no_memory(error.what)
    if isinstance(error, TooManyPixelsError):
        return Refusal(413, error.what, fix="send it smaller, or start the server with a larger --max-megapixels")
    return Refusal(400, error.what, fix=error.fix or WHOLE)

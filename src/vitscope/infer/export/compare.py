"""Is what a file says what torch says? The same photographs through both, in batches of one, two and seven."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from statistics import median

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.errors import DataError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.data.decode import bad_image
from vitscope.infer.pictures import Pictures, find_pictures
from vitscope.infer.stream import prepare_for

BATCHES = (1, 2, 7)
MOST = 100
"""Pictures of the caller's own that are looked at."""
ALLOWED = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}
"""How far an answer may be off, as a share of the largest one."""
TIE = 1e-5
"""The same share: two classes so near to each other are a tie, which rounding may decide either way."""
WINDOWS = ((0, 0, 1, 1), (0, 0, 0.6, 0.8), (0.4, 0, 1, 0.8), (0, 0.2, 0.6, 1), (0.4, 0.2, 1, 1))
"""Left, top, right and bottom of parts of a photograph, each another picture."""
ROUNDS, SECONDS = 5, 1.0

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Comparison:
    """The file beside torch in fp32."""

    pictures: int
    batches: tuple[int, ...]
    largest_difference: float
    largest_output: float
    allowed: float
    """How large the difference may be, as a share of the largest output."""
    same_top1: int | None
    """Of how many pictures the first class is the same; None where there are no classes."""
    torch_ms: float
    """For one picture alone, the median of a few rounds. Informative: nothing depends on it."""
    file_ms: float

    @property
    def difference(self) -> float:
        """As a share of the largest output."""
        return self.largest_difference / self.largest_output if self.largest_output else self.largest_difference


def photographs(config: PreprocessConfig) -> list[Tensor]:
    """Ten pictures (C, H, W) of uint8: parts of two photographs, prepared as the model's own are."""
    from vitscope.data.photographs import BUILTIN_PICTURES, builtin_picture
    from vitscope.data.preprocess import to_pixels

    readable = config.in_chans in (1, 3)
    seen = config if readable else updated(config, in_chans=1, mean=config.mean[:1], std=config.std[:1])
    found = []
    for left, top, right, bottom in WINDOWS:
        for name in BUILTIN_PICTURES:
            whole = builtin_picture(name)
            across, down = whole.size
            part = whole.crop((round(left * across), round(top * down), round(right * across), round(bottom * down)))
            pixels = to_pixels(part, seen)
            found.append(pixels if readable else pixels.repeat(config.in_chans, 1, 1))
    return found


def own_pictures(
    pictures: Pictures, config: PreprocessConfig, *, say: Callable[[str], None] = lambda text: None
) -> list[Tensor]:
    """The first hundred of the caller's that can be read, as pixels. `say` is told of the others."""
    prepare, found, bad = prepare_for(config), [], None
    for given in find_pictures(pictures):
        if len(found) == MOST:
            break
        try:
            pixels = prepare(given)
        except Exception as error:
            bad = DataError(
                f"none of the pictures can be compared with: {bad_image(error).what}",
                where=given.name,
                fix="give other pictures, or none: photographs of our own are taken",
            )
            say(f"left out: {given.name or 'a picture'}: {bad_image(error).what}")
            continue
        if pixels.dtype != torch.uint8:
            raise DataError(
                "a picture to compare with has been prepared already",
                where="export_model(..., pictures=...)",
                fix="give files, pictures or tensors of uint8",
            )
        found.append(pixels)
    if not found:
        raise bad or DataError(
            "there are no pictures to compare with",
            where="export_model(..., pictures=...)",
            fix="leave them out: photographs of our own are taken",
        )
    return found


def compare(
    by_torch: Run,
    by_file: Run,
    pixels: Sequence[Tensor],
    prepare: Run,
    *,
    takes_pixels: bool,
    allowed: float,
    top1: bool,
) -> Comparison:
    """`prepare` makes of pixels (B, C, H, W) what torch's model reads; the file reads that, or the pixels."""
    difference, largest, same, sizes = 0.0, 0.0, 0, []
    for batch in _batches(pixels):
        images = prepare(batch)
        wanted = by_torch(images)
        found = by_file(batch if takes_pixels else images)
        _refuse_shape(found, wanted)
        if not wanted.isfinite().all():
            raise VitscopeError(
                "the model's own answers are not finite numbers",
                where="torch in fp32, before anything was exported",
                fix="look at its weights: `vitscope convert` counts those that are not finite",
            )
        off = (found - wanted).abs().max().item()
        difference = math.inf if math.isnan(off) else max(difference, off)
        largest = max(largest, wanted.abs().max().item())
        same += _same_top1(found, wanted)
        sizes.append(len(batch))
    first = prepare(pixels[0][None])
    torch_ms, file_ms = _timed(lambda: by_torch(first), lambda: by_file(pixels[0][None] if takes_pixels else first))
    return Comparison(
        pictures=sum(sizes),
        batches=tuple(sorted(set(sizes))),
        largest_difference=difference,
        largest_output=largest,
        allowed=allowed,
        same_top1=same if top1 else None,
        torch_ms=torch_ms,
        file_ms=file_ms,
    )


def refuse_mismatch(found: Comparison, *, exact: bool, runtime: str) -> None:
    """`exact`: whether the first class must be the same, too. In half precision a close race may end otherwise."""
    if not found.difference <= found.allowed:  # NaN is not, either
        raise VitscopeError(
            f"the file does not say what the model says: answers differ by {found.largest_difference:.2g}, and reach "
            f"{found.largest_output:.3g}; {found.allowed:g} of that is allowed",
            where=f"{runtime} beside torch {torch.__version__} on {found.pictures} pictures; nothing was written",
            fix="take --dtype fp32" if not exact else "try another --opset or --format, or another version of torch",
        )
    if exact and found.same_top1 is not None and found.same_top1 < found.pictures:
        raise VitscopeError(
            f"the file names another first class for {found.pictures - found.same_top1} of {found.pictures} pictures",
            where=f"{runtime} beside torch {torch.__version__}; nothing was written",
            fix="try another --opset or --format, or another version of torch",
        )


def _batches(pixels: Sequence[Tensor]) -> Iterator[Tensor]:
    """All pictures, and each size at least once: few pictures come again."""
    endless, left = cycle(pixels), len(pixels)
    sizes: list[int] = list(BATCHES)
    while left > sum(sizes):
        sizes.append(min(max(BATCHES), left - sum(sizes)))
    for size in sizes:
        yield torch.stack(list(islice(endless, size)))


def _same_top1(found: Tensor, wanted: Tensor) -> int:
    chosen = found.nan_to_num().argmax(-1, keepdim=True)
    lead = wanted.amax(-1) - wanted.gather(-1, chosen).squeeze(-1)
    return int((lead <= TIE * wanted.abs().max()).sum())


def _refuse_shape(found: Tensor, wanted: Tensor) -> None:
    if found.shape != wanted.shape:
        raise VitscopeError(
            f"the file answers with {tuple(found.shape)} where the model answers with {tuple(wanted.shape)}",
            where="nothing was written",
            fix="try another --opset or --format, or another version of torch",
        )


def _timed(*asked: Callable[[], object]) -> list[float]:
    """Milliseconds of each, in turns, so that a busy machine is busy for all."""
    spent: list[list[float]] = [[] for _ in asked]
    begun = time.perf_counter()
    for _ in range(ROUNDS):
        for ask, times in zip(asked, spent, strict=True):
            start = time.perf_counter()
            ask()
            times.append(1000 * (time.perf_counter() - start))
        if time.perf_counter() - begun > SECONDS:
            break
    return [median(times) for times in spent]

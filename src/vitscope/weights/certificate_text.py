"""A certificate as a person reads it: what came from where, in lines that fit a terminal of 80 columns."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from vitscope.weights.certificate import Certificate, Entry, Proof, Written

MEANINGS = {
    "matched": "same name, same numbers",
    "renamed": "other name, same numbers",
    "transformed": "same numbers in another order or shape",
    "resampled": "other numbers, computed from the source's",
    "new": "begins anew",
    "missing": "not in the source, begins anew",
    "left out": "in the source, has no place here",
    "unexpected": "in the source, unknown here",
}
STORED = ("matched", "renamed", "transformed")
"""Whose numbers are the source's, but for a cast."""
MOST_ROWS = 12
"""Of one fate; certificate.json has them all."""
MOST_SUMMARISED = 6
SHORT_HASH = 12


def lines_of(certificate: Certificate, width: int = 80) -> list[str]:
    lines: list[str] = []
    for word, text in _head(certificate):
        lines += _wrapped(f"{word:<14}", text, width)
    lines += ["", *_counts(certificate, width)]
    for fate in ("transformed", "resampled", "new", "missing", "left out", "unexpected"):
        entries = certificate.of(fate)  # pyright: ignore[reportArgumentType]
        if entries:
            lines += ["", *_wrapped("", f"{fate}: {MEANINGS[fate]}", width)]
            lines += _kinds(entries, width) if fate == "transformed" else _rows(entries, width)
    lines += ["", *_wrapped("preprocessing ", _preprocessing(certificate.preprocessing), width)]
    for warning in certificate.warnings:
        lines += _wrapped("warning       ", warning, width)
    for remark in certificate.remarks:
        lines += _wrapped("remark        ", remark, width)
    if certificate.proof is not None:
        lines += _wrapped("proof         ", _proof(certificate.proof), width)
    if certificate.written is not None:
        lines += ["", *_written(certificate.written, width)]
    return lines


def _head(certificate: Certificate) -> Iterable[tuple[str, str]]:
    yield "source", certificate.source
    yield "format", certificate.format
    for name, digest in certificate.sha256.items():
        yield "sha256", f"{digest[:SHORT_HASH]}...  {name}"
    yield "numbers", f"{certificate.numbers:,}{f' of {certificate.dtype}' if certificate.dtype else ''}"
    whole, backbone = certificate.covered, certificate.backbone_covered
    yield "covered", f"{percent(whole)} of them by the source; {percent(backbone)} of the backbone"


def percent(share: float) -> str:
    """Never '100 %' for less."""
    return "100 %" if share == 1 else f"{min(100 * share, 99.99):.2f} %"


def _counts(certificate: Certificate, width: int) -> list[str]:
    lines = _wrapped(f"{'tensors':>8}  {'numbers':>13}  ", "what became of them", width)
    for fate, meaning in MEANINGS.items():
        entries = certificate.of(fate)  # pyright: ignore[reportArgumentType]
        if entries:
            # What has no place here has no numbers here.
            size = "" if fate in ("left out", "unexpected") else f"{sum(entry.size for entry in entries):,}"
            cast = f", then cast to {certificate.cast}" if certificate.cast and fate in STORED else ""
            lines += _wrapped(f"{len(entries):>8,}  {size:>13}  ", f"{fate}: {meaning}{cast}", width)
    return lines


def _kinds(entries: list[Entry], width: int) -> list[str]:
    """By what happened to them: a model has the same layers many times over."""
    kinds: dict[str, list[Entry]] = {}
    for entry in entries:
        kinds.setdefault(entry.how, []).append(entry)
    lines: list[str] = []
    for how, same in list(kinds.items())[:MOST_SUMMARISED]:
        first = same[0]
        more = f" and {len(same) - 1:,} more" if len(same) > 1 else ""
        lines += _wrapped("  ", f"{first.ours} {_from(first)}{more}: {how}", width)
    if len(kinds) > MOST_SUMMARISED:
        lines.append(f"  and {len(kinds) - MOST_SUMMARISED:,} kinds more")
    return lines


def _rows(entries: list[Entry], width: int) -> list[str]:
    lines: list[str] = []
    for entry in entries[:MOST_ROWS]:
        if entry.ours is None:
            shapes = " ".join(map(_shape, entry.their_shapes))
            text = f"{', '.join(entry.theirs)} {shapes}"
        else:
            text = f"{entry.ours} {_shape(entry.shape)}"
            if entry.their_shapes:
                text += f" from {' '.join(map(_shape, entry.their_shapes))}"
        lines += _wrapped("  ", f"{text}{f': {entry.how}' if entry.how else ''}", width)
    if len(entries) > MOST_ROWS:
        lines.append(f"  and {len(entries) - MOST_ROWS:,} more")
    return lines


def _from(entry: Entry) -> str:
    theirs = ", ".join(f"{name} {_shape(shape)}" for name, shape in zip(entry.theirs, entry.their_shapes, strict=False))
    return f"{_shape(entry.shape)} from {theirs}"


def _shape(shape: tuple[int, ...] | None) -> str:
    return "x".join(map(str, shape)) if shape else "()"


def _preprocessing(settings: Mapping[str, Any] | None) -> str:
    if settings is None:
        return "the source does not say; mean and std 0.5 are taken where nothing else is given"
    told = {key: value for key, value in settings.items() if key != "img_size"}
    size = " x ".join(map(str, settings["img_size"])) if "img_size" in settings else "?"
    words = [f"{key} {' '.join(f'{v:g}' for v in value) if isinstance(value, list | tuple) else value}"
             for key, value in told.items()]  # fmt: skip
    return f"{size}, {', '.join(words)}"


def _proof(proof: Proof) -> str:
    difference = f"largest difference {proof.largest_difference:.2g} of {proof.largest_output:.3g}"
    return f"{proof.library}: {difference}, {proof.pictures}"


def _written(written: Written, width: int) -> list[str]:
    lines = _wrapped("written       ", f"{written.format}, {written.place}", width)
    for name, digest in written.sha256.items():
        lines += _wrapped("sha256        ", f"{digest[:SHORT_HASH]}...  {name}", width)
    same = f"{written.same:,} of {written.tensors:,} tensors are the same bit for bit"
    if written.largest_difference is not None:
        same += f"; the largest difference of any output is {written.largest_difference:.2g}"
    lines += _wrapped("read again    ", same, width)
    if written.lost:
        shown = ", ".join(written.lost[:MOST_ROWS])
        more = f" and {len(written.lost) - MOST_ROWS:,} more" if len(written.lost) > MOST_ROWS else ""
        lines += _wrapped("not the same  ", f"{shown}{more}", width)
    for remark in written.remarks:
        lines += _wrapped("remark        ", remark, width)
    if written.proof is not None:
        lines += _wrapped("proof         ", _proof(written.proof), width)
    return lines


def _wrapped(first: str, text: str, width: int) -> list[str]:
    """`text` behind `first`, its further lines below its beginning. Long names and paths are broken, never cut."""
    room = max(width - len(first), 12)
    parts = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    return [(first if number == 0 else " " * len(first)) + part for number, part in enumerate(parts)]

"""What became of every tensor when a model was loaded or converted: the proof that nothing was lost in silence."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from vitscope.weights.bounds import Shape
from vitscope.weights.certificate_text import lines_of

Fate = Literal["matched", "renamed", "transformed", "resampled", "new", "missing", "left out", "unexpected"]
"""What became of a tensor.

matched: same name, same numbers; renamed: same numbers; transformed: other order or shape, said how;
resampled: other numbers, said how; new: begins anew; missing: ours, not in the source;
left out: theirs, has no place here, said why; unexpected: theirs, unknown.
"""
FATES: tuple[Fate, ...] = (
    "matched", "renamed", "transformed", "resampled", "new", "missing", "left out", "unexpected",
)  # fmt: skip
COVERED: tuple[Fate, ...] = ("matched", "renamed", "transformed", "resampled")
MOST_DIFFERENCE = 1e-5
"""Of any output, as a share of the largest, between two that say the same."""


@dataclass(frozen=True)
class Entry:
    """One tensor's fate."""

    fate: Fate
    ours: str | None
    """Its name here; None where it has no place here."""
    shape: Shape | None
    """Its shape here."""
    theirs: tuple[str, ...] = ()
    """The names of the source's tensors it comes from."""
    their_shapes: tuple[Shape, ...] = ()
    how: str = ""
    """What happened to the numbers, or why it was left out."""
    in_head: bool = False
    """Whether it belongs to the classifier, which may begin anew."""

    @property
    def size(self) -> int:
        return 0 if self.shape is None else math.prod(self.shape)


@dataclass(frozen=True)
class Proof:
    """The model and the library its weights come from, side by side on the same pictures."""

    library: str
    """Name and version."""
    pictures: str
    largest_difference: float
    """Of any output, in absolute numbers."""
    largest_output: float
    """What to compare it with."""

    @property
    def is_close(self) -> bool:
        """Whether they say the same, as far as fp32 can tell. NaN is never close."""
        return self.largest_difference <= MOST_DIFFERENCE * max(1.0, self.largest_output)


@dataclass(frozen=True)
class Written:
    """What was written from the model, opened again and compared with it."""

    format: str
    place: str
    """The name of the folder or file."""
    sha256: Mapping[str, str]
    tensors: int
    """How many the model has."""
    same: int
    """How many of them came back bit for bit."""
    lost: tuple[str, ...] = ()
    """Those that did not: the format folds them into others or has no place for them."""
    largest_difference: float | None = None
    """Of any output, between the model and what was read again; nothing where all came back."""
    remarks: tuple[str, ...] = ()
    proof: Proof | None = None
    """The model beside the library the files are for."""


@dataclass(frozen=True, repr=False)
class Certificate:
    """What a load did, tensor by tensor."""

    source: str
    format: str
    """Whose names the source's tensors have."""
    sha256: Mapping[str, str]
    """Of each file read, by its name."""
    entries: tuple[Entry, ...]
    preprocessing: Mapping[str, Any] | None = None
    """What pictures must go through, at the size the model now has; nothing where the source does not say."""
    dtype: str | None = None
    """Of the model's numbers: float32, bfloat16 ..."""
    remarks: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    """Remarks a person must be told of, and that `strict` refuses; of tensors, their entries tell."""
    proof: Proof | None = None
    written: Written | None = None
    """What became of it, where it was converted."""
    cast: str | None = None
    """The type all numbers were rounded to after they were read; nothing where they are as they were stored."""

    def of(self, *fates: Fate) -> list[Entry]:
        return [entry for entry in self.entries if entry.fate in fates]

    @property
    def numbers(self) -> int:
        """In the model's tensors: parameters, and buffers that are saved with them."""
        return sum(entry.size for entry in self.entries)

    @property
    def covered(self) -> float:
        """Share of the model's numbers that come from the source."""
        return _share(self.entries)

    @property
    def backbone_covered(self) -> float:
        """The same without the classifier."""
        return _share([entry for entry in self.entries if not entry.in_head])

    @property
    def is_whole(self) -> bool:
        """Whether the backbone is all there, and nothing unknown was left."""
        return not [e for e in self.of("missing") if not e.in_head] and not self.of("unexpected")

    @property
    def has_new_head(self) -> bool:
        """Whether the classifier begins anew: the weights come from another task."""
        return any(entry.in_head for entry in self.of("new"))

    @property
    def summary(self) -> str:
        """In one line: how many tensors, what became of them, how much of the model is the source's."""
        counts = ", ".join(f"{len(self.of(fate))} {fate}" for fate in FATES if self.of(fate))
        ours = sum(entry.ours is not None for entry in self.entries)
        return f"{ours} tensors, {100 * self.backbone_covered:.4g} % of the backbone from the source: {counts}"

    def with_proof(self, proof: Proof | None) -> Certificate:
        return replace(self, proof=proof)

    def with_remarks(self, *remarks: str) -> Certificate:
        return replace(self, remarks=(*self.remarks, *remarks))

    def with_warnings(self, *warnings: str) -> Certificate:
        return replace(self, warnings=(*self.warnings, *warnings))

    def with_dtype(self, dtype: str, *remarks: str) -> Certificate:
        return replace(self, dtype=dtype, cast=dtype).with_remarks(*remarks)

    def with_written(self, written: Written) -> Certificate:
        return replace(self, written=written)

    def lines(self, width: int = 80) -> list[str]:
        """What a person wants to know of it, in lines no wider than `width`."""
        return lines_of(self, width)

    def __repr__(self) -> str:
        return f"Certificate({self.source!r}: {self.summary})"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def to_dict(self) -> dict[str, Any]:
        """Everything, for certificate.json."""
        counts = {fate: len(self.of(fate)) for fate in FATES}
        summary = {
            "numbers": self.numbers,
            "covered_percent": 100 * self.covered,
            "backbone_covered_percent": 100 * self.backbone_covered,
        }
        return {
            "source": self.source,
            "format": self.format,
            "sha256": dict(self.sha256),
            **summary,
            "tensors": counts,
            "dtype": self.dtype,
            "cast": self.cast,
            "preprocessing": self.preprocessing,
            "remarks": list(self.remarks),
            "warnings": list(self.warnings),
            "proof": None if self.proof is None else asdict(self.proof),
            "written": None if self.written is None else asdict(self.written),
            "entries": [_told(entry) for entry in self.entries],
        }


@dataclass
class Ledger:
    """Where entries are gathered while a model is loaded. The last word about one of our tensors counts."""

    said: dict[str, Entry] = field(default_factory=dict)
    others: list[Entry] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    cast: str | None = None
    """The type all were cast to, where the source mixes several."""

    def add(self, entry: Entry) -> None:
        if entry.ours is None:
            self.others.append(entry)
        else:
            self.said[entry.ours] = entry

    def change(self, change: Entry) -> None:
        """Add what happened to a tensor after it was read: where it comes from stays known."""
        before = self.said.get(change.ours or "")
        if before is None or change.fate == "new":
            self.add(change)
        elif change.fate == "left out" and not before.theirs:  # neither here nor there
            del self.said[str(before.ours)]
        elif change.fate == "left out":  # it has no place here any more
            self.add(replace(change, ours=None, theirs=before.theirs, their_shapes=before.their_shapes))
        elif before.fate in ("missing", "new"):  # numbers that did not come from the source are not resampled from it
            self.add(replace(before, shape=change.shape))
        else:
            how = f"{before.how}; {change.how}" if before.how else change.how
            self.add(replace(before, fate=change.fate, shape=change.shape, how=how))

    def entries(self, order: Iterable[str]) -> tuple[Entry, ...]:
        """In the model's own order, then what has no place in it."""
        ours = [self.said[name] for name in order if name in self.said]
        return (*ours, *self.others)


def _share(entries: Iterable[Entry]) -> float:
    entries = list(entries)
    whole = sum(entry.size for entry in entries)
    return sum(entry.size for entry in entries if entry.fate in COVERED) / whole if whole else 1.0


def _told(entry: Entry) -> dict[str, Any]:
    """What there is to say of it, and nothing more."""
    return {key: value for key, value in asdict(entry).items() if key != "in_head" and value not in ("", None, ())}

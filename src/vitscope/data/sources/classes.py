"""What all sources share: numbering their classes, checking their parts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from vitscope.core.errors import DataError
from vitscope.data.splits import TRAIN, part_called


def number_classes(
    values: np.ndarray | Sequence[str], names: Sequence[str] | None = None
) -> tuple[np.ndarray, tuple[str, ...], list[str]]:
    """Labels as numbers from 0, the classes' names, and notes on what was changed.

    Texts are numbered in sorted order. Numbers stay as they are where they run from 0 without gaps or come with
    `names`; otherwise they are numbered in rising order, and their names tell what they were. Negative numbers are no
    classes and stay negative.

    >>> number_classes(np.array([3, 1, 3]))[:2]
    (array([1, 0, 1]), ('1', '3'))
    """
    values = np.asarray(values)
    if values.dtype.kind in "US":
        texts = [value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value for value in values]
        known = sorted(set(texts))
        number_of = {text: number for number, text in enumerate(known)}
        return np.array([number_of[text] for text in texts], dtype=np.int64), tuple(known), []
    if names is not None:
        return values.astype(np.int64), tuple(names), []
    found, labels = np.unique(values, return_inverse=True)
    if len(found) and found[0] < 0:  # mostly means "unknown": the source refuses them and says where they are
        return values.astype(np.int64), tuple(str(number) for number in range(int(found[-1]) + 1)), []
    notes = []
    if not np.array_equal(found, np.arange(len(found))):
        notes.append(
            f"labels do not run from 0 without gaps ({_shortly(found)}): the {len(found)} classes are numbered 0 to"
            f" {len(found) - 1} in rising order and named as in the file"
        )
    return labels.astype(np.int64), tuple(str(int(number)) for number in found), notes


def check_parts(
    parts: Mapping[str, np.ndarray], labels: np.ndarray, class_names: Sequence[str], place: str
) -> dict[str, np.ndarray]:
    """The parts that hold pictures; none where all is one pool. What is tested must have been trained (rule D4)."""
    filled = {name: numbers for name, numbers in parts.items() if len(numbers)}
    if len(filled) == 1 and len(next(iter(filled.values()))) == len(labels):
        return {}
    train = next((name for name in filled if part_called(name) == TRAIN), None)
    if train is None or labels.min() < 0 or labels.max() >= len(class_names):  # Source refuses such labels itself
        return filled
    learned = set(np.unique(labels[filled[train]]).tolist())
    for name, numbers in filled.items():
        missing = [str(class_names[label]) for label in np.unique(labels[numbers]) if int(label) not in learned]
        if missing and part_called(name) is not None:
            more = f" and {len(missing) - 5} more" if len(missing) > 5 else ""
            words = ", ".join(map(repr, missing[:5])) + more
            raise DataError(
                f"{'classes' if len(missing) > 1 else 'class'} in '{name}' without a picture in '{train}': {words}",
                where=place,
                fix=f"add pictures of it to '{train}', or take it out of '{name}'",
            )
    return filled


def _shortly(numbers: np.ndarray) -> str:
    shown = [str(int(number)) for number in numbers]
    return ", ".join(shown) if len(shown) <= 6 else ", ".join([*shown[:3], "...", shown[-1]])

"""Whose classes are whose: a model's and a data set's, by name where both have names, by number elsewhere."""

from __future__ import annotations

from collections.abc import Sequence

from vitscope.core.errors import DataError

TRAIN_ON_THESE = "give data with the model's classes, or train on these: `vitscope train --from MODEL --data NAME`"


def class_order(labels: Sequence[str] | None, names: Sequence[str], num_classes: int, *, where: str) -> list[int]:
    """For each class of the data, its number in the model. Names decide where both have names, numbers elsewhere."""
    if len(names) != num_classes:
        raise DataError(
            f"the model tells {num_classes:,} classes apart, the data have {len(names):,}",
            where=where,
            fix=TRAIN_ON_THESE,
        )
    numbers = list(range(num_classes))
    if labels is None or list(labels) == list(names):
        return numbers
    if sorted(labels) == sorted(names) and len({*names}) == num_classes:
        return [list(labels).index(name) for name in names]
    if are_numbers(labels) or are_numbers(names):  # nobody gave them names
        return numbers
    strange = [name for name in names if name not in labels] or list(names)
    known = ", ".join(labels[:5]) + (", ..." if num_classes > 5 else "")
    raise DataError(
        f"the classes are others: the model does not know '{strange[0]}'",
        where=f"{where}; the model's are {known}",
        fix=TRAIN_ON_THESE,
    )


def said_of_numbers(labels: Sequence[str] | None, names: Sequence[str], *, whose: str = "the model") -> str | None:
    """The warning where only one side has names, so that numbers had to decide; None where nothing is in doubt."""
    if sorted(names) == sorted(labels or ()) or (labels is None and are_numbers(names)):
        return None
    if labels is not None and not are_numbers(labels) and not are_numbers(names):
        return None
    own = "does not name its classes" if labels is None else f"calls its classes {_first(labels)}"
    return (
        f"warning: {whose} {own}, the data call theirs {_first(names)}: they are matched by number; "
        "make sure they are the same classes in the same order"
    )


def are_numbers(names: Sequence[str]) -> bool:
    """Whether classes are called by their numbers, which says nothing about what they are."""
    return list(names) == [str(number) for number in range(len(names))]


def _first(names: Sequence[str]) -> str:
    return ", ".join(f"'{name}'" for name in names[:2]) + ", ..." * (len(names) > 2)

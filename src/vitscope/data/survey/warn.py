"""What a person should know before training on a data set, in plain words, worst first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from vitscope.data.dataset import Dataset
from vitscope.data.splits import PARTS, TRAIN
from vitscope.data.survey.survey import Survey

MOST_IMBALANCE = 3.0
"""Largest class / smallest class from which a warning is given."""
_NAMED = 5


def warnings_of(dataset: Dataset, survey: Survey) -> list[str]:
    counts = {part: np.array(survey.counts[part]) for part in PARTS}
    return [
        *_about_classes(dataset.class_names, counts),
        *_about_bad(survey, dataset.config.bad_limit),
        *_about_copies(survey),
        *_about_balance(dataset.class_names, counts[TRAIN]),
        *([f"{len(survey.plain):,} pictures of a single colour: {survey.plain[0].where}, ..."] if survey.plain else []),
    ]


def imbalance(counts: np.ndarray) -> float | None:
    """Largest class / smallest that has any pictures; None for fewer than two such."""
    some = counts[counts > 0]
    return float(some.max() / some.min()) if len(some) > 1 else None


def _about_classes(names: Sequence[str], counts: dict[str, np.ndarray]) -> list[str]:
    told = []
    if len(names) < 2:
        told.append(f"only one class, '{names[0]}': there is nothing to tell apart, training will refuse it")
    total = np.sum(list(counts.values()), axis=0)
    if (total == 0).any():
        named = _named(names, total == 0)
        told.append(f"classes without any picture: {named}; they count, and nothing teaches them: add some or remove")
    for part in PARTS:
        if not counts[part].sum():
            told.append(f"no pictures for {part}: training will refuse it")
            continue
        absent = (counts[part] == 0) & (total > 0)
        if absent.any() and part == TRAIN:
            told.append(f"classes that training never shows: {_named(names, absent)}; training will refuse it")
        elif absent.any():
            told.append(f"classes absent in {part}, about which it says nothing: {_named(names, absent)}")
    return told


def _about_bad(survey: Survey, bad_limit: float) -> list[str]:
    if not survey.bad:
        return []
    share = len(survey.bad) / survey.looked_at
    what = f"{len(survey.bad):,} of {survey.looked_at:,} pictures ({share:.2%}) cannot be decoded"
    if share > bad_limit:
        return [f"{what}: training stops above {bad_limit:.0%}; mend or remove them, or raise data.bad_limit"]
    return [f"{what}: training leaves them out"]


def _about_copies(survey: Survey) -> list[str]:
    copies = survey.duplicates
    told = [
        f"{leak.exact + leak.near:,} pictures of {leak.held_out} have a copy in {leak.seen} "
        f"({leak.exact:,} exact, {leak.near:,} near): {leak.held_out} results will look better than they are"
        for leak in copies.leaks
    ]
    if copies.conflicts:
        groups = "group of copies has" if copies.conflicts == 1 else "groups of copies have"
        told.append(f"{copies.conflicts:,} {groups} different labels: at most one can be right")
    return told


def _about_balance(names: Sequence[str], train: np.ndarray) -> list[str]:
    ratio = imbalance(train)
    if ratio is None or ratio <= MOST_IMBALANCE:
        return []
    some = np.where(train > 0, train, train.max() + 1)
    return [
        f"imbalance: '{names[int(train.argmax())]}' has {ratio:.1f} times as many training pictures as "
        f"'{names[int(some.argmin())]}'; data.sampling=balanced or class weights help the small ones"
    ]


def _named(names: Sequence[str], which: np.ndarray) -> str:
    found = [f"'{names[n]}'" for n in np.flatnonzero(which).tolist()]
    more = f" and {len(found) - _NAMED:,} more" if len(found) > _NAMED else ""
    return ", ".join(found[:_NAMED]) + more

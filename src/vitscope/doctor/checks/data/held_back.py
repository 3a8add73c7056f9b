"""Are test pictures kept from training? Nothing trains or stops by them, but they give the figure that is believed."""

from __future__ import annotations

from vitscope.data.dataset import Dataset
from vitscope.data.splits import TEST, TRAIN, VAL, part_called
from vitscope.doctor.checks.data.in_both import common
from vitscope.doctor.checks.data.stored import StoredPart
from vitscope.doctor.finding import Finding, Note


def leak_into_test(train: StoredPart, test: StoredPart) -> Finding | Note | None:
    """What is to be said of test pictures that training has too."""
    found = common(train, test)
    match found.verdict:
        case "leaked":
            return Finding("test_leaked", 0.8 if found.kind == "near" else 0.95, found.numbers)
        case "few":
            return Note("few_test_leaks", found.numbers)
        case "unclear":
            return Note("test_leaks_unclear", found.numbers)
    return None


def given_as_test(dataset: Dataset) -> Note | None:
    """Where a part called validation became the test part, which its owner may not expect."""
    names = {part_called(name): name for name in dataset.source.parts}
    if TRAIN not in names or VAL not in names or TEST in names:
        return None
    numbers = {"name": names[VAL], "train": names[TRAIN], "share": dataset.config.val_share}
    return Note("validation_became_test", numbers)

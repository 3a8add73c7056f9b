"""Every cause, note and reason of the forward and backward stages has sentences its numbers fill, in each language."""

from __future__ import annotations

import re
import string
from pathlib import Path

import pytest

from vitscope.doctor import checks
from vitscope.doctor.causes import LEFT_OUT, NOTES, backward, forward
from vitscope.doctor.causes.text import Cause, Text

STAGES = (forward, backward)
CAUSES = {cause.name: cause for stage in STAGES for cause in stage.CAUSES}
SOURCE = "".join(
    path.read_text()
    for stage in ("forward", "backward")
    for path in sorted((Path(checks.__file__).parent / stage).glob("*.py"))
)


def places(text: Text) -> tuple[set[str], set[str]]:
    english, chinese = ({name for _, name, _, _ in string.Formatter().parse(one) if name} for one in text)
    return english, chinese


def sentences(cause: Cause) -> list[Text]:
    return [cause.title, cause.evidence, cause.cost, cause.action, cause.effect]


@pytest.mark.parametrize("name", list(CAUSES))
def test_both_languages_show_the_same_numbers(name: str) -> None:
    for text in sentences(CAUSES[name]):
        english, chinese = places(text)
        assert english == chinese
        assert re.search(r"[\u4e00-\u9fff]", text.zh)
    assert places(CAUSES[name].title) == (set(), set())


def test_checks_name_only_what_has_sentences_and_all_of_it() -> None:
    found = set(re.findall(r'Finding\(\s*"(\w+)"', SOURCE))
    noted = set(re.findall(r'Note\(\s*"(\w+)"', SOURCE))
    left_out = set(re.findall(r'left_out="(\w+)"', SOURCE))
    assert found == set(CAUSES)
    assert noted <= set(NOTES)  # a note or a reason may be shared with another stage
    assert noted >= {note.name for stage in STAGES for note in stage.NOTES}
    assert left_out <= set(LEFT_OUT)
    assert left_out >= {reason.name for stage in STAGES for reason in stage.LEFT_OUT}

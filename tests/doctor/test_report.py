"""What a report says, and that it says it in every form and language."""

from __future__ import annotations

import json
import math
import re
import string
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from doctor.stand_ins import BARS, CURVE, full_report, know_stand_ins
from vitscope.doctor import causes
from vitscope.doctor.causes.text import Cause, Text
from vitscope.doctor.check import Check
from vitscope.doctor.examination import Asked, Report
from vitscope.doctor.finding import Change, Seen
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.report import words
from vitscope.doctor.report.as_json import plain
from vitscope.doctor.report.draw import as_svg
from vitscope.doctor.report.told import as_flag
from vitscope.doctor.report.words import sureness
from vitscope.doctor.report.wrap import width_of, wrapped

LANGUAGES = ("en", "zh")


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    know_stand_ins(monkeypatch)
    return full_report(None)  # type: ignore[arg-type]


def texts() -> dict[str, Text]:
    """Every sentence the doctor has, by where it stands."""
    found: dict[str, Text] = {}
    for cause in causes.CAUSES.values():
        found |= {f"{cause.name}.{part}": getattr(cause, part) for part in Cause.__annotations__ if part != "name"}
    for remarks in (causes.NOTES, causes.LEFT_OUT):
        found |= {remark.name: remark.text for remark in remarks.values()}
    for table in (
        "VERDICTS",
        "VERDICT_SENTENCES",
        "OUTCOMES",
        "STAGES",
        "SUBJECT",
        "STATES",
        "HEADINGS",
        "WHY_NOT",
        "FIX",
    ):
        found |= {f"{table}.{name}": text for name, text in getattr(words, table).items()}
    found |= {f"REPLAY.{name}": text for name, text in words.REPLAY.items()}
    return found | {f"SURENESS.{least}": text for least, text in words.SURENESS}


def places_of(sentence: str) -> dict[str, set[str]]:
    """Place -> how it is shown there."""
    found: dict[str, set[str]] = {}
    for _, name, look, _ in string.Formatter().parse(sentence):
        if name is not None:
            found.setdefault(name, set()).add(look or "")
    return found


def test_every_sentence_is_there_in_both_languages_with_the_same_places() -> None:
    for where, text in texts().items():
        assert text.en.strip(), where
        assert text.zh.strip(), where
        assert places_of(text.en).keys() == places_of(text.zh).keys(), where
        assert re.search(r"[\u4e00-\u9fff]", text.zh) or not re.search(r"[a-z]{3}", re.sub(r"\{.*?\}", "", text.en)), (
            f"{where} is not Chinese"
        )


CODE = re.compile(r"`[^`]*`|[\w.{}-]+\([^()]*(\([^()]*\))?[^()]*\)")
"""Commands, and calls such as ln({classes}): they stay as they are typed."""


def test_chinese_has_chinese_punctuation() -> None:
    for where, text in texts().items():
        plain = CODE.sub("x", text.zh)
        assert not re.search(r"[\u4e00-\u9fff\uff09] ?[,.:;?!]|[,.:;?!] ?[\u4e00-\u9fff\uff08]", plain), (
            f"{where}: {text.zh}"
        )
        assert text.zh.endswith("。") == text.en.endswith("."), (
            f"{where}: one language ends with a stop, the other does not"
        )


def test_the_page_of_causes_lists_them_all() -> None:
    """In their order, with their titles: `| `name` | title |`."""
    page = (Path(__file__).parents[2] / "docs" / "doctor.md").read_text(encoding="utf-8").partition("## Causes")[2]
    listed = re.findall(r"^\| `([a-z0-9_]+)` \| (.+) \|$", page, flags=re.MULTILINE)
    assert listed == [(cause.name, cause.title.en) for cause in causes.CAUSES.values()]


def test_names_are_given_once() -> None:
    for kind in ("NOTES", "LEFT_OUT"):
        given = [one.name for stage in causes.STAGES for one in getattr(stage, kind)]
        assert len(given) == len(set(given)), kind


def test_a_cause_seen_in_several_ways_is_told_apart_by_its_numbers() -> None:
    for name, ways in causes.WAYS.items():
        needs = [frozenset(way.places) for way in ways]
        assert len(set(needs)) == len(needs), name
        for way in ways:
            assert causes.cause_for(name, dict.fromkeys(way.places, 1.0)) is way, name


@pytest.mark.parametrize("language", LANGUAGES)
def test_text_begins_with_the_verdict_and_fits_a_terminal(report: Report, language: Any) -> None:
    text = report.as_text(language=language)
    lines = text.splitlines()
    assert lines[0] == ("unwell. Most likely: The learning rate is too high" if language == "en" else lines[0])
    assert lines[0].startswith("unwell" if language == "en" else "有问题")
    assert max(map(width_of, lines)) <= 80
    order = ["stand_in_rate", "--optim.lr 0.001 --model.no-class-token", "stand_in_labels", "label_noise", "short_run"]
    places = [text.index(word) for word in order]
    assert places == sorted(places)
    assert "inf" in text
    if language == "en":
        assert str(report) == text
        assert "very likely, 83%" in text
        assert "- 12 heads are many." in text
        assert "failed: ValueError: no such <layer>" in text
        assert "left out: there is no optimiser" in text
        assert re.search(r"stand_in_rate_check +settings +1\.5 s +found something", text)
    else:
        left = re.sub(r"`[^`]*`|[a-z]+_[a-z_]+|--\S+|<\w+>|ValueError: no such", "", text)
        assert set(re.findall(r"[A-Za-z]{4,}", left)) == set()


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_fine_takes_one_line(language: Any) -> None:
    fine = [Asked(Check(f"fine_check_{number}", "data", lambda patient: Seen()), 0.5, Seen()) for number in range(30)]
    bad = Asked(Check("broken_check", "forward", lambda patient: Seen()), 0.0, Seen(), "ValueError: x")
    dear = [
        Check("dear_check", "training", lambda patient: Seen()),
        Check("slow_check", "training", lambda patient: Seen()),
    ]
    report = Report([*fine, bad], dear, {"dear_check": "quick", "slow_check": "ended"})
    text = report.as_text(language=language)
    lines = text.splitlines()
    assert len(lines) < 20
    assert max(map(width_of, lines)) <= 80
    assert all(f"fine_check_{number}" in text for number in range(30))
    assert [place for place, line in enumerate(lines) if line.startswith("broken_check")] == [3]
    told = " ".join(text.split())
    if language == "en":
        assert "fine: fine_check_0, fine_check_1," in told
        assert "fine_check_29 (30 checks, 15.0 s)" in told
        assert "not asked: dear_check (takes too long for a quick examination)" in told
        assert "not asked: slow_check (what was found before" in told
    else:
        assert "（30 项，15.0 秒）" in told
        assert "未检查：dear_check（快速检查中省略" in told
    assert len(report.as_json()["checks"]) == 33


@pytest.mark.parametrize("language", LANGUAGES)
def test_json_is_strict_and_keeps_names_in_english(report: Report, language: Any) -> None:
    found = json.loads(
        json.dumps(report.as_json(language=language), allow_nan=False),
        parse_constant=lambda word: pytest.fail(f"{word} is not strict JSON"),
    )
    assert found["verdict"] == "unwell"
    assert [one["cause"] for one in found["findings"]] == ["stand_in_rate", "stand_in_labels"]
    first = found["findings"][0]
    wanted = {"cause", "confidence", "title", "evidence", "numbers", "cost", "action", "effect", "changes"}
    assert wanted <= first.keys()
    assert first["numbers"]["after"] == "Infinity"
    assert first["changes"][0] == {"key": "optim.lr", "value": 1e-3}
    assert first["title"] == ("The learning rate is too high" if language == "en" else "学习率过高")
    assert first["picture"]["lines"][0]["y"][2] == "NaN"
    checks = {check["name"]: check for check in found["checks"]}
    assert checks["label_noise"]["measured"] == {"share": 0.4, "by class": ["NaN", 0.5]}
    assert [check["outcome"] for check in found["checks"]] == [
        "found something",
        "found something",
        "fine",
        "left out",
        "failed",
        "not asked",
    ]
    assert checks["plain_check"].keys() == {"name", "stage", "outcome", "seconds", "measured", "reason"}
    assert found["subject"]["parameters"] == 2_697_610
    assert found["seconds"] == pytest.approx(1.76)


def test_whatever_was_measured_becomes_plain() -> None:
    given = {
        1: torch.tensor([1.0, 2.0]),
        "a": np.float64(0.5),
        "b": {3, 2},
        "c": np.int64(4),
        "d": Path("x"),
        "e": True,
    }
    assert plain(given) == {"1": [1.0, 2.0], "a": 0.5, "b": [2, 3], "c": 4, "d": "x", "e": True}
    json.dumps(plain(given))


class Page(HTMLParser):
    """Tags that are open, whatever could reach outside, and the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.reaches: list[str] = []
        self.ids: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in ("meta", "br"):
            self.open.append(tag)
        self.reaches += [
            value or "" for name, value in attrs if name in ("src", "href", "xlink:href", "data", "action")
        ]
        self.ids += [value or "" for name, value in attrs if name == "id"]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_page_is_whole_in_itself_and_escaped(report: Report, language: Any, tmp_path: Path) -> None:
    path = report.save_page(tmp_path / "new" / "page.html", language=language)
    source = path.read_text(encoding="utf-8")
    page = Page()
    page.feed(source)
    assert page.open == []
    assert "script" not in page.tags
    assert not {"link", "iframe", "img", "object"} & {*page.tags}
    assert all(reach.startswith("#") for reach in page.reaches)
    assert "@import" not in source
    assert re.findall(r"url\((?!#)", source) == []
    assert len(page.ids) == len(set(page.ids)), "names in two drawings must not meet"
    assert page.tags.count("svg") == 2
    assert page.tags.count("article") == 2
    assert "vit_tiny <script>" in page.text
    assert "ValueError: no such <layer>" in page.text
    assert "this <rate>" in page.text
    assert "prefers-color-scheme: dark" in source
    assert 'name="viewport"' in source
    assert source.startswith(f'<!doctype html>\n<html lang="{"en" if language == "en" else "zh-Hans"}">')
    assert ("very likely, 83%" if language == "en" else "很可能，83%") in page.text


def test_the_page_is_the_same_every_time(report: Report, tmp_path: Path) -> None:
    one, two = (report.save_page(tmp_path / name).read_bytes() for name in ("one.html", "two.html"))
    assert one == two


@pytest.mark.parametrize(
    "picture",
    [
        CURVE,
        BARS,
        Picture("nothing", "x", "y", []),
        Picture("no bars", "x", "y", [], kind="bars"),
        Picture("no number", "x", "y", [Line("a", [1, 2], [math.nan, math.inf])], log_y=True, level=math.nan),
        Picture("zeros", "x", "y", [Line("a", [0, 1], [0.0, 0.0])], log_x=True, log_y=True),
        Picture("many", "x", "y", [Line(f"layer {n}", range(40), [float(n)] * 40) for n in range(12)]),
        Picture(
            "two", "x", "y", [Line("a", ["p", "q"], [1, 2]), Line("b", ["p", "q"], [2, 1])], kind="bars", log_y=True
        ),
    ],
    ids=lambda picture: picture.title.split()[0],
)
def test_any_numbers_can_be_drawn(picture: Picture) -> None:
    drawn = as_svg(picture, 3)
    assert drawn.startswith("<svg")
    assert drawn.endswith("</svg>")
    assert "currentColor" in drawn
    assert "<style" not in drawn
    assert "#010203" not in drawn


def test_curves_and_levels_are_in_the_drawing() -> None:
    plain_curve = Picture("t", "x", "y", [Line("a", [1, 2, 3], [1, 2, 3])])
    paths = as_svg(plain_curve).count("<path")
    leveled = Picture("t", "x", "y", plain_curve.lines, level=2.0, mark=2.0)
    assert as_svg(leveled).count("<path") == paths + 2
    assert as_svg(CURVE).count("0.001") == 1  # no formula


def test_a_level_is_drawn_as_one_and_not_its_last_digits() -> None:
    def rms(*sizes: float) -> set[str]:
        drawn = as_svg(Picture("sizes", "layer", "rms", [Line("rms", [0, 1, 2], sizes)]))
        return set(re.findall(r">([^<>\n]+)</text>", drawn))

    assert {"0.950", "1.000", "1.050"} <= rms(0.9999996, 0.9999999, 0.9999998)
    assert not any("e" in text for text in rms(0.9999996, 0.9999999, 0.9999998) - {"layer"})
    assert {"1.0", "2.0"} <= rms(1.0, 1.5, 2.0)


@pytest.mark.parametrize(
    ("confidence", "en", "zh"),
    [
        (1.0, "as good as proven, 100%", "几乎可以确定，100%"),
        (0.8, "very likely, 80%", "很可能，80%"),
        (0.5, "likely, 50%", "较可能，50%"),
        (0.49, "possible, 49%", "有可能，49%"),
    ],
)
def test_how_sure_in_words_and_numbers(confidence: float, en: str, zh: str) -> None:
    assert (sureness(confidence, "en"), sureness(confidence, "zh")) == (en, zh)


def test_changes_as_they_are_typed() -> None:
    assert as_flag(Change("optim.lr", 3e-4)) == "--optim.lr 0.0003"
    assert as_flag(Change("model.num_heads", 12000)) == "--model.num-heads 12000"
    assert as_flag(Change("data.mean", (0.5, 0.25))) == "--data.mean 0.5 0.25"
    assert as_flag(Change("model.class_token", True)) == "--model.class-token"
    assert as_flag(Change("schedule.warmup", "10%")) == "--schedule.warmup 10%"


def test_nothing_looked_at_is_not_health() -> None:
    check = Check("one", "data", lambda patient: Seen())
    assert Report().verdict == "cannot tell"
    assert Report([Asked(check, 0.0, Seen(left_out="why"))]).verdict == "cannot tell"
    assert "Nothing could be looked at." in str(Report())
    assert Report([Asked(check, 0.0, Seen())]).verdict == "healthy"
    failed = Report([Asked(check, 0.0, Seen()), Asked(check, 0.0, Seen(), "ValueError: x")])
    assert failed.verdict == "cannot tell"
    assert "some checks could not be made" in str(failed)


def test_lines_are_broken_where_they_may_be() -> None:
    assert wrapped("one two three", 8, first="- ", then="  ") == ["- one", "  two", "  three"]
    assert wrapped("run `a b c d` now", 9) == ["run", "`a b c d`", "now"]
    assert wrapped("看看图片，再训练。", 8) == ["看看图", "片，再训", "练。"]
    assert wrapped("x" * 25, 10) == ["x" * 10, "x" * 10, "x" * 5]
    assert wrapped("`" + "long " * 5 + "`", 10) == ["`long long", "long long", "long `"]

"""The settings as the doctor would have them, each change explained beside it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, UsageError
from vitscope.core.files import write_atomically
from vitscope.core.yaml import to_yaml
from vitscope.doctor.causes.text import Language
from vitscope.doctor.examination import Report
from vitscope.doctor.report.told import ToldFinding, told_findings
from vitscope.doctor.report.words import FIX
from vitscope.doctor.report.wrap import wrapped
from vitscope.doctor.thresholds.whole import SURE_ENOUGH
from vitscope.train.config import TrainConfig

FOLLOWS = {"updates_too_large": "optim.lr", "updates_too_small": "optim.lr"}
"""Causes that are another's doing where this setting was changed for it."""
WIDTH = 110
"""Of comments, as of the YAML around them."""


@dataclass(frozen=True)
class Mended:
    """One setting that is changed."""

    key: str
    before: Any
    told: ToldFinding


@dataclass(frozen=True)
class Fix:
    config: TrainConfig
    mended: Sequence[Mended]
    left: Sequence[ToldFinding]
    """Likely causes that no setting mends, or none that fits the rest."""


def propose_fix(report: Report, config: TrainConfig, language: Language = "en") -> Fix:
    """What is more likely than not is mended, the likeliest first; of two that want the same setting otherwise, the
    likelier one has it."""
    mended: dict[str, Mended] = {}
    left: list[ToldFinding] = []
    for told in told_findings(report, language):
        if told.finding.confidence < SURE_ENOUGH:
            continue
        wanted = {change.key: change.value for change in told.finding.changes if change.key not in mended}
        try:
            changed = _changed(config, wanted)
        except ConfigError:
            left.append(told)
            continue
        new = {key: _value(config, key) for key in wanted if _value(config, key) != _value(changed, key)}
        mended |= {key: Mended(key, before, told) for key, before in new.items()}
        if not told.finding.changes:
            left.append(told)
        config = changed
    left = [told for told in left if FOLLOWS.get(told.finding.cause) not in mended]
    return Fix(config, tuple(mended.values()), tuple(left))


def write_fix(fix: Fix, path: str | Path, *, source: str, language: Language = "en") -> Path:
    """As YAML that `vitscope train` and `vitscope doctor` take. Nothing is overwritten."""
    path = Path(path).expanduser()
    refuse_existing(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, explained(fix, source=source, language=language).encode())
    return path


def refuse_existing(path: str | Path) -> None:
    if Path(path).expanduser().exists():
        raise UsageError(f"'{path}' is there already", where="--fix", fix="name a file that is not there yet")


def explained(fix: Fix, *, source: str, language: Language = "en") -> str:
    """The YAML, a comment above each setting that was changed."""
    lines = to_yaml(fix.config).splitlines()
    above: dict[int, list[str]] = {}
    for one in fix.mended:
        number = _line_of(lines, one.key)
        indent = re.match(r" *", lines[number]).group()  # pyright: ignore[reportOptionalMemberAccess]
        above.setdefault(number, []).extend(_comment(one, indent, language))
    keys = ", ".join(one.key for one in fix.mended)
    head = wrapped(FIX["head"].said(language, {"source": source, "keys": keys}), WIDTH, first="# ", then="# ")
    body = [text for number, line in enumerate(lines) for text in (*above.get(number, ()), line)]
    return "\n".join([*head, *body]) + "\n"


def _comment(one: Mended, indent: str, language: Language) -> list[str]:
    told = one.told
    words = {"cause": told.finding.cause, "sure": told.sure, "title": told.title}
    stop = ". " if language == "en" else "。"
    said = f"{FIX['change'].said(language, words)}{stop}{told.evidence}"
    before = yaml.safe_dump(_plain(one.before), default_flow_style=True, width=10**6).splitlines()[0]
    first = f"{indent}# "
    return [
        *wrapped(said, WIDTH, first=first, then=first),
        first + FIX["was"].said(language, {"before": before}),
    ]


def _plain(value: Any) -> Any:
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _changed(config: TrainConfig, wanted: dict[str, Any]) -> TrainConfig:
    """All of them at once: a width and its heads may only fit together."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in wanted.items():
        section, _, field = key.partition(".")
        sections.setdefault(section, {})[field] = value
    parts = {section: updated(getattr(config, section), **fields) for section, fields in sections.items()}
    return updated(config, **parts)


def _value(config: TrainConfig, key: str) -> Any:
    section, _, field = key.partition(".")
    return getattr(getattr(config, section), field)


def _line_of(lines: Sequence[str], key: str) -> int:
    """Where a setting stands: `section.field` is two lines apart, and two deep."""
    section, _, field = key.partition(".")
    begins = lines.index(f"{section}:")
    return next(number for number in range(begins + 1, len(lines)) if lines[number].startswith(f"  {field}:"))

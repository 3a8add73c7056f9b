"""The report as one page: no scripts, nothing from outside, light or dark as the reader has it, narrow or wide."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.core.files import write_atomically
from vitscope.core.page_style import whole_page
from vitscope.doctor.causes.text import Language
from vitscope.doctor.picture import Picture
from vitscope.doctor.report.as_json import plain
from vitscope.doctor.report.draw import as_svg
from vitscope.doctor.report.page_style import STYLE
from vitscope.doctor.report.told import (
    ToldCheck,
    ToldFinding,
    told_checks,
    told_findings,
    told_notes,
    told_subject,
    told_verdict,
)
from vitscope.doctor.report.words import OUTCOMES, STAGES, VERDICTS, heading
from vitscope.version import __version__

if TYPE_CHECKING:
    from vitscope.doctor.examination import Report

HTML_LANGUAGE = {"en": "en", "zh": "zh-Hans"}
LONGEST_MEASURED = 200
"""Letters of a measured value that are shown: the whole is in the JSON."""


def save_page(report: Report, path: str | Path, language: Language) -> Path:
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, as_page(report, language).encode())
    return path


def as_page(report: Report, language: Language) -> str:
    verdict = VERDICTS[report.verdict].said(language, {})
    title = f"vitscope doctor{': ' if language == 'en' else '：'}{verdict}"
    body = "\n".join(_body(report, language, verdict))
    return whole_page(title, body, style=STYLE, language=HTML_LANGUAGE[language])


def _body(report: Report, language: Language, verdict: str) -> Iterator[str]:
    drawings = _Drawings()
    kind = report.verdict.replace(" ", "-")
    yield f'<header class="{kind}">'
    yield f'<p class="small">vitscope {__version__} · {escape(heading("doctor", language))}</p>'
    yield f"<h1>{escape(verdict)}</h1>"
    yield f"<p>{_prose(told_verdict(report, language))}</p>"
    yield "</header>"
    subject = told_subject(report.subject, language)
    if subject:
        yield '<dl class="subject">'
        yield from (f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in subject)
        yield "</dl>"
    findings = told_findings(report, language)
    if findings:
        yield f"<h2>{escape(heading('findings', language))}</h2>"
        for number, told in enumerate(findings, start=1):
            yield from _finding(number, told, language, drawings)
    notes = told_notes(report, language)
    if notes:
        yield f"<h2>{escape(heading('notes', language))}</h2>"
        yield "<ul>" + "".join(f"<li>{_prose(note)}</li>" for note in notes) + "</ul>"
    checks = told_checks(report, language)
    told = [finding.finding.picture for finding in findings]
    shown = [check.picture for check in checks if check.picture is not None and check.picture not in told]
    if shown:
        yield f"<h2>{escape(heading('pictures', language))}</h2>"
        yield from map(drawings.figure, shown)
    if checks:
        total = heading("seconds", language, seconds=report.seconds)
        yield f"<h2>{escape(heading('checks', language))}</h2>"
        yield f'<p class="small">{escape(heading("total", language, seconds=total))}</p>'
        yield from _checks(checks, language)


def _finding(number: int, told: ToldFinding, language: Language, drawings: _Drawings) -> Iterator[str]:
    share = min(1.0, max(0.0, told.finding.confidence))
    yield f'<article id="{escape(told.finding.cause, quote=True)}">'
    yield f"<h3>{number}. {_prose(told.title)}</h3>"
    yield (
        f'<p class="sure"><code>{escape(told.finding.cause)}</code>'
        f'<span class="bar" aria-hidden="true"><span style="width:{100 * share:.0f}%"></span></span>'
        f"<span>{escape(told.sure)}</span></p>"
    )
    if told.finding.picture is not None:
        yield drawings.figure(told.finding.picture)
    yield "<dl>"
    for name in ("evidence", "cost", "action", "flags", "effect"):
        text = getattr(told, name)
        if text:
            said = f"<code>{escape(text)}</code>" if name == "flags" else _prose(text)
            yield f'<dt>{escape(heading(name, language))}</dt><dd class="{name}">{said}</dd>'
    yield "</dl>\n</article>"


def _checks(checks: list[ToldCheck], language: Language) -> Iterator[str]:
    yield '<div class="wide"><table>\n<thead><tr>'
    yield from (f"<th>{escape(heading(name, language))}</th>" for name in ("check", "stage", "time", "outcome"))
    yield "</tr></thead>\n<tbody>"
    for check in checks:
        outcome = escape(OUTCOMES[check.outcome].said(language, {}))
        reason = f'<br><span class="small">{_prose(check.reason)}</span>' if check.reason else ""
        took = heading("seconds", language, seconds=check.seconds) if check.outcome != "not asked" else ""
        yield (
            f'<tr class="{check.outcome.replace(" ", "-")}"><td><code>{escape(check.name)}</code></td>'
            f"<td>{escape(STAGES[check.stage].said(language, {}))}</td><td>{escape(took)}</td>"
            f"<td>{outcome}{reason}{_measured(check.measured, language)}</td></tr>"
        )
    yield "</tbody>\n</table></div>"


def _measured(measured: Mapping[str, Any], language: Language) -> str:
    """Folded away until it is asked for."""
    rows = [
        f"<div><dt>{escape(str(name))}</dt><dd>{escape(_short(value))}</dd></div>" for name, value in measured.items()
    ]
    if not rows:
        return ""
    return f"<details><summary>{escape(heading('measured', language))}</summary><dl>{''.join(rows)}</dl></details>"


def _short(value: Any) -> str:
    text = f"{value:.4g}" if isinstance(value, float) else str(plain(value))
    return text if len(text) <= LONGEST_MEASURED else f"{text[:LONGEST_MEASURED]} ..."


def _prose(text: str) -> str:
    """Escaped; what stands in backticks is code."""
    parts = escape(text).split("`")
    if len(parts) % 2 == 0:  # one without its partner is a letter like any other
        return escape(text)
    return "".join(f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts))


class _Drawings:
    """Numbers those of one page."""

    def __init__(self) -> None:
        self.count = 0

    def figure(self, picture: Picture) -> str:
        self.count += 1
        return f"<figure><figcaption>{escape(picture.title)}</figcaption>{as_svg(picture, self.count)}</figure>"

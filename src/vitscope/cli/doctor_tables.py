"""The doctor's report on a terminal, and what became of `--fix`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.text import Text

from vitscope.cli.console import console
from vitscope.core.errors import UsageError
from vitscope.doctor.fix import propose_fix, write_fix
from vitscope.doctor.report.text import WIDTH, report_lines
from vitscope.doctor.report.words import FIX
from vitscope.doctor.report.wrap import wrapped

if TYPE_CHECKING:
    from vitscope.doctor.causes.text import Language
    from vitscope.doctor.examination import Report
    from vitscope.train.config import TrainConfig

NARROWEST = 40


def print_report(report: Report, said: Sequence[str], *, language: Language) -> None:
    out = console()
    width = max(NARROWEST, min(WIDTH, out.width))
    for line in report_lines(report, language, width=width):
        out.print(Text(line.text, style=line.style), soft_wrap=True)
    if said:
        out.print()
    for text in said:
        for line in wrapped(text, width, then="  "):
            out.print(line, markup=False, soft_wrap=True)


def fix_lines(
    report: Report, config: TrainConfig | None, path: str, *, source: str, language: Language
) -> tuple[list[str], str | None]:
    """What to say of the settings, and the file they were written to: none where nothing is to be changed."""
    if config is None:
        raise UsageError("the run has no config.yaml to correct", where="--fix", fix="leave --fix out")
    fix = propose_fix(report, config, language)
    left = [FIX["left"].said(language, {"title": told.title, "action": told.action}) for told in fix.left]
    if not fix.mended:
        kind = "healthy" if report.verdict == "healthy" else "none" if fix.left else "unsure"
        return [FIX[kind].said(language, {"path": path}), *left], None
    try:
        written = write_fix(fix, path, source=source or config.data.name, language=language)
    except OSError as error:
        raise UsageError(
            f"'{path}' cannot be written: {error.strerror or error}", where="--fix", fix="name a file elsewhere"
        ) from None
    count = FIX["setting" if len(fix.mended) == 1 else "settings"].said(language, {"number": len(fix.mended)})
    again = f"`vitscope doctor {shlex.quote(str(written))}`"
    said = [
        FIX["wrote"].said(language, {"path": written, "count": count}),
        *left,
        FIX["again"].said(language, {"command": again}),
    ]
    return said, str(written)

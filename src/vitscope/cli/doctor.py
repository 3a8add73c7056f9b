"""`vitscope doctor RECIPE_OR_YAML_OR_RUN`: why does it not train?"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar, Literal, get_args

import tyro

from vitscope.cli.console import print_json, say
from vitscope.cli.settings_start import named_start, nameless_start, refuse_pictures, refuse_several_processes
from vitscope.cli.train_flags import EverydayFlags, is_yaml, read_words, resolve
from vitscope.core.config import config, field_names, require
from vitscope.core.errors import EXIT_DONE, EXIT_FAILED, UsageError
from vitscope.core.run_layout import CONFIG, folder_before, is_run_folder, runs_in
from vitscope.core.suggest import did_you_mean
from vitscope.core.switch import Switch
from vitscope.recipes import RECIPES
from vitscope.train.config import TrainConfig
from vitscope.train.config.read import read_train_config

if TYPE_CHECKING:
    from vitscope.doctor.examination import Report
    from vitscope.doctor.finding import Verdict

PROG = "vitscope doctor"
REPLAY_ALONE = ("quick", "only", "html", "fix")
"""Not beside --replay, which examines a step and nothing else."""


@config
class DoctorCommand(EverydayFlags):
    """Find out why a model does not train: pictures, settings, forward and backward pass, and a little training,
    cheapest first, with evidence.

    Before training: a recipe, a YAML file, or --data and --model, with every setting of `vitscope train` as a flag
    (`--section.key value`). After or during it: a run's folder. Nothing is written but what is asked for.

    The exit code is 0 whatever is found, 1 only where it could not examine.
    """

    examples: ClassVar[dict[str, str]] = {
        **EverydayFlags.examples,
        "only": "data settings",
        "html": "report.html",
        "fix": "better.yaml",
        "replay": "runs/first/diagnostics/bad-step-000123",
    }

    recipe: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="[RECIPE_OR_YAML_OR_RUN]")] = None
    """A recipe of `vitscope train --list`, a YAML file with settings, or a run's folder."""
    quick: Switch = False
    """Run only the checks that take seconds."""
    only: tuple[str, ...] = ()
    """Run only checks of these names or stages (data, settings, forward, backward, training)."""
    html: str | None = None
    """Also write a page with pictures to this file; one that is there is replaced."""
    lang: Literal["en", "zh"] = "en"
    """The language of the report: English or Chinese."""
    fix: str | None = None
    """Also write the settings to this YAML file as the doctor would have them, each change explained."""
    replay: str | None = None
    """Take a bad step of a run again (runs/NAME/diagnostics/bad-step-000123) and name the layer and operation that
    went wrong first."""
    json: Switch = False
    """Print JSON."""

    def __post_init__(self) -> None:
        if self.replay is not None:
            for name in REPLAY_ALONE:
                fix = f"leave --{name} or --replay out"
                require(not getattr(self, name), name, "no --replay beside it", "both", fix=fix)


def run(args: Sequence[str]) -> int:
    command, settings = read_words(DoctorCommand(), args, prog=PROG)
    refuse_several_processes("each would examine the same", prog=PROG)
    if command.replay is not None:
        from vitscope.cli.doctor_replay import show_replay

        return show_replay(command.replay, device=command.device, language=command.lang, as_json=command.json)
    folder = Path(command.recipe).expanduser() if command.recipe is not None else None
    if folder is not None and is_run_folder(folder) and "--help" not in settings:
        _refuse_settings(command, settings, folder)
        _refuse_taken(command)
        given = read_train_config(folder / CONFIG) if (folder / CONFIG).is_file() else None
        report = _examined_run(folder, command)
    else:
        given = resolve(command, settings, _start(command, settings), prog=PROG)
        _refuse_taken(command)
        from vitscope.doctor.check import Stage
        from vitscope.doctor.checks import CHECKS
        from vitscope.doctor.settings_door import examine_settings

        only = _known(command.only, [check.name for check in CHECKS], get_args(Stage))
        with _Progress(command) as on_check:
            source = command.recipe or f"{given.data.name}, {given.model.name}"
            report = examine_settings(given, quick=command.quick, only=only, on_check=on_check, source=source)
    _show(report, command, given, args, beside=_run_beside(command, settings))
    has_failed = any(asked.failed is not None for asked in report.asked)
    return EXIT_DONE if report.has_looked or (report.asked and not has_failed) else EXIT_FAILED


def _start(command: DoctorCommand, settings: Sequence[str]) -> TrainConfig:
    word = command.recipe
    if word is None:
        return nameless_start(command, settings, prog=PROG)
    if word not in RECIPES:
        refuse_pictures(word, command, prog=PROG)
    if word not in RECIPES and not is_yaml(word):
        beside = runs_in(Path(word).expanduser().parent) if "/" in word else []
        inside = [shlex.quote(str(Path(word) / run)) for run in runs_in(Path(word).expanduser())]
        some = f"name one of the runs in it: {', '.join(inside[-3:])}" if inside else None
        near = (
            some
            or did_you_mean(word, RECIPES)
            or did_you_mean(Path(word).name, beside, before=folder_before(Path(word)))
        )
        is_there = Path(word).expanduser().exists()
        raise UsageError(
            f"'{word}' is neither a recipe, a YAML file nor a run's folder"
            if is_there
            else f"there is no '{word}': neither a recipe nor a file or folder has that name",
            where=PROG,
            fix=near or "`vitscope train --list` shows the recipes",
        )
    return named_start(command, settings, prog=PROG)


def _examined_run(folder: Path, command: DoctorCommand) -> Report:
    from vitscope.doctor.run_door import RUN_CHECKS, examine_run

    only = _known(command.only, RUN_CHECKS, ("training",))
    with _Progress(command) as on_check:
        return examine_run(folder, only=only, on_check=on_check)


def _run_beside(command: DoctorCommand, settings: Sequence[str]) -> Path | None:
    """The run whose settings, and no others, were examined: the file may lie in its folder."""
    path = Path(command.recipe or "").expanduser()
    changed = [name for name in _fields_of_run() if getattr(command, name) != getattr(DoctorCommand(), name)]
    is_its_own = path.name == CONFIG and path.is_file() and is_run_folder(path.parent)
    return path.parent if is_its_own and not settings and not changed else None


def _other_verdict(report: Report, run: Path) -> Verdict | None:
    """What the run's record is called, where it can tell and says otherwise."""
    from vitscope.doctor.run_door import examine_run

    verdict = examine_run(run).verdict
    return None if verdict in (report.verdict, "cannot tell") else verdict


def _fields_of_run() -> list[str]:
    """Flags that change what is examined."""
    about_report = {"recipe", "quick", "only", "html", "lang", "fix", "replay", "json"}
    return [name for name in field_names(DoctorCommand) if name not in about_report]


def _show(
    report: Report, command: DoctorCommand, given: TrainConfig | None, args: Sequence[str], *, beside: Path | None
) -> None:
    """The report, then what was written and what to type next. Programs have the same under `files`."""
    from vitscope.cli.doctor_tables import fix_lines, print_report
    from vitscope.doctor.report.words import BESIDE, FIX, VERDICTS, heading
    from vitscope.doctor.thresholds.whole import SURE_ENOUGH

    said: list[str] = []
    files: dict[str, str | None] = {}
    if command.html is not None:
        path = _written(lambda: report.save_page(command.html or "", language=command.lang), command.html)
        said.append(heading("wrote", command.lang, path=path))
        files["html"] = str(path)
    if command.fix is not None:
        lines, wrote = fix_lines(report, given, command.fix, source=command.recipe or "", language=command.lang)
        said += lines
        files["fix"] = wrote
    elif given is not None and any(one.changes and one.confidence >= SURE_ENOUGH for one in report.findings):
        again = shlex.join(["vitscope", "doctor", *(arg for arg in args if arg != "--json"), "--fix", "better.yaml"])
        said.append(FIX["see"].said(command.lang, {"command": f"`{again}`"}))
    other = None if beside is None else _other_verdict(report, beside)
    if other is not None:
        again = shlex.join(["vitscope", "doctor", str(beside)])
        said.append(BESIDE.said(command.lang, {"verdict": VERDICTS[other].said(command.lang, {}), "command": again}))
    if command.json:
        more = {} if other is None else {"run_beside": {"run": str(beside), "verdict": other}}
        print_json({**report.as_json(language=command.lang), "files": files, **more})
        return
    print_report(report, said, language=command.lang)


def _known(names: Sequence[str], checks: Collection[str], stages: Sequence[str]) -> tuple[str, ...]:
    from vitscope.doctor.chosen import chosen

    return chosen(names, checks, stages, where="--only", refusal=UsageError)


def _refuse_settings(command: DoctorCommand, settings: Sequence[str], folder: Path) -> None:
    """A run has settings of its own."""
    plain, names = DoctorCommand(), _fields_of_run()
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(command, name) != getattr(plain, name)]
    given += [word.partition("=")[0] for word in settings if word.startswith("--")]
    if given:
        raise UsageError(
            f"a run has settings of its own, and so there is no {', '.join(given)}",
            where=PROG,
            fix=f"`{PROG} {shlex.quote(str(folder / CONFIG))} ...` examines its settings, with others changed",
        )


def _refuse_taken(command: DoctorCommand) -> None:
    """Before minutes are spent on what could not be written."""
    if command.fix is not None:
        from vitscope.doctor.fix import refuse_existing

        refuse_existing(command.fix)
    for flag, path in (("--html", command.html), ("--fix", command.fix)):
        if path is not None and Path(path).expanduser().is_dir():
            raise UsageError(f"'{path}' is a folder", where=flag, fix="name a file")


def _written(write: Callable[[], Path], path: str) -> Path:
    try:
        return write()
    except OSError as error:
        raise UsageError(
            f"'{path}' cannot be written: {error.strerror or error}", where=PROG, fix="name a file elsewhere"
        ) from None


class _Progress:
    """Which check is being made, on standard error: one line that is written over where somebody watches."""

    def __init__(self, command: DoctorCommand) -> None:
        self.language: Literal["en", "zh"] = command.lang
        self.is_live = sys.stderr.isatty()

    def __enter__(self) -> Callable[[str], None]:
        return self.tell

    def tell(self, name: str) -> None:
        from vitscope.doctor.report.words import heading

        text = heading("checking", self.language, name=name)
        if self.is_live:
            sys.stderr.write(f"\r\x1b[K{text} ...")
            sys.stderr.flush()
        else:
            say(text)

    def __exit__(self, *error: object) -> None:
        if self.is_live:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

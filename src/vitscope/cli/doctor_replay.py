"""`vitscope doctor --replay CAPTURE`: a bad step, taken again and looked into."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitscope.cli.console import console, print_json
from vitscope.core.errors import EXIT_DONE, UsageError
from vitscope.core.run_layout import DIAGNOSTICS, is_run_folder
from vitscope.core.strict_json import encode

if TYPE_CHECKING:
    from vitscope.doctor.causes.text import Language
    from vitscope.train.replay import Replay

MOST_NAMED = 3


def show_replay(capture: str, *, device: str | None, language: Language, as_json: bool) -> int:
    place = _record(Path(capture).expanduser())
    from vitscope.train.replay import replay_bad_step

    found = replay_bad_step(place, device=device)
    if as_json:
        print_json(encode(_as_json(found, place)))
        return EXIT_DONE
    from vitscope.doctor.report.text import WIDTH
    from vitscope.doctor.report.wrap import wrapped

    out = console()
    for number, text in enumerate(replay_lines(found, language)):
        for line in wrapped(text, WIDTH, first="  " if number else "", then="    "):
            out.print(line, markup=False, soft_wrap=True)
    return EXIT_DONE


def replay_lines(found: Replay, language: Language) -> list[str]:
    """Whether it went wrong again, where it began, and what it reached."""
    from vitscope.doctor.report.words import REPLAY

    def said(name: str, **numbers: Any) -> str:
        return REPLAY[name].said(language, numbers)

    lines = [
        said("bad" if found.is_bad else "good", step=found.recorded["step"]),
        said("loss", loss=found.loss, norm=found.grad_norm),
    ]
    if found.bad_pictures:
        lines.append(said("pictures", places=", ".join(map(str, found.bad_pictures))))
    operation = found.operation
    if operation is not None:
        layer = {"": said("loss itself"), "the model": said("whole model")}.get(operation.layer, operation.layer)
        largest = "-" if operation.largest_input is None else f"{operation.largest_input:.4g}"
        kind = {"NaN": "NaN", "infinity": "infinity" if language == "en" else "无穷大"}[operation.gave]
        lines.append(said(operation.phase, operation=operation.name, layer=layer, kind=kind, largest=largest))
    elif found.first_bad_module is not None:
        lines.append(said("layer", layer=found.first_bad_module))
    if found.bad_gradients:
        names = ", ".join(found.bad_gradients[:MOST_NAMED])
        lines.append(said("gradients", count=len(found.bad_gradients), names=names))
    else:
        lines.append(said("no gradients"))
    return lines


def _as_json(found: Replay, place: Path) -> dict[str, Any]:
    operation = found.operation
    return {
        "capture": str(place),
        "is_bad": found.is_bad,
        "loss": found.loss,
        "grad_norm": found.grad_norm,
        "first_bad_module": found.first_bad_module,
        "operation": None if operation is None else vars(operation),
        "bad_gradients": found.bad_gradients,
        "bad_pictures": found.bad_pictures,
        "recorded": found.recorded,
    }


def _record(given: Path) -> Path:
    """The record itself; of a run, the first it kept: later ones often follow from it."""
    if not is_run_folder(given):
        return given
    kept = sorted((given / DIAGNOSTICS).glob("bad-step-*"))
    if not kept:
        raise UsageError(
            f"the run '{given}' kept no bad step",
            where=f"looked in {given / DIAGNOSTICS}",
            fix=f"`vitscope doctor {given}` examines the run itself",
        )
    return kept[0]

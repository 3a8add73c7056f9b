"""`vitscope explain MODEL IMAGE`: where a model looks, and how far that can be believed."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import console, print_json
from vitscope.cli.explain_files import Places
from vitscope.cli.model_source import find_described_model
from vitscope.cli.progress import progress_bar
from vitscope.cli.writing import writing
from vitscope.core.config import config, require
from vitscope.core.errors import EXIT_DONE, InputError, UsageError
from vitscope.core.flags import parse_flags
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor

PROG = "vitscope explain"


@config
class ExplainCommand:
    """Show where a model looks in a picture, and test whether its answer depends on what the map marks.

    MODEL is a run, a model folder (vitscope's, timm's, Hugging Face's) or a name on the hub. A ViT, DeiT or DINOv2
    gets a map; a Swin, CNN or ResNet, which has no attention over the whole picture, its filters and feature maps.

    The test takes the marked patches away, and puts them back: the score is compared with those of the same map moved
    to other places.
    """

    examples: ClassVar[dict[str, str]] = {"target": "cat", "out": "map.png"}

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model that looks at the picture."""
    image: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="IMAGE")] = None
    """The picture: a file."""
    method: Literal["attention", "rollout", "gradient_rollout"] | None = None
    """attention: the weights of one layer, the default. rollout: through all layers. gradient_rollout: what speaks for
    the class."""
    layer: int | None = None
    """Which layer's attention to show, from 0 or from the end (by default the last with heads); of a rollout, the last
    it goes through."""
    head: int | None = None
    """Which head to show; by default the mean of all."""
    target: str | None = None
    """The class to explain, by its label or number; by default the likeliest."""
    patch: tuple[int, int] | None = None
    """Show where this patch looks, by row and column, instead of what the head reads."""
    out: str | None = None
    """A PNG file or a folder to write to; by default IMAGE-METHOD.png in the current folder, numbered where there is
    one."""
    sheet: Switch = False
    """Also draw a small map for every head of every layer."""
    tokens: Switch = False
    """Also draw who looks at whom in the layer, token by token."""
    feature_maps: Switch = False
    """Also draw the filters that read pixels, and maps of what the layers see."""
    overlay: Switch = False
    """Also write the map over the picture alone, at the picture's own size."""
    overwrite: Switch = False
    """Replace files of these names."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    json: Switch = False
    """Print JSON."""

    def __post_init__(self) -> None:
        method = self.method or "attention"
        require(self.head is None or method == "attention", "head", "--method attention beside it", method)


def run(args: Sequence[str]) -> int:
    command = parse_flags(ExplainCommand(), args, prog=PROG)
    if command.model is None or command.image is None:
        missing = "MODEL" if command.model is None else "IMAGE"
        raise UsageError(f"no {missing} named", where=PROG, fix=f"`{PROG} runs/NAME photo.jpg`")

    try:
        return _explained(command)
    except InputError as error:  # model and picture come from files: only what the flags ask of them can be refused
        fix = error.fix or f"`{PROG} --help` shows all flags"
        raise UsageError(error.what, where=error.where or PROG, fix=fix) from error


def _explained(command: ExplainCommand) -> int:
    from vitscope.infer.explain.subject import has_attention, why_no_map
    from vitscope.infer.predictor import Predictor

    predictor = Predictor.load(find_described_model(command.model or ""), device=command.device)
    picture, model = Path(command.image or "").expanduser(), predictor.model
    if has_attention(model):
        return _show_map(command, predictor, picture)
    reason = why_no_map(model)
    _refuse_attention(command, reason)
    return _show_feature_maps(command, predictor, picture, reason)


def _show_map(command: ExplainCommand, predictor: Predictor, picture: Path) -> int:
    from vitscope.cli.explain_tables import print_explanation
    from vitscope.infer.explain.explain import explain
    from vitscope.infer.explain.feature_maps import feature_maps_of

    extras = ("sheet", "tokens", "feature_maps", "overlay")
    wanted = [name.replace("_", "-") for name in extras if getattr(command, name)]
    method = command.method or "attention"
    places = Places(command.out, picture, method, wanted, overwrite=command.overwrite)
    with progress_bar("testing the map") as progress:
        found = explain(
            predictor,
            picture,
            method,
            layer=command.layer,
            head=command.head,
            target=command.target,
            patch=command.patch,
            progress=progress,
        )
    with writing(places.main):
        drawn = [found.save(places.main)]
        if command.sheet:
            drawn.append(found.save_sheet(places.beside("sheet")))
        if command.tokens:
            attention = predictor.attention(picture, layers=found.layer)
            drawn.append(attention.save(places.beside("tokens"), layer=found.layer, head=found.head))
        if command.feature_maps:
            drawn.append(feature_maps_of(predictor, picture).save(places.beside("feature-maps")))
        if command.overlay:
            found.overlay().save(places.beside("overlay"), format="PNG")
            drawn.append(places.beside("overlay"))
    if command.json:
        print_json(encode({**found.to_dict(), "files": [str(path) for path in drawn]}))
        return EXIT_DONE
    print_explanation(found)
    _print_files(drawn)
    return EXIT_DONE


def _show_feature_maps(command: ExplainCommand, predictor: Predictor, picture: Path, reason: str) -> int:
    from vitscope.cli.explain_tables import print_feature_maps
    from vitscope.infer.explain.feature_maps import feature_maps_of

    places = Places(command.out, picture, "feature-maps", [], overwrite=command.overwrite)
    found = feature_maps_of(predictor, picture)
    with writing(places.main):
        drawn = [found.save(places.main)]
    if not command.feature_maps:  # nobody should take them for a map of attention
        sys.stderr.write(f"{reason}: instead of a map, these are its filters and feature maps\n")
    if command.json:
        print_json(encode({**found.to_dict(), "files": [str(path) for path in drawn]}))
        return EXIT_DONE
    print_feature_maps(found)
    _print_files(drawn)
    return EXIT_DONE


def _refuse_attention(command: ExplainCommand, reason: str) -> None:
    """What was asked for and only a model with attention has."""
    asked: dict[str, Any] = {name: getattr(command, name) for name in ("method", "head", "target", "patch")}
    asked |= {name: getattr(command, name) or None for name in ("sheet", "tokens", "overlay")}
    asked["layer"] = command.layer
    given = [f"--{name}" for name, value in asked.items() if value is not None]
    if given:
        raise UsageError(
            f"{reason}, and so there is no {', '.join(given)}",
            where=PROG,
            fix=f"leave out {', '.join(given)} to see its filters and feature maps",
        )


def _print_files(paths: Sequence[Path]) -> None:
    out = console()
    out.print("wrote " + ", ".join(map(str, paths)), markup=False, soft_wrap=True)

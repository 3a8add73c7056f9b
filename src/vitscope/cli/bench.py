"""`vitscope bench MODEL`: how fast a model is, beside others, and what would make it cheaper."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import print_json, say
from vitscope.cli.model_flags import changes_of, name_first, named_model, with_model
from vitscope.cli.model_source import find_described_model
from vitscope.core.config import config, require
from vitscope.core.errors import EXIT_DONE, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.strict_json import encode
from vitscope.core.suggest import did_you_mean
from vitscope.core.switch import Switch
from vitscope.models.config import ModelConfig
from vitscope.models.variants import VARIANTS, is_classifier

PROG = "vitscope bench"
PEERS = ("timm", "transformers")


@config
class BenchCommand:
    """Time a model on this machine: pictures a second, latency (median and 95 %), memory, all in one run.

    MODEL is the name of a model (`vitscope models` lists them), a run, a model folder or a name on the hub. With
    --against the same model, with the same weights, is timed as other libraries build it, in turns.

    With --cheaper the same model is timed in smaller numbers and other ways of launching: how many answers stay the
    same, how many are right, its size, its speed; and which way is fastest here.

    Every setting of a model that is named is a flag: `vitscope bench vit_small --model.img-size 64`.
    """

    examples: ClassVar[dict[str, str]] = {"against": "timm", "data": "photos", "images": "photos", "ways": "bf16"}

    name: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model to time."""
    against: str | None = None
    """Also time the same model of timm, transformers, or both with a comma between."""
    batch: tuple[int, ...] = (1, 32)
    """Pictures at once, one size or several. With --cheaper the largest counts, beside 1."""
    compile: Switch = False
    """Also time it through torch.compile; on a GPU also as a CUDA graph of compiled kernels."""
    train: Switch = False
    """Also time training steps: forward, backward, AdamW."""
    dtype: Literal["fp32", "bf16", "fp16"] | None = None
    """The type of the arithmetic: bf16 on a GPU, fp32 elsewhere, unless said. Training keeps its weights in fp32."""
    cheaper: Switch = False
    """Measure every way of asking the model on real pictures: give --data or --images."""
    data: str | None = None
    """Labelled pictures for --cheaper: a data set's name or path. Its validation part is taken."""
    images: str | None = None
    """Pictures without labels for --cheaper: a folder or a pattern."""
    most: int = 512
    """How many pictures to compare answers on."""
    ways: tuple[str, ...] = ()
    """Measure only these ways, such as "bf16" "int8 compiled"; all that the device has by default."""
    agreement: float = 0.99
    """Share of answers that must stay the same for a way to be proposed."""
    sensitivity: Switch = False
    """With --cheaper: also find which layers suffer from 8 bits, and which must stay floats to reach --agreement."""
    rounds: int = 5
    """Rounds of timing."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    json: Switch = False
    """Print JSON instead of tables."""

    def __post_init__(self) -> None:
        for name in ("most", "rounds"):
            require(getattr(self, name) > 0, name, "a number from 1", getattr(self, name))
        require(bool(self.batch) and all(size > 0 for size in self.batch), "batch", "numbers from 1", self.batch)
        require(0 < self.agreement <= 1, "agreement", "above 0, up to 1", self.agreement)
        for peer in self.peers:
            fix = did_you_mean(peer, PEERS)
            require(peer in PEERS, "against", "timm, transformers, or both with a comma between", peer, fix=fix)

    @property
    def title(self) -> str:
        """What is timed, as it is written above the table: the name, with what of its settings was changed."""
        changes = changes_of(self.name, getattr(self, "model", None))
        return " ".join([str(self.name), *(f"{key}={value}" for key, value in changes.items())])

    @property
    def peers(self) -> list[str]:
        return [name.strip() for name in (self.against or "").split(",") if name.strip()]


def run(args: Sequence[str]) -> int:
    command, settings = _parse(args)
    if command.name is None:
        raise UsageError("no MODEL named", where=PROG, fix=f"`{PROG} vit_small`, or a run or model folder")
    _refuse_what_would_be_ignored(command)

    from vitscope.core.device import pick_device  # torch comes with these
    from vitscope.infer.benchmark.surroundings import surroundings
    from vitscope.infer.benchmark.work import prepare_device

    device = pick_device(command.device)
    prepare_device(device)
    model = _model(command.name, settings)
    facts: dict[str, Any] = dict(surroundings(device))
    if command.cheaper:
        from vitscope.cli.bench_cheaper import print_ways, ways_report

        found = ways_report(command, model, device, say=say)
        show = print_ways
    else:
        from vitscope.cli.bench_tables import contest_report, print_contest

        found = contest_report(command, model, device, say=say)
        show = print_contest
    if command.json:
        told = {} if settings is None else {"settings": changes_of(command.name, settings)}
        print_json(encode({"model": command.name, **told, **facts, **found}))
    else:
        show(command, facts, found)
    return EXIT_DONE


def _parse(args: Sequence[str]) -> tuple[BenchCommand, ModelConfig | None]:
    """The command and, of a model's name, its settings with all flags applied."""
    name = named_model(args)
    if name is not None and name in VARIANTS:
        command = parse_flags(with_model(BenchCommand, VARIANTS[name].config), name_first(args, name), prog=PROG)
        return command, command.model  # pyright: ignore[reportAttributeAccessIssue]
    flag = next((arg for arg in args if arg.startswith("--model.")), None)
    if flag is not None and name is not None:
        _refuse_mistyped(name)
        raise UsageError(
            f"{flag.partition('=')[0]} is for a model that is named: '{name}' is timed as it was saved",
            where=PROG,
            fix=f"`{PROG} vit_small {flag} ...` times a model of such settings with new weights, which is as fast",
        )
    return parse_flags(BenchCommand(), args, prog=PROG), None


def _refuse_what_would_be_ignored(command: BenchCommand) -> None:
    plain = BenchCommand()
    of_cheaper = ("data", "images", "most", "ways", "agreement", "sensitivity")
    of_contest = ("against", "compile", "train", "dtype")
    for key in of_contest if command.cheaper else of_cheaper:
        if getattr(command, key) != getattr(plain, key):
            flag = f"--{key}"
            wanted = "no --cheaper beside it" if command.cheaper else "--cheaper beside it"
            raise UsageError(expected(flag, wanted, getattr(command, key)), where=PROG, fix=f"leave {flag} out")
    if command.cheaper and (command.data is None) == (command.images is None):
        raise UsageError(
            expected("--cheaper", "either --data or --images", "both" if command.data else "neither"),
            where=PROG,
            fix="`--data` for labelled pictures (accuracy too), `--images` for a folder without labels",
        )


def _model(name: str, settings: ModelConfig | None) -> Any:
    """Loaded; of a model's name, with the weights it begins with."""
    from vitscope.models.build import build_model
    from vitscope.weights.load import load_model

    if settings is None:
        _refuse_mistyped(name)
    if settings is None or is_classifier(settings):
        model = load_model(find_described_model(name)) if settings is None else build_model(settings)
        if getattr(model, "num_classes", 0):
            return model.eval()
    raise UsageError(
        f"'{name}' has no classes", where=PROG, fix="time a classifier; of a masked model, the ViT it is made of"
    )


def _refuse_mistyped(name: str) -> None:
    from vitscope.weights.hub import is_hub_name

    near = None if Path(name).exists() or is_hub_name(name) else did_you_mean(name, VARIANTS)
    if near is not None:
        raise UsageError(f"'{name}' is neither a model's name nor a folder", where=PROG, fix=near)

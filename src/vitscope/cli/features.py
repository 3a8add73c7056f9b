"""`vitscope features MODEL IMAGES...`: what a model makes of pictures, kept, compared, judged or drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import print_json
from vitscope.cli.model_source import find_described_model
from vitscope.core.config import config, require
from vitscope.core.errors import EXIT_DATA, EXIT_DONE, UsageError
from vitscope.core.flags import parse_flags
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch

PROG = "vitscope features"


@config
class FeaturesCommand:
    """Take what a model makes of pictures before it names classes: to a file, to find like pictures, as a map; or judge
    the model by it.

    MODEL is a run, a model folder (vitscope's, timm's, Hugging Face's) or a name on the hub. IMAGES are files, folders
    or patterns in quotes, a data set (digits, Parquet files, ...), or a file that --out wrote, whose features are not
    taken again. Where one folder is given, and all pictures lie in folders within it, those are their classes.
    """

    examples: ClassVar[dict[str, str]] = {
        "out": "features.npz",
        "nearest": "photo.jpg",
        "map": "map.png",
        "knn": "photos",
        "probe": "photos",
        "layers": "-1",
        "sheet": "nearest.png",
    }

    model: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="MODEL")] = None
    """The model whose features are taken."""
    images: Annotated[tuple[str, ...], tyro.conf.Positional, tyro.conf.arg(metavar="IMAGES...")] = ()
    """The pictures: files, folders, patterns or a data set; not needed for --knn and --probe, which name their own."""
    out: str | None = None
    """Write the features to this file: .npz or .parquet."""
    nearest: str | None = None
    """Find the pictures most like this one."""
    map: str | None = None
    """Draw a map to this PNG: like pictures lie together."""
    knn: str | None = None
    """Judge the features by nearest neighbours on this data set: a built-in set, a folder, a name under
    $VITSCOPE_DATA."""
    probe: str | None = None
    """Judge the features by linear classifiers trained on this data set."""
    layers: tuple[int, ...] | Literal["all"] = ()
    """Blocks (stages, where a model has stages) to take: numbers, -1 for the last; or `all`. By default the last, and
    for --knn and --probe the last four."""
    tokens: Literal["pooled", "cls", "mean", "patch", "map", "all"] = "pooled"
    """`pooled` as for the model's own head, the class token, the mean of the patches, every patch, a map (D, h, w), or
    all tokens."""
    norm: bool = True
    """Take features after the model's last norm, wherever it fits; off: before it."""
    store: Literal["fp32", "fp16", "bf16"] = "fp32"
    """The type features are stored in; bf16 lies in the file as 16 bits each (uint16)."""
    overwrite: Switch = False
    """Replace the file --out names."""
    top_k: int = 5
    """How many pictures --nearest names."""
    sheet: str | None = None
    """Where the picture of --nearest goes: by default NAME-nearest.png in the current folder, and with --json nowhere.
    `none` draws none."""
    map_by: Literal["pca", "tsne"] = "pca"
    """How the map is laid out: the two directions features vary most in, or t-SNE."""
    thumbnails: Switch = False
    """Draw the pictures themselves on the map, instead of points."""
    k: tuple[int, ...] = (10, 20, 100, 200)
    """Numbers of neighbours --knn tries."""
    lrs: tuple[float, ...] = (1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.3, 1.0)
    """Learning rates --probe tries, all at once."""
    epochs: int | None = None
    """How often --probe shows each picture; by default a million in all, each 10 to 200 times."""
    batch_size: int = 32
    """Pictures at once."""
    dtype: Literal["fp32", "bf16", "fp16"] = "fp32"
    """The type of the arithmetic: the last two are quicker on a GPU, and less exact."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    json: Switch = False
    """Print JSON."""

    def __post_init__(self) -> None:
        require(self.top_k > 0, "top_k", "a number from 1", self.top_k)
        require(self.batch_size > 0, "batch_size", "a number from 1", self.batch_size)
        require(self.epochs is None or self.epochs > 0, "epochs", "a number from 1, or nothing", self.epochs)
        require(len(self.k) > 0 and min(self.k) > 0, "k", "numbers from 1", self.k)
        require(len(self.lrs) > 0 and 0 < min(self.lrs) < float("inf"), "lrs", "positive numbers", self.lrs)

    @property
    def vector_wanted_by(self) -> str | None:
        """The first flag that needs one vector per picture."""
        wanted = {"nearest": self.nearest, "map": self.map, "knn": self.knn, "probe": self.probe}
        return next((f"--{name}" for name, value in wanted.items() if value is not None), None)


def run(args: Sequence[str]) -> int:
    command = parse_flags(FeaturesCommand(), args, prog=PROG)
    _refuse(command)

    from vitscope.cli.features_judge import judge_features  # torch comes with these
    from vitscope.cli.features_pass import pass_over
    from vitscope.cli.features_paths import Paths
    from vitscope.cli.features_tables import print_features
    from vitscope.infer.predictor import Predictor

    paths = Paths.of(command)
    predictor = Predictor.load(
        find_described_model(command.model or ""),
        device=command.device,
        dtype=command.dtype,
        batch_size=command.batch_size,
    )
    report: dict[str, Any] = {"model": command.model}
    if command.images:
        report |= pass_over(command, paths, predictor)
    report |= judge_features(command, predictor)
    if command.json:
        print_json(encode(report))
    else:
        print_features(report)
    return EXIT_DATA if report.get("count") == 0 else EXIT_DONE


def _refuse(command: FeaturesCommand) -> None:
    """What cannot be meant, before a model is loaded for it."""
    example = f"`{PROG} runs/NAME photos/ --out photos.npz`"
    if command.model is None:
        raise UsageError("no MODEL named", where=PROG, fix=example)
    passes = [name for name in ("out", "nearest", "map") if getattr(command, name) is not None]
    judged = command.knn is not None or command.probe is not None
    if not command.images and (passes or not judged):
        raise UsageError("no IMAGES named", where=PROG, fix=example)
    if not passes and (command.images or not judged):
        raise UsageError(
            "nothing to do with the features of these pictures",
            where=PROG,
            fix="add --out FILE.npz, --nearest PICTURE or --map FILE.png",
        )
    flag = command.vector_wanted_by
    if flag is not None and command.tokens in ("patch", "map", "all"):
        raise UsageError(
            f"{flag} needs one vector per picture, and --tokens {command.tokens} gives many",
            where=PROG,
            fix="--tokens pooled, cls or mean",
        )
    if (command.nearest or command.map) and (command.layers == "all" or len(command.layers) > 1):
        raise UsageError(
            f"{'--nearest' if command.nearest else '--map'} needs one layer", where=PROG, fix="--layers -1, or another"
        )

"""`vitscope eval RUN_OR_MODEL`: measure a trained model on one part of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import tyro

from vitscope.cli.console import print_json, say
from vitscope.cli.model_source import find_model_folder
from vitscope.core.config import config, require, updated
from vitscope.core.errors import EXIT_DONE, UsageError, expected
from vitscope.core.flags import parse_flags
from vitscope.core.run_layout import CONFIG, MODEL
from vitscope.core.strict_json import encode
from vitscope.core.switch import Switch
from vitscope.data.config import DataConfig
from vitscope.sparse.config import TRAIN
from vitscope.train.config.read import read_train_config

PROG = "vitscope eval"


@config
class EvalCommand:
    """Measure a trained model: accuracy with its 95 % interval, loss, each class, which classes are confused.

    RUN_OR_MODEL is the folder of a run, whose own data are taken, or of a model, for which --data is needed.
    """

    examples: ClassVar[dict[str, str]] = {"data": "photos"}

    source: Annotated[str | None, tyro.conf.Positional, tyro.conf.arg(metavar="RUN_OR_MODEL")] = None
    """The folder of a run or of a saved model."""
    data: str | None = None
    """Other data than the run's: a built-in set, a folder or file, or a name under $VITSCOPE_DATA or data/."""
    part: Literal["train", "val", "test"] = "test"
    """Which part of the data to measure on."""
    batch_size: int = 256
    """Pictures at once."""
    calibrate: Switch = False
    """Also tell how far its confidence can be trusted: the calibration error, and the temperature, chosen on the
    validation part, that brings it down."""
    swap_test: Switch = False
    """Also try the usual normalisations on up to 1,000 pictures, and say if one suits the model better than its own."""
    device: str = "auto"
    """Where to compute: auto, cpu, cuda, cuda:N or mps."""
    json: Switch = False
    """Print JSON instead of tables."""

    def __post_init__(self) -> None:
        if self.calibrate:
            require(self.part != "val", "part", "test or train with --calibrate, which chooses on val", self.part)
        require(0 < self.batch_size <= 1_000_000, "batch_size", "from 1 to 1,000,000", self.batch_size)


def run(args: Sequence[str]) -> int:
    command = parse_flags(EvalCommand(), args, prog=PROG)
    if command.source is None:
        raise UsageError("no run or model named", where=PROG, fix=f"`{PROG} runs/NAME`, or the folder of a model")
    folder = find_model_folder(command.source)
    data = _data(command, folder)

    from vitscope.cli.eval_tables import print_report, report_of  # torch comes with these
    from vitscope.train.measure import measure

    found, names = measure(folder, data, command.part, batch_size=command.batch_size, device=command.device, say=say)
    report = {"source": command.source, "data": data.name, "part": command.part, **report_of(found, names)}
    trust = _trust(command, folder, data)
    if command.json:
        print_json(encode({**report, **trust}))
        return EXIT_DONE
    print_report(report)
    if trust:
        from vitscope.cli.eval_trust import print_trust

        print_trust(trust)
    return EXIT_DONE


def _trust(command: EvalCommand, folder: Path, data: DataConfig) -> dict[str, Any]:
    """What else was asked for. It takes half a second to import, so only then."""
    if not (command.calibrate or command.swap_test):
        return {}
    from vitscope.cli.eval_trust import trust_report

    return trust_report(command, folder, data)


def _data(command: EvalCommand, folder: Path) -> DataConfig:
    """The run's data (or a sparse experiment's), other data asked for, or both: another set, split as the run's was."""
    beside = (folder.parent / name for name in (CONFIG, TRAIN))
    settings = next((path for path in beside if path.is_file()), None) if folder.name == MODEL else None
    if settings is not None:
        own = read_train_config(settings).data
        if command.data in (None, own.name):
            return own
        return updated(own, name=command.data, image_column=None, label_column=None)
    if command.data is None:
        raise UsageError(
            expected("--data", "a data set, as a model alone does not name one", "nothing"),
            where=PROG,
            fix=f"`{PROG} {command.source} --data digits`",
        )
    return DataConfig(name=command.data)

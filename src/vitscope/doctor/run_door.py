"""The door after training: a run's folder, examined with the weights it came to."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from vitscope.core.config import updated
from vitscope.core.errors import UsageError
from vitscope.core.run_layout import CONFIG, MODEL
from vitscope.doctor.examination import OnCheck, Report
from vitscope.doctor.settings_door import examine_settings
from vitscope.train.config.read import read_train_config


def examine_run(
    folder: str | Path,
    *,
    quick: bool = False,
    only: Collection[str] = (),
    on_check: OnCheck | None = None,
) -> Report:
    """Examine a run's settings with its best weights so far, or, before the first evaluation, those it began with."""
    folder = Path(folder).expanduser()
    if not (folder / CONFIG).is_file():
        raise UsageError(
            f"'{folder}' does not say how it was trained", where=f"looked for {CONFIG} in it", fix="give a run's folder"
        )
    config = read_train_config(folder / CONFIG)
    if (folder / MODEL).is_dir():
        config = updated(config, checkpoint=updated(config.checkpoint, init_from=str(folder)))
    report = examine_settings(config, quick=quick, only=only, on_check=on_check)
    return replace(report, subject={"run": str(folder), **report.subject})

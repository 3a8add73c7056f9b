"""A run folder as the processes see it that do not write: one run, one writer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from vitscope.core.metrics_file import MetricsFile
from vitscope.core.run_folder import RunFolder
from vitscope.core.status_file import StatusFile


class ReadOnlyFolder(RunFolder):
    """Reads as its kind does. Whatever would be written is passed over: another process writes it."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.metrics = _ReadOnlyMetrics(self.metrics_path)
        self.status = _ReadOnlyStatus(self.status_path)

    def forget_replaced(self) -> None:
        pass

    def put_back_replaced(self) -> bool:
        return False

    def save_config(self, cfg: Any) -> None:
        pass

    def save_environment(self, command: str | None = None) -> None:
        pass


class _ReadOnlyMetrics(MetricsFile):
    def append(self, row: Mapping[str, Any] | None = None, /, **values: Any) -> None:
        pass

    def cut(self, goes: Callable[[dict[str, Any]], bool]) -> int:
        return 0


class _ReadOnlyStatus(StatusFile):
    def _beat(self) -> None:
        pass

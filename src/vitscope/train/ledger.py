"""What every step left behind, kept on the device until the host looks.

A step writes its scalars into the next row of a table; the host copies the table once in a while. So every step is
logged, and none waits for the host.
"""

from __future__ import annotations

import torch
from torch import Tensor

from vitscope.core.errors import VitscopeError, expected
from vitscope.train.shards import made_whole


class Ledger:
    """A table of `rows` steps by scalars. `names` are fixed by the first step."""

    def __init__(self, device: torch.device, rows: int) -> None:
        self.names: list[str] = []
        self._table = torch.zeros(rows + 1, 0, device=device)  # the last row is for what is never read
        self._next = torch.zeros(1, dtype=torch.int64, device=device)

    def enter(self, scalars: dict[str, Tensor], hold: Tensor) -> None:
        """Write a row. No host sync. A held step writes where the next one will, and so is never read; so are steps
        beyond the table. What a hook finds of weights in shards is made whole: all processes enter alike."""
        if not self.names:
            self.names = list(scalars)
            self._table = self._table.new_zeros(len(self._table), len(self.names))
        if list(scalars) != self.names:
            raise VitscopeError(
                expected("the numbers a step leaves", ", ".join(self.names), ", ".join(scalars)),
                fix="a hook must enter the same numbers into state.scalars at every step",
            )
        for name, value in scalars.items():
            if not isinstance(value, Tensor):
                raise VitscopeError(
                    expected(f"state.scalars['{name}']", "a tensor on the device", type(value).__name__),
                    where="a hook after the step",
                    fix="leave out .item(): it would make every step wait",
                )
        row = torch.stack([made_whole(value.detach()).to(self._table).reshape(()) for value in scalars.values()])
        self._table.index_copy_(0, self._next.clamp(max=len(self._table) - 1), row[None])
        self._next.add_((hold == 0).to(torch.int64))

    def read(self) -> list[dict[str, float]]:
        """The rows since the last reading. This is where the host waits for the device."""
        count = min(int(self._next), len(self._table) - 1)
        rows = self._table[:count].tolist()
        self._next.zero_()
        return [dict(zip(self.names, row, strict=True)) for row in rows]

    def clear(self) -> None:
        self._next.zero_()

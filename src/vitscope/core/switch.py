"""A flag that is off unless it is given, as `--json`. A setting may be on by default: it is a plain `bool`, whose flag
has a `--no-` form too, which would mean nothing here."""

from __future__ import annotations

from typing import Annotated

import tyro

Switch = Annotated[bool, tyro.conf.FlagCreatePairsOff]

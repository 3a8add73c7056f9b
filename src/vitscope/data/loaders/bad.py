"""Pictures that cannot be decoded: a few are left out and recorded, many are a reason to stop."""

from __future__ import annotations

from collections.abc import Sequence

from vitscope.core.errors import DataError
from vitscope.data.loaders.loader import BadSample

SHOWN = 3


def refuse_too_many(bad: Sequence[BadSample], pictures: int, limit: float) -> None:
    """Stop when more than this share of the pictures is unreadable."""
    if len(bad) <= limit * pictures:
        return
    shown = "; ".join(f"{sample.where}: {sample.reason}" for sample in bad[:SHOWN])
    more = f"; and {len(bad) - SHOWN:,} more" if len(bad) > SHOWN else ""
    raise DataError(
        f"{len(bad):,} of {pictures:,} pictures cannot be decoded, more than {limit:.2%}",
        where=shown + more,
        fix="`vitscope data` lists them all; mend or remove them, or allow more (--data.bad-limit)",
    )

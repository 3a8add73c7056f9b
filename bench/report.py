"""How a benchmark ends: what it was measured on, then the table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def report(facts: dict[str, str], rows: list[Any], text: str, file: Path | None) -> None:
    """The facts and the table of a run, printed last; facts and rows also into a JSON file, if one is named."""
    if file is not None:
        file.write_text(json.dumps({**facts, "rows": rows}, indent=1) + "\n")
    print()
    for word, fact in facts.items():
        print(f"- {word}: {fact}")
    print(f"\n{text}", flush=True)

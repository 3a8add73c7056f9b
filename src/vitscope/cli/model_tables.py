"""How a model's costs and shapes look on a screen and as JSON."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.markup import escape

from vitscope.cli.console import console, in_bytes, in_millions, plain_table, print_table
from vitscope.core.config import to_dict
from vitscope.models.accounting.account import Account, count_parameters
from vitscope.models.accounting.parts import Part, fold_parts
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig
from vitscope.models.trace import fold_stages, trace_shapes
from vitscope.models.variants import VARIANTS


def list_rows(names: list[str]) -> list[dict[str, Any]]:
    rows = []
    for name in names:
        variant = VARIANTS[name]
        config = variant.config
        body: Any = config.encoder if isinstance(config, MAEConfig | SimMIMConfig) else config
        row = {
            "name": name,
            "family": variant.family,
            "img_size": config.img_size,
            "patch_size": getattr(config, "patch_size", None),
            "embed_dim": getattr(body, "embed_dim", None),
            "depth": getattr(body, "depth", None) or sum(getattr(body, "depths", ())) or None,
            "num_heads": getattr(body, "num_heads", None),
            "tokens": body.num_tokens if isinstance(body, ViTConfig) else None,
            "num_classes": config.num_classes,
            "parameters": count_parameters(config),
            "about": variant.about,
        }
        rows.append(row)
    return rows


def print_list(rows: list[dict[str, Any]]) -> None:
    numbers = ("image", "patch", "width", "depth", "heads", "tokens", "classes", "parameters")
    keys = ("img_size", "patch_size", "embed_dim", "depth", "num_heads", "tokens", "num_classes")
    print_table(
        ("name", *numbers, "about"),
        [(row["name"], *(_cell(row[key]) for key in keys), f"{row['parameters']:,}", row["about"]) for row in rows],
        numbers=numbers,
        wraps={"about": 20},
        drop=("about", "classes", "heads", "tokens", "patch", "depth", "width", "image"),
    )


def account_data(name: str, model: ModelConfig, batch: int) -> dict[str, Any]:
    account = Account(model, batch)
    memory = account.memory
    return {
        "name": name,
        "family": model.family,
        "config": to_dict(model),
        "tokens": account.tokens,
        "parameters": account.parameters,
        "macs": account.macs,
        "bytes_fp32": account.bytes_fp32,
        "bytes_bf16": account.bytes_bf16,
        "training_memory_bytes": {
            "batch": batch,
            "weights": memory.weights,
            "weights_bf16": memory.weights_bf16,
            "gradients": memory.gradients,
            "optimiser": memory.optimiser,
            "activations_fp32": memory.activations,
            "activations_bf16": memory.activations_bf16,
            "total_fp32": memory.total,
            "total_bf16": memory.total_bf16,
        },
        "parts": [
            {"name": p.name, "shape": list(p.shape), "weights": p.weights, "biases": p.biases, "macs": p.macs}
            for p in account.parts
        ],
    }


def print_account(name: str, model: ModelConfig, batch: int) -> None:
    account = Account(model, batch)
    out = console()
    about = VARIANTS[name].about if name in VARIANTS else "a saved model"
    out.print(f"[bold]{escape(name)}[/bold]  {about}, for images {_shape(account.image_shape)}\n")
    numbers = ("weights", "biases", "times", "parameters", "MACs")
    rows = [_part_cells(part) for part in fold_parts(account.parts)]
    sums = [f"[bold]{word}[/bold]" for word in ("in all", f"{account.parameters:,}", f"{account.macs:,}")]
    rows.append([sums[0], "", "", "", "", *sums[1:]])
    print_table(
        ("part", "shape", *numbers),
        rows,
        numbers=numbers,
        wraps={"part": _longest_word(row[0] for row in rows)},
        drop=("shape", "times"),
    )
    memory = account.memory
    facts = plain_table("", "")
    facts.show_header = False
    if account.tokens is not None:
        facts.add_row("tokens", f"{account.tokens:,} per image")
    facts.add_row("compute", f"{in_millions(account.macs)} multiply-adds per image, forward")
    facts.add_row("size", f"{in_bytes(account.bytes_fp32)} in fp32, {in_bytes(account.bytes_bf16)} in bf16")
    facts.add_row(
        f"activations, batch {batch}",
        f"{in_bytes(memory.activations)} kept for the backward pass in fp32, "
        f"{in_bytes(memory.activations_bf16)} in bf16",
    )
    facts.add_row(
        f"training, batch {batch}",
        f"about {in_bytes(memory.total)} in fp32, {in_bytes(memory.total_bf16)} in bf16 "
        "(weights, gradients, Adam, activations)",
    )
    out.print()
    out.print(facts)


def trace_data(name: str, model: ModelConfig, batch: int) -> dict[str, Any]:
    stages = trace_shapes(model, batch)
    return {
        "name": name,
        "stages": [{"name": s.name, "kind": s.kind, "shape": list(s.shape), "about": s.about} for s in stages],
    }


def print_trace(name: str, model: ModelConfig, batch: int) -> None:
    out = console()
    out.print(f"[bold]{escape(name)}[/bold]  shapes of a batch of {batch}, stage by stage\n")
    stages = fold_stages(trace_shapes(model, batch))
    print_table(
        ("stage", "kind", "shape", "times", ""),
        [(stage.name, stage.kind, _shape(stage.shape), _times(stage.times), stage.about) for stage in stages],
        numbers=("times",),
        wraps={"": 16},
        drop=("kind", "times", ""),
    )


def _part_cells(part: Part) -> list[str]:
    total = part.parameters * part.times
    return [
        part.name,
        _shape(part.shape) if part.shape else "",
        f"{part.weights:,}" if part.weights else "",
        f"{part.biases:,}" if part.biases else "",
        _times(part.times),
        f"{total:,}" if total else "",
        f"{part.macs * part.times:,}" if part.macs else "",
    ]


def _longest_word(texts: Iterable[str]) -> int:
    return max(len(word) for text in texts for word in text.split())


def _times(count: int) -> str:
    return f"x {count}" if count > 1 else ""


def _shape(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape))


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, tuple | list):
        return "/".join(map(str, value))
    return str(value)

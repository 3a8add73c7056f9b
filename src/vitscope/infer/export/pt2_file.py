"""`.pt2`: torch.export's own archive, for Python with torch alone, AOTInductor and ExecuTorch."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from torch import Tensor
from torch.export import ExportedProgram

from vitscope.core.dtypes import type_name
from vitscope.core.errors import UsageError
from vitscope.infer.export.metadata import FILE, KEYS
from vitscope.infer.export.network import could_not, without_warnings
from vitscope.infer.export.opened import Opened, described


def refuse(*, opset: int | None, dtype: torch.dtype) -> None:
    if opset is not None:
        raise UsageError("a .pt2 file has no opset", where="export to pt2", fix="leave --opset out, or write ONNX")


def write(program: ExportedProgram, path: Path, metadata: dict[str, str], *, output: str, opset: int | None) -> None:
    try:
        with without_warnings():
            torch.export.save(program, path, extra_files=dict(metadata))
    except Exception as error:
        raise could_not("write", error) from error


def open_file(path: Path) -> Opened:
    metadata: dict[str, str] = dict.fromkeys(KEYS, "")
    with without_warnings():
        program = torch.export.load(path, extra_files=metadata)
        module = program.module()
    names = {node.name: node.meta["val"] for node in program.graph.nodes if isinstance(node.meta.get("val"), Tensor)}
    signature = program.graph_signature

    def run(images: Tensor) -> Tensor:
        with torch.inference_mode():
            return module(images)

    return Opened(
        run=run,
        runtime=f"torch {torch.__version__}",
        inputs={name: _described(names[name]) for name in signature.user_inputs if isinstance(name, str)},
        outputs={_output_of(metadata): _described(names[name]) for name in signature.user_outputs if name in names},
        opset=None,
        metadata=metadata,
    )


def _output_of(metadata: dict[str, str]) -> str:
    """What comes out has no name in a `.pt2`; its metadata tells."""
    try:
        return str(json.loads(metadata[FILE])["output"])
    except (ValueError, KeyError, TypeError):
        return "output"


def _described(value: Tensor) -> str:
    return described(type_name(value.dtype), [side if isinstance(side, int) else "batch" for side in value.shape])

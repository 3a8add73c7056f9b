"""ONNX: one file with its weights inside, written by torch's exporter and opened by onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.core.packages import version_of
from vitscope.infer.export.network import could_not, without_warnings
from vitscope.infer.export.opened import Opened, described

PACKAGES = ("onnx", "onnxscript", "onnxruntime")
OPSET, LEAST_OPSET, MOST_OPSET = 20, 18, 23
"""torch's default, the oldest its exporter is written in, and the newest it knows."""
LIMIT = 2**31 - 2**24
"""Bytes of weights one file can hold: protobuf ends at 2 GiB, and the graph needs some of them."""
KINDS = {"tensor(float)": "float32", "tensor(uint8)": "uint8"}


def refuse(*, opset: int | None, dtype: torch.dtype) -> None:
    """What cannot be, before anything is loaded."""
    missing = [name for name in PACKAGES if version_of(name) is None]
    if missing:
        raise UsageError(
            f"writing ONNX needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not installed",
            where="export to ONNX",
            fix="pip install 'vitscope[export]', or write --format pt2, which needs torch alone",
        )
    if opset is not None and not LEAST_OPSET <= opset <= MOST_OPSET:
        raise UsageError(
            expected("opset", f"a number from {LEAST_OPSET} to {MOST_OPSET}", opset),
            where="export to ONNX",
            fix=f"leave it out for {OPSET}",
        )
    if dtype == torch.bfloat16:
        raise UsageError(
            expected("dtype", "fp32 or fp16 for ONNX", "bf16"),
            where="onnxruntime has no bf16 on the CPU, so the file could not be tried",
            fix="take fp16, or write --format pt2",
        )


def refuse_too_large(model: nn.Module, dtype: torch.dtype) -> None:
    """An ONNX file is one protobuf message."""
    count = sum(weight.numel() for weight in model.state_dict().values())
    if count * dtype.itemsize <= LIMIT:
        return
    smaller = count * torch.float16.itemsize <= LIMIT and dtype != torch.float16
    raise VitscopeError(
        f"the weights are {count * dtype.itemsize / 1e9:.1f} GB, and one ONNX file holds at most {LIMIT / 1e9:.1f} GB",
        where="export to ONNX",
        fix="--dtype fp16 halves them, and --format pt2 has no limit" if smaller else "--format pt2 has no limit",
    )


def write(program: ExportedProgram, path: Path, metadata: dict[str, str], *, output: str, opset: int | None) -> None:
    try:
        # no_grad: with gradients wanted, attention with a bias would take another kernel than when it was traced.
        with torch.no_grad(), without_warnings():
            written: Any = torch.onnx.export(
                program,
                dynamo=True,
                dynamic_shapes=({0: "batch"},),
                input_names=["images"],
                output_names=[output],
                opset_version=opset or OPSET,
                external_data=False,
                verbose=False,
            )
            written.model.metadata_props.update(metadata)
            written.save(path, external_data=False)
    except Exception as error:  # the exporter's own, of many kinds
        raise could_not("write", error) from error
    beside = sorted(other.name for other in path.parent.iterdir() if other != path)
    if beside:
        raise VitscopeError(
            f"the exporter wrote more than one file: {', '.join(beside)}",
            where="the weights are too large for one",
            fix="take --dtype fp16, or --format pt2",
        )


def open_file(path: Path) -> Opened:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()

    def run(images: Tensor) -> Tensor:
        (found,) = session.run(None, {given.name: images.numpy()})
        return torch.from_numpy(found)

    return Opened(
        run=run,
        runtime=f"onnxruntime {onnxruntime.__version__}",
        inputs={one.name: _described(one) for one in session.get_inputs()},
        outputs={one.name: _described(one) for one in session.get_outputs()},
        opset=_opset_of(path),
        metadata=dict(session.get_modelmeta().custom_metadata_map),
    )


def _described(one: Any) -> str:
    return described(str(KINDS.get(one.type, one.type)), list(one.shape))


def _opset_of(path: Path) -> int:
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    return next(used.version for used in model.opset_import if used.domain in ("", "ai.onnx"))

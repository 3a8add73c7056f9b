"""`export_model`: a model as one file, opened again, run on photographs and compared, and only then put in place."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn

from vitscope.core.dtypes import SHORT_NAMES
from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import normalise
from vitscope.infer.export import onnx_file, pt2_file
from vitscope.infer.export.compare import (
    ALLOWED,
    Comparison,
    compare,
    own_pictures,
    photographs,
    refuse_mismatch,
)
from vitscope.infer.export.metadata import metadata_of
from vitscope.infer.export.network import frozen, network_for, trace
from vitscope.infer.export.opened import Opened
from vitscope.infer.export.place import Format, format_of, put_in_place, refuse_to_bury
from vitscope.infer.pictures import Pictures
from vitscope.infer.predictor import preprocessing_of
from vitscope.models.config import ModelConfig, Size
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel
from vitscope.weights.folder import unwrapped
from vitscope.weights.load import load_model

WRITERS: dict[Format, ModuleType] = {"onnx": onnx_file, "pt2": pt2_file}


@dataclass(frozen=True)
class ExportReport:
    """What was written, and how near it is to the model."""

    path: str
    format: Format
    dtype: str
    bytes: int
    inputs: dict[str, str]
    outputs: dict[str, str]
    opset: int | None
    runtime: str
    comparison: Comparison

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "comparison": {**asdict(self.comparison), "difference": self.comparison.difference}}


def export_model(
    model: nn.Module | str | Path,
    out: str | Path,
    *,
    format: Format | None = None,  # noqa: A002  the word everybody uses
    config: ModelConfig | str | Path | None = None,
    img_size: Size | None = None,
    dtype: torch.dtype = torch.float32,
    opset: int | None = None,
    pixels: bool = False,
    pictures: Pictures | None = None,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> ExportReport:
    """Write `model` to `out` as ONNX or as a `.pt2` of torch.export; `format` is by default what the name ends in.

    `model` is one of ours, or whatever `load_model` takes (`config` is for that). The file takes any number of
    pictures of one size, `img_size` or the model's own, as float32 prepared by its preprocessing, or with `pixels` as
    uint8, which it normalises itself; it answers in float32 with logits, or with pooled features where there is no
    head. Of a masked model the encoder is written. `dtype` is what it counts in. Preprocessing and labels are in its
    metadata.

    What was written is opened again (by onnxruntime, or torch) and answers for photographs, or for your `pictures`, in
    batches of 1, 2 and 7. Where it differs from torch's fp32 by more than `ALLOWED`, or, in fp32, names another first
    class, that is an error and nothing is left; an older file stays. `say` is told each stage.
    """
    out = Path(out)
    kind = format_of(out, format)
    _refuse_dtype(dtype)
    WRITERS[kind].refuse(opset=opset, dtype=dtype)
    refuse_to_bury(out, overwrite=overwrite)
    network = _network(model, config=config, img_size=img_size, say=say)
    if kind == "onnx":
        onnx_file.refuse_too_large(network, dtype)
    preprocessing = preprocessing_of(network)
    shown = photographs(preprocessing) if pictures is None else own_pictures(pictures, preprocessing, say=say)
    output = "logits" if network.num_classes else "features"
    metadata = metadata_of(network, preprocessing, pixels=pixels, dtype=SHORT_NAMES[dtype], output=output)
    say(f"tracing {type(network).__name__}")
    traced = network_for(network, dtype=dtype, pixels=preprocessing if pixels else None)
    program = trace(traced, (preprocessing.in_chans, *preprocessing.img_size), pixels=pixels)
    with put_in_place(out) as path:
        say(f"writing {out.name}")
        WRITERS[kind].write(program, path, metadata, output=output, opset=opset)
        say(f"comparing {out.name} with the model")
        opened = _opened(WRITERS[kind], path, metadata, opset)
        comparison = _compared(network, opened, shown, preprocessing, pixels=pixels, dtype=dtype)
        size = path.stat().st_size
    return ExportReport(
        path=str(out),
        format=kind,
        dtype=SHORT_NAMES[dtype],
        bytes=size,
        inputs=opened.inputs,
        outputs=opened.outputs,
        opset=opened.opset,
        runtime=opened.runtime,
        comparison=comparison,
    )


def _network(
    model: nn.Module | str | Path,
    *,
    config: ModelConfig | str | Path | None,
    img_size: Size | None,
    say: Callable[[str], None],
) -> VisionModel:
    if isinstance(model, nn.Module):
        whole = unwrapped(model)
    else:
        say(f"reading {model}")
        whole, img_size = load_model(model, config=config, img_size=img_size), None
    if isinstance(whole, MaskedModel):
        say(f"of the {type(whole).__name__} its encoder is exported, which answers with features")
    return frozen(whole, img_size=img_size)


def _opened(writer: ModuleType, path: Path, metadata: dict[str, str], opset: int | None) -> Opened:
    try:
        opened: Opened = writer.open_file(path)
    except Exception as error:  # the runtime's own, of many kinds
        told = (str(error).strip().splitlines() or [""])[0][:300]
        raise VitscopeError(
            f"what was written cannot be opened: {told}",
            where="nothing was written",
            fix="try another --opset or --format, or another version of torch",
        ) from error
    lost = [key for key, text in metadata.items() if opened.metadata.get(key) != text]
    if lost or opset not in (None, opened.opset):
        what = f"metadata {', '.join(lost)}" if lost else f"opset {opset}, which became {opened.opset}"
        raise VitscopeError(
            f"the exporter did not keep {what}", where="nothing was written", fix="try another version of torch"
        )
    return opened


def _compared(
    network: VisionModel,
    opened: Opened,
    shown: list[Tensor],
    preprocessing: PreprocessConfig,
    *,
    pixels: bool,
    dtype: torch.dtype,
) -> Comparison:
    @torch.inference_mode()
    def by_torch(images: Tensor) -> Tensor:
        return network(images)

    found = compare(
        by_torch,
        opened.run,
        shown,
        lambda batch: normalise(batch, preprocessing),
        takes_pixels=pixels,
        allowed=ALLOWED[dtype],
        top1=network.num_classes > 0,
    )
    refuse_mismatch(found, exact=dtype == torch.float32, runtime=opened.runtime)
    return found


def _refuse_dtype(dtype: torch.dtype) -> None:
    if dtype not in SHORT_NAMES:
        wanted = ", ".join(map(str, SHORT_NAMES))
        raise UsageError(expected("dtype", f"one of {wanted}", dtype), where="export", fix="leave it out for float32")

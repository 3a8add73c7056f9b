"""`convert`: weights from anywhere, written in the format asked for, opened again and compared bit by bit."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import torch

from vitscope.core.dtypes import type_name
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.files import write_json
from vitscope.core.suggest import did_you_mean
from vitscope.models.config import ModelConfig, Size
from vitscope.models.model import VisionModel
from vitscope.weights import folder as own
from vitscope.weights.adapt import Resampling
from vitscope.weights.certificate import Certificate
from vitscope.weights.create import with_settings
from vitscope.weights.formats import huggingface_folder, timm_folder
from vitscope.weights.formats.huggingface_config import class_for
from vitscope.weights.formats.timm_spelling import spelled
from vitscope.weights.load import load_opened
from vitscope.weights.place import flush, make_hidden_beside
from vitscope.weights.proof import answer, fixed_batch
from vitscope.weights.shards import cast_model, is_weights, refuse_dtype
from vitscope.weights.source import LOCAL, Source, digest, open_source
from vitscope.weights.written import To, checked, refuse_disproof

WRITING = "writing for Hugging Face"
FILE_ENDINGS = (".safetensors", ".pth", ".pt", ".bin")
"""An `out` that ends so is a bare file."""
OTHER_ENDINGS = (".npz", ".npy", ".ckpt", ".pkl", ".h5", ".onnx", ".gguf", ".msgpack", ".zip", ".tar", ".gz", ".json")
"""Who ends a name so wants a file, which cannot be written."""
OTHER_WORDS = {"hf": "huggingface", "transformers": "huggingface", "own": "vitscope"}
"""What others call the formats."""
KNOWN_BY = {"timm": "architecture", "huggingface": "model_type"}
"""What config.json has in a folder of theirs."""
BESIDE = (*own.FILES, "preprocessor_config.json", "pytorch_model.bin")
"""What a folder of theirs may hold, besides weights."""


def convert(
    source: str | Path,
    out: str | Path,
    *,
    to: To = "vitscope",
    config: ModelConfig | str | Path | None = None,
    img_size: Size | None = None,
    patch_size: Size | None = None,
    in_chans: int | None = None,
    num_classes: int | None = None,
    dtype: torch.dtype | None = None,
    resampling: Resampling | None = None,
    allow_partial: bool = False,
    strict: bool = False,
    prove: bool = True,
    overwrite: bool = False,
    say: Callable[[str], None] = lambda text: None,
) -> Certificate:
    """Load `source` as `load_model` does and write it to `out`: a folder of vitscope, timm or Hugging Face, or, for
    timm and where `out` ends in .safetensors or .pth, a bare file of weights.

    What was written is opened again and every tensor compared. What the format folds or has no place for is named; a
    tensor that differs without a word about it is an error. With `prove`, source and result also meet the libraries
    they are for, and where those say something else nothing is written. The certificate lies beside the weights:
    certificate.json, or NAME.certificate.json for a bare file. Either all is written or nothing; `overwrite` replaces
    an older result. `say` is told each stage, as large models take minutes.
    """
    _refuse_place(source, str(out))
    out = Path(out)
    bare = _is_bare(out, to)
    refuse_dtype(dtype, where="convert(..., dtype=...)")
    _refuse_to_bury(out, to, bare, overwrite)
    sizes = {"img_size": img_size, "patch_size": patch_size, "in_chans": in_chans, "num_classes": num_classes}
    with open_source(source, alone=config is not None) as opened:
        _refuse_what_cannot_be_held(opened.config, to, sizes)
        has_library = prove and opened.layout != "vitscope"
        say(f"reading {opened.words}{', and asking the library it comes from' if has_library else ''}")
        model = load_opened(
            opened,
            config=config,
            wishes=sizes,
            resampling=resampling,
            allow_partial=allow_partial,
            strict=strict,
            prove=prove,
        )
    refuse_disproof(model.certificate.proof, where=str(source))
    if dtype is not None:
        _cast(model, dtype)
    place = out.resolve()  # a link stays a link
    if bare:
        return _write_file(model, place, prove=prove, say=say)
    done: list[Certificate] = []

    def write(folder: Path) -> None:
        say(f"writing {place.name} for {to}")
        write_folder = _folder_writer(to, model, opened if model.config == opened.config and dtype is None else None)
        remarks = [*_how_to_open(to, model, out), *write_folder(folder)]
        done.append(checked(model, folder, to, remarks, name=place.name, prove=prove, say=say))
        write_json(folder / own.CERTIFICATE, done[0].to_dict())
        for file in folder.iterdir():
            flush(file)

    own.replace_folder(place, write)
    return done[0]


def _cast(model: VisionModel, dtype: torch.dtype) -> None:
    """In another type, with what that does to the answers in the certificate."""
    if all(tensor.dtype == dtype for tensor in model.state_dict().values() if tensor.is_floating_point()):
        return
    images = fixed_batch(model.config, model.preprocessing)
    before = answer(model, images)
    said = cast_model(model, dtype)
    change, largest = (answer(model, images) - before).abs().max().item(), before.abs().max().item()
    words = f"{said}: outputs change by up to {change:.2g} (they reach {largest:.3g})"
    certificate: Certificate = model.certificate
    model.certificate = certificate.with_dtype(type_name(dtype), words)


def _folder_writer(to: To, model: VisionModel, same: Source | None) -> Callable[[Path], list[str]]:
    """`same`: the source, where nothing about its model was changed."""
    if to == "timm":
        return lambda folder: timm_folder.save_folder(model, folder)
    if to == "huggingface":
        return lambda folder: huggingface_folder.save_folder(model, folder)
    readme = notes = None
    if same is not None and same.layout == "vitscope":  # somebody may have written these
        readme, notes = _text_of(same.path / own.README), own.read_notes(same.path) or None
    write = own.writer(model, readme=readme, notes=notes, where="convert")

    def write_own(folder: Path) -> list[str]:
        write(folder)
        return []

    return write_own


def _text_of(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return None


def _how_to_open(to: To, model: VisionModel, out: Path) -> list[str]:
    if to == "timm":
        return [f"open it with timm.create_model('local-dir:{out}', pretrained=True)"]
    if to == "huggingface":
        chosen = class_for(model.config, where=WRITING).name
        return [f"open it with transformers.{chosen}.from_pretrained('{out}')"]
    return []


def _write_file(model: VisionModel, place: Path, *, prove: bool, say: Callable[[str], None]) -> Certificate:
    """A bare file and its certificate, made out of sight and then put in place."""
    place.parent.mkdir(parents=True, exist_ok=True)
    temporary = make_hidden_beside(place)
    try:
        say(f"writing {place.name} for timm")
        remarks = timm_folder.save_file(model, temporary / place.name)
        flush(temporary / place.name)
        file = temporary / place.name
        certificate = checked(model, file, "timm", remarks, name=place.name, prove=prove, say=say)
        beside = _certificate_of(place).name
        write_json(temporary / beside, certificate.to_dict())
        # The old certificate must not speak for the new weights, should this end between the two.
        _certificate_of(place).unlink(missing_ok=True)
        (temporary / place.name).replace(place)
        (temporary / beside).replace(place.with_name(beside))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return certificate


def _certificate_of(file: Path) -> Path:
    return file.with_name(f"{file.name}.certificate.json")


# --- what, and where to ---------------------------------------------------------------------------------------------


def _refuse_what_cannot_be_held(config: ModelConfig | None, to: To, sizes: dict[str, Any]) -> None:
    """Before anything large is read: a bare file alone does not say what it is, and is refused later."""
    if config is None:
        return
    wanted = with_settings(config, {key: value for key, value in sizes.items() if value is not None})
    if to == "timm":
        spelled(wanted)
    elif to == "huggingface":
        class_for(wanted, where=WRITING)


def _refuse_place(source: str | Path, out: str) -> None:
    if not out.strip():
        raise ConfigError(expected("out", "a folder or file to write", repr(out)), where="convert", fix="name a place")
    within, place = Path(str(source).removeprefix(LOCAL)).resolve(), Path(out).resolve()
    if str(source).strip() and within.is_dir() and within in place.parents:
        raise ConfigError(
            expected("out", f"a place outside '{source}', which is read", f"'{out}'"),
            where="convert",
            fix="name a place beside it: a folder of weights holds one model",
        )


def _is_bare(out: Path, to: str) -> bool:
    if to not in get_args(To):
        raise ConfigError(
            expected("to", f"one of {', '.join(get_args(To))}", repr(to)),
            where="convert",
            fix=did_you_mean(str(to), get_args(To), OTHER_WORDS) or f"name one of {', '.join(get_args(To))}",
        )
    bare = out.suffix.lower() in FILE_ENDINGS
    if out.suffix.lower() in OTHER_ENDINGS:
        raise ConfigError(
            expected("out", f"a folder, or for timm a file that ends in {', '.join(FILE_ENDINGS)}", f"'{out}'"),
            where="convert",
            fix="files of that kind are not written here",
        )
    if bare and to != "timm":
        raise ConfigError(
            expected("out", f"a folder, as {to} models are", f"'{out}'"),
            where="convert",
            fix=f"name a folder, such as '{out.with_suffix('')}', or write a bare file for timm",
        )
    return bare


def _refuse_to_bury(out: Path, to: To, bare: bool, overwrite: bool) -> None:
    """Never write over something that is not what would be written, nor over that unless told to."""
    if to == "vitscope":
        own.refuse_to_bury(out, overwrite)
        return
    if not out.exists() or (not bare and out.is_dir() and not any(out.iterdir())):
        return
    is_ours = _was_converted(out) if bare else out.is_dir() and _is_theirs(out, to)
    if not is_ours:
        wanted = "a file convert wrote" if bare else f"a {to} folder as convert wrote it"
        beside = _certificate_of(out).name if bare else f"{own.CERTIFICATE} in it"
        where = f"looked for {beside}, which speaks of what convert wrote, and for nothing else"
        raise UsageError(f"'{out}' is not {wanted}, and would be lost", where=where, fix="choose a new place")
    if not overwrite:
        raise UsageError(f"'{out}' already exists", fix="choose a new place, or pass overwrite=True (--overwrite)")


def _was_converted(out: Path) -> bool:
    """Whether the certificate beside a file, or within a folder, speaks of just what is there."""
    certificate = out / own.CERTIFICATE if out.is_dir() else _certificate_of(out)
    try:
        told: Any = json.loads(certificate.read_text(encoding="utf-8"))
        files = {out.name: out} if out.is_file() else {path.name: path for path in out.iterdir()}
        return all(digest(files[name]) == value for name, value in told["written"]["sha256"].items())
    except (OSError, ValueError, RecursionError, KeyError, TypeError, AttributeError):
        return False


def _is_theirs(folder: Path, to: To) -> bool:
    """Whether a folder holds one of their models, as convert wrote it, and nothing that did not come with it."""
    try:
        described: Any = json.loads((folder / own.CONFIG).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return False
    known = all(path.name in BESIDE or is_weights(path.name) for path in folder.iterdir())
    return known and isinstance(described, dict) and KNOWN_BY[to] in described and _was_converted(folder)

"""Was it written as it is? The files are opened again: every tensor, every answer, and what their library says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

import torch

from vitscope.core.errors import VitscopeError
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel
from vitscope.weights.certificate import COVERED, MOST_DIFFERENCE, Certificate, Proof, Written
from vitscope.weights.formats import timm_folder
from vitscope.weights.load import load_model, otherwise
from vitscope.weights.proof import answer, fixed_batch, prove_written

To = Literal["vitscope", "timm", "huggingface"]
REPORT = "nothing was written; please report this as a mistake of vitscope's, with the name of the model"
ENCODER = "encoder."


def checked(
    model: VisionModel,
    place: Path,
    to: To,
    remarks: list[str],
    *,
    name: str,
    prove: bool,
    say: Callable[[str], None],
) -> Certificate:
    """The model's certificate, with what was found when the files at `place` were opened again."""
    say("reading it again")
    # Where a format has no word for LayerNorm's eps, its writer has said what that does; all else must be the same.
    asked = timm_folder.as_timm_computes(model) if to == "timm" else model
    is_file = place.is_file()
    again = load_model(place, config=_inner(asked).config if is_file else None, say=False)
    lost = _without_place(model, to)
    _refuse_other_tensors(model, again, lost, to=to, name=name)
    difference = None
    if lost or again.config != asked.config:
        difference = _refuse_other_answers(asked, again, to=to, name=name)
    proof = None
    if prove:
        if to != "vitscope":
            say(f"asking {'timm' if to == 'timm' else 'transformers'} what it says of it")
        layout = "timm file" if is_file else to
        proof = prove_written(asked, layout, place, preprocessing=model.preprocessing)
    if isinstance(proof, str):
        remarks = remarks if to == "vitscope" else [*remarks, proof]
        proof = None
    refuse_disproof(proof, where=name)
    count = len(model.state_dict())
    written = Written(
        format=to,
        place=name,
        sha256=again.certificate.sha256,
        tensors=count,
        same=count - len(lost),
        lost=lost,
        largest_difference=difference if lost else None,
        remarks=tuple(remarks),
        proof=proof,
    )
    certificate: Certificate = model.certificate
    return certificate.with_written(written)


def refuse_disproof(proof: Proof | None, *, where: str) -> None:
    if proof is not None and not proof.is_close:
        raise VitscopeError(
            otherwise(proof),
            where=where,
            fix="nothing was written; is the config that of the weights? prove=False (--no-proof) goes on all the same",
        )


def _inner(model: VisionModel) -> VisionModel:
    return model.encoder if isinstance(model, MaskedModel) else model


def _without_place(model: VisionModel, to: To) -> tuple[str, ...]:
    """Tensors the format does not know: timm has nothing that paints hidden patches."""
    if to != "timm" or not isinstance(model, MaskedModel):
        return ()
    return tuple(key for key in model.state_dict() if not key.startswith(ENCODER))


def _refuse_other_tensors(model: VisionModel, again: VisionModel, lost: tuple[str, ...], *, to: To, name: str) -> None:
    held = {entry.ours for entry in again.certificate.of(*COVERED)}
    found = {key: tensor for key, tensor in again.state_dict().items() if key in held}
    if isinstance(model, MaskedModel) and not isinstance(again, MaskedModel):
        found = {f"{ENCODER}{key}": tensor for key, tensor in found.items()}
    wanted = {key: tensor for key, tensor in model.state_dict().items() if key not in lost}
    other = [key for key, tensor in wanted.items() if not _is_same(tensor, found.get(key))]
    if other:
        raise VitscopeError(
            f"{len(other)} tensors are not the same when the {to} files are opened again: {', '.join(other[:5])}",
            where=name,
            fix=REPORT,
        )


def _is_same(ours: torch.Tensor, theirs: torch.Tensor | None) -> bool:
    """Bit by bit: a NaN equals itself, and 0 differs from -0."""
    if theirs is None or ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return False
    ours, theirs = (tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for tensor in (ours, theirs))
    return torch.equal(ours, theirs)


def _refuse_other_answers(model: VisionModel, again: VisionModel, *, to: To, name: str) -> float:
    """Settings are in other words than ours now: the same tensors must still say the same. Returns how far they differ,
    in the largest of all outputs."""
    images = fixed_batch(model.config, model.preprocessing)
    ours, theirs = answer(model, images), answer(again, images)
    same_shape = ours.shape == theirs.shape
    difference = (ours - theirs).abs().max().item() if same_shape else float("inf")
    if not difference <= MOST_DIFFERENCE * max(1.0, ours.abs().max().item()):
        raise VitscopeError(
            f"the model answers otherwise when the {to} files are opened again: by up to {difference:.2g}",
            where=name,
            fix=REPORT,
        )
    return difference

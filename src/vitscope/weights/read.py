"""From stored tensors to a model: each of ours is found among theirs, and what became of every one is entered."""

from __future__ import annotations

import re
from collections.abc import Callable
from fnmatch import fnmatchcase, translate
from typing import Any

import torch
from torch import Tensor

from vitscope.core.config import updated
from vitscope.core.dtypes import type_name
from vitscope.core.errors import VitscopeError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig
from vitscope.models.model import VisionModel
from vitscope.weights.certificate import Entry, Ledger
from vitscope.weights.files import Shape, Stored
from vitscope.weights.formats import OWN, recognised
from vitscope.weights.match import Format, Match, Unheld
from vitscope.weights.names import cleaned
from vitscope.weights.shards import cast
from vitscope.weights.source import Source
from vitscope.weights.stored_config import stored_config

FEW_BLOCKS = 100
"""So many are built in a moment, and then what is missing can be listed."""
OR_PARTIAL = "or allow_partial=True (--allow-partial): missing ones begin anew"


class MisfitError(VitscopeError):
    """Weights that are not for the layers they are to go into."""

    def __init__(self, what: str, *, where: str, fix: str, is_known: bool = False, is_strange: bool = False) -> None:
        super().__init__(what, where=where, fix=fix)
        self.is_strange = is_strange
        """Whether no tensor but a head's fits: nothing would be left to go on with."""
        self.is_known = is_known
        """Whether `fix` says more than to look for another config."""


def read_as_stored(opened: Source, like: ModelConfig, *, allow_partial: bool) -> tuple[VisionModel, Ledger, Format]:
    """The model just as its weights are, and what was said of each tensor on the way."""
    stored = opened.weights if opened.layout == "vitscope" else cleaned(opened.weights)
    by = OWN if opened.layout == "vitscope" else recognised(stored, where=opened.words)
    if not allow_partial:
        _refuse_more_blocks(like, by.most_blocks(stored), where=str(stored.files[0]))
    found, tensors, heads = found_in(stored, like, by, Stored.__getitem__)
    kinds = _types(tensors)
    config = like  # a folder of ours says all of it, and must hold what it says
    if opened.layout != "vitscope":
        tensors = _of_one_type(tensors, kinds)
        config = stored_config(like, shapes_of(tensors), heads=heads, where=opened.words)
    with torch.device("meta"):  # no time lost on initial weights that are replaced at once
        model = build_model(config)
    ledger = entered(model, found, tensors, stored, by.left_out(stored, like))
    ledger.remarks += [*stored.remarks, *(by.remarks(stored, like) if opened.config is None else ())]
    if len(kinds) > 1 and opened.layout != "vitscope":
        mixed, all_of = (" and ".join(sorted(map(type_name, some))) for some in (kinds, _types(tensors)))
        ledger.remarks.append(f"the source mixes {mixed}; all were cast to {all_of}")
        ledger.cast = all_of
    broken = faults(ledger)
    is_strange = not any(entry.fate != "missing" and not entry.in_head for entry in ledger.said.values())
    if broken and (is_strange or not allow_partial):
        hint = by.hint(stored, like)
        raise MisfitError(
            f"the weights do not fit the config{', nothing of the backbone' * is_strange}; {'; '.join(broken)}",
            where=str(opened.weights.files[0]),
            fix=hint or f"give the config the weights are for{'' if is_strange else f', {OR_PARTIAL}'}",
            is_known=bool(hint),
            is_strange=is_strange,
        )
    kept = {name: tensor for name, tensor in tensors.items() if _fits(ledger, name)}
    if len(kept) < len(model.state_dict()):
        model = build_model(config)
        kinds = _types(kept)
        if len(kinds) == 1:  # what begins anew is of the type of the others
            model.to(kinds.pop())
    model.load_state_dict(kept, strict=False, assign=True)
    model.reset_buffers()
    return model, ledger, by


def _refuse_more_blocks(config: ModelConfig, most: int, *, where: str) -> None:
    """A network far larger than its weights is not even built."""
    inner: Any = getattr(config, "encoder", config)
    depth = getattr(inner, "depth", None) or sum(getattr(inner, "depths", ()))
    count = depth + getattr(config, "decoder_depth", 0)
    if count > max(most, FEW_BLOCKS):
        raise VitscopeError(
            f"the weights do not fit the config: it has {count} blocks, and there are {most} tensors in all",
            where=where,
            fix="give the config the weights are for",
        )


def found_in(
    stored: Stored, like: ModelConfig, by: Format, read: Callable[[Stored, str], Tensor]
) -> tuple[dict[str, Match], dict[str, Tensor], list[str]]:
    """Which tensors of a model of `like` there are, the tensors, and the names of its heads."""
    with torch.device("meta"):
        empty = build_model(_with_a_head(like))
    find = by.reading(stored, like)
    matches = {name: match for name in empty.state_dict() if (match := find(name)) is not None}
    found = {name: match for name, match in matches.items() if all(part in stored for part in match.theirs)}
    tensors = {}
    for name, match in found.items():
        theirs = [read(stored, part) for part in match.theirs]
        try:
            tensors[name] = _owned(match.read(*theirs))
        except (RuntimeError, IndexError) as error:  # of shapes that cannot be turned, `entered` will tell
            if "memory" in str(error):
                raise
    return found, tensors, empty.classifiers()


def shapes_of(tensors: dict[str, Tensor]) -> dict[str, Shape]:
    return {name: tuple(tensor.shape) for name, tensor in tensors.items()}


def _with_a_head(config: ModelConfig) -> ModelConfig:
    """Whether the weights have a head is for them to say."""
    if isinstance(config, MAEConfig | SimMIMConfig) or config.num_classes:
        return config
    return updated(config, num_classes=1)


def _owned(tensor: Tensor) -> Tensor:
    """In order and in memory of its own: a part of a larger tensor would keep all of that."""
    whole = tensor.untyped_storage().nbytes() == tensor.nbytes
    return tensor if whole and tensor.is_contiguous() else tensor.clone(memory_format=torch.contiguous_format)


def _types(tensors: dict[str, Tensor]) -> set[torch.dtype]:
    return {tensor.dtype for tensor in tensors.values() if tensor.is_floating_point()}


def _of_one_type(tensors: dict[str, Tensor], kinds: set[torch.dtype]) -> dict[str, Tensor]:
    """Where floating-point types are mixed, the widest for all: nothing is lost. float64, of which a stray tensor would
    double the model, only where most of the numbers have it; else it becomes float32."""
    if len(kinds) < 2:
        return tensors
    sizes = dict.fromkeys(kinds, 0)
    for tensor in tensors.values():
        if tensor.is_floating_point():
            sizes[tensor.dtype] += tensor.numel()
    # float16 and bfloat16 do not hold each other.
    doubled = 2 * sizes.get(torch.float64, 0) > sum(sizes.values())
    widest = torch.float64 if doubled else torch.float32
    return {
        name: cast(name, tensor, widest) if tensor.is_floating_point() and tensor.dtype != widest else tensor
        for name, tensor in tensors.items()
    }


def entered(
    model: VisionModel,
    found: dict[str, Match],
    tensors: dict[str, Tensor],
    stored: Stored,
    unheld: tuple[Unheld, ...],
) -> Ledger:
    """Every tensor of the model and of the source, with its fate."""
    ledger, heads = Ledger(), tuple(f"{name}." for name in model.classifiers())
    for name, wanted in model.state_dict().items():
        in_head, shape = name.startswith(heads), tuple(wanted.shape)
        match, tensor = found.get(name), tensors.get(name)
        if match is None:
            ledger.add(Entry("missing", name, shape, in_head=in_head))
            continue
        theirs = tuple(stored.shapes[part] for part in match.theirs)
        if tensor is None:
            how = f"{shape} cannot be made of {', '.join(map(str, theirs))}"
            ledger.add(Entry("missing", name, shape, match.theirs, theirs, how, in_head))
            continue
        if tensor.shape != wanted.shape or tensor.is_floating_point() != wanted.is_floating_point():
            how = f"{_kind(tensor)} instead of {_kind(wanted)}"
            ledger.add(Entry("missing", name, shape, match.theirs, theirs, how, in_head))
            continue
        plain = "matched" if match.theirs == (name,) else "renamed"
        ledger.add(Entry("transformed" if match.how else plain, name, shape, match.theirs, theirs, match.how, in_head))
    used = {part for match in found.values() for part in match.theirs}
    is_known = re.compile("|".join(translate(one.pattern) for one in unheld) or r"(?!)").match  # one look at each name
    for name in stored:
        if name in used:
            continue
        known = next(one for one in unheld if fnmatchcase(name, one.pattern)) if is_known(name) else None
        fate, why, in_head = ("unexpected", "", False) if known is None else ("left out", known.why, known.in_head)
        ledger.add(Entry(fate, None, None, (name,), (stored.shapes[name],), why, in_head))
    return ledger


def _fits(ledger: Ledger, name: str) -> bool:
    return name in ledger.said and ledger.said[name].fate != "missing"


def _kind(tensor: Tensor) -> str:
    return f"{tuple(tensor.shape)} of {type_name(tensor.dtype)}"


def faults(ledger: Ledger) -> list[str]:
    """What forbids the load, a clause each."""
    missing = [e for e in ledger.said.values() if e.fate == "missing"]
    return [
        f"{len(names)} {kind}: {', '.join(names[:5])}{' ...' if len(names) > 5 else ''}"
        for kind, names in (
            ("missing", [str(e.ours) for e in missing if not e.theirs]),
            ("unexpected", [e.theirs[0] for e in ledger.others if e.fate == "unexpected"]),
            ("that do not fit", [f"{e.ours} {e.how}" for e in missing if e.theirs]),
        )
        if names
    ]

"""Whatever trainers and wrappers put in front of a name, taken off."""

from __future__ import annotations

from vitscope.weights.files import Stored

ANCHORS = (
    "patch_embed.proj.weight",
    "embeddings.patch_embeddings.projection.weight",
    "embeddings.cls_token",
    "cls_token",
    "conv1.weight",
    "lstm.weight_ih_l0",
)
"""Names one of which every model's first layer has, whatever stands before it."""
WRAPPERS = ("module.", "_orig_mod.", "model.", "backbone.", "net.", "trunk.", "student.", "teacher.")
"""What wrapping a model puts before all names inside it."""
ANYWHERE = ("_orig_mod", "module")
"""What compiling, or spreading over devices, a single layer puts into the middle of names."""


def cleaned(stored: Stored) -> Stored:
    """The same tensors, without what wraps the whole model, its backbone or single layers."""
    return _without_prefix(_without_inner(stored))


def _without_inner(stored: Stored) -> Stored:
    new_names: dict[str, str] = {}
    words: set[str] = set()
    for name in stored:
        *parts, tensor = name.split(".")
        first = next((place for place, part in enumerate(parts) if f"{part}." not in WRAPPERS), len(parts))
        inner = [part for part in parts[first:] if part not in ANYWHERE]
        if len(inner) < len(parts) - first:
            words.update(part for part in parts[first:] if part in ANYWHERE)
            new_names[name] = ".".join([*parts[:first], *inner, tensor])
    if not new_names or len({new_names.get(name, name) for name in stored}) < len(stored):
        return stored
    renamed = stored.renamed(new_names)
    shown = " and ".join(f"'{word}.'" for word in sorted(words))
    renamed.remarks = (*stored.remarks, f"names without the {shown} within them")
    return renamed


def _without_prefix(stored: Stored) -> Stored:
    prefix = _prefix(stored)
    if not prefix:
        return stored
    new_names = {name: _without(name, prefix) for name in stored}
    if len(set(new_names.values())) < len(new_names):  # two tensors would get one name: rather leave all as they are
        return stored
    renamed = stored.renamed(new_names)
    renamed.remarks = (*stored.remarks, f"names without their '{prefix}'")
    return renamed


def _prefix(stored: Stored) -> str:
    """What stands before the first layer's name, as far as it is made of wrappers. Where a teacher and its student lie
    side by side, the teacher's: it is the one to be used."""
    names = sorted(stored, key=lambda name: "student." in name)
    for anchor in ANCHORS:
        for name in names:
            if not name.endswith(anchor):
                continue
            before, prefix = name.removesuffix(anchor), ""
            while wrapper := next((word for word in WRAPPERS if before.startswith(word)), None):
                prefix, before = prefix + wrapper, before.removeprefix(wrapper)
            return prefix
    return ""


def _without(name: str, prefix: str) -> str:
    """As much of the prefix as the name has: a head beside the backbone is wrapped less deeply."""
    rest = prefix
    while rest:
        word = rest[: rest.index(".") + 1]
        if name.startswith(word):
            name = name.removeprefix(word)
        rest = rest.removeprefix(word)
    return name

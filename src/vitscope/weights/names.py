"""Whatever trainers and wrappers put in front of a name, taken off."""

from __future__ import annotations

from vitscope.weights.files import Stored

ANCHORS = (
    "patch_embed.proj.weight",
    "embeddings.patch_embeddings.projection.weight",
    "embeddings.cls_token",
    "cls_token",
    "conv1.weight",
)
"""Names one of which every model's first layer has, whatever stands before it."""
WRAPPERS = ("module.", "_orig_mod.", "model.", "backbone.", "net.", "trunk.", "student.", "teacher.")
"""What wrapping a model puts before all names inside it."""


def cleaned(stored: Stored) -> Stored:
    """The same tensors, without what wraps the whole model or its backbone."""
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

"""Which model? The tuning guide's rules of thumb, with what the models really take beside them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from vitscope.core.config import updated
from vitscope.models.accounting.account import Account
from vitscope.models.config import ViTConfig, Wishes, pair
from vitscope.models.measured import MEASURED, Measured
from vitscope.models.variants import model_config

GIGABYTE = 1e9
SMALL_PICTURE = 112
"""Up to this side the models for CIFAR-sized pictures are meant, with about 8 x 8 patches."""
FEW_IMAGES, MANY_IMAGES = 10_000, 100_000
FITTING_BATCH = 32
"""The least batch a training is planned with."""
USABLE = 0.9
"""Share of the memory a plan may fill."""


class GuideMemory(NamedTuple):
    """The tuning guide's word on GPU memory in GB."""

    minimum: int
    recommended: int


GUIDE_MEMORY = {
    "vit_tiny": GuideMemory(6, 8),
    "vit_small": GuideMemory(8, 12),
    "vit_base": GuideMemory(12, 16),
    "vit_small_imagenet": GuideMemory(12, 16),
    "vit_base_imagenet": GuideMemory(16, 24),
    "vit_large_imagenet": GuideMemory(24, 32),
}

# What to step down to when the memory does not suffice.
SMALLER = {
    "vit_base": "vit_small",
    "vit_small": "vit_tiny",
    "vit_large_patch16_384": "vit_base_patch16_384",
    "vit_base_patch16_384": "vit_small_patch16_384",
    "vit_small_patch16_384": "vit_tiny_patch16_384",
    "vit_large_imagenet": "vit_base_imagenet",
    "vit_base_imagenet": "vit_small_imagenet",
    "vit_base_patch32_224": "vit_small_patch32_224",
    "vit_small_imagenet": "vit_tiny_patch16_224",
}


@dataclass(frozen=True)
class Candidate:
    """A model at the wished size, with its costs."""

    name: str
    config: ViTConfig
    parameters: int
    memory_bytes: int
    """Estimate for training with bf16 autocast and Adam at FITTING_BATCH."""
    largest_batch: int | None
    """Largest power of two that should fit the memory given."""
    guide: GuideMemory | None
    measured: Measured | None


@dataclass(frozen=True)
class Advice:
    chosen: Candidate
    others: list[Candidate]
    why: list[str]
    cautions: list[str] = field(default_factory=list)
    begins_pretrained: bool = False
    """Whether published weights should be fine-tuned first, as the cautions say."""


def advise(wishes: Wishes) -> Advice:
    """A first choice with reasons, its neighbours for comparison, and what to be careful about."""
    name, why = _first_choice(wishes)
    chosen = _candidate(name, wishes)
    while wishes.memory_gb is not None and _too_large(chosen, wishes.memory_gb) and chosen.name in SMALLER:
        why.append(
            f"{chosen.name} needs about {chosen.memory_bytes / GIGABYTE:.1f} GB at batch {FITTING_BATCH}, "
            f"too much for {wishes.memory_gb:g} with a tenth to spare: one size down"
        )
        chosen = _candidate(SMALLER[chosen.name], wishes)
    family = ("vit_tiny", "vit_small", "vit_base")
    if wishes.side > SMALL_PICTURE:
        family = ("vit_small_imagenet", "vit_base_imagenet", "vit_large_imagenet")
    others = [_candidate(other, wishes) for other in family if other != chosen.name]
    begins_pretrained = "large" in chosen.name or (_has_few(wishes) and wishes.side > SMALL_PICTURE)
    return Advice(chosen, others, why, _cautions(chosen, wishes), begins_pretrained)


def _first_choice(wishes: Wishes) -> tuple[str, list[str]]:
    if wishes.side <= SMALL_PICTURE:
        if wishes.wish in ("speed", "memory", "trial"):
            return "vit_tiny", [f"small pictures and {wishes.wish} first: the smallest of the three"]
        if wishes.wish == "accuracy" and (wishes.images or 0) >= MANY_IMAGES:
            return "vit_base", [
                f"accuracy first and {wishes.images:,} pictures: enough to feed the largest of the three"
            ]
        return "vit_small", ["small pictures: the default for CIFAR-sized data"]
    if wishes.wish == "speed":
        return "vit_base_patch32_224", ["speed first: patches of 32 give 49 tokens instead of 196"]
    if wishes.wish == "trial":
        return "vit_tiny_patch16_224", ["a quick trial: the smallest model for photographs"]
    if wishes.wish == "memory":
        return "vit_base_imagenet", [
            "little memory: Base, to be quantised to int8 once it is trained (with torchao; not built in yet)"
        ]
    if wishes.side >= 320:
        return "vit_large_patch16_384", ["high resolution: Large at 384"]
    if wishes.wish == "accuracy":
        return "vit_large_imagenet", ["accuracy first: Large with patches of 16"]
    return "vit_base_imagenet", ["photographs: Base with patches of 16 is the field's default"]


def _candidate(name: str, wishes: Wishes) -> Candidate:
    preset = model_config(name)
    if not isinstance(preset, ViTConfig):
        raise TypeError(f"expected the name of a ViT to advise, received '{name}' of family '{preset.family}'")
    cfg = _at_size(preset, wishes.side)
    account = Account(cfg, batch=FITTING_BATCH)
    memory = account.memory
    largest = None
    if wishes.memory_gb is not None:
        fixed = memory.total_bf16 - memory.activations_bf16
        per_image = memory.activations_bf16 / FITTING_BATCH
        room = int((wishes.memory_gb * GIGABYTE * USABLE - fixed) / per_image)
        largest = 2 ** (room.bit_length() - 1) if room > 0 else 0
    measured = MEASURED.get(name) if cfg == preset else None
    return Candidate(name, cfg, account.parameters, memory.total_bf16, largest, GUIDE_MEMORY.get(name), measured)


def _at_size(preset: ViTConfig, side: int) -> ViTConfig:
    """The model at (nearly) the pictures' own size: small pictures get about 8 x 8 patches, photographs keep theirs."""
    if side > SMALL_PICTURE:
        return preset
    patch = max(2, round(side / 8))
    return updated(preset, img_size=max(patch, side - side % patch), patch_size=patch)


def _has_few(wishes: Wishes) -> bool:
    return wishes.images is not None and wishes.images < FEW_IMAGES


def _too_large(candidate: Candidate, memory_gb: float) -> bool:
    return candidate.memory_bytes > USABLE * memory_gb * GIGABYTE


def _cautions(chosen: Candidate, wishes: Wishes) -> list[str]:
    cautions = []
    if wishes.img_size is None:
        cautions.append(f"no --img-size was given: pictures of {wishes.side} pixels are assumed")
    if pair(chosen.config.img_size) != (wishes.side, wishes.side):
        cautions.append(f"pictures of {wishes.side} pixels will be resized to {chosen.config.img_size}")
    if "large" in chosen.name:
        cautions.append("Large from scratch rarely pays: start from pretrained weights, or take Base")
    if _has_few(wishes) and wishes.side > SMALL_PICTURE:
        cautions.append(
            f"{wishes.images:,} pictures are few: pretrained weights and fine-tuning first (timm's ViT weights load "
            "as they are); from scratch, strong augmentation as in DeiT's recipe next"
        )
    elif _has_few(wishes):
        cautions.append(
            f"{wishes.images:,} pictures are few: strong augmentation as in DeiT's recipe, or the weights of a run on "
            "similar pictures, fine-tuned (published ones are of larger photographs)"
        )
    if wishes.wish == "memory" and wishes.side > SMALL_PICTURE:
        cautions.append("int8 saves memory when the model is used, not while it is trained")
    if wishes.memory_gb is not None and not _too_large(chosen, wishes.memory_gb):
        cautions += _beside_the_guide(chosen, wishes.memory_gb)
    if wishes.memory_gb is not None and _too_large(chosen, wishes.memory_gb):
        cautions.append(
            f"even {chosen.name} needs about {chosen.memory_bytes / GIGABYTE:.1f} GB at batch {FITTING_BATCH}: "
            "use a smaller batch with accumulation, or gradient checkpointing"
        )
    return cautions


def _beside_the_guide(chosen: Candidate, memory_gb: float) -> list[str]:
    """Why a model fits where the guide would have more memory: its rule of thumb is for larger batches."""
    if chosen.guide is None or memory_gb >= chosen.guide.minimum:
        return []
    measured = chosen.measured
    took = (
        f", and took {measured.train_memory_gb:.1f} GB at batch {measured.memory_batch} when measured"
        if measured
        else ""
    )
    return [
        f"the guide's rule of thumb asks for {chosen.guide.minimum} GB or more; {chosen.name} needs about "
        f"{chosen.memory_bytes / GIGABYTE:.1f} GB at batch {FITTING_BATCH}{took}: keep to the largest batch named below"
    ]

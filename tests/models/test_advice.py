"""Which model? The guide's rules of thumb, held word by word, and an answer for every question."""

from __future__ import annotations

import itertools
from functools import cache

import pytest
import torch

from vitscope.core.errors import ConfigError
from vitscope.models import advice as advice_file
from vitscope.models.accounting.account import Account
from vitscope.models.advice import FITTING_BATCH, GUIDE_MEMORY, SMALLER, USABLE, Advice, advise
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig, Wishes, pair
from vitscope.models.measured import MEASURED
from vitscope.models.variants import list_models


@pytest.fixture(autouse=True)
def _count_each_model_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same few models are asked for again and again; their counts do not change."""
    monkeypatch.setattr(advice_file, "Account", counted)


@cache
def counted(config: object, batch: int) -> Account:
    return Account(config, batch)  # type: ignore[arg-type]


def ask(**wishes: object) -> Advice:
    return advise(Wishes(**wishes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wishes", "name"),
    [
        ({}, "vit_small"),
        ({"img_size": 28}, "vit_small"),
        ({"img_size": 64, "wish": "accuracy", "images": 50_000}, "vit_small"),
        ({"img_size": 32, "wish": "accuracy", "images": 1_000_000}, "vit_base"),
        ({"img_size": 32, "wish": "trial"}, "vit_tiny"),
        ({"img_size": 32, "wish": "speed"}, "vit_tiny"),
        ({"img_size": 32, "wish": "memory"}, "vit_tiny"),
        ({"img_size": 224}, "vit_base_imagenet"),
        ({"img_size": 224, "wish": "speed"}, "vit_base_patch32_224"),
        ({"img_size": 224, "wish": "accuracy"}, "vit_large_imagenet"),
        ({"img_size": 224, "wish": "memory"}, "vit_base_imagenet"),
        ({"img_size": 224, "wish": "trial"}, "vit_tiny_patch16_224"),
        ({"img_size": 384}, "vit_large_patch16_384"),
        ({"img_size": 512, "wish": "accuracy"}, "vit_large_patch16_384"),
        ({"img_size": 384, "wish": "speed"}, "vit_base_patch32_224"),
    ],
)
def test_the_guides_rules(wishes: dict[str, object], name: str) -> None:
    advice = ask(**wishes)
    assert advice.chosen.name == name
    assert advice.why


def test_the_guides_memory_stands_beside_ours() -> None:
    assert GUIDE_MEMORY == {
        "vit_tiny": (6, 8),
        "vit_small": (8, 12),
        "vit_base": (12, 16),
        "vit_small_imagenet": (12, 16),
        "vit_base_imagenet": (16, 24),
        "vit_large_imagenet": (24, 32),
    }
    advice = ask(img_size=224)
    shown = {candidate.name: candidate.guide for candidate in (advice.chosen, *advice.others)}
    assert shown == {name: GUIDE_MEMORY[name] for name in GUIDE_MEMORY if name.endswith("imagenet")}


def test_little_memory_means_int8_and_says_when() -> None:
    advice = ask(img_size=224, wish="memory")
    assert "int8" in advice.why[0]
    assert any("not while it is trained" in caution for caution in advice.cautions)


@pytest.mark.parametrize(
    ("memory_gb", "name"),
    [(80, "vit_large_imagenet"), (8, "vit_base_imagenet"), (3, "vit_small_imagenet"), (0.8, "vit_tiny_patch16_224")],
)
def test_memory_steps_down(memory_gb: float, name: str) -> None:
    advice = ask(img_size=224, wish="accuracy", memory_gb=memory_gb)
    assert advice.chosen.name == name
    assert advice.chosen.memory_bytes <= USABLE * memory_gb * 1e9
    steps = ["vit_large_imagenet", "vit_base_imagenet", "vit_small_imagenet", "vit_tiny_patch16_224"]
    passed = steps[: steps.index(name)]
    assert [reason.split()[0] for reason in advice.why[1:]] == passed
    assert all(reason.endswith("one size down") for reason in advice.why[1:])


def test_small_pictures_step_down_too() -> None:
    assert ask(memory_gb=0.5).chosen.name == "vit_tiny"


def test_when_even_the_smallest_is_too_large_it_says_what_to_do() -> None:
    advice = ask(memory_gb=0.01)
    assert advice.chosen.name == "vit_tiny"
    assert advice.chosen.largest_batch == 0
    assert any("even vit_tiny needs" in caution and "accumulation" in caution for caution in advice.cautions)


@pytest.mark.parametrize("memory_gb", [0.05, 0.3, 1, 2.5, 6, 24, 141])
@pytest.mark.parametrize("img_size", [32, 224])
def test_the_largest_batch_fits_and_twice_that_does_not(memory_gb: float, img_size: int) -> None:
    advice = ask(memory_gb=memory_gb, img_size=img_size)
    for candidate in (advice.chosen, *advice.others):
        memory = counted(candidate.config, FITTING_BATCH).memory
        fixed, per_image = memory.total_bf16 - memory.activations_bf16, memory.activations_bf16 / FITTING_BATCH
        room = USABLE * memory_gb * 1e9
        largest = candidate.largest_batch
        assert largest is not None
        assert largest == 0 or fixed + largest * per_image <= room
        assert fixed + max(1, 2 * largest) * per_image > room
        assert (largest >= FITTING_BATCH) == (candidate.memory_bytes <= room)


def test_without_a_memory_there_is_no_largest_batch() -> None:
    assert ask().chosen.largest_batch is None


@pytest.mark.parametrize("wishes", [{"img_size": 224, "wish": "accuracy"}, {"img_size": 384}])
def test_large_from_scratch_is_warned_against(wishes: dict[str, object]) -> None:
    assert any(caution.startswith("Large from scratch rarely pays") for caution in ask(**wishes).cautions)


def test_others_are_not_warned_against() -> None:
    assert ask(img_size=32).cautions == ask(img_size=224).cautions == []
    assert ask().cautions == ["no --img-size was given: pictures of 32 pixels are assumed"]
    assert ask(img_size=300).cautions == ["pictures of 300 pixels will be resized to 224"]


@pytest.mark.parametrize(("images", "few"), [(500, True), (9_999, True), (10_000, False), (1_000_000, False)])
def test_few_images_are_warned_about(images: int, few: bool) -> None:
    advice = ask(images=images, img_size=224)
    assert any("pictures are few: pretrained weights" in one and "DeiT" in one for one in advice.cautions) is few
    assert advice.begins_pretrained is few
    small = ask(images=images)
    assert any("pictures are few: strong augmentation as in DeiT's" in one for one in small.cautions) is few
    assert not small.begins_pretrained, "nobody has published weights for small pictures"


def test_large_begins_with_weights_that_are_there() -> None:
    assert ask(img_size=384, images=1_000_000).begins_pretrained


def test_a_model_that_fits_beside_the_guide_says_why() -> None:
    (caution,) = ask(img_size=224, memory_gb=8).cautions
    assert caution.startswith("the guide's rule of thumb asks for 16 GB or more; vit_base_imagenet needs about 3.7 GB")
    assert "took 5.8 GB at batch 64 when measured" in caution
    assert ask(img_size=224, memory_gb=16).cautions == []
    assert not any("rule of thumb" in one for one in ask(memory_gb=0.01).cautions), "it does not fit at all"


WISHES = ("balance", "speed", "accuracy", "memory", "trial")
SIZES = (8, 13, 28, 32, 100, 112, 113, 224, 319, 320, 1024)


@pytest.mark.parametrize("wish", WISHES)
def test_every_question_has_an_answer_that_builds(wish: str) -> None:
    for img_size, memory_gb, images in itertools.product(SIZES, (None, 0.05, 2, 10, 1000), (None, 200_000)):
        advice = ask(wish=wish, img_size=img_size, memory_gb=memory_gb, images=images)
        chosen = advice.chosen
        assert chosen.name in list_models()
        assert chosen.name not in [other.name for other in advice.others]
        assert advice.others
        if img_size <= 112:
            side = pair(chosen.config.img_size)[0]
            assert img_size - chosen.config.patch_size < side <= img_size  # type: ignore[operator]
            assert 4 <= chosen.config.grid_size[0] <= 12


@pytest.mark.parametrize("img_size", [8, 13, 100, 112])
@pytest.mark.parametrize("wish", ["trial", "balance"])
def test_the_answer_runs(wish: str, img_size: int) -> None:
    chosen = ask(wish=wish, img_size=img_size).chosen
    with torch.device("meta"):
        model = build_model(chosen.config)
        logits = model(torch.empty(2, 3, *pair(chosen.config.img_size)))
    assert logits.shape == (2, 10)
    assert sum(parameter.numel() for parameter in model.parameters()) == chosen.parameters


def test_only_vits_are_advised() -> None:
    with pytest.raises(TypeError, match="expected the name of a ViT to advise, received 'resnet18'"):
        advice_file._candidate("resnet18", Wishes())
    names = {*SMALLER, *SMALLER.values(), *advice_file.GUIDE_MEMORY}
    assert all(isinstance(advice_file.model_config(name), ViTConfig) for name in names)


def test_every_step_down_is_smaller() -> None:
    for name, smaller in SMALLER.items():
        large, small = (counted(advice_file.model_config(n), FITTING_BATCH) for n in (name, smaller))
        assert small.memory.total_bf16 < large.memory.total_bf16


def test_measured_numbers_are_shown_only_for_the_model_as_it_was_measured() -> None:
    assert ask(img_size=32).chosen.measured == MEASURED["vit_small"]
    assert ask(img_size=64).chosen.measured is None


@pytest.mark.parametrize(
    ("wishes", "what"),
    [
        ({"img_size": 7}, "img_size: expected at least 8 pixels, received 7"),
        ({"images": 0}, "images: expected a positive number, received 0"),
        ({"memory_gb": -1.0}, "memory_gb: expected a positive number below 1e9, received -1.0"),
        ({"memory_gb": float("inf")}, "memory_gb: expected a positive number below 1e9, received inf"),
        ({"memory_gb": float("nan")}, "memory_gb: expected a positive number below 1e9, received nan"),
        ({"wish": "fast"}, "wish: expected one of 'balance', 'speed', 'accuracy', 'memory', 'trial', received 'fast'"),
    ],
)
def test_questions_that_make_no_sense(wishes: dict[str, object], what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        ask(**wishes)
    assert refused.value.what == what

"""The named table behind models and data sets."""

import pytest

from vitscope.core.errors import UsageError
from vitscope.core.registry import Registry


@pytest.fixture
def models() -> Registry[int]:
    table: Registry[int] = Registry("model")
    for number, name in enumerate(["vit_b_patch16", "vit_b_patch8", "resnet18", "vit_a"]):
        table.register(name, number)
    return table


def test_entries_come_back(models: Registry[int]) -> None:
    assert models["resnet18"] == 2
    assert models.register("new", 7) == 7
    assert models["new"] == 7
    assert "new" in models
    assert "old" not in models
    assert len(models) == 5


def test_names_are_in_natural_order(models: Registry[int]) -> None:
    assert models.names() == ["resnet18", "vit_a", "vit_b_patch8", "vit_b_patch16"] == list(models)


def test_wildcards(models: Registry[int]) -> None:
    assert models.names("vit_*") == ["vit_a", "vit_b_patch8", "vit_b_patch16"]
    assert models.names("*18") == ["resnet18"]
    assert models.names("VIT_*") == []
    assert models.names("nothing") == []


def test_searching(models: Registry[int]) -> None:
    assert models.search("patch") == models.search("Patch") == ["vit_b_patch8", "vit_b_patch16"]
    assert models.search("vit-b") == ["vit_b_patch8", "vit_b_patch16"]
    assert models.search("resnet") == ["resnet18"]
    assert models.search("vit_a") == ["vit_a"]
    assert models.search("*18") == ["resnet18"]


@pytest.mark.parametrize(
    ("word", "fix"),
    [("resnet1", "did you mean 'resnet18'?"), ("vit_b_patch1", "did you mean 'vit_b_patch16'?"), ("", "`vitscope")],
)
def test_a_word_that_is_nearly_a_name_is_mistyped(word: str, fix: str, models: Registry[int]) -> None:
    with pytest.raises(UsageError, match=f"unknown model '{word}'") as refusal:
        models.search(word)
    assert str(refusal.value.fix).startswith(fix)


def test_a_wildcard_that_finds_nothing(models: Registry[int]) -> None:
    with pytest.raises(UsageError, match="no model matches 'zz") as refusal:
        models.search("zz*")
    assert refusal.value.fix == "`vitscope models` lists them"


def test_a_name_is_registered_once(models: Registry[int]) -> None:
    with pytest.raises(UsageError, match="model 'vit_a' is registered twice"):
        models.register("vit_a", 9)
    assert models["vit_a"] == 3


def test_an_unknown_name_gets_a_did_you_mean(models: Registry[int]) -> None:
    with pytest.raises(UsageError, match="unknown model 'resnet81'") as refusal:
        models["resnet81"]
    assert refusal.value.fix == "did you mean 'resnet18'?"
    assert refusal.value.exit_code == 2


def test_a_name_near_nothing_says_how_to_list(models: Registry[int]) -> None:
    with pytest.raises(UsageError) as refusal:
        models["qqqq"]
    assert refusal.value.fix == "`vitscope models` lists them"


def test_odd_digits_sort_as_text() -> None:
    table: Registry[int] = Registry("model")
    for name in ("²", "2", "a"):
        table.register(name, 0)
    assert table.names()[0] == "2"

"""Did-you-mean."""

from hypothesis import given
from hypothesis import strategies as st

from vitscope.core.suggest import did_you_mean, nearest

KNOWN = ["vit_small", "vit_base", "vit_large", "resnet18", "Swin_Tiny"]


def test_case_and_dashes_do_not_count() -> None:
    assert nearest("VIT-SMALL", KNOWN, limit=1) == ["vit_small"]
    assert nearest("swin-tiny", KNOWN, limit=1) == ["Swin_Tiny"]


def test_the_nearest_comes_first_and_the_limit_holds() -> None:
    assert nearest("vit_bas", KNOWN)[0] == "vit_base"
    assert len(nearest("vit_l", KNOWN, limit=2)) <= 2
    assert nearest("qqqq", KNOWN) == []


def test_the_sentence() -> None:
    assert did_you_mean("resnet81", KNOWN) == "did you mean 'resnet18'?"
    assert did_you_mean("qqqq", KNOWN) is None
    assert did_you_mean("vit_xase", ["vit_base", "vit_case"]) in (
        "did you mean 'vit_base' or 'vit_case'?",
        "did you mean 'vit_case' or 'vit_base'?",
    )


def test_synonyms_come_before_likeness() -> None:
    known, synonyms = ["embed_dim", "num_heads"], {"hidden_size": "embed_dim", "num_head": "gone"}
    assert did_you_mean("hidden-size", known, synonyms) == "you mean 'embed_dim'"
    # A translation that is not among the known words is no help: likeness decides.
    assert did_you_mean("num_head", known, synonyms) == "did you mean 'num_heads'?"


@given(st.text(max_size=30), st.lists(st.text(max_size=10), max_size=6))
def test_only_known_words_are_named(word: str, known: list[str]) -> None:
    assert set(nearest(word, known)) <= set(known)
    if word in known:
        assert nearest(word, known)

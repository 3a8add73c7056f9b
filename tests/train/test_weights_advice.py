"""What is said about weights, in the words of a run."""

from __future__ import annotations

import pytest

from vitscope.train.weights_advice import in_flags


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("give a config with norm_eps=1e-12", "set --model.norm-eps 1e-12"),
        (
            "they pool; give a config with pool='attention' and class_token=False",
            "they pool; set --model.pool attention --model.no-class-token",
        ),
        (
            "name another model: by their shapes these fit: vit_tiny; or allow_partial=True (--allow-partial): x",
            "name another model with --model: by their shapes these fit: vit_tiny",
        ),
        (
            "load the file by itself: load_model(file, config=the name)",
            "load the file by itself: --from FILE --model NAME",
        ),
        ("load the encoder alone: give the config of a ViT", "load the encoder alone: name a ViT with --model"),
        ("check the name", "check the name"),
    ],
)
def test_arguments_become_flags(theirs: str, ours: str) -> None:
    assert in_flags(theirs) == ours

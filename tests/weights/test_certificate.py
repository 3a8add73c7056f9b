"""The certificate: what it counts, what a person reads, what a program reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from vitscope.core.files import write_json
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.weights.certificate import Certificate, Entry, Proof, Written
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

ENTRIES = (
    Entry("matched", "cls_token", (1, 1, 8), ("cls_token",), ((1, 1, 8),)),
    Entry("renamed", "norm.weight", (8,), ("layernorm.weight",), ((8,),)),
    *(
        Entry(
            "transformed",
            f"blocks.{number}.attn.qkv.weight",
            (24, 8),
            tuple(f"encoder.layer.{number}.attention.attention.{part}.weight" for part in ("query", "key", "value")),
            ((8, 8),) * 3,
            "query, key and value one below the other",
        )
        for number in range(12)
    ),
    Entry("resampled", "pos_embed", (1, 17, 8), ("pos",), ((1, 5, 8),), "bicubic, from 2 x 2 to 4 x 4"),
    Entry("new", "head.weight", (3, 8), how="a new head of 3 classes", in_head=True),
    Entry("missing", "head.bias", (3,), in_head=True),
    Entry("left out", None, None, ("pooler.dense.weight",), ((8, 8),), "the pooler, which classifies nothing"),
    *(Entry("unexpected", None, None, (f"stranger.{number}",), ((2, 2),)) for number in range(20)),
)
WHOLE = Certificate(
    source="folder/of/weights",
    format="Hugging Face ViT",
    sha256={"model.safetensors": "0123456789abcdef" * 4},
    entries=ENTRIES,
    preprocessing={"img_size": [32, 32], "mean": [0.5, 0.5, 0.5], "interpolation": "bicubic"},
    remarks=("names without their 'module.'",),
    proof=Proof("transformers 5.0", "two photographs at 32 x 32", 3.1e-06, 12.5),
    written=Written(
        "timm",
        "out",
        {"model.safetensors": "fedcba9876543210" * 4},
        tensors=17,
        same=16,
        lost=("mask_token",),
        largest_difference=2e-7,
        remarks=("timm has no mask token",),
        proof=Proof("timm 1.0", "two photographs at 32 x 32", 0.0, 12.5),
    ),
)


def test_counts_and_shares() -> None:
    ours = 8 + 8 + 12 * 192 + 17 * 8 + 24 + 3
    assert WHOLE.numbers == ours
    assert WHOLE.covered == pytest.approx((ours - 27) / ours)
    assert WHOLE.backbone_covered == 1
    assert not WHOLE.is_whole  # strangers
    assert replace(WHOLE, entries=ENTRIES[:-20]).is_whole  # a head may begin anew


@pytest.mark.parametrize("width", [80, 100, 60, 40])
def test_a_person_reads_what_matters_in_any_width(width: int) -> None:
    lines = WHOLE.lines(width)
    assert max(map(len, lines)) <= width
    text = " ".join(" ".join(lines).split())
    for told in (
        "folder/of/weights",
        "Hugging Face ViT",
        "0123456789ab... model.safetensors",
        "numbers 2,483",
        "98.91 % of them by the source; 100 % of the backbone",
        "12 2,304 transformed: same numbers in another order or shape",
        "20 unexpected: in the source, unknown here",
        "and 11 more: query, key and value one below the other",
        "pos_embed 1x17x8 from 1x5x8: bicubic, from 2 x 2 to 4 x 4",
        "head.weight 3x8: a new head of 3 classes",
        "pooler.dense.weight 8x8: the pooler",
        "stranger.11 2x2 and 8 more",
        "32 x 32, mean 0.5 0.5 0.5, interpolation bicubic",
        "names without their 'module.'",
        "transformers 5.0: largest difference 3.1e-06 of 12.5, two photographs at 32 x 32",
        "16 of 17 tensors are the same bit for bit; the largest difference of any output is 2e-07",
        "mask_token",
        "timm has no mask token",
        "timm 1.0: largest difference 0 of 12.5, two photographs at 32 x 32",
    ):
        # Between words lines are broken; names too long for a line are broken within.
        assert told.replace(" ", "") in text.replace(" ", ""), told
    assert "stranger.12 " not in text
    assert str(WHOLE) == "\n".join(WHOLE.lines(80))


def test_nearly_all_is_never_called_all() -> None:
    nearly = (Entry("matched", "a", (10**8,), ("a",), ((10**8,),)), Entry("missing", "b", (1,)))
    assert any("99.99 % of them" in line for line in replace(WHOLE, entries=nearly).lines())


def test_a_program_reads_everything(tmp_path: Path) -> None:
    write_json(tmp_path / "certificate.json", WHOLE.to_dict())
    told: dict[str, Any] = json.loads((tmp_path / "certificate.json").read_text())
    assert told["tensors"] == {
        "matched": 1,
        "renamed": 1,
        "transformed": 12,
        "resampled": 1,
        "new": 1,
        "missing": 1,
        "left out": 1,
        "unexpected": 20,
    }
    assert len(told["entries"]) == len(ENTRIES)
    assert told["entries"][14] == {
        "fate": "resampled",
        "ours": "pos_embed",
        "shape": [1, 17, 8],
        "theirs": ["pos"],
        "their_shapes": [[1, 5, 8]],
        "how": "bicubic, from 2 x 2 to 4 x 4",
    }
    assert told["proof"]["largest_difference"] == 3.1e-06
    assert told["written"]["lost"] == ["mask_token"]
    assert told["covered_percent"] == pytest.approx(98.9126)
    assert told["sha256"]["model.safetensors"] == "0123456789abcdef" * 4


def test_a_real_one_adds_up(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = ViTConfig(img_size=16, patch_size=8, embed_dim=16, depth=2, num_heads=2, num_classes=3)
    model = build_model(config)
    save_model(model, tmp_path / "m")
    certificate = load_model(tmp_path / "m", num_classes=7, img_size=32).certificate
    assert certificate.numbers == sum(
        t.numel() for t in load_model(tmp_path / "m", num_classes=7, img_size=32).parameters()
    )
    assert [entry.ours for entry in certificate.of("new")] == ["head.weight", "head.bias"]
    assert [entry.ours for entry in certificate.of("resampled")] == ["pos_embed"]
    assert certificate.backbone_covered == 1
    assert certificate.of("resampled")[0].their_shapes == ((1, 5, 16),)

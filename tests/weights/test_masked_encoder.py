"""A masked model, asked for as a plain ViT, gives its encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_models import saved_by_transformers, their_model

from vitscope.core.config import updated
from vitscope.core.errors import ConfigError
from vitscope.models.build import build_model
from vitscope.models.config import MAEConfig, SimMIMConfig, ViTConfig
from vitscope.models.variants import VARIANTS, Variant
from vitscope.weights.convert import convert
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

PLAIN = ViTConfig(img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, mlp_dim=80, num_classes=0)


@pytest.mark.parametrize(
    "masked",
    [
        MAEConfig(
            encoder=updated(PLAIN, position="sincos"), decoder_embed_dim=16, decoder_depth=1, decoder_num_heads=2
        ),
        SimMIMConfig(encoder=PLAIN),
    ],
    ids=["mae", "simmim"],
)
def test_of_our_own_folder(masked: Any, tmp_path: Path) -> None:
    whole: Any = build_model(masked).eval()
    save_model(whole, tmp_path / "masked")
    asked = updated(masked.encoder, num_classes=5, drop_path_rate=0.1)
    model: Any = load_model(tmp_path / "masked", config=asked)
    assert model.config == asked
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        assert torch.equal(model.forward_features(images), whole.encoder.forward_features(images))
    certificate = model.certificate
    assert certificate.backbone_covered == 1
    assert {entry.how for entry in certificate.of("left out")} == {
        "paints hidden patches, which only masked training does"
    }
    assert "of a masked model, only the encoder is taken" in certificate.remarks


@pytest.mark.parametrize("kind", ["mae", "simmim"])
def test_of_our_own_bare_file(kind: str, tmp_path: Path) -> None:
    decoder: dict[str, int] = {"decoder_embed_dim": 16, "decoder_depth": 1, "decoder_num_heads": 2}
    masked = MAEConfig(encoder=PLAIN, **decoder) if kind == "mae" else SimMIMConfig(encoder=PLAIN)
    save_model(build_model(masked), tmp_path / "masked")
    asked = updated(PLAIN, num_classes=5)
    folder: Any = load_model(tmp_path / "masked", config=asked)
    (tmp_path / "masked/model.safetensors").rename(tmp_path / "a.safetensors")
    bare: Any = load_model(tmp_path / "a.safetensors", config=asked)
    assert all(
        torch.equal(one, folder.state_dict()[name])
        for name, one in bare.state_dict().items()
        if not name.startswith("head.")
    )
    assert bare.certificate.backbone_covered == 1
    assert "of a masked model, only the encoder is taken" in bare.certificate.remarks
    left = [[entry.theirs for entry in one.certificate.of("left out")] for one in (bare, folder)]
    assert sorted(left[0]) == sorted(left[1])


@pytest.mark.parametrize("case", ["mae", "mae_learned", "vit_simmim"])
def test_of_hugging_faces_by_a_name(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name says neither eps nor how positions are made; the folder does, and that is told."""
    theirs: Any = their_model(case)
    saved_by_transformers(theirs, tmp_path / "theirs")
    named = Variant("plain_of_48", updated(PLAIN, num_classes=7), "for this test")
    monkeypatch.setitem(VARIANTS._entries, "plain_of_48", named)
    told = convert(tmp_path / "theirs", tmp_path / "out", config="plain_of_48").remarks
    assert "norm_eps is 1e-12, as the weights have it, where the name alone means 1e-06" in told
    model: Any = load_model(tmp_path / "out")
    assert (model.num_classes, model.config.norm_eps) == (0, 1e-12)
    images = torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        if "MAE" in type(theirs).__name__:
            theirs.vit.config.mask_ratio = 0.0
            noise = torch.linspace(0, 1, 16).expand(2, -1)
            wanted = theirs.vit(images, noise=noise).last_hidden_state
        else:
            wanted = theirs.vit(images).last_hidden_state
        assert (model.forward_features(images) - wanted).abs().max() < 1e-5 * wanted.abs().max()


def test_other_layers_are_still_refused(tmp_path: Path) -> None:
    save_model(build_model(SimMIMConfig(encoder=PLAIN)), tmp_path / "masked")
    with pytest.raises(ConfigError, match=r"model\.depth: expected 2, as the weights have it, received 3"):
        load_model(tmp_path / "masked", config=updated(PLAIN, depth=3))

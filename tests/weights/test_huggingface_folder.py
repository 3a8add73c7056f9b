"""Hugging Face's folder: its words for settings, pictures and classes; the Auto classes open what is written."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface_models import largest_difference, quiet, saved_by_transformers, their_model, transformers
from PIL import Image
from torch import Tensor

from parity.random_weights import fill_with_large_random_weights
from vitscope.core.config import updated
from vitscope.core.environment import data_roots
from vitscope.core.errors import ConfigError, VitscopeError
from vitscope.data.config import PreprocessConfig, half_normalised
from vitscope.data.photographs import builtin_picture
from vitscope.data.preprocess import preprocess
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, MAEConfig, SimMIMConfig, ViTConfig
from vitscope.weights.adapt import Resampling
from vitscope.weights.convert import convert
from vitscope.weights.formats.huggingface_config import read_config
from vitscope.weights.formats.huggingface_folder import save_folder
from vitscope.weights.formats.huggingface_pictures import read_pictures, written_pictures
from vitscope.weights.load import load_model

LOGITS = 1e-5
SMALL: dict[str, Any] = {"img_size": 96, "patch_size": 16, "embed_dim": 48, "depth": 2, "num_heads": 4}
IMAGENET: dict[str, Any] = {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)}


@pytest.fixture(scope="module")
def photographs() -> list[Image.Image]:
    import pyarrow.parquet as pq

    found = [root / "imagenette160" for root in data_roots() if (root / "imagenette160").is_dir()]
    if not found:
        pytest.skip("no imagenette160 under $VITSCOPE_DATA or data/")
    file = pq.ParquetFile(found[0] / "validation-00000-of-00001.parquet")
    rows = next(file.iter_batches(batch_size=12, columns=["image"])).column("image")
    return [Image.open(io.BytesIO(row.as_py()["bytes"])).convert("RGB") for row in rows]


def filled(config: Any, seed: int = 3) -> Any:
    model = build_model(config).eval()
    fill_with_large_random_weights(model, seed=seed)
    return model


def through_transformers(folder: Path, pictures: list[Image.Image], **how: Any) -> Tensor:
    """Its own processor and model, as anybody opens them."""
    with quiet(), torch.inference_mode():
        processor = transformers.AutoImageProcessor.from_pretrained(folder, **how)
        model = transformers.AutoModelForImageClassification.from_pretrained(folder).eval()
        return model(**processor(pictures, return_tensors="pt")).logits


@torch.inference_mode()
def through_ours(model: Any, pictures: list[Image.Image]) -> Tensor:
    return model(torch.stack([preprocess(picture, model.preprocessing) for picture in pictures]))


# --- photographs ------------------------------------------------------------------------------------------------

PROCESSORS: dict[str, tuple[str, dict[str, Any]]] = {
    "vit": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}}),
    "vit_bicubic": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}, "resample": 3}),
    "deit": ("DeiTImageProcessor", {"size": {"height": 37, "width": 37}, "crop_size": {"height": 32, "width": 32}}),
    "bit": ("BitImageProcessor", {"size": {"shortest_edge": 39}, "crop_size": {"height": 32, "width": 32}}),
    "pixels": ("ViTImageProcessor", {"size": {"height": 32, "width": 32}, "do_normalize": False}),
}


@pytest.mark.parametrize("processor", PROCESSORS)
@pytest.mark.parametrize("case", ["vit_classes", "deit_classes"])
def test_photographs_give_their_logits(
    case: str, processor: str, photographs: list[Image.Image], tmp_path: Path
) -> None:
    saved_by_transformers(their_model(case), tmp_path)
    name, settings = PROCESSORS[processor]
    getattr(transformers, name)(**settings).save_pretrained(tmp_path)
    ours = load_model(tmp_path)
    wanted = through_transformers(tmp_path, photographs)
    assert largest_difference(through_ours(ours, photographs), wanted) <= LOGITS


def test_photographs_give_their_logits_at_full_size(photographs: list[Image.Image], tmp_path: Path) -> None:
    """ViT-B/16 at 224, as google/vit-base-patch16-224 is set: bilinear, squashed, mean = std = 0.5."""
    theirs = transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=1000))
    fill_with_large_random_weights(theirs)
    saved_by_transformers(theirs, tmp_path)
    transformers.ViTImageProcessor().save_pretrained(tmp_path)
    wanted = through_transformers(tmp_path, photographs[:2])
    assert largest_difference(through_ours(load_model(tmp_path), photographs[:2]), wanted) <= LOGITS


PREPARED = {
    "middle": PreprocessConfig(img_size=(96, 96), crop_share=0.875, **IMAGENET),
    "squashed": PreprocessConfig(img_size=(96, 96), crop="squash", interpolation="bilinear"),
    "squashed_and_cut": PreprocessConfig(img_size=(96, 96), crop="squash", crop_share=0.9, **IMAGENET),
}


@pytest.mark.parametrize("resizer", ["pillow", "tensor"])
@pytest.mark.parametrize("prepared", PREPARED)
def test_what_is_written_gives_our_logits(
    prepared: str, resizer: str, photographs: list[Image.Image], tmp_path: Path
) -> None:
    model = filled(ViTConfig(**SMALL, num_classes=5))
    model.preprocessing = updated(PREPARED[prepared], resizer=resizer)
    model.labels = ["ant", "bee", "cat", "dog", "elk"]
    remarks = save_folder(model, tmp_path)
    how = {"backend": "pil"} if resizer == "pillow" else {}
    wanted = through_ours(model, photographs)
    assert largest_difference(through_transformers(tmp_path, photographs, **how), wanted) <= LOGITS
    assert any("backend='pil'" in remark for remark in remarks) == (resizer == "pillow")
    again = load_model(tmp_path)
    assert again.labels == model.labels
    assert again.preprocessing is not None
    assert again.preprocessing.resizer == "tensor"
    told = [written_pictures(config, where="here") for config in (again.preprocessing, model.preprocessing)]
    assert told[0] == told[1]


def test_vit_base_is_written_at_full_size(photographs: list[Image.Image], tmp_path: Path) -> None:
    model = filled(ViTConfig(num_classes=1000))
    model.preprocessing = PreprocessConfig(resizer="tensor", crop_share=0.9)
    save_folder(model, tmp_path)
    wanted = through_ours(model, photographs[:2])
    assert largest_difference(through_transformers(tmp_path, photographs[:2]), wanted) <= LOGITS


# --- pictures of any shape --------------------------------------------------------------------------------------

SHAPES = [(640, 427), (427, 640), (333, 500), (100, 75), (75, 101), (224, 224), (31, 500), (225, 224)]
"""(width, height), such that margins are even and odd."""
CUTS = {
    "vit": ("ViTImageProcessor", {}),
    "vit_nearest": ("ViTImageProcessor", {"resample": 0, "size": {"height": 97, "width": 131}}),
    "deit": ("DeiTImageProcessor", {}),
    "deit_odd": ("DeiTImageProcessor", {"size": 259, "crop_size": 224}),
    "bit": ("BitImageProcessor", {}),
    "bit_odd": ("BitImageProcessor", {"size": {"shortest_edge": 101}, "crop_size": 98}),
    "bit_number": ("BitImageProcessor", {"size": 256, "crop_size": 224}),
    "rescaled": ("ViTImageProcessor", {"rescale_factor": 1 / 127.5, "image_mean": [1.0] * 3, "image_std": [1.0] * 3}),
}


@pytest.mark.parametrize("cut", CUTS)
def test_pictures_of_any_shape_are_cut_as_theirs(cut: str) -> None:
    name, settings = CUTS[cut]
    processor = getattr(transformers, name)(**settings)
    config = read_pictures(json.loads(processor.to_json_string()), "vit", (224, 224), where="here")
    assert config.resizer == "tensor"
    picture = builtin_picture("flower")
    for shape in SHAPES:
        shown = picture.resize(shape)
        wanted = processor(shown, return_tensors="pt")["pixel_values"][0]
        assert (preprocess(shown, config) - wanted).abs().max() <= 1e-6, shape


@pytest.mark.parametrize("cut", CUTS)
def test_settings_of_pictures_come_back(cut: str) -> None:
    name, settings = CUTS[cut]
    told = json.loads(getattr(transformers, name)(**settings).to_json_string())
    config = read_pictures(told, "vit", (224, 224), where="here")
    assert read_pictures(written_pictures(config, where="here"), "vit", (224, 224), where="here") == config


def test_every_share_survives() -> None:
    """The shorter side is written as a whole number; what is read must lead to the same one."""
    for side in (32, 96, 224, 384, 518):
        for longer in range(side, side + 160):
            told = {"image_processor_type": "BitImageProcessor", "size": {"shortest_edge": longer}, "crop_size": side}
            config = read_pictures(told, "vit", (side, side), where="here")
            assert written_pictures(config, where="here")["size"] == {"shortest_edge": longer}


OLD_WORDS = {
    "vit": ({"feature_extractor_type": "ViTFeatureExtractor", "size": 64}, {"img_size": (64, 64), "crop": "squash"}),
    "deit": (
        {"feature_extractor_type": "DeiTFeatureExtractor", "size": 256, "crop_size": 224},
        {"img_size": (224, 224), "crop": "squash", "crop_share": 0.875},
    ),
    "unnamed": ({"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}}, {"crop": "centre"}),
    "fast": ({"image_processor_type": "ViTImageProcessorFast", "resample": 3}, {"interpolation": "bicubic"}),
    "unresized": ({"do_resize": False, "do_center_crop": False}, {"img_size": (48, 64), "crop": "squash"}),
}


@pytest.mark.parametrize("words", OLD_WORDS)
def test_older_words_for_pictures_are_understood(words: str) -> None:
    told, wanted = OLD_WORDS[words]
    config = read_pictures(told, "dinov2" if words == "unnamed" else "vit", (48, 64), where="here")
    assert {name: getattr(config, name) for name in wanted} == wanted


@pytest.mark.parametrize(
    ("told", "what"),
    [
        ({"resample": 1}, "resample: expected 0 (nearest), 2 (bilinear), 3 (bicubic), received 1"),
        ({"image_processor_type": "ConvNextImageProcessor"}, "image_processor_type: expected one of ViTImageProcessor"),
        ({"size": {"longest_edge": 224}}, "size: expected"),
        ({"size": {"shortest_edge": 224}}, "do_center_crop: expected true where size is the shorter side"),
        ({"do_center_crop": True, "size": 200, "crop_size": 224}, "crop_size: expected at most the size"),
        ({"do_pad": True}, "do_pad: expected false"),
        ({"image_mean": [0.5], "image_std": [0.5, 0.5]}, "image_mean and image_std: expected"),
        ({"image_mean": "half"}, "image_mean and image_std: expected"),
        ({"image_std": [0.0, 0.5, 0.5]}, "std: expected positive numbers"),
        ({"do_resize": False, "do_center_crop": True}, "do_resize: expected true before a cut"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_other_ways_with_pictures_are_refused(told: dict[str, Any], what: str) -> None:
    with pytest.raises(ConfigError) as refused:
        read_pictures(told, "vit", (224, 224), where="here")
    assert refused.value.what.startswith(what)


# --- config.json ------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return saved_by_transformers(their_model("vit_classes"), tmp_path)


def tell(folder: Path, **changes: Any) -> None:
    told = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**told, **changes}))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"model_type": "swin"}, "model_type: expected one of vit, deit, vit_mae, dinov2, dinov2_with_registers"),
        ({"hidden_act": "mish"}, "hidden_act: expected one of gelu"),
        ({"id2label": {"0": "a", "2": "b"}}, "id2label: expected the numbers 0 to 1"),
        ({"id2label": {"zero": "a"}}, "id2label: expected the numbers 0 to 0"),
        ({"hidden_size": "wide"}, "embed_dim"),
        ({"num_attention_heads": 5}, "num_heads: expected a divisor"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_unknown_words_are_refused(changes: dict[str, Any], what: str, folder: Path) -> None:
    tell(folder, **changes)
    with pytest.raises(ConfigError) as refused:
        load_model(folder)
    assert what in f"{refused.value.where} {refused.value.what}"
    assert str(folder) in str(refused.value.where)


@pytest.mark.parametrize("kind", ["vit", "deit", "vit_mae", "dinov2", "dinov2_with_registers"])
def test_what_is_not_said_is_what_transformers_takes(kind: str) -> None:
    theirs = transformers.AutoConfig.for_model(kind)
    tensors = ["decoder.decoder_embed.weight"] if kind == "vit_mae" else []
    said = read_config(theirs.to_dict(), tensors, sincos=True, where="here")
    assert read_config({"model_type": kind}, tensors, sincos=True, where="here") == said
    vit: Any = getattr(said, "encoder", said)
    assert (vit.norm_eps, vit.patch_size) == (theirs.layer_norm_eps, theirs.patch_size)


def test_a_stride_other_than_the_patch_is_refused(tmp_path: Path) -> None:
    saved_by_transformers(their_model("vit_simmim"), tmp_path)
    tell(tmp_path, encoder_stride=4)
    with pytest.raises(ConfigError, match="encoder_stride: expected the patch_size 8, received 4"):
        load_model(tmp_path)


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_damaged_processor_file_is_refused(content: str, folder: Path) -> None:
    (folder / "preprocessor_config.json").write_text(content)
    with pytest.raises(VitscopeError, match=r"preprocessor_config\.json"):
        load_model(folder)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gelu_fast", "gelu_tanh"),
        ("gelu_pytorch_tanh", "gelu_tanh"),
        ("swish", "silu"),
        ("relu", "relu"),
        ("gelu", None),
    ],
)
def test_activations(theirs: str, ours: str | None, folder: Path) -> None:
    tell(folder, hidden_act=theirs)
    config: Any = load_model(folder).config
    assert config.act == ours


def test_labels_are_in_the_order_of_their_numbers(folder: Path) -> None:
    tell(folder, id2label={str(number): f"class {number}" for number in (3, 0, 6, 1, 2, 5, 4)})
    assert load_model(folder).labels == [f"class {number}" for number in range(7)]


def test_another_picture_size_than_the_models_is_said(tmp_path: Path) -> None:
    """As facebook/dinov2-base has it: positions for 518, pictures of 224."""
    saved_by_transformers(their_model("dinov2"), tmp_path)
    transformers.BitImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 28, "width": 28}).save_pretrained(
        tmp_path
    )
    model: Any = load_model(tmp_path)
    assert model.config.img_size == 42
    assert model.preprocessing.img_size == (42, 42)
    (warning,) = model.certificate.warnings
    assert "28 x 28" in warning
    assert "--positions bicubic --img-size 28" in warning
    with pytest.raises(VitscopeError, match="28 x 28"):
        load_model(tmp_path, strict=True)
    moved = {"img_size": 28, "resampling": Resampling(positions="bicubic")}
    assert load_model(tmp_path, **moved).certificate.warnings == ()  # pyright: ignore[reportArgumentType]
    assert "--positions bicubic" in load_model(tmp_path, img_size=28).certificate.warnings[0]
    assert load_model(tmp_path, img_size=56).certificate.warnings == ()  # a wish of one's own


def test_a_head_of_two_parts_is_left_out_with_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """DINOv2's classifier reads the class token and the mean of the patches; what is left is no classifier."""
    for case in ("dinov2_classes", "dinov2_registers_classes"):
        saved_by_transformers(their_model(case), tmp_path / case)
        caplog.clear()
        assert load_model(tmp_path / case).num_classes == 0
        assert "left out: classifier.bias, classifier.weight (the head reads class token and mean" in caplog.text
        with pytest.raises(VitscopeError, match=r"strict: left out: classifier\.bias"):
            load_model(tmp_path / case, strict=True)


def test_more_names_than_classes_are_left_out_with_a_warning(folder: Path, tmp_path: Path) -> None:
    tell(folder, id2label={str(number): f"class {number}" for number in range(8)})
    model = load_model(folder)
    assert (model.num_classes, model.labels) == (7, None)
    assert model.certificate.warnings == ("8 classes are named, and the head has 7: the names are left out",)
    convert(folder, tmp_path.with_name("out"), prove=False)
    assert not (tmp_path.with_name("out") / "labels.json").exists()


@pytest.mark.parametrize("table", ["zeros", "another"])
def test_why_a_table_of_mae_has_no_place_is_said(table: str, tmp_path: Path) -> None:
    theirs: Any = their_model("mae")
    with torch.no_grad():
        for one in (theirs.decoder.decoder_pos_embed, theirs.vit.embeddings.position_embeddings):
            one.zero_() if table == "zeros" else one.add_(1e-2)
    saved_by_transformers(theirs, tmp_path)
    with pytest.raises(VitscopeError, match=r"unexpected: decoder\.decoder_pos_embed") as caught:
        load_model(tmp_path)
    why = "all zeros, which is no fixed sin-cos table" if table == "zeros" else "not the fixed sin-cos table"
    assert f"decoder.decoder_pos_embed is {why}" in str(caught.value.fix)
    assert "give the config of a ViT" in str(caught.value.fix)
    plain = ViTConfig(
        img_size=32, patch_size=8, embed_dim=48, depth=2, num_heads=4, mlp_dim=80, num_classes=0, norm_eps=1e-12
    )
    alone = load_model(tmp_path, config=plain)  # as it says
    assert torch.equal(alone.state_dict()["pos_embed"], theirs.vit.embeddings.position_embeddings)
    assert ("sees no positions" in "".join(alone.certificate.warnings)) == (table == "zeros")


def test_stochastic_depth_is_read(folder: Path) -> None:
    tell(folder, drop_path_rate=0.25)
    model: Any = load_model(folder)
    assert model.config.drop_path_rate == 0.25
    assert model.blocks[-1].drop_path1.rate == 0.25


# --- what is written --------------------------------------------------------------------------------------------


def test_the_auto_classes_open_it(tmp_path: Path) -> None:
    model = filled(ViTConfig(**SMALL, num_classes=3))
    model.labels = ["ant", "bee", "cat"]
    save_folder(model, tmp_path)
    with quiet():
        opened = transformers.AutoModelForImageClassification.from_pretrained(tmp_path)
        processor = transformers.AutoImageProcessor.from_pretrained(tmp_path)
    assert type(opened).__name__ == "ViTForImageClassification"
    assert opened.config.id2label == {0: "ant", 1: "bee", 2: "cat"}
    assert opened.config.label2id == {"ant": 0, "bee": 1, "cat": 2}
    assert list(processor.image_mean) == [0.5, 0.5, 0.5]
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "config.json",
        "model.safetensors",
        "preprocessor_config.json",
    ]


AUTO = {
    "headless": (ViTConfig(**SMALL, num_classes=0), "AutoModel", "ViTModel"),
    "distilled": (
        ViTConfig(**SMALL, num_classes=3, distilled=True),
        "DeiTForImageClassificationWithTeacher",
        "DeiTForImageClassificationWithTeacher",
    ),
    "dinov2": (ViTConfig(**SMALL, num_classes=0, layer_scale=0.1), "AutoModel", "Dinov2Model"),
    "mae": (
        MAEConfig(encoder=ViTConfig(**SMALL, num_classes=0, position="sincos"), decoder_embed_dim=64),
        "AutoModelForPreTraining",
        "ViTMAEForPreTraining",
    ),
    "simmim": (
        SimMIMConfig(encoder=ViTConfig(**SMALL, num_classes=0)),
        "AutoModelForMaskedImageModeling",
        "ViTForMaskedImageModeling",
    ),
}


@pytest.mark.parametrize("case", AUTO)
def test_the_class_that_holds_it_is_chosen(case: str, tmp_path: Path) -> None:
    config, auto, name = AUTO[case]
    save_folder(build_model(config), tmp_path)
    with quiet():
        opened, report = getattr(transformers, auto).from_pretrained(tmp_path, output_loading_info=True)
    assert type(opened).__name__ == name
    assert not report["unexpected_keys"]
    assert not report["mismatched_keys"]
    assert all("pooler" in key for key in report["missing_keys"])


CANNOT: dict[str, tuple[Any, list[str]]] = {
    "mean": (ViTConfig(**SMALL, pool="mean"), ["pool is 'mean'"]),
    "attention": (ViTConfig(**SMALL, pool="attention", num_classes=0), ["pool is 'attention'"]),
    "no_class_token": (ViTConfig(**SMALL, pool="mean", class_token=False), ["no class token", "pool is 'mean'"]),
    "post_norm_and_qk_norm": (ViTConfig(**SMALL, norm_order="post", qk_norm=True), ["'post'", "qk_norm"]),
    "rope": (ViTConfig(**SMALL, position="rope"), ["'rope'"]),
    "relative": (ViTConfig(**SMALL, position="relative"), ["'relative'"]),
    "registers": (ViTConfig(**SMALL, num_registers=4), ["registers need layer scale"]),
    "register_positions": (
        ViTConfig(**SMALL, num_classes=0, num_registers=4, layer_scale=0.1),
        ["registers have rows of the position table"],
    ),
    "scaled_with_head": (ViTConfig(**SMALL, layer_scale=0.1), ["models without a head"]),
    "swiglu": (ViTConfig(**SMALL, mlp="swiglu"), ["gated MLP needs layer scale"]),
    "heads": (ViTConfig(**{**SMALL, "num_heads": (4, 2)}, head_dim=12), ["differ in their heads"]),
    "neurons": (ViTConfig(**SMALL, mlp_dim=(96, 48)), ["differ in their neurons"]),
    "odd_neurons": (ViTConfig(**SMALL, num_classes=0, layer_scale=0.1, mlp_dim=50), ["50 neurons"]),
    "rectangle": (
        ViTConfig(**{**SMALL, "img_size": (96, 64)}, num_classes=0, layer_scale=0.1),
        ["height and width differ"],
    ),
    "mae_registers": (
        MAEConfig(encoder=ViTConfig(**SMALL, num_classes=0, num_registers=1)),
        ["registers need layer scale"],
    ),
    "cnn": (CNNConfig(), ["'vit', 'mae' or 'simmim'"]),
}


@pytest.mark.parametrize("case", CANNOT)
def test_what_they_cannot_hold_is_listed(case: str, tmp_path: Path) -> None:
    config, reasons = CANNOT[case]
    with torch.device("meta"):
        model = build_model(config)
    with pytest.raises(ConfigError) as refused:
        save_folder(model, tmp_path)
    assert all(reason in refused.value.what for reason in reasons)
    assert not any(tmp_path.iterdir())


def test_a_rectangle_that_is_cut_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    model = build_model(ViTConfig(**{**SMALL, "img_size": (96, 64)}, num_classes=3))
    model.preprocessing = half_normalised((96, 64), 3)
    with pytest.raises(ConfigError, match=r"preprocessing\.crop: expected 'squash'"):
        save_folder(model, tmp_path)
    assert not any(tmp_path.iterdir())


@pytest.mark.parametrize("changes", [{"crop": "centre"}, {"crop": "squash"}, {"crop": "squash", "crop_share": 0.875}])
@pytest.mark.parametrize("backend", ["pil", "torchvision"])
def test_grey_pictures_stay_grey(changes: dict[str, Any], backend: str, tmp_path: Path) -> None:
    model = filled(ViTConfig(**SMALL, in_chans=1, num_classes=4))
    model.preprocessing = updated(half_normalised((96, 96), 1), **changes)
    remarks = save_folder(model, tmp_path)
    assert any("grey pictures ('L')" in remark for remark in remarks)
    picture = builtin_picture().convert("L").resize((140, 120))
    theirs = through_transformers(tmp_path, [picture], backend=backend)
    ours = model(preprocess(picture, model.preprocessing)[None])
    assert largest_difference(ours.detach(), theirs) < (LOGITS if backend == "pil" else 0.05)


@pytest.mark.parametrize("img_size", [96, (64, 96)], ids=["square", "oblong"])
def test_fixed_positions_without_a_head_are_opened_by_auto_model(img_size: Any, tmp_path: Path) -> None:
    model = filled(ViTConfig(**{**SMALL, "img_size": img_size}, num_classes=0, position="sincos"))
    save_folder(model, tmp_path)
    pictures = torch.randn(
        2, 3, *((96, 96) if img_size == 96 else img_size), generator=torch.Generator().manual_seed(1)
    )
    with quiet(), torch.inference_mode():
        theirs = transformers.AutoModel.from_pretrained(tmp_path).eval()(pictures).last_hidden_state
        assert largest_difference(model.forward_features(pictures), theirs) < LOGITS
    again = load_model(tmp_path, say=False)
    assert again.config == model.config
    assert all(torch.equal(tensor, again.state_dict()[name]) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("case", "positions"),
    [("dinov2", "bicubic"), ("dinov2_registers", "bicubic_antialias"), ("vit", "bicubic"), ("deit", "bicubic")],
)
def test_the_resampling_that_is_named_gives_their_numbers(case: str, positions: Any, tmp_path: Path) -> None:
    theirs = their_model(case)
    size = 2 * theirs.config.image_size
    saved_by_transformers(theirs, tmp_path)
    told = {"do_resize": True, "size": {"height": size, "width": size}, "image_processor_type": "ViTImageProcessor"}
    (tmp_path / "preprocessor_config.json").write_text(json.dumps(told))
    (said,) = load_model(tmp_path, say=False).certificate.warnings
    assert f"--positions {positions} --img-size {size} " in said
    assert f"(img_size={size}, resampling=Resampling(positions='{positions}'))" in said
    pictures = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(1))
    asked = {} if "dino" in case else {"interpolate_pos_encoding": True}
    with torch.inference_mode():
        wanted = theirs(pictures, **asked).last_hidden_state
        ours = load_model(tmp_path, img_size=size, resampling=Resampling(positions=positions), say=False)
        other = Resampling(positions="bicubic" if "_" in positions else "bicubic_antialias")
        wrong = load_model(tmp_path, img_size=size, resampling=other, say=False)
        assert largest_difference(ours.forward_features(pictures), wanted) < LOGITS
        assert largest_difference(wrong.forward_features(pictures), wanted) > 10 * LOGITS


@pytest.mark.parametrize(("case", "usual"), [("vit", 1e-12), ("dinov2", 1e-6)])
def test_a_bare_file_does_not_tell_eps(case: str, usual: float, tmp_path: Path) -> None:
    saved_by_transformers(their_model(case), tmp_path)
    config: Any = load_model(tmp_path, say=False).config
    assert config.norm_eps == usual
    for eps, remarks in ((usual, 0), (1e-5, 1)):
        model = load_model(tmp_path / "model.safetensors", config=updated(config, norm_eps=eps), say=False)
        said = [remark for remark in model.certificate.remarks if f"norm_eps={usual:g}" in remark]
        assert len(said) == remarks
    told = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**told, "layer_norm_eps": 1e-5}))
    assert not any("eps" in remark for remark in load_model(tmp_path, say=False).certificate.remarks)


def test_a_processor_within_another_file_is_read(tmp_path: Path) -> None:
    model = filled(ViTConfig(**SMALL, num_classes=4))
    model.preprocessing = updated(half_normalised((96, 96), 3), **IMAGENET)
    save_folder(model, tmp_path)
    wanted = load_model(tmp_path, say=False).preprocessing
    told = json.loads((tmp_path / "preprocessor_config.json").read_text())
    (tmp_path / "preprocessor_config.json").unlink()
    assert load_model(tmp_path, say=False).preprocessing is None
    (tmp_path / "processor_config.json").write_text(json.dumps({"image_processor": told}))
    assert load_model(tmp_path, say=False).preprocessing == wanted
    (tmp_path / "processor_config.json").write_text(json.dumps({"tokenizer": {}}))
    assert load_model(tmp_path, say=False).preprocessing is None

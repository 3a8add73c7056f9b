"""What holds for every registered model, whatever its family.

Each is built twice: full size on the meta device (counts, keys, shapes) and as a small twin with real numbers
(see twins.py). Tests of one twin run together, so that it is drawn once, and once for all models that have it.
"""

from __future__ import annotations

import copy
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from twins import image_settings, image_shape, pictures, twin

from vitscope.core.config import updated
from vitscope.core.errors import InputError, VitscopeError
from vitscope.models.build import CONFIGS, build_model
from vitscope.models.layers.attention import Attention
from vitscope.models.resnet import Bottleneck, ResidualBlock
from vitscope.models.variants import VARIANTS, model_config
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

NAMES = list(VARIANTS)
CLASSIFIERS = [name for name in NAMES if VARIANTS[name].is_classifier]

NAMED_COUNTS = {
    "vit_tiny": 2_697_610,
    "vit_small": 21_342_346,
    "vit_base": 85_152_010,
    "vit_small_imagenet": 22_050_664,
    "vit_base_imagenet": 86_567_656,
    "vit_large_imagenet": 304_326_632,
}
GUIDE_MILLIONS = {"guide_tiny": 0.8, "guide_small": 4.8, "guide_base": 19.0, "guide_large": 38.0}

ENDS = r"\.(weight|bias)"
VIT_KEYS = (
    r"(cls_token|dist_token|reg_token|pos_embed|(patch_embed\.proj|norm)" + ENDS + "|"
    r"blocks\.\d+\.((norm1|norm2|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2)" + ENDS + r"|ls[12]\.gamma))"
)
NORM_STATE = r"\.(weight|bias|running_mean|running_var|num_batches_tracked)"
PUBLIC_KEYS = {
    "vit": rf"{VIT_KEYS}|(head|head_dist){ENDS}",
    "swin": (
        rf"(patch_embed\.(proj|norm)|norm|head\.fc){ENDS}|layers\.\d\.(downsample\.(norm{ENDS}|reduction\.weight)"
        rf"|blocks\.\d+\.((norm1|norm2|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2){ENDS}"
        r"|attn\.relative_position_bias_table))"
    ),
    "resnet": (
        rf"conv1\.weight|bn1{NORM_STATE}|fc{ENDS}|layer\d\.\d+\.(conv[123]\.weight|bn[123]{NORM_STATE}"
        rf"|downsample\.(0\.weight|1{NORM_STATE}))"
    ),
    "cnn": rf"stages\.\d\.(conv[12]\.weight|bn[12]{NORM_STATE})|head{ENDS}",
    "lstm": rf"lstm\.(weight|bias)_(ih|hh)_l\d|head{ENDS}",
    "mae": (
        rf"encoder\.{VIT_KEYS}|mask_token|(decoder_embed|decoder_norm|decoder_pred){ENDS}"
        rf"|decoder_blocks\.\d\.(norm1|norm2|attn\.qkv|attn\.proj|mlp\.fc1|mlp\.fc2){ENDS}"
    ),
    "simmim": rf"encoder\.{VIT_KEYS}|mask_token|decoder\.0{ENDS}",
}


# --- full size, without numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_full_size(name: str) -> None:
    """Builds, has public keys only, carries its config, and maps images of its size to its number of outputs."""
    config = model_config(name)
    with torch.device("meta"):
        model = build_model(config).eval()
        images = torch.empty(2, *image_shape(config))
    assert model.config == config
    assert CONFIGS[config.family] is type(config)
    assert sum(p.numel() for p in model.parameters()) == NAMED_COUNTS.get(name) or name not in NAMED_COUNTS
    strangers = [key for key in model.state_dict() if not re.fullmatch(PUBLIC_KEYS[config.family], key)]
    assert strangers == []
    assert all(t.is_meta for t in (*model.parameters(), *model.buffers()))
    tokens = model.forward_features(images)
    assert model.forward_head(tokens, pre_logits=True).shape == (2, model.num_features)
    assert model.num_classes == getattr(config, "num_classes", 0)
    if VARIANTS[name].is_classifier:
        assert model.forward_head(tokens).shape == (2, config.num_classes or model.num_features)
    else:
        out = model(images)
        assert out.loss.shape == ()
        assert out.mask.shape == (2, config.encoder.num_patches)


def test_the_six_named_models_are_registered() -> None:
    assert set(NAMED_COUNTS) <= set(NAMES)


@pytest.mark.parametrize(("name", "millions"), GUIDE_MILLIONS.items())
def test_guide_presets_have_their_true_counts(name: str, millions: float) -> None:
    with torch.device("meta"):
        model = build_model(model_config(name))
    assert sum(p.numel() for p in model.parameters()) / 1e6 == pytest.approx(millions, rel=0.03)


# --- the twin, with numbers ------------------------------------------------------------------------------------------


def drawn(config: Any, seed: int = 0) -> Any:
    torch.manual_seed(seed)
    return build_model(config)


def models_by_twin() -> list[list[str]]:
    """Names of models whose twins have the same settings, and so are the same network."""
    found: dict[str, list[str]] = {}
    for name in NAMES:
        found.setdefault(repr(twin(model_config(name))), []).append(name)
    return list(found.values())


@pytest.fixture(scope="module", params=models_by_twin(), ids="+".join)
def names(request: pytest.FixtureRequest) -> list[str]:
    """All in the test's name, so that `-k NAME` finds the tests of any model."""
    return request.param


@pytest.fixture(scope="module")
def name(names: list[str]) -> str:
    return names[0]


@pytest.fixture(scope="module")
def original(name: str) -> Any:
    """The twin as it was born. Never changed: tests that change a model take a `model`, a copy."""
    return drawn(twin(model_config(name))).eval()


@pytest.fixture
def model(original: Any) -> Any:
    return copy.deepcopy(original)


@pytest.fixture
def images(original: Any) -> Tensor:
    return pictures(original.config)


def needs_classifier(name: str) -> None:
    if not VARIANTS[name].is_classifier:
        pytest.skip("a masked model has no classifier")


def features(model: Any, images: Tensor) -> Tensor:
    """Logits; of a masked model, whose forward is random, the pooled features."""
    if model.config.family in ("mae", "simmim"):
        return model.forward_head(model.forward_features(images))
    return model(images)


def loss_of(model: Any, images: Tensor) -> Tensor:
    """One training loss, random parts drawn from seed 0."""
    torch.manual_seed(0)
    out = model.train()(images)
    return F.cross_entropy(out, torch.arange(len(images)) % 10) if isinstance(out, Tensor) else out.loss


def open_branches(model: nn.Module) -> None:
    """A residual block is born as the identity (its last BatchNorm weighs 0): no gradient passes that branch until
    the weight has moved. Move it."""
    for module in model.modules():
        if isinstance(module, ResidualBlock | Bottleneck):
            nn.init.ones_(module.last_norm.weight)


def test_twin_is_of_the_family_and_small(names: list[str], original: Any) -> None:
    assert sum(p.numel() for p in original.parameters()) < 30e6
    kept = {"position", "pool", "class_token", "num_registers", "distilled", "mlp", "layer_scale", "prefix_position"}
    for name in names:
        config = model_config(name)
        assert type(original.config) is type(config)
        settings, small = image_settings(config), image_settings(original.config)
        for key in kept & set(vars(settings)):
            assert getattr(small, key) == getattr(settings, key), (name, key)


def test_every_parameter_gets_a_gradient(model: Any, images: Tensor) -> None:
    open_branches(model)
    loss_of(model, images).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key
        assert parameter.grad.abs().max() > 0, key


def test_batch_equals_one_by_one(original: Any, images: Tensor) -> None:
    with torch.inference_mode():
        alone = torch.cat([features(original, image[None]) for image in images])
        torch.testing.assert_close(features(original, images), alone, atol=1e-5, rtol=1e-5)


def test_fused_attention_is_plain_attention(original: Any) -> None:
    attentions = [module for module in original.modules() if isinstance(module, Attention)]
    if not attentions:
        pytest.skip("no such attention (Swin's has its own test)")
    rng = torch.Generator().manual_seed(3)
    for attn in attentions:
        x = 3 * torch.randn(2, 7, attn.qkv.in_features, generator=rng)
        with torch.inference_mode():
            v = attn.qkv(x).reshape(2, 7, 3, attn.num_heads, attn.head_dim)[:, :, 2].transpose(1, 2)
            plain = attn.proj((attn.weights(x) @ v).transpose(1, 2).flatten(2))
            torch.testing.assert_close(attn(x), plain, atol=1e-5, rtol=1e-5)


def test_attention_maps_or_a_clear_refusal(original: Any, images: Tensor) -> None:
    if original.config.family not in ("vit", "mae", "simmim"):
        with pytest.raises(VitscopeError, match="no attention over the whole image"):
            original.attention_maps(images)
        return
    maps = original.attention_maps(images)
    tokens = image_settings(original.config).num_tokens
    assert {layer: m.shape[-2:] for layer, m in maps.items()} == {0: (tokens, tokens), 1: (tokens, tokens)}
    for weights in maps.values():
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:-1]))


@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_loss_at_birth_is_ln_classes(name: str, model: Any, training: bool) -> None:
    needs_classifier(name)
    images, labels = pictures(model.config, batch=32), torch.arange(32) % 10
    torch.manual_seed(0)
    with torch.no_grad():
        loss = F.cross_entropy(model.train(training)(images), labels).item()
    assert loss == pytest.approx(math.log(10), rel=0.05)


def test_headless_gives_pooled_features(name: str, model: Any, images: Tensor) -> None:
    needs_classifier(name)
    with torch.inference_mode():
        wanted = model.forward_head(model.forward_features(images), pre_logits=True)
        before = set(model.state_dict())
        model.reset_classifier(0)
        assert model(images).shape == (4, model.num_features)
        assert torch.equal(model(images), wanted)
    assert model.config.num_classes == model.num_classes == 0
    gone = before - set(model.state_dict())
    assert gone == {f"{head}.{leaf}" for head in model.classifiers() for leaf in ("weight", "bias")}
    with torch.device("meta"):
        assert set(build_model(model.config).state_dict()) == set(model.state_dict())


def test_reset_classifier(name: str, model: Any, images: Tensor) -> None:
    if not VARIANTS[name].is_classifier:
        with pytest.raises(VitscopeError, match="no classifier"):
            model.reset_classifier(3)
        return
    with torch.inference_mode():
        wanted = model.forward_features(images)
        model.reset_classifier(3)
        assert model(images).shape == (4, 3)
        assert torch.equal(model.forward_features(images), wanted)
    assert model.config == updated(twin(model_config(name)), num_classes=3)


def test_same_seed_same_network(original: Any, images: Tensor) -> None:
    again = drawn(original.config).eval()
    for (key, one), (_, two) in zip(original.state_dict().items(), again.state_dict().items(), strict=True):
        assert torch.equal(one, two), key
    with torch.inference_mode():
        assert torch.equal(features(original, images), features(again, images))


def test_gradient_checkpointing_changes_nothing(model: Any, images: Tensor) -> None:
    if not model.supports_grad_checkpointing:
        with pytest.raises(VitscopeError, match="no gradient checkpointing"):
            model.set_grad_checkpointing()
        return
    other = copy.deepcopy(model)
    other.set_grad_checkpointing()
    losses = [loss_of(m, images) for m in (model, other)]
    assert torch.equal(*losses)
    for loss in losses:
        loss.backward()
    for (key, one), (_, two) in zip(model.named_parameters(), other.named_parameters(), strict=True):
        torch.testing.assert_close(two.grad, one.grad, atol=1e-7, rtol=1e-5, msg=key)
    for (key, one), (_, two) in zip(model.named_buffers(), other.named_buffers(), strict=True):
        assert torch.equal(one, two), f"{key}: a second pass must not move running statistics twice"


def test_wrong_images_are_refused_in_words(original: Any) -> None:
    channels, height, width = image_shape(original.config)
    with pytest.raises(InputError, match=rf"expected \(batch, {channels}, .*received \(2, {channels + 1}, "):
        original(torch.zeros(2, channels + 1, height, width))
    with pytest.raises(InputError, match="add a batch axis"):
        original(torch.zeros(channels, height, width))


def test_saved_and_loaded_is_bit_equal(original: Any, images: Tensor, tmp_path: Path) -> None:
    save_model(original, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.config == original.config
    assert type(loaded) is type(original)
    wanted, found = original.state_dict(), loaded.state_dict()
    assert found.keys() == wanted.keys()
    for key, tensor in wanted.items():
        assert found[key].dtype == tensor.dtype, key
        assert torch.equal(found[key], tensor), key
    with torch.inference_mode():
        assert torch.equal(features(loaded, images), features(original, images))


def test_no_weight_decay_names_parameters(original: Any) -> None:
    names = dict(original.named_parameters())
    for key in original.no_weight_decay():
        assert key in names
        assert key.rpartition(".")[2].endswith(("_token", "pos_embed", "table")), key
    left_out = {key for key in names if key.endswith(("_token", "pos_embed", "_table"))}
    assert left_out == original.no_weight_decay()


# --- full depth, where a twin would not tell --------------------------------------------------------------------------

FULL_DEPTH = {
    "vit_tiny": {},
    "vit_small": {},
    "guide_tiny": {},
    "guide_large": {},
    "guide_overfit": {},
    "mnist_cnn": {},
    "mnist_lstm": {},
    "resnet18": {"img_size": 64},
    "resnet20": {},
    "resnet34": {"img_size": 64},
    "resnet50": {"img_size": 64},
    "swin_tiny_patch4_window7_224": {},
}


@pytest.mark.parametrize("full", FULL_DEPTH)
def test_loss_at_birth_is_ln_classes_at_full_depth(full: str) -> None:
    """Depth can raise the features of networks without a last norm, and with them the logits."""
    model = drawn(updated(model_config(full), num_classes=10, **FULL_DEPTH[full]))
    batch = 2 if "swin" in full else 16
    images, labels = pictures(model.config, batch), torch.arange(batch) % 10
    for training in (True, False):
        torch.manual_seed(0)
        with torch.no_grad():
            loss = F.cross_entropy(model.train(training)(images), labels).item()
        assert loss == pytest.approx(math.log(10), rel=0.05), "train" if training else "eval"


# --- slow ------------------------------------------------------------------------------------------------------------

ONE_PER_FAMILY = ["guide_tiny", "swin_tiny_patch4_window7_224", "resnet20", "mnist_cnn", "mnist_lstm"]
MASKED = ["mae_vit_base_patch16", "simmim_vit_base_patch16_224"]
FULL_SIZE = ["vit_base_patch16_224", "swin_tiny_patch4_window7_224", "resnet50", "mnist_cnn", "mnist_lstm", *MASKED]


@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # the compiler's own
@pytest.mark.parametrize("one", [*ONE_PER_FAMILY, *MASKED])
def test_compiled_equals_eager(one: str) -> None:
    if not any(map(shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler, which compiling on the CPU needs")
    model = drawn(twin(model_config(one))).eval()
    images = pictures(model.config)
    if VARIANTS[one].is_classifier:
        forward = model
    else:

        def forward(x: Tensor) -> Tensor:
            return model.forward_head(model.forward_features(x))

    with torch.no_grad():
        torch.testing.assert_close(torch.compile(forward)(images), forward(images), atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("one", FULL_SIZE)
def test_full_size_with_numbers(one: str) -> None:
    """One of each family at its own size: finite outputs, and a finite gradient for every parameter."""
    config = model_config(one)
    model = drawn(config)
    open_branches(model)
    out = model.train()(pictures(config, batch=2))
    (out.square().mean() if isinstance(out, Tensor) else out.loss).backward()
    for key, parameter in model.named_parameters():
        assert parameter.grad is not None, key
        assert parameter.grad.isfinite().all(), key

"""What a model costs: every parameter and multiply-add in exactly one part, memory as autograd really takes it."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from vitscope.core.config import updated
from vitscope.models.accounting.account import Account, count_parameters
from vitscope.models.accounting.compute import count_macs
from vitscope.models.accounting.hollow import build_hollow
from vitscope.models.accounting.memory import training_memory
from vitscope.models.accounting.parts import fold_parts, list_parts
from vitscope.models.build import build_model
from vitscope.models.config import CNNConfig, LSTMConfig, MAEConfig, ResNetConfig, SwinConfig, ViTConfig, pair
from vitscope.models.variants import list_models, model_config

SMALL = ViTConfig(img_size=32, patch_size=8, embed_dim=32, depth=3, num_heads=4, num_classes=10)


def on_meta(config: Any) -> Any:
    with torch.device("meta"):
        return build_model(config)


def image_shape(config: Any) -> tuple[int, int, int]:
    return (config.in_chans, *pair(config.img_size))


# --- parts ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", list_models())
def test_parts_sum_to_the_whole(name: str) -> None:
    network = on_meta(model_config(name))
    parts = list_parts(network)
    wanted = sum(parameter.numel() for parameter in network.parameters())
    assert sum(part.parameters for part in parts) == wanted == count_parameters(model_config(name))
    assert len({part.name for part in parts}) == len(parts)
    folded = fold_parts(parts)
    assert sum(part.parameters * part.times for part in folded) == wanted
    assert sum(part.times for part in folded) == len(parts)


FAMILIES = {
    "vit": "vit_tiny",
    "distilled": "deit_tiny_distilled_patch16_224",
    "registers": "vit_small_patch14_reg4_dinov2",
    "swin": "swin_tiny_patch4_window7_224",
    "mae": "mae_vit_base_patch16",
    "simmim": "simmim_vit_base_patch16_224",
    "resnet": "resnet20",
    "cnn": "mnist_cnn",
    "lstm": "mnist_lstm",
}


@pytest.mark.parametrize("name", FAMILIES.values(), ids=FAMILIES)
def test_every_multiply_add_is_in_one_part(name: str) -> None:
    account = Account(model_config(name))
    assert account.macs > 0
    assert sum(part.macs for part in account.parts) == account.macs
    assert sum(part.macs * part.times for part in fold_parts(account.parts)) == account.macs
    assert all(part.macs >= 0 for part in account.parts)


def test_parts_of_vit_base_16_are_the_known_ones() -> None:
    parts = {part.name: (part.weights, part.biases) for part in Account(model_config("vit_base_patch16_224")).parts}
    assert parts["patch_embed.proj"] == (589_824, 768)
    assert parts["cls_token"] == (768, 0)
    assert parts["pos_embed"] == (151_296, 0)
    for block in range(12):
        assert parts[f"blocks.{block}.attn.qkv"] == (1_769_472, 2_304)
        assert parts[f"blocks.{block}.attn.proj"] == (589_824, 768)
        assert parts[f"blocks.{block}.mlp.fc1"] == (2_359_296, 3_072)
        assert parts[f"blocks.{block}.mlp.fc2"] == (2_359_296, 768)
        assert parts[f"blocks.{block}.norm1"] == parts[f"blocks.{block}.norm2"] == (768, 768)
    assert parts["norm"] == (768, 768)
    assert parts["head"] == (768_000, 1_000)


def test_blocks_that_differ_are_not_folded_together() -> None:
    pruned = updated(SMALL, num_heads=(4, 4, 2), head_dim=8)
    names = {part.name: part.times for part in fold_parts(Account(pruned).parts)}
    assert names["blocks.0-1.attn.qkv"] == 2
    assert names["blocks.2.attn.qkv"] == 1


@pytest.mark.parametrize(
    "options",
    [
        {"num_heads": (4, 4, 2), "head_dim": 8},
        {"mlp_dim": (16, 8, 40)},
        {"position": "relative", "pool": "attention", "qk_norm": True, "layer_scale": 0.1},
        {"mlp": "swiglu", "num_registers": 2, "distilled": True, "depth": 1},
    ],
    ids=str,
)
def test_counting_one_block_counts_them_all(options: dict[str, Any]) -> None:
    config = updated(SMALL, **options)
    assert count_parameters(config) == sum(parameter.numel() for parameter in build_model(config).parameters())


@pytest.mark.parametrize("name", ["vit_tiny", "resnet18", "mnist_lstm", "swin_tiny_patch4_window7_224"])
def test_a_hollow_network_has_the_shapes_of_a_real_one(name: str) -> None:
    hollow, real = build_hollow(model_config(name)), build_model(model_config(name))

    def shapes(network: Any) -> dict[str, Any]:
        tensors = [*network.named_parameters(), *network.named_buffers()]
        return {key: (tensor.shape, tensor.dtype) for key, tensor in tensors}

    assert shapes(hollow) == shapes(real)
    assert all(tensor.is_meta for tensor in [*hollow.parameters(), *hollow.buffers()])
    assert hollow.config == real.config


def test_only_hollow_networks_begin_without_values() -> None:
    build_hollow(SMALL)
    assert build_model(SMALL).blocks[0].attn.qkv.weight.std() > 0.01


def test_listing_every_model_does_not_import_the_compiler() -> None:
    """It takes longer than the counting."""
    program = (
        "import sys; from vitscope.cli.model_tables import list_rows; from vitscope import list_models; "
        "list_rows(list_models()); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], timeout=120, check=False).returncode == 0


# --- multiply-adds ----------------------------------------------------------------------------------------------


def macs_by_formula(cfg: ViTConfig) -> int:
    """N*C*p*q*d + sum over blocks of [4*T*d*(dh*h) + 2*T^2*(dh*h) + 2*T*d*m] + d*classes."""
    n, t, d = cfg.num_patches, cfg.num_tokens, cfg.embed_dim
    p, q = pair(cfg.patch_size)
    total = n * cfg.in_chans * p * q * d + d * cfg.num_classes * (2 if cfg.distilled else 1)
    for heads, neurons in zip(cfg.block_heads, cfg.block_mlp_dims, strict=True):
        inner = heads * cfg.dim_per_head
        total += 4 * t * d * inner + 2 * t**2 * inner + (3 if cfg.mlp == "swiglu" else 2) * t * d * neurons
    return total


FORMULA = {
    "small": SMALL,
    "base/16": model_config("vit_base_patch16_224"),
    "huge/14": model_config("vit_huge_patch14_224"),
    "no class token": updated(SMALL, class_token=False, pool="mean"),
    "registers": updated(SMALL, num_registers=4),
    "distilled": updated(SMALL, distilled=True),
    "heads per block": updated(SMALL, num_heads=(4, 1, 2), head_dim=8),
    "neurons per block": updated(SMALL, mlp_dim=(128, 8, 40)),
    "both per block": updated(SMALL, num_heads=(3, 1, 4), head_dim=8, mlp_dim=(16, 8, 40), num_registers=2),
    "non-square": updated(SMALL, img_size=(32, 48), patch_size=(8, 16), in_chans=1),
    "no head": updated(SMALL, num_classes=0),
    "rope": updated(SMALL, position="rope"),
    "relative": updated(SMALL, position="relative"),
    "post-norm": updated(SMALL, norm_order="post"),
    "swiglu": updated(SMALL, mlp="swiglu", mlp_dim=40),
    "dinov2 giant": model_config("vit_giant_patch14_reg4_dinov2"),
}


@pytest.mark.parametrize("cfg", FORMULA.values(), ids=FORMULA)
def test_macs_of_a_vit_follow_the_formula(cfg: ViTConfig) -> None:
    assert Account(cfg).macs == macs_by_formula(cfg)


def test_parameters_of_a_pruned_block_follow_the_formula() -> None:
    cfg = updated(SMALL, num_heads=(3, 1, 4), head_dim=8, mlp_dim=(16, 8, 40))
    d = cfg.embed_dim
    parts = Account(cfg).parts
    for block, (heads, m) in enumerate(zip(cfg.block_heads, cfg.block_mlp_dims, strict=True)):
        inner = heads * cfg.dim_per_head
        wanted = 4 * d + 4 * d * inner + 3 * inner + d + 2 * d * m + m + d
        assert sum(part.parameters for part in parts if part.name.startswith(f"blocks.{block}.")) == wanted


def test_attention_is_counted_though_it_is_fused() -> None:
    cfg = model_config("vit_base_patch16_224")
    attention = [part for part in Account(cfg).parts if part.name.endswith("attn (q k^T, weights v)")]
    assert len(attention) == 12
    assert {part.macs for part in attention} == {2 * 197**2 * 768}


def conv(c_in: int, c_out: int, kernel: int, side: int) -> int:
    return c_in * c_out * kernel**2 * side**2


def test_macs_of_resnet50() -> None:
    """The 4.09 G everybody quotes (torchvision's table), and layer by layer."""
    total = conv(3, 64, 7, 112) + 2048 * 1000
    c_in = 64
    for stage, (depth, width, side) in enumerate(((3, 64, 56), (4, 128, 28), (6, 256, 14), (3, 512, 7))):
        before = side * (2 if stage else 1)  # the 3x3 strides, the first 1x1 still sees the larger picture
        for block in range(depth):
            total += conv(c_in, width, 1, before if block == 0 else side)
            total += conv(width, width, 3, side) + conv(width, 4 * width, 1, side)
            total += conv(c_in, 4 * width, 1, side) if block == 0 else 0
            c_in = 4 * width
    macs = Account(model_config("resnet50")).macs
    assert macs == total
    assert 4.08e9 < macs < 4.10e9


def test_macs_of_swin_tiny() -> None:
    """4.5 G in the paper, 4.49 G in torchvision's table."""
    macs = Account(model_config("swin_tiny_patch4_window7_224")).macs
    total = 56 * 56 * 48 * 96 + 768 * 1000
    for stage, depth in enumerate((2, 2, 6, 2)):
        tokens, d = (56 // 2**stage) ** 2, 96 * 2**stage
        total += depth * (12 * tokens * d**2 + 2 * tokens * 49 * d)
        total += tokens * (2 * d) * d if stage else 0  # merging: 4 * d/2 numbers to d
    assert macs == total
    assert 4.48e9 < macs < 4.52e9


@pytest.mark.parametrize(
    "cfg",
    [LSTMConfig(), LSTMConfig(depth=1, embed_dim=16, img_size=(5, 7), in_chans=2), LSTMConfig(bidirectional=True)],
    ids=["default", "one layer", "both ways"],
)
def test_macs_of_an_lstm(cfg: LSTMConfig) -> None:
    """Every row: four gates, each a product of what comes in and of the state before."""
    rows, columns = pair(cfg.img_size)
    ways, d = (2 if cfg.bidirectional else 1), cfg.embed_dim
    widths = [cfg.in_chans * columns, *[ways * d] * (cfg.depth - 1)]
    total = sum(rows * ways * 4 * d * (width + d) for width in widths) + ways * d * cfg.num_classes
    assert Account(cfg).macs == total


def test_macs_of_mae_count_the_visible_patches_only() -> None:
    encoder = updated(SMALL, num_classes=0, position="sincos")
    cfg = MAEConfig(encoder=encoder, decoder_embed_dim=16, decoder_depth=2, decoder_num_heads=2)
    n, d, e = encoder.num_patches, encoder.embed_dim, 16
    seen, all_tokens = n // 4 + 1, n + 1
    total = n * 192 * d + 3 * (12 * seen * d**2 + 2 * seen**2 * d)
    total += seen * d * e + 2 * (12 * all_tokens * e**2 + 2 * all_tokens**2 * e) + n * e * 192
    assert Account(cfg).macs == total


# --- memory -----------------------------------------------------------------------------------------------------


def really_kept(config: Any, batch: int, *, bf16: bool = False) -> int:
    """Bytes autograd keeps for the backward pass of a real step on the CPU, weights and buffers not counted."""
    torch.manual_seed(0)
    model = build_model(config).train()
    own = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own and storage.nbytes():
            kept[storage.data_ptr()] = storage
        return tensor

    images = torch.randn(batch, *image_shape(config))
    with (
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
        torch.autocast("cpu", torch.bfloat16, enabled=bf16),
    ):
        F.cross_entropy(model(images).float(), torch.zeros(batch, dtype=torch.long))
    return sum(storage.nbytes() for storage in kept.values())


MEMORY = {
    "vit": SMALL,
    "dropout": updated(SMALL, drop_rate=0.1, head_drop_rate=0.1),
    "drop path": updated(SMALL, drop_path_rate=0.2),
    "options": updated(SMALL, num_registers=2, qk_norm=True, layer_scale=0.1, mlp="swiglu", mlp_dim=40, act="silu"),
    "relative": updated(SMALL, position="relative"),
    "rope, mean": updated(SMALL, position="rope", pool="mean", class_token=False),
    "sincos, attention pool": updated(SMALL, position="sincos", pool="attention"),
    "heads per block": updated(SMALL, num_heads=(3, 1, 4), head_dim=8, mlp_dim=(16, 8, 40)),
    "swin": SwinConfig(img_size=32, embed_dim=16, depths=(2, 2), num_heads=(2, 2), window_size=4, num_classes=10),
    "resnet": ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=10),
    "cnn": CNNConfig(img_size=16, widths=(4, 8)),
}


@pytest.mark.parametrize("cfg", MEMORY.values(), ids=MEMORY)
def test_activations_are_what_autograd_keeps(cfg: Any) -> None:
    estimate = training_memory(on_meta(cfg), image_shape(cfg), batch=4)
    assert estimate.activations == really_kept(cfg, 4) > 0


def test_bf16_is_what_autograd_keeps_under_autocast() -> None:
    estimate = training_memory(on_meta(SMALL), image_shape(SMALL), batch=4)
    assert estimate.activations_bf16 + estimate.weights_bf16 == really_kept(SMALL, 4, bf16=True)
    assert 0 < estimate.activations_bf16 < estimate.activations
    matrices = sum(p.numel() for p in build_model(SMALL).parameters() if p.ndim > 1) * 2
    assert 0.5 * matrices < estimate.weights_bf16 < 1.5 * matrices


def test_activations_grow_with_the_batch_and_nothing_else_does() -> None:
    network, shape = on_meta(SMALL), image_shape(SMALL)
    one, two, four = (training_memory(network, shape, batch) for batch in (8, 16, 32))
    assert two.activations - one.activations == (four.activations - two.activations) / 2
    fixed = 2 * one.activations - two.activations  # what an empty batch would keep: numbers of a loss
    assert abs(fixed) <= 64
    assert two.activations_bf16 == 2 * one.activations_bf16
    assert four.weights_bf16 == one.weights_bf16
    for memory in (one, two, four):
        assert memory.weights == memory.gradients == 4 * count_parameters(SMALL)
        assert memory.optimiser == 2 * memory.weights
        assert memory.total == 4 * memory.weights + memory.activations
        assert memory.total_bf16 == 4 * memory.weights + memory.weights_bf16 + memory.activations_bf16


@pytest.mark.parametrize("name", ["vit_tiny", "mae_vit_base_patch16", "mnist_lstm", "vit_small_patch14_dinov2"])
def test_every_kind_of_output_has_a_memory(name: str) -> None:
    account = Account(model_config(name), batch=2)
    assert account.memory.activations > account.memory.activations_bf16 > 0


# --- the model is only borrowed ---------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
def test_the_model_handed_in_is_left_as_it_was(training: bool) -> None:
    network = on_meta(ResNetConfig(img_size=32, depths=(1, 1), stem_width=8, num_classes=10)).train(training)
    network.bn1.train(not training)  # a frozen norm in a model that trains
    modes = {name: module.training for name, module in network.named_modules()}
    tensors = {name: id(tensor) for name, tensor in [*network.named_parameters(), *network.named_buffers()]}

    count_macs(network, (3, 32, 32))
    training_memory(network, (3, 32, 32), batch=2)

    assert {name: module.training for name, module in network.named_modules()} == modes
    after = dict([*network.named_parameters(), *network.named_buffers()])
    assert {name: id(tensor) for name, tensor in after.items()} == tensors
    assert all(tensor.is_meta for tensor in after.values())
    assert not any(module._forward_hooks for module in network.modules())


def test_a_failure_leaves_the_mode_too() -> None:
    network = on_meta(SMALL).train()
    with pytest.raises(ValueError, match="expected"):
        count_macs(network, (3, 31, 31))
    with pytest.raises(ValueError, match="expected"):
        training_memory(network, (1, 32, 32), batch=2)
    assert all(module.training for module in network.modules())

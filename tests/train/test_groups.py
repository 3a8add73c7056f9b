"""Which parameters are frozen, decay, learn slower, or are Muon's: by name, and as timm has it."""

from __future__ import annotations

import re
from typing import Any

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay  # pyright: ignore[reportPrivateImportUsage]
from torch import nn

from contracts.twins import twin
from vitscope.core.errors import ConfigError
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.models.variants import model_config
from vitscope.train.config import OptimConfig
from vitscope.train.optim.groups import Group, freeze, layer_numbers, parameter_groups

FAMILIES = [
    "vit_tiny",
    "deit_tiny_distilled_patch16_224",
    "vit_small_patch14_reg4_dinov2",
    "swin_tiny_patch4_window7_224",
    "resnet18",
    "resnet50",
    "mnist_cnn",
    "mnist_lstm",
    "mae_vit_base_patch16",
    "simmim_vit_base_patch16_224",
]


def small(name: str) -> VisionModel:
    return build_model(twin(model_config(name)))


def odd_vit(**settings: Any) -> VisionModel:
    """Every option that brings parameters of its own."""
    wished = {"img_size": 16, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2, "num_classes": 5}
    return build_model(ViTConfig(**{**wished, **settings}))


def settings(name: Any = "adamw", **more: Any) -> OptimConfig:
    return OptimConfig(name=name, **more)


def by_name(groups: list[Group]) -> dict[str, Group]:
    return {name: group for group in groups for name in group.names}


def on_meta(name: str) -> VisionModel:
    with torch.device("meta"):
        return build_model(model_config(name))


@pytest.mark.parametrize("name", FAMILIES)
@pytest.mark.parametrize("layer_decay", [None, 0.7])
def test_every_parameter_is_in_one_group(name: str, layer_decay: float | None) -> None:
    model = small(name)
    groups = parameter_groups(model, settings(layer_decay=layer_decay))
    names = [name for group in groups for name in group.names]
    assert sorted(names) == sorted(name for name, _ in model.named_parameters())
    parameters = dict(model.named_parameters())
    assert all(
        parameter is parameters[name]
        for group in groups
        for name, parameter in zip(group.names, group.params, strict=True)
    )
    alike = [(group.kind, group.decays, group.lr_scale) for group in groups]
    assert len(alike) == len(set(alike))


@pytest.mark.parametrize("name", FAMILIES)
def test_only_weights_of_linear_layers_and_filters_decay(name: str) -> None:
    model = small(name)
    groups = by_name(parameter_groups(model, settings()))
    weights = {
        f"{path}.{leaf}"
        for path, module in model.named_modules()
        for leaf, _ in module.named_parameters(recurse=False)
        if leaf.startswith("weight") and not isinstance(module, nn.LayerNorm | nn.BatchNorm2d)
    }
    assert {name for name, group in groups.items() if group.decays} == weights
    assert len(weights) > 2


def test_tables_scales_and_all_norms_of_a_vit_do_not_decay() -> None:
    model = odd_vit(position="relative", layer_scale=1e-5, qk_norm=True, pool="attention")
    free = {name for name, group in by_name(parameter_groups(model, settings())).items() if not group.decays}
    for part in ("ls1.gamma", "attn.q_norm.weight", "norm2.weight", "attn_pool.latent", "attn_pool.norm.weight"):
        assert any(name.endswith(part) for name in free), part
    assert any("table" in name for name in free)
    assert "blocks.0.attn.qkv.weight" not in free
    assert "attn_pool.kv.weight" not in free


def test_a_norm_is_known_by_its_class() -> None:
    class ImageNorm(nn.Module):
        """One of a user's own, with a parameter of more than one axis."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4, 1, 1))

    class Renamed(nn.GroupNorm):
        pass

    model = odd_vit()
    model.add_module("a", ImageNorm())
    model.add_module("b", Renamed(1, 4))
    model.add_module("c", nn.Linear(4, 4))
    groups = by_name(parameter_groups(model, settings()))
    assert [groups[name].decays for name in ("a.weight", "b.weight", "c.weight", "c.bias")] == [0, 0, 1, 0]


@pytest.mark.parametrize(
    ("name", "peer"),
    [
        ("vit_tiny_patch16_224", "vit_tiny_patch16_224"),
        ("deit_tiny_distilled_patch16_224", "deit_tiny_distilled_patch16_224"),
        ("swin_tiny_patch4_window7_224", "swin_tiny_patch4_window7_224"),
        ("resnet18", "resnet18"),
        ("resnet50", "resnet50"),
    ],
)
def test_layer_decay_agrees_with_timm(name: str, peer: str) -> None:
    model = on_meta(name)
    with torch.device("meta"):
        theirs: Any = timm.create_model(peer)
    names = {id(parameter): name for name, parameter in theirs.named_parameters()}
    exempt = theirs.no_weight_decay() if hasattr(theirs, "no_weight_decay") else ()
    expected = {
        names[id(parameter)]: (group["lr_scale"], group["weight_decay"] > 0)
        for group in param_groups_layer_decay(theirs, weight_decay=0.05, no_weight_decay_list=exempt, layer_decay=0.75)
        for parameter in group["params"]
    }
    groups = by_name(parameter_groups(model, settings(layer_decay=0.75)))
    assert {name: (group.lr_scale, group.decays) for name, group in groups.items()} == expected
    assert len({scale for scale, _ in expected.values()}) > 8


@pytest.mark.parametrize(
    ("name", "lowest", "second", "head"),
    [
        ("vit_tiny", "patch_embed.proj.weight", "blocks.0.attn.qkv.weight", "head.weight"),
        ("mnist_cnn", "stages.0.conv1.weight", "stages.1.conv1.weight", "head.weight"),
        ("mnist_lstm", "lstm.weight_ih_l0", "lstm.bias_hh_l1", "head.weight"),
        ("resnet18", "conv1.weight", "layer1.0.conv1.weight", "fc.weight"),
        ("mae_vit_base_patch16", "encoder.cls_token", "encoder.blocks.0.mlp.fc1.weight", "decoder_pred.weight"),
    ],
)
def test_layers_count_from_the_pictures_to_the_head(name: str, lowest: str, second: str, head: str) -> None:
    model = on_meta(name)
    numbers = layer_numbers(model)
    assert (numbers[lowest], numbers[second]) == (0, 1)
    assert numbers[head] == max(numbers.values()) == len(set(numbers.values())) - 1
    groups = by_name(parameter_groups(model, settings(layer_decay=0.5)))
    assert groups[head].lr_scale == 1.0
    assert groups[lowest].lr_scale == 0.5 ** numbers[head]
    assert groups[second].lr_scale == 2 * groups[lowest].lr_scale


def test_without_layer_decay_all_learn_alike() -> None:
    groups = parameter_groups(small("vit_tiny"), settings())
    assert [group.lr_scale for group in groups] == [1.0, 1.0]
    assert {group.kind for group in groups} == {"rest"}


@pytest.mark.parametrize("name", FAMILIES)
def test_muon_has_the_linear_layers_of_the_blocks(name: str) -> None:
    model = on_meta(name)
    groups = by_name(parameter_groups(model, settings("muon")))
    matrices = {name for name, group in groups.items() if group.kind == "matrix"}
    wanted = re.compile(
        r"(encoder\.|layers\.\d+\.)?(decoder_)?blocks\.\d+\.(attn\.(qkv|proj)|mlp\.fc\d)\.weight"
        r"|layers\.\d+\.downsample\.reduction\.weight"
    )
    assert matrices == {name for name in groups if wanted.fullmatch(name)}
    assert bool(matrices) == any(word in name for word in ("vit", "deit", "swin"))
    parameters = dict(model.named_parameters())
    assert all(parameters[name].ndim == 2 for name in matrices)


def test_a_head_with_a_number_in_its_name_is_not_muons(monkeypatch: pytest.MonkeyPatch) -> None:
    model = odd_vit()
    model.add_module("tail", nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4)))
    monkeypatch.setattr(model, "classifiers", lambda: ["tail.1"])
    groups = by_name(parameter_groups(model, settings("muon")))
    assert [groups[name].kind for name in ("tail.0.weight", "tail.1.weight")] == ["matrix", "rest"]


def test_frozen_parameters_are_in_no_group() -> None:
    model = small("vit_tiny")
    frozen = freeze(model, ("blocks.0.", "pos_embed"))
    assert set(frozen) == {name for name, _ in model.named_parameters() if name.startswith(("blocks.0.", "pos_embed"))}
    assert frozen == [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
    groups = by_name(parameter_groups(model, settings()))
    assert set(groups) == {name for name, _ in model.named_parameters()} - set(frozen)
    assert "blocks.1.attn.qkv.weight" in groups


@pytest.mark.parametrize(
    ("name", "left"),
    [
        ("vit_tiny", {"head.weight", "head.bias"}),
        ("deit_tiny_distilled_patch16_224", {"head.weight", "head.bias", "head_dist.weight", "head_dist.bias"}),
        ("swin_tiny_patch4_window7_224", {"head.fc.weight", "head.fc.bias"}),
        ("resnet18", {"fc.weight", "fc.bias"}),
    ],
)
def test_a_frozen_backbone_leaves_the_heads(name: str, left: set[str]) -> None:
    model = small(name)
    freeze(model, ("backbone",))
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == left


def test_a_wish_means_whole_parts_of_names() -> None:
    model = odd_vit(depth=12)
    frozen = freeze(model, ("blocks.1",))
    assert all(name.startswith("blocks.1.") for name in frozen)
    assert len(frozen) == sum(name.startswith("blocks.1.") for name, _ in model.named_parameters())
    assert freeze(small("resnet18"), ("layer1.0.bn",)) == [
        f"layer1.0.bn{i}.{leaf}" for i in (1, 2) for leaf in ("weight", "bias")
    ]


def test_no_wish_freezes_nothing() -> None:
    model = small("vit_tiny")
    assert freeze(model, ()) == []
    assert all(parameter.requires_grad for parameter in model.parameters())


@pytest.mark.parametrize(
    ("wish", "meant"),
    [
        ("block.0", "blocks.0"),
        ("patch_embd", "patch_embed"),
        ("backbon", "backbone"),
        ("xyzzy", "the names begin with"),
    ],
)
def test_an_unknown_wish_is_refused(wish: str, meant: str) -> None:
    model = small("vit_tiny")
    with pytest.raises(ConfigError, match=f"optim.freeze: .*{wish}") as caught:
        freeze(model, ("pos_embed", wish))
    assert meant in (caught.value.fix or "")
    assert all(parameter.requires_grad for parameter in model.parameters())  # the good wish neither


@pytest.mark.parametrize(
    ("name", "wishes"), [("vit_tiny", ("backbone", "head")), ("mae_vit_base_patch16", ("backbone",))]
)
def test_something_must_be_left_to_train(name: str, wishes: tuple[str, ...]) -> None:
    model = small(name)
    with pytest.raises(ConfigError, match="something left to train"):
        freeze(model, wishes)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_model_without_anything_to_train_has_no_groups() -> None:
    model = small("vit_tiny").requires_grad_(False)
    with pytest.raises(ConfigError, match="no parameter left to train"):
        parameter_groups(model, settings())

"""Faults in what the model computes, begins with, or holds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fault import Faults
from script import Script
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.block import Block
from vitscope.models.layers.position import sincos_2d
from vitscope.models.vit import ViT

FAULTS = Faults("model")


class MergedAsItLies(Attention):
    """(B, h, N, d) reshaped to (B, N, h d): the shape is right, every token gets pieces of others."""

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q, k, v = self._heads(self.qkv(x), rope)
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.proj_drop(self.proj(mixed.reshape(x.shape[0], x.shape[1], -1)))


class Unscaled(Attention):
    """softmax(q k^T) v."""

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q, k, v = self._heads(self.qkv(x), rope)
        mixed = (q @ k.transpose(-2, -1)).softmax(-1) @ v
        return self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))


class OverQueries(Attention):
    """softmax along the axis of the queries."""

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        q, k, v = self._heads(self.qkv(x), rope)
        mixed = (q @ k.transpose(-2, -1) * q.shape[-1] ** -0.5).softmax(-2) @ v
        return self.proj_drop(self.proj(mixed.transpose(1, 2).flatten(2)))


class Unadded(Block):
    """What a branch says, without what it was said about."""

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        if self.norm_order == "pre":
            return self.mlp(self.norm2(self.attn(self.norm1(x), rope)))
        return self.norm2(self.mlp(self.norm1(self.attn(x, rope))))


class SlicedTable(ViT):
    """Takes as many rows of its table as there are tokens, whatever the table was made for."""

    def place(self, patches: Tensor) -> Tensor:
        tokens = self._behind_prefix(patches)
        return self.pos_drop(tokens + self.pos_embed[:, : tokens.shape[1]])  # pyright: ignore[reportOptionalSubscript]


def _becomes(model: nn.Module, kinds: dict[type[nn.Module], type[nn.Module]]) -> nn.Module:
    """The same parts with another `forward`."""
    for module in model.modules():
        if type(module) in kinds:
            module.__class__ = kinds[type(module)]
    return model


def _each_weight(model: nn.Module, change: Callable[[Tensor], object]) -> nn.Module:
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear | nn.Conv2d | nn.MultiheadAttention):
                for parameter in module.parameters(recurse=False):
                    change(parameter)
    return model


def head_of(model: nn.Module) -> nn.Module:
    """The last linear layer, or convolution where there is none."""
    layers = [module for module in model.modules() if isinstance(module, nn.Linear | nn.Conv2d)]
    return ([one for one in layers if isinstance(one, nn.Linear)] or layers)[-1]


@FAULTS("num_classes_wrong", "labels_out_of_range")
def classes_too_few(script: Script) -> None:
    """the head has 8 outputs for 10 classes"""
    script.model_changes["num_classes"] = 8


@FAULTS("num_classes_wrong")
def classes_too_many(script: Script) -> None:
    """ImageNet's 1000 outputs left for 10 classes"""
    script.model_changes["num_classes"] = 1000


@FAULTS("patch_too_coarse", needs=("vit", "px32"))
def patch_16_on_32(script: Script) -> None:
    """patch 16 kept from ImageNet for 32-pixel pictures: 4 tokens"""
    script.model_changes["patch_size"] = 16


@FAULTS("softmax_before_loss", never=("fp16",))
def softmax_before_loss(script: Script) -> None:
    """the model ends in softmax and the loss is cross-entropy, which has its own"""
    script.surgery.append(lambda model: Ending(model, nn.Softmax(-1)))


class Ending(nn.Module):
    def __init__(self, model: nn.Module, end: nn.Module) -> None:
        super().__init__()
        self.model, self.end = model, end

    def forward(self, images: Tensor) -> Tensor:
        output = self.model(images)
        return self.end(output if isinstance(output, Tensor) else output.logits)


@FAULTS("heads_merged_wrongly", needs=("ours",))
def heads_merged_wrongly(script: Script) -> None:
    """heads merged by reshape without transpose(1, 2)"""
    script.surgery.append(partial(_becomes, kinds={Attention: MergedAsItLies}))


@FAULTS("attention_scale_missing", needs=("ours",))
def attention_unscaled(script: Script) -> None:
    """q k^T is not divided by sqrt(head_dim)"""
    script.surgery.append(partial(_becomes, kinds={Attention: Unscaled}))


@FAULTS("softmax_wrong_axis", needs=("ours",), is_listed=False)
def softmax_over_queries(script: Script) -> None:
    """softmax(dim=-2) in a hand-written attention"""
    script.surgery.append(partial(_becomes, kinds={Attention: OverQueries}))


@FAULTS("residual_missing", needs=("ours",))
def residual_removed(script: Script) -> None:
    """x = attn(norm(x)) instead of x + attn(norm(x)), and so for the MLP"""
    # A ResNet-20 without them is a plain network, which trains to about 90 % on CIFAR-10 (He et al. 2015, figure 6).
    script.surgery.append(partial(_becomes, kinds={Block: Unadded}))


@FAULTS("normalisation_missing", needs=("ours|timm",))
def layernorm_removed(script: Script) -> None:
    """every LayerNorm is nn.Identity()"""

    def remove(model: nn.Module) -> nn.Module:
        for module in list(model.modules()):
            for name, child in module.named_children():
                if isinstance(child, nn.LayerNorm):
                    setattr(module, name, nn.Identity())
        return model

    script.surgery.append(remove)


@FAULTS("no_position_information", needs=("ours|timm|encoder",))
def no_positions(script: Script) -> None:
    """the line that adds positions was forgotten"""
    script.model_changes["position"] = "none"


@FAULTS("head_dim_too_small", needs=("ours|timm|encoder",))
def head_dim_8(script: Script) -> None:
    """as many heads as leave 8 numbers each"""
    widths = {module.in_features for module in script.make_model().modules() if isinstance(module, nn.Linear)}
    script.model_changes["num_heads"] = min(widths) // 8


@FAULTS("init_too_large")
def init_x50(script: Script) -> None:
    """weights begin 50 times too large (std 1 for 0.02)"""
    script.surgery.append(partial(_each_weight, change=lambda weight: weight.mul_(50)))


@FAULTS("init_zero", "output_ignores_input", "no_gradient_for")
def init_zero(script: Script) -> None:
    """every weight and bias begins at zero"""
    script.surgery.append(partial(_each_weight, change=lambda weight: weight.zero_()))


@FAULTS("dropout_too_high", needs=("dropout",))
def dropout_90(script: Script) -> None:
    """dropout 0.9"""

    def set_rate(model: nn.Module) -> nn.Module:
        for module in model.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.9
        return model

    script.surgery.append(set_rate)


@FAULTS("position_table_wrong_size", needs=("ours",))
def table_of_another_size(script: Script) -> None:
    """a frozen table of 14 x 14 positions, of which the first rows are taken"""

    def slice_table(model: nn.Module) -> nn.Module:
        if not isinstance(model, ViT):
            raise TypeError("only our ViT has this table")
        model.__class__ = SlicedTable
        rows = model.config.num_prefix_tokens
        table = torch.cat([torch.zeros(rows, model.num_features), sincos_2d((14, 14), model.num_features)])
        model.pos_embed = nn.Parameter(table[None], requires_grad=False)
        return model

    script.model_changes["position"] = "learned"
    script.surgery.append(slice_table)


@FAULTS("batch_mixes_pictures", needs=("encoder",), is_listed=False)
def batch_first_forgotten(script: Script) -> None:
    """nn.TransformerEncoderLayer without batch_first=True: pictures attend to each other"""
    script.model_changes["batch_first"] = False


@FAULTS("softmax_before_loss", never=("fp16",), is_listed=False)
def sigmoid_before_loss(script: Script) -> None:
    """the model ends in sigmoid and the loss is cross-entropy"""
    script.surgery.append(lambda model: Ending(model, nn.Sigmoid()))


@FAULTS("relu_before_loss", is_listed=False)
def relu_before_loss(script: Script) -> None:
    """an activation behind the last layer too"""
    script.surgery.append(lambda model: Ending(model, nn.ReLU()))


@FAULTS("output_ignores_input", "no_gradient_for", needs=("cls",), is_listed=False)
def class_token_too_early(script: Script) -> None:
    """the head reads the class token from before the blocks"""

    class TooEarly(ViT):
        def encode(self, tokens: Tensor) -> Tensor:
            return self.norm(tokens)

    script.surgery.append(partial(_becomes, kinds={ViT: TooEarly}))


@FAULTS("no_gradient_for", needs=("ours",), is_listed=False)
def features_detached(script: Script) -> None:
    """the head reads features.detach(): nothing below it learns"""

    class Detached(ViT):
        def forward_features(self, images: Tensor) -> Tensor:
            return super().forward_features(images).detach()

    script.surgery.append(partial(_becomes, kinds={ViT: Detached}))

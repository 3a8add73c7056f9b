"""How weights begin, all of it. One function per scheme; the head has its own rule.

vit      truncated normal 0.02 (ViT, DeiT)
jax      LeCun-style patch filter, Xavier linears, as in the original JAX code (arXiv 2010.11929)
xavier   Xavier everywhere, the patch filter seen as a linear layer (MAE, arXiv 2111.06377)
mimetic  attention begins as trained attention looks: q k^T near I, v proj near -I (arXiv 2305.09828)
kaiming  for ReLU convolutions (arXiv 1502.01852)

Recurrent layers have one way to begin (`init_recurrent`), and no name.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from vitscope.core.threads import using_threads
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.patch import PatchFilter
from vitscope.models.layers.position import sincos_2d
from vitscope.models.layers.scale import LayerScale

TOKEN_STD = 0.02


def init_head(head: nn.Linear, scale: float = 1.0) -> None:
    """Truncated normal with std min(0.02, 0.25 / sqrt(width)): logits of a normalised feature stay below 0.25, so the
    loss begins within 5 % of ln(classes) whatever the width."""
    nn.init.trunc_normal_(head.weight, std=scale * min(0.02, 0.25 / math.sqrt(head.in_features)))
    nn.init.zeros_(head.bias)


def init_transformer(model: nn.Module, scheme: str) -> None:
    """Initialise every weight below `model` by the named scheme, except heads (see `init_head`)."""
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            _init_linear(module, scheme, in_mlp=".mlp." in name)
        elif isinstance(module, PatchFilter | nn.Conv2d):
            _init_filter(module, scheme)
        elif isinstance(module, nn.LayerNorm):
            module.reset_parameters()
        elif isinstance(module, LayerScale):
            nn.init.constant_(module.gamma, module.initial)
    for name, parameter in model.named_parameters():
        if is_token_or_table(name):
            nn.init.trunc_normal_(parameter, std=TOKEN_STD)
    if scheme == "mimetic":
        # By one thread: several split such small matrices differently, so that a seed's weights would depend on the
        # machine, and where its cores are busy they wait for each other, minutes instead of seconds.
        with using_threads(1):
            for module in model.modules():
                if isinstance(module, Attention):
                    init_mimetic_attention(module)


def init_mimetic_positions(table: Tensor, grid_size: tuple[int, int]) -> None:
    """Mimetic attention finds neighbours through sin-cos positions; the learned table begins there."""
    with torch.no_grad():
        patches = grid_size[0] * grid_size[1]
        table[:, table.shape[1] - patches :] = sincos_2d(grid_size, table.shape[2]).to(table)


@torch.no_grad()
def init_mimetic_attention(attn: Attention) -> None:
    """W_v W_proj = 0.4 Z - 0.4 I over all heads and, per head, W_q W_k^T = 0.7 Z + 0.7 I, Z ~ N(0, 1/D).

    Each product is split by its singular values, keeping as many as the head has numbers. That costs one
    decomposition of a D x D matrix per head: nothing for D = 192, seconds a block for D = 768 on one core.
    """
    inner, dim = attn.num_heads * attn.head_dim, attn.qkv.in_features
    eye = torch.eye(dim, device=attn.qkv.weight.device, dtype=torch.float32)

    def noise() -> Tensor:
        return torch.randn_like(eye) / math.sqrt(dim)

    def halves(product: Tensor, rank: int) -> tuple[Tensor, Tensor]:
        u, s, vh = torch.linalg.svd(product)
        root = s[:rank].sqrt()
        return u[:, :rank] * root, vh[:rank] * root[:, None]

    q, k, v = attn.qkv.weight.view(3, attn.num_heads, attn.head_dim, dim).unbind(0)
    for head in range(attn.num_heads):
        left, right = halves(0.7 * noise() + 0.7 * eye, attn.head_dim)
        rank = right.shape[0]  # the width, where a head has more numbers than that
        q[head, :rank], k[head, :rank] = left.T, right
    left, right = halves(0.4 * noise() - 0.4 * eye, min(inner, dim))
    v.reshape(inner, dim)[: left.shape[1]].copy_(left.T)
    attn.proj.weight[:, : right.shape[0]].copy_(right.T)


def init_convolutional(model: nn.Module) -> None:
    """Kaiming for convolutions that feed ReLUs, ones and zeros for BatchNorm."""
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.BatchNorm2d):
            module.reset_parameters()
        elif isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
            nn.init.zeros_(module.bias)


@torch.no_grad()
def init_recurrent(lstm: nn.LSTM) -> None:
    """Gate by gate: Xavier from the input, orthogonal from the last state (arXiv 1312.6120), and a forget
    gate that begins open with bias 1 (Jozefowicz et al. 2015), so that the last row still knows the first."""
    for name, parameter in lstm.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
            if name.startswith("bias_ih"):  # bias_hh is added to it: one of the two carries the 1
                parameter.chunk(4)[1].fill_(1.0)
            continue
        for gate in parameter.chunk(4):  # input, forget, cell, output
            if name.startswith("weight_hh"):
                nn.init.orthogonal_(gate)
            else:
                nn.init.xavier_uniform_(gate)


def is_token_or_table(name: str) -> bool:
    """Learned tokens and position tables, by their names: drawn small, and never decayed."""
    leaf = name.rpartition(".")[2]
    return leaf.endswith(("_token", "pos_embed", "latent")) or leaf in ("table", "relative_position_bias_table")


def _init_linear(layer: nn.Linear, scheme: str, *, in_mlp: bool) -> None:
    if scheme in ("vit", "mimetic"):
        nn.init.trunc_normal_(layer.weight, std=0.02)
    else:
        nn.init.xavier_uniform_(layer.weight)
    if layer.bias is not None:
        if scheme == "jax" and in_mlp:
            nn.init.normal_(layer.bias, std=1e-6)
        else:
            nn.init.zeros_(layer.bias)


def _init_filter(conv: PatchFilter | nn.Conv2d, scheme: str) -> None:
    fan_in = conv.weight[0].numel()
    if scheme == "jax":
        # A normal cut at two sigmas has 0.8796 of its spread left; dividing restores LeCun's 1/fan_in.
        # (torch's own cut is at the number 2, not at two sigmas.)
        std = math.sqrt(1 / fan_in) / 0.87962566
        nn.init.trunc_normal_(conv.weight, std=std, a=-2 * std, b=2 * std)
    elif scheme == "xavier":
        bound = math.sqrt(6 / (fan_in + conv.weight.shape[0]))
        nn.init.uniform_(conv.weight, -bound, bound)
    else:
        nn.init.trunc_normal_(conv.weight, std=0.02)
    if conv.bias is not None:
        nn.init.zeros_(conv.bias)

"""Attention pooling: a learned query asks all tokens (Zhai et al. 2022, arXiv 2106.04560).

B batch, N tokens, D width.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.models.layers.mlp import Mlp


class AttentionPool(nn.Module):
    """(B, N, D) -> (B, D): cross-attention from one latent token, then a residual MLP."""

    def __init__(self, dim: int, num_heads: int, neurons: int, *, act: str = "gelu", norm_eps: float = 1e-6) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.latent = nn.Parameter(torch.zeros(1, 1, dim))
        self.q = nn.Linear(dim, dim)
        self.kv = nn.Linear(dim, 2 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm = nn.LayerNorm(dim, eps=norm_eps)
        self.mlp = Mlp(dim, neurons, act=act)

    def forward(self, tokens: Tensor) -> Tensor:
        b, n, dim = tokens.shape
        head_dim = dim // self.num_heads
        q = self.q(self.latent.expand(b, -1, -1)).reshape(b, 1, self.num_heads, head_dim).transpose(1, 2)
        k, v = self.kv(tokens).reshape(b, n, 2, self.num_heads, head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        x = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, 1, dim)
        x = self.proj(x)
        return (x + self.mlp(self.norm(x)))[:, 0]

"""Multi-head self-attention (Vaswani et al. 2017, arXiv 1706.03762), fused by default.

B batch, N tokens, D width, h heads, d numbers per head.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from vitscope.models.layers.position import RelativeBias, rotate
from vitscope.models.layers.short_attention import is_short, short_attention


class Attention(nn.Module):
    """softmax(q k^T / sqrt(d)) v for every head, then a projection back to the width."""

    def __init__(
        self,
        dim: int,
        num_heads: int,
        head_dim: int,
        *,
        qkv_bias: bool = True,
        qk_norm: bool = False,
        norm_eps: float = 1e-6,
        attn_drop: float = 0.0,
        proj_drop: float = 0.0,
        relative: RelativeBias | None = None,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.scale = head_dim**-0.5
        self.attn_drop = attn_drop
        self.qkv = nn.Linear(dim, 3 * num_heads * head_dim, bias=qkv_bias)
        self.q_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.k_norm = nn.LayerNorm(head_dim, eps=norm_eps) if qk_norm else nn.Identity()
        self.relative = relative
        self.proj = nn.Linear(num_heads * head_dim, dim)
        self.proj_drop = nn.Dropout(proj_drop)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        return self.proj_drop(self.proj(self.mix(self.qkv(x), rope)))

    def mix(self, qkv: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """What attention gives of all q, all k and all v: (B, N, 3 h d) -> (B, N, h d)."""
        drop = self.attn_drop if self.training else 0.0
        plain = drop == 0.0 and self.relative is None and rope is None and isinstance(self.q_norm, nn.Identity)
        if plain and is_short(qkv, self.num_heads):
            return short_attention(qkv, self.num_heads)
        q, k, v = self._heads(qkv, rope)
        mixed = F.scaled_dot_product_attention(q, k, v, attn_mask=self._bias(q), dropout_p=drop)
        return mixed.transpose(1, 2).flatten(2)

    def weights(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The true attention weights (B, h, N, N), by the plain formula. Fused kernels never show them.

        Scores and softmax are in float32 (float64 for a float64 model), as inside the fused kernels.
        """
        q, k, _ = self._heads(self.qkv(x), rope)
        with torch.autocast(q.device.type, enabled=False):
            exact = torch.promote_types(q.dtype, torch.float32)
            scores = (q.to(exact) * self.scale) @ k.to(exact).transpose(-2, -1)
            bias = self._bias(scores)
            return (scores if bias is None else scores + bias).softmax(dim=-1)

    def _heads(self, qkv: Tensor, rope: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor, Tensor]:
        b, n, _ = qkv.shape
        q, k, v = qkv.reshape(b, n, 3, self.num_heads, self.head_dim).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        if rope is not None:
            q, k = rotate(q, *rope), rotate(k, *rope)
        return q, k, v

    def _bias(self, like: Tensor) -> Tensor | None:
        return None if self.relative is None else self.relative().to(like.dtype)

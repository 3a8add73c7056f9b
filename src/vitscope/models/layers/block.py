"""One transformer block: attention and MLP, each on a residual branch. B batch, N tokens, D width."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from vitscope.models.layers.attention import Attention
from vitscope.models.layers.drop import DropPath
from vitscope.models.layers.empty import EmptyAttention, EmptyMlp
from vitscope.models.layers.narrow_block import is_narrow, narrow_block
from vitscope.models.layers.scale import LayerScale


class Block(nn.Module):
    """pre: x + attn(norm(x)), x + mlp(norm(x)).  post: norm(x + attn(x)), norm(x + mlp(x)).

    A part that has lost all its heads or neurons reads nothing: where the norm comes before it, there is none.
    """

    def __init__(
        self,
        dim: int,
        attn: Attention | EmptyAttention,
        mlp: nn.Module,
        *,
        norm_order: Literal["pre", "post"] = "pre",
        norm_eps: float = 1e-6,
        layer_scale: float | None = None,
        drop_path: float = 0.0,
    ) -> None:
        super().__init__()
        self.norm_order = norm_order
        self.norm1 = nn.LayerNorm(dim, eps=norm_eps) if _needs_norm(attn, norm_order) else nn.Identity()
        self.attn = attn
        self.ls1 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path1 = DropPath(drop_path)
        self.norm2 = nn.LayerNorm(dim, eps=norm_eps) if _needs_norm(mlp, norm_order) else nn.Identity()
        self.mlp = mlp
        self.ls2 = nn.Identity() if layer_scale is None else LayerScale(dim, layer_scale)
        self.drop_path2 = DropPath(drop_path)

    def forward(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        if is_narrow(self, x):
            return narrow_block(self, x, rope)
        if self.norm_order == "pre":
            x = x + self.drop_path1(self.ls1(self.attn(self.norm1(x), rope)))
            return x + self.drop_path2(self.ls2(self.mlp(self.norm2(x))))
        x = self.norm1(x + self.drop_path1(self.ls1(self.attn(x, rope))))
        return self.norm2(x + self.drop_path2(self.ls2(self.mlp(x))))

    def attention_weights(self, x: Tensor, rope: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The weights this block's attention gives the tokens `x` it is about to read: (B, heads, N, N)."""
        return self.attn.weights(self.norm1(x) if self.norm_order == "pre" else x, rope)


def _needs_norm(part: nn.Module, norm_order: str) -> bool:
    return norm_order == "post" or not isinstance(part, EmptyAttention | EmptyMlp)

"""The plain Vision Transformer (Dosovitskiy et al. 2021, arXiv 2010.11929) and its options.

The road of an image: cut into patches -> tokens, prefixed and placed -> blocks -> norm -> pool -> head.
B batch, C channels, H W image, N patches, P prefix tokens (class, distillation, registers), D width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from vitscope.core.errors import InputError, expected
from vitscope.models.config import Size, ViTConfig, pair
from vitscope.models.init import init_mimetic_positions, init_transformer
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.block import Block
from vitscope.models.layers.drop import rising_rates
from vitscope.models.layers.empty import EmptyAttention, EmptyMlp
from vitscope.models.layers.mlp import GatedMlp, Mlp
from vitscope.models.layers.patch import PatchEmbed
from vitscope.models.layers.pool import AttentionPool
from vitscope.models.layers.position import RelativeBias, relative_index, rope_2d, sincos_2d
from vitscope.models.layers.resample import PatchMethod, resample_positions, resample_relative_table
from vitscope.models.model import VisionModel, choose_layers, make_head


class ViT(VisionModel):
    """Images (B, C, H, W) -> logits (B, num_classes)."""

    config: ViTConfig
    supports_grad_checkpointing = True
    pixel_layer = "patch_embed.proj"
    sincos: Tensor | None
    rope_cos: Tensor | None
    rope_sin: Tensor | None

    def __init__(self, config: ViTConfig) -> None:
        super().__init__(config)
        dim = config.embed_dim
        self.num_features = dim
        self.distilled_training = False

        self.patch_embed = PatchEmbed(pair(config.patch_size), config.in_chans, dim)
        self.cls_token = _token(1, dim, config.class_token)
        self.dist_token = _token(1, dim, config.distilled)
        self.reg_token = _token(config.num_registers, dim, config.num_registers > 0)
        self.pos_embed = _token(self._table_prefix + config.num_patches, dim, config.position == "learned")
        self.pos_drop = nn.Dropout(config.drop_rate)
        self.blocks = nn.ModuleList(make_blocks(config))
        self.norm = nn.LayerNorm(dim, eps=config.norm_eps)
        self.attn_pool = _attention_pool(config)
        self.head_drop = nn.Dropout(config.head_drop_rate)

        init_transformer(self, config.init)
        if config.init == "mimetic" and self.pos_embed is not None and dim % 4 == 0:
            init_mimetic_positions(self.pos_embed, config.grid_size)
        self.head = make_head(dim, config.num_classes)
        self.head_dist = make_head(dim, config.num_classes) if config.distilled else None
        self.reset_buffers()

    # --- the road of an image -----------------------------------------------------------------------------------

    def forward_features(self, images: Tensor) -> Tensor:
        """All tokens after the last norm, prefix tokens first: (B, P + N, D)."""
        self.check_images(images)
        return self.encode(self.place(self.patch_embed(images)))

    def forward_head(self, features: Tensor, *, pre_logits: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        """Pool the tokens, then classify. A distilled model averages its two heads; while it is being distilled
        (`distilled_training`, in train mode) it returns both logits."""
        if self.head_dist is not None:
            return self._forward_two_heads(features, pre_logits)
        pooled = self.head_drop(self.pool(features))
        return pooled if pre_logits else self.head(pooled)

    def place(self, patches: Tensor) -> Tensor:
        """Patch tokens (B, N, D) with their positions, behind the prefix tokens: (B, P + N, D)."""
        if self.pos_embed is not None and self._table_prefix:
            tokens = self._behind_prefix(patches) + self.pos_embed
        else:
            positions = self.sincos if self.pos_embed is None else self.pos_embed
            tokens = self._behind_prefix(patches if positions is None else patches + positions)
        return self.pos_drop(tokens)

    def encode(self, tokens: Tensor) -> Tensor:
        """Through all blocks and the last norm."""
        for block in self.blocks:
            tokens = self._run(block, tokens)
        return self.norm(tokens)

    def pool(self, tokens: Tensor) -> Tensor:
        """What the head sees: (B, P + N, D) -> (B, D)."""
        if self.config.pool == "cls":
            return tokens[:, 0]
        patches = tokens[:, self.config.num_prefix_tokens :]
        return patches.mean(dim=1) if self.attn_pool is None else self.attn_pool(patches)

    # --- looking inside -----------------------------------------------------------------------------------------

    def forward_intermediates(
        self, images: Tensor, indices: int | Sequence[int] | None = None, *, norm: bool = False
    ) -> dict[int, Tensor]:
        """Tokens (B, P + N, D) after the chosen blocks (all by default, negative counts from the end), before the
        last norm unless `norm`. Blocks after the last chosen one are not run."""
        self.check_images(images)
        chosen = choose_layers(indices, len(self.blocks))
        tokens, found = self.place(self.patch_embed(images)), {}
        for i, block in enumerate(self.blocks[: max(chosen) + 1]):
            tokens = self._run(block, tokens)
            if i in chosen:
                found[i] = self.norm(tokens) if norm else tokens
        return found

    def attention_maps(self, images: Tensor, layers: int | Sequence[int] | None = None) -> dict[int, Tensor]:
        """True attention weights of the chosen layers (all by default): {layer: (B, heads, P + N, P + N)}. Blocks that
        have lost all their heads are left out, and refused where they are asked for.

        Computed from q and k by the plain formula in float32 (or better), while every block itself runs fused as
        always. In train mode dropout acts on the road to each layer, as in any forward pass: call `eval()` first.
        """
        self.check_images(images)
        chosen = self.layers_with_heads(layers)
        tokens, maps = self.place(self.patch_embed(images)), {}
        for i, block in enumerate(self.blocks[: max(chosen) + 1]):
            if i in chosen:
                maps[i] = block.attention_weights(tokens, self.rope)  # pyright: ignore[reportCallIssue]
            if i < max(chosen):
                tokens = self._run(block, tokens)
        return maps

    def layers_with_heads(self, layers: int | Sequence[int] | None = None) -> list[int]:
        """The chosen layers, by default all whose attention has heads; a chosen one that has none is refused."""
        heads = self.config.block_heads
        some = [layer for layer, count in enumerate(heads) if count > 0]
        chosen = some if layers is None else choose_layers(layers, len(heads))
        without = [layer for layer in chosen if heads[layer] == 0]
        if without or not chosen:
            raise InputError(
                expected(
                    "layers",
                    "blocks whose attention has heads",
                    ", ".join(f"block {n}, without" for n in without) or "a model none of whose blocks has any",
                ),
                where="ViT.attention_maps",
                fix=f"take some of {', '.join(map(str, some))}" if some else "there is no attention to look at",
            )
        return chosen

    def feature_map(self, tokens: Tensor) -> Tensor:
        """Patch tokens as a picture: (B, P + N, D) -> (B, D, h, w)."""
        patches = tokens[:, self.config.num_prefix_tokens :]
        return patches.transpose(1, 2).unflatten(2, self.config.grid_size)

    # --- positions and prefix -----------------------------------------------------------------------------------

    def prefix_tokens(self) -> Tensor | None:
        """Class, distillation and register tokens, in this order: (1, P, D)."""
        parts = (self.cls_token, self.dist_token, self.reg_token)
        tokens: list[Tensor] = [token for token in parts if token is not None]
        if not tokens:
            return None
        return torch.cat(tokens, dim=1) if len(tokens) > 1 else tokens[0]

    @property
    def rope(self) -> tuple[Tensor, Tensor] | None:
        return None if self.rope_cos is None or self.rope_sin is None else (self.rope_cos, self.rope_sin)

    def reset_buffers(self) -> None:
        cfg = self.config
        like = self.norm.weight
        sincos, cos, sin = None, None, None
        if cfg.position == "sincos":
            sincos = sincos_2d(cfg.grid_size, cfg.embed_dim)[None].to(like.device, like.dtype)
        if cfg.position == "rope":
            tables = rope_2d(cfg.grid_size, cfg.dim_per_head, cfg.num_prefix_tokens)
            cos, sin = (table.to(like.device) for table in tables)
        self.register_buffer("sincos", sincos, persistent=False)
        self.register_buffer("rope_cos", cos, persistent=False)
        self.register_buffer("rope_sin", sin, persistent=False)
        for module in self.modules():
            if isinstance(module, RelativeBias):
                module.index = relative_index(cfg.grid_size, cfg.num_prefix_tokens).to(like.device)

    # --- changing shape -----------------------------------------------------------------------------------------

    def set_input_size(
        self,
        img_size: Size,
        *,
        patch_size: Size | None = None,
        antialias: bool = True,
        patch_filter: PatchMethod = "pseudo_inverse",
    ) -> None:
        """Move positions to the grid of another image size: learned and relative tables bicubically, others anew.

        With another `patch_size` the patch filter is resampled too, and the tables go in one step from the old grid
        to the new one: 224 / 16 -> 32 / 4 is 14 x 14 -> 8 x 8. Relative tables know only plain bicubic.
        """
        old_grid = self.config.grid_size
        super().set_input_size(img_size, patch_size=patch_size)
        new_grid = self.config.grid_size
        self.patch_embed.proj.resize(pair(self.config.patch_size), patch_filter)
        if new_grid == old_grid:  # the tables stay the very parameters an optimiser may hold
            return
        if self.pos_embed is not None:
            table = self.pos_embed.detach()
            moved = resample_positions(table, old_grid, new_grid, num_prefix=self._table_prefix, antialias=antialias)
            self.pos_embed = nn.Parameter(moved, requires_grad=self.pos_embed.requires_grad)
        for module in self.modules():
            if isinstance(module, RelativeBias):
                moved = resample_relative_table(module.table.detach(), old_grid, new_grid)
                module.table = nn.Parameter(moved, requires_grad=module.table.requires_grad)
        self.reset_buffers()

    def classifiers(self) -> list[str]:
        return ["head", "head_dist"] if self.config.distilled else ["head"]

    # --- small parts --------------------------------------------------------------------------------------------

    @property
    def _table_prefix(self) -> int:
        """Rows of the learned table that belong to prefix tokens."""
        return self.config.num_prefix_tokens if self.config.prefix_position else 0

    def _behind_prefix(self, patches: Tensor) -> Tensor:
        prefix = self.prefix_tokens()
        return patches if prefix is None else torch.cat([prefix.expand(patches.shape[0], -1, -1), patches], dim=1)

    def _run(self, block: nn.Module, tokens: Tensor) -> Tensor:
        if self.grad_checkpointing and self.training:
            # A generator's state cannot be read while a CUDA graph is captured: only where something is drawn.
            cfg = self.config
            draws = max(cfg.drop_rate, cfg.attn_drop_rate, cfg.drop_path_rate) > 0
            return checkpoint(block, tokens, self.rope, use_reentrant=False, preserve_rng_state=draws)  # pyright: ignore[reportReturnType]
        return block(tokens, self.rope)

    def _forward_two_heads(self, tokens: Tensor, pre_logits: bool) -> Tensor | tuple[Tensor, Tensor]:
        cls, dist = self.head_drop(tokens[:, 0]), self.head_drop(tokens[:, 1])
        if pre_logits:
            return (cls + dist) / 2
        logits, dist_logits = self.head(cls), self.head_dist(dist)  # pyright: ignore[reportOptionalCall]
        if self.distilled_training and self.training:
            return logits, dist_logits
        return (logits + dist_logits) / 2


def make_blocks(config: ViTConfig) -> list[Block]:
    """The blocks of a config; heads and neurons may differ from block to block, and a block may have none."""
    blocks = []
    rates = rising_rates(config.drop_path_rate, config.depth)
    for heads, neurons, rate in zip(config.block_heads, config.block_mlp_dims, rates, strict=True):
        block = Block(
            config.embed_dim,
            _attention(config, heads),
            _mlp(config, neurons),
            norm_order=config.norm_order,
            norm_eps=config.norm_eps,
            layer_scale=config.layer_scale,
            drop_path=rate,
        )
        blocks.append(block)
    return blocks


def _attention(config: ViTConfig, heads: int) -> Attention | EmptyAttention:
    if heads == 0:
        return EmptyAttention(config.embed_dim, proj_drop=config.drop_rate)
    relative = None
    if config.position == "relative":
        relative = RelativeBias(config.grid_size, heads, config.num_prefix_tokens)
    return Attention(
        config.embed_dim,
        heads,
        config.dim_per_head,
        qkv_bias=config.qkv_bias,
        qk_norm=config.qk_norm,
        norm_eps=config.norm_eps,
        attn_drop=config.attn_drop_rate,
        proj_drop=config.drop_rate,
        relative=relative,
    )


def _mlp(config: ViTConfig, neurons: int) -> Mlp | GatedMlp | EmptyMlp:
    if neurons == 0:
        return EmptyMlp(config.embed_dim, drop=config.drop_rate)
    form = GatedMlp if config.mlp == "swiglu" else Mlp
    return form(config.embed_dim, neurons, act=config.activation, drop=config.drop_rate)


def _token(count: int, dim: int, present: bool) -> nn.Parameter | None:
    return nn.Parameter(torch.zeros(1, count, dim)) if present else None


def _attention_pool(config: ViTConfig) -> AttentionPool | None:
    if config.pool != "attention":
        return None
    neurons = int(config.embed_dim * config.mlp_ratio)
    heads = config.embed_dim // config.dim_per_head
    return AttentionPool(config.embed_dim, heads, neurons, act=config.act or "gelu", norm_eps=config.norm_eps)

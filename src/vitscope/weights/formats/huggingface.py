"""Hugging Face's names: ViT, DeiT, MAE and DINOv2, as their files have them and as transformers 5 has them in memory.

Both namings may be mixed, and the backbone's own name (`vit.`) may stand before all or not: each of our tensors is
looked for under every name it may have. What is written has the names of the files, which every version reads.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection
from functools import partial
from itertools import product

from vitscope.models.config import MAEConfig, ModelConfig, SimMIMConfig, ViTConfig
from vitscope.weights.files import Shape, Stored
from vitscope.weights.formats.class_position import rows_of_patches, token_with_its_row
from vitscope.weights.formats.fixed_positions import grid_of, is_sincos, said_of_strange
from vitscope.weights.match import Format, Match, Unheld, joined

BACKBONES = ("", "vit.", "deit.", "dinov2.", "dinov2_with_registers.")
"""What may stand before the names of a backbone."""
FIRST_LAYER = "embeddings.patch_embeddings.projection.weight"
POSITIONS = "embeddings.position_embeddings"
DECODER_POSITIONS = "decoder.decoder_pos_embed"
MASK_TOKEN = "embeddings.mask_token"

OUTSIDE_BLOCKS = {
    "cls_token": ("embeddings.cls_token",),
    "dist_token": ("embeddings.distillation_token",),
    "reg_token": ("embeddings.register_tokens", "embeddings.distillation_token"),
    "pos_embed": (POSITIONS,),
    "patch_embed.proj.weight": (FIRST_LAYER,),
    "patch_embed.proj.bias": ("embeddings.patch_embeddings.projection.bias",),
    "norm.weight": ("layernorm.weight",),
    "norm.bias": ("layernorm.bias",),
}
IN_VIT = {
    "norm1": ("layernorm_before",),
    "attn.proj": ("attention.output.dense", "attention.o_proj"),
    "norm2": ("layernorm_after",),
    "mlp.fc1": ("intermediate.dense", "mlp.fc1"),
    "mlp.fc2": ("output.dense", "mlp.fc2"),
}
IN_DINO = {
    **IN_VIT,
    "norm1": ("norm1",),
    "norm2": ("norm2",),
    "mlp.fc1": ("mlp.fc1",),
    "mlp.fc2": ("mlp.fc2",),
    "ls1.gamma": ("layer_scale1.lambda1",),
    "ls2.gamma": ("layer_scale2.lambda1",),
}
GATED = {"mlp.fc2": ("mlp.weights_out", "mlp.down_proj")}
QKV = (
    ("attention.attention.query", "attention.attention.key", "attention.attention.value"),
    ("attention.q_proj", "attention.k_proj", "attention.v_proj"),
)
BLOCK = re.compile(r"(decoder_)?blocks\.(\d+)\.(.+?)(\.weight|\.bias)?")


class HuggingFace(Format):
    name = "huggingface"
    library = "transformers"
    unheld = (
        Unheld("*pooler.dense.*", "the pooler, a layer after the class token that only pooler_output needs"),
        Unheld(f"*{MASK_TOKEN}", "the token of hidden patches, which only masked training needs"),
    )

    def recognises(self, stored: Stored) -> bool:
        return backbone_of(stored) is not None

    def reading(self, stored: Stored, config: ModelConfig) -> Callable[[str], Match | None]:
        find = naming(config, backbone_of(stored) or "", stored)
        if not _has_wide_head(stored.shapes, config):
            return find
        return lambda ours: None if ours.startswith("head.") else find(ours)

    def left_out(self, stored: Stored, config: ModelConfig) -> tuple[Unheld, ...]:
        unheld = list(self.unheld)
        if _has_wide_head(stored.shapes, config):
            why = "the head reads class token and mean of the patches side by side; a head here reads one of the two"
            unheld.append(Unheld("classifier.*", why, in_head=True))
        if isinstance(config, ViTConfig):
            unheld.append(Unheld("decoder.*", "the decoder, which only masked training needs"))
        vit = config if isinstance(config, ViTConfig) else getattr(config, "encoder", None)
        fixed = "the fixed sin-cos table, which is computed here"
        place = f"{backbone_of(stored)}{POSITIONS}"
        if vit is not None and vit.position == "sincos" and holds_sincos(stored, place, _grid(stored, place, vit)):
            unheld.append(Unheld(place, fixed))
        if isinstance(config, MAEConfig) and holds_sincos(
            stored, DECODER_POSITIONS, _grid(stored, DECODER_POSITIONS, config.encoder)
        ):
            unheld.append(Unheld(DECODER_POSITIONS, fixed))
        return tuple(unheld)

    def hint(self, stored: Stored, config: ModelConfig) -> str:
        """Of tables where a model of `config` computes its own, and which are not those."""
        vit = config if isinstance(config, ViTConfig) else getattr(config, "encoder", None)
        place = f"{backbone_of(stored)}{POSITIONS}"
        if vit is None:
            return ""
        tables = [DECODER_POSITIONS] if isinstance(config, MAEConfig) else []
        for name in (*tables, *([place] if vit.position == "sincos" else ())):
            if name in stored and not holds_sincos(stored, name, _grid(stored, name, vit)):
                return said_of_strange(stored, name, of_decoder=name == DECODER_POSITIONS)
        return ""

    def remarks(self, stored: Stored, config: ModelConfig) -> tuple[str, ...]:
        return _eps_remarks(config)


def _eps_remarks(config: ModelConfig) -> tuple[str, ...]:
    """Tensors do not tell LayerNorm's eps, and the models behind our names have timm's."""
    vit = config if isinstance(config, ViTConfig) else getattr(config, "encoder", None)
    if not isinstance(vit, ViTConfig):
        return ()
    usual = 1e-12 if vit.layer_scale is None else 1e-6
    if vit.norm_eps == usual:
        return ()
    return (
        f"LayerNorm's eps is {vit.norm_eps:g} by the config; transformers' default for such a model is {usual:g}: "
        f"unless it was changed there, give a config with norm_eps={usual:g}",
    )


def backbone_of(stored: Collection[str]) -> str | None:
    """What stands before the backbone's names; None where these are not Hugging Face's."""
    return next((name for name in BACKBONES if f"{name}{FIRST_LAYER}" in stored), None)


def _has_wide_head(shapes: dict[str, Shape], config: ModelConfig) -> bool:
    """Whether the classifier is twice as wide as the model, as DINOv2's is."""
    head = shapes.get("classifier.weight", ())
    return isinstance(config, ViTConfig) and len(head) == 2 and head[1] == 2 * config.embed_dim


def _grid(stored: Stored, name: str, config: ViTConfig) -> tuple[int, int] | None:
    return grid_of(stored.shapes[name][1], config) if len(stored.shapes.get(name, ())) == 3 else None


def holds_sincos(stored: Stored, name: str, grid_size: tuple[int, int] | None) -> bool:
    """Whether there is a table of this name, and it is the fixed one."""
    return name in stored and is_sincos(stored[name], grid_size)


# --- names ------------------------------------------------------------------------------------------------------


def naming(config: ModelConfig, backbone: str, known: Collection[str] = ()) -> Callable[[str], Match | None]:
    """Our name -> its match. Of the names it may have, the one that is `known`; else the one of the files."""
    if isinstance(config, ViTConfig):
        return partial(_of_vit, config, backbone, known, inside="")
    if isinstance(config, MAEConfig | SimMIMConfig):
        return partial(_of_masked, config, backbone, known)
    return lambda ours: None


def _of_masked(config: MAEConfig | SimMIMConfig, backbone: str, known: Collection[str], ours: str) -> Match | None:
    if ours.startswith("encoder."):
        return _of_vit(config.encoder, backbone, known, ours, inside="encoder.")
    if isinstance(config, SimMIMConfig):
        return Match(ours, (f"{backbone}{MASK_TOKEN}" if ours == "mask_token" else ours,))
    if ours.startswith("decoder_blocks."):
        return _of_block(ours, ours, ("decoder.decoder_layers.", "decoder.decoder_encoder.layer."), IN_VIT, known)
    return Match(ours, (f"decoder.{ours}",))


def _of_vit(config: ViTConfig, backbone: str, known: Collection[str], ours: str, *, inside: str) -> Match | None:
    name = ours.removeprefix(inside)
    if name.startswith("blocks."):
        words = IN_VIT if config.layer_scale is None else IN_DINO
        words = words if config.mlp == "mlp" else {**words, **GATED}
        return _of_block(ours, name, (f"{backbone}encoder.layer.", f"{backbone}layers."), words, known)
    head, _, leaf = name.partition(".")
    if head in ("head", "head_dist"):
        first = "cls_classifier" if config.distilled else "classifier"
        alone = ("distillation_classifier",) if head == "head_dist" else (first, "classifier", "cls_classifier")
        return Match(ours, (_chosen([f"{word}.{leaf}" for word in alone], known),))
    if name not in OUTSIDE_BLOCKS:
        return None
    words = OUTSIDE_BLOCKS[name]
    if name == "reg_token" and config.layer_scale is None:
        words = words[::-1]
    theirs = _chosen([f"{backbone}{word}" for word in words], known)
    if config.position == "learned" and not config.prefix_position:
        return _without_prefix_rows(ours, name, theirs, f"{backbone}{POSITIONS}")
    return Match(ours, (theirs,))


def _without_prefix_rows(ours: str, name: str, theirs: str, positions: str) -> Match:
    """Their table has a row for the class token, ours only rows for patches: the token takes its row in."""
    if name == "cls_token":
        return token_with_its_row(ours, theirs, positions)
    if name == "pos_embed":
        return rows_of_patches(ours, theirs)
    return Match(ours, (theirs,))


def _of_block(
    ours: str, name: str, places: tuple[str, ...], words: dict[str, tuple[str, ...]], known: Collection[str]
) -> Match | None:
    found = BLOCK.fullmatch(name)
    if found is None:
        return None
    number, part, leaf = found[2], found[3], found[4] or ""
    layers = [f"{place}{number}." for place in places]
    if part == "attn.qkv":
        ways = [[f"{layer}{one}{leaf}" for one in three] for layer, three in product(layers, QKV)]
        return joined(ours, *_chosen_all(ways, known), how="q, k and v joined")
    if part == "mlp.fc1" and words.get("mlp.fc2") == GATED["mlp.fc2"]:
        split = [[f"{layer}mlp.{one}{leaf}" for one in ("gate_proj", "up_proj")] for layer in layers]
        for way in split:
            if all(one in known for one in way):
                return joined(ours, *way, how="gate and value joined")
        return Match(ours, (_chosen([f"{layer}mlp.weights_in{leaf}" for layer in layers], known),))
    if part not in words:
        return None
    return Match(ours, (_chosen([f"{layer}{word}{leaf}" for layer, word in product(layers, words[part])], known),))


def _chosen(names: list[str], known: Collection[str]) -> str:
    return next((name for name in names if name in known), names[0])


def _chosen_all(ways: list[list[str]], known: Collection[str]) -> list[str]:
    return next((way for way in ways if all(name in known for name in way)), ways[0])


HUGGINGFACE = HuggingFace()

"""What attention weights matter for an answer: against autograd with the weights written out, kind by kind."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from infer.looking_models import KINDS, photograph, predictor, seeing
from vitscope.infer.explain.explain import explain
from vitscope.infer.explain.gradients import relevance_of
from vitscope.infer.explain.reader import pool_weights

PICTURE = photograph(50, 40, seed=1)


def written_out(model: Any, images: Tensor, target: int) -> tuple[list[Tensor], list[Tensor], Tensor | None]:
    """The model by the plain formula, its weights A part of the graph: A and d logit / d A of every layer, and the
    pool's (dA * A)^+."""
    tokens, maps = model.place(model.patch_embed(images)), []
    for block in model.blocks:
        attn = block.attn
        x = block.norm1(tokens) if block.norm_order == "pre" else tokens
        weights = attn.weights(x, model.rope)
        weights.retain_grad()
        maps.append(weights)
        values = attn.qkv(x).reshape(1, x.shape[1], 3, attn.num_heads, attn.head_dim)[:, :, 2].transpose(1, 2)
        mixed = block.ls1(attn.proj((weights @ values).transpose(1, 2).flatten(2)))
        tokens = tokens + mixed if block.norm_order == "pre" else block.norm1(tokens + mixed)
        if block.norm_order == "pre":
            tokens = tokens + block.ls2(block.mlp(block.norm2(tokens)))
        else:
            tokens = block.norm2(tokens + block.ls2(block.mlp(tokens)))
    tokens, pool = model.norm(tokens), None
    if model.attn_pool is None:
        logits = model.forward_head(tokens)
    else:
        patches, part = tokens[:, model.config.num_prefix_tokens :], model.attn_pool
        pool = pool_weights(part, patches[0])
        pool.retain_grad()
        values = part.kv(patches)[0].unflatten(1, (2, part.num_heads, -1))[:, 1]
        x = part.proj(torch.einsum("hn,nhd->hd", pool, values).flatten())[None]
        logits = model.head(x + part.mlp(part.norm(x)))
    torch.testing.assert_close(logits, model(images), atol=1e-4, rtol=1e-4)
    logits[0, target].backward()
    gradients = [weights.grad[0] for weights in maps]
    of_pool = None if pool is None else (pool.grad * pool.detach()).clamp(min=0).mean(0)
    return [weights.detach()[0] for weights in maps], gradients, of_pool


@pytest.mark.parametrize("settings", KINDS.values(), ids=KINDS)
def test_gradient_rollout_is_chefers_rule(settings: dict[str, Any]) -> None:
    asked = predictor(**settings)
    model: Any = asked.model
    images, cfg, target = seeing(asked, PICTURE), model.config, 3
    maps, gradients, of_pool = written_out(model, images, target)
    model.zero_grad()
    found = relevance_of(model, images, lambda logits: logits[0, target])
    tokens, prefix = cfg.num_tokens, cfg.num_prefix_tokens
    reached = np.eye(tokens)
    for layer, (weights, gradient) in enumerate(zip(maps, gradients, strict=True)):
        relevance = (gradient * weights).clamp(min=0).mean(0)
        assert gradient.abs().max() > 0  # of a single head all may speak against the class
        largest = max(relevance.max().item(), 1e-6)
        torch.testing.assert_close(found.layers[layer], relevance, atol=1e-4 * largest, rtol=1e-3)
        reached = reached + relevance.double().numpy() @ reached
    shares = np.zeros(tokens)
    if of_pool is not None:
        shares[prefix:] = of_pool.double().numpy()
    elif cfg.pool == "mean":
        shares[prefix:] = 1 / cfg.num_patches
        reached -= np.eye(tokens)  # what every patch has alike
    else:
        shares[: 2 if cfg.distilled else 1] = 0.5 if cfg.distilled else 1.0
    wanted = (shares @ reached)[prefix:].reshape(cfg.grid_size)
    told = explain(asked, PICTURE, "gradient_rollout", target=target, draws=None).map
    np.testing.assert_allclose(told, wanted, rtol=1e-3, atol=1e-4 * wanted.max())


def test_another_class_has_another_map() -> None:
    asked = predictor()
    one, other = (explain(asked, PICTURE, "gradient_rollout", target=target, draws=None).map for target in (0, 1))
    assert np.abs(one - other).max() > 0.05 * one.max()


def test_frozen_models_and_inference_mode_do_not_matter() -> None:
    asked = predictor()
    wanted = explain(asked, PICTURE, "gradient_rollout", draws=None).map
    asked.model.requires_grad_(False)
    assert np.array_equal(explain(asked, PICTURE, "gradient_rollout", draws=None).map, wanted)
    with torch.inference_mode():
        assert np.array_equal(explain(asked, PICTURE, "gradient_rollout", draws=None).map, wanted)
    assert not any(parameter.requires_grad for parameter in asked.model.parameters())


def test_hooks_are_gone_even_where_the_model_fails() -> None:
    asked = predictor()
    model: Any = asked.model
    model.head.register_forward_hook(lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        relevance_of(model, seeing(asked, PICTURE), lambda logits: logits[0, 0])
    assert not any(part._forward_pre_hooks for part in model.modules())
    assert sum(len(part._forward_hooks) for part in model.modules()) == 1

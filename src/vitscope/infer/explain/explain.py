"""From a picture to a map of where a model looks, and how far that map can be believed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from vitscope.core.errors import UsageError, VitscopeError, expected
from vitscope.core.suggest import did_you_mean
from vitscope.infer.cheaper.dtypes import quantised
from vitscope.infer.explain.attention import chosen_head, each_layer, prefix_names
from vitscope.infer.explain.explanation import Explanation
from vitscope.infer.explain.faithfulness import DRAWS, Faithfulness, faithfulness_of
from vitscope.infer.explain.gradients import relevance_of
from vitscope.infer.explain.heads import even_distance, heads_of
from vitscope.infer.explain.norms import norms_of
from vitscope.infer.explain.reader import pool_looks, reader_of, who_looks
from vitscope.infer.explain.rollout import Rollout, gradient_rollout
from vitscope.infer.explain.subject import Subject, asked, looking, subject_of
from vitscope.infer.explain.target import chosen_class
from vitscope.infer.pictures import Pictures
from vitscope.infer.prediction import Guess
from vitscope.models.model import choose_layers
from vitscope.models.modes import in_mode
from vitscope.models.vit import ViT

if TYPE_CHECKING:
    from vitscope.infer.predictor import Predictor, Progress

Method = Literal["attention", "rollout", "gradient_rollout"]
METHODS: tuple[Method, ...] = get_args(Method)


def explain(
    predictor: Predictor,
    picture: Pictures,
    method: Method = "attention",
    *,
    layer: int | None = None,
    head: int | None = None,
    target: int | str | None = None,
    patch: tuple[int, int] | None = None,
    draws: int | None = DRAWS,
    progress: Progress | None = None,
) -> Explanation:
    """Where the model looks in one picture.

    `method`: `attention`, the weights of one `layer` (by default the last that has heads), of one `head` or the mean of
    all; `rollout`, through all layers up to `layer`; `gradient_rollout`, what speaks for the class `target` (a label or
    number; by default the likeliest). Who looks is what the head reads: the class token, or with mean or attention
    pooling the patches; or one `patch` (row, column). `draws` random places the map is held against to judge it; None
    leaves it unjudged.

    The model stays as it was: weights, gradients, modes.
    """
    model = looking(predictor.model)
    cfg = model.config
    last = model.layers_with_heads()[-1]  # refuses where there is nothing to look at
    if layer is None:
        layer = last if method == "attention" else cfg.depth - 1
    (layer,) = model.layers_with_heads(layer) if method == "attention" else choose_layers(layer, cfg.depth)
    head = None if head is None else chosen_head(head, cfg.block_heads[layer])
    _refuse_what_does_not_fit(predictor, method, layer == cfg.depth - 1, head, patch)
    subject = subject_of(predictor, picture)
    looks, heads, rollout, tokens = [], [], Rollout(cfg.num_tokens), subject.images
    with torch.no_grad(), in_mode(predictor.model, training=False):
        prediction = asked(predictor, subject)
        index = _class_of(predictor, prediction and prediction.index, target)
        reader = reader_of(model, subject.images, patch)
        for block in each_layer(model, subject.images):
            heads.append(heads_of(block.number, block.weights, cfg))
            looks.append(_of_patches(model, reader.to(block.weights.device) @ block.weights))
            if block.number <= layer and method == "rollout" and len(block.weights):  # without heads all goes past
                rollout.through(block.weights)
            tokens = block.tokens
        if method == "attention":
            marked = looks[layer].mean(0) if head is None else looks[layer][head]
        elif method == "rollout":
            marked = _of_patches(model, reader @ rollout.reached)
        else:
            marked = _gradient_map(model, subject.images, reader, index)
        if not np.isfinite(marked).all():
            raise VitscopeError("the model's attention is not a number", fix="its weights are not sound")
        guess = None
        if index is not None:
            chance = predictor.probabilities(subject.images)[0, index].item()
            guess = Guess(predictor.labels[index], index, chance)
        judged = None if draws is None else _judged(predictor, subject, marked, index, draws, progress)
    return Explanation(
        method=method,
        layer=layer,
        head=head,
        patch=patch,
        looker=who_looks(model, patch),
        map=marked,
        faithfulness=judged,
        prediction=prediction,
        target=guess,
        heads=tuple(heads),
        norms=norms_of(tokens, cfg),
        looks=tuple(looks),
        pool=pool_looks(model, subject.images).numpy() if cfg.pool == "attention" else None,
        picture=subject.picture,
        frame=subject.frame,
        name=subject.name,
        num_tokens=cfg.num_tokens,
        prefix=prefix_names(cfg),
        even_distance_px=even_distance(cfg),
    )


def _gradient_map(model: ViT, images: Tensor, reader: Tensor, index: int | None) -> np.ndarray:
    relevance = relevance_of(model, images, lambda logits: logits[0, index].float())
    reached = gradient_rollout(relevance.layers)
    if model.config.pool == "mean":  # the same 1 / N that every patch has of itself would only hide the rest
        reached = reached - torch.eye(len(reached))
    if relevance.pool is not None:  # the pool's own attention is the last step to the answer
        reader = F.pad(relevance.pool, (len(reader) - len(relevance.pool), 0))
    return _of_patches(model, reader @ reached)


def _judged(
    predictor: Predictor,
    subject: Subject,
    marked: np.ndarray,
    index: int | None,
    draws: int,
    progress: Progress | None,
) -> Faithfulness:
    """By the class's probability; where there are no classes, by how like the features stay to those of the picture."""
    if index is not None:
        measure = f"probability of '{predictor.labels[index]}'"

        def ask(images: Tensor) -> Tensor:
            return predictor.probabilities(images)[:, index]

    else:
        measure = "likeness of the features (cosine)"
        model = predictor.model
        whole = model.forward_head(model.forward_features(subject.images), pre_logits=True).float()

        def ask(images: Tensor) -> Tensor:
            features = model.forward_head(model.forward_features(images), pre_logits=True)
            return F.cosine_similarity(features.float(), whole)

    return faithfulness_of(
        marked,
        subject.images[0],
        ask,
        measure=measure,
        draws=draws,
        batch_size=predictor.batch_size,
        progress=progress,
    )


def _class_of(predictor: Predictor, likeliest: int | None, target: int | str | None) -> int | None:
    if target is None:
        return likeliest
    predictor.require_classes()
    return chosen_class(target, predictor.labels)


def _of_patches(model: ViT, row: Tensor) -> np.ndarray:
    """(..., T) -> (..., h, w), without the tokens before the patches."""
    return row[..., model.config.num_prefix_tokens :].unflatten(-1, model.config.grid_size).float().cpu().numpy()


def _refuse_what_does_not_fit(
    predictor: Predictor, method: str, is_last: bool, head: int | None, patch: tuple[int, int] | None
) -> None:
    if method not in METHODS:
        raise UsageError(
            expected("method", f"one of {', '.join(METHODS)}", repr(method)),
            where="explain",
            fix=did_you_mean(str(method), METHODS) or "attention is the plainest",
        )
    if head is not None and method != "attention":
        raise UsageError(f"{method} goes through all heads: head is for attention", where="explain", fix="leave it out")
    if method != "gradient_rollout":
        return
    predictor.require_classes()
    if quantised(predictor.model):
        raise UsageError(
            "a model in 8 bits has no gradients", where="explain", fix="load it in fp32, or take method='rollout'"
        )
    if patch is not None or not is_last:
        what = "layer" if patch is None else "patch"
        raise UsageError(
            f"gradient_rollout follows one class's logit back through all layers: it takes no {what}",
            where="explain",
            fix=f"leave {what} out, or take method='rollout'",
        )

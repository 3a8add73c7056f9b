"""A finding's numbers as bars, what was measured beside what it is held against, where its check has drawn nothing."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from vitscope.doctor.finding import Finding
from vitscope.doctor.picture import Line, Picture
from vitscope.doctor.thresholds.backward import DECAY_SHARE
from vitscope.doctor.thresholds.forward import CHANCE_AGREEMENT, COMPANY_SHARE, LOSS_EXCESS
from vitscope.doctor.thresholds.settings import COARSE_TOKENS, DECAY_OVER_GRADIENT, HEAVY_DROP
from vitscope.train.guide import HEAD_DIM

Bars = Mapping[str, str | float]
"""Bar -> the number's name, or the number itself."""
COUNTED = "pictures"

DRAWN: dict[str, tuple[tuple[str, str, Bars], ...]] = {
    "nan_in_data": (("Pictures that are not finite", COUNTED, {"not finite": "bad", "looked at": COUNTED}),),
    "constant_images": (("Pictures of a single value", COUNTED, {"single value": "flat", "looked at": COUNTED}),),
    "input_not_normalised": (("Range of the pixels", "value", {"least": "low", "largest": "high"}),),
    "normalisation_wrong": (
        ("Pixels of the worst channel", "value", {"distance of mean from 0": "far", "spread": "wide", "usual": 1.0}),
    ),
    "duplicate_only_data": (("Pictures that differ", COUNTED, {"different": "distinct", "looked at": COUNTED}),),
    "validation_leaked": (("Validation pictures in training", "share", {"in training": "share", "all": 1.0}),),
    "test_leaked": (("Test pictures in training", "share", {"in training": "share", "all": 1.0}),),
    "channels_swapped": (
        ("Difference of the channels", "standard errors", {"as they are": "distance", "reordered": "best"}),
    ),
    "validation_augmented": (
        ("Validation pictures that change between looks", COUNTED, {"changed": "changed", "looked at": COUNTED}),
    ),
    "labels_change": (("Labels of pictures read twice", COUNTED, {"changed": "changed", "read twice": COUNTED}),),
    "labels_out_of_range": (("Labels and outputs", "count", {"largest label + 1": "labels", "outputs": "outputs"}),),
    "labels_off_by_one": (("Labels and outputs", "count", {"largest label + 1": "labels", "outputs": "outputs"}),),
    "num_classes_wrong": (("Classes and outputs", "count", {"classes": "classes", "outputs": "outputs"}),),
    "class_missing": (("Pictures of these classes", COUNTED, {"validation": "pictures", "training": 0.0}),),
    "labels_shuffled": (
        ("Labels predicted from pictures", "share right", {"measured": "agreement", "by chance": "chance"}),
    ),
    "label_noise": (
        (
            "Labels of pictures that are easy to tell",
            "share",
            {"as predicted": "agrees", "among the least likely": "low"},
        ),
    ),
    "too_few_images": (("Held-out labels predicted right", "share", {"from these pictures": "agreement", "all": 1.0}),),
    "head_dim_too_small": (("Numbers in a head", "numbers", {"here": "dim", "the guide's least": HEAD_DIM[0]}),),
    "patch_too_coarse": (("Patches of a picture", "patches", {"here": "tokens", "too few up to": COARSE_TOKENS}),),
    "batch_of_one_with_batchnorm": (("Pictures in a batch", COUNTED, {"here": "batch", "usual": 64.0}),),
    "dropout_too_high": (
        ("Share that is dropped", "share", {"here": "share", "heavy from": HEAVY_DROP}),
        ("Two passes of one picture", "cosine", {"measured": "agreement", "too little below": CHANCE_AGREEMENT}),
    ),
    "weight_decay_too_high": (
        ("Share of the weights that decay takes", "share", {"in 100 steps": "taken", "all": 1.0}),
        ("Pull of decay", "share of the gradient's", {"here": "share", "too much from": DECAY_SHARE}),
        ("Decay against the gradient", "times", {"here": "ratio", "too much from": DECAY_OVER_GRADIENT}),
    ),
    "position_table_wrong_size": (
        ("Rows and patches", "count", {"rows": "rows", "patches": "patches"}),
        ("Rows and patches", "count", {"rows": "places", "patches": "tokens"}),
    ),
    "relu_before_loss": (("Logits of a last layer that is sure", "logit", {"against": "least", "for": "most"}),),
    "softmax_before_loss": (("Loss", "loss", {"of perfect answers": "floor", "knowing nothing": "start"}),),
    "init_zero": (("Layers that hold one number", "layers", {"one number": "count", "all": "of"}),),
    "output_ignores_input": (("What the classifier sees", "size", {"differs by": "spread", "is": "size"}),),
    "random_in_eval": (
        ("Change between two passes", "of the spread", {"measured": "again", "too much from": COMPANY_SHARE}),
    ),
    "batch_mixes_pictures": (
        ("Change with other company", "of the spread", {"measured": "company", "too much from": COMPANY_SHARE}),
    ),
    "loss_wrong_at_start": (("Loss at the start", "loss", {"measured": "loss", "knowing nothing": "expected"}),),
    "input_upsets_model": (
        ("Loss above that of guessing", "loss", {"pictures standardised": "standard", "too much from": LOSS_EXCESS}),
    ),
    "evaluated_in_train_mode": (("Parts in training mode", "modules", {"dropout": "drops", "BatchNorm": "norms"}),),
    "ema_stale": (("Loss", "loss", {"of the model": "model_loss", "of the average": "average_loss"}),),
    "no_position_information": (("Change when patches move", "of the spread", {"measured": "moved", "usual": 0.01}),),
    "attention_scale_missing": (("Spread of the scores", "scores", {"here": "spread", "scaled": "scaled"}),),
    "softmax_wrong_axis": (
        ("A token's weights over the keys", "sum", {"least": "least", "most": "most", "right": 1.0}),
    ),
    "heads_merged_wrongly": (("Attention layers", "layers", {"merged wrongly": "count", "all": "of"}),),
    "residual_missing": (("Branches nothing goes round", "branches", {"lost": "count", "all": "of"}),),
    "no_gradient_for": (("Parameters without a gradient", "share", {"here": "share", "all": 1.0}),),
    "not_in_optimizer": (("Parameters that nothing moves", "share", {"here": "share", "all": 1.0}),),
    "steps_uphill": (("Cosine of the step with the gradient", "cosine", {"here": "uphill", "SGD": -1.0}),),
    "dead_units": (("Units that are dead", "share", {"mean": "mean", "worst layer": "share"}),),
    "accumulation_not_divided": (("Length of the gradient", "norm", {"mean of the batch": "norm", "given": "given"}),),
    "accumulation_forgets": (
        ("Cosine of the gradient", "cosine", {"with the last call": "alone", "with all": "together"}),
    ),
    "step_without_gradients": (("Length of the gradient", "norm", {"of the loss": "norm", "at the update": "given"}),),
    "trained_in_eval_mode": (("Parts in evaluation mode", "modules", {"BatchNorm": "norms", "dropout": "drops"}),),
    "gradients_not_zeroed": (("Cosine of the next step", "cosine", {"here": "cosine", "begun anew": 1.0}),),
    "clip_too_small": (("Length of the gradient", "norm", {"mean of the batch": "norm", "left": "given"}),),
    "updates_too_large": (("Step against weights", "share", {"here": "ratio", "usual": 0.001}),),
    "updates_too_small": (("Step against weights", "share", {"here": "ratio", "usual": 0.001}),),
    "fp16_without_scaler": (("Scale of the gradients", "times", {"here": "scale", "torch's scaler": 65536.0}),),
    "does_not_learn": (("Loss of the short run", "loss", {"start": "start", "end": "end"}),),
    "steps_not_finite": (("Steps", "steps", {"skipped": "skipped", "all": "steps"}),),
}
"""Cause -> title, what is counted, and the bars; the first whose numbers are there. Those whose checks always draw, and
those there is nothing to draw of, are not here."""


def picture_of_numbers(finding: Finding) -> Picture | None:
    known = {**finding.numbers}
    if "largest" in known and "outputs" in known:
        known["labels"] = known["largest"] + 1
    if "spread" in known and "times" in known:
        known["scaled"] = known["spread"] / known["times"]
    for title, counted, bars in DRAWN.get(finding.cause, ()):
        values = {bar: known.get(value) if isinstance(value, str) else value for bar, value in bars.items()}
        if all(_is_number(value) for value in values.values()):
            heights = [float(value) for value in values.values()]  # pyright: ignore[reportArgumentType]
            is_wide = min(heights) > 0 and max(heights) > 100 * min(heights)
            return Picture(title, "", counted, [Line("", list(values), heights)], kind="bars", log_y=is_wide)
    return None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

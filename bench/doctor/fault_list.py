"""Every fault, in the order of an examination, and the names of causes that count."""

from __future__ import annotations

import faults_in_data
import faults_in_model
import faults_in_training
from fault import Fault

FAULTS: dict[str, Fault] = {**faults_in_data.FAULTS, **faults_in_model.FAULTS, **faults_in_training.FAULTS}

EXPECTED_SOON: frozenset[str] = frozenset(
    {
        "nan_in_data",
        "constant_images",
        "duplicate_only_data",
        "input_not_normalised",
        "normalisation_wrong",
        "channels_swapped",
        "labels_out_of_range",
        "labels_off_by_one",
        "num_classes_wrong",
        "class_imbalance",
        "validation_leaked",
        "data_sorted",
        "validation_augmented",
        "labels_shuffled",
        "label_noise",
        "too_few_images",
        "head_dim_too_small",
        "patch_too_coarse",
        "batch_of_one_with_batchnorm",
        "position_table_wrong_size",
        "softmax_before_loss",
        "init_too_large",
        "output_ignores_input",
        "batch_mixes_pictures",
        "no_position_information",
        "attention_scale_missing",
        "heads_merged_wrongly",
        "residual_missing",
        "normalisation_missing",
        "dropout_too_high",
        "evaluated_in_train_mode",
        "ema_stale",
        "fp16_without_scaler",
        "no_gradient_for",
        "head_frozen",
        "not_in_optimizer",
        "updates_too_small",
        "updates_too_large",
        "accumulation_not_divided",
        "clip_too_small",
        "weight_decay_too_high",
        "cannot_overfit",
        "lr_too_high",
        "lr_too_low",
        "warmup_missing",
        "does_not_learn",
        "init_zero",
        "validation_normalised_otherwise",
    }
)
"""Causes that may still be missing from the doctor's own list, since their checks are being built."""

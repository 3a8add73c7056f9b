"""What goes with weights that say nothing of their pictures and classes: what a folder given as config says of them, or
what is known of the code such files come from."""

from __future__ import annotations

from dataclasses import replace

from vitscope.data.config import NORMALISATIONS, PreprocessConfig
from vitscope.models.config import ModelConfig, pair
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.given_config import Given
from vitscope.weights.match import Format
from vitscope.weights.names import cleaned
from vitscope.weights.source import Source


def with_what_is_known(
    opened: Source, given: Given | None, by: Format, config: ModelConfig
) -> tuple[Source, list[str]]:
    """The source with preprocessing and class names, where they are to be had, and what is to be said of it."""
    if opened.config is not None:  # a folder speaks for itself
        return opened, []
    remarks = []
    if given is not None and given.folder is not None:
        brought = {"preprocessing": given.preprocessing, "class names": given.labels}
        words = [word for word, held in brought.items() if held is not None]
        opened = replace(opened, preprocessing=given.preprocessing, labels=given.labels)
        remarks = [f"{' and '.join(words)}: those of {given.folder}, given as config"] if words else []
    if opened.preprocessing is None:
        known = normalisation_of(opened, by)
        if known is not None:
            opened = replace(opened, preprocessing=normalised(known, config))
            whose = "ImageNet's" if known == "imagenet" else "0.5"
            remarks.append(
                f"mean and std are {whose}, as the code has it that writes such files ({by.normalised_by or by.name})"
            )
    return opened, remarks


def normalisation_of(opened: Source, by: Format) -> str | None:
    return by.normalisation(cleaned(opened.weights))


def normalised(name: str, config: ModelConfig) -> PreprocessConfig:
    """Mean and std by their name, for a model of `config`; size, cut and resampling are those of every new model."""
    mean, std = NORMALISATIONS[name]
    plain = PreprocessConfig(img_size=pair(config.img_size), in_chans=len(mean), mean=mean, std=std)
    return fitted_preprocessing(plain, config) or plain

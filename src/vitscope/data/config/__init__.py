"""Settings of the data room, one file per thing that is set. Imports neither torch nor numpy."""

from vitscope.data.config.augment import STRENGTHS, AugmentConfig, augmentation, strength_of
from vitscope.data.config.builtin import DigitsConfig, ShapesConfig, SyntheticConfig
from vitscope.data.config.data import DataConfig
from vitscope.data.config.preprocess import NORMALISATIONS, PreprocessConfig, half_normalised

__all__ = [
    "NORMALISATIONS",
    "STRENGTHS",
    "AugmentConfig",
    "DataConfig",
    "DigitsConfig",
    "PreprocessConfig",
    "ShapesConfig",
    "SyntheticConfig",
    "augmentation",
    "half_normalised",
    "strength_of",
]

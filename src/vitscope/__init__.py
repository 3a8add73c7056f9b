"""vitscope: a workbench for Vision Transformers.

    import vitscope
    vitscope.list_models("vit_*")
    model = vitscope.create_model("vit_small", num_classes=10)
    vitscope.save_model(model, "my-model"); model = vitscope.load_model("my-model")
    vitscope.Predictor.load("my-model").classify("photos/")
    pictures = vitscope.open_dataset("cifar10"); loader = vitscope.make_loader(pictures, "train", preprocess=...)
    print(vitscope.check_up(model, loader, loss=..., optimizer=...)); print(vitscope.examine_run("runs/first"))
    run = vitscope.fit(vitscope.TrainConfig(...)); vitscope.read_run(run.folder.path).best

Names are resolved when they are first used, so that `import vitscope` is quick and pulls in nothing heavy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from vitscope.version import __version__

if TYPE_CHECKING:
    from vitscope.core.errors import VitscopeError
    from vitscope.core.run_view import RunView, read_run
    from vitscope.data.config import AugmentConfig, DataConfig, PreprocessConfig, augmentation
    from vitscope.data.dataset import open_dataset
    from vitscope.data.decode import decode_image
    from vitscope.data.loaders.choose import make_loader
    from vitscope.doctor.check_up import check_up
    from vitscope.doctor.examination import Report
    from vitscope.doctor.run_door import examine_run
    from vitscope.doctor.settings_door import examine_settings
    from vitscope.infer.ensemble import Ensemble
    from vitscope.infer.explain.attention import AttentionMaps
    from vitscope.infer.explain.explain import explain
    from vitscope.infer.explain.explanation import Explanation
    from vitscope.infer.explain.feature_maps import FeatureMaps, feature_maps_of
    from vitscope.infer.export.export import ExportReport, export_model
    from vitscope.infer.features.features import Features
    from vitscope.infer.features.files import read_features
    from vitscope.infer.prediction import Guess, Prediction
    from vitscope.infer.predictor import Predictor
    from vitscope.models.config import (
        CNNConfig,
        LSTMConfig,
        MAEConfig,
        ResNetConfig,
        SimMIMConfig,
        SwinConfig,
        ViTConfig,
    )
    from vitscope.models.variants import list_models, model_config, register_model
    from vitscope.sparse.config import SparseConfig
    from vitscope.sparse.sparsify import sparsify
    from vitscope.sparse.surgery import shrink
    from vitscope.train.config import (
        CheckpointConfig,
        LoopConfig,
        LossConfig,
        ModelSection,
        OptimConfig,
        PrecisionConfig,
        ScheduleConfig,
        TrainConfig,
        named_model,
    )
    from vitscope.train.evaluate import evaluate
    from vitscope.train.fit import fit
    from vitscope.train.replay import replay_bad_step
    from vitscope.train.show.observer import Observer
    from vitscope.weights.adapt import Resampling
    from vitscope.weights.convert import convert
    from vitscope.weights.create import create_model
    from vitscope.weights.folder import load_labels, load_preprocessing, save_model
    from vitscope.weights.load import load_model

_HOMES = {
    "VitscopeError": "vitscope.core.errors",
    "RunView": "vitscope.core.run_view",
    "read_run": "vitscope.core.run_view",
    "AugmentConfig": "vitscope.data.config",
    "DataConfig": "vitscope.data.config",
    "PreprocessConfig": "vitscope.data.config",
    "augmentation": "vitscope.data.config",
    "open_dataset": "vitscope.data.dataset",
    "decode_image": "vitscope.data.decode",
    "make_loader": "vitscope.data.loaders.choose",
    "check_up": "vitscope.doctor.check_up",
    "Report": "vitscope.doctor.examination",
    "examine_run": "vitscope.doctor.run_door",
    "examine_settings": "vitscope.doctor.settings_door",
    "Ensemble": "vitscope.infer.ensemble",
    "ExportReport": "vitscope.infer.export.export",
    "export_model": "vitscope.infer.export.export",
    "AttentionMaps": "vitscope.infer.explain.attention",
    "explain": "vitscope.infer.explain.explain",
    "Explanation": "vitscope.infer.explain.explanation",
    "FeatureMaps": "vitscope.infer.explain.feature_maps",
    "feature_maps_of": "vitscope.infer.explain.feature_maps",
    "Features": "vitscope.infer.features.features",
    "read_features": "vitscope.infer.features.files",
    "Guess": "vitscope.infer.prediction",
    "Prediction": "vitscope.infer.prediction",
    "Predictor": "vitscope.infer.predictor",
    "CNNConfig": "vitscope.models.config",
    "LSTMConfig": "vitscope.models.config",
    "MAEConfig": "vitscope.models.config",
    "ResNetConfig": "vitscope.models.config",
    "SimMIMConfig": "vitscope.models.config",
    "SwinConfig": "vitscope.models.config",
    "ViTConfig": "vitscope.models.config",
    "list_models": "vitscope.models.variants",
    "model_config": "vitscope.models.variants",
    "register_model": "vitscope.models.variants",
    "SparseConfig": "vitscope.sparse.config",
    "shrink": "vitscope.sparse.surgery",
    "sparsify": "vitscope.sparse.sparsify",
    "CheckpointConfig": "vitscope.train.config",
    "LoopConfig": "vitscope.train.config",
    "LossConfig": "vitscope.train.config",
    "ModelSection": "vitscope.train.config",
    "OptimConfig": "vitscope.train.config",
    "PrecisionConfig": "vitscope.train.config",
    "ScheduleConfig": "vitscope.train.config",
    "TrainConfig": "vitscope.train.config",
    "named_model": "vitscope.train.config",
    "evaluate": "vitscope.train.evaluate",
    "fit": "vitscope.train.fit",
    "Observer": "vitscope.train.show.observer",
    "replay_bad_step": "vitscope.train.replay",
    "Resampling": "vitscope.weights.adapt",
    "convert": "vitscope.weights.convert",
    "create_model": "vitscope.weights.create",
    "load_labels": "vitscope.weights.folder",
    "load_model": "vitscope.weights.load",
    "load_preprocessing": "vitscope.weights.folder",
    "save_model": "vitscope.weights.folder",
}

__all__ = [
    "AttentionMaps",
    "AugmentConfig",
    "CNNConfig",
    "CheckpointConfig",
    "DataConfig",
    "Ensemble",
    "Explanation",
    "ExportReport",
    "FeatureMaps",
    "Features",
    "Guess",
    "LSTMConfig",
    "LoopConfig",
    "LossConfig",
    "MAEConfig",
    "ModelSection",
    "Observer",
    "OptimConfig",
    "PrecisionConfig",
    "Prediction",
    "Predictor",
    "PreprocessConfig",
    "Report",
    "ResNetConfig",
    "Resampling",
    "RunView",
    "ScheduleConfig",
    "SimMIMConfig",
    "SparseConfig",
    "SwinConfig",
    "TrainConfig",
    "ViTConfig",
    "VitscopeError",
    "__version__",
    "augmentation",
    "check_up",
    "convert",
    "create_model",
    "decode_image",
    "evaluate",
    "examine_run",
    "examine_settings",
    "explain",
    "export_model",
    "feature_maps_of",
    "fit",
    "list_models",
    "load_labels",
    "load_model",
    "load_preprocessing",
    "make_loader",
    "model_config",
    "named_model",
    "open_dataset",
    "read_features",
    "read_run",
    "register_model",
    "replay_bad_step",
    "save_model",
    "shrink",
    "sparsify",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'vitscope' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)

"""`import vitscope`: every public name is there, and nothing heavy comes with it."""

from __future__ import annotations

import importlib
import inspect
import subprocess
import sys

import pytest

import vitscope
from vitscope.models.build import build_model


@pytest.mark.parametrize("name", vitscope.__all__)
def test_every_public_name_resolves(name: str) -> None:
    assert getattr(vitscope, name) is not None
    assert name in dir(vitscope)


def test_the_names_of_the_design_are_public() -> None:
    wanted = "list_models model_config register_model create_model load_model save_model convert load_labels"
    wanted += " load_preprocessing"
    wanted += " ViTConfig SwinConfig ResNetConfig CNNConfig LSTMConfig MAEConfig SimMIMConfig PreprocessConfig"
    assert {*wanted.split(), "VitscopeError"} <= set(vitscope.__all__)
    assert len(set(vitscope.__all__)) == len(vitscope.__all__)


def test_dir_shows_the_public_names_and_nothing_else() -> None:
    assert dir(vitscope) == sorted(vitscope.__all__)


def test_loading_takes_a_source_and_gives_a_model() -> None:
    source, *settings = inspect.signature(vitscope.load_model).parameters.values()
    assert source.name == "source"
    assert all(setting.kind is inspect.Parameter.KEYWORD_ONLY for setting in settings)
    for function in (vitscope.load_model, vitscope.create_model, build_model):
        assert inspect.signature(function).return_annotation == "VisionModel"


@pytest.mark.parametrize("name", [name for name in vitscope.__all__ if name != "__version__"])
def test_a_public_name_is_the_thing_itself_with_a_docstring(name: str) -> None:
    thing = getattr(vitscope, name)
    home = importlib.import_module(thing.__module__)
    assert getattr(home, name) is thing
    assert thing.__doc__


def test_star_import_gives_all_of_them() -> None:
    names: dict[str, object] = {}
    exec("from vitscope import *", names)
    assert set(vitscope.__all__) <= set(names)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'vitscope' has no attribute 'creat_model'"):
        vitscope.creat_model  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(vitscope, "__wrapped__")


def test_import_is_light() -> None:
    """Neither the heavy core packages nor any extra is imported before it is needed."""
    heavy = "torch torchvision matplotlib numpy PIL sklearn pyarrow tyro rich pydantic tensorboard safetensors"
    extras = "optuna fastapi uvicorn onnx onnxruntime torchao timm transformers huggingface_hub"
    code = (
        "import sys, vitscope; vitscope.__version__; dir(vitscope)\n"
        f"print(*sorted(set('{heavy} {extras}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_building_a_model_brings_no_pictures_and_no_extras() -> None:
    unwanted = "torchvision matplotlib sklearn PIL rich tyro optuna fastapi onnx timm transformers tensorboard pyarrow"
    code = (
        "import sys, vitscope; vitscope.create_model('vit_tiny', depth=1); vitscope.load_model\n"
        f"print(*sorted(set('{unwanted}'.split()) & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_asking_a_model_brings_neither_transforms_nor_a_compiler() -> None:
    """torchvision and torch's compiler, which it imports, take as long as torch itself."""
    code = (
        "import sys, numpy, vitscope\n"
        "from vitscope.data.loaders.choose import make_loader\n"
        "model = vitscope.create_model('vit_tiny', depth=1)\n"
        "vitscope.Predictor(model, device='cpu').classify([numpy.zeros((40, 50, 3), 'uint8')])\n"
        "pictures = vitscope.open_dataset('shapes:size=32,count=100')\n"
        "next(iter(make_loader(pictures, 'val', preprocess=32).epoch(0)))\n"
        "print(*sorted({'torchvision', 'torch._dynamo', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""

"""Asking a model on a GPU: however it is launched, in whatever numbers, answers are the same but for rounding."""

from __future__ import annotations

import pytest
import torch

from vitscope import Predictor, create_model
from vitscope.core.environment import why_no_compiler
from vitscope.core.packages import version_of
from vitscope.infer.cheaper.sensitivity import agreement
from vitscope.infer.launched import LAUNCHES, Launch, launched
from vitscope.models.model import VisionModel

CUDA = torch.device("cuda")


@pytest.fixture(scope="module")
def model() -> VisionModel:
    torch.manual_seed(0)
    made = create_model("vit_tiny", depth=2, num_classes=10).eval()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.05)
    return made


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("launch", LAUNCHES)
def test_every_launch_gives_each_picture_its_answer(model: VisionModel, launch: Launch) -> None:
    if launch.startswith("compiled") and why_no_compiler("cuda") is not None:
        pytest.skip("no C compiler")
    asked = model.to(CUDA)
    torch.manual_seed(1)
    images = torch.randn(11, 3, 32, 32, device=CUDA)
    forward = launched(asked, launch, device=CUDA, batch_size=4)
    with torch.inference_mode():
        wanted = asked(images)
        first = forward(images)
        again = forward(images.flip(0))
    torch.testing.assert_close(first, wanted, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(again, wanted.flip(0), atol=1e-3, rtol=1e-3)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="one GPU or none")
def test_a_graph_on_a_gpu_that_is_not_the_current_one(model: VisionModel) -> None:
    second = torch.device("cuda:1")
    asked = model.to(second)
    forward = launched(asked, "graph", device=second, batch_size=4)
    with torch.inference_mode():
        for seed in (1, 2):  # what was never recorded would give its first answer again
            images = torch.randn(4, 3, 32, 32, generator=torch.Generator().manual_seed(seed)).to(second)
            torch.testing.assert_close(forward(images), asked(images), atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("dtype", ["bf16", "fp16", "int8", "int8_weights"])
def test_smaller_numbers_agree_with_floats(model: VisionModel, dtype: str) -> None:
    if dtype.startswith("int8") and version_of("torchao") is None:
        pytest.skip("torchao is not installed")
    torch.manual_seed(2)
    images = torch.randn(64, 3, 32, 32, device=CUDA)
    plain = Predictor(create_like(model), device="cuda")
    small = Predictor(create_like(model), device="cuda", dtype=dtype)  # pyright: ignore[reportArgumentType]
    with torch.inference_mode():
        wanted, found = plain.logits(images), small.logits(images.to(small.dtype)).float()
    assert agreement(wanted.cpu(), found.cpu()) > 0.9
    assert not torch.equal(wanted, found)


def create_like(model: VisionModel) -> VisionModel:
    other = create_model("vit_tiny", depth=2, num_classes=10).eval()
    other.load_state_dict(model.state_dict())
    return other

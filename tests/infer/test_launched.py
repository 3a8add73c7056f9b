"""However a forward pass is launched, every picture gets its own answer."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

from vitscope import create_model
from vitscope.core import environment
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.infer import launched as launched_module
from vitscope.infer.launched import launched

CPU = torch.device("cpu")


@pytest.mark.parametrize("count", [1, 3, 4, 5, 9])
def test_batches_are_filled_up_to_one_size_and_cut_again(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def forward(images: Tensor) -> Tensor:
        seen.append(len(images))
        return images.flatten(1).sum(1, keepdim=True)

    monkeypatch.setattr(launched_module, "_compiled", lambda forward: forward)
    monkeypatch.setattr(launched_module, "why_no_compiler", lambda device: None)
    images = torch.arange(count * 12.0).reshape(count, 3, 2, 2)
    answers = launched(forward, "compiled", device=CPU, batch_size=4)(images)
    assert torch.equal(answers, images.flatten(1).sum(1, keepdim=True))
    assert set(seen) == {4}
    assert len(seen) == -(-count // 4)


def test_eager_is_the_function_itself() -> None:
    assert launched(torch.relu, "eager", device=CPU, batch_size=4) is torch.relu


def test_what_a_device_cannot_do_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no CUDA graphs"):
        launched(torch.relu, "graph", device=CPU, batch_size=1)
    with pytest.raises(UsageError, match="one of eager, compiled"):
        launched(torch.relu, "quick", device=CPU, batch_size=1)  # pyright: ignore[reportArgumentType]
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert environment.why_no_compiler("cpu") == "no compiler found (no-such-compiler)"
    with pytest.raises(VitscopeError, match="no-such-compiler"):
        launched(torch.relu, "compiled", device=CPU, batch_size=1)


def test_what_the_compiler_says_to_its_makers_is_not_heard_and_all_else_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    said = ["Int8Tensor does not implement _stable_hash_for_caching. For PT2-compatible"]
    logger = logging.getLogger("torch.utils.cpp_extension")

    def compiled(forward: Any, **settings: Any) -> Any:
        def talking(images: Tensor) -> Tensor:
            for text in said:
                warnings.warn(text, UserWarning, stacklevel=1)
            logger.warning("No CUDA runtime is found, using CUDA_HOME='%s'", "/usr/local")
            logger.warning("something else")
            return forward(images)

        return talking

    monkeypatch.setattr(torch, "compile", compiled)
    monkeypatch.setattr(launched_module, "why_no_compiler", lambda device: None)
    assert launched(torch.relu, "compiled", device=CPU, batch_size=1)(torch.ones(1)) == 1
    assert [record.getMessage() for record in caplog.records] == ["something else"]
    said.append("something that matters")
    with pytest.warns(UserWarning, match="something that matters"):
        launched(torch.relu, "compiled", device=CPU, batch_size=1)(torch.ones(1))
    said.pop()
    with pytest.warns(UserWarning, match="_stable_hash"):
        compiled(torch.relu)(torch.ones(1))
    assert logger.filters == []


@pytest.mark.slow
def test_compiled_models_answer_as_eager_ones_however_many_there_are() -> None:
    """torch stops compiling at one place after eight versions; each of ours has a place of its own."""
    if environment.why_no_compiler("cpu") is not None:
        pytest.skip("no C++ compiler")
    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2, fail_on_recompile_limit_hit=True):  # pyright: ignore
        for seed in range(4):
            torch.manual_seed(seed)
            model = create_model("vit_tiny", depth=1, embed_dim=32, num_heads=2).eval()
            images = torch.randn(3, 3, 32, 32)
            with torch.inference_mode():
                found = launched(model, "compiled", device=CPU, batch_size=4)(images)
                torch.testing.assert_close(found, model(images), atol=1e-5, rtol=1e-5)

"""Attention over few tokens: its kernels in Triton's interpreter (on a GPU: tests/gpu), and who may call it."""

from __future__ import annotations

import logging
import subprocess
import sys
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode

from models.interpreted import checks_passed
from vitscope.core.errors import InputError
from vitscope.models import layers
from vitscope.models.layers import short_attention as short
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.short_attention import is_short, short_attention


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_compute_attention_and_its_gradient() -> None:
    """Against float64, with NaN around every tensor; the operator's rules; the layer that uses it, compiled too."""
    assert checks_passed("short_attention_on_cpu.py") == 5


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_cpu_keeps_the_usual_way(dtype: torch.dtype) -> None:
    assert not is_short(torch.zeros(2, 65, 3 * 64, dtype=dtype), 1)
    assert not is_short(torch.zeros(2, 65, 3 * 64, dtype=dtype, device="meta"), 1)


def test_the_layer_needs_no_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from vitscope.models.layers.attention import Attention\n"
        "print(tuple(Attention(64, 2, 32)(torch.randn(2, 17, 64)).shape))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(2, 17, 64)"


# --- kernels that do not run ----------------------------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Every tensor is taken for one the kernels are written for, and nothing is known of them yet. What they are asked
    for is noted; they fail as Triton does where there is no C compiler."""
    asked: list[str] = []

    def fails(which: str) -> Any:
        def kernel(*given: Any) -> Tensor:
            asked.append(which)
            raise RuntimeError("Failed to find C compiler. Please specify via CC\nmore of it")

        return kernel

    kernels = SimpleNamespace(forward=fails("forward"), backward=fails("backward"))
    monkeypatch.setattr(layers, "short_kernels", kernels, raising=False)
    monkeypatch.setattr(short, "can_take", lambda qkv, heads: True)
    monkeypatch.setattr(short.PROOF, "why_not", {})
    return asked


def gradients(network: Any, x: Tensor, owner: nn.Module) -> list[Tensor]:
    x = x.clone().requires_grad_()
    out = network(x)
    return [out.detach(), *torch.autograd.grad(out.sin().sum(), [x, *owner.parameters()])]


def test_what_does_not_run_goes_the_usual_way_and_says_so_once(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    torch.manual_seed(0)
    layer, x = Attention(64, 2, 32), torch.randn(3, 17, 64)
    with monkeypatch.context() as usual:
        usual.setattr(short, "can_take", lambda qkv, heads: False)
        wanted = gradients(layer, x, layer)
    with caplog.at_level(logging.WARNING, "vitscope"):
        for n in (17, 17, 9):
            found = gradients(layer, x[:, :n], layer)
            if n == 17:
                assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.endswith("our kernels do not run here (RuntimeError: Failed to find C compiler. Please specify via CC)")
    assert asked == ["forward"] * 2, "each size is tried once, and the backward pass only where the forward one runs"


def test_what_was_compiled_before_it_was_tried_goes_on_too(asked: list[str]) -> None:
    """In a trace nothing is tried; the operators find out when they run, and do the same work."""
    torch.manual_seed(0)
    layer, x = Attention(64, 2, 32).double(), torch.randn(3, 17, 64, dtype=torch.float64)
    wanted = gradients(layer, x, layer)
    asked.clear()
    short.PROOF.why_not.clear()
    traced: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        traced.extend(str(node.target) for node in graph.graph.nodes)
        assert asked == []
        return graph.forward

    torch._dynamo.reset()
    found = gradients(torch.compile(layer, backend=backend, fullgraph=True), x, layer)
    assert "vitscope.short_attention.default" in traced
    assert asked == ["forward", "backward"]
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


def test_training_asks_for_both_passes_beforehand(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A step must not go one way forward and the other way back the first time, and then never again."""
    monkeypatch.setattr(layers.short_kernels, "forward", lambda qkv, heads: asked.append("forward"))  # pyright: ignore
    qkv = torch.zeros(2, 17, 3 * 64, requires_grad=True)
    assert not is_short(qkv, 2)
    assert asked == ["forward", "backward"]
    with torch.no_grad():
        assert is_short(qkv, 2), "the forward pass runs"


def test_nothing_is_tried_while_a_cuda_graph_is_recorded(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with FakeTensorMode():
        assert not short._runs("forward", torch.empty(2, 17, 3 * 64, device="cuda", dtype=torch.half), 2)
    assert asked == []
    assert short.PROOF.why_not == {}


def test_short_memory_says_nothing_about_a_kernel(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> Tensor:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(layers.short_kernels, "forward", full)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(torch.OutOfMemoryError):
        is_short(torch.zeros(2, 17, 3 * 64), 2)
    assert short.PROOF.why_not == {}


def test_a_tensor_without_values_proves_nothing(asked: list[str]) -> None:
    with FakeTensorMode():
        assert is_short(torch.empty(2, 17, 3 * 64), 2)
    assert asked == []
    assert short.PROOF.why_not == {}


def test_what_is_exported_has_no_operator_of_ours(asked: list[str]) -> None:
    """It runs where vitscope is not installed. torch.compile must not be taken for it."""
    layer, x = Attention(64, 2, 32).eval(), torch.randn(2, 17, 64)
    targets = [str(node.target) for node in torch.export.export(layer, (x,)).graph.nodes]
    assert any("scaled_dot_product_attention" in target for target in targets)
    assert not any("vitscope" in target for target in targets)
    assert asked == []


@pytest.mark.parametrize(
    ("shape", "dtype", "heads"),
    [
        ((2, 65, 3 * 48), torch.float32, 1),
        ((2, 257, 3 * 64), torch.float32, 1),
        ((2, 0, 3 * 64), torch.float32, 1),
        ((2, 65, 3 * 64), torch.float32, 5),
        ((2, 65, 3 * 64), torch.float32, 0),
        ((2, 65, 3 * 64), torch.int64, 1),
        ((65, 3 * 64), torch.float32, 1),
    ],
)
def test_what_no_kernel_is_written_for_is_refused(shape: tuple[int, ...], dtype: torch.dtype, heads: int) -> None:
    qkv = torch.zeros(shape, dtype=dtype)
    with pytest.raises(InputError, match=r"qkv: expected \(B, N, 3 h d\) of floats, N from 1 to 256, .*, received \("):
        short_attention(qkv, heads)
    assert not is_short(qkv, heads)


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_a_kernel_names_its_most_tokens() -> None:
    from vitscope.models.layers import short_kernels

    with pytest.raises(InputError, match="at most 256 tokens of 64 numbers per head, received 300 of 64"):
        short_kernels.forward(torch.zeros(1, 300, 3 * 64), 1)

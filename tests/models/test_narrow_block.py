"""Narrow blocks in three kernels: in Triton's interpreter (on a GPU: tests/gpu), and which blocks may take them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vitscope.models import layers
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import narrow_block
from vitscope.models.layers.block import Block
from vitscope.models.model import VisionModel

PROGRAM = Path(__file__).parent / "narrow_block_on_cpu.py"


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_compute_a_block() -> None:
    """Against float64, with NaN around every tensor; the operators' rules; blocks that use them, compiled too."""
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("passed") == 4


def network(**changed: Any) -> VisionModel:
    torch.manual_seed(0)
    settings = {"img_size": 16, "patch_size": 4, "num_classes": 3, "embed_dim": 64, "depth": 2, "num_heads": 2}
    model = build_model(ViTConfig(**{**settings, **changed})).bfloat16().eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    return model


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """All tokens are taken for some the kernels are written for, and nothing is known of these yet. What they are asked
    for is noted; they fail as Triton does where there is no C compiler."""
    asked: list[str] = []

    def fails(which: str) -> Callable[..., Tensor]:
        def kernel(*given: Any) -> Tensor:
            asked.append(which)
            raise RuntimeError("Failed to find C compiler. Please specify via CC\nmore of it")

        return kernel

    monkeypatch.setattr(layers, "block_kernels", SimpleNamespace(begin=fails("begin"), end=fails("end")), raising=False)
    monkeypatch.setattr(narrow_block, "can_take", lambda x: not torch.is_grad_enabled())
    monkeypatch.setattr(narrow_block.PROOF, "why_not", {})
    return asked


IMAGES = torch.linspace(-1, 1, 2 * 3 * 16 * 16, dtype=torch.bfloat16).view(2, 3, 16, 16)


def test_a_cpu_keeps_the_usual_way() -> None:
    with torch.no_grad():
        for device in ("cpu", "meta"):
            assert not narrow_block.can_take(torch.zeros(256, 65, 192, dtype=torch.bfloat16, device=device))


def test_a_network_needs_no_triton() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch, vitscope\n"
        "model = vitscope.create_model('vit_tiny', depth=1).bfloat16().eval()\n"
        "with torch.no_grad(): print(tuple(model(torch.zeros(1, 3, 32, 32).bfloat16()).shape))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "(1, 10)"


def test_what_does_not_run_goes_the_usual_way_and_says_so_once(
    asked: list[str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model = network()
    with torch.no_grad(), monkeypatch.context() as usual:
        usual.setattr(narrow_block, "can_take", lambda x: False)
        wanted = model(IMAGES)
    with torch.no_grad(), caplog.at_level(logging.WARNING, "vitscope"):
        for _ in range(2):
            assert torch.equal(model(IMAGES), wanted)
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("what lies between two attentions goes PyTorch's way: our kernels do not run here (Runtime")
    assert asked == ["begin"], "the same sizes are tried once, and the end only where the beginning runs"


def test_what_was_compiled_before_it_was_tried_goes_on_too(asked: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """In a trace nothing is tried; the operators find out when they run, and do the same work."""
    model = network(num_heads=(2, 0), head_dim=32)
    with torch.no_grad(), monkeypatch.context() as usual:
        usual.setattr(narrow_block, "can_take", lambda x: False)
        wanted = model(IMAGES)
    traced: list[str] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        traced.extend(str(node.target) for node in graph.graph.nodes)
        assert asked == []
        return graph.forward

    torch._dynamo.reset()
    with torch.no_grad():
        found = torch.compile(model, backend=backend, fullgraph=True)(IMAGES)
    operators = [name for name in traced if name.startswith("vitscope.")]
    assert operators == ["vitscope.begin_block.default", "vitscope.end_block.default", "vitscope.end_block.default"]
    assert asked == ["begin", "end", "end"]
    torch.testing.assert_close(found, wanted)


def test_what_is_exported_has_no_operator_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """It runs where vitscope is not installed."""
    monkeypatch.setattr(narrow_block, "HAS_TRITON", True)
    monkeypatch.setattr(narrow_block, "is_measured", lambda device: True)
    monkeypatch.setattr(narrow_block, "LEAST_TOKENS", {64: 1})
    answers: list[bool] = []

    class OnGpu(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            answers.append(narrow_block.can_take(_seen_on_gpu(x)))
            return x + 1

    x = torch.zeros(2, 17, 64, dtype=torch.bfloat16)
    with torch.no_grad():
        assert narrow_block.can_take(_seen_on_gpu(x))
        torch.export.export(OnGpu(), (x,))
    assert answers == [False] * len(answers)
    assert answers


def _seen_on_gpu(x: Tensor) -> SimpleNamespace:
    return SimpleNamespace(
        is_cuda=True, dtype=x.dtype, ndim=x.ndim, shape=x.shape, is_contiguous=lambda: True, device=torch.device("cuda")
    )


# --- blocks whose layers are asked one by one -----------------------------------------------------------------------


class OtherLinear(nn.Linear):
    """Somebody's own layer: it says twice as much."""

    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class OtherWeight(nn.Parameter):
    """Weights of a kind of their own, as 8-bit and sparse ones are."""


def _other_layer(block: Block) -> None:
    layer = OtherLinear(64, 256, dtype=torch.bfloat16)
    layer.load_state_dict(block.mlp.fc1.state_dict())
    block.mlp.fc1 = layer


def _other_weight(block: Block) -> None:
    block.attn.proj.weight = OtherWeight(block.attn.proj.weight.data)


def _other_precision(block: Block) -> None:
    block.norm1.float()


def _hook(block: Block) -> None:
    block.mlp.fc2.register_forward_hook(lambda module, given, out: None)


def _hook_before(block: Block) -> None:
    block.attn.register_forward_pre_hook(lambda module, given: None)


def _other_activation(block: Block) -> None:
    block.mlp.act = torch.tanh


def _dropout_at_work(block: Block) -> None:
    block.mlp.drop.train()


@pytest.mark.parametrize(
    "change",
    [_other_layer, _other_weight, _other_precision, _hook, _hook_before, _other_activation, _dropout_at_work],
    ids=lambda change: change.__name__[1:],
)
def test_a_block_that_was_changed_is_asked_layer_by_layer(change: Callable[[Block], None]) -> None:
    block: Block = network().blocks[0]
    assert narrow_block.is_as_built(block, torch.bfloat16)
    change(block)
    assert not narrow_block.is_as_built(block, torch.bfloat16)


@pytest.mark.parametrize(
    "other",
    [
        {"norm_order": "post"},
        {"layer_scale": 1e-5},
        {"mlp": "swiglu"},
        {"embed_dim": 96, "num_heads": 2, "head_dim": 24},
        {"num_heads": (2, 2), "head_dim": 32, "mlp_dim": (0, 64)},
    ],
    ids=str,
)
def test_what_the_kernels_are_not_written_for(other: dict[str, Any]) -> None:
    assert not narrow_block.is_as_built(network(**other).blocks[0], torch.bfloat16)


def test_hooks_inside_hear_as_always(asked: list[str]) -> None:
    model, heard = network(), list[str]()
    model.blocks[0].mlp.fc1.register_forward_hook(lambda *given: heard.append("inside"))
    model.blocks[1].register_forward_hook(lambda *given: heard.append("whole"))
    with torch.no_grad():
        model(IMAGES)
    assert heard == ["inside", "whole"]
    assert asked == ["begin"], "only the block without a hook inside"


def test_a_hook_for_all_modules_hears_as_always(asked: list[str]) -> None:
    model, heard = network(depth=1), list[str]()
    handle = nn.modules.module.register_module_forward_hook(lambda module, *given: heard.append(type(module).__name__))
    try:
        with torch.no_grad():
            model(IMAGES)
    finally:
        handle.remove()
    assert heard.count("Linear") == 5, "qkv, proj, fc1, fc2 and the head"
    assert asked == []

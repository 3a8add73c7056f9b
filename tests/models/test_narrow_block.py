"""Narrow blocks in three kernels: in Triton's interpreter (on a GPU: tests/gpu), and which blocks may take them."""

from __future__ import annotations

import copy
import logging
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.interpreted import checks_passed
from vitscope.models import layers
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.layers import block, narrow_block
from vitscope.models.layers.attention import Attention
from vitscope.models.layers.mlp import ACTIVATIONS, Mlp
from vitscope.models.layers.scale import LayerScale


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_kernels_compute_a_block() -> None:
    """Against float64, with NaN around every tensor; the operators' rules; blocks that use them, compiled too."""
    assert checks_passed("narrow_block_on_cpu.py") == 5


def network(**changed: Any) -> Any:
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


def test_a_cpu_keeps_the_usual_way(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    with torch.no_grad():
        for device in ("cpu", "meta"):
            assert not narrow_block.can_take(torch.zeros(256, 65, 192, dtype=torch.bfloat16, device=device))


def seen_on_gpu(shape: tuple[int, ...] = (256, 65, 192), **other: Any) -> Any:
    """Tokens as `can_take` would see them there."""
    given = {"dtype": torch.bfloat16, "is_contiguous": lambda: True, "device": torch.device("cuda"), "is_cuda": True}
    return SimpleNamespace(**{**given, "shape": shape, "ndim": len(shape), **other})


@pytest.fixture
def compiling(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    monkeypatch.setattr(narrow_block, "HAS_TRITON", True)
    monkeypatch.setattr(narrow_block, "is_measured", lambda device: device.index != 1)


@pytest.mark.usefixtures("compiling")
def test_which_tokens_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.no_grad():
        assert narrow_block.can_take(seen_on_gpu())
        assert narrow_block.can_take(seen_on_gpu((127, 65, 192)))
        assert narrow_block.can_take(seen_on_gpu((16, 64, 64), dtype=torch.float16))
        others = [
            {"shape": (126, 65, 192)},
            {"shape": (256, 65, 256)},
            {"shape": (256, 65, 160)},
            {"shape": (16640, 192)},
        ]
        others += [{"dtype": torch.float32}, {"is_contiguous": lambda: False}, {"is_cuda": False}]
        others += [{"device": torch.device("cuda", 1)}]
        for other in others:
            assert not narrow_block.can_take(seen_on_gpu(**other)), other
        with monkeypatch.context() as autocast:
            autocast.setattr(torch, "is_autocast_enabled", lambda device: device == "cuda")
            assert not narrow_block.can_take(seen_on_gpu())
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: False)
        assert not narrow_block.can_take(seen_on_gpu()), "launched one by one"
        monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not narrow_block.can_take(seen_on_gpu()), "gradients"


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
    assert line.startswith("what lies between two attentions falls back to PyTorch: our kernels do not run here (")
    assert asked == ["begin", "end"], "the same sizes are tried once"


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


@pytest.mark.usefixtures("compiling")
def test_what_is_exported_has_no_operator_of_ours() -> None:
    """It runs where vitscope is not installed."""
    answers: list[bool] = []

    class Asks(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            answers.append(narrow_block.can_take(seen_on_gpu()))
            return x + 1

    with torch.no_grad():
        assert narrow_block.can_take(seen_on_gpu())
        torch.export.export(Asks(), (torch.zeros(2),), strict=False)
    assert answers == [False]


# --- blocks whose layers are asked one by one -----------------------------------------------------------------------


TOKENS = torch.zeros(2, 17, 64, dtype=torch.bfloat16)


def exchanged(part: nn.Module, kind: type[nn.Module]) -> nn.Module:
    """The same part as one of a kind that somebody derived from its own."""
    other = copy.copy(part)
    other.__class__ = type(f"Other{kind.__name__}", (kind,), {})
    return other


class OtherWeight(nn.Parameter):
    """Weights of a kind of their own, as 8-bit and sparse ones are."""


class AlwaysDrops(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5)


CHANGES: dict[str, Callable[[Any], object]] = {
    "another attention": lambda block: setattr(block, "attn", exchanged(block.attn, Attention)),
    "another mlp": lambda block: setattr(block, "mlp", exchanged(block.mlp, Mlp)),
    "another fc1": lambda block: setattr(block.mlp, "fc1", exchanged(block.mlp.fc1, nn.Linear)),
    "another qkv": lambda block: setattr(block.attn, "qkv", exchanged(block.attn.qkv, nn.Linear)),
    "a proj without a weight": lambda block: setattr(block.attn, "proj", nn.Identity()),
    "another norm1": lambda block: setattr(block, "norm1", exchanged(block.norm1, nn.LayerNorm)),
    "another norm2": lambda block: setattr(block, "norm2", exchanged(block.norm2, nn.LayerNorm)),
    "a layer scale on the second branch": lambda block: setattr(block, "ls2", LayerScale(64, 0.1)),
    "something on the second branch": lambda block: setattr(block, "drop_path2", nn.Identity()),
    "dropout that never stops": lambda block: setattr(block.mlp, "drop", AlwaysDrops()),
    "and after attention": lambda block: setattr(block.attn, "proj_drop", AlwaysDrops()),
    "another activation": lambda block: setattr(block.mlp, "act", torch.tanh),
    "another forward": lambda block: setattr(block.mlp.fc1, "forward", lambda x: x),
    "a hook": lambda block: block.mlp.fc2.register_forward_hook(lambda *given: None),
    "a hook before": lambda block: block.attn.register_forward_pre_hook(lambda *given: None),
    "other weights": lambda block: setattr(block.attn.proj, "weight", OtherWeight(block.attn.proj.weight.data)),
    "another precision": lambda block: block.norm1.float(),
    "weights lying by columns": lambda block: setattr(block.mlp.fc1, "weight", _by_columns(block.mlp.fc1.weight)),
    "tied weights": lambda block: setattr(block.mlp.fc2, "weight", nn.Parameter(block.mlp.fc1.weight.data.t())),
    "a norm without a bias": lambda block: setattr(block.norm2, "bias", None),
    "fc2 without a bias": lambda block: setattr(block.mlp.fc2, "bias", None),
    "a norm over two axes": lambda block: setattr(block, "norm1", nn.LayerNorm((17, 64), dtype=torch.bfloat16)),
    "weights elsewhere": lambda block: block.norm2.to("meta"),
}


def _by_columns(weight: Tensor) -> nn.Parameter:
    return nn.Parameter(weight.data.t().contiguous().t())


@pytest.mark.parametrize("change", CHANGES)
def test_a_block_that_was_changed_is_asked_layer_by_layer(change: str) -> None:
    block = network().blocks[0]
    assert narrow_block.is_as_built(block, TOKENS)
    CHANGES[change](block)
    block.eval()
    assert not narrow_block.is_as_built(block, TOKENS)


def test_a_part_that_trains_is_asked_by_itself() -> None:
    block = network().blocks[0]
    block.mlp.drop.train()
    assert not narrow_block.is_as_built(block, TOKENS)


def test_blocks_it_is_written_for() -> None:
    assert narrow_block.is_as_built(network(qkv_bias=False).blocks[0], TOKENS)
    for act in ACTIVATIONS:
        copied = copy.deepcopy(network(act=act))
        assert narrow_block.is_as_built(copied.blocks[0], TOKENS), act
    empty = network(num_heads=(0, 2), head_dim=32).blocks[0]
    assert narrow_block.is_as_built(empty, TOKENS)
    empty.attn.proj.bias = None
    assert not narrow_block.is_as_built(empty, TOKENS)
    wide = torch.zeros(2, 17, 128, dtype=torch.bfloat16)
    assert not narrow_block.is_as_built(network().blocks[0], wide), "tokens of another width are the layers' to refuse"


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
    model = network(**other)
    tokens = torch.zeros(2, 17, model.config.embed_dim, dtype=torch.bfloat16)
    assert not narrow_block.is_as_built(model.blocks[0], tokens)


@pytest.mark.usefixtures("asked")
def test_hooks_inside_hear_as_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also one for all modules, while it is there."""
    model, heard, taken = network(), list[str](), list[Any]()
    monkeypatch.setattr(block, "narrow_block", lambda given, x, rope: taken.append(given) or x)
    model.blocks[0].mlp.fc1.register_forward_hook(lambda *given: heard.append("inside"))
    model.blocks[1].register_forward_hook(lambda *given: heard.append("whole"))
    with torch.no_grad():
        model(IMAGES)
        assert heard == ["inside", "whole"]
        assert taken == [model.blocks[1]], "the one without a hook inside"
        with nn.modules.module.register_module_forward_hook(lambda *given: None):
            model(IMAGES)
        assert len(taken) == 1
        model(IMAGES)
        assert len(taken) == 2

"""The type of the arithmetic, and a loss scale that moves as torch's own without asking the host."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from train.tiny_runs import batch, network, objective_of, state_of, take, weights
from vitscope.core.errors import ConfigError
from vitscope.models.variants import model_config
from vitscope.train import precision
from vitscope.train.config import PrecisionConfig
from vitscope.train.precision import (
    FIRST_SCALE,
    MOST_SCALE,
    LossScale,
    autocast,
    choose_dtype,
    using_precision,
)

CPU = torch.device("cpu")
NO, YES = torch.tensor(0.0), torch.tensor(1.0)


@pytest.mark.parametrize(
    ("wish", "wanted"), [("auto", None), ("fp32", None), ("bf16", torch.bfloat16), ("fp16", torch.float16)]
)
def test_the_type_on_a_cpu(wish: str, wanted: torch.dtype | None) -> None:
    assert choose_dtype(PrecisionConfig(dtype=wish), CPU) is wanted  # type: ignore[arg-type]


@pytest.mark.parametrize("able", [True, False])
def test_a_gpu_takes_bf16_where_it_can(monkeypatch: pytest.MonkeyPatch, able: bool) -> None:
    """What is only imitated, as on cards before Ampere, is slower than fp32. The card that trains is asked."""
    asked: list[torch.device] = []

    @contextlib.contextmanager
    def on(device: torch.device) -> Iterator[None]:
        asked.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", on)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: able or including_emulation)
    assert choose_dtype(PrecisionConfig(), torch.device("cuda:1")) is (torch.bfloat16 if able else None)
    assert asked == [torch.device("cuda:1")]


@pytest.mark.parametrize(
    ("model", "dtype", "device", "has", "wanted"),
    [
        ("vit_tiny", "auto", "cpu", True, True),
        ("guide_tiny", "auto", "cpu", True, False),  # 128 wide: the casts cost more
        ("resnet20", "auto", "cpu", True, True),
        ("mnist_lstm", "auto", "cpu", True, True),
        ("vit_tiny", "auto", "cpu", False, False),
        ("vit_tiny", "auto", "cpu", None, False),
        ("vit_tiny", "fp32", "cpu", True, False),  # asked for
        ("vit_tiny", "auto", "cuda", True, False),
    ],
)
def test_where_bf16_on_a_cpu_is_proposed(
    monkeypatch: pytest.MonkeyPatch, model: str, dtype: str, device: str, has: bool | None, wanted: bool
) -> None:
    monkeypatch.setattr(precision, "cpu_has_bf16", lambda: has)
    settings = PrecisionConfig(dtype=dtype)  # type: ignore[arg-type]
    assert precision.bf16_would_pay(settings, model_config(model), torch.device(device)) is wanted


def test_fp16_is_refused_on_mps() -> None:
    with pytest.raises(ConfigError, match=r"precision\.dtype: expected fp32 or bf16 on mps") as refused:
        choose_dtype(PrecisionConfig(dtype="fp16"), torch.device("mps"))
    assert refused.value.fix == "--precision.dtype bf16"


@pytest.mark.parametrize("dtype", [None, torch.bfloat16])
def test_products_are_of_the_type_and_weights_are_not(dtype: torch.dtype | None) -> None:
    layer = nn.Linear(4, 4)
    with autocast(CPU, dtype):
        assert layer(torch.ones(2, 4)).dtype is (dtype or torch.float32)
    assert layer.weight.dtype is torch.float32


def test_the_scale_moves_as_torchs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(precision, "GROWTH_STEPS", 3)
    scale = LossScale(CPU, torch.float16)
    peer, good = torch.full((), FIRST_SCALE), torch.zeros((), dtype=torch.int32)
    seen = set()
    for overflows in (0, 0, 0, 0, 1, 0, 0, 1, 1, 0, 0, 0, 0, 0, 0, 1):
        found = torch.tensor(float(overflows))
        torch._amp_update_scale_(peer, good, found, 2.0, 0.5, 3)  # pyright: ignore[reportPrivateImportUsage]
        scale.update(found, NO)
        assert float(scale.scale) == float(peer)
        assert float(scale.good_steps) == float(good)
        seen.add(float(peer))
    assert len(seen) > 3


def test_the_scale_grows_no_further_than_it_can_come_back_from(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a bound it would be infinite after 112 doublings, and half of that is infinite too."""
    monkeypatch.setattr(precision, "GROWTH_STEPS", 1)
    scale = LossScale(CPU, torch.float16)
    for _ in range(200):
        scale.update(NO, NO)
    assert float(scale.scale) == MOST_SCALE == 2.0**24
    scale.update(YES, NO)
    assert float(scale.scale) == 2.0**23


def as_torch_has_it() -> tuple[object, ...]:
    return (
        torch.get_float32_matmul_precision(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.backends.cudnn.benchmark,
    )


@pytest.fixture
def another_state() -> Iterator[tuple[object, ...]]:
    """Settings of torch's that differ from all defaults, so that putting back defaults is not enough."""
    before = as_torch_has_it()
    torch.set_float32_matmul_precision("medium")
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = True
    yield as_torch_has_it()
    torch.set_float32_matmul_precision(str(before[0]))
    torch.use_deterministic_algorithms(bool(before[1]), warn_only=bool(before[2]))
    torch.backends.cudnn.benchmark = bool(before[3])


@pytest.mark.parametrize("tf32", [True, False])
@pytest.mark.parametrize("deterministic", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_torchs_settings_are_changed_for_a_while(
    another_state: tuple[object, ...], monkeypatch: pytest.MonkeyPatch, tf32: bool, deterministic: bool, fails: bool
) -> None:
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    with contextlib.suppress(KeyError), using_precision(PrecisionConfig(tf32=tf32, deterministic=deterministic)):
        assert torch.get_float32_matmul_precision() == ("high" if tf32 else "highest")
        if deterministic:
            assert torch.are_deterministic_algorithms_enabled()
            assert not torch.is_deterministic_algorithms_warn_only_enabled()
            assert not torch.backends.cudnn.benchmark
        else:
            assert as_torch_has_it()[1:] == another_state[1:]
        if fails:
            raise KeyError
    assert as_torch_has_it() == another_state


def test_a_held_step_leaves_the_scale() -> None:
    scale = LossScale(CPU, torch.float16)
    scale.update(NO, NO)
    for overflowed in (NO, YES):
        scale.update(overflowed, YES)
        assert (float(scale.scale), float(scale.good_steps)) == (FIRST_SCALE, 1.0)


def test_without_fp16_the_scale_is_one_for_ever() -> None:
    for dtype in (None, torch.bfloat16):
        scale = LossScale(CPU, dtype)
        scale.update(YES, NO)
        assert float(scale.scale) == 1.0
        assert not scale.is_active


def test_the_scale_is_saved_and_loaded_in_its_memory() -> None:
    scale, other = LossScale(CPU, torch.float16), LossScale(CPU, torch.float16)
    scale.update(YES, NO)
    scale.update(NO, NO)
    place = other.scale.data_ptr()
    other.load_state_dict(scale.state_dict())
    assert (float(other.scale), float(other.good_steps)) == (FIRST_SCALE / 2, 1.0)
    assert other.scale.data_ptr() == place


def test_an_overflow_halves_the_scale_and_the_schedule_waits() -> None:
    """The gradients are unscaled before they are clipped, so that the scale itself changes no weight."""
    model, plain = network(), network()
    table = torch.tensor([0.1, 0.01])
    state = state_of(model, dtype=torch.float16, clip_norm=0.5, lr_table=table)
    state.dtype = None  # fp32 arithmetic under fp16's scale
    before = weights(model)
    state.scale.scale.fill_(3e38)  # overflows
    row = take(state, *batch())
    assert row["train/skipped"] == 1
    assert row["train/loss"] == pytest.approx(float(objective_of(state)(*batch())[0].detach()), rel=1e-5)
    assert row["train/loss_scale"] == pytest.approx(3e38), "the one that was used"
    assert float(state.scale.scale) == pytest.approx(1.5e38), "the next one"
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())
    state.scale.scale.fill_(1024.0)
    row = take(state, *batch())
    expected = take(state_of(plain, clip_norm=0.5, lr_table=table), *batch())
    assert row["train/lr"] == pytest.approx(0.1), "the skipped one did not count"
    assert row["train/grad_norm"] == pytest.approx(expected["train/grad_norm"], rel=1e-5)
    for name, value in weights(plain).items():
        torch.testing.assert_close(weights(model)[name], value)

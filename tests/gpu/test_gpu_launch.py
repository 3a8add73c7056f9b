"""One step, launched in several ways: all of them are the plain one, and none waits for the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_runs import DEVICE, DRY_VIT, RESNET, STRONG, VIT, differing, most_off, settings, trained

from vitscope.data.loaders.device import DeviceLoader
from vitscope.train import launch
from vitscope.train.state import TrainState

REPEATABLE = {"deterministic": True, "dtype": "fp32"}


@pytest.mark.parametrize("optim", ["adamw", "adam", "sgd", "muon"])
def test_a_graph_takes_the_steps_that_are_launched_kernel_by_kernel(optim: str, tmp_path: Path) -> None:
    ended = {
        how: trained(
            settings(
                DRY_VIT,
                augment=STRONG,
                optim={"name": optim, "clip_norm": 1.0, "lr": 1e-3},
                precision={**REPEATABLE, "launch": how},
                loop={"ema_decay": 0.99, "micro_batch": 50},
            ),
            tmp_path / how,
        )
        for how in ("eager", "graph")
    }
    assert "a step is one CUDA graph" in ended["graph"].log
    assert "a step is one CUDA graph" not in ended["eager"].log
    assert ended["graph"].losses == ended["eager"].losses
    assert differing(ended["graph"].state, ended["eager"].state) == []
    assert ended["graph"].test == ended["eager"].test


def test_a_graph_of_batches_made_elsewhere(tmp_path: Path) -> None:
    """The worker loader's last batch, if it is smaller, is a plain step between two replays."""
    ended = {
        how: trained(
            settings(
                DRY_VIT,
                data={"loader": "worker", "workers": 2},
                augment=STRONG,
                precision={**REPEATABLE, "launch": how},
            ),
            tmp_path / how,
        )
        for how in ("eager", "graph")
    }
    assert "a step is one CUDA graph" in ended["graph"].log
    assert ended["graph"].losses == ended["eager"].losses
    assert differing(ended["graph"].state, ended["eager"].state) == []


@pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores")
@pytest.mark.parametrize("how", ["compiled", "compiled_graph"])
def test_compiled_steps_are_the_plain_ones_to_rounding(how: str, tmp_path: Path) -> None:
    plain, fast = (
        trained(
            settings(DRY_VIT, augment=STRONG, precision={"dtype": "fp32", "launch": way}, loop={"epochs": 1}),
            tmp_path / way,
        )
        for way in ("eager", how)
    )
    assert "does not work here" not in fast.log
    assert "cannot be compiled" not in fast.log
    assert most_off(plain.losses[:8], fast.losses[:8]) < 2e-3


def test_a_gpu_takes_the_steps_the_cpu_takes(tmp_path: Path) -> None:
    there, here = (
        trained(
            settings(DRY_VIT, augment=STRONG, precision={"dtype": "fp32"}, loop={"epochs": 1, "device": device}),
            tmp_path / device,
        )
        for device in (DEVICE, "cpu")
    )
    assert most_off(there.losses[:8], here.losses[:8]) < 2e-3


@pytest.mark.filterwarnings("ignore:Synchronization debug mode is a prototype")
@pytest.mark.parametrize(
    ("model", "changed"),
    [
        (VIT, {"optim": {"name": "adamw"}, "loop": {"ema_decay": 0.99}}),
        (VIT, {"optim": {"name": "muon", "clip_norm": 1.0, "clip_value": 0.1, "l1": 1e-6}}),
        (VIT, {"optim": {"name": "sgd", "lr": 0.01}, "precision": {"dtype": "fp16"}, "loop": {"micro_batch": 50}}),
        (VIT, {"precision": {"grad_checkpointing": True}}),
        (VIT, {"loss": {"class_balance": 0.5}, "augment": {}}),
        (RESNET, {"optim": {"name": "adam"}}),
        ({"family": "cnn", "img_size": 32, "in_chans": 3}, {}),
    ],
    ids=["adamw", "muon", "fp16", "checkpointing", "balanced", "resnet", "cnn"],
)
def test_a_step_never_waits_for_the_host(
    model: dict[str, Any], changed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The LSTM is not among them: cuDNN's own asks the host."""
    taken, draw, step = [], DeviceLoader.draw, launch.train_step

    def alone(call: Any, *args: Any, **given: Any) -> Any:
        try:
            torch.cuda.set_sync_debug_mode("error")
            return call(*args, **given)
        finally:
            torch.cuda.set_sync_debug_mode("default")

    def stepping(*args: Any, **given: Any) -> None:
        alone(step, *args, **given)
        taken.append(args)

    monkeypatch.setattr(DeviceLoader, "draw", lambda loader: alone(draw, loader))
    monkeypatch.setattr(launch, "train_step", stepping)
    sections = {"augment": STRONG, **changed}
    sections["precision"] = {"launch": "eager", **changed.get("precision", {})}
    sections["loop"] = {"epochs": 1, **changed.get("loop", {})}
    trained(settings(model, **sections), tmp_path / "run")
    assert len(taken) > 10


def test_checkpointed_activations_give_the_same_steps_in_a_graph(tmp_path: Path) -> None:
    plain, thrifty = (
        trained(
            settings(VIT, augment=STRONG, precision={**REPEATABLE, "grad_checkpointing": saves}),
            tmp_path / str(saves),
        )
        for saves in (False, True)
    )
    assert "a step is one CUDA graph" in plain.log
    assert most_off(plain.losses[:8], thrifty.losses[:8]) < 1e-3
    dry = trained(settings(DRY_VIT, precision={**REPEATABLE, "grad_checkpointing": True}), tmp_path / "dry")
    assert "does not work here" not in dry.log


def test_a_capture_that_fails_is_an_eager_run(tmp_path: Path) -> None:
    def hook(state: TrainState) -> None:
        if torch.cuda.is_current_stream_capturing():
            state.updates.item()

    failing = trained(settings(precision=REPEATABLE), tmp_path / "failing", after_step=[hook])
    plain = trained(settings(precision={**REPEATABLE, "launch": "eager"}), tmp_path / "plain")
    assert "launch 'graph' does not work here" in failing.log
    assert failing.losses == plain.losses
    assert differing(failing.state, plain.state) == []


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_batch_that_does_not_fit_goes_in_parts(how: str, tmp_path: Path) -> None:
    large = {**VIT, "embed_dim": 768, "depth": 12, "num_heads": 12}
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + 5e9) / total)
    config = settings(
        large,
        data={"batch_size": 1024},
        schedule={"warmup": "0 steps"},
        precision={"launch": how},
        loop={"epochs": 1, "ema_decay": 0.9},
    )
    ended = trained(config, tmp_path / "run")
    assert ended.run.state == "finished"
    assert "out of memory with 1024 pictures at once: going on with micro_batch 512" in ended.log
    assert "does not work here" not in ended.log

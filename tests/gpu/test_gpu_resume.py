"""A run on a GPU that is stopped and resumed is the run that was not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from gpu_runs import STRONG, differing, settings, tensors, trained

from vitscope.train import resume
from vitscope.train.back import restore
from vitscope.train.checkpoints.store import Checkpoint
from vitscope.train.work import Work


@pytest.mark.parametrize(
    ("how", "optim", "loader", "micro_batch"),
    [
        ("graph", "muon", "device", None),
        ("graph", "adamw", "device", 50),
        ("graph", "adamw", "worker", None),
        ("eager", "sgd", "device", None),
        ("compiled_graph", "adamw", "device", None),
    ],
)
def test_the_curve_repeats_to_the_bit(
    how: str, optim: str, loader: str, micro_batch: int | None, tmp_path: Path
) -> None:
    """With dropout, drop path, mixes, EMA and accumulation."""
    config = settings(
        data={"loader": loader, **({"workers": 2} if loader == "worker" else {})},
        augment=STRONG,
        optim={"name": optim, "lr": 1e-3},
        precision={"launch": how, "deterministic": True},
        loop={"ema_decay": 0.99, "micro_batch": micro_batch},
    )
    whole = trained(config, tmp_path / "whole")
    stopped = trained(config, tmp_path / "parts", stop_at=17)
    resumed = trained(config, tmp_path / "parts", resume=True)
    assert stopped.run.state == "stopped"
    assert resumed.run.state == "finished"
    assert resumed.losses == whole.losses
    assert differing(resumed.state, whole.state) == []
    assert resumed.test == whole.test


def test_what_is_restored_is_what_was_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also without --deterministic, and into memory that a graph reads."""
    config = settings(augment=STRONG, optim={"name": "muon"}, loop={"ema_decay": 0.99})
    trained(config, tmp_path / "run", stop_at=10)
    saved, found = tensors(tmp_path / "run"), {}

    def looking(work: Work, checkpoint: Checkpoint) -> list[str]:
        forgotten = restore(work, checkpoint)

        def walk(name: str, value: Any) -> None:
            if isinstance(value, torch.Tensor):
                found[name] = value.detach().cpu().clone()
            elif isinstance(value, dict):
                for key, inner in value.items():
                    walk(f"{name}/{key}", inner)

        walk("model", work.state.model.state_dict())
        walk("state", work.state.state_dict())
        walk("hooks", {hook.name: hook.state_dict() for hook in work.after if hasattr(hook, "state_dict")})
        return forgotten

    monkeypatch.setattr(resume, "restore", looking)
    trained(config, tmp_path / "run", resume=True)
    assert len(found) > 50
    assert differing(saved, found) == []

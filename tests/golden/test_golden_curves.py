"""Short loss curves, pinned: a change that is not meant to change training must give the same ones.

A curve that has to change is renewed by `python tests/golden/test_golden_curves.py`, in the same commit as what changes
it, with the reason in the commit's message. Nothing is dropped out in these runs: what torch draws on a CPU depends on
how it was built, while order, augmentation and mixing are the project's own and the same everywhere.
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from vitscope.core.config import updated
from vitscope.data.config import AugmentConfig, DataConfig, augmentation
from vitscope.models.config import CNNConfig, LSTMConfig, ModelConfig, SwinConfig, ViTConfig
from vitscope.train import finish
from vitscope.train.config import LoopConfig, LossConfig, OptimConfig, ScheduleConfig, TrainConfig, named_model
from vitscope.train.fit import fit

HERE = Path(__file__).parent
RELATIVE = {"train/loss": 1e-4, "train/grad_norm": 1e-3, "val/loss": 1e-4}
"""Allowed difference, as a share. Other instruction sets (ATEN_CPU_CAPABILITY, ONEDNN_MAX_CPU_ISA) and numbers of
threads were measured to change less than 3e-6; SGD without Nesterov, AdamW with betas (0.9, 0.99) or clip_norm 0.9
instead of 1 change more."""


def settings(model: ModelConfig, **sections: Any) -> TrainConfig:
    """Two epochs of 25 steps on the built-in digits."""
    loop = LoopConfig(**{"epochs": 2, "device": "cpu", **sections.pop("loop", {})})
    data = DataConfig(name="digits", batch_size=48)
    return TrainConfig(model=named_model(model.family, model), data=data, loop=loop, **sections)


SETUPS = {
    "vit_adamw": settings(
        ViTConfig(img_size=8, patch_size=2, in_chans=1, embed_dim=32, depth=2, num_heads=2),
        augment=updated(augmentation("strong", 8), crop_scale=(0.9, 1.0), mix_prob=0.5),
        optim=OptimConfig(lr=5e-3, layer_decay=0.9),
        schedule=ScheduleConfig(warmup="5 steps"),
        loss=LossConfig(smoothing=0.1),
        loop={"ema_decay": 0.9},
    ),
    "cnn_sgd": settings(
        CNNConfig(img_size=8, widths=(8, 16), drop_rate=0.0, head_drop_rate=0.0),
        augment=AugmentConfig(crop="padded", padding=1, rotate_degrees=10.0),
        optim=OptimConfig(name="sgd", lr=0.05, weight_decay=5e-3, clip_norm=None, clip_value=0.05),
        schedule=ScheduleConfig(name="step", step_epochs=1, step_factor=0.2, warmup="0 steps"),
    ),
    "lstm_adam": settings(
        LSTMConfig(img_size=8, embed_dim=32, depth=2, drop_rate=0.0),
        optim=OptimConfig(name="adam", lr=1e-2, weight_decay=1e-4, l1=1e-5),
        schedule=ScheduleConfig(name="constant", warmup="10 %"),
        loss=LossConfig(name="binary_cross_entropy", smoothing=0.1),
    ),
    "swin_muon": settings(
        SwinConfig(
            img_size=8,
            patch_size=1,
            in_chans=1,
            embed_dim=16,
            depths=(2, 1),
            num_heads=(2, 2),
            window_size=4,
            drop_path_rate=0.0,
        ),
        optim=OptimConfig(name="muon", lr=5e-3, muon_lr=1e-2),
        loss=LossConfig(class_balance=0.5),
        loop={"micro_batch": 20},
    ),
}


def curve(name: str, folder: Path) -> dict[str, list[float]]:
    rows = fit(SETUPS[name], out=folder, quiet=True).metrics
    return {key: [round(row[key], 6) for row in rows if key in row] for key in RELATIVE}


@pytest.mark.parametrize("name", SETUPS)
def test_the_curve_is_the_pinned_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    wanted: dict[str, list[float]] = json.loads((HERE / f"{name}.json").read_text())
    found = curve(name, tmp_path / "run")
    assert {key: len(values) for key, values in found.items()} == {
        "train/loss": 50,
        "train/grad_norm": 50,
        "val/loss": 2,
    }
    for key, values in wanted.items():
        assert found[key] == pytest.approx(values, rel=RELATIVE[key]), key


def renew() -> None:
    for name in SETUPS:
        with tempfile.TemporaryDirectory() as folder:
            found = curve(name, Path(folder) / "run")
            lines = [f"  {json.dumps(key)}: {json.dumps(values)}" for key, values in found.items()]
        (HERE / f"{name}.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
        sys.stdout.write(f"renewed {name}.json\n")


if __name__ == "__main__":
    renew()

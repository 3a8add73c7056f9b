"""The door for runs: runs of the engine, and folders written by hand with what seldom happens to a run."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from doctor.seen import causes
from vitscope.core.errors import DivergedError, UsageError
from vitscope.core.run_view import read_run
from vitscope.core.status_file import host_name
from vitscope.core.strict_json import encode
from vitscope.data.config import DataConfig
from vitscope.doctor.examination import Report
from vitscope.doctor.monitor import Monitor
from vitscope.doctor.monitor_rows import FILE
from vitscope.doctor.run_curve import curve_of
from vitscope.doctor.run_door import RUN_CHECKS, examine_run
from vitscope.models.config import ViTConfig
from vitscope.train.config import LoopConfig, OptimConfig, TrainConfig, named_model
from vitscope.train.fit import fit

VIT = ViTConfig(img_size=8, patch_size=4, in_chans=1, embed_dim=48, depth=1, num_heads=2, num_classes=10)
CHANCE = math.log(10)
STEPS = 4
"""Of an epoch, in folders written by hand."""


def trained(
    out: Path,
    *,
    epochs: int,
    lr: float = 1e-2,
    shares: Any = (0.8, 0.1, 0.1),
    batch: int = 64,
    name: str = "digits",
    looks: bool = True,
    **more: Any,
) -> Report:
    """A run of the engine on digits, watched by the monitor unless it is not to look."""
    data = DataConfig(name=name, batch_size=batch, pool_shares=shares)
    loop = LoopConfig(epochs=epochs, device="cpu")
    config = TrainConfig(model=named_model("vit", VIT), data=data, loop=loop, optim=OptimConfig(lr=lr, **more))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("vitscope.train.finish._draw", lambda *_: None)
        fit(config, out=out, quiet=True, between_steps=[Monitor(every=5)] if looks else [])
    return examine_run(out)


def found(report: Report) -> list[str]:
    """Causes, surest first; every sentence can be said in both languages."""
    for asked in report.asked:
        causes(asked.seen)
    assert str(report)
    assert report.as_text(language="zh")
    json.dumps(report.as_json(), allow_nan=False)
    return [finding.cause for finding in report.findings]


def measured(report: Report, check: str) -> dict[str, Any]:
    return next(asked.seen.measured for asked in report.asked if asked.check.name == check)


def outcome(report: Report, check: str) -> str:
    return next(asked.outcome for asked in report.asked if asked.check.name == check)


def test_a_healthy_run(tmp_path: Path) -> None:
    report = trained(tmp_path / "run", epochs=8)
    assert found(report) == []
    assert report.verdict == "healthy"
    assert measured(report, "curve")["verdict"] == "healthy"
    assert measured(report, "layers")["looks"] >= 4
    assert [asked.check.name for asked in report.asked] == list(RUN_CHECKS)
    assert report.subject["state"] == "finished"
    run = read_run(tmp_path / "run")
    best = max(run.column("val/accuracy")[1])
    assert report.subject["best_val_accuracy"] == best, "healthy is not yet good: a reader wants to know how good"
    assert report.subject["train_accuracy"] == run.column("train/epoch_accuracy")[1][-1]
    assert f"best validation accuracy {best:.1%}" in " ".join(str(report).split())
    assert f"最佳验证准确率{best:.1%}" in "".join(report.as_text(language="zh").split())


def test_a_run_on_few_pictures_overfits(tmp_path: Path) -> None:
    report = trained(tmp_path / "run", epochs=30, shares=(0.05, 0.15, 0.8), batch=30)
    assert found(report)[0] == "overfitting"
    assert report.verdict == "unwell"
    assert 3 <= report.findings[0].numbers["began"] <= 25


def test_a_run_that_diverges(tmp_path: Path) -> None:
    with pytest.raises(DivergedError):
        trained(tmp_path / "run", epochs=4, lr=1000.0, clip_norm=None)
    report = examine_run(tmp_path / "run")
    assert found(report)[:2] == ["loss_diverged", "steps_not_finite"]
    assert report.findings[0].numbers["step"] > 0
    assert {change.key: change.value for change in report.findings[0].changes} == {
        "optim.lr": 1e-3,
        "optim.clip_norm": 1.0,
    }, "a tenth of 1,000 is no better: no more than one begins with"
    told = " ".join(str(report).split())
    assert f"`vitscope doctor {tmp_path / 'run' / 'config.yaml'}` measures which learning rate is stable" in told
    assert "0.001 (--optim.lr) is a first guess" in told
    assert "bad-step-" in report.findings[1].numbers["capture"]
    assert "layer_not_finite" in found(report)
    layer = next(one for one in report.findings if one.cause == "layer_not_finite").numbers["layer"]
    assert layer in str(report)


@pytest.fixture
def folder(tmp_path: Path) -> Callable[..., Path]:
    """`folder(train=..., val=...)`: a run with these losses of its epochs, of four steps each."""

    def write(
        train: Any = (), val: Any = (), *, status: dict[str, Any] | None = None, step: dict[str, Any] | None = None
    ) -> Path:
        rows = []
        for epoch, loss in enumerate(train, start=1):
            for number in range(STEPS * (epoch - 1) + 1, STEPS * epoch + 1):
                plain = {"train/loss": loss, "train/lr": 1e-3, "train/grad_norm": 1.0, "train/skipped": 0}
                changed = {key: one(number) if callable(one) else one for key, one in (step or {}).items()}
                rows.append({"step": number, "epoch": epoch, "time": 0.0, **plain, **changed})
            rows.append({"step": STEPS * epoch, "epoch": epoch, "time": 0.0, "train/epoch_loss": loss})
            if epoch <= len(val) and val[epoch - 1] is not None:
                rows[-1]["val/loss"] = val[epoch - 1]
        path = tmp_path / "run"
        path.mkdir(exist_ok=True)
        (path / "metrics.jsonl").write_text("".join(json.dumps(encode(row)) + "\n" for row in rows))
        (path / "config.yaml").write_text("model: {name: vit, num_classes: 10}\noptim: {lr: 0.001, clip_norm: 1.0}\n")
        (path / "status.json").write_text(json.dumps({"state": "finished", "step": len(rows), **(status or {})}))
        return path

    return write


def smooth(count: int = 20, low: float = 0.1) -> list[float]:
    return list(map(float, CHANCE * (low + (0.95 - low) * np.exp(-5 * np.arange(count) / count))))


def monitored(path: Path, rows: int = 8, **changed: Any) -> Path:
    row = {
        "gradient": {"patch_embed.proj": 0.2, "blocks.0.attn.qkv": 0.5, "head": 0.4},
        "gradient_total": 0.7,
        "update": {"patch_embed.proj": 1e-3, "blocks.0.attn.qkv": 2e-3, "head": 1e-3},
        "activation": {"blocks.0": 3.0, "norm": 2.0},
        "entropy": {"blocks.0.attn": 0.9},
    }
    lines = [json.dumps(encode({**row, **changed, "step": 10 * number})) for number in range(1, rows + 1)]
    (path / "diagnostics").mkdir(exist_ok=True)
    (path / "diagnostics" / FILE).write_text("\n".join(lines) + "\n")
    return path


def test_a_folder_is_read_without_torch(folder: Callable[..., Path]) -> None:
    """It takes two seconds to import, and nothing of it is used: the answer is there at once."""
    run = monitored(folder([2.3] * 20, [2.3] * 20))
    words = f"""
import sys
from vitscope.cli.main import main
code = main(["doctor", {str(run)!r}, "--json"])
sys.exit(code or ", ".join({{"torch", "torchvision", "scipy", "sklearn", "matplotlib"}} & {{*sys.modules}}) or 0)
"""
    done = subprocess.run([sys.executable, "-c", words], capture_output=True, text=True, check=False)
    assert json.loads(done.stdout)["findings"]
    assert done.returncode == 0, done.stderr


def test_curves_of_every_kind(folder: Callable[..., Path]) -> None:
    assert found(examine_run(folder(smooth(), smooth(low=0.15)))) == []
    rising = [*smooth(10, low=0.3), *np.linspace(0.8, 1.6, 10).tolist()]
    report = examine_run(folder(smooth(low=0.02), rising))
    assert found(report) == ["overfitting"]
    assert report.findings[0].numbers["began"] == pytest.approx(10, abs=2)
    assert report.findings[0].changes[0].key == "loop.early_stop"
    assert [note.name for note in report.notes] == ["stop_earlier"]
    flat = [CHANCE] * 20
    assert found(examine_run(folder(flat, flat))) == ["plateaued"]
    swung = [loss * (1.5 if place % 2 else 0.7) for place, loss in enumerate(smooth(24, low=0.4))]
    report = examine_run(folder(swung, swung))
    assert found(report) == ["loss_oscillates"]
    assert report.findings[0].changes[0].value == pytest.approx(1e-4)
    lost = [*smooth(12), *[CHANCE] * 8]
    report = examine_run(folder(lost, lost))
    assert found(report) == ["loss_diverged"]
    assert report.findings[0].numbers["began"] == 13
    assert "The training loss began at" in str(report)
    report = examine_run(folder([*smooth(12), *[math.nan] * 8], smooth(20)))
    assert found(report) == ["loss_diverged"]
    assert "In 8 of 20 epochs a loss is not finite" in " ".join(str(report).split())
    report = examine_run(folder(flat, [*flat[:10], *[5 * CHANCE] * 10]))
    assert found(report) == ["loss_diverged"]
    assert "the validation loss is far above where it began" in " ".join(str(report).split())


def high_rate(rise: float, noise: float = 0.0, gradient: float = 1.0) -> dict[str, Any]:
    """Steps at the loss of guessing, above it by a share from the 5th to the 30th."""
    chance = np.random.default_rng(0).normal(0.0, noise, 1000)
    return {
        "train/loss": lambda number: CHANCE * (1 + rise * (5 <= number < 30) + chance[number]),
        "train/grad_norm": lambda number: 2.0 if number < 5 else 2.0 * gradient,
        "train/lr": lambda number: 0.1 * min(1.0, number / 8),
    }


def test_a_rate_that_threw_the_loss_up_is_told_from_a_plateau(folder: Callable[..., Path]) -> None:
    flat = [CHANCE] * 20
    report = examine_run(folder(flat, flat, step=high_rate(0.3)))
    assert found(report) == ["lr_too_high", "plateaued"]
    numbers = report.findings[0].numbers
    assert (numbers["run_start"], numbers["run_peak"]) == (pytest.approx(CHANCE), pytest.approx(1.3 * CHANCE))
    assert (5 <= numbers["run_step"] < 30, numbers["lr"]) == (True, 0.1)
    assert report.findings[0].changes[0].key == "optim.lr"
    assert f"`vitscope doctor {read_run(folder(flat, flat)).path / 'config.yaml'}`" in " ".join(str(report).split())
    assert found(examine_run(folder(flat, flat, step=high_rate(0.1)))) == ["plateaued", "lr_too_high"]
    assert found(examine_run(folder(flat, flat, step=high_rate(0.1, gradient=0.1)))) == ["lr_too_high", "plateaued"]


def test_the_rate_that_is_advised_is_the_one_the_flag_sets(folder: Callable[..., Path]) -> None:
    """The settings' is scaled by the batch here; the highest one of the record is not what is typed."""
    flat = [CHANCE] * 20
    path = folder(flat, flat, step=high_rate(0.3))
    optim = {"lr": 0.005, "scale_lr": "linear", "base_batch": 64, "clip_norm": 1.0}
    (path / "config.yaml").write_text(f"optim: {json.dumps(optim)}\n")
    told = " ".join(str(examine_run(path)).split())
    assert "(highest rate 0.1)" in told
    assert "0.0005 (--optim.lr)" in told
    assert "--optim.lr 0.0005" in told
    (path / "config.yaml").write_text(f"optim: {json.dumps({**optim, 'name': 'muon', 'muon_lr': 0.4})}\n")
    changes = {change.key: change.value for change in examine_run(path).findings[0].changes}
    assert changes == {"optim.lr": 0.0005, "optim.muon_lr": 0.001}
    usual = {"{name: sgd, lr: 5.0}": 0.01, "{name: sgd, lr: 0.05}": 0.005, "{name: adamw, lr: 0.5}": 0.001}
    for words, lower in usual.items():
        (path / "config.yaml").write_text(f"optim: {words}\n")
        assert examine_run(path).findings[0].numbers["lower"] == lower
    (path / "config.yaml").write_text("optim: {name: adamw, lr: 0.01}\ncheckpoint: {init_from: weights}\n")
    assert examine_run(path).findings[0].numbers["lower"] == 3e-5, "as one fine-tunes"
    (path / "config.yaml").unlink()
    assert examine_run(path).findings[0].numbers["lower"] == 1e-3, "by the record, without settings"
    few = examine_run(folder([CHANCE] * 3, [CHANCE] * 3))
    assert outcome(few, "learning_rate") == "left out"
    assert "too few steps" in " ".join(str(few).split())


def test_a_plateau_without_such_a_rise_is_not_blamed_on_the_rate(folder: Callable[..., Path]) -> None:
    flat = [CHANCE] * 20
    report = examine_run(folder(flat, flat, step=high_rate(0.0, noise=0.02)))
    assert found(report) == ["plateaued"]
    assert outcome(report, "learning_rate") == "left out", "no rise is no proof that the rate is fine"
    assert found(examine_run(folder(flat, flat, step=high_rate(0.04, gradient=0.1)))) == ["plateaued"], "as with noise"
    assert found(examine_run(folder(flat, flat, step=high_rate(0.1, noise=0.3)))) == ["plateaued"], "noise explains it"
    learnt = {"train/loss": lambda number: CHANCE * (1.0 if number < 3 else 1.3 if number < 20 else 0.3)}
    assert found(examine_run(folder(smooth(), smooth(low=0.15), step=learnt))) == [], "who learns bears the rate"
    far = {"train/loss": lambda number: CHANCE * (2.0 if number < 5 else 3.0)}
    report = examine_run(folder(flat, flat, step=far))
    assert found(report) == ["plateaued"], "it began far off, which is not the rate's doing"
    assert outcome(report, "learning_rate") == "left out"


def test_a_run_at_work_may_come_back_from_a_rise(folder: Callable[..., Path]) -> None:
    at_work = {"state": "running", "pid": os.getpid(), "host": host_name(), "heartbeat": time.time()}
    back = [CHANCE] * 10
    step = {"train/loss": lambda number: CHANCE * (1.3 if 3 < number < 20 else 0.95), "train/lr": 0.1}
    assert "lr_too_high" not in found(examine_run(folder(back, back, status=at_work, step=step)))
    assert "lr_too_high" in found(examine_run(folder(back, back, step=step)))


def test_what_a_warm_up_taught_is_lost_at_the_top_of_the_rate(folder: Callable[..., Path]) -> None:
    losses = [*np.linspace(1.0, 0.75, 40), *np.linspace(0.75, 0.95, 10), *[0.95] * 30]
    step = {
        "train/loss": lambda number: CHANCE * float(losses[number - 1]),
        "train/lr": lambda number: 0.1 * min(1.0, number / 50),
    }
    flat = [0.95 * CHANCE] * 20
    report = examine_run(folder(flat, flat, step=step))
    assert found(report) == ["lr_too_high", "plateaued"]
    numbers = report.findings[0].numbers
    assert numbers["run_learnt"] == pytest.approx(0.77 * CHANCE, rel=0.02)
    assert numbers["run_peak"] == pytest.approx(0.95 * CHANCE)
    assert "While the rate warmed up the loss fell to" in " ".join(str(report).split())
    step["train/lr"] = lambda number: 0.1
    assert found(examine_run(folder(flat, flat, step=step))) == ["plateaued"], "the rate did not rise"


def test_a_rate_too_high_shows_without_the_monitor(tmp_path: Path) -> None:
    """A hundred times the usual; the labels of the other run have nothing to do with their pictures."""
    report = trained(tmp_path / "high", epochs=8, lr=0.5, looks=False)
    assert outcome(report, "layers") == "left out"
    assert "lr_too_high" in found(report)[:2]
    from sklearn.datasets import load_digits

    pictures, labels = load_digits(return_X_y=True)
    labels = np.random.default_rng(0).permutation(labels)
    np.savez(tmp_path / "shuffled.npz", images=(pictures.reshape(-1, 8, 8) * 15).astype(np.uint8), labels=labels)
    report = trained(tmp_path / "shuffled", epochs=8, lr=5e-3, looks=False, name=str(tmp_path / "shuffled.npz"))
    assert found(report) == ["plateaued", "patch_too_coarse"], "four patches do learn, with the right labels"


@pytest.mark.parametrize(
    ("settings", "cause", "sure", "is_enough"),
    [
        (
            "model: {num_classes: 10}\noptim: {name: adamw, lr: 0.001, weight_decay: 10.0}",
            "weight_decay_too_high",
            0.88,
            True,
        ),
        ("model: {num_classes: 10, img_size: 32, patch_size: 16, num_heads: 2}", "patch_too_coarse", 0.85, False),
        ("model: {num_classes: 10, embed_dim: 64, num_heads: 16}", "head_dim_too_small", 0.88, False),
        ("model: {num_classes: 10, embed_dim: 64, num_heads: 2, head_dim: 4}", "head_dim_too_small", 0.88, False),
        ("model: {num_classes: 10, drop_rate: 0.9}", "dropout_too_high", 0.9, True),
        ("data: {mean: [0.9], std: [0.01]}\nmodel: {num_classes: 10}", "normalisation_wrong", 0.86, True),
    ],
)
def test_settings_are_judged_as_before_training_where_little_was_learnt(
    settings: str, cause: str, sure: float, is_enough: bool, folder: Callable[..., Path]
) -> None:
    """Where nothing at all was learnt, what only costs accuracy (not `is_enough`) comes behind the plateau itself."""

    def examined(losses: list[float], **written: Any) -> Report:
        path = folder(losses, losses, **written)
        (path / "config.yaml").write_text(settings + "\n")
        return examine_run(path)

    high = list(map(float, CHANCE * np.exp(-np.arange(10) / 40)))
    report = examined(high)
    assert found(report) == [cause, "underfitting"]
    assert report.findings[0].confidence == sure
    assert len(report.findings[0].changes) == (2 if cause == "normalisation_wrong" else 1)
    at_work = {"state": "running", "pid": os.getpid(), "host": host_name(), "heartbeat": time.time()}
    assert found(examined(high, status=at_work)) == [], "it has not ended yet"
    report = examined([CHANCE] * 20)
    assert found(report) == ([cause, "plateaued"] if is_enough else ["plateaued", cause])
    assert report.findings[0 if is_enough else 1].confidence == (sure if is_enough else 0.6)
    assert found(examined(smooth())) == [], "a run that learns bears its settings"
    report = examined([CHANCE] * 3)
    assert outcome(report, "settings") == "left out", "three epochs prove nothing, and are not called fine"


def test_wide_enough_heads_that_are_set_are_no_narrow_ones(folder: Callable[..., Path]) -> None:
    flat = [CHANCE] * 20
    path = folder(flat, flat)
    (path / "config.yaml").write_text("model: {num_classes: 10, embed_dim: 64, num_heads: 16, head_dim: 32}\n")
    assert found(examine_run(path)) == ["plateaued"]
    (path / "config.yaml").write_text("data: {mean: [0.1307], std: [0.3081]}\nmodel: {num_classes: 10}\n")
    assert found(examine_run(path)) == ["plateaued"], "as for MNIST"


def test_a_short_run_that_learns_is_no_plateau(folder: Callable[..., Path]) -> None:
    """As SGD on digits with a cosine schedule: it comes down to 86 % and is flat from the 9th epoch of 12 on."""
    short = [CHANCE * x for x in (1.007, 1.005, 0.995, 0.97, 0.955, 0.93, 0.91, 0.895, 0.87, 0.865, 0.862, 0.861)]
    report = examine_run(folder(short, short))
    assert found(report) == ["underfitting"]
    told = " ".join(str(report).split())
    assert "It learns: training fell from 2.32 to 1.98 in 12 epochs" in told
    assert "--epochs 24" in told
    assert "config.yaml` tries the learning rate" in told
    stuck = [CHANCE * x for x in (1.0, 0.95, 0.9, 0.88, *[0.87] * 8)]
    assert found(examine_run(folder(stuck, stuck))) == ["plateaued"], "flat for two thirds of it"


def test_a_run_whose_schedule_ended_early_is_no_plateau(folder: Callable[..., Path]) -> None:
    """A ViT on shapes: 0.925 of the loss of guessing after 8 epochs, flat from the 6th, and 0.64 after 30."""
    short = [CHANCE * x for x in (1.01, 1.0, 0.99, 0.977, 0.96, 0.936, 0.927, 0.925)]
    report = examine_run(folder(short, short))
    assert found(report) == ["underfitting"]
    assert "`--epochs 16`" in " ".join(str(report).split())
    hardly = [CHANCE * x for x in (1.01, 1.0, 0.995, 0.99, 0.985, 0.982, 0.981, 0.98)]
    assert found(examine_run(folder(hardly, hardly))) == ["plateaued"], "as shuffled labels do"


def test_what_cannot_be_told_has_a_next_step(folder: Callable[..., Path]) -> None:
    path = folder(smooth(4), smooth(4))
    report = examine_run(path)
    assert (report.verdict, [note.name for note in report.notes]) == ("cannot tell", ["too_short_to_tell"])
    told = " ".join(str(report).split())
    assert "4 evaluated epochs are too few to judge a curve by, which takes 6" in told
    assert f"`vitscope doctor {path / 'config.yaml'}`" in told
    wild = [loss * (1 + 0.4 * math.sin(7 * place * place)) for place, loss in enumerate(smooth(9, low=0.5))]
    report = examine_run(folder(smooth(9, low=0.5), wild))
    assert [note.name for note in report.notes] == ["too_noisy_to_tell"]


def test_nobody_who_knows_all_is_told_to_train_longer(folder: Callable[..., Path]) -> None:
    for share, notes in ((0.9, ["still_improving"]), (0.99, [])):
        path = folder(smooth(), smooth(low=0.15))
        rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
        rows = [{**row, "train/epoch_accuracy": share} if "train/epoch_loss" in row else row for row in rows]
        (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert [note.name for note in examine_run(path).notes] == notes


def test_more_epochs_are_advised_only_where_they_would_help(folder: Callable[..., Path]) -> None:
    flat = [CHANCE * x for x in (*np.linspace(1.0, 0.72, 10).tolist(), *[0.72] * 90)]
    told = " ".join(str(examine_run(folder(flat, flat))).split())
    assert "a larger model, or less dropout" in told
    assert "--epochs" not in told
    fell = [CHANCE * x for x in np.linspace(1.0, 0.72, 12).tolist()]
    path = folder(fell, fell, status={"state": "stopped"})
    (path / "config.yaml").write_text("model: {num_classes: 10}\nloop: {epochs: 100}\n")
    told = " ".join(str(examine_run(path)).split())
    assert "in 12 of 100 epochs" in told
    assert f"continue it with `vitscope train --resume --out {path}`" in told
    assert "--epochs 24" not in told
    path = folder(fell, fell)
    (path / "config.yaml").write_text("model: {num_classes: 10}\nloop: {epochs: 100, early_stop: true}\n")
    told = " ".join(str(examine_run(path)).split())
    assert "--resume" not in told, "it was ended by early stopping"
    assert "--epochs" not in told
    (path / "config.yaml").write_text("model: {num_classes: 10}\nloop: {epochs: 12}\n")
    assert "`--epochs 24`" in " ".join(str(examine_run(path)).split())


def test_advice_names_the_runs_own_settings(folder: Callable[..., Path]) -> None:
    flat = [CHANCE] * 20
    path = folder(flat, flat, step={"train/grad_norm": 1e-8})
    for name in ("plateaued", "run_gradients_vanish"):
        (told,) = [one for one in examine_run(path).as_json()["findings"] if one["cause"] == name]
        assert f"`vitscope doctor {path / 'config.yaml'}`" in told["action"]
        (told,) = [one for one in examine_run(path).as_json(language="zh")["findings"] if one["cause"] == name]
        assert f"`vitscope doctor {path / 'config.yaml'}`" in told["action"]
    assert "labels" in examine_run(path, only=("curve",)).as_json()["findings"][0]["action"]


def test_training_longer_may_help_where_validation_falls_to_the_end(folder: Callable[..., Path]) -> None:
    """As with a schedule that ends: both fell in the later half, and no more in the last epochs."""
    path = folder(smooth(), smooth(low=0.15))
    assert "training longer may help" in " ".join(str(examine_run(path)).split())
    ended = [*smooth(20, low=0.3)[:16], *[0.85, 0.852, 0.851, 0.853]]
    ended[10:16] = [1.2, 1.1, 1.0, 0.95, 0.9, 0.86]
    report = examine_run(folder(ended, ended))
    assert found(report) == []
    assert report.notes == []


def test_a_run_at_work_has_not_underfitted(folder: Callable[..., Path]) -> None:
    slow = list(map(float, CHANCE * np.exp(-np.arange(10) / 40)))
    assert found(examine_run(folder(slow, slow))) == ["underfitting"]
    at_work = {"state": "running", "pid": os.getpid(), "host": host_name(), "heartbeat": time.time()}
    before = folder(slow, slow, status=at_work)
    files = {path.name: path.read_bytes() for path in before.iterdir()}
    report = examine_run(before)
    assert found(report) == []
    assert [note.name for note in report.notes] == ["still_improving"]
    assert report.subject["alive"] is True
    assert "at work yes" in str(report)
    assert {path.name: path.read_bytes() for path in before.iterdir()} == files


def test_a_run_that_failed_or_was_killed_is_told(folder: Callable[..., Path]) -> None:
    curves = (smooth(), smooth(low=0.15))
    report = examine_run(folder(*curves, status={"state": "failed", "error": "the disk is full\nwhere: here"}))
    assert found(report) == []
    assert "ended with an error: the disk is full\n" in str(report)
    path = folder(*curves, status={"state": "running", "pid": 2**22 + 1, "host": host_name(), "heartbeat": 0.0})
    (note,) = [note for note in examine_run(path).notes if note.name == "run_killed"]
    assert note.numbers["again"] == f"vitscope train --resume --out {path}"


def test_where_a_run_gave_up_is_not_where_it_went_back_to(folder: Callable[..., Path]) -> None:
    path = folder([2.3, 2.2], status={"state": "diverged", "step": 1}, step={"train/lr": lambda number: number * 0.1})
    numbers = examine_run(path).findings[0].numbers
    assert (numbers["step"], numbers["lr"]) == (2 * STEPS, pytest.approx(0.2 * STEPS))


def test_a_run_without_a_curve_is_not_called_healthy(folder: Callable[..., Path]) -> None:
    report = examine_run(folder(smooth(3), smooth(3)))
    assert found(report) == []
    assert report.verdict == "cannot tell"
    assert "some checks could not be made" in str(report)
    assert examine_run(folder(smooth(3), smooth(3)), only=("steps",)).verdict == "healthy"


def test_a_torn_line_is_passed_over(folder: Callable[..., Path]) -> None:
    path = folder(smooth(), smooth(low=0.15))
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 81, "epoch": 21, "train/lo')
    monitored(path)
    with (path / "diagnostics" / FILE).open("a") as file:
        file.write('{"step": 90, "gradi')
    report = examine_run(path)
    assert found(report) == []
    assert report.subject["steps"] == 80
    assert measured(report, "layers")["looks"] == 8


def test_an_empty_run_cannot_be_judged(folder: Callable[..., Path]) -> None:
    report = examine_run(folder(status={"state": "starting"}))
    assert found(report) == []
    assert report.verdict == "cannot tell"
    assert {asked.outcome for asked in report.asked} == {"left out"}
    assert "Nothing could be looked at." in str(report)


def test_what_is_no_run_is_refused(folder: Callable[..., Path], tmp_path: Path) -> None:
    folder(smooth())
    with pytest.raises(UsageError, match="run"):
        examine_run(tmp_path)
    with pytest.raises(UsageError) as caught:
        examine_run(tmp_path / "rnu")
    assert "run" in str(caught.value.fix)


def test_skipped_steps(folder: Callable[..., Path]) -> None:
    def skips(*bad: int) -> dict[str, Any]:
        return {
            "train/skipped": lambda number: int(number in bad),
            "train/loss": lambda number: math.nan if number in bad else 1.0,
        }

    report = examine_run(folder(smooth(300), smooth(300, low=0.15), step=skips(7)))
    assert found(report) == []
    assert "some_steps_skipped" in [note.name for note in report.notes]
    report = examine_run(folder(smooth(300), smooth(300, low=0.15), step=skips(7, 8, 9)))
    assert found(report) == ["steps_not_finite"]
    assert report.findings[0].numbers["first"] == 7
    scaled = {"train/skipped": lambda number: int(number % 9 == 0), "train/loss_scale": 1024.0}
    assert found(examine_run(folder(smooth(), smooth(low=0.15), step=scaled))) == [], "fp16 looks for its scale"


def test_gradients_that_explode_or_vanish(folder: Callable[..., Path]) -> None:
    report = examine_run(folder(smooth(), smooth(low=0.15), step={"train/grad_norm": lambda number: 10.0 * number}))
    assert found(report) == ["run_gradients_explode"]
    assert report.findings[0].numbers["norm"] > 100
    high = [CHANCE] * 20
    report = examine_run(folder(high, high, step={"train/grad_norm": 1e-8}))
    assert set(found(report)) == {"run_gradients_vanish", "plateaued"}
    learnt = {"train/grad_norm": 1e-8, "train/loss": lambda number: 2.0 if number < 9 else 1e-6}
    assert found(examine_run(folder(smooth(), smooth(low=0.15), step=learnt))) == [], "all is learnt"
    spikes = {"train/grad_norm": lambda number: 1e4 if number % 10 == 0 else 1.0}
    assert found(examine_run(folder(smooth(), smooth(low=0.15), step=spikes))) == [], "clipping is for these"


def test_the_monitors_rows_name_the_layer(folder: Callable[..., Path]) -> None:
    path = folder(smooth(), smooth(low=0.15))
    assert outcome(examine_run(path), "layers") == "left out"
    assert found(examine_run(monitored(path))) == []
    large = {"patch_embed.proj": 3.0, "blocks.0.attn.qkv": 400.0, "head": 20.0}
    report = examine_run(monitored(path, gradient=large, gradient_total=401.0))
    assert found(report) == ["run_gradients_explode"]
    assert "blocks.0.attn.qkv" in str(report)
    assert measured(report, "layers")["warnings"]["gradient blocks.0.attn.qkv"] == 8
    report = examine_run(monitored(path, gradient={"head": 12.0}, gradient_total=12.0))
    assert found(report) == []
    assert "head 12" in " ".join(str(report).split())
    far = {"patch_embed.proj": 0.4, "blocks.0.attn.qkv": 0.5, "head": 1e-3}
    report = examine_run(monitored(path, update=far))
    assert found(report) == ["run_updates_large"]
    assert "blocks.0.attn.qkv by 50%" in " ".join(str(report).split())
    report = examine_run(monitored(path, update={**far, "patch_embed.proj": 1e-3}))
    assert found(report) == []
    assert [note.name for note in report.notes if note.name == "layers_move_far"]
    report = examine_run(monitored(path, activation={"blocks.0": 3.0, "norm": math.inf}))
    assert found(report) == ["layer_not_finite"]
    assert report.findings[0].numbers["layer"] == "norm"
    assert outcome(examine_run(monitored(path, rows=2)), "layers") == "left out"
    high = folder([CHANCE] * 20, [CHANCE] * 20)
    report = examine_run(monitored(high, gradient={"blocks.0.attn.qkv": 1e-9, "head": 1e-8}, gradient_total=1e-8))
    assert found(report)[0] == "run_gradients_vanish"
    assert "blocks.0.attn.qkv" in str(report)


def early(path: Path, activation: float, update: float) -> Path:
    """The first look finds a large update, all later ones large values and small updates."""
    monitored(path, activation={"blocks.0": activation, "norm": 1.0})
    place = path / "diagnostics" / FILE
    first, *others = place.read_text().splitlines()
    changed = {"update": dict.fromkeys(("patch_embed.proj", "blocks.0.attn.qkv", "head"), update)}
    row = {**json.loads(first), **changed, "activation": {"blocks.0": 2.6, "norm": 1.0}}
    place.write_text("\n".join([json.dumps(row), *others]) + "\n")
    return path


def test_what_went_wrong_early_is_told_where_nothing_was_learnt_since(folder: Callable[..., Path]) -> None:
    high = [CHANCE] * 20
    report = examine_run(early(folder(high, high), activation=7924.0, update=0.88))
    assert found(report) == ["run_updates_large", "plateaued"]
    told = " ".join(str(report).split())
    assert "by 88% of its size, and the values of blocks.0 went from 2.6 to 7,924" in told
    assert report.findings[0].changes[0].key == "optim.lr"
    report = examine_run(early(folder(high, high), activation=20.0, update=0.88))
    assert found(report) == ["plateaued", "run_updates_large"]
    assert report.findings[1].confidence < 0.8
    assert found(examine_run(early(folder(high, high), activation=20.0, update=0.2))) == ["plateaued"]
    learnt = early(folder(smooth(), smooth(low=0.15)), activation=7924.0, update=0.88)
    assert found(examine_run(learnt)) == [], "who learns is not ill"


def test_pictures_that_were_left_out(folder: Callable[..., Path]) -> None:
    path = folder(smooth(), smooth(low=0.15))
    line = json.dumps({"index": 17, "where": "photos/cat/17.jpg", "reason": "the file is missing"})
    (path / "bad_samples.jsonl").write_text(f"{line}\n{line}\n")
    report = examine_run(path)
    assert found(report) == ["pictures_left_out"]
    assert report.findings[0].numbers == {"count": 1, "where": "photos/cat/17.jpg", "reason": "the file is missing"}
    assert report.verdict == "cannot tell"


def test_steps_taken_anew_replace_the_old_ones(folder: Callable[..., Path]) -> None:
    """Epochs 4 and 5 went up, training went back to the end of epoch 3, and took them again."""
    losses = [2.0, 1.5, 1.2, 9.0, math.nan]
    path = folder(losses, losses)
    rows = [json.loads(line) for line in (path / "metrics.jsonl").read_text().splitlines()]
    again = [dict(row) for row in rows if row["epoch"] in (4, 5)]
    for row in again:
        for key in ("train/loss", "train/epoch_loss", "val/loss"):
            if key in row:
                row[key] = 1.0
    (path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows + again))
    curve = curve_of(read_run(path))
    assert list(curve.epochs) == [1, 2, 3, 4, 5]
    assert list(curve.train_loss) == list(curve.val_loss) == [2.0, 1.5, 1.2, 1.0, 1.0]
    assert curve.loss_at_chance == pytest.approx(CHANCE)


def test_the_error_of_an_epochs_mean_comes_from_its_steps(folder: Callable[..., Path]) -> None:
    path = folder([1.0] * 4, [], step={"train/loss": lambda number: 1.0 + 0.1 * (-1) ** number})
    assert curve_of(read_run(path)).train_error == pytest.approx(0.1 * math.sqrt(4 / 3) / 2)
    assert curve_of(read_run(folder([1.0] * 4, []))).train_error == 0.0


def test_only_some_checks(folder: Callable[..., Path]) -> None:
    path = folder(smooth(), smooth(low=0.15))
    told: list[str] = []
    assert [asked.check.name for asked in examine_run(path, only=("curve",), on_check=told.append).asked] == ["curve"]
    assert told == ["curve"]
    assert len(examine_run(path, only=("training",)).asked) == len(RUN_CHECKS)

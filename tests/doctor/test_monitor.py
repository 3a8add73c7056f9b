"""The gradient monitor: it sees every layer, names those that leave the healthy range, and changes nothing."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from train.tiny_runs import VIT, tiny
from vitscope.core.config import updated
from vitscope.core.errors import DivergedError
from vitscope.doctor.activations import watched_forward
from vitscope.doctor.monitor import MOST_WARNINGS, Monitor, by_layer
from vitscope.doctor.monitor_rows import FILE, warnings
from vitscope.models.build import build_model
from vitscope.models.config import ResNetConfig, ViTConfig
from vitscope.train.config import TrainConfig
from vitscope.train.fit import Run, fit

MANY_STEPS = {"batch_size": 8}


def losses(run: Run) -> list[float]:
    return [row["train/loss"] for row in run.metrics if "train/grad_norm" in row]


def trained(config: TrainConfig, out: Path, monitor: Monitor | None = None) -> Run:
    return fit(config, out=out, quiet=True, between_steps=[] if monitor is None else [monitor])


def test_a_watched_run_is_the_run_alone(tmp_path: Path) -> None:
    config = tiny(updated(VIT, drop_rate=0.3, drop_path_rate=0.2), data=MANY_STEPS)
    monitor = Monitor(every=2)
    alone, watched = trained(config, tmp_path / "alone"), trained(config, tmp_path / "watched", monitor)
    assert len(monitor.rows) >= 2
    assert losses(watched) == losses(alone)
    assert watched.test is not None
    assert alone.test is not None
    assert watched.test["test/loss"] == alone.test["test/loss"]


def test_a_frozen_batch_norm_stays_frozen(tmp_path: Path) -> None:
    model = ResNetConfig(img_size=8, in_chans=1, stem="cifar", stem_width=8, depths=(1, 1))
    config = tiny(model, data=MANY_STEPS, optim={"freeze": ("backbone",)})
    monitor = Monitor(every=2)
    alone, watched = trained(config, tmp_path / "alone"), trained(config, tmp_path / "watched", monitor)
    assert len(monitor.rows) >= 2
    assert losses(watched) == losses(alone)


def test_a_look_does_not_span_the_way_back_to_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else what lies between two weights is told as one update."""
    monitor, spans = Monitor(every=3), list[tuple[int, int]]()
    weights = torch.zeros(1)
    work: Any = SimpleNamespace(
        step=0,
        state=SimpleNamespace(optimizer=SimpleNamespace(params=[weights])),
        course=SimpleNamespace(trouble_since=None),
    )

    def looked(work: Any) -> dict[str, Any]:
        assert monitor._before is not None
        spans.append((int(monitor._before[0]), work.step))
        return {"gradient_total": 1.0, "gradient": {}, "update": {}, "activation": {}}

    monkeypatch.setattr(monitor, "_looked", looked)
    monkeypatch.setattr("vitscope.doctor.monitor._append", lambda *given: None)
    for work.step in (*range(1, 5), *range(2, 9)):  # 4 keeps the weights before step 5, which is never taken
        weights.fill_(work.step)
        monitor.see(work)
    assert spans == [(1, 2), (3, 4), (6, 7)]
    monitor.every = 100
    monitor._next = 100
    work.course.trouble_since = 8
    for work.step in range(9, 20):
        weights.fill_(work.step)
        monitor.see(work)
    assert spans[3:] == [(9, 10)], "where steps go wrong it does not wait for its turn, once"


def test_every_layer_has_its_numbers(tmp_path: Path) -> None:
    monitor = Monitor(every=2)
    run = trained(tiny(data=MANY_STEPS), tmp_path / "run", monitor)
    rows = [json.loads(line) for line in (run.folder.diagnostics / FILE).read_text().splitlines()]
    assert rows == monitor.rows
    row = rows[-1]
    assert {"patch_embed.proj", "blocks.0.attn.qkv", "blocks.0.mlp.fc2", "head"} <= set(row["gradient"])
    assert all(norm > 0 for norm in row["gradient"].values())
    assert {"patch_embed", "blocks.0", "norm", "head"} <= set(row["activation"])
    assert all(0 < share <= 1 for share in row["entropy"].values())
    assert set(row["entropy"]) == {name for name in row["entropy"] if name.endswith(".attn")} != set()
    logged = {one["step"]: one["train/grad_norm"] for one in run.metrics if "train/grad_norm" in one}
    for row in rows:
        assert row["gradient_total"] == pytest.approx(logged[row["step"]], rel=1e-4)
        assert all(0 <= ratio < 1 for ratio in row["update"].values())


def test_an_update_is_told_as_a_share_of_the_weights(tmp_path: Path) -> None:
    config = tiny(
        optim={"name": "sgd", "lr": 0.01, "momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "clip_norm": None}
    )
    config = updated(config, schedule=updated(config.schedule, name="constant", warmup="0 steps"))
    monitor = Monitor(every=2)
    trained(config, tmp_path / "run", monitor)
    row = monitor.rows[0]
    # The network as the run had it: a rate of 0.01 has hardly changed the length of its weights.
    trained_weights = load_file(tmp_path / "run" / "model" / "model.safetensors")
    for layer in ("blocks.0.attn.qkv", "blocks.1.mlp.fc1"):
        parts = [trained_weights[f"{layer}.{kind}"].flatten() for kind in ("weight", "bias")]
        size = float(torch.linalg.vector_norm(torch.cat(parts)))
        assert row["update"][layer] == pytest.approx(0.01 * row["gradient"][layer] / size, rel=0.05)


def test_a_high_rate_is_said_by_the_name_of_the_layer(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = tiny(data=MANY_STEPS, optim={"lr": 1.0, "clip_norm": None}, loop={"most_bad_steps": 1000})
    with caplog.at_level("INFO", logger="vitscope"), contextlib.suppress(DivergedError):
        trained(config, tmp_path / "run", Monitor(every=2))
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("monitor, step")]
    assert any("one update moved blocks.0." in text and "the lr is high" in text for text in said)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({}, []),
        ({"gradient_total": 101.0}, ["exploding"]),
        ({"gradient_total": float("nan")}, ["exploding"]),
        ({"gradient_total": 1e-7}, ["vanishing"]),
        ({"gradient": {"blocks.3.attn.qkv": 10.5}}, ["gradient blocks.3.attn.qkv"]),
        ({"update": {"head": 0.2}}, ["update head"]),
        ({"activation": {"norm": float("inf")}}, ["activation norm"]),
    ],
)
def test_what_is_out_of_range_is_named(changed: dict[str, Any], said: list[str]) -> None:
    healthy = {
        "gradient": {"head": 0.5},
        "gradient_total": 0.6,
        "update": {"head": 0.001},
        "activation": {"norm": 3.0},
    }
    assert [kind for kind, _ in warnings({**healthy, **changed})] == said


def test_it_repeats_itself_only_so_often(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    monitor = Monitor(every=1)
    with caplog.at_level("INFO", logger="vitscope"), pytest.MonkeyPatch.context() as patched:
        patched.setattr("vitscope.doctor.monitor.warnings", lambda row: [("same", "as before")])
        trained(tiny(data=MANY_STEPS, loop={"epochs": 3}), tmp_path / "run", monitor)
    said = [record for record in caplog.records if "as before" in record.getMessage()]
    assert len(monitor.rows) > MOST_WARNINGS
    assert len(said) == MOST_WARNINGS


def test_layers_are_sums_of_their_parameters() -> None:
    found = by_layer(["head.weight", "head.bias", "pos_embed"], [3.0, 4.0, 1.0])
    assert found == {"head": 5.0, "pos_embed": 1.0}


def test_even_attention_has_all_the_entropy() -> None:
    torch.manual_seed(0)
    network = build_model(
        ViTConfig(img_size=16, patch_size=4, embed_dim=32, depth=1, num_heads=2, num_classes=3)
    ).eval()
    with torch.no_grad():
        network.blocks[0].attn.qkv.weight.zero_()  # pyright: ignore
        seen = watched_forward(network, torch.randn(2, 3, 16, 16))
    assert seen.entropy["blocks.0.attn"] == pytest.approx(1.0, abs=1e-5)
    assert not any(module._forward_hooks for module in network.modules())

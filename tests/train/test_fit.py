"""`fit`: every family by the same loop, weights from elsewhere, teachers, hooks, and what lies in the folder then."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from train.tiny_runs import DATA, VIT, K, assert_close, differing, network, tiny, weights
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError, UsageError, VitscopeError
from vitscope.core.seed import seed_everything
from vitscope.core.yaml import load_yaml
from vitscope.data.config import AugmentConfig
from vitscope.data.dataset import open_dataset
from vitscope.data.loaders.choose import make_loader
from vitscope.data.loaders.loader import Loader
from vitscope.models.config import CNNConfig, LSTMConfig, ModelConfig, ResNetConfig, SwinConfig
from vitscope.models.layers.resample import resample_positions
from vitscope.train import finish, setup
from vitscope.train.basis import Basis
from vitscope.train.config import CheckpointConfig, PrecisionConfig, TrainConfig
from vitscope.train.fit import Run, fit
from vitscope.train.measure import measure
from vitscope.train.processes import Processes
from vitscope.train.signals import StopFlag
from vitscope.train.state import TrainState
from vitscope.train.work import Work
from vitscope.weights.folder import save_model
from vitscope.weights.load import load_model

quick = pytest.mark.usefixtures("no_pictures")

FAMILIES: dict[str, ModelConfig] = {
    "vit": VIT,
    "swin": SwinConfig(
        img_size=16, in_chans=1, patch_size=2, embed_dim=8, depths=(1, 1), num_heads=(1, 2), window_size=4
    ),
    "resnet": ResNetConfig(img_size=8, in_chans=1, depths=(1, 1), stem="cifar", stem_width=8),
    "cnn": CNNConfig(img_size=8, widths=(4, 8)),
    "lstm": LSTMConfig(img_size=8, embed_dim=16, depth=1, drop_rate=0.0),
}


def steps_of(run: Run, key: str = "train/loss") -> list[float]:
    return [row[key] for row in run.metrics if "train/loss" in row]


def saved(run: Run) -> dict[str, Tensor]:
    return load_file(run.model_folder / "model.safetensors")


def done(config: TrainConfig, out: Path, **more: Any) -> Run:
    run = fit(config, out=out, quiet=True, **more)
    assert run.state == "finished"
    return run


# --- a whole run ---------------------------------------------------------------------------------------------------


def test_a_run_learns_and_leaves_everything_in_its_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    name = DATA.replace("120", "240")
    config = tiny(
        data={"name": name, "batch_size": 36},
        loop={"epochs": 8, "ema_decay": 0.9},
        optim={"lr": 1e-2},
        schedule={"name": "cosine", "warmup": "10 %"},
    )
    run = fit(config, out=tmp_path / "run", command="vitscope train this.yaml")
    assert (run.state, run.exit_code) == ("finished", 0)
    assert run.best is not None
    assert run.test is not None
    assert run.test["test/accuracy"] > 0.8, "the label is in the brightness"
    assert run.test["test/count"] == 48
    assert steps_of(run)[0] == pytest.approx(math.log(K), rel=0.05)
    assert steps_of(run)[-1] < 0.5 * steps_of(run)[0]

    folder = tmp_path / "run"
    files = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    pictures = ("curves", "lr", "grad_norms", "confusion_matrix", "first_batches")
    wanted = {f"plots/{picture}.png" for picture in pictures}
    wanted |= {f"model/{name}" for name in ("config.json", "model.safetensors", "preprocessing.json", "labels.json")}
    wanted |= {"model/README.md", "config.yaml", "env.json", "status.json", "metrics.jsonl", "train.log"}
    wanted |= {"checkpoints/last", "checkpoints/best"}
    assert wanted <= files
    assert any(name.startswith("events.out.tfevents") for name in files)
    assert not [name for name in files if name.endswith(".tmp")]
    assert not (folder / "diagnostics").exists()
    assert "vitscope train this.yaml" in (folder / "model" / "README.md").read_text()
    assert json.loads((folder / "status.json").read_text())["state"] == "finished"
    assert load_yaml(TrainConfig, folder / "config.yaml") == updated(config, model=config.model.changed(num_classes=K))
    assert capsys.readouterr().out == "", "results are for whoever called"
    assert logging.getLogger("vitscope").handlers == []

    found, _ = measure(run.model_folder, config.data, "test", batch_size=7)
    assert found.accuracy == run.test["test/accuracy"], "what was tested is what was saved"
    assert found.loss == pytest.approx(run.test["test/loss"], rel=1e-5)


@quick
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_trains_by_the_same_loop(tmp_path: Path, family: str) -> None:
    size = 16 if family == "swin" else 8
    data = {"name": DATA.replace("size=8", f"size={size}"), "batch_size": 24}
    muon = {"name": "muon"} if family in ("vit", "swin") else {}
    config = tiny(FAMILIES[family], data=data, loop={"epochs": 4, "ema_decay": 0.5}, optim={"lr": 1e-2, **muon})
    run = done(config, tmp_path / "run")
    losses = steps_of(run)
    assert len(losses) == 12
    assert losses[0] == pytest.approx(math.log(K), rel=0.06)
    assert sum(losses[-3:]) < sum(losses[:3])
    assert all(math.isfinite(value) for value in steps_of(run, "train/grad_norm"))
    model = load_model(run.model_folder)
    assert model.config.family == family
    assert model.num_classes == K
    assert run.test is not None


# --- settings that change the arithmetic and not the result, or the other way round -----------------------------------


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_draw", lambda *_: None)
        return done(PLAIN, tmp_path_factory.mktemp("runs") / "plain")


PLAIN = tiny(data={"batch_size": 36}, optim={"name": "sgd", "lr": 0.1}, loop={"epochs": 3})


def plain_with(section: str, **settings: Any) -> TrainConfig:
    return updated(PLAIN, **{section: updated(getattr(PLAIN, section), **settings)})


@quick
@pytest.mark.parametrize(
    "config",
    [plain_with("loop", micro_batch=16), plain_with("precision", grad_checkpointing=True)],
    ids=["micro_batch", "grad_checkpointing"],
)
def test_other_ways_to_the_same_weights(tmp_path: Path, plain: Run, config: TrainConfig) -> None:
    run = done(config, tmp_path / "run")
    assert_close(saved(run), saved(plain), atol=2e-6, rtol=1e-4)
    assert steps_of(run) == pytest.approx(steps_of(plain), rel=1e-4)


@quick
@pytest.mark.parametrize(
    ("config", "first_step_differs"),
    [
        (plain_with("precision", dtype="bf16"), True),
        (plain_with("loss", smoothing=0.3), False),  # at the start every answer is as good
        (plain_with("loss", class_balance=1.0), False),  # all classes are equally frequent
        (plain_with("optim", l1=1e-3), True),
        (plain_with("optim", weight_decay=0.5), False),
        (plain_with("optim", layer_decay=0.5), False),
        (plain_with("optim", clip_norm=0.01), False),
        (plain_with("augment", flip="random", crop="padded"), True),
        (plain_with("augment", mixup_alpha=1.0), True),
        (tiny(updated(VIT, drop_path_rate=0.5), data={"batch_size": 36}, optim={"name": "sgd", "lr": 0.1}), True),
    ],
)
def test_other_settings_other_weights(
    tmp_path: Path, plain: Run, config: TrainConfig, first_step_differs: bool
) -> None:
    run = done(config, tmp_path / "run")
    first = steps_of(run)[0], steps_of(plain)[0]
    if first_step_differs:
        assert first[0] != pytest.approx(first[1], rel=1e-7)
    assert first[0] == pytest.approx(first[1], rel=0.5)
    changed = differing(saved(run), saved(plain))
    assert bool(changed) == (config.loss.class_balance == 0.0)


@quick
@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None and shutil.which("c++") is None, reason="needs a C++ compiler")
def test_compiled_is_eager(tmp_path: Path, plain: Run) -> None:
    run = done(plain_with("precision", launch="compiled"), tmp_path / "run")
    assert "does not work here" not in run.folder.log_path.read_text()
    assert_close(saved(run), saved(plain), atol=1e-4, rtol=1e-3)


@quick
def test_the_rate_of_matrices_is_not_scaled(tmp_path: Path) -> None:
    config = tiny(optim={"name": "muon", "lr": 1e-3, "muon_lr": 5e-3, "scale_lr": "linear", "base_batch": 18})
    run = done(config, tmp_path / "run")
    assert steps_of(run, "train/lr") == pytest.approx([4e-3, 4e-3])
    assert "matrices with lr 0.005, AdamW the rest with 0.004" in run.folder.log_path.read_text()
    unscaled = tiny(optim={"name": "muon", "lr": 4e-3, "muon_lr": 5e-3})
    assert differing(saved(run), saved(done(unscaled, tmp_path / "unscaled"))) == set()


@quick
@pytest.mark.parametrize("fails", [False, True])
def test_torch_is_left_as_it_was_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool) -> None:
    """Another run may follow in the same process, and whoever called draws numbers too."""

    def hook(state: TrainState) -> None:
        seen.append((torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()))
        if fails:
            raise RuntimeError("on purpose")

    def found() -> tuple[Any, ...]:
        flags = torch.get_float32_matmul_precision(), torch.are_deterministic_algorithms_enabled()
        return *flags, torch.backends.cudnn.benchmark, random.random(), np.random.random(), float(torch.rand(()))

    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    seen: list[Any] = []
    seed_everything(3)
    before = found()
    seed_everything(3)
    config = tiny(precision=PrecisionConfig(tf32=True, deterministic=True))
    with contextlib.suppress(RuntimeError):
        fit(config, out=tmp_path / "run", quiet=True, after_step=[hook])
    assert seen[0] == ("high", True)
    assert found() == before


@quick
def test_a_scaled_rate_is_told_with_both_numbers(tmp_path: Path) -> None:
    config = tiny(optim={"lr": 1e-3, "scale_lr": "sqrt", "base_batch": 18})
    run = done(config, tmp_path / "run")
    assert steps_of(run, "train/lr") == pytest.approx([2e-3, 2e-3])
    assert "lr 0.001, scaled (sqrt) to 0.002" in run.folder.log_path.read_text()


# --- weights from elsewhere ----------------------------------------------------------------------------------------


@quick
def test_a_new_head_and_another_size(tmp_path: Path) -> None:
    """From 7 classes at 8 x 8 to 4 at 16 x 16; the first checkpoint shows where training began."""
    source = network(updated(VIT, num_classes=7))
    save_model(source, tmp_path / "model")
    config = tiny(
        updated(VIT, img_size=16),
        data={"name": DATA.replace("size=8", "size=16")},
        checkpoint=CheckpointConfig(init_from=str(tmp_path / "model"), keep=9),
    )
    run = done(config, tmp_path / "run")
    first, old = load_file(run.folder.checkpoints / "step-000000" / "model.safetensors"), weights(source)
    same = {name for name in first if first[name].shape == old[name].shape and torch.equal(first[name], old[name])}
    assert set(first) - same == {"head.weight", "head.bias", "pos_embed"}
    assert first["head.weight"].shape == (K, 16)
    torch.testing.assert_close(first["pos_embed"], resample_positions(old["pos_embed"], (2, 2), (4, 4), num_prefix=1))
    told = run.folder.log_path.read_text()
    assert "4 classes instead of 7" in told
    assert "16 x 16 instead of 8 x 8" in told
    assert load_model(run.model_folder).config.img_size == 16


@quick
def test_fine_tuning_at_384_from_224(tmp_path: Path) -> None:
    """Patches of 16, as published weights have them: 14 x 14 positions become 24 x 24, and two steps are taken."""
    small = updated(VIT, img_size=224, patch_size=16)
    source = network(small)
    save_model(source, tmp_path / "model")
    config = tiny(
        updated(small, img_size=384),
        data={"name": f"synthetic:size=384,count=40,classes={K},channels=1", "batch_size": 12},
        optim={"lr": 1e-3},
        loop={"epochs": 1},
        checkpoint=CheckpointConfig(init_from=str(tmp_path / "model"), keep=9),
    )
    run = done(config, tmp_path / "run")
    first, old = load_file(run.folder.checkpoints / "step-000000" / "model.safetensors"), weights(source)
    torch.testing.assert_close(
        first["pos_embed"], resample_positions(old["pos_embed"], (14, 14), (24, 24), num_prefix=1)
    )
    assert differing(first, saved(run)) == set(first), "every tensor was trained"
    assert len(steps_of(run)) == 2
    assert "bicubic with antialias, 14 x 14 -> 24 x 24" in run.folder.log_path.read_text()
    assert load_model(run.model_folder).config.img_size == 384


@quick
def test_a_run_goes_on_in_another_run(tmp_path: Path, plain: Run) -> None:
    config = updated(PLAIN, checkpoint=CheckpointConfig(init_from=str(plain.folder.path), keep=9))
    run = done(config, tmp_path / "run")
    first = load_file(run.folder.checkpoints / "step-000000" / "model.safetensors")
    assert differing(first, saved(plain)) == set(), "its head too, for the classes are the same"
    assert steps_of(run)[0] < steps_of(plain)[0]


@quick
@pytest.mark.parametrize("family", ["vit", "cnn"])
def test_a_linear_probe_moves_the_head_alone(tmp_path: Path, family: str) -> None:
    """Running means of BatchNorm are part of what stays."""
    source = network(updated(FAMILIES[family], num_classes=K))
    save_model(source, tmp_path / "model")
    config = tiny(
        FAMILIES[family],
        optim={"freeze": ("backbone",), "weight_decay": 0.5},
        checkpoint=CheckpointConfig(init_from=str(tmp_path / "model")),
        loop={"ema_decay": 0.5},
    )
    run = done(config, tmp_path / "run")
    assert differing(saved(run), weights(source)) == {"head.weight", "head.bias"}


# --- teachers ------------------------------------------------------------------------------------------------------


LEARNT = tiny(
    data={"name": DATA.replace("120", "240"), "batch_size": 36},
    optim={"lr": 1e-2},
    schedule={"name": "cosine", "warmup": "10 %"},
    loop={"epochs": 10},
)
"""Enough to know most pictures."""


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A teacher that has learnt the pictures and calls each by the next class's number."""
    folder = tmp_path_factory.mktemp("teacher")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(finish, "_draw", lambda *_: None)
        model: Any = load_model(done(LEARNT, folder / "run").model_folder)
    with torch.no_grad():
        for value in (model.head.weight, model.head.bias):
            value.copy_(value.roll(1, 0))
    model.labels = None
    save_model(model, folder / "model")
    return folder / "model"


def answers(head: Any, folder: Path) -> tuple[Tensor, Tensor]:
    """What a saved model says of the training pictures, and their classes."""
    dataset = open_dataset(LEARNT.data)
    preprocess = LEARNT.data.preprocess(8, 1)
    loader = make_loader(dataset, "train", preprocess=preprocess, training=False, batch_size=999)
    images, labels, _ = next(iter(loader.epoch(0)))
    return head(load_model(folder).eval(), images).argmax(-1), labels


def share(found: Tensor, wanted: Tensor) -> float:
    return (found == wanted).float().mean().item()


@quick
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_a_student_believes_its_teacher(tmp_path: Path, liar: Path, kind: str) -> None:
    before = (liar / "model.safetensors").read_bytes()
    loss = updated(LEARNT.loss, teacher=str(liar), distill=kind, distill_share=1.0, distill_temperature=1.0)
    run = done(updated(LEARNT, loss=loss, loop=updated(LEARNT.loop, eval_every=20, epochs=20)), tmp_path / "run")
    taught, labels = answers(lambda model, images: model(images), liar)
    assert share(taught, (labels + 1) % K) > 0.8, "the teacher lies well"
    found, _ = answers(lambda model, images: model(images), run.model_folder)
    assert share(found, taught) > 0.8
    assert share(found, labels) < 0.2
    assert (liar / "model.safetensors").read_bytes() == before


@quick
@pytest.mark.parametrize("kind", ["soft", "hard"])
def test_with_a_distillation_token_each_head_has_its_own_teacher(tmp_path: Path, liar: Path, kind: str) -> None:
    config = updated(
        LEARNT,
        model=LEARNT.model.changed(distilled=True),
        loss=updated(LEARNT.loss, teacher=str(liar), distill=kind),
        loop=updated(LEARNT.loop, eval_every=10, epochs=15),
    )
    run = done(config, tmp_path / "run")
    of_labels, labels = answers(lambda m, x: m.head(m.forward_features(x)[:, 0]), run.model_folder)
    of_teacher, _ = answers(lambda m, x: m.head_dist(m.forward_features(x)[:, 1]), run.model_folder)
    assert share(of_labels, labels) > 0.7
    assert share(of_teacher, (labels + 1) % K) > 0.7


# --- hooks ---------------------------------------------------------------------------------------------------------


class Travelled:
    """How far the head has come, step by step: a hook with a state."""

    name = "travelled"

    def __init__(self) -> None:
        self.far = torch.zeros(())
        self.last: Tensor | None = None

    def __call__(self, state: TrainState) -> None:
        now = state.model.get_parameter("head.weight").detach()
        if self.last is not None:
            self.far += (now - self.last).norm()
        self.last = now.clone()
        state.scalars["probe/far"] = self.far

    def state_dict(self) -> dict[str, Any]:
        return {"far": self.far, "last": self.last}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.far.copy_(state["far"])
        self.last = None if state["last"] is None else state["last"].clone()


@quick
def test_a_hooks_numbers_are_logged_and_its_state_survives_a_stop(tmp_path: Path) -> None:
    config = tiny(data={"batch_size": 18})
    whole = done(config, tmp_path / "whole", after_step=[Travelled()])
    far = steps_of(whole, "probe/far")
    assert far[0] == 0
    assert far == sorted(far)
    assert far[-1] > 0

    stop = StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == 5:
            stop.raise_flag()

    fit(config, out=tmp_path / "run", quiet=True, after_step=[Travelled(), enough], stop=stop)
    trainer = torch.load(tmp_path / "run" / "checkpoints" / "step-000005" / "trainer.pt", weights_only=True)
    assert float(trainer["hooks"]["travelled"]["far"]) == far[4]
    run = done(config, tmp_path / "run", after_step=[Travelled()], resume=True)
    assert steps_of(run, "probe/far") == far


@quick
def test_a_hook_can_change_the_weights(tmp_path: Path) -> None:
    """As a mask does: what it sets to 0 is 0 in the model that is saved, and in its running mean."""

    def mask(state: TrainState) -> None:
        state.model.get_parameter("head.weight")[:, :8] = 0

    run = done(tiny(loop={"ema_decay": 1e-9, "ema_warmup": False}), tmp_path / "run", after_step=[mask])
    head = saved(run)["head.weight"]
    assert head[:, :8].abs().max() < 1e-8
    assert head[:, 8:].abs().min() > 1e-8


# --- the folder ----------------------------------------------------------------------------------------------------


@quick
def test_a_folder_in_use_is_refused_unless_it_may_be_replaced(tmp_path: Path) -> None:
    first = done(tiny(), tmp_path / "run")
    before = steps_of(first)
    with pytest.raises(UsageError, match="is not empty"):
        fit(tiny(), out=tmp_path / "run", quiet=True)
    again = done(tiny(loop={"seed": 5}), tmp_path / "run", overwrite=True)
    assert steps_of(again) != before
    assert len(steps_of(again)) == 2


@quick
def test_a_run_without_a_place_is_numbered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    places = [fit(tiny(loop={"epochs": 1}), quiet=True).folder.path for _ in range(2)]
    assert [place.as_posix() for place in places] == ["runs/synthetic-vit-001", "runs/synthetic-vit-002"]


@quick
def test_resuming_a_finished_run_changes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = done(tiny(), tmp_path / "run")
    before = {path: path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()}
    again = fit(tiny(), out=tmp_path / "run", resume=True)
    assert (again.state, again.exit_code) == ("finished", 0)
    assert {path: path.read_bytes() for path in run.folder.path.rglob("*") if path.is_file()} == before
    assert "finished: nothing to resume" in capsys.readouterr().err


@quick
def test_resuming_nothing_begins(tmp_path: Path) -> None:
    run = done(tiny(), tmp_path / "run", resume=True)
    assert len(steps_of(run)) == 2
    with pytest.raises(UsageError, match="nothing to resume"):
        fit(tiny(), resume=True, quiet=True)


def stopped_after(config: TrainConfig, out: Path, step: int) -> Run:
    stop = StopFlag()

    def enough(state: TrainState) -> None:
        if int(state.updates) == step:
            stop.raise_flag(2)

    run = fit(config, out=out, quiet=True, after_step=[enough], stop=stop)
    assert (run.state, run.exit_code) == ("stopped", 130)
    return run


@quick
def test_resuming_from_a_chosen_checkpoint_takes_the_way_again(tmp_path: Path) -> None:
    config = tiny(data={"batch_size": 18}, checkpoint=CheckpointConfig(every_steps=1, keep=9))
    whole = done(config, tmp_path / "whole")
    run = done(config, tmp_path / "whole", resume_from="step-000003")
    assert [row["step"] for row in run.metrics if "train/loss" in row] == [1, 2, 3, 4, 5, 6, 7, 8]
    assert differing(saved(run), saved(whole)) == set()
    assert len([row for row in run.metrics if "test/accuracy" in row]) == 1


@quick
def test_resuming_with_more_epochs_and_with_another_model(tmp_path: Path) -> None:
    config = tiny(loop={"epochs": 3})
    stopped_after(config, tmp_path / "run", 2)
    with pytest.raises(ConfigError, match=r"model\.depth cannot change"):
        fit(tiny(updated(VIT, depth=3)), out=tmp_path / "run", quiet=True, resume=True)
    run = done(tiny(loop={"epochs": 5}), tmp_path / "run", resume=True)
    assert len(steps_of(run)) == 5
    assert "changed since the run began: loop.epochs: 3 -> 5" in run.folder.log_path.read_text()
    assert load_yaml(TrainConfig, run.folder.config_path).loop.epochs == 5


@quick
def test_what_goes_wrong_stands_in_the_log_and_the_status(tmp_path: Path) -> None:
    def fails(state: TrainState) -> None:
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        fit(tiny(), out=tmp_path / "run", quiet=True, after_step=[fails])
    status = json.loads((tmp_path / "run" / "status.json").read_text())
    assert status["state"] == "failed"
    assert "on purpose" in status["error"]
    assert "Traceback" in (tmp_path / "run" / "train.log").read_text()
    assert logging.getLogger("vitscope").handlers == []


class Clumsy:
    """A probe that fails when the first pictures were read for it."""

    def begin(self, work: Work, sample: Callable[[], Any]) -> None:
        sample()
        raise RuntimeError("no more")

    def see(self, work: Work) -> None:
        pass


class LeftAlone(Processes):
    """The first of two, whose other one is lost while everything is put together."""

    def after_first(self, call: Callable[[], Any]) -> Any:
        if isinstance(made := call(), Work):
            raise RuntimeError("no more")
        return made


def in_a_step(state: TrainState) -> None:
    raise RuntimeError("no more")


@quick
@pytest.mark.parametrize("where", ["a step", "a probe", "another process", "the state", "the second loader"])
def test_both_loaders_are_closed_whatever_happens(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else their workers live on: a program that goes on after the error would gather them."""
    made: list[Loader] = []
    make = Basis.loader

    def noted(self: Basis, part: str, **more: Any) -> Loader:
        if where == "the second loader" and part == "val":
            raise RuntimeError("no more")
        made.append(make(self, part, **more))
        return made[-1]

    def refused(*_: Any, **__: Any) -> None:
        raise RuntimeError("no more")

    monkeypatch.setattr(Basis, "loader", noted)
    if where == "the state":
        monkeypatch.setattr(setup, "make_state", refused)
    if where == "another process":
        monkeypatch.setattr("vitscope.train.fit.join", lambda *_: LeftAlone(torch.device("cpu")))
    with pytest.raises(RuntimeError, match="no more"):
        fit(
            tiny(data={"batch_size": 36, "loader": "worker", "workers": 1}),
            out=tmp_path / "run",
            quiet=True,
            after_step=[in_a_step] if where == "a step" else [],
            between_steps=[Clumsy()] if where == "a probe" else [],
        )
    assert len(made) == (1 if where == "the second loader" else 2)
    for loader in made:
        with pytest.raises(VitscopeError, match="the loader is closed"):
            next(iter(loader.epoch(0)))


@quick
def test_mixed_pictures_train_through_both_loaders(tmp_path: Path) -> None:
    losses = []
    for loader in ("device", "worker"):
        data = {"batch_size": 36, "loader": loader, "workers": 0}
        config = tiny(data=data, augment=AugmentConfig(mixup_alpha=0.8, cutmix_alpha=1.0))
        losses.append(steps_of(done(config, tmp_path / loader)))
    assert losses[0] == pytest.approx(losses[1], rel=1e-3), "no picture is varied, and mixing is the same in both"


# --- a run that cannot begin ---------------------------------------------------------------------------------------


def test_a_refused_run_leaves_no_folder(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "mine"
    with pytest.raises(VitscopeError, match="larger than the training set") as refused:
        fit(tiny(data={"batch_size": 5000}), out=place, quiet=True)
    assert "--batch-size" in (refused.value.fix or "")
    assert not place.exists()
    fit(tiny(loop={"epochs": 1}), out=place, quiet=True)  # the corrected call finds the place free


def test_a_number_of_a_hook_that_is_no_tensor_is_named(tmp_path: Path) -> None:
    def careless(state: TrainState) -> None:
        state.scalars["probe/norm"] = 1.0  # type: ignore[assignment]

    with pytest.raises(
        VitscopeError, match=r"state\.scalars\['probe/norm'\]: expected a tensor on the device, .* float"
    ):
        fit(tiny(loop={"epochs": 1}), out=tmp_path / "run", quiet=True, after_step=[careless])

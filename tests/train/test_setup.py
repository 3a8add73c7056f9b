"""A run is put together as its settings say: every setting reaches the part that it is for."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import nn

from train.tiny_runs import DATA, VIT, K, differing, network, tiny, weights
from vitscope.core.config import updated
from vitscope.core.errors import ConfigError
from vitscope.core.run_folder import RunFolder
from vitscope.core.seed import derive_seed
from vitscope.data.config import DataConfig
from vitscope.data.dataset import open_dataset
from vitscope.models.config import CNNConfig
from vitscope.train.basis import Basis, lay_out, settle
from vitscope.train.config import CheckpointConfig, PrecisionConfig, TrainConfig
from vitscope.train.first_state import make_state
from vitscope.train.losses import class_weights
from vitscope.train.setup import set_up
from vitscope.train.show.observer import Observer
from vitscope.train.signals import StopFlag
from vitscope.weights.folder import save_model

CPU = torch.device("cpu")


def basis_of(config: TrainConfig) -> Basis:
    dataset = open_dataset(config.data)
    return lay_out(settle(config, dataset), dataset, CPU)


def state_and_objective(config: TrainConfig, steps: int = 5) -> tuple[Any, Any, list[str]]:
    said: list[str] = []
    state, objective = make_state(basis_of(config), steps, said.append)
    return state, objective, said


def test_the_data_decide_the_number_of_classes() -> None:
    config = tiny(updated(VIT, num_classes=1000))
    settled = settle(config, open_dataset(config.data))
    assert settled.model.bare.num_classes == K
    assert config.model.bare.num_classes == 1000
    assert updated(settled, model=config.model) == config, "and nothing else"


def test_pictures_are_prepared_for_the_model() -> None:
    config = tiny(updated(VIT, img_size=12, in_chans=3), data={"mean": (0.1, 0.2, 0.3), "interpolation": "bilinear"})
    seen = basis_of(config).preprocess
    assert (seen.img_size, seen.in_chans, seen.mean) == ((12, 12), 3, (0.1, 0.2, 0.3))
    assert seen.interpolation == "bilinear"
    batch = next(iter(basis_of(config).loader("train", training=True, say=print).epoch(0)))
    assert batch.images.shape == (72, 3, 12, 12)


@pytest.mark.parametrize(("eval_batch", "wanted"), [(None, 20), (7, 7)])
def test_batches_have_the_sizes_asked_for(eval_batch: int | None, wanted: int) -> None:
    basis = basis_of(tiny(data={"batch_size": 20}, loop={"eval_batch": eval_batch}))
    training = [len(batch.images) for batch in basis.loader("train", training=True, say=print).epoch(0)]
    assert training == [20, 20, 20], "whole batches only"
    sizes = [len(batch.images) for batch in basis.loader("val", training=False, say=print).epoch(0)]
    assert sizes[0] == wanted
    assert sum(sizes) == 24


def test_the_seed_decides_order_and_weights_whatever_was_drawn_before() -> None:
    found = []
    for seed, drawn in ((0, 0), (0, 5), (1, 0)):
        torch.manual_seed(99)
        torch.rand(drawn)
        config = tiny(loop={"seed": seed})
        order = next(iter(basis_of(config).loader("train", training=True, say=print).epoch(0))).indices
        found.append({**weights(state_and_objective(config)[0].model), "order": order})
    assert differing(found[0], found[1]) == set()
    assert {"order", "head.weight", "pos_embed"} <= differing(found[0], found[2])


def test_order_may_have_a_seed_of_its_own() -> None:
    """The same network shown the pictures as those of another seed are."""

    def made(**loop: Any) -> tuple[list[int], dict[str, Any]]:
        config = tiny(loop=loop)
        batch = next(iter(basis_of(config).loader("train", training=True, say=print).epoch(0)))
        return batch.indices.tolist(), weights(state_and_objective(config)[0].model)

    (plain, first), (other, second), (third, _) = made(seed=0), made(seed=0, data_seed=1), made(seed=1)
    assert plain != other == third
    assert differing(first, second) == set()


def test_weights_have_a_seed_of_their_own() -> None:
    model = state_and_objective(tiny(loop={"seed": 3}))[0].model
    wanted = network(seed=derive_seed(3, "weights"), large=False)
    assert differing(weights(model), weights(wanted)) == set()


def test_settings_reach_the_state() -> None:
    config = tiny(
        optim={"clip_norm": 0.7, "clip_value": 0.3, "lr": 1e-3, "scale_lr": "linear", "base_batch": 36, "l1": 0.5},
        schedule={"name": "cosine", "warmup": "2 steps"},
        loop={"micro_batch": 9, "epochs": 4},
        loss={"smoothing": 0.2},
        precision=PrecisionConfig(dtype="bf16", grad_checkpointing=True),
    )
    state, objective, said = state_and_objective(config, steps=5)
    assert (state.clip_norm, state.clip_value, state.micro_batch) == (0.7, 0.3, 9)
    assert state.dtype is torch.bfloat16
    assert state.model.grad_checkpointing
    assert state.model.training
    assert len(state.lr_table) == 20
    assert float(state.lr_table.max()) == pytest.approx(2e-3), "scaled by 72 / 36"
    assert objective.l1 == 0.5
    assert objective.decayed == state.optimizer.decayed
    assert objective.config.smoothing == 0.2
    assert any(line.startswith("adamw: ") for line in said)


def test_the_model_carries_labels_and_preprocessing() -> None:
    basis = basis_of(tiny())
    model = make_state(basis, 1, print)[0].model
    assert model.preprocessing == basis.preprocess
    assert model.labels == list(basis.dataset.class_names)


def test_class_balance_weighs_the_training_pictures() -> None:
    config = tiny(data={"name": DATA.replace("120", "122")}, loss={"class_balance": 1.0})
    _, objective, _ = state_and_objective(config)
    dataset = open_dataset(config.data)
    wanted = class_weights(dataset.counts("train"), 1.0)
    torch.testing.assert_close(objective.class_weights, wanted)
    assert wanted.max() > wanted.min()
    assert state_and_objective(tiny())[1].class_weights is None


def test_a_frozen_batch_norm_keeps_its_running_means() -> None:
    config = CNNConfig(img_size=8, in_chans=1, widths=(4, 8), num_classes=K)
    state, objective, said = state_and_objective(tiny(config, optim={"freeze": ("backbone",)}))
    norms = [module for module in state.model.modules() if isinstance(module, nn.BatchNorm2d)]
    assert norms
    assert not any(norm.training for norm in norms)
    assert any(module.training for module in state.model.modules() if isinstance(module, nn.Dropout | nn.Dropout2d))
    assert any("stay as they are" in line for line in said)
    before = weights(state.model)
    loss, _ = objective(torch.randn(6, 1, 8, 8), torch.arange(6) % K)
    loss.backward()
    assert differing(weights(state.model), before) == set()
    assert {name for name, p in state.model.named_parameters() if p.grad is not None} == {"head.weight", "head.bias"}
    partly = state_and_objective(tiny(config, optim={"freeze": ("stages.0",)}))[0].model
    modes = {norm.training for norm in partly.modules() if isinstance(norm, nn.BatchNorm2d)}
    assert modes == {True, False}, "the others go on"


def test_weights_from_elsewhere_are_said(tmp_path: Path) -> None:
    source = network()
    save_model(source, tmp_path / "model")
    state, _, said = state_and_objective(tiny(checkpoint=CheckpointConfig(init_from=str(tmp_path / "model"))))
    assert differing(weights(state.model), weights(source)) <= {"head.weight", "head.bias"}
    assert any(str(tmp_path / "model") in line for line in said)


def test_a_teacher_is_loaded_and_one_of_other_classes_refused(tmp_path: Path) -> None:
    save_model(network(), tmp_path / "model")
    _, objective, _ = state_and_objective(tiny(loss={"teacher": str(tmp_path / "model")}))
    images = torch.randn(2, 1, 8, 8)
    assert objective.teacher is not None
    torch.testing.assert_close(objective.teacher(images), network().eval()(images).detach())
    save_model(network(updated(VIT, num_classes=7)), tmp_path / "other")
    with pytest.raises(ConfigError, match=r"loss\.teacher"):
        state_and_objective(tiny(loss={"teacher": str(tmp_path / "other")}))


def work_of(config: TrainConfig, folder: Path, said: list[str] | None = None, **more: Any) -> Any:
    run = RunFolder.create(folder, name="run")
    told = [] if said is None else said
    return set_up(basis_of(config), run, observers=Observer(), after=(), stop=StopFlag(), say=told.append, **more)


@pytest.mark.parametrize(
    ("wish", "told"),
    [
        ("auto", "launch mode: eager (chosen automatically for this device and the work to come)"),
        ("eager", "launch mode: eager (as asked for)"),
        ("graph", "launch mode: eager ('graph' is for CUDA, this is cpu)"),
    ],
)
def test_how_a_step_is_launched_is_said(tmp_path: Path, wish: str, told: str) -> None:
    said: list[str] = []
    work_of(tiny(precision=PrecisionConfig(launch=wish)), tmp_path, said)  # type: ignore[arg-type]
    assert [line for line in said if "launch mode" in line] == [told]


@pytest.mark.parametrize("would_pay", [True, False])
def test_that_bf16_would_be_quicker_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, would_pay: bool) -> None:
    monkeypatch.setattr("vitscope.train.setup.bf16_would_pay", lambda *settings: would_pay)
    said: list[str] = []
    work = work_of(tiny(), tmp_path, said)
    assert any("--precision.dtype bf16" in line for line in said) is would_pay
    assert work.state.dtype is None, "said, not done"


def test_all_parts_are_at_their_place(tmp_path: Path) -> None:
    said: list[str] = []
    config = tiny(
        data={"batch_size": 18},
        loop={"ema_decay": 0.9, "most_bad_steps": 5},
        schedule={"name": "plateau"},
        checkpoint=CheckpointConfig(keep=4),
    )
    work = work_of(config, tmp_path / "run", said)
    assert work.steps_per_epoch == 4
    assert [hook.name for hook in work.after] == ["ema"]
    assert work.launcher.after == work.after
    assert work.launcher.launch == "eager"
    assert work.checkpoints.keep == 4
    assert work.watch.most_bad_steps == 5
    assert work.watch.loss_at_chance == pytest.approx(math.log(K))
    assert work.watch.course is work.course
    assert work.step == 0
    assert work.split_hash == open_dataset(config.data).splits.hash
    assert any(line.startswith("training pictures: ") for line in said)
    assert work_of(tiny(), tmp_path / "plain").after == []


def test_evaluation_and_saving_are_of_the_running_mean(tmp_path: Path) -> None:
    work = work_of(tiny(loop={"ema_decay": 0.9}), tmp_path / "run")
    with torch.no_grad():
        work.after[0].mean["head.bias"][2] = 50.0
    found = work.evaluate()
    assert int(found.confusion.sum(0)[2]) == found.count == 24, "the mean says 2 to everything"
    work.save_model()
    assert float(load_file(work.run.model / "model.safetensors")["head.bias"][2]) == 50.0
    assert float(work.state.model.head.bias.detach()[2]) == 0.0, "the model has its own back"
    assert work.state.model.training


def test_an_unreadable_picture_is_written_down(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for label in ("a", "b"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(20):
            pixels = rng.integers(0, 255, (8, 8), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "data" / label / f"{number:02d}.png")
    dataset = open_dataset(DataConfig(name=str(tmp_path / "data")))
    victim = dataset.source.where(int(dataset.splits["train"][0]))
    Path(victim).write_bytes(b"not a picture")
    said: list[str] = []
    data = {"name": str(tmp_path / "data"), "batch_size": 8, "bad_limit": 0.5, "cache": False}
    work = work_of(tiny(data=data), tmp_path / "run", said)
    list(work.launcher.loader.epoch(0))
    work.launcher.loader.close()
    lines = [json.loads(line) for line in work.run.bad_samples_path.read_text().splitlines()]
    assert lines
    assert all(line["where"] == victim for line in lines)
    assert any("left out" in line and victim in line for line in said)


@pytest.mark.parametrize(("lr", "is_said"), [(1e-3, True), (1e-4, False)])
def test_a_rate_for_new_weights_is_named_where_weights_are_taken_over(lr: float, is_said: bool, tmp_path: Path) -> None:
    save_model(network(), tmp_path / "old", labels=[f"another {number}" for number in range(K)])
    start = CheckpointConfig(init_from=str(tmp_path / "old"))
    *_, said = state_and_objective(tiny(optim={"lr": lr}, checkpoint=start))
    assert any("suits training from scratch" in line for line in said) is is_said
    save_model(network(), tmp_path / "same")
    goes_on = CheckpointConfig(init_from=str(tmp_path / "same"))  # with its own head, as rounds of sparse training do
    *_, said = state_and_objective(tiny(optim={"lr": lr}, checkpoint=goes_on))
    assert not any("suits training from scratch" in line for line in said)
    *_, said = state_and_objective(tiny(optim={"lr": lr}))
    assert not any("from scratch" in line for line in said)

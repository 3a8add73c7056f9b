"""Resuming: what makes it another run is refused by name with both values, the rest is applied and told."""

from __future__ import annotations

from typing import Any

import pytest

from train.tiny_runs import VIT, tiny
from vitscope.core.config import to_dict, updated
from vitscope.core.errors import ConfigError
from vitscope.data.config import AugmentConfig
from vitscope.models.config import CNNConfig
from vitscope.train.changes import STRUCTURAL, changes
from vitscope.train.config import CheckpointConfig, PrecisionConfig, TrainConfig


def changed(section: str, **settings: Any) -> TrainConfig:
    config = tiny()
    return updated(config, **{section: updated(getattr(config, section), **settings)})


def test_nothing_changed() -> None:
    assert changes(tiny(), tiny()) == []


@pytest.mark.parametrize(
    ("new", "told"),
    [
        (changed("loop", epochs=9), "loop.epochs: 2 -> 9"),
        (changed("loop", log_every=3), "loop.log_every: 10 -> 3"),
        (changed("loop", patience=4), "loop.patience: 7 -> 4"),
        (changed("optim", lr=0.5), "optim.lr: 0.003 -> 0.5"),
        (changed("optim", betas=(0.8, 0.9)), "optim.betas: [0.9, 0.999] -> [0.8, 0.9]"),
        (changed("schedule", name="cosine"), "schedule.name: 'constant' -> 'cosine'"),
        (changed("data", workers=2), "data.workers: None -> 2"),
        (changed("data", loader="worker"), "data.loader: 'auto' -> 'worker'"),
        (updated(tiny(), augment=AugmentConfig(flip="random")), "augment.flip: 'none' -> 'random'"),
        (updated(tiny(), checkpoint=CheckpointConfig(keep=7)), "checkpoint.keep: 2 -> 7"),
        (updated(tiny(), precision=PrecisionConfig(launch="eager")), "precision.launch: 'auto' -> 'eager'"),
    ],
)
def test_what_may_change_is_told(new: TrainConfig, told: str) -> None:
    assert changes(tiny(), new) == [told]


@pytest.mark.parametrize(
    ("new", "key", "old", "received"),
    [
        (tiny(updated(VIT, depth=3)), "model.depth", "2", "3"),
        (tiny(updated(VIT, drop_rate=0.1)), "model.drop_rate", "0.0", "0.1"),
        (changed("data", batch_size=10), "data.batch_size", "72", "10"),
        (changed("data", name="digits"), "data.name", "'synthetic", "'digits'"),
        (changed("data", split_seed=1), "data.split_seed", "0", "1"),
        (changed("data", mean=(0.1,)), "data.mean", "None", r"\[0.1\]"),
        (changed("loop", seed=1), "loop.seed", "0", "1"),
        (changed("loop", data_seed=1), "loop.data_seed", "None", "1"),
        (changed("loop", ema_decay=0.9), "loop.ema_decay", "None", "0.9"),
        (changed("optim", name="sgd"), "optim.name", "'adamw'", "'sgd'"),
        (changed("optim", freeze=("blocks.0",)), "optim.freeze", r"\[\]", r"\['blocks.0'\]"),
        (
            updated(tiny(), checkpoint=CheckpointConfig(init_from="there")),
            "checkpoint.init_from",
            "None",
            "'there'",
        ),
    ],
)
def test_what_makes_another_run_is_refused(new: TrainConfig, key: str, old: str, received: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{key} cannot change within a run: it is {old}.*, received {received}"):
        changes(tiny(), new)


def sgd(momentum: float) -> TrainConfig:
    return tiny(optim={"name": "sgd", "momentum": momentum, "nesterov": False})


@pytest.mark.parametrize(("old", "new"), [(0.9, 0.0), (0.0, 0.9)])
def test_momentum_neither_begins_nor_ends_within_a_run(old: float, new: float) -> None:
    """There is a buffer for it, or there is none."""
    with pytest.raises(ConfigError, match=rf"^optim\.momentum cannot begin or end .* it is {old}, received {new}"):
        changes(sgd(old), sgd(new))


def test_other_momentum_may_come() -> None:
    assert changes(sgd(0.9), sgd(0.5)) == ["optim.momentum: 0.9 -> 0.5"]
    assert changes(tiny(), changed("optim", momentum=0.0)) == ["optim.momentum: 0.9 -> 0.0"], "adamw has none"


def test_another_family_is_refused_by_a_model_setting() -> None:
    with pytest.raises(ConfigError, match=r"^model\."):
        changes(tiny(), tiny(CNNConfig(img_size=8)))


def test_one_refusal_outweighs_all_that_may_change() -> None:
    both = updated(changed("loop", epochs=9), optim=updated(tiny().optim, name="muon"))
    with pytest.raises(ConfigError, match=r"^optim\.name"):
        changes(tiny(), both)


def test_every_refused_setting_exists() -> None:
    """A renamed setting must not slip out of the list."""
    sections = to_dict(tiny())
    for key in STRUCTURAL:
        section, _, name = key.partition(".")
        assert section in sections
        assert not name or name in sections[section], key

"""The fault benchmark's faults are what they say they are, and its figures are right."""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import pytest
import torch
from torch.optim.swa_utils import AveragedModel

from vitscope.core.environment import data_roots
from vitscope.core.yaml import load_yaml
from vitscope.doctor.causes import CAUSES
from vitscope.train.config import TrainConfig

BENCH = Path(__file__).parents[2] / "bench" / "doctor"
sys.path.insert(0, str(BENCH))

from cases import every_case, wanted  # noqa: E402
from fault import Fault  # noqa: E402
from fault_list import FAULTS  # noqa: E402
from run import main  # noqa: E402
from score import fault_table, healthy_table, summary, wilson  # noqa: E402
from script import Script, Setup, assemble  # noqa: E402
from setups import SETUPS, Healthy  # noqa: E402

HAS_DATA = any((root / "cifar10").exists() for root in data_roots())
DATA = ("digits", "shapes", "mnist", "cifar10", "imagenette160")
SMALLEST = sorted(SETUPS.values(), key=lambda setup: DATA.index(setup.data))


def digest(*given: object) -> str:
    """Of tensors by their shape and bytes (NaN equals NaN), of anything else by its words."""
    held = hashlib.sha256()
    for one in given:
        is_tensor = isinstance(one, torch.Tensor)
        held.update(repr(tuple(one.shape) if is_tensor else one).encode())
        held.update(one.detach().contiguous().numpy().tobytes() if is_tensor else b"")
    return held.hexdigest()


def shown(setup: Setup) -> str:
    """What both loaders can show: every label, a few pictures as the model gets them, twice where chance decides."""
    torch.manual_seed(0)
    given = []
    for loader in (setup.train_loader, setup.val_loader):
        pictures = loader.dataset.pictures  # pyright: ignore
        given += [pictures.images, pictures.labels, *(loader.dataset[index][0] for index in range(4))]
    return digest(*given)


def computed(setup: Setup) -> str:
    """Weights, which of them may move and do, and what is answered to a picture made of nothing but the seed."""
    model = setup.model
    torch.manual_seed(1)
    shape = setup.val_loader.dataset.pictures.images.shape[1:]  # pyright: ignore
    answers = [model.train(mode)(torch.randn(2, *shape)) for mode in (False, True)]
    logits = [one if isinstance(one, torch.Tensor) else one.logits for one in answers]
    logits[1].square().sum().backward()
    moves = [(name, one.requires_grad, one.grad is not None) for name, one in model.named_parameters()]
    model.zero_grad()
    return digest(*model.parameters(), *logits, moves)


def trained(script: Script, setup: Setup) -> str:
    """The optimiser, a step, what is evaluated after it and in which mode, and what the doctor is told."""
    torch.manual_seed(2)
    groups = [{**group, "params": len(group["params"])} for group in setup.optimizer.param_groups]
    names = {id(one): name for name, one in setup.model.named_parameters()}
    held = [names[id(one)] for group in setup.optimizer.param_groups for one in group["params"]]
    shape = setup.val_loader.dataset.pictures.images.shape[1:]  # pyright: ignore
    losses = []
    for _ in range(2):
        setup.model.train()
        losses.append(float(setup.step(torch.randn(8, *shape), torch.arange(8) % 8)))
    averaged = setup.evaluated
    if isinstance(averaged, AveragedModel):
        losses.append(float(averaged.n_averaged))
    modes = []
    watched = setup.model if averaged is None else averaged
    watched.train()
    with watched.register_forward_pre_hook(lambda module, _: modes.append(module.training)):
        setup.evaluate()
    return digest(groups, held, losses, modes[:1], setup.facts, setup.train_loader.batch_size, script.ema)


def traces(script: Script) -> dict[str, str]:
    script.val = script.val.picked(torch.arange(32))
    setup = assemble(script)
    return {"data": shown(setup), "model": computed(setup), "training": trained(script, setup)}


def require_data(setup: Healthy) -> None:
    if not setup.is_built_in and not HAS_DATA:
        pytest.skip("needs real pictures: $VITSCOPE_DATA")


def prove_broken(fault: Fault, healthy: Healthy) -> None:
    """What the fault touches has changed; the places before it have not (those after it follow from it)."""
    require_data(healthy)
    sound, broken = healthy.make(0), healthy.make(0)
    fault.break_it(broken)
    before, after = traces(sound), traces(broken)
    changed = {place for place in before if before[place] != after[place]}
    assert set(fault.touches) <= changed
    places = list(before)
    assert changed <= {*fault.touches, *places[places.index(fault.touches[-1]) :]}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_changes_what_it_says(name: str) -> None:
    fault = FAULTS[name]
    prove_broken(fault, next(setup for setup in SMALLEST if fault.fits(setup)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
@pytest.mark.parametrize("setup", SETUPS)
def test_a_fault_can_be_made_on_every_setup_it_fits(name: str, setup: str) -> None:
    if not FAULTS[name].fits(SETUPS[setup]):
        pytest.skip("means nothing there")
    prove_broken(FAULTS[name], SETUPS[setup])


@pytest.mark.parametrize("name", FAULTS)
def test_right_causes_are_names_the_doctor_has(name: str) -> None:
    assert FAULTS[name].about
    assert FAULTS[name].right
    assert set(FAULTS[name].right) <= set(CAUSES)


def test_there_are_enough_setups_and_faults_for_them() -> None:
    assert len(SETUPS) >= 12
    assert sum(fault.is_listed for fault in FAULTS.values()) >= 41
    assert {setup.data for setup in SETUPS.values()} == set(DATA)
    fitting = {name: sum(fault.fits(setup) for setup in SETUPS.values()) for name, fault in FAULTS.items()}
    assert {name for name, count in fitting.items() if count < 3 and FAULTS[name].is_listed} == set()


def test_cases_are_chosen_by_seed_and_come_in_turns() -> None:
    cases = every_case(0, each=3, healthy_seeds=2)
    assert [case.key for case in cases] == [case.key for case in every_case(0, each=3, healthy_seeds=2)]
    assert [case.key for case in cases] != [case.key for case in every_case(1, each=3, healthy_seeds=2)]
    assert len({case.key for case in cases}) == len(cases) == 3 * len(FAULTS) + 2 * len(SETUPS)
    assert [case.fault for case in cases[: len(FAULTS)]] == list(FAULTS.values())
    assert {case.key.split("/")[0] for case in wanted(cases, ["lr_x1*"])} == {"lr_x10", "lr_x100"}
    assert all(case.fault is None for case in wanted(cases, ["healthy"]))


@pytest.mark.parametrize(
    ("hits", "trials", "low", "high"), [(0, 100, 0.0, 0.0370), (95, 100, 0.8882, 0.9785), (0, 0, 0.0, 1.0)]
)
def test_wilson_interval(hits: int, trials: int, low: float, high: float) -> None:
    assert wilson(hits, trials) == pytest.approx((low, high), abs=1e-4)


def row(fault: str | None, *said: tuple[str, float], right: str = "lr_too_high", setup: str = "a") -> dict[str, object]:
    return {
        "key": f"{fault}/{setup}",
        "fault": fault,
        "about": "x | y",
        "right": [right] if fault else [],
        "is_listed": fault != "new",
        "setup": setup,
        "quick": True,
        "verdict": "unwell" if said else "healthy",
        "findings": [{"cause": cause, "confidence": sure} for cause, sure in said],
        "failed": [],
        "seconds": 6.0,
    }


def test_the_figures_count_what_they_say() -> None:
    rows = [
        row("fast", ("lr_too_high", 0.9)),
        row("fast", ("clip_too_small", 0.9), ("lr_too_high", 0.8), setup="b"),
        row("fast", ("clip_too_small", 0.9), ("ema_stale", 0.8), ("lr_too_high", 0.7), setup="c"),
        row("new"),
        row(None),
        row(None, ("lr_too_low", 0.6)),
    ]
    text = summary(rows)
    assert "listed faults: 2 of 3, 66.7%" in text
    assert "not on the list: 0 of 1" in text
    assert "first cause right of all called unwell: 1 of 4" in text
    assert "healthy called unwell: 1 of 2" in text
    assert "mean 0.10" in text
    table = fault_table(rows[:4]).splitlines()
    assert table[2].startswith("| new (not listed) | x / y | lr_too_high | 0/1 | 0/1 | a: nothing (healthy) |")
    assert "| 2/3 | 1/3 | c: clip_too_small 0.90, ema_stale 0.80, lr_too_high 0.70 |" in table[3]
    assert healthy_table(rows[4:]).splitlines()[-1] == "| a | 2 | 1 | 0 | 6.0 | lr_too_low x1 |"


def test_a_run_goes_on_where_it_was_and_prints_its_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    flags = ["--out", str(results), "--quick", "--setups", "digits_cnn_fp16", "--each", "1", "--healthy-seeds", "1"]

    def run(*more: str) -> str:
        monkeypatch.setattr(sys, "argv", ["run.py", *flags, *more])
        main()
        return capsys.readouterr().out

    run("--only", "labels_off_by_one")
    first = results.read_text(encoding="utf-8")
    results.write_text(first + '{"key": "cut o', encoding="utf-8")
    assert json.loads(first)["key"] == "labels_off_by_one/digits_cnn_fp16/0"
    assert "| labels_off_by_one |" in run("--only", "labels_off_by_one", "--budget-seconds", "0")
    assert results.read_text(encoding="utf-8").startswith(first)
    assert len(results.read_text(encoding="utf-8").splitlines()) == 2
    assert "| labels_off_by_one |" in run("--table")


def test_complaints_are_settings_that_are_wrong_in_the_way_they_say() -> None:
    found = {file.stem: load_yaml(TrainConfig, file) for file in sorted((BENCH / "complaints").glob("*.yaml"))}
    assert set(found) == {"head_dim_16", "lr_1e_2_fine_tune", "patch_16_on_32"}
    assert found["lr_1e_2_fine_tune"].optim.lr == 1e-2
    assert found["lr_1e_2_fine_tune"].checkpoint.init_from is not None
    network = found["head_dim_16"].model.bare
    assert network.embed_dim // network.num_heads == 16  # pyright: ignore
    assert found["patch_16_on_32"].model.bare.patch_size == 16  # pyright: ignore
    assert found["patch_16_on_32"].model.bare.img_size == 32

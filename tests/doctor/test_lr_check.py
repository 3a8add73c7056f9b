"""The learning rate: right ones give nothing, wrong ones are named with a rate that was measured to work."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.broken import small_cnn, small_resnet
from doctor.conftest import loader_of, pictures, small_vit
from doctor.seen import causes, notes
from doctor.test_as_it_came import fingerprint
from vitscope.doctor.as_it_came import as_it_came
from vitscope.doctor.before_norm import share_before_batch_norm, weights_before_batch_norm
from vitscope.doctor.checks import CHECKS as ALL
from vitscope.doctor.checks.training import CHECKS
from vitscope.doctor.checks.training.lr import first_steps, lr_test
from vitscope.doctor.examination import examine
from vitscope.doctor.experiments.held import HeldRun, hold, own_run, pool_of
from vitscope.doctor.experiments.long_run import at_real_batch, batches_of, beside
from vitscope.doctor.experiments.lr_test import (
    at_its_batch,
    classic_sweep,
    has_large_steps,
    is_too_high,
    is_too_low,
    lr_test_of,
    way_of,
)
from vitscope.doctor.finding import Finding, Seen
from vitscope.doctor.module_patient import module_patient
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.training import REAL_SECONDS, REAL_STEPS
from vitscope.doctor.torch_trainer import TorchTrainer

Make = Callable[..., Patient]


def sgd(model: nn.Module, lr: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr, momentum=0.9)


def faint_pictures(count: int) -> tuple[Tensor, Tensor]:
    """Hard to tell, so that large steps hurt."""
    images, labels = pictures(count)
    for image, label in zip(images, labels.tolist(), strict=True):
        image[:, 8 * (label // 2) :, 8 * (label % 2) :][:, :8, :8] -= 1.35
    return images, labels


def only(seen: Seen) -> Finding:
    (finding,) = seen.findings
    return finding


@pytest.mark.parametrize("check", [first_steps, lr_test])
@pytest.mark.parametrize("name", ["vit", "cnn", "resnet, sgd"])
def test_healthy_rates_give_nothing(patient: Make, name: str, check: Callable[[Patient], Seen]) -> None:
    model = {"vit": small_vit, "cnn": small_cnn, "resnet, sgd": small_resnet}[name]()
    one = patient(model, optimizer=sgd(model, 0.05) if "sgd" in name else None)
    before = fingerprint(one)
    with as_it_came(one):  # as the examination does
        seen = check(one)
    assert causes(seen) == []
    assert seen.measured["way"] == "falls"
    assert seen.measured["update_to_weight"] > 1e-3
    assert fingerprint(one) == before


@pytest.mark.parametrize("lr", [0.03, 0.3])
def test_a_rate_that_is_too_high_for_a_vit(patient: Make, lr: float) -> None:
    one = patient(lr=lr)
    before = fingerprint(one)
    with as_it_came(one):  # as the examination does
        seen = first_steps(one)
    finding = only(seen)
    assert causes(seen) == ["lr_too_high"]
    assert finding.numbers["lr"] == lr
    assert 1e-4 <= finding.numbers["proposal"] <= 5e-3
    assert finding.numbers["proposal"] < finding.numbers["edge"]
    assert finding.numbers["batch"] == 32
    assert finding.numbers["batch_end"] < finding.numbers["batch_start"]
    assert fingerprint(one) == before
    assert only(lr_test(one)) is finding  # nothing is measured twice


def test_the_rate_proposed_is_healthy_when_it_is_used(patient: Make) -> None:
    finding = only(first_steps(patient(lr=0.1)))
    assert causes(first_steps(patient(lr=finding.numbers["proposal"]))) == []


def test_a_rate_at_which_the_loss_is_lost_is_nearly_certain(patient: Make) -> None:
    model = small_cnn()
    finding = only(first_steps(patient(model, optimizer=sgd(model, 30.0))))
    assert finding.cause == "lr_too_high"
    assert finding.confidence == 0.95
    assert finding.numbers["proposal"] <= 0.5


def test_calls_that_only_collect_gradients_are_no_steps() -> None:
    losses = (1.0,) * 8
    collecting = HeldRun(1e-3, losses, 2, (0.0, 0.0, 0.0, 0.02, 0.0, 0.0, 0.0, 0.01))
    assert (collecting.move, collecting.collects) == (0.02, True)
    dead = HeldRun(1e-3, losses, 2, (0.5, 0.4, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0))
    assert (dead.move, dead.collects) == (0.5, False)
    assert HeldRun(0.0, losses, 2, (0.0,) * 8).move == 0.0
    assert not HeldRun(0.0, losses, 2, (0.0,) * 8).collects
    assert not HeldRun(1e-3, losses, 2, (0.0, *(0.01,) * 7)).collects


@pytest.mark.parametrize("every", [1, 2])
def test_a_rate_is_not_judged_for_sure_by_calls_that_do_not_update(patient: Make, every: int) -> None:
    """The pool has two batches, so that each update is of the second one alone."""
    model, calls = small_vit(), [0]
    optimizer = torch.optim.AdamW(model.parameters(), 0.03)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        calls[0] += 1
        if calls[0] % every == 0:
            optimizer.step()
        return loss

    found = only(first_steps(patient(model, optimizer=optimizer, step=step)))
    assert found.cause == "lr_too_high"
    assert (found.confidence < 0.5) == (every > 1)
    assert found.numbers["move"] > 0.1


@pytest.mark.parametrize("name", ["vit", "cnn, sgd"])
def test_a_rate_that_is_too_low(patient: Make, name: str) -> None:
    model = small_vit() if name == "vit" else small_cnn()
    one = patient(model, lr=1e-5, optimizer=sgd(model, 5e-5) if "sgd" in name else None)
    seen = first_steps(one)
    assert causes(seen) == ["lr_too_low"]
    numbers = only(seen).numbers
    assert 30 <= numbers["proposal"] / numbers["lr"] <= 100
    assert numbers["better_end"] < numbers["end"]


@pytest.mark.parametrize("batch_size", [2, 4, 8])
def test_few_pictures_learnt_by_heart_do_not_condemn_a_low_rate(batch_size: int) -> None:
    """As in PyTorch's first tutorial: four pictures a step, a rate that suits them, and a hundred times it learns the
    eight of an experiment by heart."""
    model = small_cnn()
    loader = loader_of(*faint_pictures(512), batch_size=batch_size)
    one = module_patient(model, loader, optimizer=sgd(model, 1e-3))
    one.tried["own"] = replace(own_run(one), moves=(1e-4,))
    for finding in first_steps(one).findings:
        assert (finding.cause, finding.confidence) == ("lr_too_low", 0.45)


def test_batches_are_cut_to_even_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """What mixes pictures pair by pair refuses odd ones."""
    model = small_vit()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    one = module_patient(model, loader_of(*pictures(), batch_size=64), optimizer=optimizer)
    with monkeypatch.context() as patched:
        patched.setattr("vitscope.doctor.experiments.held.STEP_SECONDS", 0.195)
        patched.setattr("time.perf_counter", itertools.count(0, 0.16).__next__)  # 16 pictures take 0.16 s
        assert [len(images) for images, _ in pool_of(one)] == [18, 18]
    one.tried["seconds"] = REAL_SECONDS / REAL_STEPS / 33.5
    assert at_real_batch(one, 1e-3)[1] == 32


def test_small_steps_on_weights_that_know_something_are_meant(patient: Make) -> None:
    one = patient(lr=1e-3)
    assert one.make_trainer is not None
    trainer = one.make_trainer()
    for _ in range(2):
        for images, labels in one.train():
            trainer.step(images, labels)
    assert causes(first_steps(patient(one.model, lr=1e-5))) == []


@pytest.mark.parametrize("lr", [0.0, math.nan])
def test_a_rate_of_zero_or_none_at_all_is_too_low(patient: Make, lr: float) -> None:
    model = small_vit()
    optimizer = torch.optim.AdamW(model.parameters(), 0.0)
    for group in optimizer.param_groups:
        group["lr"] = lr
    seen = first_steps(patient(model, optimizer=optimizer))
    assert causes(seen) == ["lr_too_low"]
    assert only(seen).numbers["proposal"] == 3e-4


def test_a_loss_with_the_wrong_sign_is_found_by_the_labels(patient: Make) -> None:
    def upside_down(logits: Tensor, labels: Tensor) -> Tensor:
        return -F.cross_entropy(logits, labels)

    seen = first_steps(patient(loss=upside_down))
    assert causes(seen) == ["does_not_learn"]
    numbers = only(seen).numbers
    assert numbers["end"] < numbers["start"] < 0
    assert numbers["known_after"] > numbers["known_before"] + 1


def test_a_smoothed_loss_is_no_wrong_sign(patient: Make) -> None:
    def smoothed(logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, label_smoothing=0.3)

    assert causes(first_steps(patient(loss=smoothed))) == []


def test_nothing_is_said_without_an_optimiser(patient: Make) -> None:
    one = patient()
    one.make_trainer = None
    assert first_steps(one).left_out == lr_test(one).left_out == "no_optimizer"


def test_the_full_test_finds_how_far_the_edge_is(patient: Make) -> None:
    seen = lr_test(patient(lr=1e-4))
    assert causes(seen) == []
    assert seen.measured["edge"] >= 3e-4
    assert len(seen.measured["runs"]) >= 3


def test_experiments_share_a_pool_and_the_patient_s_own_run(patient: Make) -> None:
    one = patient()
    assert pool_of(one) is pool_of(one)
    assert own_run(one) is own_run(one)
    assert lr_test_of(one).runs[1e-3] is own_run(one)
    assert [len(images) for images, _ in pool_of(one)] == [32, 32]


def test_a_proposal_is_measured_at_the_patient_s_batch(patient: Make) -> None:
    from doctor.conftest import loader_of, pictures
    from vitscope.doctor.module_patient import module_patient

    model = small_vit()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    one = module_patient(model, loader_of(*pictures(), batch_size=128), optimizer=optimizer)
    pool_of(one)
    one.tried["seconds"] = 1e-6  # whatever this machine is
    run, count = at_real_batch(one, 1e-3)
    assert count == 128
    assert way_of(run) == "falls"
    one.tried["seconds"] = 1e3
    assert at_real_batch(one, 1e-3)[1] == 32


def test_fresh_batches_show_harm_that_few_pictures_hide(patient: Make) -> None:
    one = patient()
    pool_of(one)
    one.tried["seconds"] = 1e-6
    beneath = beside(one, 0.3, 1e-3)
    assert beneath is not None
    assert beneath.harm == "harms"
    assert beneath.own > beneath.other
    above = beside(one, 1e-3, 1e-7)
    assert above is not None
    assert above.harm == "helps"
    one.tried["seconds"] = 1e3
    assert beside(one, 1e-3, 1e-4) is None
    assert len(batches_of(one, 20, 8)) == 20  # one epoch has 8


def test_a_classic_sweep_ends_where_the_loss_is_lost(patient: Make) -> None:
    model = small_resnet()
    one = patient(model, optimizer=sgd(model, 0.05))
    lrs, losses = classic_sweep(one, pool_of(one), lowest=1.0, highest=1e3)
    assert len(lrs) == len(losses) < 60
    assert lrs == sorted(lrs)


def test_the_classic_sweep_is_a_comparison_that_must_be_asked_for(patient: Make) -> None:
    report = examine(patient(), CHECKS, only=["training"], quick=True)
    assert report.why_not["classic_sweep"] == "on request"
    (asked,) = examine(patient(), CHECKS, only=["classic_sweep"]).asked
    assert (causes(asked.seen), asked.seen.notes[0].name) == ([], "classic_sweep")
    assert asked.seen.measured["edge"] > 0
    assert asked.seen.picture is not None


def run_of(*losses: float, move: float = 0.01) -> HeldRun:
    return HeldRun(1e-3, losses, 1, (move,))


def test_large_steps_are_borne_by_an_easy_task() -> None:
    assert has_large_steps(run_of(*[2.0 - 0.1 * step for step in range(12)], move=0.1))
    assert not has_large_steps(run_of(2.0, 1.0, *[0.0] * 10, move=0.1))


def test_ways() -> None:
    assert way_of(run_of(*[2.0 - 0.1 * step for step in range(12)])) == "falls"
    assert way_of(run_of(*[2.0] * 12)) == "crawls"
    assert way_of(run_of(*[2.0 + 0.1 * step for step in range(12)])) == "diverges"
    assert way_of(run_of(2.0, 1.5, math.nan)) == "diverges"
    assert way_of(run_of(*[2.0, 1.0] * 6)) == "oscillates"
    assert way_of(HeldRun(1e-3, (), 2)) == "diverges"
    assert way_of(run_of(*[-2.0 - 0.5 * step for step in range(12)])) == "falls"


def test_high_and_low_need_more_than_a_little() -> None:
    good, worse = run_of(*[2.0 - 0.1 * step for step in range(12)]), run_of(*[2.0 - 0.02 * step for step in range(12)])
    assert is_too_high(worse, good)
    assert not is_too_high(good, worse)
    slow = run_of(*[2.0 - 0.02 * step for step in range(12)], move=1e-4)
    assert is_too_low(slow, good)
    assert not is_too_low(worse, good)  # its steps are of a usual size
    assert not is_too_low(slow, run_of(*good.losses, move=0.039))  # the higher one is near the edge


def test_groups_keep_their_ratio_and_schedulers_their_top() -> None:
    model = small_cnn()
    groups = [{"params": [model[0].weight], "lr": 1e-3}, {"params": [model[8].weight], "lr": 1e-4}]
    optimizer = torch.optim.AdamW(groups)
    trainer = TorchTrainer(model, F.cross_entropy, optimizer)
    trainer.hold_lr(1e-2)
    assert [group["lr"] for group in optimizer.param_groups] == pytest.approx([1e-2, 1e-3])
    trainer.hold_lr(None)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-3, 1e-4]
    rising = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.optim.lr_scheduler.LambdaLR(rising, lambda step: step / 100)
    assert TorchTrainer(model, F.cross_entropy, rising).lr == 1e-3
    cycle = torch.optim.AdamW(model.parameters(), 1e-3)
    torch.optim.lr_scheduler.OneCycleLR(cycle, max_lr=5e-3, total_steps=100)
    assert TorchTrainer(model, F.cross_entropy, cycle).lr == 5e-3


def test_a_run_can_be_looked_at_before_it_is_put_back(patient: Make) -> None:
    one = patient()
    first = next(one.model.parameters()).detach().clone()
    seen = []
    hold(one, pool_of(one), 1e-2, steps=4, at_end=lambda: seen.append(next(one.model.parameters()).detach().clone()))
    assert not torch.equal(seen[0], first)
    assert torch.equal(next(one.model.parameters()), first)


def test_a_rate_that_is_a_million_times_too_high_is_still_the_rate(patient: Make) -> None:
    model = small_cnn()
    found = only(first_steps(patient(model, optimizer=sgd(model, 5e4))))
    assert found.cause == "lr_too_high"
    assert found.numbers["proposal"] < 1


@pytest.mark.parametrize("is_quick", [True, False])
def test_a_quick_examination_does_not_narrow_an_edge_for_long(
    patient: Make, is_quick: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without any time for it, the edge is between a good rate and one ten times as high, and the good one is told."""
    monkeypatch.setattr("vitscope.doctor.experiments.lr_test.QUICK_EDGE_SECONDS", -1.0)
    one = patient(lr=100.0)
    one.is_quick = is_quick
    finding = only(first_steps(one))
    assert causes(first_steps(one)) == ["lr_too_high"]
    tried = lr_test_of(one).runs
    is_decade = [math.isclose(math.log10(lr) % 1, 0, abs_tol=1e-6) for lr in tried]
    assert all(is_decade) == is_quick
    assert finding.numbers["proposal"] < finding.numbers["edge"]
    assert way_of(tried[finding.numbers["proposal"]]) == "falls"


def test_beside_a_rate_that_is_lost_runs_end_when_they_are_decided(patient: Make) -> None:
    one = patient(lr=100.0)
    first_steps(one)
    test = lr_test_of(one)
    assert test.runs[test.own].is_lost
    assert any(len(run.losses) < 24 for run in test.runs.values() if not run.is_lost)


def test_a_rate_beside_which_no_other_does_better_is_not_called_fine(patient: Make) -> None:
    calls = [0]

    def rising(logits: Tensor, labels: Tensor) -> Tensor:
        calls[0] += 1
        return 0 * logits.sum() + 1 + 0.1 * calls[0]

    seen = first_steps(patient(loss=rising))
    assert causes(seen) == []
    assert seen.left_out == "no_rate_works"


def test_an_optimiser_whose_step_wants_a_closure_is_left_out(patient: Make) -> None:
    model = small_vit()
    report = examine(patient(model, optimizer=torch.optim.LBFGS(model.parameters())), ALL)
    assert [asked for asked in report.asked if asked.failed is not None] == []
    left_out = {asked.check.name for asked in report.asked if asked.seen.left_out == "step_wants_closure"}
    assert {"step_gradient", "step_size", "first_steps"} <= left_out
    assert "wants a closure" in " ".join(str(report).split())
    assert "closure" in report.as_text(language="zh")
    assert "optimizer_reach" not in left_out, "what it holds can be seen all the same"


def few_pictures_a_step(
    monkeypatch: pytest.MonkeyPatch, make: Callable[[], nn.Module], lr: float, batch_size: int
) -> Seen:
    """Where there is time for 16 of them."""
    monkeypatch.setattr("vitscope.doctor.experiments.held.STEP_SECONDS", 1e-9)
    model = make()
    loader = loader_of(*faint_pictures(512), batch_size=batch_size)
    return first_steps(module_patient(model, loader, optimizer=sgd(model, lr)))


def test_a_rate_of_sgd_is_judged_with_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """0.1 looks too high for a ResNet with 16 pictures, and with 16 in a batch it is. With 128 it is as good as 0.1 / 8
    there."""
    assert causes(few_pictures_a_step(monkeypatch, small_resnet, 0.1, 16)) == ["lr_too_high"]
    with_its_batch = few_pictures_a_step(monkeypatch, small_resnet, 0.1, 128)
    assert causes(with_its_batch) == []
    (note,) = with_its_batch.notes
    assert note.name == "rate_of_its_batch"
    assert note.numbers == {"lr": 0.1, "pictures": 16, "lower": 0.0125, "batch": 128}


def test_a_batch_excuses_no_rate_of_weights_whose_length_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 1.0 this network learns nothing in twelve epochs of 256 pictures a step."""
    seen = few_pictures_a_step(monkeypatch, small_cnn, 1.0, 256)
    assert causes(seen) == ["lr_too_high"]
    assert only(seen).confidence >= 0.6


def test_what_is_lost_in_a_few_steps_is_lost_with_any_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitscope.doctor.experiments.held.STEP_SECONDS", 1e-9)
    model = small_resnet()
    loader = loader_of(*faint_pictures(512), batch_size=128)
    one = module_patient(model, loader, optimizer=sgd(model, 0.1))
    one.tried["own"] = replace(own_run(one), losses=(1.4, math.inf))
    assert only(first_steps(one)).confidence == 0.95


def test_however_large_the_batch_a_tenth_of_the_rate_must_do(patient: Make) -> None:
    one = patient(small_resnet())
    one.facts = replace(one.facts, batch_size=4096)
    test = lr_test_of(one)
    run = at_its_batch(test, one)
    assert run is not None
    assert run.lr == pytest.approx(test.own / 10)


def test_weights_before_batchnorm_are_known(patient: Make) -> None:
    resnet = patient(small_resnet())
    before = fingerprint(resnet)
    assert weights_before_batch_norm(resnet) == {
        name for name, one in resnet.model.named_parameters() if one.ndim == 4
    }, "all but the classifier's"
    assert fingerprint(resnet) == before
    everything = [name for name, _ in resnet.model.named_parameters()]
    assert 0.8 < share_before_batch_norm(resnet, everything) < 1
    assert share_before_batch_norm(resnet, [everything[-2]]) == 0.0, "what is trained counts"
    assert share_before_batch_norm(resnet, []) == 0.0


def test_weights_that_hardly_speak_are_not_before_batchnorm(patient: Make) -> None:
    """Their length is not seen either while their branch begins at nearly nothing."""
    for model in (small_vit(), small_vit(layer_scale=1e-5), nn.Sequential(nn.Flatten(), nn.Linear(768, 4))):
        assert weights_before_batch_norm(patient(model)) == set()


def test_a_frozen_batchnorm_does_not_look_at_the_batch(patient: Make) -> None:
    model = small_resnet()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.requires_grad_(False)
    assert weights_before_batch_norm(patient(model)) == set()


def test_large_first_steps_of_sgd_before_batchnorm_are_only_a_possible_cause(patient: Make) -> None:
    """They heal themselves; Adam's do not."""
    images, labels = faint_pictures(256)

    def said(optimizer: str) -> Seen:
        model = small_resnet()
        moved = sgd(model, 0.1) if optimizer == "sgd" else torch.optim.Adam(model.parameters(), 0.3)
        loader = loader_of(images, labels, batch_size=16)
        return first_steps(module_patient(model, loader, optimizer=moved))

    of_sgd = said("sgd")
    assert only(of_sgd).confidence == 0.45
    assert notes(of_sgd) == ["rate_may_heal"]
    assert only(of_sgd).numbers["before_norm"] > 0.8
    of_adam = said("adam")
    assert causes(of_adam) == ["lr_too_high"]
    assert only(of_adam).confidence >= 0.6
    assert notes(of_adam) == []


def test_before_batchnorm_too_a_rate_is_too_high_where_nothing_is_learnt(patient: Make) -> None:
    """Steps that nothing comes of do not heal in time."""
    model = small_resnet()
    loader = loader_of(*faint_pictures(256), batch_size=16)
    seen = first_steps(module_patient(model, loader, optimizer=sgd(model, 2.0)))
    assert causes(seen) == ["lr_too_high"]
    assert only(seen).confidence >= 0.6
    assert notes(seen) == []

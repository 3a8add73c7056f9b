"""One step: what plain torch would do, in parts as in one, nothing at all where it is not finite, and never a look of
the host."""

from __future__ import annotations

import copy
import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from train.tiny_runs import VIT, K, assert_close, batch, differing, network, objective_of, state_of, take, weights
from vitscope.core.config import updated
from vitscope.core.errors import VitscopeError
from vitscope.data.config import half_normalised
from vitscope.models.config import CNNConfig, ResNetConfig
from vitscope.train.config import LossConfig
from vitscope.train.ema import Ema
from vitscope.train.optim.groups import freeze
from vitscope.train.state import TrainState
from vitscope.train.step import hits, train_step
from vitscope.train.teacher import Teacher

CNN = CNNConfig(img_size=8, in_chans=1, widths=(4, 8), num_classes=K, drop_rate=0.0, head_drop_rate=0.0)
WEIGHTS = torch.tensor([0.2, 3.0, 1.0, 0.5])


def teacher() -> Teacher:
    return Teacher(network(seed=9), student_preprocess=half_normalised((8, 8), 1))


# --- a step is what plain torch would do ---------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [{}, {"clip_norm": 0.3}, {"clip_value": 0.02}, {"clip_norm": 0.1, "clip_value": 0.02}])
def test_steps_are_those_of_a_plain_loop(clip: dict[str, float]) -> None:
    model = network()
    peer = copy.deepcopy(model)
    # SGD: Adam makes steps of the rounding errors where a true gradient is 0, as that of the keys' bias.
    state = state_of(model, optim={"momentum": 0.9, "nesterov": True}, lr=0.01, **clip)
    plain = torch.optim.SGD(peer.parameters(), lr=0.01, momentum=0.9, nesterov=True)
    for number in range(4):
        images, labels = batch(seed=number)
        row = take(state, images, labels)
        loss = F.cross_entropy(peer(images), labels)
        plain.zero_grad()
        loss.backward()
        norm = torch.nn.utils.get_total_norm([p.grad for p in peer.parameters() if p.grad is not None])
        if "clip_value" in clip:
            torch.nn.utils.clip_grad_value_(peer.parameters(), clip["clip_value"])
        if "clip_norm" in clip:
            torch.nn.utils.clip_grad_norm_(peer.parameters(), clip["clip_norm"])
        plain.step()
        assert row["train/loss"] == pytest.approx(loss.item(), rel=1e-5)
        assert row["train/grad_norm"] == pytest.approx(norm.item(), rel=1e-4), "the norm before clipping"
        assert row["train/lr"] == pytest.approx(0.01)
        assert row["train/skipped"] == 0
        assert row["train/grad_norm"] > clip.get("clip_norm", 0), "else nothing is clipped"
    assert_close(weights(model), weights(peer), atol=1e-6, rtol=1e-5)
    assert int(state.updates) == 4


def test_clipping_shortens_the_step() -> None:
    """Plain SGD at a learning rate of 1 moves by exactly the gradient."""
    before = weights(network())
    lengths = []
    for clip in (None, 0.25):
        model = network()
        row = take(state_of(model, lr=1.0, clip_norm=clip), *batch())
        moved = torch.cat([(value - before[name]).flatten() for name, value in weights(model).items()])
        lengths.append((float(moved.norm()), row["train/grad_norm"]))
    assert lengths[0][0] == pytest.approx(lengths[0][1], rel=1e-4)
    assert lengths[1] == (pytest.approx(0.25, rel=1e-4), pytest.approx(lengths[0][1]))


def test_the_loss_at_the_start_is_the_logarithm_of_the_classes() -> None:
    for config in (VIT, CNN, ResNetConfig(img_size=8, in_chans=1, depths=(1, 1), stem_width=8, num_classes=K)):
        row = take(state_of(network(config, large=False)), *batch(64))
        assert row["train/loss"] == pytest.approx(math.log(K), rel=0.05)


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_one_batch_is_learnt_by_heart(name: str) -> None:
    state = state_of(
        network(large=False), lr=0.01, optim={"name": name}, clip_norm=1.0, lr_table=torch.full((1,), 0.01)
    )
    images, labels = batch(16)
    rows = [take(state, images, labels) for _ in range(60)]
    assert rows[0]["train/accuracy"] < 1
    assert rows[-1]["train/accuracy"] == 1
    assert rows[-1]["train/loss"] < 0.1


def test_the_schedule_goes_by_updates_and_stays_at_its_end() -> None:
    state = state_of(network(), lr_table=torch.tensor([0.1, 0.2, 0.3]))
    state.lr_factor.fill_(0.5)
    rates = [take(state, *batch())["train/lr"] for _ in range(5)]
    assert rates == pytest.approx([0.05, 0.1, 0.15, 0.15, 0.15])


# --- parts of a batch ----------------------------------------------------------------------------------------------

CASES: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    # name: (loss, more of the objective, of the state)
    "plain": ({}, {}, {}),
    "smoothed": ({"smoothing": 0.2}, {}, {}),
    "binary": ({"name": "binary_cross_entropy"}, {}, {}),
    "class weights": ({}, {"class_weights": WEIGHTS}, {}),
    "l1": ({}, {"l1": 0.01}, {}),
    "soft distillation": ({"distill": "soft"}, {"teacher": True}, {}),
    "hard distillation": ({"distill": "hard"}, {"teacher": True}, {}),
    "clipped by norm": ({}, {}, {"clip_norm": 0.1}),
    "clipped by value": ({}, {}, {"clip_value": 0.01}),
    "all": (
        {"smoothing": 0.1},
        {"class_weights": WEIGHTS, "l1": 0.01, "teacher": True},
        {"clip_norm": 0.5, "clip_value": 0.05},
    ),
}


def trained(case: str, micro_batch: int | None, *, shares: bool, distilled: bool = False) -> tuple[Any, list[Any]]:
    loss, more, settings = CASES[case]
    more = dict(more)
    if more.pop("teacher", False):
        more["teacher"] = teacher()
    model = network(updated(VIT, distilled=distilled))
    momentum = {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}
    state = state_of(model, lr=0.05, micro_batch=micro_batch, optim=momentum, **settings)
    objective = objective_of(state, LossConfig(**loss), **more)
    rows = [take(state, *batch(10, shares=shares, seed=number), objective) for number in range(3)]
    return weights(model), rows


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_parts_add_up_to_the_whole_batch(case: str, shares: bool) -> None:
    whole, rows = trained(case, None, shares=shares)
    for micro_batch in (1, 4):  # 4, 4 and an uneven 2
        parts, found = trained(case, micro_batch, shares=shares)
        assert_close(parts, whole, atol=3e-6, rtol=1e-5)
        for one, other in zip(found, rows, strict=True):
            assert one == pytest.approx(other, rel=1e-4, abs=1e-6)
    assert len(differing(whole, weights(network()))) == len(whole), "every tensor moved"


def test_parts_add_up_with_a_distillation_token() -> None:
    whole, _ = trained("soft distillation", None, shares=False, distilled=True)
    parts, _ = trained("soft distillation", 3, shares=False, distilled=True)
    assert_close(parts, whole, atol=3e-6, rtol=1e-5)
    alone, _ = trained("plain", 3, shares=False, distilled=True)
    assert not torch.allclose(alone["head_dist.weight"], whole["head_dist.weight"], atol=1e-4)


# --- what is left out of a step ------------------------------------------------------------------------------------


def broken(state: TrainState, *, calls: set[int], kind: str) -> Any:
    """An objective that is not finite at the given calls: in its loss, or in its gradients only."""
    real, count = objective_of(state), [0]

    def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss, logits = real(images, labels)
        count[0] += 1
        if count[0] - 1 in calls:
            # The root's slope at 0 is infinite while its value is 0.
            loss = loss * math.nan if kind == "loss" else loss + (loss - loss.detach()).sqrt()
        return loss, logits

    return objective


@pytest.mark.parametrize("micro_batch", [None, 4])
@pytest.mark.parametrize("kind", ["loss", "gradient"])
@pytest.mark.parametrize("name", ["adamw", "adam", "sgd", "muon"])
def test_a_step_that_is_not_finite_changes_no_bit(name: str, kind: str, micro_batch: int | None) -> None:
    model = network(CNN if name != "muon" else VIT)  # running means see the bad batch too
    optim = {"name": name, "momentum": 0.9, "weight_decay": 0.1}
    state = state_of(model, lr=0.01, optim=optim, micro_batch=micro_batch, clip_norm=1.0, clip_value=0.5)
    parts = 1 if micro_batch is None else 3
    objective = broken(state, calls={parts + parts - 1}, kind=kind)  # the last part of the second step
    ema = Ema(model, 0.9)
    take(state, *batch(), objective, after=[ema])
    before = weights(model), copy.deepcopy(state.state_dict()), copy.deepcopy(ema.state_dict())
    row = take(state, *batch(seed=8), objective, after=[ema])

    assert row["train/skipped"] == 1
    assert math.isnan(row["train/loss"]) == (kind == "loss")
    assert not math.isfinite(row["train/grad_norm"])
    assert differing(weights(model), before[0]) == set()
    assert differing(ema.state_dict(), before[2]) == set()
    flat = [(name, key) for name, tensors in before[1]["optimizer"].items() for key in tensors]
    assert flat
    for parameter, key in flat:
        assert torch.equal(state.state_dict()["optimizer"][parameter][key], before[1]["optimizer"][parameter][key])
    assert int(state.updates) == 1, "the schedule waits"
    assert all(parameter.grad is None for parameter in model.parameters())

    row = take(state, *batch(seed=8), objective, after=[ema])
    assert row["train/skipped"] == 0
    moved = differing(weights(model), before[0])
    assert moved == set(before[0]), "the next step goes on, running means too"


def test_a_held_step_computes_everything_and_changes_nothing() -> None:
    model = network(CNN)
    state = state_of(model, lr=0.1, optim={"momentum": 0.9})
    ema = Ema(model, 0.5)
    before = weights(model), copy.deepcopy(state.state_dict()), copy.deepcopy(ema.state_dict())
    state.hold.fill_(1.0)
    for _ in range(3):
        train_step(state, *batch(), objective=objective_of(state), after=[ema])
    state.hold.fill_(0.0)
    assert state.ledger.read() == []
    assert differing(weights(model), before[0]) == set()
    assert differing(ema.state_dict(), before[2]) == set()
    assert int(state.updates) == 0
    row = take(state, *batch(), after=[ema])
    fresh = network(CNN)
    assert row == take(state_of(fresh, lr=0.1, optim={"momentum": 0.9}), *batch())
    assert differing(weights(model), weights(fresh)) == set(), "as if there had been no held ones"


def test_frozen_weights_keep_their_bits() -> None:
    model = network()
    assert freeze(model, ("backbone",))
    before = weights(model)
    state = state_of(model, optim={"name": "adamw", "weight_decay": 0.5})
    for number in range(3):
        take(state, *batch(seed=number))
    assert differing(weights(model), before) == {"head.weight", "head.bias"}


# --- what weighs on the weights ------------------------------------------------------------------------------------


def without_gradient(state: TrainState) -> Any:
    def objective(images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        logits = state.model(images)
        return logits.sum() * 0.0, logits.detach()

    return objective


@pytest.mark.parametrize("name", ["adamw", "sgd"])
def test_weight_decay_shrinks_matrices_and_nothing_else(name: str) -> None:
    model = network()
    before = weights(model)
    state = state_of(model, lr=0.1, optim={"name": name, "weight_decay": 0.2})
    take(state, *batch(), without_gradient(state))
    for key, value in weights(model).items():
        shrinks = before[key].ndim > 1 and "token" not in key and "pos_embed" not in key
        torch.testing.assert_close(value, before[key] * (1 - 0.1 * 0.2 * shrinks), msg=key)


def test_l1_draws_weights_to_zero_by_their_sign() -> None:
    model = network()
    before = weights(model)
    state = state_of(model, lr=0.1)
    objective = objective_of(state, l1=0.01)
    objective._of_labels = lambda logits, labels: logits.sum() * 0.0  # type: ignore[method-assign]
    take(state, *batch(), objective, after=[])
    for key, value in weights(model).items():
        drawn = before[key].ndim > 1 and "token" not in key and "pos_embed" not in key
        wanted = before[key] - 0.1 * 0.01 * before[key].sign() * drawn
        torch.testing.assert_close(value, wanted, msg=key, atol=1e-7, rtol=1e-6)


def test_lower_layers_learn_slower() -> None:
    model, plain = network(), network()
    before = weights(model)
    take(state_of(model, optim={"layer_decay": 0.5}), *batch())
    take(state_of(plain), *batch())
    scales = {"patch_embed": 0.125, "pos_embed": 0.125, "blocks.0": 0.25, "blocks.1": 0.5, "norm": 0.5, "head": 1.0}
    for key, scale in scales.items():
        name = next(name for name in before if name.startswith(key) and before[name].ndim > (key != "norm"))
        slow, fast = weights(model)[name] - before[name], weights(plain)[name] - before[name]
        assert float(slow.norm() / fast.norm()) == pytest.approx(scale, rel=1e-3), name


def test_smoothing_is_torchs() -> None:
    model = network()
    state = state_of(model)
    images, labels = batch()
    wanted = F.cross_entropy(model(images), labels, label_smoothing=0.3).item()
    plain = F.cross_entropy(model(images), labels).item()
    row = take(state, images, labels, objective_of(state, LossConfig(smoothing=0.3)))
    assert row["train/loss"] == pytest.approx(wanted, rel=1e-5)
    assert row["train/loss"] != pytest.approx(plain, rel=1e-2)


@pytest.mark.parametrize("rate", ["drop_path_rate", "drop_rate", "attn_drop_rate", "head_drop_rate"])
def test_what_is_dropped_depends_on_the_seed_alone(rate: str) -> None:
    def loss(seed: int) -> float:
        state = state_of(network(updated(VIT, **{rate: 0.5})))
        torch.manual_seed(seed)
        return take(state, *batch())["train/loss"]

    assert loss(1) == loss(1)
    assert len({loss(seed) for seed in range(4)}) > 1
    assert loss(1) != take(state_of(network()), *batch())["train/loss"]


def test_recomputed_activations_give_the_same_gradients() -> None:
    found = []
    for checkpointing in (False, True):
        model = network(updated(VIT, drop_rate=0.2, drop_path_rate=0.3))
        model.set_grad_checkpointing(checkpointing)
        state = state_of(model, lr=0.2)
        for number in range(2):
            torch.manual_seed(number)
            take(state, *batch(seed=number))
        found.append(weights(model))
    assert_close(found[1], found[0], atol=1e-6, rtol=1e-5)
    assert differing(found[0], weights(network())) == set(found[0])


def test_bf16_rounds_the_arithmetic_and_not_the_weights() -> None:
    found, losses = [], []
    for dtype in (None, torch.bfloat16):
        model = network()
        losses.append(take(state_of(model, dtype=dtype), *batch())["train/loss"])
        found.append(weights(model))
    assert losses[0] != losses[1]
    assert losses[0] == pytest.approx(losses[1], rel=0.05)
    assert all(value.dtype == torch.float32 for value in found[1].values())
    before = weights(network())["head.weight"]
    steps = [one["head.weight"] - before for one in found]
    assert not torch.equal(steps[0], steps[1])
    torch.testing.assert_close(steps[1], steps[0], atol=0.02 * float(steps[0].abs().max()), rtol=0.1)


def test_accuracy_of_numbers_and_of_shares() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [0.0, 3.0, 1.0], [9.0, 0.0, 0.0]])
    assert float(hits(logits, torch.tensor([0, 0, 1, 0]))) == 0.75
    shares = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.5, 0.4], [0.0, 1.0, 0.0], [0.3, 0.3, 0.4]])
    assert float(hits(logits, shares)) == 0.5


# --- hooks ---------------------------------------------------------------------------------------------------------


def test_hooks_see_the_updated_weights_and_their_numbers_are_kept() -> None:
    model = network()

    def length(state: TrainState) -> None:
        assert not torch.is_grad_enabled()
        state.scalars["probe/length"] = state.model.get_parameter("head.weight").norm()

    row = take(state_of(model), *batch(), after=[length])
    assert row["probe/length"] == pytest.approx(float(model.head.weight.detach().norm()))
    assert list(row)[:2] == ["train/loss", "train/accuracy"]


def test_a_hook_that_leaves_other_numbers_is_told_so() -> None:
    state, count = state_of(network()), [0]

    def moody(state: TrainState) -> None:
        count[0] += 1
        if count[0] == 2:
            state.scalars["probe/late"] = state.skipped

    take(state, *batch(), after=[moody])
    with pytest.raises(VitscopeError, match="probe/late"):
        take(state, *batch(), after=[moody])


# --- the host ------------------------------------------------------------------------------------------------------


class NoLooking(TorchDispatchMode):
    """Fails where the host would have to wait for a device: a number read, a shape that depends on values."""

    # Not `index`: by numbers it needs no look. By a mask it begins with `nonzero` on a GPU, which a CPU does not show.
    FORBIDDEN = ("_local_scalar_dense", "nonzero", "masked_select", "is_nonzero", "unique", "equal", "allclose")

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        masked = name == "index" and any(place is not None and place.dtype == torch.bool for place in args[1])
        if name in self.FORBIDDEN or masked:
            raise AssertionError(f"the host looks: {name}")
        return func(*args, **(kwargs or {}))


@pytest.fixture
def nobody_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    """`tolist` and `numpy` read memory without any operation that could be caught."""

    def refuse(tensor: Tensor, *_: Any, **__: Any) -> Any:
        raise AssertionError("the host looks")

    for name in ("tolist", "numpy", "__array__"):
        monkeypatch.setattr(Tensor, name, refuse)


@pytest.mark.parametrize(
    "look",
    [
        lambda t: t.sum().item(),
        lambda t: bool(t.sum() > 0),
        lambda t: float(t.sum()),
        lambda t: t[t > 0],
        lambda t: t.nonzero(),
        lambda t: t.tolist(),
        lambda t: t.detach().numpy(),
        lambda t: torch.equal(t, t),
        lambda t: int(t.argmax()),
    ],
)
def test_the_trap_springs(look: Any, nobody_lists: None) -> None:
    with NoLooking(), pytest.raises(AssertionError, match="the host looks"):
        look(torch.ones(3))


@pytest.mark.parametrize("shares", [False, True])
@pytest.mark.parametrize(
    ("config", "name"), [(VIT, "adamw"), (VIT, "muon"), (updated(VIT, distilled=True), "adam"), (CNN, "sgd")]
)
def test_the_host_never_looks_in_a_step(config: Any, name: str, shares: bool, nobody_lists: None) -> None:
    model = network(config)
    state = state_of(model, optim={"name": name, "momentum": 0.9}, micro_batch=4, clip_norm=1.0, clip_value=0.1)
    loss = LossConfig(smoothing=0.1)
    taught = {"teacher": teacher(), "class_weights": WEIGHTS, "l1": 0.01}
    objective = objective_of(state, loss, **taught)
    pictures = batch(10, shares=shares)
    hooks = [Ema(model, 0.9)]
    with NoLooking():
        train_step(state, *pictures, objective=objective, after=hooks)
        train_step(state, *pictures, objective=objective, after=hooks)
    assert int(state.updates) == 2


def test_the_host_never_looks_under_bf16_and_a_loss_scale(nobody_lists: None) -> None:
    for dtype in (torch.bfloat16, torch.float16):
        state = state_of(network(), dtype=dtype, clip_norm=1.0)
        objective = objective_of(state)
        if dtype == torch.float16:  # the arithmetic itself is the CPU's fp32; the scale is what is looked at here
            state.dtype = None
        pictures = batch()
        with NoLooking():
            train_step(state, *pictures, objective=objective)
        assert int(state.updates) == 1


def test_without_a_loss_there_is_an_error_and_not_a_step() -> None:
    state = state_of(network())

    def fails(images: Tensor, labels: Tensor) -> Any:
        raise RuntimeError("on purpose")

    before = weights(state.model)
    with pytest.raises(RuntimeError, match="on purpose"):
        train_step(state, *batch(), objective=fails)
    assert not state.is_updating, "so it may be tried again"
    assert differing(weights(state.model), before) == set()
    assert isinstance(state.model, nn.Module)

"""The running mean of the weights is the closed form, waits where a step is skipped, and gives the model back."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from train.tiny_runs import K, assert_close, batch, differing, network, state_of, take, weights
from vitscope.models.config import CNNConfig
from vitscope.train.ema import Ema

CNN = CNNConfig(img_size=8, in_chans=1, widths=(4, 8), num_classes=K)


def closed_form(history: list[Tensor], decays: list[float]) -> Tensor:
    """mean_n = d1 d2 .. dn w_0 + sum over k of (1 - d_k) d_(k+1) .. d_n w_k, in float64."""
    total = history[0].double() * math.prod(decays)
    for number, (decay, value) in enumerate(zip(decays, history[1:], strict=True)):
        total += value.double() * (1 - decay) * math.prod(decays[number + 1 :])
    return total.float()


@pytest.mark.parametrize("warmup", [False, True])
@pytest.mark.parametrize("decay", [0.3, 0.9, 0.999])
def test_the_mean_is_the_closed_form(decay: float, warmup: bool) -> None:
    model = network()
    state, ema = state_of(model, lr=0.3), Ema(model, decay, warmup=warmup)
    history = [weights(model)]
    for number in range(6):
        take(state, *batch(seed=number), after=[ema])
        history.append(weights(model))
    decays = [min(decay, (1 + n) / (10 + n)) if warmup else decay for n in range(1, 7)]
    wanted = {name: closed_form([one[name] for one in history], decays) for name in history[0]}
    assert_close(ema.state_dict(), wanted, atol=1e-6, rtol=1e-5)
    assert differing(ema.state_dict(), history[-1]) == set(wanted), "else the mean is just the weights"


def test_a_skipped_step_neither_moves_the_mean_nor_counts() -> None:
    means = []
    for bad in (set(), {2}):
        model = network()
        state, ema = state_of(model, lr=0.3), Ema(model, 0.9)
        for number in range(4):
            images, labels = batch(seed=number)
            if number in bad:
                take(state, images * math.inf, labels, after=[ema])  # one more, which is skipped
            take(state, images, labels, after=[ema])
        assert int(state.updates) == 4
        means.append(ema.state_dict())
    assert differing(means[0], means[1]) == set()


def test_running_means_are_averaged_and_counters_copied() -> None:
    model = network(CNN)
    state, ema = state_of(model), Ema(model, 0.5, warmup=False)
    first = weights(model)
    take(state, *batch(), after=[ema])
    second, found = weights(model), ema.state_dict()
    running = next(name for name in found if name.endswith("running_mean"))
    counter = next(name for name in found if name.endswith("num_batches_tracked"))
    torch.testing.assert_close(found[running], (first[running] + second[running]) / 2)
    assert found[running].abs().sum() > 0
    assert int(found[counter]) == int(second[counter]) == 1


def test_the_model_has_the_mean_for_a_while() -> None:
    model = network(CNN)
    state, ema = state_of(model), Ema(model, 0.9)
    for number in range(3):
        take(state, *batch(seed=number), after=[ema])
    own, mean = weights(model), {name: value.clone() for name, value in ema.state_dict().items()}
    assert differing(own, mean)
    with ema.in_place():
        assert differing(weights(model), mean) == set()
    assert differing(weights(model), own) == set()
    assert differing(ema.state_dict(), mean) == set(), "the mean has its own place again"
    with pytest.raises(RuntimeError, match="on purpose"), ema.in_place():
        raise RuntimeError("on purpose")
    assert differing(weights(model), own) == set(), "also after an error"


def test_a_loaded_mean_goes_on_in_its_own_memory() -> None:
    model, other = network(), network()
    state, ema = state_of(model), Ema(model, 0.9)
    take(state, *batch(), after=[ema])
    saved = {name: value.clone() for name, value in ema.state_dict().items()}
    again = Ema(other, 0.9)
    places = {name: value.data_ptr() for name, value in again.state_dict().items()}
    again.load_state_dict(saved)
    assert differing(again.state_dict(), saved) == set()
    assert {name: value.data_ptr() for name, value in again.state_dict().items()} == places
    with torch.no_grad():
        saved["head.weight"].add_(1)
    assert not torch.equal(again.state_dict()["head.weight"], saved["head.weight"])


def test_the_mean_is_not_the_models_memory() -> None:
    model = network()
    ema = Ema(model, 0.9)
    with torch.no_grad():
        model.head.weight.add_(1)
    assert not torch.equal(ema.state_dict()["head.weight"], model.head.weight)

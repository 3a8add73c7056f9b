"""Choosing units: lowest scores first, what must stay, multiples of 8, ties."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from sparse.sparse_models import vit
from vitscope.core.errors import ConfigError, InputError
from vitscope.sparse.choose import choose, gone_after
from vitscope.sparse.layout import groups_of
from vitscope.sparse.masks import all_kept, by_magnitude
from vitscope.sparse.refill import gone_by_masks, keep_count
from vitscope.sparse.units import Units

WHOLE = Units({"heads": ((True,) * 3,) * 2, "neurons": ((True,) * 20,) * 2})


def rising(count: int, first: float = 0.0) -> Tensor:
    return torch.arange(count) + first


SCORES = {
    "heads": [torch.tensor([3.0, 1.0, 2.0]), torch.tensor([0.4, 0.5, 0.6])],
    "neurons": [rising(20), rising(20, 5.5)],
}


def test_layers_compete_within_themselves() -> None:
    chosen = choose(WHOLE, SCORES, {"heads": [1, 1], "neurons": [2, 0]})
    assert chosen.of("heads") == ((True, False, True), (False, True, True))
    assert chosen.counts("neurons") == (18, 20)
    assert chosen.of("neurons")[0][:3] == (False, False, True)


def test_all_blocks_compete_and_one_head_stays() -> None:
    assert choose(WHOLE, SCORES, {"heads": 2}).of("heads") == ((True, True, True), (False, False, True))
    assert choose(WHOLE, SCORES, {"heads": 3}).of("heads") == ((True, False, True), (False, False, True))
    assert choose(WHOLE, SCORES, {"heads": 3}, allow_empty=True).counts("heads") == (3, 0)
    assert choose(WHOLE, SCORES, {"heads": 6}).counts("heads") == (1, 1), "as many as may"
    assert choose(WHOLE, SCORES, {"heads": 6}, allow_empty=True).counts("heads") == (0, 0)
    assert choose(WHOLE, SCORES, {"neurons": 40}, least={"neurons": 4}).counts("neurons") == (4, 4)


def test_kinds_do_not_compete_with_each_other() -> None:
    chosen = choose(WHOLE, SCORES, {"neurons": 10})
    assert chosen.of("heads") == WHOLE.of("heads")
    assert chosen.removed("neurons") == 10


def test_what_is_gone_stays_gone_and_counts() -> None:
    first = choose(WHOLE, SCORES, {"heads": [1, 0]})
    turned = {"heads": [-SCORES["heads"][0], -SCORES["heads"][1]]}
    second = choose(first, turned, {"heads": [1, 1]})
    assert second.is_within(first)
    assert second.counts("heads") == (2, 2)
    assert choose(first, turned, {"heads": 1}) == first, "one is gone already"
    assert choose(first, turned, {"heads": 0}) == first


def test_neurons_are_kept_in_multiples_and_rather_more() -> None:
    chosen = choose(WHOLE, SCORES, {"neurons": [9, 3]}, round_to=8)
    assert chosen.counts("neurons") == (16, 20), "20 - 3 would be 24, which are not there"
    assert chosen.of("neurons")[0] == (False,) * 4 + (True,) * 16, "the best of those that went are back"
    assert choose(WHOLE, SCORES, {"neurons": [12, 12]}, round_to=8).counts("neurons") == (8, 8)
    assert choose(WHOLE, SCORES, {"heads": [1, 1]}, round_to=8).counts("heads") == (2, 2)
    assert choose(WHOLE, SCORES, {"neurons": [20, 20]}, round_to=8).counts("neurons") == (8, 8), "one stays, so eight"


def test_ties_are_settled_by_number_and_spread() -> None:
    equal = {"heads": [torch.zeros(3), torch.zeros(3)]}
    assert choose(WHOLE, equal, {"heads": 2}).of("heads") == ((False, True, True), (False, True, True))
    assert choose(WHOLE, equal, {"heads": 3}).of("heads") == ((False, False, True), (False, True, True))


def test_what_makes_no_sense_is_refused() -> None:
    with pytest.raises(InputError, match="some for heads"):
        choose(WHOLE, {}, {"heads": 1})
    with pytest.raises(InputError, match="finite numbers"):
        choose(WHOLE, {"heads": [torch.tensor([1.0, torch.nan, 0.0]), torch.zeros(3)]}, {"heads": 1})
    with pytest.raises(InputError, match=r"\(3, 3\) numbers"):
        choose(WHOLE, {"heads": [torch.zeros(3)]}, {"heads": 1})
    with pytest.raises(ConfigError, match="'layer' or 'global'"):
        gone_after(WHOLE, rate=0.2, rounds=1, rank="block")  # type: ignore[arg-type]


def test_the_schedule_by_layer_and_over_all() -> None:
    assert gone_after(WHOLE, rate=0.2, rounds=2, rank="layer") == {"heads": (1, 1), "neurons": (7, 7)}
    assert gone_after(WHOLE, rate=0.2, rounds=2, kinds=["heads"]) == {"heads": 2}


@pytest.mark.parametrize("fillback", [0.0, 0.2, 0.5, 1.0])
def test_refill_keeps_what_the_density_is_worth(fillback: float) -> None:
    assert keep_count(512, 1000, 12, fillback=fillback) == round(0.512 * 12 + fillback * (12 - 0.512 * 12))
    assert keep_count(0, 1000, 12, fillback=fillback) == max(1, round(fillback * 12))
    assert keep_count(1000, 1000, 12, fillback=fillback) == 12


def test_refill_reads_the_masks_of_each_group() -> None:
    model = vit()
    masks = by_magnitude(model, all_kept(model), 0.4)
    gone = gone_by_masks(groups_of(model), masks, fillback=0.2)
    for block in range(2):
        of = {n: masks[f"blocks.{block}.{n}.weight"] for n in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")}
        for kind, count, names in (("heads", 3, ("attn.qkv", "attn.proj")), ("neurons", 20, ("mlp.fc1", "mlp.fc2"))):
            d = sum(int(of[n].sum()) for n in names) / sum(of[n].numel() for n in names)
            assert gone[kind][block] == count - round(d * count + 0.2 * (count - d * count))
    assert gone_by_masks(groups_of(model), masks, fillback=1.0) == {"heads": [0, 0], "neurons": [0, 0]}

"""Better, worse, cannot tell: the statistics against scipy, and what is said of them."""

from __future__ import annotations

import math
import statistics
import sys
from dataclasses import replace

import pytest
from scipy import stats

from sparse.made_rows import experiment
from vitscope.core.errors import DataError
from vitscope.sparse.report.seeds import Network, mean_and_spread, networks_of
from vitscope.sparse.report.verdict import Verdict, t_interval, verdict, verdicts_of
from vitscope.sparse.rows import DENSE, Row


def network(name: str, test: dict[int, float | None], val: dict[int, float | None] | None = None) -> Network:
    val = val or {}
    rows = [
        Row(seed=seed, round=2, network=name, params=1, macs=1, test_accuracy=accuracy, val_accuracy=val.get(seed))
        for seed, accuracy in test.items()
    ]
    return Network(2, name, tuple(rows))


def judged(ours: dict[int, float | None], theirs: dict[int, float | None]) -> Verdict:
    return verdict(network("refill", ours), network("control:random", theirs))


@pytest.fixture
def scipy_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """scipy takes a loaded module `sparse` for the package of that name; here it is this folder of tests."""
    monkeypatch.delitem(sys.modules, "sparse", raising=False)


@pytest.mark.usefixtures("scipy_alone")
@pytest.mark.parametrize("values", [[0.1, 0.3], [0.91, 0.9, 0.915, 0.902], [-0.2, 0.0, 0.1]])
def test_the_interval_is_scipys(values: list[float]) -> None:
    found = t_interval(values)
    assert found is not None
    wanted = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert found == pytest.approx((wanted.low, wanted.high), rel=1e-9)


@pytest.mark.usefixtures("scipy_alone")
def test_pairs_are_compared_within_their_seed_as_scipy_does() -> None:
    """Seeds differ far more than networks do: only the paired interval sees it, and the order of rows is no matter."""
    ours, theirs = {0: 0.90, 1: 0.85, 2: 0.80}, {2: 0.789, 0: 0.890, 1: 0.841}
    found = judged(ours, theirs)
    paired = stats.ttest_rel([ours[seed] for seed in (0, 1, 2)], [theirs[seed] for seed in (0, 1, 2)])
    wanted = paired.confidence_interval(0.95)
    assert found.interval == pytest.approx((wanted.low, wanted.high))
    assert found.differences == pytest.approx((0.01, 0.009, 0.011))
    assert found.mean == pytest.approx(0.01)
    assert found.spread == pytest.approx(statistics.stdev([0.01, 0.009, 0.011]))
    assert (found.accuracy, found.other_accuracy) == pytest.approx((0.85, 0.84))
    assert found.word == "better"
    assert stats.ttest_ind(list(ours.values()), list(theirs.values())).pvalue > 0.5  # unpaired, nothing is seen


def test_the_other_way_round_it_is_worse_and_in_between_it_cannot_tell() -> None:
    assert judged({0: 0.80, 1: 0.81, 2: 0.82}, {0: 0.85, 1: 0.861, 2: 0.869}).word == "worse"
    undecided = judged({0: 0.80, 1: 0.81, 2: 0.82}, {0: 0.81, 1: 0.80, 2: 0.815})
    assert undecided.word == "cannot tell"
    assert "it includes 0" in undecided.in_words()


def test_one_seed_cannot_tell_however_far_it_is_ahead() -> None:
    found = judged({7: 0.99}, {7: 0.10})
    assert (found.word, found.spread, found.interval) == ("cannot tell", None, None)
    assert "Whether other seeds agree with this one (7) is not known: --seeds 3." in found.in_words()
    assert "99.00 % against 10.00 %" in found.in_words()
    assert "+89.00 points" in found.in_words()
    assert "chance of" not in found.in_words(), "how many pictures is not known"


def test_one_seed_tells_what_the_pictures_leave_to_chance() -> None:
    """sqrt(0.9 * 0.1 / 400 + 0.8 * 0.2 / 400) is 0.025, and 1.96 times that 4.9 points."""

    def found(other: float) -> str:
        ours, theirs = network("refill", {0: 0.9}), network("control:random", {0: other})
        counted = replace(ours, rows=tuple(replace(row, test_count=400) for row in ours.rows))
        return verdict(counted, theirs).in_words()

    assert "cannot tell" in found(0.8)
    more = "That is more than the choice of 400 pictures explains (95 % interval +5.10 to +14.90)"
    assert more in found(0.8)
    assert "That may be due to the choice of 400 pictures alone" in found(0.88)


def test_equal_differences_are_no_certainty() -> None:
    """Of few test pictures, two seeds easily differ by the same number of them."""
    found = judged({0: 0.5, 1: 0.7}, {0: 0.4, 1: 0.6})
    assert found.word == "cannot tell"
    assert "too alike" in found.in_words()


def test_a_seed_without_its_partner_is_left_out_and_named() -> None:
    found = judged({0: 0.9, 1: 0.91, 2: 0.95, 3: math.nan}, {0: 0.8, 1: 0.812, 3: 0.7, 4: 0.1})
    assert (found.seeds, found.left_out) == ((0, 1), (2, 3, 4))
    assert found.mean == pytest.approx(0.099)
    assert "seeds 2, 3, 4" in found.in_words()


def test_without_test_accuracies_validation_is_used_and_told() -> None:
    nothing: dict[int, float | None] = {0: None, 1: None}
    ours, theirs = network("rsst", nothing, {0: 0.9, 1: 0.91}), network(DENSE, nothing, {0: 0.8, 1: 0.812})
    found = verdict(ours, theirs)
    assert (found.column, found.word) == ("val_accuracy", "better")
    assert "validation pictures" in found.in_words()
    assert "no test accuracy" in found.in_words()
    assert "test pictures are right" not in found.in_words()


def test_with_no_accuracy_at_all_it_cannot_tell() -> None:
    found = judged({0: None}, {0: 0.9})
    assert (found.word, found.mean, found.left_out) == ("cannot tell", None, (0,))
    assert "No seed has an accuracy of both" in found.in_words()


def test_every_round_is_held_against_dense_and_each_control_of_that_round() -> None:
    rows = experiment(rounds=2, controls=("control:random", "control:oneshot"))
    found = [(it.round, it.against) for it in verdicts_of(rows)]
    others = (DENSE, "control:random", "control:oneshot")
    assert found == [(number, other) for number in (1, 2) for other in others]
    second = [row.test_accuracy for row in rows if (row.round, row.network) == (2, "control:random")]
    assert verdicts_of(rows)[4].other_accuracy == pytest.approx(statistics.fmean(filter(None, second)))


def test_epochs_that_the_dense_network_did_not_have_are_told() -> None:
    def against_dense(*controls: str) -> str:
        rows = experiment(rounds=1, controls=controls, epochs=60)
        return next(it.in_words() for it in verdicts_of(rows) if it.against == DENSE)

    longer = "It was trained 60 epochs longer: what those alone are worth, --controls dense tells."
    assert longer in against_dense("control:random")
    assert longer not in against_dense("control:dense"), "then that network says it"


def test_mean_and_spread() -> None:
    found = mean_and_spread([0.2, None, 0.4, math.nan, 0.9])
    assert found is not None
    assert (found.count, found.low, found.high) == (3, 0.2, 0.9)
    assert found.mean == pytest.approx(0.5)
    assert found.deviation == pytest.approx(statistics.stdev([0.2, 0.4, 0.9]))
    assert mean_and_spread([None, math.inf]) is None
    alone = mean_and_spread([3.0])
    assert alone is not None
    assert alone.deviation is None


def test_rows_are_grouped_by_round_and_sorted() -> None:
    rows = experiment(rounds=1, seeds=(2, 0))
    networks = networks_of(rows[::-1])
    assert [one.name for one in networks] == [
        "dense", "rsst", "control:dense", "control:random", "control:reinit", "control:oneshot",
    ]  # fmt: skip
    assert [row.seed for row in networks[1].rows] == [0, 2]


def test_two_rows_of_one_seed_and_no_rows_are_refused() -> None:
    rows = experiment(rounds=1, seeds=(0,))
    with pytest.raises(DataError, match="expected one for each seed, round and network, received two"):
        networks_of([*rows, replace(rows[1], test_accuracy=0.5)])
    with pytest.raises(DataError, match="expected at least one, received none"):
        networks_of([])


def test_two_seeds_are_few_and_no_interval_leaves_what_can_be() -> None:
    found = judged({0: 0.99, 1: 0.95}, {0: 0.15, 1: 0.25})
    assert found.interval is not None
    assert found.interval[1] > 1
    assert "to +100.00" in found.in_words()
    assert "Two seeds are few to know a spread by: --seeds 3, or more." in found.in_words()
    assert "Two seeds" not in judged({0: 0.9, 1: 0.8, 2: 0.7}, {0: 0.8, 1: 0.6, 2: 0.65}).in_words()

"""2:4: the two largest of each four stay, in training too; kernels are used where they are, and timed or not told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from sparse.convolutions import convolutional
from sparse.sparse_models import pictures, vit
from train.tiny_runs import batch, differing, network, state_of, take, tiny, weights
from vitscope.core.errors import ConfigError, InputError, UsageError, VitscopeError
from vitscope.models.config import CNNConfig, ViTConfig
from vitscope.sparse import fresh_two_of_four
from vitscope.sparse import two_of_four as module
from vitscope.sparse.config import SparseConfig
from vitscope.sparse.mask_hook import MaskHook
from vitscope.sparse.masks import apply_masks, density, prunable
from vitscope.sparse.measure import Speed, Stopwatch, Timing
from vitscope.sparse.report.seeds import is_masked
from vitscope.sparse.rows import read_rows
from vitscope.sparse.sparsify import sparsify
from vitscope.sparse.two_of_four import (
    SparseLinear,
    as_two_of_four,
    is_two_of_four,
    two_of_four,
    why_no_two_of_four,
)
from vitscope.train import finish
from vitscope.weights.load import load_model

CPU = torch.device("cpu")


def by_hand(row: list[float]) -> list[bool]:
    """Python alone: in each four, the places of the two largest; of equal ones the first."""
    kept = [False] * len(row)
    for start in range(0, len(row), 4):
        places = sorted(range(start, start + 4), key=lambda place: (-abs(row[place]), place))
        for place in places[:2]:
            kept[place] = True
    return kept


def test_the_two_largest_of_each_four_stay() -> None:
    model = vit()
    masks = two_of_four(model)
    assert list(masks) == prunable(model)
    state = model.state_dict()
    for name, mask in masks.items():
        assert mask.tolist() == [by_hand(row) for row in state[name].tolist()]
        assert int(mask.sum()) * 2 == mask.numel()
    assert density(masks) == 0.5


def test_equal_weights_are_settled_and_zeros_too() -> None:
    model = vit()
    weight = model.get_parameter("blocks.0.mlp.fc1.weight")
    with torch.no_grad():
        weight.fill_(0.5)
        weight[0, :4] = torch.tensor([0.0, 1.0, 0.0, 0.0])
        weight[1, :4] = torch.tensor([0.5, -1.0, 1.0, -1.0])
    mask = two_of_four(model)["blocks.0.mlp.fc1.weight"]
    assert mask[2].tolist() == [True, True, False, False] * 6
    assert mask[0, :4].tolist() == [True, True, False, False]
    assert mask[1, :4].tolist() == [False, True, True, False]


def test_a_weight_whose_inputs_are_not_in_fours_has_no_mask() -> None:
    masks = two_of_four(vit(mlp_dim=(20, 18)))
    assert "blocks.0.mlp.fc2.weight" in masks
    assert "blocks.1.mlp.fc2.weight" not in masks
    assert "blocks.1.mlp.fc1.weight" in masks


def test_what_it_cannot_be_made_of_is_refused() -> None:
    with pytest.raises(InputError, match=r"expected prunable linear weights with inputs in fours"):
        two_of_four(convolutional("basic"))
    model = vit()
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.proj.weight")[0, 0] = float("nan")
    with pytest.raises(InputError, match=r"blocks\.1\.attn\.proj\.weight is not finite"):
        two_of_four(model)


def test_the_pattern_is_held_in_training() -> None:
    model = network()
    masks = two_of_four(model)
    apply_masks(model, masks)
    start, state, hook = weights(model), state_of(model, lr=0.01), MaskHook(masks)
    for number in range(3):
        take(state, *batch(seed=number), after=[hook])
        assert all(is_two_of_four(model.get_parameter(name)) for name in masks)
    assert differing(weights(model), start) == set(start)


def test_no_kernels_on_a_cpu_or_an_old_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="'cpu' has no 2:4 units"):
        as_two_of_four(vit(), "cpu")
    cuda = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: "Tesla V100")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 0))
    assert why_no_two_of_four(cuda) == "Tesla V100 has compute capability 7.0, not 8.0"
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert why_no_two_of_four(cuda) is None


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Sparse units, played by dense tensors: rows in multiples of 8, or torch refuses."""
    taken: list[tuple[int, ...]] = []

    def compress(weight: Tensor) -> Tensor:
        if weight.shape[0] % 8:
            raise RuntimeError(f"Error original_tensor.shape {tuple(weight.shape)} is not supported!\nmore")
        taken.append(tuple(weight.shape))
        return weight.clone()

    for place in (module, fresh_two_of_four):
        monkeypatch.setattr(place, "why_no_two_of_four", lambda device: None)
    monkeypatch.setattr(torch.sparse, "to_sparse_semi_structured", compress)
    return taken


def test_the_copy_says_what_the_masked_network_says(played: list[tuple[int, ...]]) -> None:
    model = vit(mlp_dim=(20, 24))
    apply_masks(model, two_of_four(model))
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    sparse = as_two_of_four(model, "cpu")
    assert set(sparse.left_dense) == {"blocks.0.mlp.fc1.weight"}
    assert sparse.left_dense["blocks.0.mlp.fc1.weight"].endswith("(20, 24) is not supported!")
    assert len(sparse.sparse) == len(played) == 7
    assert isinstance(sparse.network.get_submodule("blocks.0.attn.qkv"), SparseLinear)
    said = sparse.to("cpu", torch.bfloat16)(pictures().bfloat16()).float()
    torch.testing.assert_close(said, model.bfloat16()(pictures().bfloat16()).float())
    assert differing(model.state_dict(), {name: tensor.bfloat16() for name, tensor in before.items()}) == set()


def test_other_patterns_types_and_shapes_are_refused(played: list[tuple[int, ...]]) -> None:
    with pytest.raises(InputError, match=r"blocks\.0\.attn\.qkv\.weight: expected at most two of each four"):
        as_two_of_four(vit(), "cpu")
    with pytest.raises(UsageError, match="dtype: expected bfloat16 or float16, received float32"):
        as_two_of_four(vit(), "cpu", dtype=torch.float32)
    odd = vit(embed_dim=12, num_heads=1, mlp_dim=12)
    apply_masks(odd, two_of_four(odd))
    with pytest.raises(VitscopeError, match=r"torch takes no weight of this network as 2:4: Error original"):
        as_two_of_four(odd, "cpu")


def test_wrong_kernels_are_found_out(played: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    config = vit().config
    assert fresh_two_of_four.prove_two_of_four(config, CPU) < 0.1
    right = torch.sparse.to_sparse_semi_structured
    monkeypatch.setattr(torch.sparse, "to_sparse_semi_structured", lambda weight: right(weight).roll(1, -1))
    with pytest.raises(VitscopeError, match="logits on the 2:4 units: expected those of the masked network"):
        fresh_two_of_four.prove_two_of_four(config, CPU)


def test_the_stopwatch_takes_the_best_launch_that_works_and_keeps_it(
    played: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried: list[str] = []
    speed = Speed(1.0, 2.0, 1.1, 1.2, 1.1, 2.4)

    def timed(self: Stopwatch, builds: Any, like: Any, launch: str) -> Timing:
        tried.append(launch)
        if launch == "compiled_graph":
            raise VitscopeError("no such kernel")
        return Timing(launch, speed, speed)  # pyright: ignore[reportArgumentType]

    monkeypatch.setattr("vitscope.sparse.measure.best_launch", lambda device: "compiled_graph")
    monkeypatch.setattr(Stopwatch, "_timed", timed)
    config = vit().config
    found = Stopwatch(tmp_path / "speed.json", CPU).time_two_of_four(config)
    assert (tried, found.launch, found.launched) == (["compiled_graph", "graph"], "graph", speed)
    assert Stopwatch(tmp_path / "speed.json", CPU).time_two_of_four(config) == found
    assert len(tried) == 2


def test_more_rounds_are_refused() -> None:
    with pytest.raises(ConfigError, match="rounds: expected 1 with 2of4"):
        SparseConfig(algorithm="2of4", rounds=2)


def test_an_experiment_on_a_cpu_times_nothing_and_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vitscope.sparse.sparsify.write_report", lambda *rows, **words: None)  # has tests of its own
    monkeypatch.setattr(finish, "_draw", lambda *_: None)
    told: list[str] = []
    sparse = SparseConfig(algorithm="2of4", epochs=1, dense_epochs=1, controls="random")
    done = sparsify(tiny(), sparse, out=tmp_path / "out", say=told.append)
    dense, found, random = read_rows(done.table)
    assert [row.network for row in done.rows] == ["dense", "2of4", "control:random"]
    assert found.weights_removed == random.weights_removed == 0.5
    assert (found.params, found.macs) == (dense.params, dense.macs)
    for row in (dense, found):
        assert row.launch is row.latency_ms_batch256 is row.speedup_batch256 is row.eager_ms_batch1 is None
    assert found.after_cut_val_accuracy is not None
    assert any("was not timed: " in text and "'cpu' has no 2:4 units" in text for text in told), told
    model = load_model(tmp_path / "out" / found.model, say=False)
    assert isinstance(model.config, ViTConfig)
    assert all(is_two_of_four(model.get_parameter(name)) for name in prunable(model))

    # Gone on with where there are units, played here: what was timed is told, and it is no longer only masked.
    speed = Speed(1.0, 2.0, 1.1, 1.2, 1.1, 2.4)
    monkeypatch.setattr(Stopwatch, "time_two_of_four", lambda self, config: Timing("graph", speed, None))
    timed = sparsify(tiny(), sparse, out=tmp_path / "out", resume=True, say=told.append).rows[1]
    assert (timed.launch, timed.latency_ms_batch256, timed.speedup_batch256) == ("graph", 2.0, 1.2)
    assert is_masked(found)
    assert not is_masked(timed)


def test_a_network_it_does_not_fit_is_refused_before_it_is_trained(tmp_path: Path) -> None:
    config = tiny(CNNConfig(img_size=8, in_chans=1, num_classes=4, widths=(4, 8)))
    with pytest.raises(InputError, match="2:4"):
        sparsify(config, SparseConfig(algorithm="2of4"), out=tmp_path / "out", say=lambda text: None)
    assert not (tmp_path / "out" / "seed-0" / "dense").exists()

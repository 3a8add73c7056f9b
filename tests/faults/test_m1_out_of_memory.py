"""M1: memory runs out. In training fewer pictures go through at once and the batch stays; evaluation shrinks alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from faults.faulty_runs import CNN, VIT, differing, final, no_pictures, rows_of, settings, stored
from vitscope.core.errors import EXIT_FAILED, VitscopeError
from vitscope.models import cnn
from vitscope.models.vit import ViT
from vitscope.train.checkpoints.store import Checkpoints
from vitscope.train.fit import fit
from vitscope.train.objective import Objective
from vitscope.train.optim.optimizer import Optimizer

STEEP = 100.0


@pytest.fixture(autouse=True)
def quick() -> Any:
    with no_pictures():
        yield


class Memory:
    """A model that finds no memory for more than `training` or `evaluation` pictures at once."""

    def __init__(self, network: type[nn.Module], training: float = math.inf, evaluation: float = math.inf) -> None:
        self.limits = {True: training, False: evaluation}
        self.refused: list[tuple[bool, int]] = []
        self.largest = {True: 0, False: 0}
        self.network = network
        self.raises: Callable[[], object] = lambda: torch.empty(10**15)  # what the CPU says itself

    def __enter__(self) -> Memory:
        memory, forward = self, self.network.forward

        def limited(model: nn.Module, images: Tensor) -> Tensor:
            output = forward(model, images)  # dropout has drawn, running means have moved
            if len(images) > memory.limits[model.training]:
                memory.refused.append((model.training, len(images)))
                memory.raises()
            memory.largest[model.training] = max(memory.largest[model.training], len(images))
            return output

        self.patched = pytest.MonkeyPatch()
        self.patched.setattr(self.network, "forward", limited)
        return self

    def __exit__(self, *given: object) -> None:
        self.patched.undo()


def raise_cuda() -> None:
    raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")


@pytest.mark.parametrize("words", ["cpu", "cuda"])
@pytest.mark.parametrize(("model", "network"), [(VIT, ViT), (CNN, cnn.CNN)], ids=["vit", "cnn"])
def test_the_batch_goes_through_in_parts_and_the_result_is_that_of_the_parts(
    model: dict[str, Any], network: type[nn.Module], words: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Memory(network, training=50) as memory:
        if words == "cuda":
            memory.raises = raise_cuda
        run = fit(settings(model), out=tmp_path / "short")
    assert run.state == "finished"
    assert memory.refused == [(True, 256), (True, 128), (True, 64)]
    assert memory.largest[True] == 32
    said = capfd.readouterr().err
    for old, new, parts in ((256, 128, 2), (128, 64, 4), (64, 32, 8)):
        line = f"out of memory with {old} pictures at once: going on with micro_batch {new}, {parts} parts"
        assert f"{line}; the batch stays 256" in said
        assert line in (tmp_path / "short" / "train.log").read_text()
    assert stored(tmp_path / "short", 8).trainer()["state"]["micro_batch"] == 32

    fit(settings(model, loop={"micro_batch": 32}), out=tmp_path / "parts", quiet=True)
    assert differing(final(tmp_path / "short"), final(tmp_path / "parts")) == []
    short, parts = (rows_of(tmp_path / name) for name in ("short", "parts"))
    assert [row["train/loss"] for row in short] == [row["train/loss"] for row in parts]
    if model is VIT and words == "cpu":  # and to rounding, without dropout, that of the whole batch
        still = {**VIT, "drop_rate": 0.0}
        fit(settings(still, loop={"micro_batch": 32, "epochs": 1}), out=tmp_path / "still", quiet=True)
        fit(settings(still, loop={"epochs": 1}), out=tmp_path / "whole", quiet=True)
        first, second = final(tmp_path / "still"), final(tmp_path / "whole")
        for name in first:
            torch.testing.assert_close(first[name], second[name], rtol=1e-3, atol=1e-4)


def test_no_memory_in_the_backward_pass_of_a_later_part(tmp_path: Path) -> None:
    """Gradients of the parts before it are there already and must go."""
    call, seen = Objective.__call__, [0]

    def failing(objective: Objective, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        loss, logits = call(objective, images, labels)
        seen[0] += 1
        if seen[0] == 11:  # the third part of the third step
            loss.register_hook(lambda grad: raise_cuda())
        return loss, logits

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Objective, "__call__", failing)
        fit(settings(loop={"micro_batch": 64, "epochs": 1}), out=tmp_path / "short", quiet=True)
    states = [stored(tmp_path / "short", step).trainer()["state"]["micro_batch"] for step in range(5)]
    assert states == [64, 64, 64, 32, 32]

    # The same course by hand: two steps in parts of 64, then in parts of 32.
    cfg = settings(loop={"micro_batch": 64, "epochs": 1})
    fit(cfg, out=tmp_path / "parts", quiet=True, after_step=[_Shrink(after=2, to=32)])
    short, parts = final(tmp_path / "short"), final(tmp_path / "parts")
    assert differing(short, parts) == []


class _Shrink:
    def __init__(self, after: int, to: int) -> None:
        self.after, self.to, self.seen = after, to, 0

    def __call__(self, state: Any) -> None:
        self.seen += 1
        if self.seen == self.after:
            state.micro_batch = self.to


def test_a_resumed_run_does_not_try_the_large_parts_again(tmp_path: Path) -> None:
    with Memory(ViT, training=100) as memory:
        fit(settings(), out=tmp_path / "run", quiet=True)
        assert memory.refused == [(True, 256), (True, 128)]
        memory.refused.clear()
        whole = final(tmp_path / "run")
        fit(settings(), out=tmp_path / "run", quiet=True, resume_from="step-000003")
    assert memory.refused == []
    assert [row["step"] for row in rows_of(tmp_path / "run")] == list(range(1, 9))
    assert differing(final(tmp_path / "run"), whole) == []


def test_in_evaluation_only_evaluation_shrinks(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with Memory(ViT, evaluation=60) as memory:
        fit(settings(), out=tmp_path / "short")
    assert memory.largest == {True: 256, False: 54}
    refused = [count for training, count in memory.refused if not training]
    assert refused == [216, 108], "neither the second evaluation nor the test tries it again"
    assert stored(tmp_path / "short", 8).trainer()["course"]["eval_batch"] == 54
    said = capfd.readouterr().err
    assert "evaluation: 216 pictures at once are too many for the memory of cpu; now 108" in said
    assert "out of memory" not in said
    assert stored(tmp_path / "short", 8).trainer()["state"]["micro_batch"] is None
    fit(settings(), out=tmp_path / "whole", quiet=True)
    assert differing(final(tmp_path / "short"), final(tmp_path / "whole")) == []
    for key in ("val/loss", "val/accuracy", "test/loss", "test/accuracy"):
        short, whole = ([row[key] for row in rows_of(tmp_path / name, key)] for name in ("short", "whole"))
        assert short == pytest.approx(whole, rel=1e-5)
        assert len(short) >= 1


def test_a_resumed_run_does_not_try_the_large_evaluation_again(tmp_path: Path) -> None:
    with Memory(ViT, evaluation=60) as memory:
        fit(settings(), out=tmp_path / "run", quiet=True)
        assert memory.refused == [(False, 216), (False, 108)]
        memory.refused.clear()
        fit(settings(), out=tmp_path / "run", quiet=True, resume_from="step-000005")
    assert memory.refused == []
    fit(settings(), out=tmp_path / "whole", quiet=True)
    assert stored(tmp_path / "whole", 8).trainer()["course"]["eval_batch"] is None


@pytest.mark.parametrize("limits", [{"training": 0}, {"evaluation": 0}], ids=["training", "evaluation"])
def test_where_not_even_one_picture_fits(limits: dict[str, float], tmp_path: Path) -> None:
    with Memory(ViT, **limits), pytest.raises(VitscopeError) as caught:
        fit(settings(checkpoint={"every_steps": None}), out=tmp_path / "run", quiet=True)
    assert caught.value.exit_code == EXIT_FAILED
    assert "one picture" in caught.value.what
    assert caught.value.fix
    assert Checkpoints(tmp_path / "run" / "checkpoints", keep=1).newest() is not None


def test_another_error_is_not_taken_for_it(tmp_path: Path) -> None:
    def other() -> None:
        raise RuntimeError("shapes do not fit")

    with Memory(ViT, training=50) as memory:
        memory.raises = other
        with pytest.raises(RuntimeError, match="shapes do not fit"):
            fit(settings(), out=tmp_path / "run", quiet=True)
    assert memory.refused == [(True, 256)]


def test_no_memory_in_the_middle_of_an_update_is_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that has begun to change weights cannot be begun again."""
    step, steps = Optimizer.step, [0]

    def failing(optimizer: Optimizer, lr: Tensor, skipped: Tensor) -> None:
        steps[0] += 1
        step(optimizer, lr, skipped)
        if steps[0] == 3:
            raise_cuda()

    monkeypatch.setattr(Optimizer, "step", failing)
    with pytest.raises(torch.OutOfMemoryError):
        fit(settings(), out=tmp_path / "run", quiet=True)
    assert steps == [3]
    assert stored(tmp_path / "run", 2).step == 2
    newest = Checkpoints(tmp_path / "run" / "checkpoints", keep=1).newest()
    assert newest is not None
    assert newest.step == 2


# --- fp16: what the loss scale answers ------------------------------------------------------------------------------


def test_fp16_overflow_halves_the_scale_and_the_schedule_waits(tmp_path: Path) -> None:
    """The first scale, 65,536, is the largest fp16 can hold; gradients overflow until it is smaller."""
    cfg = settings(
        precision={"dtype": "fp16"},
        optim={"lr": 1e-2},
        schedule={"name": "constant", "warmup": "100 %", "warmup_lr": 1e-3},
        loop={"epochs": 3},
    )
    call = Objective.__call__

    def steep(objective: Objective, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """A loss of a hundred times the size: fp16's gradients overflow at the first scales."""
        loss, logits = call(objective, images, labels)
        return loss * STEEP, logits

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Objective, "__call__", steep)
        fit(cfg, out=tmp_path / "run", quiet=True)
        rows = rows_of(tmp_path / "run")
        skipped = [row["step"] for row in rows if row["train/skipped"]]
        assert skipped[0] == 1
        assert len(skipped) < 9
        for row in rows:
            before = sum(step < row["step"] for step in skipped)
            assert row["train/loss_scale"] == 2.0 ** (16 - before), "the one used in this step"
            assert math.isfinite(row["train/loss"])
            # The schedule goes by updates: a skipped step is no step on its way up.
            assert row["train/lr"] == pytest.approx(1e-3 + 9e-3 * (row["step"] - 1 - before) / 12)
        end = stored(tmp_path / "run", 12).trainer()
        assert int(end["state"]["updates"]) == 12 - len(skipped)
        assert float(end["state"]["scale"]["scale"]) == 2.0 ** (16 - len(skipped))
        assert (end["course"]["skipped_steps"], end["course"]["went_back"]) == (0, 0)
        assert not (tmp_path / "run" / "diagnostics").exists()

        # The scale is saved and restored: a run continued after overflows goes on with it.
        whole = final(tmp_path / "run")
        place = skipped[0] + 1
        fit(cfg, out=tmp_path / "run", quiet=True, resume_from=f"step-{place:06d}")
    again = rows_of(tmp_path / "run")
    assert [_figures(row) for row in again] == [_figures(row) for row in rows]
    assert differing(final(tmp_path / "run"), whole) == []


def _figures(row: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in row.items() if key != "time"}

"""What three processes that hold one model together find out; run as a script, this file is one of them.

All are given the same pictures, so that the mean of their gradients is the gradient of one process alone, which each
of them trains beside: BatchNorm sees the same there too. What is not so is a line in the answer.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed
from torch.utils._pytree import tree_map

from train.tiny_runs import VIT, batch, network, objective_of, state_of, tiny
from vitscope.core.config import updated
from vitscope.data.config import half_normalised
from vitscope.models.config import CNNConfig, LSTMConfig, ResNetConfig, SwinConfig
from vitscope.train import finish
from vitscope.train.config import LossConfig
from vitscope.train.ema import Ema
from vitscope.train.fit import fit
from vitscope.train.optim.groups import freeze
from vitscope.train.processes import ALONE_PROCESSES, JoinedProcesses, Processes, join
from vitscope.train.shards import copy_into, cut_up, gathered, local
from vitscope.train.state import TrainState
from vitscope.train.step import AfterStep, train_step
from vitscope.train.teacher import Teacher

WORLD = 3
LIMIT_S = 240.0
CHECKS: dict[str, Callable[..., None]] = {}


@functools.cache
def answers() -> dict[str, str]:
    """Of every check: "" where all found it as it should be, else what was not."""
    # As torchrun does, one store is held for the processes for as long as they live.
    stores: Any = distributed
    store = stores.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port), "WORLD_SIZE": str(WORLD)}
    meeting |= {"TORCHELASTIC_USE_AGENT_STORE": "True", "TORCHELASTIC_RESTART_COUNT": "0"}
    paths = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    with tempfile.TemporaryDirectory() as folder, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
        free.close()
        process = subprocess.Popen(
            [sys.executable, __file__, folder, port],
            env={**os.environ, **meeting, "OMP_NUM_THREADS": "1", "PYTHONPATH": paths},
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            _, err = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            err = f"no answer in {LIMIT_S:g} s"
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        given = [path.read_text() for path in Path(folder).glob("answer-*")]
    if len(given) < WORLD:
        return dict.fromkeys(NAMES, err)  # once is enough to wait for
    found = [json.loads(answer) for answer in given]
    return {name: "".join(answer[name] for answer in found) for name in NAMES}


def check(*cases: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a check, once for each case."""

    def enter(function: Callable[..., None]) -> Callable[..., None]:
        for number, case in enumerate(cases or ((),)):
            CHECKS[f"{function.__name__}{f'-{number}' if cases else ''}"] = functools.partial(function, *case)
        return function

    return enter


K = 5
ODD = updated(VIT, num_classes=K, mlp_ratio=37 / 16, qkv_bias=False)
"""Rows that three cannot share evenly: 5 of the head, 37 of a layer, 1 of the token."""
DISTILLED = updated(ODD, distilled=True)
SWIN = SwinConfig(
    img_size=8, patch_size=2, in_chans=1, num_classes=K, embed_dim=8, depths=(2, 1), num_heads=(2, 2), window_size=2,
    drop_path_rate=0.0, qkv_bias=False,
)  # fmt: skip
CNN = CNNConfig(img_size=8, num_classes=K, widths=(5,), drop_rate=0.0, head_drop_rate=0.0)
RESNET = ResNetConfig(img_size=8, in_chans=1, num_classes=K, depths=(1, 1), stem="cifar", stem_width=6)
LSTM = LSTMConfig(img_size=8, num_classes=K, embed_dim=6, depth=2, drop_rate=0.0)
ADAMW = {"name": "adamw", "lr": 1e-2, "eps": 1e-5, "weight_decay": 0.05}
SGD = {"name": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True}
MUON = {**ADAMW, "name": "muon"}
MANY: Processes


class Side:
    """A model, whole or in shards, and what moves it."""

    def __init__(
        self, processes: Processes, config: Any, optim: dict[str, Any], *, frozen: tuple[str, ...] = (), **settings: Any
    ) -> None:
        self.processes = processes
        model = network(config)
        if settings.pop("checkpointing", False):
            model.set_grad_checkpointing()
        freeze(model, frozen)
        processes.place(model, torch.device("cpu"))
        self.state: TrainState = state_of(model, lr=optim["lr"], optim=optim, processes=processes, **settings)
        self.ema = Ema(model, 0.9)
        self.objective = objective_of(self.state)
        if config is DISTILLED:
            loss = LossConfig(teacher="the network of another seed", distill="soft")
            teacher = Teacher(network(ODD, seed=3), student_preprocess=half_normalised((8, 8), 1))
            self.objective = objective_of(self.state, loss, teacher=teacher)

    def step(self, images: Tensor, labels: Tensor, *after: AfterStep) -> dict[str, float]:
        train_step(self.state, images, labels, objective=self.objective, after=[*after, self.ema])
        return self.state.ledger.read()[-1]

    def everything(self) -> dict[str, Any]:
        return {
            "model": self.state.model.state_dict(),
            "ema": self.ema.state_dict(),
            "optimizer": self.state.optimizer.state_dict(),
        }


def flat(value: Any, prefix: str = "") -> dict[str, Tensor]:
    if isinstance(value, Tensor):
        return {prefix: value.clone()}
    return {k: v for name, inner in value.items() for k, v in flat(inner, f"{prefix}/{name}").items()}


def whole(side: Side) -> dict[str, Tensor]:
    return flat(gathered(side.everything(), keeps=True))


def rows_of(side: Side) -> dict[str, Tensor]:
    return {name: local(value).clone() for name, value in flat(side.everything()).items()}


def close(found: dict[str, Tensor], wanted: dict[str, Tensor], atol: float = 2e-5) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].dtype == value.dtype
        torch.testing.assert_close(found[name], value, atol=atol, rtol=1e-3, msg=lambda text, n=name: f"{n}: {text}")


@check(
    (ODD, ADAMW, {"clip_norm": 0.3}),
    (ODD, MUON, {}),
    (ODD, SGD, {"clip_value": 0.01, "clip_norm": 0.5}),
    (ODD, {**ADAMW, "layer_decay": 0.5}, {"frozen": ("patch_embed", "pos_embed", "cls_token", "blocks.0")}),
    (ODD, ADAMW, {"checkpointing": True}),
    (ODD, ADAMW, {"micro_batch": 4}),
    (DISTILLED, ADAMW, {}),
    (SWIN, MUON, {}),
    (SWIN, ADAMW, {"checkpointing": True}),
    (CNN, SGD, {}),
    (RESNET, ADAMW, {}),
    (LSTM, ADAMW, {}),
)
def trains_as_the_whole(config: Any, optim: dict[str, Any], settings: dict[str, Any]) -> None:
    one, many = Side(ALONE_PROCESSES, config, optim, **settings), Side(MANY, config, optim, **settings)
    begun = whole(one)
    images, labels = batch(10)
    for _ in range(2):
        wanted, found = one.step(images, labels), many.step(images, labels)
        for name in wanted:
            assert abs(wanted[name] - found[name]) <= 1e-4 * max(1, abs(wanted[name])), (name, wanted, found)
    close(whole(many), whole(one))
    assert any(not torch.equal(begun[name], value) for name, value in whole(one).items())


@check()
def in_bf16_too() -> None:
    one, many = (Side(who, ODD, SGD, dtype=torch.bfloat16) for who in (ALONE_PROCESSES, MANY))
    for side in (one, many):
        side.step(*batch(10))
    close(whole(many), whole(one), atol=1e-3)


@check((ADAMW,), (MUON,), (SGD,))
def one_bad_part_changes_nothing_anywhere(optim: dict[str, Any]) -> None:
    many = Side(MANY, CNN if optim is SGD else ODD, optim)
    images, labels = batch(10)
    many.step(images, labels)
    before = rows_of(many)
    row = many.step(images * (float("nan") if MANY.rank == 1 else 1), labels)
    assert row["train/skipped"] == 1
    after = rows_of(many)
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    assert many.step(images, labels)["train/skipped"] == 0
    assert any(not torch.equal(before[name], value) for name, value in rows_of(many).items())


@check((ADAMW,), (MUON,))
def each_holds_a_third(optim: dict[str, Any]) -> None:
    many = Side(MANY, ODD, optim)
    many.step(*batch(10))
    for value in many.everything().values():
        tensors = [tensor for tensor in flat(value).values() if tensor.ndim]
        held = torch.tensor([sum(local(tensor).numel() for tensor in tensors)])
        total = sum(tensor.numel() for tensor in tensors)
        assert 0.2 < int(held) / total < 0.42, (int(held), total)
        distributed.all_reduce(held)
        assert int(held) == total
    for parameter in many.state.model.parameters():
        most_rows = -(-parameter.shape[0] // WORLD)
        assert local(parameter).untyped_storage().nbytes() <= 4 * most_rows * parameter[0].numel()


@check()
def what_is_saved_comes_back() -> None:
    many = Side(MANY, ODD, MUON)
    many.step(*batch(10))
    saved = tree_map(torch.clone, gathered(many.everything(), keeps=True))
    wanted = rows_of(many)
    many.step(*batch(10, seed=6))
    model = many.state.model
    model.load_state_dict(cut_up(model.state_dict(), saved["model"]))
    many.ema.load_state_dict(saved["ema"])
    many.state.optimizer.load_state_dict(saved["optimizer"])
    found = rows_of(many)
    assert [name for name in wanted if not torch.equal(wanted[name], found[name])] == []
    one = Side(ALONE_PROCESSES, ODD, MUON)
    one.state.model.load_state_dict(saved["model"])
    one.state.optimizer.load_state_dict(saved["optimizer"])
    kept, again = flat(saved), whole(one)
    assert all(torch.equal(again[name], kept[name]) for name in kept if not name.startswith("/ema"))


@check()
def the_first_alone_keeps_what_is_gathered() -> None:
    many = Side(MANY, ODD, ADAMW)
    given = MANY.by_first_with(many.everything, lambda state: sorted(flat(state)))
    assert given == sorted(flat(many.everything()))
    dropped = gathered(many.everything(), keeps=False)
    assert dropped["model"]["head.weight"] is None


@check()
def the_running_mean_in_place_is_what_is_evaluated() -> None:
    """Also by what lies outside of blocks, and after it the weights are back."""
    one, many = (Side(who, ODD, ADAMW) for who in (ALONE_PROCESSES, MANY))
    images, labels = batch(10)
    said = []
    for side in (one, many):
        for _ in range(2):
            side.step(images, labels)
        model = side.state.model.eval()
        with torch.no_grad():
            before = model(images)
            with side.ema.in_place():
                mean = model(images)
            said.append((before, mean, model(images)))
    for wanted, found in zip(*said, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-3)
    assert (said[0][0] - said[0][1]).abs().max() > 1e-2
    assert torch.equal(said[1][0], said[1][2])


@check()
def a_large_norm_is_not_infinite() -> None:
    assert float(MANY.norm([torch.full((2,), 1e25)])) > 1e25
    assert float(MANY.norm([])) == 0
    assert float(MANY.norm([torch.empty(0), torch.tensor([(3.0, 4.0, 12.0)[MANY.rank]])])) == 13


@check()
def rows_go_to_their_place() -> None:
    model: Any = Side(MANY, ODD, ADAMW).state.model
    bias = model.head.bias
    copy_into(bias, torch.arange(5.0))
    assert local(bias).tolist() == ([0, 1], [2, 3], [4])[MANY.rank]
    assert local(model.cls_token).shape[0] == (1, 0, 0)[MANY.rank]


@check()
def what_a_hook_finds_in_shards_is_logged_whole() -> None:
    """The hook of docs/train.md."""

    def log_head(state: Any) -> None:
        state.scalars["probe/head_norm"] = state.model.head.weight.norm()

    one, many = (Side(who, ODD, ADAMW).step(*batch(10), log_head) for who in (ALONE_PROCESSES, MANY))
    assert one["probe/head_norm"] > 0.1
    assert abs(one["probe/head_norm"] - many["probe/head_norm"]) < 1e-4, (one, many)


@check(("fsdp", {}), ("fsdp", {"micro_batch": 3}), ("ddp", {}), ("ddp", {"micro_batch": 3}))
def a_picture_weighs_the_same_where_others_were_left_out(parallel: str, settings: dict[str, Any]) -> None:
    images, labels = batch(10)
    own = (slice(0, 5), slice(5, 9), slice(9, 10))[MANY.rank]
    who = MANY if parallel == "fsdp" else JoinedProcesses(torch.device("cpu"), MANY.rank, WORLD)
    one, many = Side(ALONE_PROCESSES, ODD, SGD), Side(who, ODD, SGD, **settings)
    who.share(many.objective)
    for _ in range(2):
        wanted, found = one.step(images, labels), many.step(images[own], labels[own])
        for name in wanted:
            assert abs(wanted[name] - found[name]) <= 1e-4 * max(1, abs(wanted[name])), (name, wanted, found)
    close(whole(many), whole(one))
    if parallel == "ddp":
        who.leave()


@check()
def numbers_add_up() -> None:
    assert (MANY.total(MANY.rank + 1), MANY.most(MANY.rank)) == (6, 2)


def they_meet_again_and_train_again(folder: Path) -> None:
    """In one store, as under torchrun."""
    for number, parallel in enumerate(("ddp", "fsdp", "ddp")):
        if MANY.rank == 0:
            time.sleep(0.3)  # the others are already looking for it
        config = tiny(loop={"parallel": parallel, "epochs": 1})
        run = fit(config, out=folder / f"run-{number}", quiet=True)
        assert run.state == "finished"
    test = json.loads((folder / "run-1" / "metrics.jsonl").read_text().splitlines()[-1])
    assert test["test/count"] == 24


def shards_are_tested_where_they_lie(folder: Path) -> None:
    """By all, as no process has room for the whole model: nobody loads it."""
    judged: list[int] = []

    def refuse(*_: Any) -> Any:
        raise AssertionError("the whole model is loaded")

    def evaluate(*args: Any, **kwargs: Any) -> Any:
        judged.append(1)
        return plain(*args, **kwargs)

    plain, finish.load_model, finish.evaluate = finish.evaluate, refuse, evaluate
    run = fit(tiny(loop={"parallel": "fsdp", "epochs": 2, "ema_decay": 0.5}), out=folder / "sharded", quiet=True)
    assert (run.state, judged) == ("finished", [1])


def they_meet_again_where_the_first_holds_the_store(port: str) -> None:
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RESTART_COUNT"):
        del os.environ[name]
    os.environ["MASTER_PORT"] = port
    for _ in range(3):
        met = join("cpu")
        assert met.total(1) == WORLD
        met.leave()


LATER: tuple[Callable[..., None], ...] = (
    they_meet_again_and_train_again,
    shards_are_tested_where_they_lie,
    they_meet_again_where_the_first_holds_the_store,
)
"""Checks for which they have parted."""
NAMES = (*CHECKS, *(function.__name__ for function in LATER))


def _find_out(folder: Path, port: str) -> dict[str, str]:
    global MANY
    MANY = join("cpu", "fsdp")
    finish._draw = lambda *_: None
    found = {name: _said(function) for name, function in CHECKS.items()}
    MANY.leave()
    for function in LATER:
        found[function.__name__] = _said(function, port if function is LATER[-1] else folder)
    return found


def _said(function: Callable[..., None], *args: Any) -> str:
    try:
        function(*args)
    except Exception as error:  # the others go on
        return f"{type(error).__name__} in process {MANY.rank}: {error}\n"
    return ""


def _find_out_together(folder: Path, port: str) -> None:
    """In processes forked from this one: importing torch is most of what they cost."""
    for rank in range(WORLD):
        if os.fork() == 0:
            os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank)}
            found = json.dumps(_find_out(folder, port))
            (folder / f"answer-{rank}").write_text(found)
            os._exit(0)
    for _ in range(WORLD):
        os.wait()


if __name__ == "__main__":
    _find_out_together(Path(sys.argv[1]), sys.argv[2])

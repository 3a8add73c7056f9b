"""The benchmarks run and prove equal work. Never asserts a time: the machine that runs tests is shared."""

from __future__ import annotations

import contextlib
import gc
import io
import json
import math
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from vitscope.core.config import updated
from vitscope.core.environment import data_roots
from vitscope.infer.benchmark import peers
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel

BENCH = Path(__file__).parents[1] / "bench"
MODELS = ("vit_base_patch16_224", "vit_small_patch16_224", "vit_small", "vit_tiny")
UNLIKE = ("vit_base_patch16_224", "vit_tiny")
"""One of each size of picture: with --quick the others have the same width and depth."""
WORKS = ("train", "inference", "latency")
NAMES = ("ours", "timm", "transformers")


def run(script: str, *flags: str, device: bool = True) -> str:
    """Standard output of a benchmark, run here: most of them would take longer to import torch than to run."""
    where = ["--device", "cpu"] if device else []
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patched, contextlib.redirect_stdout(out), warnings.catch_warnings():
        patched.syspath_prepend(str(BENCH))
        patched.setattr(sys, "argv", [script, *where, "--quick", "--rounds", "2", *flags])
        warnings.simplefilter("ignore")
        runpy.run_path(str(BENCH / script), run_name="__main__")
        gc.collect()  # a run that a benchmark left open is closed here, not in the middle of another test
    return out.getvalue()


def run_alone(script: str, *flags: str, device: bool = True) -> str:
    """The same in its own process, as a person runs it."""
    where = ["--device", "cpu"] if device else []
    done = subprocess.run(
        [sys.executable, str(BENCH / script), *where, "--quick", "--rounds", "2", *flags],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def table_rows(output: str) -> list[list[str]]:
    """Cells of the Markdown table that ends the output, without its two head lines."""
    last = output.rstrip().rpartition("\n\n")[2].splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in last[2:]]


def test_throughput_times_every_row_against_equal_peers(tmp_path: Path) -> None:
    pytest.importorskip("timm")
    pytest.importorskip("transformers")
    facts_file = tmp_path / "throughput.json"
    output = run("throughput.py", "--no-compile", "--json", str(facts_file), "--rows", *(f"{m}/*" for m in UNLIKE))

    rows = table_rows(output)
    assert [tuple(row[:3]) for row in rows] == [(model, work, "eager") for model in UNLIKE for work in WORKS]
    for row in rows:
        ratios = [float(cell.split()[0]) for cell in row[7:9]]
        assert all(math.isfinite(ratio) and ratio > 0 for ratio in ratios), row

    facts = json.loads(facts_file.read_text())
    assert set(facts["equal_work"]) == set(UNLIKE)
    for proof in facts["equal_work"].values():
        assert proof["problems"] == {}
        assert set(proof["parameters"]) == set(NAMES)
        assert len(set(proof["parameters"].values())) == 1
    for row in facts["rows"]:
        counts = {name: len(times) for name, times in row["seconds"].items()}
        single = row["row"]["work"] == "latency"  # of which every call counts, not every round
        assert counts == dict.fromkeys(NAMES, max(counts.values()) if single else 2)
        assert counts["ours"] >= 2


def test_throughput_has_a_row_for_every_model_and_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import throughput  # pyright: ignore[reportMissingImports]

    rows = [row.name for row in throughput.all_rows(torch.device("cpu"), quick=True) if row.launch == "eager"]
    assert rows == [f"{model}/{work}/eager" for model in MODELS for work in WORKS]
    sizes = {model: throughput.settings(model, quick=True).img_size for model in MODELS}
    assert set(sizes.values()) == {sizes[model] for model in UNLIKE}


def test_throughput_says_what_the_budget_left_out() -> None:
    output = run_alone("throughput.py", "--no-compile", "--budget-seconds", "0", "--rows", "vit_tiny/*")
    assert "left out" in output
    assert "vit_tiny/latency/eager" in output
    assert table_rows(output) == []


SMALL = ViTConfig(img_size=32, patch_size=8, num_classes=10, embed_dim=32, depth=2, num_heads=2)


def test_proof_finds_unequal_work(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another head count has the same parameters; only the logits betray it."""
    pytest.importorskip("timm")
    assert peers.prove_equal(SMALL, ["ours", "timm"]).problems == {}

    opened = peers._as_timm

    def other(model: VisionModel, folder: Path) -> nn.Module:
        theirs = build_model(updated(SMALL, num_heads=4))
        theirs.load_state_dict(model.state_dict())
        return opened(theirs, folder)

    monkeypatch.setattr(peers, "_as_timm", other)
    proof = peers.prove_equal(SMALL, ["ours", "timm"])
    assert proof.parameters["ours"] == proof.parameters["timm"]
    assert "not equal work" in proof.problems["timm"]


def test_the_monitor_is_timed_against_the_same_run_alone() -> None:
    (row,) = table_rows(run("monitor.py", "--device", "cpu"))
    assert float(row[3]) > 0
    assert float(row[4]) > 0
    looks, _, steps, _ = row[6].split()
    assert 1 <= int(looks) < int(steps)


def test_six_models_gives_a_number_for_each() -> None:
    rows = table_rows(run("six_models.py", "--batch", "2"))
    assert len(rows) == 6
    for row in rows:
        assert float(row[3].split()[0].replace(",", "")) > 0
        assert float(row[5].split()[0].replace(",", "")) > 0


def test_device_loader_gives_a_number_for_every_strength_and_proves_the_pixels() -> None:
    output = run("device_loader.py")
    rows = [
        line.strip("|").split("|") for line in output.splitlines() if line.startswith(("| basic", "| medium", "| str"))
    ]
    named = {(row[0].strip(), row[2].strip()): row for row in rows}
    for strength in ("basic", "medium", "strong"):
        eager = named[strength, "eager"]
        assert float(eager[3].split()[0].replace(",", "")) > 0
        assert eager[4].strip() == "0.0e+00 / 0"  # the plain way on the CPU is what all are compared with
        assert (strength, "torchvision v2, one draw a batch") in named
    assert output.count("a step takes") == 6


def test_loaders_are_timed_against_equal_peers() -> None:
    pytest.importorskip("timm")
    if not any((root / "imagenette160").is_dir() for root in data_roots()):
        pytest.skip("no imagenette160 under $VITSCOPE_DATA or data/")
    output = run_alone("loaders.py", device=False)
    for row in table_rows(output):
        assert all(float(cell.split()[0]) > 0 for cell in row[6:8]), row


def test_scale_gives_a_number_for_every_size() -> None:
    rows = table_rows(run("scale.py"))
    assert [row[3] for row in rows] == ["5", "17"]
    assert {row[7] for row in rows} == {"eager"}
    assert all(float(row[8].split()[0]) > 0 for row in rows)
    assert all(row[8].endswith(" %)") for row in rows)


def test_train_loop_beside_timm(tmp_path: Path) -> None:
    """Equal work is proved, and the table names the launch there was, not the one that was wished for (auto)."""
    pytest.importorskip("timm")
    (row,) = table_rows(run("train_loop.py", "--beside", "timm", "--json", str(tmp_path / "row.json")))
    assert float(row[-1].split()[0]) > 0
    assert row[2] == "eager"
    (told,) = json.loads((tmp_path / "row.json").read_text())["rows"]
    assert (told["launch"], told["micro_batch"]) == ("eager", 8)
    assert told["equal_work"]["problems"] == {}
    assert len(set(told["equal_work"]["parameters"].values())) == 1
    assert told["equal_work"]["logit_difference"]["timm"] < 1e-4
    assert len(told["loop"]) == len(told["timm"]) == 2


def test_peers_are_not_built_without_what_ours_has() -> None:
    """Dropout shows in no logit of an evaluation; what no library computes is refused by the one that writes."""
    dropping = updated(SMALL, drop_path_rate=0.1, attn_drop_rate=0.1)
    for peer in ("timm", "transformers"):
        problem = peers.prove_equal(dropping, ["ours", peer]).problems[peer]
        assert problem == "ValueError: not equal work: peers are built without attn_drop_rate, drop_path_rate"
        assert peers.prove_equal(peers.without_drops(dropping), ["ours", peer]).problems == {}
    relative = updated(SMALL, position="relative")
    for peer in ("timm", "transformers"):
        assert peer in peers.prove_equal(relative, ["ours", peer]).problems


def test_a_number_of_other_work_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCH))
    import engine  # pyright: ignore[reportMissingImports]

    def launcher(launch: str, micro_batch: int | None) -> SimpleNamespace:
        state = SimpleNamespace(micro_batch=micro_batch)
        return SimpleNamespace(launch=launch, state=state, batch_size=8, loader=None)

    assert engine.as_asked(launcher("graph", None), "graph") == {"launch": "graph", "micro_batch": 8}
    with pytest.raises(SystemExit, match=r"asked for launch 'compiled_graph', but .* as 'graph'"):
        engine.as_asked(launcher("graph", None), "compiled_graph")
    with pytest.raises(SystemExit, match="a batch of 8 did not fit, 4 at once did"):
        engine.as_asked(launcher("graph", 4), "graph")


def test_no_shape_of_short_attention_is_refused_before_it_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a card with room, played by tensors without values."""
    monkeypatch.syspath_prepend(str(BENCH))
    import short_attention as bench  # pyright: ignore[reportMissingImports]
    from vitscope.models.layers import short_attention

    monkeypatch.setattr(short_attention, "HAS_TRITON", True)
    monkeypatch.setattr(short_attention, "_most", lambda device: short_attention.MOST_TOKENS)
    with FakeTensorMode():
        for shape in bench.SHAPES:
            assert bench.some_images(shape)[0].shape[1] == shape[1]
        monkeypatch.setattr(short_attention, "_most", lambda device: 128)
        with pytest.raises(SystemExit, match="nothing to time"):
            bench.some_images((256, 197, 12, 64))


def test_load_is_timed_and_weighed_against_timm() -> None:
    pytest.importorskip("timm")
    output = run("load.py", "--rounds", "1", device=False)  # four processes that import torch, not six
    ours, timm, ratio = table_rows(output)
    assert (ours[0], timm[0], ratio[0]) == ("ours", "timm", "ours / timm")
    assert all(float(row[1].split()[0]) > 0 and float(row[3]) > 0 for row in (ours, timm))
    assert float(ratio[1].split()[0]) > 0
    assert "equal work: logits differ by" in output


def test_folder_prediction_is_timed_beside_the_model_alone() -> None:
    (row,) = table_rows(run("predict_folder.py"))
    assert float(row[-1].split()[0]) > 0


def test_sparse_times_a_step_with_each_hook_and_the_cut() -> None:
    alone, masked, growing, cut = table_rows(run("sparse.py"))
    assert (alone[0], alone[4]) == ("vit_tiny, a step alone", "1")
    assert (masked[0], growing[0]) == ("vit_tiny, a step with MaskHook", "vit_tiny, a step with GrowthHook")
    assert {row[2] for row in (alone, masked, growing)} == {"eager"}
    assert all(float(row[4].split()[0]) > 0 for row in (masked, growing))
    assert float(cut[3].split()[0]) > 0


def test_bf16_is_held_against_fp32_network_by_network() -> None:
    output = run("cpu_bf16.py")
    rows = table_rows(output)
    assert [row[0] for row in rows] == ["`digits_vit`", "`cifar10_guide_quick`"]
    for row in rows:
        fp32, bf16 = (float(cell.replace(",", "")) for cell in row[3:5])
        assert float(row[5].split()[0]) > 0
        assert fp32 > 0
        assert bf16 > 0
    assert re.search(r"bf16 of its own: (yes|no|unknown)", output)


def test_two_of_four_says_what_a_cpu_cannot_time(tmp_path: Path) -> None:
    output = run("two_of_four.py", "--models", "vit_tiny", "--json", str(tmp_path / "rows.json"))
    assert "vit_tiny: 4 weights masked, 50.0% of them left" in output
    assert output.count("not timed: 'cpu' has no 2:4 units") == 5
    rows = table_rows(output)
    assert [row[2] for row in rows] == ["eager", "graph", "compiled_graph", "eager", "compiled"]
    assert {cell for row in rows for cell in row[4:]} == {"not timed", "-"}, "no number without kernels"
    assert all(row["seconds"] == {} for row in json.loads((tmp_path / "rows.json").read_text())["rows"])


def test_the_sparse_training_layer_is_proved_against_a_dense_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On sparse units played by dense tensors."""
    monkeypatch.syspath_prepend(str(BENCH))
    import two_of_four as bench  # pyright: ignore[reportMissingImports]

    def cut(weight: torch.Tensor) -> torch.Tensor:
        return weight * (torch.arange(weight.shape[-1]) % 4 < 2)

    monkeypatch.setattr(bench, "SparseTensor", SimpleNamespace(prune_dense_static_sort=cut))
    assert bench.prove_training(torch.device("cpu")) < bench.CLOSE
    right = bench.SparseProduct.backward
    monkeypatch.setattr(bench.SparseProduct, "backward", lambda ctx, grad: (2 * right(ctx, grad)[0], None, None))
    with pytest.raises(ValueError, match="of their deviation from a dense one's"):
        bench.prove_training(torch.device("cpu"))


@pytest.mark.slow
def test_serve_times_batches_against_single_pictures_and_a_crowd() -> None:
    pytest.importorskip("uvicorn")
    output = run_alone("serve.py", device=False)
    rows = {row[0]: float(row[1]) for row in table_rows(output)}
    assert {"batched / one at a time", "batched, HTTP and decoding subtracted / model alone"} <= set(rows)
    assert all(value > 0 for value in rows.values())
    first, *_ = table_rows(run_alone("serve.py", "--crowd", "80", device=False))
    assert int(first[1]) + int(first[2]) == 80

"""The run folder: never written over by accident, never deleted unless it is one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from vitscope.core.config import config
from vitscope.core.errors import UsageError, VitscopeError
from vitscope.core.folder_lock import FolderLock
from vitscope.core.run_folder import RunFolder
from vitscope.core.yaml import load_yaml


@config
class Settings:
    """Something to save."""

    lr: float = 1e-3


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "here").mkdir()
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path / "here")


def ended(path: str | Path) -> RunFolder:
    run = RunFolder.create(path, name="x")
    run.write_status("finished")
    return run


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_layout_is_the_contract() -> None:
    run = RunFolder.create("out", name="x")
    names = {
        "config_path": "config.yaml",
        "env_path": "env.json",
        "status_path": "status.json",
        "metrics_path": "metrics.jsonl",
        "log_path": "train.log",
        "bad_samples_path": "bad_samples.jsonl",
        "diagnostics": "diagnostics",
        "checkpoints": "checkpoints",
        "model": "model",
        "plots": "plots",
    }
    assert {name: getattr(run, name) for name in names} == {k: Path("out") / v for k, v in names.items()}


def test_a_new_run_starts_and_keeps_its_settings() -> None:
    run = RunFolder.create("deep/er/out", name="x")
    status = run.read_status()
    assert status is not None
    assert (status["state"], status["pid"]) == ("starting", os.getpid())
    run.save_config(Settings(lr=0.25))
    assert load_yaml(Settings, run.config_path) == Settings(lr=0.25)
    run.save_environment()
    assert json.loads(run.env_path.read_text())["python"]["executable"] == sys.executable
    run.metrics.append(step=1, epoch=0)
    again = RunFolder.open(run.path)
    assert [row["step"] for row in again.metrics.read()] == [1]


def test_an_empty_folder_is_taken() -> None:
    Path("out").mkdir()
    assert RunFolder.create("out", name="x").path == Path("out")


def test_home_is_understood(tmp_path: Path) -> None:
    assert RunFolder.create("~/out", name="x").path == tmp_path / "home" / "out"


def test_a_used_run_folder_is_refused_naming_both_remedies() -> None:
    run = ended("out")
    before = contents(run.path)
    with pytest.raises(UsageError, match="the output folder 'out' is not empty") as refusal:
        RunFolder.create("out", name="x")
    assert refusal.value.fix is not None
    assert "--resume" in refusal.value.fix
    assert "--overwrite" in refusal.value.fix
    assert contents(run.path) == before


def test_another_folder_is_refused_whatever_is_asked() -> None:
    Path("photos").mkdir()
    Path("photos/a.jpg").write_bytes(b"x")
    with pytest.raises(UsageError, match="is not empty") as refusal:
        RunFolder.create("photos", name="x")
    assert "--resume and --overwrite are for run folders" in str(refusal.value.fix)
    with pytest.raises(UsageError, match="will not replace photos: it is not a run folder"):
        RunFolder.create("photos", name="x", overwrite=True)
    assert contents(Path("photos")) == {"a.jpg": b"x"}


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}


def test_overwrite_empties_a_run() -> None:
    run = ended("out")
    run.metrics.append(step=1, epoch=0)
    (run.checkpoints / "step-000001").mkdir(parents=True)
    (run.checkpoints / "step-000001" / "trainer.pt").write_bytes(b"x")
    (run.path / "events.out.tfevents.1").write_bytes(b"x")
    (run.path / "masks").mkdir()
    new = RunFolder.create("out", name="x", overwrite=True)
    assert names(new.path) == {".lock", ".replaced", "status.json"}
    new.forget_replaced()
    assert names(new.path) == {".lock", "status.json"}
    status = new.read_status()
    assert status is not None
    assert status["state"] == "starting"


@pytest.mark.parametrize("only", ["config.yaml", "status.json", "metrics.jsonl"])
def test_any_of_three_files_makes_a_run_folder(only: str) -> None:
    Path("out").mkdir()
    Path("out", only).write_text("")
    assert RunFolder.open("out").path == Path("out")
    RunFolder.create("out", name="x", overwrite=True).forget_replaced()
    assert names(Path("out")) == {".lock", "status.json"}


def test_a_project_with_a_config_yaml_is_not_deleted() -> None:
    Path("project/src").mkdir(parents=True)
    Path("project/config.yaml").write_text("a: 1")
    Path("project/status.json").write_text('{"state": "their own"}')
    Path("project/src/work.py").write_text("years of it")
    with pytest.raises(UsageError, match="it holds files that are not of a run"):
        RunFolder.create("project", name="x", overwrite=True)
    assert Path("project/src/work.py").read_text() == "years of it"


@pytest.mark.parametrize("out", [".", "..", "../here", "~", "~/.."])
def test_overwrite_never_deletes_home_or_here_or_what_holds_them(out: str, tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "home", tmp_path / "here"):
        (place / "status.json").write_text('{"heartbeat": 1}')
        (place / "metrics.jsonl").write_text("{}")
    before = contents(tmp_path)
    with pytest.raises(UsageError, match=r"will not replace .*: it is the (current|home) folder, or holds it"):
        RunFolder.create(out, name="x", overwrite=True)
    assert contents(tmp_path) == before


def test_overwrite_follows_no_link(tmp_path: Path) -> None:
    run = ended(tmp_path / "real")
    Path("link").symlink_to(run.path)
    before = contents(run.path)
    with pytest.raises(UsageError, match="will not replace link: it is a symbolic link"):
        RunFolder.create("link", name="x", overwrite=True)
    assert contents(run.path) == before


def test_overwrite_unlinks_links_inside_and_leaves_what_they_point_to(tmp_path: Path) -> None:
    big = tmp_path / "big"
    big.mkdir()
    (big / "precious").write_text("x")
    run = ended("out")
    run.checkpoints.symlink_to(big)
    RunFolder.create("out", name="x", overwrite=True).forget_replaced()
    assert (big / "precious").read_text() == "x"
    assert not run.checkpoints.is_symlink()


def test_overwrite_leaves_a_living_run() -> None:
    run = RunFolder.create("out", name="x")
    with pytest.raises(UsageError, match=f"process {os.getpid()} is writing to it"):
        RunFolder.create("out", name="x", overwrite=True)
    assert run.status_path.exists()


def test_overwrite_that_is_stopped_half_way_can_be_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    run = ended("out")
    run.metrics.append(step=1, epoch=0)
    run.plots.mkdir()
    real = Path.rename

    def stop(path: Path, target: Path) -> Path:
        if path.name == "metrics.jsonl":
            raise PermissionError(13, "Permission denied")
        return real(path, target)

    monkeypatch.setattr(Path, "rename", stop)
    with pytest.raises(VitscopeError, match="cannot replace the old run"):
        RunFolder.create("out", name="x", overwrite=True)
    assert run.status_path.exists()
    assert run.plots.exists(), "what had been moved is back"
    assert not (run.path / ".replaced").exists()
    monkeypatch.setattr(Path, "rename", real)
    RunFolder.create("out", name="x", overwrite=True)
    assert not run.metrics_path.exists()


def test_a_run_that_was_to_be_replaced_comes_back_as_it_was() -> None:
    run = ended("out")
    run.metrics.append(step=1, epoch=0)
    run.plots.mkdir()
    before = {name: (run.path / name).stat().st_mtime_ns for name in names(run.path) - {".lock"}}
    new = RunFolder.create("out", name="x", overwrite=True)
    new.metrics.append(step=7, epoch=0)
    new.model.mkdir()
    assert new.put_back_replaced()
    assert {name: (run.path / name).stat().st_mtime_ns for name in names(run.path) - {".lock"}} == before
    assert run.metrics.read()[0]["step"] == 1
    assert not new.put_back_replaced(), "there is none any more"


def test_replaced_twice_without_having_begun_the_first_run_still_comes_back() -> None:
    run = ended("out")
    run.metrics.append(step=1, epoch=0)
    RunFolder.create("out", name="x", overwrite=True).write_status("failed")
    assert RunFolder.create("out", name="x", overwrite=True).put_back_replaced()
    assert run.metrics.read()[0]["step"] == 1


def test_a_folder_has_one_writer_and_ends_with_it(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from pathlib import Path
        from vitscope.core.folder_lock import FolderLock
        FolderLock().take(Path({str(tmp_path)!r}))
        print("held", flush=True)
        sys.stdin.read()
    """
    other = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout is not None
    assert other.stdout.readline() == "held\n"
    with pytest.raises(UsageError, match="another process is writing to"):
        FolderLock().take(tmp_path)
    other.kill()
    other.communicate()
    lock = FolderLock()
    lock.take(tmp_path)
    lock.release()
    assert (tmp_path / ".lock").read_bytes() == b""


def test_where_there_can_be_no_lock_none_is_missed(tmp_path: Path) -> None:
    FolderLock().take(tmp_path / "missing")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_in_the_way_is_refused(overwrite: bool) -> None:
    Path("out").write_text("mine")
    with pytest.raises(UsageError, match="'out' exists and is not a folder"):
        RunFolder.create("out", name="x", overwrite=overwrite)
    assert Path("out").read_text() == "mine"
    with pytest.raises(VitscopeError, match="cannot make a run folder"):
        RunFolder.create("out/below", name="x")
    with pytest.raises(UsageError, match="'out' exists and is not a folder"):
        RunFolder.create(name="x", root=Path("out"))


def test_names_are_numbered() -> None:
    made = [RunFolder.create(name="digits").path for _ in range(3)]
    assert made == [Path(f"runs/digits-00{n}") for n in (1, 2, 3)]
    assert RunFolder.create(name="other").path == Path("runs/other-001")
    Path("runs/digits-999").write_text("even a file takes its number")
    assert RunFolder.create(name="digits").path == Path("runs/digits-1000")
    assert RunFolder.create(name="digits").path == Path("runs/digits-1001")
    assert RunFolder.create(name="x", root=Path("a/b")).path == Path("a/b/x-001")


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("timm/vit_small.in1k", "timm-vit_small.in1k-001"),
        ("../../etc", "etc-001"),
        ("a b*c", "a-b-c-001"),
        ("", "run-001"),
        ("..", "run-001"),
        ("数字", "数字-001"),
        ("a(1", "a-1-001"),
    ],
)
def test_odd_names_stay_in_the_root(name: str, folder: str) -> None:
    assert RunFolder.create(name=name).path == Path("runs") / folder


def test_processes_that_start_together_get_different_numbers() -> None:
    code = """if True:
        import sys
        from vitscope.core.run_folder import RunFolder
        sys.stdin.readline()
        for _ in range(20):
            print(RunFolder.create(name="x").path.name)
    """
    command = [sys.executable, "-c", code]
    makers = [subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    for maker in makers:
        assert maker.stdin is not None
        maker.stdin.write("go\n")
        maker.stdin.flush()
    names = [name for maker in makers for name in maker.communicate()[0].split()]
    assert all(maker.returncode == 0 for maker in makers)
    assert sorted(names) == [f"x-{n:03d}" for n in range(1, 81)]


def test_of_two_runs_in_one_folder_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both find it empty; the second arrives between the look and the first file."""
    real = Path.mkdir

    def other_comes_first(path: Path, *rest: object, **more: object) -> None:
        real(path, *rest, **more)  # type: ignore[arg-type]
        (path / "status.json").write_text("{}")

    monkeypatch.setattr(Path, "mkdir", other_comes_first)
    with pytest.raises(UsageError, match="'out' is not empty"):
        RunFolder.create("out", name="x")
    assert Path("out/status.json").read_text() == "{}"


def test_open_says_what_is_near() -> None:
    for _ in range(2):
        RunFolder.create(name="digits")
    with pytest.raises(UsageError, match="'runs/digit-002' does not exist") as refusal:
        RunFolder.open("runs/digit-002")
    assert "'runs/digits-002'" in str(refusal.value.fix)
    with pytest.raises(UsageError, match="'runs' is not a run folder") as refusal:
        RunFolder.open("runs")
    assert refusal.value.fix == "it holds runs; name one, such as runs/digits-002"
    with pytest.raises(UsageError, match="does not exist") as refusal:
        RunFolder.open("no/where")
    assert "such as runs/NAME-001" in str(refusal.value.fix)
    Path("file").write_text("")
    with pytest.raises(UsageError, match="'file' is not a run folder"):
        RunFolder.open("file")

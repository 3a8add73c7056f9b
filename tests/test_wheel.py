"""The wheel, in an environment of its own: what a user installs is what runs."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from vitscope import __version__
from vitscope.models.variants import list_models

ROOT = Path(__file__).parents[1]


def run(*command: str | Path, cwd: Path) -> str:
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    env["OMP_NUM_THREADS"] = "1"
    done = subprocess.run(list(map(str, command)), cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, ROOT, cwd=out)
    (built,) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def fresh(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the wheel; the packages it needs are borrowed, not downloaded."""
    place = tmp_path_factory.mktemp("fresh") / "venv"
    venv.create(place, with_pip=False, symlinks=os.name == "posix")
    scripts = place / ("Scripts" if os.name == "nt" else "bin")
    python = scripts / Path(sys.executable).name
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet", wheel)
    run(*pip, cwd=place)
    site = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    # A .pth inside a folder that a .pth names is not read: our own editable install stays out of the way.
    (site / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return scripts


def test_everything_is_in_the_wheel_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (told,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(told).decode())
    source = ROOT / "src"
    files = {
        path.relative_to(source).as_posix()
        for path in (source / "vitscope").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert "vitscope/py.typed" in files
    assert {name for name in names if ".dist-info/" not in name} == files
    assert any(name.endswith("/LICENSE") for name in names)
    assert (metadata["Name"], metadata["Version"]) == ("vitscope", __version__)
    assert metadata["Requires-Python"] == ">=3.11"


def test_the_package_comes_from_the_wheel(fresh: Path, tmp_path: Path) -> None:
    code = (
        "import vitscope, pathlib; place = pathlib.Path(vitscope.__file__).parent\n"
        "print(place, (place / 'py.typed').is_file(), vitscope.__version__)"
    )
    place, typed, version = run(fresh / "python", "-c", code, cwd=tmp_path).split()
    assert Path(place).is_relative_to(fresh.parent)
    assert (typed, version) == ("True", __version__)


def test_check_runs(fresh: Path, tmp_path: Path) -> None:
    out = run(fresh / "vitscope", "check", cwd=tmp_path)
    assert __version__ in out
    assert str(fresh.parent) in out
    assert "core packages  all there" in out
    assert list(tmp_path.iterdir()) == []


def test_models_runs(fresh: Path, tmp_path: Path) -> None:
    out = run(fresh / "python", "-m", "vitscope", "models", cwd=tmp_path)
    assert f"{len(list_models())} models; " in out
    assert "86,567,656" in out

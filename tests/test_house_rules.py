"""Rules of the house that no linter here knows."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "vitscope"
FILES = sorted(SOURCE.rglob("*.py"))
MODULES = [
    ".".join(("vitscope", *path.relative_to(SOURCE).with_suffix("").parts)).removesuffix(".__init__") for path in FILES
]
CONFIG_MODULES = [module for module in MODULES if "config" in module.split(".")]

HEAVY = ["torch", "numpy"]
EXTRAS = [
    "datasets",
    "optuna",
    "fastapi",
    "uvicorn",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "torchao",
    "timm",
    "transformers",
]
NEVER_AT_IMPORT = ["torchvision", "matplotlib", *EXTRAS]
VAGUE_NAMES = {"utils", "util", "helpers", "helper", "common", "misc", "base", "legacy"}
MOST_LINES = 400


def named(path: Path) -> str:
    return str(path.relative_to(SOURCE))


@dataclass
class Found:
    """What the rules ask of a file."""

    reads_environment: list[str] = field(default_factory=list)
    asserts: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    imports: set[str] = field(default_factory=set)
    """Every module it imports, wherever it does: 'torch.nn', 'torch', ..."""


@cache
def found_in(path: Path) -> Found:
    """Parsed once for all rules."""
    found = Found()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if reads_environment(node):
            found.reads_environment.append(place(path, node))
        match node:
            case ast.Assert():
                found.asserts.append(place(path, node))
            case ast.ClassDef():
                found.classes.append(node.name)
            case ast.Import():
                found.imports |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                found.imports |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
    return found


def place(path: Path, node: Any) -> str:
    return f"{named(path)}:{node.lineno}"


def reads_environment(node: ast.AST) -> bool:
    words = {"environ", "environb", "getenv", "getenvb", "putenv"}
    match node:
        case ast.Attribute(value=ast.Name(id="os"), attr=attr):
            return attr in words
        case ast.ImportFrom(module="os", names=names):
            return any(alias.name in words for alias in names)
    return False


def imported_by(statement: str) -> set[str]:
    """Top-level packages a fresh interpreter holds after `statement`."""
    program = f"{statement}\nimport json, sys\nprint(json.dumps(sorted({{m.partition('.')[0] for m in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


def test_there_is_something_to_check() -> None:
    assert len(FILES) > 20
    assert "vitscope.models.config" in CONFIG_MODULES


@pytest.mark.parametrize("path", FILES, ids=named)
def test_only_core_reads_environment_variables(path: Path) -> None:
    if path.relative_to(SOURCE).parts[0] == "core":
        pytest.skip("core may")
    assert found_in(path).reads_environment == []


def test_the_environment_search_finds_what_it_should() -> None:
    texts = ["os.environ['A']", "os.getenv('A')", "from os import environ", "from os import getenv as g"]
    assert all(any(map(reads_environment, ast.walk(ast.parse(text)))) for text in texts)
    assert not any(map(reads_environment, ast.walk(ast.parse("os.path.join('environ', 'b')"))))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_assert_in_the_product(path: Path) -> None:
    """`python -O` removes them; a check that matters raises an error a person can read."""
    assert found_in(path).asserts == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_names_say_something(path: Path) -> None:
    assert VAGUE_NAMES.isdisjoint(path.relative_to(SOURCE).with_suffix("").parts)
    assert [name for name in found_in(path).classes if name.endswith(("V2", "Utils", "Helper"))] == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_a_file_can_be_held_in_the_head(path: Path) -> None:
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MOST_LINES, f"{named(path)} has {lines} lines: split it where it talks about two things"


@pytest.mark.parametrize("module", CONFIG_MODULES)
def test_settings_import_neither_torch_nor_numpy(module: str) -> None:
    """The command line reads them before it knows whether anything will be computed."""
    assert imported_by(f"import {module}").isdisjoint(HEAVY)


def test_importing_vitscope_imports_nothing_heavy() -> None:
    assert imported_by("import vitscope").isdisjoint([*HEAVY, *NEVER_AT_IMPORT])


def test_listing_models_imports_nothing_heavy() -> None:
    assert imported_by("import vitscope; vitscope.list_models()").isdisjoint([*HEAVY, *NEVER_AT_IMPORT])


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=named)
def test_core_knows_no_networks(path: Path) -> None:
    assert not {module for module in found_in(path).imports if module.startswith(("torch.nn", "torchvision"))}

"""Rules of the house that no linter here knows."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

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


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text(encoding="utf-8")))


def places(path: Path, found: list[ast.stmt | ast.expr]) -> list[str]:
    return [f"{named(path)}:{node.lineno}" for node in found]


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
    assert places(path, [node for node in nodes(path) if reads_environment(node)]) == []  # type: ignore[misc]


def test_the_environment_search_finds_what_it_should() -> None:
    texts = ["os.environ['A']", "os.getenv('A')", "from os import environ", "from os import getenv as g"]
    assert all(any(map(reads_environment, ast.walk(ast.parse(text)))) for text in texts)
    assert not any(map(reads_environment, ast.walk(ast.parse("os.path.join('environ', 'b')"))))


@pytest.mark.parametrize("path", FILES, ids=named)
def test_no_assert_in_the_product(path: Path) -> None:
    """`python -O` removes them; a check that matters raises an error a person can read."""
    assert places(path, [node for node in nodes(path) if isinstance(node, ast.Assert)]) == []


@pytest.mark.parametrize("path", FILES, ids=named)
def test_names_say_something(path: Path) -> None:
    assert VAGUE_NAMES.isdisjoint(path.relative_to(SOURCE).with_suffix("").parts)
    classes = [node for node in nodes(path) if isinstance(node, ast.ClassDef)]
    assert [node.name for node in classes if node.name.endswith(("V2", "Utils", "Helper"))] == []


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


def test_building_a_model_imports_no_pictures_and_no_extras() -> None:
    statement = "import vitscope; vitscope.create_model('guide_tiny')"
    assert imported_by(statement).isdisjoint(["torchvision", "matplotlib", "timm", "transformers", "optuna", "onnx"])


def imports_of(path: Path) -> set[str]:
    """Every module a file imports, wherever it does: 'torch.nn', 'torch', ..."""
    found: set[str] = set()
    for node in nodes(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


@pytest.mark.parametrize("path", sorted((SOURCE / "core").rglob("*.py")), ids=named)
def test_core_knows_no_networks(path: Path) -> None:
    assert not {module for module in imports_of(path) if module.startswith(("torch.nn", "torchvision"))}

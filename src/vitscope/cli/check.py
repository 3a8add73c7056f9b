"""`vitscope check`: what this machine has, and how to get what it lacks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.markup import escape

from vitscope.cli.console import console, in_bytes, plain_table, print_json
from vitscope.core.config import config
from vitscope.core.environment import describe_environment
from vitscope.core.errors import EXIT_DONE, EXIT_FAILED
from vitscope.core.flags import parse_flags
from vitscope.core.switch import Switch


@config
class CheckCommand:
    """Show the environment: Python, torch, GPUs, memory, disk, extras. Exits 1 when something needed is missing."""

    json: Switch = False
    """Print JSON instead of a table."""


def run(args: Sequence[str]) -> int:
    command = parse_flags(CheckCommand(), args, prog="vitscope check")
    environment = describe_environment()
    if command.json:
        print_json(environment)
    else:
        _print(environment)
    return EXIT_DONE if _usable(environment) else EXIT_FAILED


def _usable(environment: dict[str, Any]) -> bool:
    return "error" not in environment["torch"] and all(p["fits"] for p in environment["packages"].values())


def _print(environment: dict[str, Any]) -> None:
    out = console()
    facts = plain_table("", "")
    facts.show_header = False
    for name, fact in _facts(environment):
        facts.add_row(name, escape(fact))
    out.print(facts)
    for warning in environment["torch"].get("warnings", ()):
        out.print(f"warning: {escape(warning)}")
    lacking = [f"{name} {_fit(package)}" for name, package in environment["packages"].items() if not package["fits"]]
    out.print(f"\ncore packages  {escape('; '.join(lacking)) if lacking else 'all there'}")
    if lacking:
        out.print("               pip install --upgrade vitscope")
    out.print()
    extras = plain_table("extra", "packages", "")
    for name, extra in environment["extras"].items():
        packages = ", ".join(f"{package} {_fit(found)}" for package, found in extra["packages"].items())
        extras.add_row(name, packages, escape(extra["install"] or ""))
    out.print(extras)


def _facts(environment: dict[str, Any]) -> list[tuple[str, str]]:
    torch, memory, disk = environment["torch"], environment["memory"], environment["disk"]
    facts = [
        ("vitscope", environment["vitscope"]),
        ("Python", f"{environment['python']['version']}  {environment['python']['executable']}"),
        ("system", environment["platform"]),
        ("processors", f"{environment['cpus']}{_bf16(torch.get('cpu_bf16'))}"),
        ("memory", f"{_bytes(memory['available_bytes'])} free of {_bytes(memory['total_bytes'])}"),
        ("disk", f"{_bytes(disk['free_bytes'])} free at {disk['path']}"),
    ]
    if "error" in torch:
        return [*facts, ("torch", f"cannot be imported: {torch['error']}")]
    facts.append(("torch", f"{torch['version']}, torchvision {torch['torchvision']}, {torch['threads']} threads"))
    for device in torch["devices"]:
        free = f"{_bytes(device.get('free_bytes'))} free of {_bytes(device.get('total_bytes'))}"
        facts.append(("GPU", f"{device['name']}, {free}{_bf16(device.get('bf16', False))}"))
    if torch["mps_available"]:
        facts.append(("GPU", "Apple (mps)"))
    elif not torch["devices"]:
        facts.append(
            (
                "GPU",
                f"none (torch is built for CUDA {torch['cuda_version']})" if torch["cuda_version"] else "none",
            )
        )
    if environment["data_roots"]:
        facts.append(("data", ", ".join(environment["data_roots"])))
    return facts


def _bf16(has: bool | None) -> str:
    return "" if has is None else f", bf16 {'yes' if has else 'no'}"


def _fit(package: dict[str, Any]) -> str:
    if package["version"] is None:
        return "missing"
    return package["version"] if package["fits"] else f"{package['version']} (needs {package['needs']})"


def _bytes(count: int | None) -> str:
    return "unknown" if count is None else in_bytes(count)

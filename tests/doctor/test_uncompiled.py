"""Compiled models, and callers that have turned gradients off: examined like any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import vitscope
from doctor.conftest import loader_of, pictures
from doctor.healthy import PlainViT
from vitscope.doctor.examination import Report
from vitscope.doctor.uncompiled import as_written, run_as_written

CHECKS = ("forward", "backward")


def wrapped(model: nn.Module) -> nn.Module:
    return torch.compile(model, backend="eager")  # pyright: ignore[reportReturnType]


def in_place(model: nn.Module) -> nn.Module:
    model.compile(backend="eager")
    return model


def examined(model: nn.Module, **given: object) -> Report:
    optimizer = given.pop("optimizer", None) or torch.optim.AdamW(model.parameters(), 1e-3)
    return vitscope.check_up(model, loader_of(*pictures()), optimizer=optimizer, only=CHECKS, **given)  # pyright: ignore


def plain_vit(**changes: object) -> nn.Module:
    torch.manual_seed(0)
    return PlainViT(**changes)  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("way", [wrapped, in_place])
def test_compiled_is_healthy_where_plain_is(way: Callable[[nn.Module], nn.Module]) -> None:
    report = examined(way(plain_vit()))
    assert report.verdict == "healthy", report.findings
    assert report.subject["model"] == "PlainViT"


@pytest.mark.parametrize("way", [wrapped, in_place])
def test_a_model_that_ran_compiled_before_has_its_parts_seen(way: Callable[[nn.Module], nn.Module]) -> None:
    model = way(plain_vit(is_scaled=False))
    model(pictures(4)[0])
    model.eval()(pictures(4)[0])
    report = examined(model)
    assert [finding.cause for finding in report.findings] == ["attention_scale_missing"]
    assert report.findings[0].numbers["name"] == "blocks.0.attn"


def test_parts_that_were_compiled_by_themselves_are_counted_once() -> None:
    model = plain_vit(is_scaled=False)
    for block in model.blocks:  # pyright: ignore[reportGeneralTypeIssues]
        block.attn = torch.compile(block.attn, backend="eager")
    report = examined(model)
    assert [finding.cause for finding in report.findings] == ["attention_scale_missing"]
    assert report.findings[0].numbers["count"] == len(model.blocks)  # pyright: ignore[reportArgumentType]


def test_a_compiled_step_is_watched() -> None:
    model = plain_vit()
    compiled = torch.compile(model, backend="eager")
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)

    @torch.compile(backend="eager")
    def forward(images: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(compiled(images), labels)

    def step(images: Tensor, labels: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = forward(images, labels)
        loss.backward()
        optimizer.step()
        return loss

    step(*pictures(32))
    assert examined(compiled, optimizer=optimizer, step=step).verdict == "healthy"  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("off", [torch.no_grad, torch.inference_mode])
def test_gradients_are_there_where_the_caller_has_none(off: Callable[[], torch.no_grad]) -> None:
    model = plain_vit()
    with off():
        report = examined(model)
        assert not torch.is_grad_enabled()
    assert report.verdict == "healthy", report.findings
    assert all(asked.failed is None for asked in report.asked)


def test_compiled_code_runs_again_after_the_examination() -> None:
    passes: list[bool] = []

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., object]:
        def run(*given: object) -> object:
            passes.append(True)
            return graph.forward(*given)

        return run

    model = nn.Linear(3, 2)
    compiled = torch.compile(model, backend=backend)
    assert as_written(compiled) is model  # pyright: ignore[reportArgumentType]
    with run_as_written():
        compiled(torch.ones(1, 3))
    assert not passes
    compiled(torch.ones(1, 3))
    assert passes

"""ResNets give timm's numbers with timm's weights, loaded as they are, in both directions."""

from __future__ import annotations

import pytest
import timm
import torch
from random_weights import fill_with_large_random_weights

from vitscope.core.config import updated
from vitscope.models.build import build_model
from vitscope.models.resnet import ResNet
from vitscope.models.variants import model_config


def images(height: int, width: int, batch: int = 2) -> torch.Tensor:
    return torch.randn(batch, 3, height, width, generator=torch.Generator().manual_seed(1))


def pair_of_models(name: str, **changes: int) -> tuple[ResNet, torch.nn.Module]:
    theirs = timm.create_model(name, **changes)
    fill_with_large_random_weights(theirs)
    ours = build_model(updated(model_config(name), **changes))
    ours.load_state_dict(theirs.state_dict(), strict=True)
    theirs.load_state_dict(ours.state_dict(), strict=True)
    return ours, theirs


@pytest.mark.parametrize("name", ["resnet18", "resnet34", "resnet50"])
def test_logits_at_224(name):
    """Measured: 0.0 for each. The same kernels run in the same order, so the absolute bound holds although
    logits reach 585 (resnet18), 2.5e4 (resnet34) and 1.4e5 (resnet50)."""
    ours, theirs = pair_of_models(name)
    ours.eval(), theirs.eval()
    x = images(224, 224, batch=1)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=2e-5, rtol=0)


@pytest.mark.parametrize("name", ["resnet18", "resnet50"])
def test_other_sizes_and_features(name):
    ours, theirs = pair_of_models(name, num_classes=0)
    ours.eval(), theirs.eval()
    x = images(65, 96)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=2e-5, rtol=0)
        assert torch.equal(ours.forward_features(x), theirs.forward_features(x))


def test_gradients_and_running_statistics_in_train_mode():
    ours, theirs = pair_of_models("resnet18", num_classes=10)
    x, labels = images(64, 64, batch=4), torch.arange(4)
    for model in (theirs.train(), ours.train()):
        torch.nn.functional.cross_entropy(model(x), labels).backward()
    for (name, mine), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        assert (mine.grad - other.grad).abs().max() <= 2e-5 * max(1.0, other.grad.abs().max().item()), name
    for (name, mine), other in zip(ours.named_buffers(), theirs.buffers(), strict=True):
        torch.testing.assert_close(mine, other, msg=name)

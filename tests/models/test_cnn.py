"""The convolutional baseline."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from vitscope.core.errors import ConfigError, InputError, VitscopeError
from vitscope.models.cnn import CNN
from vitscope.models.config import CNNConfig

SMALL = CNNConfig(widths=(8, 16))


def test_shapes_of_every_stage():
    model = CNN(CNNConfig()).eval()
    x = torch.randn(2, 1, 28, 28)
    assert model(x).shape == (2, 10)
    assert model.forward_head(model.forward_features(x), pre_logits=True).shape == (2, 128)
    shapes = {i: tuple(t.shape) for i, t in model.forward_intermediates(x).items()}
    assert shapes == {0: (2, 32, 14, 14), 1: (2, 64, 7, 7), 2: (2, 128, 3, 3)}
    assert list(model.forward_intermediates(x, [-1, 0])) == [0, 2]


def test_without_classes_it_gives_features():
    model = CNN(CNNConfig(num_classes=0, widths=(8, 16))).eval()
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 16)
    model.reset_classifier(3)
    assert model(torch.randn(2, 1, 28, 28)).shape == (2, 3)


def test_sizes_and_channels():
    model = CNN(CNNConfig(widths=(8, 16), in_chans=3, img_size=32)).eval()
    assert model(torch.randn(1, 3, 9, 20)).shape == (1, 10)
    with pytest.raises(InputError, match=r"expected \(batch, 3, height, width\), received \(1, 1, 32, 32\)"):
        model(torch.zeros(1, 1, 32, 32))
    with pytest.raises(InputError, match=r"expected at least 4 pixels a side, received \(1, 3, 3, 32\)"):
        model(torch.zeros(1, 3, 3, 32))
    with pytest.raises(ConfigError, match="img_size: expected at least 4"):
        model.set_input_size(2)
    with pytest.raises(VitscopeError, match="no gradient checkpointing"):
        model.set_grad_checkpointing()


def test_it_drops_in_training_only():
    model = CNN(SMALL)
    x = torch.randn(8, 1, 28, 28)
    assert not torch.equal(model(x), model(x))
    model.eval()
    assert torch.equal(model(x), model(x))


def test_kaiming_weights():
    torch.manual_seed(0)
    conv = CNN(CNNConfig()).stages[2].conv2
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (128 * 9)), rel=0.05)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_loss_at_init(training, seed):
    torch.manual_seed(seed)
    model = CNN(CNNConfig()).train(training)
    loss = F.cross_entropy(model(torch.randn(20, 1, 28, 28)), torch.arange(20) % 10).item()
    assert loss == pytest.approx(math.log(10), rel=0.05)
    model.reset_classifier(10)
    assert model.head.weight.std().item() == pytest.approx(0.005, rel=0.15)


def test_it_learns_a_batch_by_heart():
    torch.manual_seed(0)
    model = CNN(SMALL)
    x, labels = torch.randn(16, 1, 16, 16), torch.arange(16) % 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(120):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    model.eval()
    assert (model(x).argmax(dim=1) == labels).float().mean() == 1.0

"""ResNets and the residual block they are built from."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from vitscope.core.errors import InputError
from vitscope.models.config import ResNetConfig
from vitscope.models.resnet import Bottleneck, ResidualBlock, ResNet

CIFAR = ResNetConfig(img_size=32, num_classes=10, depths=(2, 2, 2), stem="cifar", stem_width=8)
BOTTLENECK = ResNetConfig(img_size=64, num_classes=10, block="bottleneck", depths=(1, 2), stem_width=8)


@pytest.mark.parametrize("block", [ResidualBlock, Bottleneck])
@pytest.mark.parametrize(
    ("in_chans", "out_chans", "stride", "shape"),
    [(64, 64, 1, (2, 64, 32, 32)), (64, 128, 2, (2, 128, 16, 16)), (64, 128, 1, (2, 128, 32, 32))],
)
def test_a_block_keeps_or_halves_the_picture(block, in_chans, out_chans, stride, shape):
    layer = block(in_chans, out_chans, stride=stride)
    assert layer(torch.randn(2, in_chans, 32, 32)).shape == shape
    projected = in_chans != out_chans or stride != 1
    assert isinstance(layer.downsample, nn.Sequential if projected else nn.Identity)


def test_the_default_stride_is_one():
    assert ResidualBlock(8, 8)(torch.randn(2, 8, 5, 7)).shape == (2, 8, 5, 7)


@pytest.mark.parametrize("block", [ResidualBlock, Bottleneck])
def test_a_block_whose_last_norm_is_zero_is_the_identity(block):
    layer = block(16, 16)
    nn.init.zeros_(layer.last_norm.weight)
    x = torch.rand(2, 16, 8, 8)
    assert torch.equal(layer(x), x)


def test_the_shortcut_carries_the_gradient_past_the_branch():
    layer = ResidualBlock(4, 4)
    nn.init.zeros_(layer.last_norm.weight)
    x = torch.rand(2, 4, 8, 8, requires_grad=True)
    layer(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_shapes_of_every_stage():
    model = ResNet(CIFAR).eval()
    x = torch.randn(2, 3, 32, 32)
    assert model(x).shape == (2, 10)
    assert model.forward_features(x).shape == (2, 32, 8, 8)
    stages = model.forward_intermediates(x)
    shapes = {i: tuple(t.shape) for i, t in stages.items()}
    assert shapes == {0: (2, 8, 32, 32), 1: (2, 16, 16, 16), 2: (2, 32, 8, 8)}
    assert torch.equal(stages[2], model.forward_features(x))
    assert list(model.forward_intermediates(x, [-1])) == [2]
    with pytest.raises(InputError, match="layers: expected"):
        model.forward_intermediates(x, [3])


def test_the_imagenet_stem_quarters_the_picture():
    model = ResNet(BOTTLENECK).eval()
    maps = model.forward_intermediates(torch.randn(1, 3, 64, 64))
    assert maps[0].shape == (1, 32, 16, 16)
    assert maps[1].shape == (1, 64, 8, 8)
    assert model.num_features == 64


def test_any_size_but_only_the_right_channels():
    model = ResNet(CIFAR).eval()
    assert model(torch.randn(1, 3, 17, 40)).shape == (1, 10)
    with pytest.raises(InputError, match=r"expected \(batch, 3, height, width\), received \(2, 1, 32, 32\)"):
        model(torch.zeros(2, 1, 32, 32))
    with pytest.raises(InputError, match="unsqueeze"):
        model(torch.zeros(3, 32, 32))
    with pytest.raises(InputError, match="permute"):
        model(torch.zeros(2, 32, 32, 3))
    model.set_input_size((24, 48))
    assert model.config.img_size == (24, 48)


def test_a_new_classifier():
    model = ResNet(CIFAR).eval()
    model.reset_classifier(4)
    assert model.fc.weight.shape == (4, 32)
    model.reset_classifier(0)
    assert model(torch.randn(1, 3, 32, 32)).shape == (1, 32)


@pytest.mark.parametrize("config", [CIFAR, BOTTLENECK], ids=["basic", "bottleneck"])
def test_checkpointing_gives_equal_gradients_and_counts_each_batch_once(config):
    torch.manual_seed(0)
    plain = ResNet(config).train()
    for parameter in plain.parameters():  # zero branches would hide a difference
        if parameter.ndim == 1:
            nn.init.normal_(parameter, 1.0, 0.1)
    saved = ResNet(config).train()
    saved.load_state_dict(plain.state_dict())
    saved.set_grad_checkpointing()
    x = torch.randn(4, 3, 32, 32)
    for model in (plain, saved):
        for _ in range(2):
            model(x).square().sum().backward()
    for (name, a), b in zip(plain.named_parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, msg=name)
        assert a.grad.abs().sum() > 0
    for (name, a), b in zip(plain.named_buffers(), saved.buffers(), strict=True):
        assert torch.equal(a, b), name


@pytest.mark.slow
def test_checkpointing_can_be_compiled():
    plain, saved = ResNet(CIFAR).train(), ResNet(CIFAR).train()
    saved.load_state_dict(plain.state_dict())
    saved.set_grad_checkpointing()
    x = torch.randn(4, 3, 32, 32)
    plain(x).square().sum().backward()
    torch.compile(saved, backend="aot_eager")(x).square().sum().backward()
    for (name, a), b in zip(plain.named_parameters(), saved.parameters(), strict=True):
        torch.testing.assert_close(b.grad, a.grad, msg=name)
    for (name, a), b in zip(plain.named_buffers(), saved.buffers(), strict=True):
        torch.testing.assert_close(b, a, msg=name)


def test_kaiming_keeps_the_variance_and_blocks_begin_as_identities():
    torch.manual_seed(0)
    model = ResNet(CIFAR)
    conv = model.layer3[1].conv1
    assert conv.weight.std().item() == pytest.approx(math.sqrt(2 / (32 * 9)), rel=0.05)
    assert all((stage[1].last_norm.weight == 0).all() for stage in model.stages)
    kept = ResNet(ResNetConfig(img_size=32, depths=(1,), stem_width=8, zero_init_last=False))
    assert (kept.layer1[0].last_norm.weight == 1).all()


@pytest.mark.parametrize("config", [CIFAR, BOTTLENECK], ids=["basic", "bottleneck"])
@pytest.mark.parametrize("training", [True, False])
def test_loss_at_init(config, training):
    torch.manual_seed(0)
    model = ResNet(config).train(training)
    loss = F.cross_entropy(model(torch.randn(20, 3, 32, 32)), torch.arange(20) % 10).item()
    assert loss == pytest.approx(math.log(10), rel=0.05)

"""The recurrent baseline."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F

from vitscope.core.errors import ConfigError, InputError, VitscopeError
from vitscope.models.config import LSTMConfig
from vitscope.models.lstm import LSTM


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("depth", [1, 2])
def test_shapes(bidirectional, depth):
    config = LSTMConfig(in_chans=3, img_size=(12, 20), embed_dim=16, depth=depth, bidirectional=bidirectional)
    model = LSTM(config).eval()
    x = torch.randn(2, 3, 12, 20)
    width = 32 if bidirectional else 16
    assert model(x).shape == (2, 10)
    assert model.forward_features(x).shape == (2, 12, width)
    assert model.num_features == width
    model.reset_classifier(0)
    assert model(x).shape == (2, width)
    model.reset_classifier(3)
    assert model(x).shape == (2, 3)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_the_head_sees_the_last_states(bidirectional):
    model = LSTM(LSTMConfig(num_classes=0, embed_dim=16, bidirectional=bidirectional)).eval()
    x = torch.randn(2, 1, 28, 28)
    _, (hidden, _) = model.lstm(x[:, 0])
    last = torch.cat([hidden[-2], hidden[-1]], dim=1) if bidirectional else hidden[-1]
    torch.testing.assert_close(model(x), last)


def test_a_row_holds_all_its_channels():
    model = LSTM(LSTMConfig(in_chans=2, img_size=(3, 4), embed_dim=8)).eval()
    seen = []
    model.lstm.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    x = torch.arange(24.0).view(1, 2, 3, 4)
    model(x)
    assert seen[0][0, 1].tolist() == [4, 5, 6, 7, 16, 17, 18, 19]


def test_the_width_of_a_row_is_built_in_and_their_number_is_not():
    model = LSTM(LSTMConfig(embed_dim=8)).eval()
    with pytest.raises(InputError, match=r"expected \(batch, 1, 28, 28\), received \(2, 3, 28, 28\)"):
        model(torch.zeros(2, 3, 28, 28))
    model.set_input_size((40, 28))
    assert model(torch.randn(2, 1, 40, 28)).shape == (2, 10)
    with pytest.raises(ConfigError, match="img_size: expected a width of 28"):
        model.set_input_size(32)
    with pytest.raises(VitscopeError, match="no intermediate layers"):
        model.forward_intermediates(torch.zeros(2, 1, 40, 28))
    with pytest.raises(VitscopeError, match="no gradient checkpointing"):
        model.set_grad_checkpointing()


def test_fresh_weights_remember():
    model = LSTM(LSTMConfig(embed_dim=32, bidirectional=True))
    for name, parameter in model.lstm.named_parameters():
        gates = parameter.detach().chunk(4)
        if name.startswith("weight_hh"):
            for gate in gates:
                torch.testing.assert_close(gate @ gate.T, torch.eye(32), atol=1e-5, rtol=0)
        elif name.startswith("weight_ih"):
            bound = math.sqrt(6 / (32 + parameter.shape[1]))
            assert all(0.9 * bound < gate.abs().max() <= bound for gate in gates)
        else:
            assert [gate.unique().item() for gate in gates] == [
                0,
                1 if name.startswith("bias_ih") else 0,
                0,
                0,
            ]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_loss_at_init(training, seed):
    torch.manual_seed(seed)
    model = LSTM(LSTMConfig()).train(training)
    loss = F.cross_entropy(model(torch.randn(20, 1, 28, 28)), torch.arange(20) % 10).item()
    assert loss == pytest.approx(math.log(10), rel=0.05)


def test_it_learns_a_batch_by_heart():
    torch.manual_seed(0)
    model = LSTM(LSTMConfig(img_size=16, embed_dim=48, drop_rate=0.0))
    x, labels = torch.randn(16, 1, 16, 16), torch.arange(16) % 10
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(80):
        optimizer.zero_grad()
        F.cross_entropy(model(x), labels).backward()
        optimizer.step()
    model.eval()
    assert (model(x).argmax(dim=1) == labels).float().mean() == 1.0


@pytest.mark.filterwarnings("ignore:The tensor attributes self.lstm._flat_weights")  # torch's own list of views
def test_it_can_be_exported():
    model = LSTM(LSTMConfig(embed_dim=8, bidirectional=True)).eval()
    x = torch.randn(2, 1, 28, 28)
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))

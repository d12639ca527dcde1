"""torch.nn's recurrent layers at lengths known when compiling, long ones, and over a range."""

from __future__ import annotations

from typing import Any

import aicf
import pytest
import torch
from torch import nn

LAYERS: dict[str, Any] = {
    "lstm": lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True),
    "lstm with a projection": lambda: nn.LSTM(3, 6, proj_size=4, batch_first=True, bias=False),
    "gru": lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, dropout=0.5, batch_first=True),
    "tanh": lambda: nn.RNN(3, 4, batch_first=True),
    "relu": lambda: nn.RNN(3, 4, nonlinearity="relu", bias=False, batch_first=True),
}


def state(layer: nn.Module, batch: int) -> Any:
    count = layer.num_layers * (2 if layer.bidirectional else 1)
    h = torch.randn(count, batch, layer.proj_size or layer.hidden_size)
    return (h, torch.randn(count, batch, layer.hidden_size)) if isinstance(layer, nn.LSTM) else h


def close(exe: Any, layer: nn.Module, *args: Any) -> None:
    with torch.no_grad():
        torch.testing.assert_close(exe(*args), layer(*args), rtol=1e-5, atol=2e-6)


@pytest.mark.usefixtures("only_on_the_cpu")  # which runs loops
@pytest.mark.parametrize("name", LAYERS)
def test_any_length(name: str) -> None:
    layer = LAYERS[name]().eval()
    exe = aicf.compile(layer, (torch.randn(2, 7, 3),), dims={"input": {0: "batch=1..3", 1: "length=1..150"}})
    assert "scan" in str(exe.plan)
    for batch, length in ((1, 1), (3, 150), (2, 7)):
        close(exe, layer, torch.randn(batch, length, 3))
    x, start = torch.randn(2, 6, 3), state(layer, 2)
    exe = aicf.compile(layer, (x, start))
    assert "scan" not in str(exe.plan)
    close(exe, layer, x, start)


class _Called(nn.Module):
    """torch's function with the weights of a layer, its operands by place or by name."""

    def __init__(self, layer: nn.Module, named: bool) -> None:
        super().__init__()
        self.layer, self.named = layer, named

    def forward(self, x: torch.Tensor, *start: torch.Tensor) -> Any:
        run, weights = getattr(torch, self.layer.mode.lower()), self.layer._flat_weights
        h = start if self.layer.mode == "LSTM" else start[0]
        if self.named:
            rest = {"train": False, "bidirectional": False, "batch_first": True}
            return run(x, hx=h, params=weights, has_biases=True, num_layers=1, dropout=0.0, **rest)
        return run(x, h, weights, True, 1, 0.0, False, False, True)


@pytest.mark.usefixtures("only_on_the_cpu")  # which runs loops
@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU])
def test_functions_are_layers(make: Any, named: bool) -> None:
    layer = _Called(make(3, 4, batch_first=True), named).eval()
    start = [torch.randn(1, 2, 4) for _ in range(2 if make is nn.LSTM else 1)]
    exe = aicf.compile(layer, (torch.randn(2, 7, 3), *start), dims={"x": {1: "length=1..150"}})
    assert "scan" in str(exe.plan)
    close(exe, layer, torch.randn(2, 130, 3), *start)
    assert torch.lstm is torch._C._VariableFunctions.lstm


def test_one_sequence_without_a_batch_and_weights_swapped() -> None:
    layer, other = nn.LSTM(3, 4).eval(), nn.LSTM(3, 4).eval()
    x = torch.randn(140, 3)
    exe = aicf.compile(layer, (x,))
    close(exe, layer, x)
    exe.load_state_dict(other.state_dict())
    close(exe, other, x)


def test_lists_of_weights_made_in_a_call_are_not_kept_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[Any] = []
    export = torch.export.export

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces.append(args)
        return export(*args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)
    layer, x = nn.LSTM(3, 4).eval(), torch.randn(2, 5, 3)
    held = [*layer._flat_weights]
    close(aicf.compile(layer, (x,)), layer, x)
    assert len(traces) == 1
    assert all(a is b for a, b in zip(held, layer._flat_weights, strict=True))


@pytest.mark.filterwarnings("ignore:The tensor attributes")
def test_a_layer_in_training_mode_keeps_its_gradients() -> None:
    torch._dynamo.reset()
    layer = nn.GRU(3, 4, batch_first=True)
    x = torch.randn(2, 5, 3)
    torch.compile(layer, backend="aicf")(x)[0].sum().backward()
    ours = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    layer(x)[0].sum().backward()
    for a, p in zip(ours, layer.parameters(), strict=True):
        torch.testing.assert_close(a, p.grad, rtol=1e-4, atol=1e-5)


class _Summed(nn.Module):
    """A loss that reads every output of a layer."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, states = self.layer(x)
        states = states if isinstance(states, tuple) else (states,)
        weights = torch.arange(y.shape[-1], dtype=y.dtype) - 2.0
        return (y * weights).sum() + sum((s * s).sum() for s in states)


@pytest.mark.parametrize(
    ("make", "length"),
    [
        (lambda: nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), 6),
        (lambda: nn.LSTM(3, 5, batch_first=True, bias=False), 140),
        (lambda: nn.GRU(3, 4, num_layers=2, bidirectional=True, batch_first=True), 7),
        (lambda: nn.RNN(3, 4, batch_first=True), 1),
        (lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True), 5),
        (lambda: nn.LSTM(3, 6, proj_size=4, batch_first=True), 5),
    ],
)
def test_a_train_step_has_the_gradients_of_torch(make: Any, length: int) -> None:
    torch.manual_seed(length)
    model, x = _Summed(make()), torch.randn(2, length, 3)
    step = aicf.compile_train_step(
        model, None, aicf.optim.SGD(1.0), [aicf.TensorSpec(tuple(x.shape))], gradients=True
    )
    exact = _Summed(make()).double()
    exact.load_state_dict(model.state_dict())
    exact(x.double()).backward()
    _loss, *gradients = step.run_entry("gradients", x)
    for (name, parameter), gradient in zip(sorted(exact.named_parameters()), gradients, strict=True):
        found = torch.from_dlpack(gradient).double()
        torch.testing.assert_close(found, parameter.grad, rtol=1e-4, atol=1e-4, msg=name)

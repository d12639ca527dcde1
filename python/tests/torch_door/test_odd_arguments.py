"""Odd arguments and modules: the results of eager, or a coded error with a remedy; torch prints nothing."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import aicf
import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, parametrize


class Of(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


@dataclasses.dataclass
class Scaled:
    x: torch.Tensor
    by: int = 2


class Triangular(nn.Module):
    def forward(self, w: torch.Tensor) -> torch.Tensor:
        return w.triu()


def _hooked() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    model[0].register_forward_hook(lambda _module, _inputs, output: output * 2)
    model[1].register_forward_pre_hook(lambda _module, inputs: (inputs[0] + 1,))
    return model


def _parametrized() -> nn.Module:
    model = nn.Linear(4, 4)
    parametrize.register_parametrization(model, "weight", Triangular())
    return model


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    model[1].weight = model[0].weight
    return model


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count[0] += 1
        return x * self.count


class ByName(nn.Module):
    def forward(self, *, x: torch.Tensor, by: float = 2.0, bias: torch.Tensor | None = None) -> Any:
        return x * by if bias is None else x * by + bias


X = torch.arange(12.0).reshape(3, 4) / 7 - 1
RIGHT: dict[str, tuple[Callable[[], Any], Any]] = {
    "a dict": (lambda: Of(lambda d: {"y": d["a"] + d["b"]["c"], 3: d["a"]}), ({"a": X, "b": {"c": X}},)),
    "a dict of numbers": (lambda: Of(lambda d: d[1] + d[2]), ({1: X, 2: X},)),
    "a dataclass": (lambda: Of(lambda d: d.x * d.by), (Scaled(X),)),
    "None": (lambda: Of(lambda x, m: x if m is None else x + m), (X, None)),
    "a text": (lambda: Of(lambda x, how: getattr(x, how)()), (X, "relu")),
    "a list": (lambda: Of(lambda all_of: torch.stack(all_of).sum(0)), ([X, X],)),
    "an empty list": (lambda: Of(lambda x, more: x + len(more)), (X, [])),
    "transposed": (lambda: Of(lambda x: x.sum(0)), (X.t(),)),
    "strided": (lambda: Of(lambda x: x.sum(0)), (X[::2, 1::2],)),
    "expanded": (lambda: Of(lambda x: x.sum(0)), (X[:1].expand(5, 4),)),
    "no rows": (lambda: Of(lambda x: x.sum(0)), (torch.zeros(0, 3),)),
    "a scalar": (lambda: Of(lambda x: x * 2), (torch.tensor(2.0),)),
    "a number": (lambda: Of(lambda x, a: x * a), (X, 2.5)),
    "a number alone": (lambda: Of(lambda a: torch.ones(3) * a), (2,)),
    "one that needs a gradient": (lambda: nn.Linear(4, 2), (X.clone().requires_grad_(),)),
    "one twice": (lambda: Of(lambda x, y: x + y), (X, X)),
    "a view of another": (lambda: Of(lambda x, y: x + y), (X, X[:])),
    "by name only": (ByName, {"x": X}),
    "by name with None": (ByName, {"x": X, "by": 3.0, "bias": None}),
    "batch norm in training": (lambda: nn.BatchNorm1d(4).train(), (X,)),
    "without statistics": (lambda: nn.BatchNorm1d(4, track_running_stats=False), (X,)),
    "hooks": (_hooked, (X,)),
    "a parametrization": (_parametrized, (X,)),
    "weight norm": (lambda: parametrizations.weight_norm(nn.Linear(4, 4)), (X,)),
    "spectral norm": (lambda: parametrizations.spectral_norm(nn.Linear(4, 4)).eval(), (X,)),
    "tied weights": (_tied, (X,)),
    "a buffer that is written": (Counting, (torch.ones(3),)),
    "half": (lambda: nn.Linear(4, 4).bfloat16(), (X.bfloat16(),)),
    "results that are no tensors": (lambda: Of(lambda x: (x, None, 3, "a", [x, {"k": x + 1}])), (X,)),
    "a function of C": (lambda: torch.relu, (X,)),
    "a method": (lambda: nn.Linear(4, 4).forward, (X,)),
}


@pytest.mark.parametrize("name", RIGHT)
def test_as_in_eager(name: str) -> None:
    make, given = RIGHT[name]
    torch.manual_seed(0)
    model = make()
    exe = aicf.compile(copy.deepcopy(model), given)
    for _ in range(2):
        ours = exe(**given) if isinstance(given, dict) else exe(*given)
        theirs = model(**given) if isinstance(given, dict) else model(*given)
        assert type(ours) is type(theirs)
        pairs = zip(*map(torch.utils._pytree.tree_leaves, (ours, theirs)), strict=True)
        for a, b in pairs:
            torch.testing.assert_close(a, b.detach()) if isinstance(b, torch.Tensor) else None
            assert isinstance(b, torch.Tensor) or a == b


QUANTIZED = torch.quantize_per_tensor(X, 0.1, 0, torch.qint8)
NESTED = torch.nested.nested_tensor([X[0], X[1, :2]])
REFUSED: dict[str, tuple[Callable[[], Any], Any, str]] = {
    "complex": (lambda: Of(lambda x: x * 2), (X.to(torch.complex64),), "real and imaginary"),
    "sparse": (lambda: nn.Linear(4, 2), (X.to_sparse(),), ".to_dense()"),
    "quantized": (lambda: nn.Linear(4, 2), (QUANTIZED,), ".dequantize()"),
    "nested": (lambda: nn.Linear(4, 2), (NESTED,), ".to_padded_tensor"),
    "meta": (lambda: nn.Linear(4, 2), (X.to("meta"),), "load the weights"),
    "weights of meta": (lambda: nn.Linear(4, 2, device="meta"), (X,), "load the weights"),
    "a lazy module": (lambda: nn.LazyLinear(3), (X,), "call the model once"),
    "another shape": (lambda: nn.Linear(5, 2), (X,), "runs in torch with these arguments"),
    "an argument too many": (lambda: nn.Linear(4, 2), (X, X), "runs in torch with these arguments"),
    "another name": (lambda: nn.Linear(4, 2), {"z": X}, "runs in torch with these arguments"),
    "a name that is no text": (lambda: nn.Linear(4, 2), {1: X}, '{"x": x}'),
    "a number": (lambda: nn.Linear(4, 2), 3, "(x,)"),
    "a text": (lambda: nn.Linear(4, 2), "x", "(x,)"),
    "a set": (lambda: nn.Linear(4, 2), {X}, "(x,)"),
    "a spec": (lambda: nn.Linear(4, 2), (aicf.TensorSpec((3, 4)),), "torch.zeros"),
    "a branch on values": (lambda: Of(lambda x: x if x.sum() > 0 else -x), (X,), "torch.where"),
    "an exception": (lambda: Of(lambda x: x / {}["a"]), (X,), "runs in torch with these arguments"),
    "numpy inside": (lambda: Of(lambda x: torch.from_numpy(x.numpy() * 2)), (X,), "other functions"),
    "a module of modules": (lambda: nn.ModuleList([nn.Linear(4, 4)]), (X,), "runs in torch"),
    "a class": (lambda: nn.Linear, (X,), "runs in torch"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_a_remedy_and_nothing_else(name: str, capfd: pytest.CaptureFixture[str]) -> None:
    make, given, remedy = REFUSED[name]
    model = make()
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(model, given)
    assert refused.value.code and remedy in refused.value.remedy
    printed = capfd.readouterr()
    assert printed.out == printed.err == ""

"""Threads that compile torch models at once, beside others that go on with torch."""

from __future__ import annotations

import threading
from collections.abc import Callable

import aicf
import numpy as np
import pytest
from aicf import optim

torch = pytest.importorskip("torch")


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 2


class Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.LSTM(3, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.noted = x  # traced three times, therefore
        return self.layer(x)[0]


def infer() -> None:
    model, x = Recurrent().eval(), torch.randn(5, 2, 3)
    torch.testing.assert_close(aicf.compile(model, (x,))(x), model(x).detach())


def train() -> None:
    model, x, y = torch.nn.Linear(3, 4), torch.randn(6, 3), torch.arange(6) % 4
    specs = [aicf.TensorSpec((6, 3)), aicf.TensorSpec((6,), "i64")]
    step = aicf.compile_train_step(model, torch.nn.functional.cross_entropy, optim.SGD(0.1), specs)
    expected = torch.nn.functional.cross_entropy(model(x), y)
    assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5


def test_threads_compile_at_once_while_another_differentiates() -> None:
    errors: list[BaseException] = []
    finished = threading.Event()

    def noting(function: Callable[[], None]) -> threading.Thread:
        def run() -> None:
            try:
                function()
            except BaseException as error:  # noqa: BLE001
                errors.append(error)

        return threading.Thread(target=run)

    def differentiate() -> None:
        layer = torch.nn.LSTM(3, 4).eval()
        while not finished.is_set():
            x = torch.ones(2, 1, 3, requires_grad=True)
            seen = []
            x.register_hook(seen.append)
            (Doubled.apply(x).sum() + layer(x)[0].sum()).backward()
            assert seen and x.grad is not None and layer.weight_ih_l0.grad is not None

    beside = noting(differentiate)
    threads = [noting(function) for function in (infer, train) * 3]
    beside.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finished.set()
    beside.join()
    assert not errors, errors[0]

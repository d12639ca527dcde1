"""Eigenvalues of symmetric matrices, singular values and the matrix exponential, beside f64."""

from __future__ import annotations

from collections.abc import Callable

import aicf
import pytest
import torch
from torch import nn

Function = Callable[[torch.Tensor], tuple[torch.Tensor, ...]]

pytestmark = pytest.mark.usefixtures("only_on_the_cpu")  # which runs loops


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return self.function(x)


def symmetric(n: int) -> torch.Tensor:
    x = torch.randn(2, n, n, generator=torch.Generator().manual_seed(n))
    return x + x.mT


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 3e-6) -> bool:
    return bool((a.double() - b.double()).norm() <= tolerance * max(1.0, b.double().norm().item()))


@pytest.mark.parametrize("n", [1, 2, 5, 24])
def test_eigenvalues(n: int) -> None:
    x = symmetric(n)
    values, v = aicf.compile(Of(torch.linalg.eigh), (x,))(x)
    assert close(values, torch.linalg.eigvalsh(x.double()))
    assert close((v * values[..., None, :]) @ v.mT, x) and close(v.mT @ v, torch.eye(n).expand(2, n, n))


@pytest.mark.parametrize("shape", [(1, 1), (4, 4), (3, 7), (20, 6)])
@pytest.mark.parametrize("full", [False, True])
def test_singular_values(shape: tuple[int, int], full: bool) -> None:
    x = torch.randn(*shape, generator=torch.Generator().manual_seed(1))
    x[:, -1] = x[:, 0]  # one of them is 0
    u, s, vh = aicf.compile(Of(lambda x: torch.linalg.svd(x, full_matrices=full)), (x,))(x)
    assert close(s, torch.linalg.svdvals(x.double()))
    assert close(u.mT @ u, torch.eye(u.shape[1])) and close(vh @ vh.mT, torch.eye(vh.shape[0]))
    k = min(shape)
    assert close((u[:, :k] * s) @ vh[:k], x)


@pytest.mark.parametrize("scale", [1e-3, 1.0, 8.0])
def test_the_exponential(scale: float) -> None:
    x = scale * (symmetric(5) - 2 * torch.eye(5))
    exact = torch.matrix_exp(x.double())
    assert close(
        aicf.compile(Of(torch.matrix_exp), (x,))(x) / exact.abs().max(), exact / exact.abs().max(), 1e-4
    )


def test_what_follows_from_singular_values() -> None:
    x = torch.randn(6, 4, generator=torch.Generator().manual_seed(2))
    x[:, 3] = x[:, 0] + x[:, 1]

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        norms = torch.linalg.matrix_norm(x, 2), torch.linalg.matrix_norm(x, "nuc")
        return torch.linalg.pinv(x), torch.linalg.matrix_rank(x), *norms, torch.linalg.cond(x[:, :3])

    ours = aicf.compile(Of(function), (x,))(x)
    for a, b in zip(ours, function(x), strict=True):
        assert close(a, b, 2e-5)


def test_gradients_of_singular_values() -> None:
    torch._dynamo.reset()

    def loss(x: torch.Tensor) -> torch.Tensor:
        return (torch.linalg.svdvals(x) * torch.arange(1.0, 4)).sum() + torch.linalg.eigvalsh(x @ x.mT).prod()

    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(3))
    found = []
    for function in (loss, torch.compile(loss, backend="aicf")):
        leaf = x.clone().requires_grad_()
        function(leaf).backward()
        found.append(leaf.grad)
    assert close(found[1], found[0], 1e-4)


def test_large_matrices_are_refused() -> None:
    with pytest.raises(aicf.UserError, match="at most 128"):
        aicf.compile(Of(torch.linalg.svdvals), (torch.zeros(200, 200),))

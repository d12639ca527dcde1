"""torch.cond, while_loop, scan, map and associative_scan, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aicf
import pytest
import torch
from torch import nn
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as torch_map

pytestmark = pytest.mark.usefixtures("only_on_the_cpu")  # which runs loops


class Cell(nn.Module):
    def __init__(self, reverse: bool = False) -> None:
        super().__init__()
        self.linear, self.reverse = nn.Linear(4, 4), reverse

    def forward(self, x: torch.Tensor, h: torch.Tensor) -> Any:
        def step(h: torch.Tensor, x: torch.Tensor) -> Any:
            h = torch.tanh(self.linear(h) + x)
            return h, h * 2

        return scan(step, h, x, dim=1, reverse=self.reverse)


class Doubling(nn.Module):
    """Doubles until the sum is above a limit or so many steps are made."""

    def forward(self, x: torch.Tensor, limit: torch.Tensor, steps: torch.Tensor) -> Any:
        def goes_on(i: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
            return (x.sum() < limit) & (i < steps)

        return while_loop(goes_on, lambda i, x: (i + 1, x * 2), (torch.zeros_like(steps), x))


class Mapped(nn.Module):
    def forward(self, x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch_map(lambda row, w: (row @ w).relu(), x, w)


class Prefixes(nn.Module):
    """h[t] = a[t] h[t - 1] + b[t]."""

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> Any:
        def combine(first: Any, second: Any) -> Any:
            return first[0] * second[0], first[1] * second[0] + second[1]

        return associative_scan(combine, (a, b), dim=1, combine_mode="generic")


class Chosen(nn.Module):
    """A branch reads a row that only legal indices have, so one branch alone may run."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)

    def forward(self, x: torch.Tensor, at: torch.Tensor) -> torch.Tensor:
        return torch.cond(at < 5, lambda x, at: self.table(at) + x, lambda x, at: x * 1.0, (x, at))


def check(model: nn.Module, args: tuple[Any, ...], *others: tuple[Any, ...], dims: Any = None) -> Any:
    exe = aicf.compile(model, args, dims=dims)
    for given in (args, *others):
        with torch.no_grad():
            expected = model(*given)
        torch.testing.assert_close(exe(*given), expected, rtol=1e-5, atol=1e-6)
    return exe


def steps_in(exe: Any, kernel: str) -> bool:
    return kernel in str(exe.plan)


@pytest.mark.parametrize("reverse", [False, True])
def test_scans_of_any_length(reverse: bool) -> None:
    def inputs(batch: int, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.randn(batch, length, 4), torch.randn(batch, 4)

    assert not steps_in(check(Cell(reverse), inputs(2, 5)), "scan")
    assert steps_in(check(Cell(reverse), inputs(2, 130)), "scan")
    dims = {"x": {0: "batch=1..4", 1: "length=1..50"}, "h": {0: "batch"}}
    check(Cell(reverse), inputs(2, 5), inputs(1, 1), inputs(4, 50), dims=dims)


def test_a_loop_that_data_ends() -> None:
    def inputs(limit: float, steps: int) -> tuple[torch.Tensor, ...]:
        return torch.rand(2, 3) + 0.1, torch.tensor(limit), torch.tensor(steps)

    exe = check(Doubling(), inputs(100, 20), inputs(1000, 3), inputs(0, 3), inputs(5, 0))
    assert steps_in(exe, "while_loop")


@pytest.mark.parametrize("rows", [3, 130])
def test_maps(rows: int) -> None:
    check(Mapped(), (torch.randn(rows, 2, 4), torch.randn(4, 5)))


def test_associative_scans() -> None:
    for length in (1, 4, 133):
        check(Prefixes(), (torch.rand(2, length, 3), torch.randn(2, length, 3)))


def test_only_the_chosen_branch_runs() -> None:
    x = torch.randn(4)
    exe = check(Chosen(), (x, torch.tensor(2)), (x, torch.tensor(9)))
    assert steps_in(exe, "if_else")


def test_loops_in_loops_and_branches_in_loops() -> None:
    class Nested(nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            def inner(i: torch.Tensor, x: torch.Tensor) -> Any:
                odd = torch.cond(i % 2 == 1, lambda x: x + 1, lambda x: x * 0.5, (x,))
                return i + 1, odd

            def outer(i: torch.Tensor, x: torch.Tensor) -> Any:
                return i + 1, while_loop(lambda j, _: j < i, inner, (torch.zeros_like(i), x))[1]

            return while_loop(lambda i, _: i < n, outer, (torch.zeros_like(n), x))

    check(Nested(), (torch.randn(3), torch.tensor(4)), (torch.randn(3), torch.tensor(0)))


def test_torch_compile_takes_loops() -> None:
    torch._dynamo.reset()
    model = Doubling()
    x, limit, steps = torch.rand(2, 3), torch.tensor(50.0), torch.tensor(9)
    with torch.no_grad():
        torch.testing.assert_close(
            torch.compile(model, backend="aicf", fullgraph=True)(x, limit, steps), model(x, limit, steps)
        )


def unsupported_in(body: Callable[[torch.Tensor], torch.Tensor]) -> nn.Module:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return torch_map(body, x).relu()

    return Model()


def test_what_is_unsupported_inside_a_body_is_named() -> None:
    model, x = unsupported_in(torch.special.airy_ai), torch.randn(130, 3)
    with pytest.raises(aicf.UserError, match="airy_ai"):
        aicf.compile(model, (x,))
    report = aicf.support(model, (x,))
    assert len(report.unsupported) == 1 and "airy_ai" in str(report)
    inside = aicf.support(unsupported_in(lambda row: torch.special.airy_ai(row) + row), (x,))
    assert [row.op for row in inside.unsupported] == ["aten.special_airy_ai.default"]
    with pytest.raises(aicf.UserError, match="random numbers"):
        aicf.compile(unsupported_in(lambda row: row + torch.rand_like(row)), (x,))


def test_a_body_with_an_unsupported_op_stays_in_eager() -> None:
    torch._dynamo.reset()
    model, x = unsupported_in(lambda row: torch.special.airy_ai(row) + row), torch.randn(130, 3)
    with torch.no_grad():
        compiled = torch.compile(model, backend="aicf", options={"fallback": "eager"})
        torch.testing.assert_close(compiled(x), model(x))

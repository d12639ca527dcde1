"""`self.buffer = ...` in any module is a state of the compiled model, as in torch."""

from __future__ import annotations

import copy

import aicf
import numpy as np
import pytest
from aicf import optim

torch = pytest.importorskip("torch")


class Stream(torch.nn.Module):
    """Gives what it held, what it holds, and a part of that."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(2, 4))
        self.layer = torch.nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        before = self.h
        self.h = torch.tanh(self.layer(torch.cat([x, self.h], 1)))
        return before, self.h, self.h[0]


class Exchange(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.ones(4))
        self.register_buffer("b", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a, self.b = self.b, self.a
        return x + self.a


class Moving(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
        return x - self.mean


class Growing(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(0, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = torch.cat([self.seen, x])
        return self.seen.sum()


class Plain(torch.nn.Module):
    """Holds a tensor that is no buffer, which it reads, or only leaves there."""

    def __init__(self, reads: bool, in_list: bool) -> None:
        super().__init__()
        self.reads, self.in_list = reads, in_list
        self.held = [torch.zeros(2, 4)] if in_list else torch.zeros(2, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.in_list:
            self.held[0] = x + self.held[0] if self.reads else x * 2
            return self.held[0] + 1
        self.held = x + self.held if self.reads else x * 2
        return self.held + 1


@pytest.mark.parametrize("in_list", [False, True])
def test_other_tensors_that_a_call_leaves_for_the_next_are_refused(in_list: bool) -> None:
    x = torch.randn(2, 4)
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(torch.nn.Sequential(Plain(True, in_list)), (x,))
    assert refused.value.code == "AICF-U0301" and refused.value.value == "0.held" + "[0]" * in_list
    torch.testing.assert_close(aicf.compile(Plain(False, in_list), (x,))(x), x * 2 + 1)


@pytest.mark.parametrize(("kind", "depth"), [(Stream, 0), (Stream, 2), (Exchange, 2)])
def test_each_call_finds_what_the_last_assigned(kind: type, depth: int) -> None:
    torch.manual_seed(0)
    model = kind()
    for _ in range(depth):
        model = torch.nn.Sequential(model)
    exe = aicf.compile(copy.deepcopy(model), (torch.randn(2, 4),))
    for _ in range(3):
        x = torch.randn(2, 4)
        torch.testing.assert_close(exe(x), model(x))
    held = {name: torch.from_dlpack(value) for name, value in exe.state_dict().items()}
    torch.testing.assert_close(held, {name: dict(model.named_buffers())[name] for name in held})


def test_a_step_moves_what_a_part_assigns() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Sequential(Moving()))
    specs = [aicf.TensorSpec((6, 4)), aicf.TensorSpec((6,), "i64")]
    step = aicf.compile_train_step(model, torch.nn.CrossEntropyLoss(), optim.SGD(0.1), specs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(4):
        x, y = torch.randn(6, 4), torch.randint(0, 3, (6,))
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - loss.item()) < 1e-5
    np.testing.assert_allclose(np.asarray(step.state_dict()["1.0.mean"]), model[1][0].mean, atol=1e-6)


@pytest.mark.parametrize("depth", [0, 1])
def test_a_buffer_keeps_its_shape(depth: int) -> None:
    model = torch.nn.Sequential(Growing()) if depth else Growing()
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(model, (torch.randn(2, 4),))
    assert refused.value.code == "AICF-U0301" and refused.value.value == "0.seen"[2 - 2 * depth :]


class Table(torch.nn.Module):
    """Its buffer is a table for one length, made again for another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.ones(2, 4), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(self.table) != len(x):
            self.table = torch.arange(x.numel()).reshape(x.shape).float()
        return x + self.table


def test_a_table_for_another_length_is_made_in_each_call() -> None:
    x = torch.randn(3, 4)
    exe = aicf.compile(torch.nn.Sequential(Table()), (x,))
    for _ in range(2):
        torch.testing.assert_close(exe(x), x + torch.arange(12.0).reshape(3, 4))


class Data(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.data = 0.9 * self.mean + 0.1 * x.mean(0)
        return x - self.mean


@pytest.mark.parametrize("depth", [0, 1])
def test_what_is_assigned_to_data_is_written(depth: int) -> None:
    model = torch.nn.Sequential(Data()) if depth else Data()
    exe = aicf.compile(copy.deepcopy(model), (torch.randn(3, 4),))
    for _ in range(3):
        x = torch.randn(3, 4)
        torch.testing.assert_close(exe(x), model(x))
    assert "data" not in vars(torch.Tensor)


class Positions(torch.nn.Module):
    """Gives its table the dtype, or the length, of what comes."""

    def __init__(self, how: str, is_buffer: bool) -> None:
        super().__init__()
        self.how = how
        table = torch.randn(8, 4, dtype=torch.float64)
        if is_buffer:
            self.register_buffer("table", table)
        else:
            self.table = table

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        shift = self.table.sum() if self.how == "read before" else 0.0
        if self.how == "type_as":
            self.table = self.table.type_as(x)
        elif self.how == "shorter":
            self.table = self.table[: len(x)]
        else:
            self.table = self.table.to(x.dtype)
        if self.how == "scaled":
            self.table = self.table * 2
        return x + self.table[: len(x)].to(x.dtype) + shift


@pytest.mark.parametrize("is_buffer", [False, True])
@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("how", ["to", "type_as", "shorter"])
def test_a_tensor_may_take_the_dtype_or_length_it_is_read_with(how: str, depth: int, is_buffer: bool) -> None:
    model = Positions(how, is_buffer)
    model = torch.nn.Sequential(model) if depth else model
    x = torch.randn(3, 4)
    exe = aicf.compile(model, (x,))
    held = (model[0] if depth else model).table
    assert (held.dtype, held.shape) == (torch.float64, (8, 4))
    for _ in range(3):
        torch.testing.assert_close(exe(x), model(x))


@pytest.mark.parametrize("is_buffer", [False, True])
@pytest.mark.parametrize("how", ["scaled", "read before"])
def test_a_tensor_of_another_dtype_that_changes_the_next_call_is_refused(how: str, is_buffer: bool) -> None:
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(torch.nn.Sequential(Positions(how, is_buffer)), (torch.randn(3, 4),))
    assert refused.value.code == "AICF-U0301" and refused.value.value == "0.table"


def test_a_part_that_a_function_names_moves_its_buffers() -> None:
    model = torch.nn.BatchNorm1d(4)
    reference = copy.deepcopy(model)
    exe = aicf.compile(lambda x: model(x) * 2, (torch.randn(8, 4),))
    for _ in range(2):
        x = torch.randn(8, 4)
        torch.testing.assert_close(exe(x), reference(x) * 2)
    held = {name: torch.from_dlpack(value) for name, value in exe.state_dict().items()}
    torch.testing.assert_close(held["model.running_mean"], reference.running_mean)


def test_a_buffer_that_is_written_leaves_the_derivatives_of_ops_as_they_are() -> None:
    """torch's parts of sinc have the derivative NaN at 0."""

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = torch.nn.Parameter(torch.tensor([-0.5, 0.0, 0.3]))
            self.register_buffer("calls", torch.zeros((), dtype=torch.int64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            return torch.sinc(self.w + x)

    net, x, y = Net(), torch.full((3,), 0.5), torch.zeros(3)
    step = aicf.compile_train_step(net, torch.nn.MSELoss(), aicf.optim.SGD(0.1), [x, y], gradients=True)
    gradients = step.run_entry("gradients", x, y)
    torch.nn.functional.mse_loss(net(x), y).backward()
    found = [torch.from_dlpack(g) for g in gradients if tuple(g.shape) == (3,)]
    torch.testing.assert_close(found[0], net.w.grad)

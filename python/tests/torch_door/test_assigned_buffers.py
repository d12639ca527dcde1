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


class Notes:
    """An object of the user's that a module holds."""

    def __init__(self) -> None:
        self.count, self.seen = 0, None


class Lazy(torch.nn.Module):
    """Makes what it needs in its first call."""

    def __init__(self, forward: object) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 4)
        self.held = self.length = None
        self.list, self.dict, self.notes = [], {}, Notes()
        self.act = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act(self, x)


def _table(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.length is None or self.length < len(x):
        self.length = len(x)
        with torch.no_grad():
            self.held = torch.arange(4.0 * len(x)).reshape(-1, 4)
    return x + self.held[: len(x)]


def _registered_table(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if "table" not in self._buffers:
        self.register_buffer("table", torch.arange(4.0) * 2)
    return x + self.table


def _dict_of_tables(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if len(x) not in self.dict:
        self.dict[len(x)] = torch.ones(len(x), 1) * 3
    return x * self.dict[len(x)]


def _transposed(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = self.layer.weight.t().contiguous()
    return x @ self.held


def _made_part(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "part"):
        self.part = torch.nn.ReLU()
    return self.part(x)


def _kept_outputs(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.list.clear()
    self.list.append(self.layer(x))
    self.notes.seen = x * 2
    return self.list[0] + 1


def _other_mode(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    return self.train()(x) if not self.training else x + 1


def _recurrent(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.held = torch.tanh(self.layer(x) + (0 if self.held is None else self.held))
    return self.held


def _registered_state(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if "state" not in self._buffers:
        self.register_buffer("state", torch.zeros_like(x))
    self.state.mul_(0.5).add_(x)
    return self.state + 0


def _first_mean(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = x.mean()
    return x - self.held


def _same_noise(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = torch.rand(4)
    return x + self.held


def _history(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.list.append(x)
    return torch.stack(self.list).sum(0)


def _sum_in_object(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.notes.seen = x if self.notes.seen is None else self.notes.seen + x
    return self.notes.seen * 1


def _counted(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.notes.count += 1
    return x * self.notes.count


def _other_first_call(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    first, self.length = self.length is None, 1
    return x if first else x * 2


def _made_weights(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if not hasattr(self, "part"):
        self.part = torch.nn.Linear(4, 4)
    return self.part(x)


def _held_by(model: torch.nn.Module) -> list[object]:
    """Everything in a Lazy that a call may replace, as objects that stay alive."""
    parts = [*model.modules()]
    names = [(*vars(p), *p._buffers, *p._parameters, *p._modules) for p in parts]
    lazy = parts[-2]
    return [
        *parts,
        lazy.held,
        lazy.length,
        lazy.training,
        [*lazy.list],
        {**lazy.dict},
        {**vars(lazy.notes)},
        names,
    ]


_SAME_AGAIN = [
    _table,
    _registered_table,
    _dict_of_tables,
    _transposed,
    _made_part,
    _kept_outputs,
    _other_mode,
]
_OTHER_AGAIN = {
    _recurrent: "held",
    _registered_state: "state",
    _first_mean: "held",
    _same_noise: "held",
    _history: "list[1]",
    _sum_in_object: "notes.seen",
    _counted: "notes.count",
    _other_first_call: "length",
    _made_weights: "part",
}


@pytest.mark.parametrize("forward", _SAME_AGAIN)
@pytest.mark.parametrize("kind", ["module", "part", "function"])
def test_what_a_call_keeps_for_the_next_may_save_work(kind: str, forward: object) -> None:
    model = Lazy(forward).eval()
    whole = torch.nn.Sequential(model) if kind == "part" else model
    before, x = _held_by(whole), torch.randn(3, 4)
    exe = aicf.compile((lambda x: whole(x)) if kind == "function" else whole, (x,))
    assert all(a is b or a == b for a, b in zip(_held_by(whole), before, strict=True))
    for x in torch.randn(3, 3, 4):
        torch.testing.assert_close(exe(x), whole(x))


@pytest.mark.parametrize("forward", _OTHER_AGAIN)
@pytest.mark.parametrize("kind", ["module", "part", "function"])
def test_what_a_call_keeps_for_the_next_may_not_change_it(kind: str, forward: object) -> None:
    model = Lazy(forward).eval()
    whole = torch.nn.Sequential(model) if kind == "part" else model
    before = _held_by(whole)
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile((lambda x: whole(x)) if kind == "function" else whole, (torch.randn(3, 4),))
    name = {"module": "", "part": "0.", "function": "whole."}[kind] + _OTHER_AGAIN[forward]
    assert refused.value.code == "AICF-U0301" and name in refused.value.value.split(", ")
    assert refused.value.remedy
    assert all(a is b or a == b for a, b in zip(_held_by(whole), before, strict=True))


@pytest.mark.parametrize("forward", [_first_mean, _same_noise, _other_first_call, _made_weights])
def test_what_only_the_first_call_sets_is_held_after_it(forward: object) -> None:
    model, x = Lazy(forward).eval(), torch.randn(3, 4)
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(model, (x,))
    assert "call the model once" in refused.value.remedy
    model(torch.randn(3, 4))
    exe = aicf.compile(model, (x,))
    for x in torch.randn(2, 3, 4):
        torch.testing.assert_close(exe(x), model(x).detach())


def test_a_model_that_is_refused_is_as_before() -> None:
    def fails(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        self.held, self.length, self.layer, self.dict[0] = x * 2, 3, None, x
        self.register_buffer("state", x * 3)
        return x if x.sum() > 0 else -x

    model = torch.nn.Sequential(Lazy(fails))
    before = _held_by(model)
    with pytest.raises(aicf.UserError, match="values of a tensor"):
        aicf.compile(model, (torch.randn(3, 4),))
    assert all(a is b or a == b for a, b in zip(_held_by(model), before, strict=True))


def test_a_part_that_a_function_names_moves_its_buffers() -> None:
    model = torch.nn.BatchNorm1d(4)
    reference = copy.deepcopy(model)
    exe = aicf.compile(lambda x: model(x) * 2, (torch.randn(8, 4),))
    for _ in range(2):
        x = torch.randn(8, 4)
        torch.testing.assert_close(exe(x), reference(x) * 2)
    held = {name: torch.from_dlpack(value) for name, value in exe.state_dict().items()}
    torch.testing.assert_close(held["model.running_mean"], reference.running_mean)


@pytest.mark.parametrize("trace", [1, 2, 3, 4])
def test_a_compile_that_is_interrupted_leaves_model_and_torch_as_they_were(trace: int) -> None:
    """In its first call, or in a later trace of two calls."""
    calls = []

    def interrupted(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        calls.append(self)
        self.held = x * 2
        self.register_buffer("state", x * 3)
        if len(calls) == trace:
            raise KeyboardInterrupt
        return self.layer(x)

    model = torch.nn.Sequential(Lazy(interrupted))
    before = _held_by(model)
    torch_before = _patched()
    with pytest.raises(KeyboardInterrupt):
        aicf.compile(model, (torch.randn(3, 4),))
    assert len(calls) == trace
    assert all(a is b or a == b for a, b in zip(_held_by(model), before, strict=True))
    assert _patched() == torch_before
    x = torch.randn(3, 4)
    torch.testing.assert_close(aicf.compile(model, (x,))(x), model(x))


def _patched() -> list[object]:
    """What a trace changes of torch."""
    return [
        torch.Tensor.__dict__.get("data"),
        torch.Tensor.register_hook,
        torch.autograd.Function.__dict__["apply"],
        torch.nn.functional.gaussian_nll_loss,
        torch.distributions.Distribution._validate_args,
        "lstm" in vars(torch._VF),
        torch._C._get_mkldnn_enabled(),
        torch.is_grad_enabled(),
        dict(torch.nn.modules.module._global_buffer_registration_hooks),
        torch.utils._python_dispatch._get_current_dispatch_mode(),
    ]

"""What a module keeps for its next call may save work, and is refused where it changes the result."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable

import aicf
import numpy as np
import pytest

torch = pytest.importorskip("torch")


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
        self.register_buffer("sums", torch.zeros(4))
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


def _written_table(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = torch.zeros(3, 4)
        self.held[1:].add_(torch.arange(4.0))
    return x + self.held


def _view_of_a_state(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.sums.add_(x.sum(0))
    if self.held is None:
        self.held = self.sums[1:]
    return x[:, 1:] + self.held


def _table_of_weights(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.sums.mul_(0.5).add_(x.mean(0))
    if self.held is None:
        with torch.no_grad():
            self.held = self.layer.weight.exp().cumsum(0)
    return x @ self.held + self.sums


def _noise(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.notes.seen = torch.rand(4)
    return x + 0 * self.notes.seen


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


def _copy_of_a_state(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = self.sums.clone()
    self.sums.add_(x.sum(0))
    return x + self.held


def _late_copy_of_a_state(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    self.sums.add_(x.sum(0))
    if self.held is None:
        self.held = self.sums * 1.0
    return x + self.held


def _written_later(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = torch.zeros(3, 4)
    result = x + self.held
    self.held.view(-1).add_(x.flatten())
    return result


def _written_in_a_view(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = torch.zeros(3, 4)
    row = self.held[0]
    row.copy_(x[0])
    return x + self.held.mean(0)


def _written_without_gradients(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.held is None:
        self.held = torch.zeros(4)
    result = x + self.held
    with torch.no_grad():
        self.held.add_(x[0])
    return result


def _more_of_a_state(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    if self.length is None:
        self.sums.add_(1.0)
    self.length = 1
    return x + self.sums


def _another_draw(self: Lazy, x: torch.Tensor) -> torch.Tensor:
    noise = torch.rand(4) if self.length is None else torch.rand(4) + 0 * torch.rand(4)
    self.length = 1
    return x + noise.sort().values


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
    _written_table,
    _view_of_a_state,
    _table_of_weights,
    _noise,
    _other_mode,
]


_OTHER_AGAIN = {
    _recurrent: "held",
    _registered_state: "state",
    _first_mean: "held",
    _same_noise: "held",
    _copy_of_a_state: "held",
    _late_copy_of_a_state: "held",
    _written_later: "held",
    _written_in_a_view: "held",
    _written_without_gradients: "held",
    _more_of_a_state: "length",
    _another_draw: "length",
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


@pytest.mark.parametrize(
    ("forward", "calls"), [(None, 1), *((f, 2) for f in (_table, _kept_outputs, _view_of_a_state, _history))]
)
def test_a_model_is_exported_once(monkeypatch: pytest.MonkeyPatch, forward: object, calls: int) -> None:
    """Where its first call leaves something, it is called once more in the same trace."""
    traces, called, export = [], [], torch.export.export
    monkeypatch.setattr(torch.export, "export", lambda *a, **k: traces.append(0) or export(*a, **k))

    def counted(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        called.append(self)
        return x * 2 if forward is None else forward(self, x)

    with contextlib.suppress(aicf.UserError):
        aicf.compile(Lazy(counted).eval(), (torch.randn(3, 4),))
    assert (len(traces), len(called)) == (1, calls)


def test_a_range_that_only_the_second_call_leaves_is_told_as_what_is_kept() -> None:
    def one_length(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        if self.length is not None:
            x = x + torch.ones(7, 4)
        self.length = 1
        return x * 2

    def seven(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        self.length = 1
        return x + torch.ones(7, 4)

    for forward, code in ((one_length, "AICF-U0301"), (seven, "AICF-U0203")):
        with pytest.raises(aicf.UserError) as refused:
            aicf.compile(Lazy(forward), (torch.randn(7, 4),), dims={"x": {0: "n=1..9"}})
        assert refused.value.code == code


def test_a_call_that_keeps_what_it_made_trains() -> None:
    def forward(self: Lazy, x: torch.Tensor) -> torch.Tensor:
        self.notes.seen = x * 2
        with torch.no_grad():
            self.sums.mul_(0.5).add_(x.mean(0))
        return self.layer(x) + self.sums

    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), Lazy(forward))
    specs = [aicf.TensorSpec((6, 4)), aicf.TensorSpec((6,), "i64")]
    step = aicf.compile_train_step(model, torch.nn.CrossEntropyLoss(), aicf.optim.SGD(0.1), specs)
    x, y = torch.randn(6, 4), torch.randint(0, 4, (6,))
    reference = copy.deepcopy(model)
    expected = torch.nn.functional.cross_entropy(reference(x), y)
    assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5
    held = {name: step.state_dict()[name] for name in ("1.running_mean", "2.sums")}
    for name, value in held.items():
        np.testing.assert_allclose(np.asarray(value), dict(reference.named_buffers())[name], atol=1e-5)


def _pruned(layer: torch.nn.Module) -> torch.nn.Module:
    from torch.nn.utils import prune

    return prune.l1_unstructured(layer, "weight", 0.5)


@pytest.mark.filterwarnings("ignore:.*weight_norm:FutureWarning")
@pytest.mark.parametrize("wrap", [torch.nn.utils.weight_norm, _pruned])
def test_a_weight_that_each_call_makes_trains(wrap: Callable) -> None:
    """Under a loss that gives an argument on as it is, which a trace calls by that name from then on."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(wrap(torch.nn.Linear(4, 3)))
    x, y = torch.randn(5, 4), torch.randn(5, 3)
    specs = [aicf.TensorSpec((5, 4)), aicf.TensorSpec((5, 3))]
    step = aicf.compile_train_step(model, torch.nn.MSELoss(), aicf.optim.SGD(0.1), specs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5
    for name, value in model.named_parameters():
        np.testing.assert_allclose(np.asarray(step.state_dict()[name]), value.detach(), atol=1e-5)


@pytest.mark.parametrize("trace", [1, 2])
def test_a_compile_that_is_interrupted_leaves_model_and_torch_as_they_were(trace: int) -> None:
    """In its first call, or in the second of the same trace."""
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

"""aicf.compile of functions of torch tensors and of methods, and calls from inside of torch's tracing."""

from __future__ import annotations

import functools
import math
from typing import Any

import aicf
import pytest
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def encode(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.linear(x) * scale


def difference(x: torch.Tensor, *, y: torch.Tensor) -> torch.Tensor:
    return x - y


def equal(actual: Any, expected: Any) -> None:
    assert isinstance(actual, torch.Tensor)
    torch.testing.assert_close(actual, expected.detach())


def test_functions() -> None:
    x, y = torch.randn(3), torch.randn(3)
    equal(aicf.compile(lambda x: torch.relu(x) + 1, x)(y), torch.relu(y) + 1)
    equal(aicf.compile(torch.add, (x, y))(x, y), x + y)
    equal(aicf.compile(functools.partial(torch.add, alpha=2), (x, y))(x, y), x + 2 * y)
    equal(aicf.compile(lambda pair: pair["a"] * 2, ({"a": x},))({"a": y}), y * 2)
    exe = aicf.compile(difference, {"x": x, "y": y}, dims={"x": {0: "n=1..9"}, "y": {0: "n"}})
    equal(exe(y[:2], y=x[:2]), y[:2] - x[:2])
    assert aicf.support(lambda x: x * 2, (x,))
    assert "airy_ai" in str(aicf.support(lambda x: torch.special.airy_ai(x), (x,)))


def test_methods_have_the_weights_of_their_module() -> None:
    first, second = Encoder(), Encoder()
    exe = aicf.compile(first.encode, (torch.randn(2, 4), 0.5), dims={"x": {0: "batch=1..8"}})
    x = torch.randn(5, 4)
    equal(exe(x, 0.5), first.encode(x, 0.5))
    assert set(exe.weights()) == {"linear.weight", "linear.bias"}
    exe.load_state_dict(second.state_dict())
    equal(exe(x, 0.5), second.encode(x, 0.5))


def test_functions_hold_what_they_use_of_a_module() -> None:
    model = nn.ModuleDict({"used": nn.Linear(4, 3), "other": nn.Linear(64, 64)})
    exe = aicf.compile(lambda x: model["used"](x) * 2, (torch.randn(2, 4),))
    assert set(exe.weights()) == {"model.used.weight", "model.used.bias"}
    x, second = torch.randn(2, 4), nn.ModuleDict({"used": nn.Linear(4, 3), "other": nn.Linear(64, 64)})
    exe.load_state_dict({f"model.{name}": value for name, value in second.state_dict().items()})
    equal(exe(x), second["used"](x) * 2)


def test_arguments_that_are_no_tensors_are_fixed() -> None:
    exe = aicf.compile(Encoder().encode, (torch.randn(2, 4), 0.5))
    with pytest.raises(aicf.UserError, match="AICF-U0407") as error:
        exe(torch.randn(2, 4), 2.0)
    assert error.value.expected == "0.5" and error.value.actual == "2.0"


def test_calls_inside_of_torch_compile() -> None:
    torch._dynamo.reset()
    layer = nn.Linear(4, 3)
    exe = aicf.compile(layer, (torch.randn(2, 4),))
    x = torch.randn(2, 4)
    for backend in ("eager", "aicf"):
        equal(torch.compile(lambda x: exe(x + 1) * 2, backend=backend)(x), layer(x + 1) * 2)


def test_stand_ins_of_a_trace_are_refused() -> None:
    exe = aicf.compile(nn.Linear(4, 3), (torch.randn(2, 4),))
    with torch._subclasses.FakeTensorMode():
        fake, layer = torch.randn(2, 4), nn.Linear(4, 3)
    for call in (lambda: exe(fake), lambda: aicf.compile(layer, (fake,))):
        with pytest.raises(aicf.UserError, match="AICF-U0402"):
            call()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8])
def test_division_of_the_outermost_integers(dtype: torch.dtype) -> None:
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.min, limits.min + 1, limits.max - 1, limits.max, 7, 0], dtype=dtype)

    def quotients(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.new_full((), 5) if dtype == torch.uint8 else x.new_full((), -5)
        return x // 3, x // y, torch.div(x, y, rounding_mode="trunc"), x % 3, x % y

    for actual, expected in zip(aicf.compile(quotients, (x,))(x), quotients(x), strict=True):
        equal(actual, expected)


def test_distributions_are_not_asked_about_their_values() -> None:
    from torch import distributions

    def function(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        normal = distributions.Normal(x, x.exp())
        mixture = distributions.MixtureSameFamily(distributions.Categorical(logits=x), normal)
        gaussian = torch.nn.functional.gaussian_nll_loss(x, x.cos(), x - 0.5, full=True, eps=1e-2)
        return normal.log_prob(x * 2), distributions.Gamma(x, x).entropy(), mixture.log_prob(x[0]), gaussian

    x = torch.rand(5) + 0.51
    before = distributions.Distribution._validate_args
    for actual, expected in zip(aicf.compile(function, (x,))(x), function(x), strict=True):
        equal(actual, expected)
    assert distributions.Distribution._validate_args == before
    with pytest.raises(ValueError, match="negative"):
        torch.nn.functional.gaussian_nll_loss(x, x, -x)


class Result:
    """With slots: what its attributes are is known to it alone."""

    __slots__ = ("value",)

    def __init__(self, value: torch.Tensor) -> None:
        self.value = value


def _data_written(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.data.add_(1)
    return y


def _ctc(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.ctc_loss(x[:, None].log_softmax(-1), torch.ones(1, 2).long(), (4,), (2,))


def _packed() -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(3, 3)), {nn.Linear})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("make", "message", "remedy"),
    [
        (lambda: Result, "a class whose tensors", "register_dataclass"),
        (lambda: _data_written, ".data of a tensor", "write to the tensor itself"),
        (lambda: _ctc, "CTC loss", "torch.compile"),
        (lambda: nn.LazyLinear(3), "no weights yet", "call the model once"),
        (_packed, "packed weights", "as it was before"),
    ],
)
def test_what_torch_does_not_export_is_refused_in_our_words(make: Any, message: str, remedy: str) -> None:
    with pytest.raises(aicf.UserError, match=message) as refused:
        aicf.compile(make(), (torch.randn(4, 3),))
    assert refused.value.code == "AICF-U0301" and remedy in refused.value.remedy and refused.value.actual


def _finite_halves(x: torch.Tensor) -> torch.Tensor:
    """As layers of transformers' BART keep f16 in range."""
    x = x @ x.T
    if x.dtype == torch.float16 and not torch.isfinite(x).all():
        x = x.clamp(-60000, 60000)
    return x * 2 + 1


def _chosen_rows(x: torch.Tensor) -> torch.Tensor:
    return x[x.sum(1) > 0] * 2


def _as_often(x: torch.Tensor) -> torch.Tensor:
    for _ in range(int(x.sum().abs().item()) % 3):
        x = x * 2
    return x + 1


@pytest.mark.parametrize("function", [_finite_halves, _chosen_rows, _as_often])
def test_what_data_decide_runs_as_the_remedy_says(function: Any) -> None:
    x = torch.randn(6, 8, dtype=torch.float16 if function is _finite_halves else torch.float32)
    with pytest.raises(aicf.UserError, match="depend") as refused:
        aicf.compile(function, (x,))
    assert 'torch.compile(model, backend="aicf")' in refused.value.remedy
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aicf")
    for given in (x, -x, 200 * x):  # the last one leaves f16 where rows are multiplied by themselves
        torch.testing.assert_close(compiled(given), function(given))


def test_a_tensor_that_is_no_buffer_is_not_written() -> None:
    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.total = torch.zeros(3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.total.add_(x) * 2

    with pytest.raises(aicf.UserError, match="no buffer") as refused:
        aicf.compile(nn.Sequential(Sum()), (torch.randn(3),))
    assert refused.value.value == "0.total" and "register_buffer" in refused.value.remedy


class Sample(dict):
    """A class of the kind that libraries register with torch without names of its parts."""


torch.utils._pytree.register_pytree_node(
    Sample,
    lambda sample: (list(sample.values()), list(sample)),
    lambda parts, names: Sample(zip(names, parts, strict=True)),
)


def test_results_of_classes_without_names() -> None:
    x = torch.randn(3)

    def function(x: torch.Tensor) -> Sample:
        return Sample(a=x + 1, b=[x])

    exe = aicf.compile(function, (x,))
    assert [info.name for info in exe.outputs] == ["a", "b.0"]
    result = exe(x)
    assert type(result) is Sample and [*result] == ["a", "b"]
    equal(result["a"], x + 1)
    with pytest.raises(aicf.UserError, match="without names") as refused:
        aicf.compile(lambda given: given["x"] * 2, (Sample(x=x),))
    assert "dict" in refused.value.remedy


def test_what_is_only_checked_is_not_computed() -> None:
    """Libraries check values of tensors by sums and items that no result reads."""

    def function(x: torch.Tensor) -> torch.Tensor:
        torch._check_tensor_all(x.shape[0] == (x < 100).sum(), lambda: "a value is too large")
        return x + torch.ops.aten._is_all_true(x < 100)

    x = torch.randn(3)
    exe = aicf.compile(function, (x,))
    equal(exe(x), x + 1)
    assert "reduce_sum" not in exe.explain()


def test_a_refusal_prints_no_graph(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(aicf.UserError, match="values of a tensor"):
        aicf.compile(lambda x: x + 1 if x.sum() > 0 else x, (torch.ones(3),))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_a_number_scattered_to_one_place(rank: int) -> None:
    """The index has one element, whatever its rank."""
    x = torch.arange(12.0).reshape((3, 4, 1)[:rank] if rank > 1 else (12,))
    index = torch.full((1,) * rank, 2)
    for write in (
        lambda x, index: x.scatter(0, index, 5.0),
        lambda x, index: x.scatter(0, index, 5.0, reduce="add"),
        lambda x, index: torch.zeros_like(x).scatter_(0, index, 1),
    ):
        equal(aicf.compile(write, (x, index))(x, index), write(x, index))


@pytest.mark.parametrize("extreme", [torch.max, torch.min])
@pytest.mark.parametrize("dim, keepdim", [(-1, False), (0, True)])
def test_an_extreme_whose_index_is_read_is_taken_there(extreme: Any, dim: int, keepdim: bool) -> None:
    x = torch.randint(-3, 3, (20, 30, 40)).float()  # many equal ones
    x[3, 4, 5] = math.nan
    exe = aicf.compile(lambda x: tuple(extreme(x, dim, keepdim)), (x,))
    assert "gather_elements" in exe.explain() and "reduce_m" not in exe.explain()
    for found, expected in zip(exe(x), extreme(x, dim, keepdim), strict=True):
        torch.testing.assert_close(torch.as_tensor(found), expected, rtol=0, atol=0, equal_nan=True)
    alone = aicf.compile(lambda x: extreme(x, dim, keepdim)[0], (x,))
    assert "argm" not in alone.explain() and "gather" not in alone.explain()

"""Where torch differentiates an op otherwise than the formula of its rule: the derivative torch takes.

An entry gets the Call, the value of the op's rule and the node's arguments, and gives the same value with
torch's derivative (torch's derivatives.yaml). Entries hold in the graph of a loss only.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointFunction

from .. import ops
from ..errors import Error, make_error
from ..symtensor import SymTensor
from .call import Call
from .rules.shape import axis_of
from .rules.special import digamma, polygamma
from .rules.table import full_name

__all__ = ["DERIVATIVES", "no_custom_derivatives", "refuse_gradient_hooks"]

DERIVATIVES: dict[str, Callable[..., Any]] = {}
_HOLD = ops.stop_gradient


def _derivative(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        DERIVATIVES.update((full_name(name), function) for name in names)
        return function

    return add


def _with_slope(c: Call, value: SymTensor, *slopes: tuple[SymTensor, SymTensor]) -> SymTensor:
    """The value, with these derivatives: pairs of an operand x and the slope. x - x is no zero where x is not
    finite.
    """
    total = _HOLD(value)
    for x, slope in slopes:
        finite = ops.lt(ops.abs(x), c.number(math.inf, x.dtype))
        total = total + ops.select(finite, (x - _HOLD(x)) * _HOLD(slope), c.number(0, x.dtype))
    return total


@_derivative("detach", "detach_copy")
def _detach(c: Call, value: SymTensor, *_: Any) -> SymTensor:
    return _HOLD(value)


# --- clipping: the bounds belong to clamp's range and not to that of hardtanh and its relatives


def _passes(c: Call, value: SymTensor, x: SymTensor, low: Any, high: Any, strict: bool) -> SymTensor:
    """x where it is in range, which the value is there."""
    inside = None
    for bound, less, other in ((low, ops.gt, ops.ge), (high, ops.lt, ops.le)):
        if bound is not None:
            part = (less if strict else other)(x, c.cast(bound))
            inside = part if inside is None else ops.bit_and(inside, part)
    return value if inside is None else ops.select(inside, x, value)


@_derivative("clamp", "clamp.Tensor")
def _clamp(c: Call, value: SymTensor, x: Any, low: Any = None, high: Any = None) -> SymTensor:
    return _passes(c, _HOLD(value), c.cast(x), low, high, False)


@_derivative("clamp_min", "clamp_min.Tensor")
def _clamp_min(c: Call, value: SymTensor, x: Any, low: Any) -> SymTensor:
    return _passes(c, _HOLD(value), c.cast(x), low, None, False)


@_derivative("clamp_max", "clamp_max.Tensor")
def _clamp_max(c: Call, value: SymTensor, x: Any, high: Any) -> SymTensor:
    return _passes(c, _HOLD(value), c.cast(x), None, high, False)


@_derivative("hardtanh")
def _hardtanh(c: Call, value: SymTensor, x: Any, low: Any = -1, high: Any = 1) -> SymTensor:
    return _passes(c, _HOLD(value), c.cast(x), low, high, True)


@_derivative("relu6")
def _relu6(c: Call, value: SymTensor, x: Any) -> SymTensor:
    return _passes(c, _HOLD(value), c.cast(x), 0, 6, True)


@_derivative("hardsigmoid")
def _hardsigmoid(c: Call, value: SymTensor, x: Any) -> SymTensor:
    inside = ops.bit_and(ops.gt(x, c.number(-3, x.dtype)), ops.lt(x, c.number(3, x.dtype)))
    return ops.select(inside, value, _HOLD(value))


@_derivative("hardswish")
def _hardswish(c: Call, value: SymTensor, x: Any) -> SymTensor:
    low = ops.select(ops.le(x, c.number(-3, x.dtype)), _HOLD(value), value)
    return ops.select(ops.ge(x, c.number(3, x.dtype)), x, low)


# --- one of several equal elements: that of the index


@_derivative("max.dim", "min.dim")
def _extreme(c: Call, value: Any, x: Any, dim: int, keepdim: bool = False) -> Any:
    if x.ndim == 0:
        return value
    axis = axis_of(dim, x.ndim)
    index = value[1] if keepdim else value[1].expand_dims(axis)
    taken = ops.gather_elements(x, index, axis=axis)
    return taken if keepdim else taken.squeeze(axis), value[1]


@_derivative("fmax", "prims.fmax")
def _fmax(c: Call, value: SymTensor, x: Any, y: Any) -> SymTensor:
    x, y = c.cast(x), c.cast(y)
    return ops.select(ops.bit_or(ops.ge(x, y), ops.is_nan(y)), x, y)


@_derivative("fmin", "prims.fmin")
def _fmin(c: Call, value: SymTensor, x: Any, y: Any) -> SymTensor:
    x, y = c.cast(x), c.cast(y)
    return ops.select(ops.bit_or(ops.le(x, y), ops.is_nan(y)), x, y)


# --- rows of a table


@_derivative("embedding")
def _embedding(
    c: Call,
    value: SymTensor,
    weight: Any,
    indices: Any,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    *_: Any,
) -> SymTensor:
    """The row of the padding gets no gradient."""
    if scale_grad_by_freq:
        raise make_error(
            "unsupported_op",
            "an embedding whose gradient is scaled by the frequency of its rows cannot be trained",
            op="aten.embedding.default",
            value="scale_grad_by_freq=True",
            remedy="leave it out",
        )
    if padding_idx < 0:
        return value
    padding = ops.eq(indices, c.number(padding_idx, indices.dtype))
    return ops.select(padding.expand_dims(indices.ndim), _HOLD(value), value)


# --- functions whose formulas have no derivative where torch's has one


@_derivative("binary_cross_entropy")
def _binary_cross_entropy(
    c: Call, value: SymTensor, x: Any, y: Any, weight: Any = None, reduction: int = 1
) -> SymTensor:
    """Each term by x: (x - y) / max(x (1 - x), 1e-12); by y: log(1 - x) - log(x), each at least -100."""
    x, y = c.cast(x), c.cast(y)
    low = c.number(-100, x.dtype)
    log_x, log_rest = ops.max(ops.log(x), low), ops.max(ops.log1p(-x), low)
    terms = -(y * log_x + (1.0 - y) * log_rest)
    slope = (x - y) / ops.max(x * (1.0 - x), c.number(1e-12, x.dtype))
    terms = _with_slope(c, terms, (x, slope), (y, log_rest - log_x))
    if weight is not None:
        terms = terms * c.cast(weight)
    axes = list(range(terms.ndim))
    if reduction == 0 or not axes:
        return terms
    return (ops.reduce_mean if reduction == 1 else ops.reduce_sum)(terms, axes=axes)


@_derivative("atan2", "prims.atan2")
def _atan2(c: Call, value: SymTensor, y: Any, x: Any) -> SymTensor:
    """0 where both are."""
    y, x = c.cast(y), c.cast(x)
    origin = ops.bit_and(ops.eq(x, c.number(0, x.dtype)), ops.eq(y, c.number(0, x.dtype)))
    return ops.select(origin, _HOLD(value), ops.atan2(y, ops.select(origin, c.number(1, x.dtype), x)))


def _xlog(names: str, log: Callable[[SymTensor], SymTensor], least: float) -> None:
    """x log(y), log(y + 1) for a least of -1: where x is 0 and the product does not exist, it is held."""

    def derivative(c: Call, value: SymTensor, x: Any, y: Any) -> SymTensor:
        x, y = c.cast(x), c.cast(y)
        outside = ops.bit_or(ops.le(y, c.number(least, y.dtype)), ops.eq(y, c.number(math.inf, y.dtype)))
        none = ops.bit_and(ops.eq(x, c.number(0, x.dtype)), outside)
        return ops.select(none, _HOLD(value), x * log(ops.select(none, c.number(1, y.dtype), y)))

    _derivative(*names.split())(derivative)


_xlog("xlogy.Tensor xlogy.Scalar_Self xlogy.Scalar_Other special_xlogy special_xlogy.self_scalar", ops.log, 0)
_xlog("special_xlog1py special_xlog1py.self_scalar special_xlog1py.other_scalar", ops.log1p, -1)


def _add_slope(names: str, slope: Callable[[Call, SymTensor, SymTensor], SymTensor]) -> None:
    """Functions of one operand; the slope, a function of it and of the value, is computed in f64."""

    def derivative(c: Call, value: SymTensor, x: Any) -> SymTensor:
        x = c.cast(x)
        steepness = slope(c, c.cast(_HOLD(x), "f64"), c.cast(_HOLD(value), "f64"))
        return _with_slope(c, value, (x, c.cast(steepness)))

    _derivative(*names.split())(derivative)


def _sinc(c: Call, x: SymTensor, value: SymTensor) -> SymTensor:
    zero = ops.eq(x, c.number(0, "f64"))
    return ops.select(
        zero, c.number(0, "f64"), (ops.cos(x * math.pi) - value) / ops.select(zero, c.number(1, "f64"), x)
    )


_add_slope("lgamma prims.lgamma special_gammaln", lambda c, x, value: digamma(c, x))
_add_slope("digamma prims.digamma special_digamma special_psi", lambda c, x, value: polygamma(c, 1, x))
_add_slope("sinc special_sinc", _sinc)
_add_slope(
    "erfinv prims.erf_inv special_erfinv",
    lambda c, x, value: ops.exp(value * value) * (math.sqrt(math.pi) / 2),
)
_add_slope(
    "special_log_ndtr",
    lambda c, x, value: ops.exp(x * x * -0.5 - value) * (1 / math.sqrt(2 * math.pi)),
)


# --- what an export does not hold


def refuse_gradient_hooks(model: torch.nn.Module, prefix: str) -> None:
    """Those that parameters and modules have when they are traced; no trace shows them."""
    everywhere = torch.nn.modules.module
    if everywhere._global_backward_hooks or everywhere._global_backward_pre_hooks:
        raise _hooks_refused("torch.nn.modules.module.register_module_full_backward_hook")
    for name, parameter in model.named_parameters():
        hooks = parameter._backward_hooks, getattr(parameter, "_post_accumulate_grad_hooks", None)
        if parameter.requires_grad and any(hooks):
            raise _hooks_refused("torch.Tensor.register_hook", name.removeprefix(prefix))
    for name, module in model.named_modules():
        if module._backward_hooks or module._backward_pre_hooks:
            raise _hooks_refused("torch.nn.Module.register_full_backward_hook", name.removeprefix(prefix))


def _hooks_refused(op: str, value: str = "") -> Error:
    return make_error(
        "unsupported_op",
        "hooks of gradients cannot be followed",
        op=op,
        value=value,
        remedy="leave them out while the step is compiled: the handle that registering gave has remove()",
    )


@contextmanager
def no_custom_derivatives() -> Iterator[None]:
    """torch.export keeps what a torch.autograd.Function computes and loses its backward; hooks too.

    Other threads go on as before.
    """
    here, function, tensor = threading.get_ident(), torch.autograd.Function, torch.Tensor
    apply, hook = function.__dict__["apply"], tensor.register_hook

    def checked(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != here:
            return apply.__get__(None, cls)(*args, **kwargs)
        # A checkpoint recomputes what it stands for: (function, keep random state, operands).
        if cls is CheckpointFunction:
            return args[0](*args[2:])
        if not cls.__module__.startswith("torch."):
            raise make_error(
                "unsupported_op",
                "the backward of a torch.autograd.Function cannot be followed",
                op=f"{cls.__module__}.{cls.__qualname__}",
                remedy="write it with functions of tensors: y + (f(x) - y).detach() has the derivative of y",
            )
        return apply.__get__(None, cls)(*args, **kwargs)

    def refused(self: Any, *given: Any) -> Any:
        if threading.get_ident() != here:
            return hook(self, *given)
        raise _hooks_refused("torch.Tensor.register_hook")

    function.apply = classmethod(checked)  # type: ignore[assignment,method-assign]
    tensor.register_hook = refused  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        function.apply = apply  # type: ignore[method-assign]
        tensor.register_hook = hook  # type: ignore[method-assign]

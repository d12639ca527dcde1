"""Numbers and choices that depend on sizes known only at the call.

torch's symbols hold the sizes of the example too, and answer with them whatever is asked. These functions
keep an answer that is true of the example alone out of a Program made for a range.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch._guards import detect_fake_mode
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils import _pytree as pytree

from .. import ops
from ..errors import make_error
from ..symtensor import SymTensor
from .types import Symbols

if TYPE_CHECKING:
    from ..tracing import Graph

__all__ = ["at_every_size", "fixed_fakes", "real_scalar", "symbols_in"]


def real_scalar(graph: Graph, symbols: Symbols, expr: sympy.Expr) -> SymTensor:
    """A real expression over sizes, such as the scale 7 / height, computed in f64 at the call."""
    if expr.is_number:
        return graph.scalar(float(expr), "f64")
    if expr.is_integer:
        return graph.lift(symbols.size(expr), dtype="f64")
    name = type(expr).__name__
    function = _REALS.get(name)
    if function is None:
        raise make_error(
            "size_not_static",
            "a number is computed from sizes in a way that AICF cannot follow",
            value=str(expr),
            expected=", ".join(_REALS),
            remedy="give the sizes in it fixed values: leave their axes out of dims",
        )
    first, *rest = (real_scalar(graph, symbols, argument) for argument in expr.args)
    if not rest:
        return function(first)
    for argument in rest:
        first = function(first, argument)
    return first


_REALS: dict[str, Any] = {
    "Add": ops.add,
    "Mul": ops.mul,
    "IntTrueDiv": ops.div,
    "FloatTrueDiv": ops.div,
    "FloatPow": ops.pow,
    "Pow": ops.pow,
    "Max": ops.max,
    "Min": ops.min,
    "ToFloat": lambda x: x,
    "Identity": lambda x: x,
    "OpaqueUnaryFn_sqrt": ops.sqrt,
    "OpaqueUnaryFn_log2": lambda x: ops.div(ops.log(x), ops.log(x.graph.scalar(2.0, "f64"))),
    "OpaqueUnaryFn_log": ops.log,
}


@contextmanager
def at_every_size(shape_env: Any, symbols: frozenset[Any], op: Any) -> Iterator[None]:
    """Refuses what the code inside chooses by the example's sizes, of these symbols.

    A frozen ShapeEnv answers such a question and tells `_check_frozen`. torch makes symbols of its own for
    tensors whose strides it does not know; what it asks of them changes no result.
    """
    chosen: list[Any] = []
    frozen, shape_env.frozen = shape_env.frozen, True
    shape_env._check_frozen = lambda condition, value: chosen.append((condition, value))
    try:
        yield
    finally:
        shape_env.frozen = frozen
        del shape_env._check_frozen
    for condition, value in chosen:
        if condition.free_symbols & symbols and not _only_empty_or_single(condition, value):
            raise make_error(
                "size_not_static",
                f"how {op} is computed depends on a size",
                value=str(condition) if value is sympy.true else f"{condition} is {value}",
                remedy="give this size a fixed value: leave its axis out of dims",
            )


def _only_empty_or_single(condition: Any, value: Any) -> bool:
    """Whether it is the question if a size is above 0 or 1: torch's own graphs take it for answered, and
    broadcasting makes up for it.
    """
    if not isinstance(condition, sympy.core.relational.Relational):
        return False
    if value is sympy.false or value is False:
        condition = sympy.Not(condition)
    if isinstance(condition, (sympy.Lt, sympy.Le)):
        condition = condition.reversed
    if isinstance(condition, sympy.Ne):
        return condition.lhs in (0, 1) or condition.rhs in (0, 1)
    if isinstance(condition, sympy.Gt):
        return condition.rhs in (0, 1)
    return isinstance(condition, sympy.Ge) and condition.rhs in (1, 2)


def symbols_in(fakes: Any) -> frozenset[Any]:
    """torch's symbols in the sizes of tensors and among the integers."""
    found: set[Any] = set()
    for leaf in pytree.tree_leaves(fakes):
        for size in leaf.shape if isinstance(leaf, torch.Tensor) else [leaf]:
            if isinstance(size, torch.SymInt):
                found |= size.node.expr.free_symbols
    return frozenset(found)


def fixed_fakes(values: Any, symbols: Symbols) -> Any:
    """The same operands at the sizes that `symbols` gives to torch's, so that torch sees nothing symbolic."""
    mode = detect_fake_mode(pytree.tree_leaves(values)) or FakeTensorMode()

    def fix(leaf: Any) -> Any:
        if isinstance(leaf, FakeTensor):
            with mode:
                sizes, strides = symbols.shape(leaf.shape), symbols.shape(leaf.stride())
                return torch.empty_strided(sizes, strides, dtype=leaf.dtype, device=leaf.device)
        if isinstance(leaf, torch.SymInt):
            return symbols.size(leaf)
        return symbols.real(leaf) if isinstance(leaf, torch.SymFloat) else leaf

    return pytree.tree_map(fix, values)

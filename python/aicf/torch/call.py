"""What a rule sees of the torch node that it turns into ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
import torch.utils._pytree as pytree
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from .. import ops
from .._aicf import Dim
from .._dtypes import HALVES
from ..symtensor import SymTensor
from .symbolic import real_scalar
from .types import TORCH_DTYPES, dtype_name, is_float, is_half

if TYPE_CHECKING:
    from .lower import Lowering
    from .rules.table import Opmath

__all__ = ["Call", "Decompose", "computes_wide", "narrowed", "widened"]


class Decompose(Exception):  # noqa: N818
    """A rule does not take these arguments: torch's decomposition of the op is tried."""


class Call:
    """One node with its result as torch described it; `args` of a rule are values of ours."""

    def __init__(
        self, lowering: Lowering, node: torch.fx.Node, out: Any, fakes: tuple[Any, ...], wide: bool = False
    ) -> None:
        self.lowering = lowering
        self.node = node
        self.out = out
        self.fakes = fakes
        self.wide = wide  # operands of 16 bits came as f32, and so do the results

    def _named(self, dtype: torch.dtype) -> str:
        name = dtype_name(dtype)
        return "f32" if self.wide and is_half(name) else name

    @property
    def graph(self) -> Any:
        return self.lowering.graph

    @property
    def trains(self) -> bool:
        """Whether the graph will be differentiated."""
        return self.lowering.trains

    @property
    def dtype(self) -> str:
        """Dtype of the result, of the first if there are several."""
        return self._named(self._first().dtype)

    @property
    def shape(self) -> list[int | Dim]:
        return self.lowering.symbols.shape(self._first().shape)

    def shape_of(self, index: int) -> list[int | Dim]:
        return self.lowering.symbols.shape(self.out[index].shape)

    def dtype_of(self, index: int) -> str:
        return self._named(self.out[index].dtype)

    def _first(self) -> Any:
        return self.out[0] if isinstance(self.out, (tuple, list)) else self.out

    def common(self, *operands: Any) -> str:
        """The dtype in which torch compares or combines these operands, given as torch saw them."""
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
        return self._named(elementwise_dtypes(*operands, type_promotion_kind=kind)[1])

    def cast(self, x: Any, dtype: str | None = None) -> SymTensor:
        """A value of ours in a dtype, by default that of the result."""
        dtype = dtype or self.dtype
        if not isinstance(x, SymTensor):
            return self.number(x, dtype)
        if x.dtype == dtype:
            return x
        return ops.cast(x, dtype=dtype)

    def summed(self, x: SymTensor) -> SymTensor:
        """In the dtype that torch sums in: halves as f32."""
        return self.cast(x, "f32") if is_half(x.dtype) else x

    def number(self, value: Any, dtype: str) -> SymTensor:
        """A scalar of a Python number or a symbolic size."""
        if isinstance(value, Dim):
            return self.graph.lift(value, dtype=dtype)
        if isinstance(value, torch.SymFloat):
            real = real_scalar(self.graph, self.lowering.symbols, value.node.expr)
            return self.cast(real, dtype)
        if isinstance(value, complex):
            raise Decompose("a complex number")
        if dtype == "bool":
            value = bool(value)
        elif not is_float(dtype):
            value = int(value) if math.isfinite(value) else 0
        else:
            value = float(value)
        return self.graph.scalar(value, dtype)

    def full(self, shape: Any, value: Any, dtype: str | None = None) -> SymTensor:
        return ops.broadcast_to(self.cast(value, dtype), shape=list(shape))

    def size(self, value: Any) -> int | Dim:
        return self.lowering.symbols.size(value)

    def count(self, sizes: Any) -> SymTensor | float:
        """Product of sizes as a number, or as a scalar of the result's dtype if symbolic."""
        product = math.prod(sizes)
        return float(product) if isinstance(product, int) else self.cast(product)


def computes_wide(opmath: Opmath | None, out: Any, operands: Any) -> bool:
    """Whether a rule that says `opmath` sees these operands, of which torch gave `out`, as f32."""
    if opmath is None:
        return False
    leaves = pytree.tree_leaves(operands)
    halves = {x.dtype for x in [*leaves, *pytree.tree_leaves(out)] if isinstance(x, torch.Tensor)} & _HALVES
    if opmath == "whole":
        return bool(halves)
    numbers = [x for x in leaves if isinstance(x, (int, float, torch.SymInt, torch.SymFloat))]
    return any(not _is_held(x, dtype) for x in numbers for dtype in halves)


_HALVES = {TORCH_DTYPES[name] for name in HALVES}


def _is_held(value: Any, dtype: torch.dtype) -> bool:
    """Whether a number is one of a half's; of a symbolic one nobody knows."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return False
    return math.isnan(value) or float(torch.tensor(value, dtype=dtype)) == value


def widened(values: Any) -> Any:
    """Those of 16 bits as f32."""

    def wide(x: Any) -> Any:
        return ops.cast(x, dtype="f32") if isinstance(x, SymTensor) and is_half(x.dtype) else x

    return pytree.tree_map(wide, values, is_leaf=_is_value)


def narrowed(results: Any, out: Any) -> Any:
    """Results in the dtypes that torch gives, rounded once."""

    def narrow(x: Any, like: Any) -> Any:
        if not isinstance(x, SymTensor) or not is_half(dtype_name(like.dtype)):
            return x
        return x if x.dtype != "f32" else ops.cast(x, dtype=dtype_name(like.dtype))

    if isinstance(out, (tuple, list)):
        return tuple(narrow(x, like) for x, like in zip(results, out, strict=True))
    return narrow(results, out)


def _is_value(x: Any) -> bool:
    return x is None or isinstance(x, SymTensor)

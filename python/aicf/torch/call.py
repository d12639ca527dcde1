"""What a rule sees of the torch node that it turns into ours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import torch
from torch._prims_common import ELEMENTWISE_TYPE_PROMOTION_KIND, elementwise_dtypes

from .. import ops
from .._aicf import Dim
from ..symtensor import SymTensor
from .symbolic import real_scalar
from .types import dtype_name, is_float

if TYPE_CHECKING:
    from .lower import Lowering

__all__ = ["Call", "Decompose"]


class Decompose(Exception):  # noqa: N818
    """A rule does not take these arguments: torch's decomposition of the op is tried."""


class Call:
    """One node with its result as torch described it; `args` of a rule are values of ours."""

    def __init__(self, lowering: Lowering, node: torch.fx.Node, out: Any, fakes: tuple[Any, ...]) -> None:
        self.lowering = lowering
        self.node = node
        self.out = out
        self.fakes = fakes

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
        return dtype_name(self._first().dtype)

    @property
    def shape(self) -> list[int | Dim]:
        return self.lowering.symbols.shape(self._first().shape)

    def shape_of(self, index: int) -> list[int | Dim]:
        return self.lowering.symbols.shape(self.out[index].shape)

    def dtype_of(self, index: int) -> str:
        return dtype_name(self.out[index].dtype)

    def _first(self) -> Any:
        return self.out[0] if isinstance(self.out, (tuple, list)) else self.out

    def common(self, *operands: Any) -> str:
        """The dtype in which torch compares or combines these operands, given as torch saw them."""
        kind = ELEMENTWISE_TYPE_PROMOTION_KIND.NO_OPMATH
        return dtype_name(elementwise_dtypes(*operands, type_promotion_kind=kind)[1])

    def cast(self, x: Any, dtype: str | None = None) -> SymTensor:
        """A value of ours in a dtype, by default that of the result."""
        dtype = dtype or self.dtype
        if not isinstance(x, SymTensor):
            return self.number(x, dtype)
        if x.dtype == dtype:
            return x
        return ops.cast(x, dtype=dtype)

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

"""What every function of `aicf.ops` calls: operands become values of the graph being traced."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from . import _aicf
from .symtensor import SymTensor
from .tracing import Graph, Variable, current_graph

__all__ = ["apply"]


@cache
def _operand_types(op: str) -> tuple[str, ...]:
    row = next(row for row in _aicf.op_table() if row["name"] == op)
    return tuple(type_ for _, type_, _, _ in row["operands"])


def apply(op: str, operands: Sequence[Any], attrs: Mapping[str, Any]) -> tuple[SymTensor, ...]:
    """Adds the node; a Python number takes the dtype of the operands that share its type variable."""
    graph = _graph_of(operands)
    types = _operand_types(op)
    types = types + types[-1:] * (len(operands) - len(types))
    dtypes: dict[str, str] = {}
    for type_, operand in zip(types, operands, strict=False):
        if not isinstance(operand, (bool, int, float)) and operand is not None:
            dtypes.setdefault(type_, _dtype_of(graph, operand))
    values = [
        None if operand is None else graph.lift(operand, dtype=dtypes.get(type_, _concrete(type_)))
        for type_, operand in zip(types, operands, strict=False)
    ]
    return graph.node(op, values, attrs)


def _graph_of(operands: Sequence[Any]) -> Graph:
    for operand in operands:
        if isinstance(operand, SymTensor):
            return operand.graph
    return current_graph()


def _dtype_of(graph: Graph, operand: Any) -> str:
    if isinstance(operand, (SymTensor, Variable)):
        return operand.dtype
    return graph.lift(operand).dtype if isinstance(operand, _aicf.Dim) else _aicf.array_type(operand)[0]


def _concrete(type_: str) -> str | None:
    """A type that is a dtype rather than a variable or a class."""
    return type_ if type_ in ("i64", "i32", "bool", "f32") else None

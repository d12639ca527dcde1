"""Which nodes of a torch graph AICF cannot take, all at once: a stand-in takes the place of each result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import Error
from ..tracing import Graph
from .lower import MISSING, Lowering
from .types import DTYPES, Symbols

__all__ = ["Unsupported", "count_ops", "stand_in", "survey"]


@dataclass(frozen=True)
class Unsupported:
    """One node: the op, the user's line, why, and what to write instead."""

    op: str
    source: str
    reason: str
    remedy: str

    def __str__(self) -> str:
        return "\n".join(filter(None, (f"{self.op}: {self.reason}", self.source, self.remedy)))


def survey(module: torch.fx.GraphModule, symbols: Symbols | None = None) -> dict[torch.fx.Node, Unsupported]:
    """Unsupported nodes of a functional graph in order."""
    found: dict[torch.fx.Node, Unsupported] = {}
    lowering = Lowering(
        Graph(), symbols or Symbols(), lambda node, error: _note(lowering, found, node, error)
    )
    inputs = [stand_in(lowering, n.name, n.meta.get("val")) for n in _placeholders(module)]
    lowering.run(module, inputs)
    return found


def stand_in(lowering: Lowering, name: str, value: Any) -> Any:
    """Inputs shaped as a result of torch; MISSING for what we have no type for."""
    if isinstance(value, (tuple, list)):
        return [stand_in(lowering, f"{name}.{i}", item) for i, item in enumerate(value)]
    if isinstance(value, torch.SymInt):
        return lowering.symbols.size(value)
    if not isinstance(value, torch.Tensor):
        return value
    if value.dtype not in DTYPES or value.layout != torch.strided:
        return MISSING
    try:
        return lowering.graph.input(name, lowering.symbols.shape(value.shape), DTYPES[value.dtype])
    except Error:  # a size that depends on data
        return MISSING


def count_ops(module: torch.fx.GraphModule) -> int:
    """Calls of torch's ops in a graph."""
    return sum(_is_op(node) for node in module.graph.nodes)


def _is_op(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and isinstance(
        node.target, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)
    )


def _placeholders(module: torch.fx.GraphModule) -> Sequence[torch.fx.Node]:
    return [node for node in module.graph.nodes if node.op == "placeholder"]


def _note(lowering: Lowering, found: dict[Any, Unsupported], node: torch.fx.Node, error: Error | None) -> Any:
    if error is not None:
        text = str(error).splitlines()[0].split("] ", 1)[-1]
        found[node] = Unsupported(str(node.target), error.value, text, error.remedy)
    value = node.meta.get("val")
    if any(not isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value)):
        return MISSING
    return stand_in(lowering, f"missing.{node.name}", value)

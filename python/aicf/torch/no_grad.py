"""What a training graph of torch says by `torch.no_grad()` and `detach`, as detached values.

Results of a block are detached, which later rewriting keeps and the block it does not. A tensor that the
block writes to keeps its derivative, whatever is written: it gets the new value plus (x - detached x).
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any

import torch
from torch.export import ExportedProgram

from ..errors import make_error
from .decompose import is_mutable
from .source import line_of_node

__all__ = ["stop_where_no_grad"]

_aten = torch.ops.aten
_DETACHES = (_aten.detach.default, _aten.alias.default)


def stop_where_no_grad(exported: ExportedProgram) -> ExportedProgram:
    """The same program, in which detached values say where no derivative goes."""
    for module in exported.graph_module.modules():
        if not isinstance(module, torch.fx.GraphModule):
            continue
        is_outermost = module is exported.graph_module
        for node in list(module.graph.nodes):
            if _is_no_grad(node):
                block = getattr(module, node.args[1].target)
                _keep_derivatives(node, block, is_outermost)
                _detach_results(block)
            elif is_mutable(node.target):
                _refuse_write_to_detached(node)
        module.recompile()
    return exported


def _is_no_grad(node: torch.fx.Node) -> bool:
    is_block = isinstance(node.target, torch._ops.HigherOrderOperator)
    return is_block and node.target.name() == "wrap_with_set_grad_enabled" and node.args[0] is False  # type: ignore[union-attr]


def _keep_derivatives(call: torch.fx.Node, block: torch.fx.GraphModule, is_outermost: bool) -> None:
    """For writes of the block to tensors of the graph around it; those computed inside have no derivative."""
    around = dict(zip((n for n in block.graph.nodes if n.op == "placeholder"), call.args[2:], strict=True))
    for node in list(block.graph.nodes):
        if not is_mutable(node.target):
            continue
        written = list(_written(node))
        roots = [around.get(_roots(x)[-1]) for x in written]
        # The tensors that the model holds or gets have no derivative, or may not be written.
        if not any(_has_derivative(root, is_outermost) for root in roots):
            continue
        if len(written) != 1:
            raise make_error(
                "unsupported_op",
                f"{node.target} writes to several tensors under torch.no_grad()",
                op=str(node.target),
                value=line_of_node(node),
                remedy="write to one after the other",
            )
        _write_detached(block.graph, node, written[0])
    output = next(node for node in block.graph.nodes if node.op == "output")
    for user in list(call.users):
        if user.target is operator.getitem and output.args[0][user.args[1]] in around:
            user.replace_all_uses_with(around[output.args[0][user.args[1]]])


def _has_derivative(value: Any, is_outermost: bool) -> bool:
    if not isinstance(value, torch.fx.Node) or not _is_float(value):
        return False
    return not is_outermost or _roots(value)[-1].op != "placeholder"


def _is_float(node: torch.fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _written(node: torch.fx.Node) -> Iterator[torch.fx.Node]:
    """Operands that an op writes to."""
    for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            yield from (v for v in (value if isinstance(value, (list, tuple)) else [value]) if v is not None)


def _roots(node: torch.fx.Node) -> list[torch.fx.Node]:
    """The tensor, the one it is a view of, and so on."""
    chain = [node]
    while True:
        node = chain[-1]
        if node.target is operator.getitem:
            chain.append(node.args[0])  # type: ignore[arg-type]
        elif node.op == "call_function" and isinstance(node.target, torch._ops.OpOverload) and _is_view(node):
            chain.append(next(_written(node)) if is_mutable(node.target) else node.args[0])  # type: ignore[arg-type]
        else:
            return chain


def _is_view(node: torch.fx.Node) -> bool:
    return any(result.alias_info is not None for result in node.target._schema.returns)  # type: ignore[union-attr]


def _write_detached(graph: torch.fx.Graph, node: torch.fx.Node, x: torch.fx.Node) -> None:
    """op_(x, ...) gives x the value that it would have, and leaves x its derivative."""

    def add(op: Any, *args: Any) -> torch.fx.Node:
        made = graph.call_function(op, args)
        made.meta = dict(x.meta)
        return made

    with graph.inserting_before(node):
        detached = add(_aten.detach.default, x)
        value = add(_aten.clone.default, detached)
        operation = graph.node_copy(node, lambda n: value if n is x else n)
        # x - x is no zero where x is not finite.
        slope = add(_aten.nan_to_num.default, add(_aten.sub.Tensor, x, detached), 0.0, 0.0, 0.0)
        add(_aten.copy_.default, x, add(_aten.add.Tensor, add(_aten.detach.default, operation), slope))
    node.replace_all_uses_with(x)
    graph.erase_node(node)


def _refuse_write_to_detached(node: torch.fx.Node) -> None:
    for x in _written(node):
        chain = _roots(x)
        if chain[-1].op != "placeholder" and any(view.target in _DETACHES for view in chain):
            raise make_error(
                "unsupported_op",
                "the model writes through detach() to a tensor that has a derivative",
                op=str(node.target),
                value=line_of_node(node),
                remedy="write to x.detach().clone(), or to x itself under torch.no_grad()",
            )


def _detach_results(block: torch.fx.GraphModule) -> None:
    graph = block.graph
    output = next(node for node in graph.nodes if node.op == "output")

    def detached(node: torch.fx.Node) -> torch.fx.Node:
        if not _is_float(node):
            return node
        with graph.inserting_before(output):
            copy = graph.call_function(_aten.detach.default, (node,))
        copy.meta = dict(node.meta)
        return copy

    output.args = torch.fx.node.map_arg(output.args, detached)
    block.recompile()

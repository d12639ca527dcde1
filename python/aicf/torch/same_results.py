"""Whether two functional graphs of torch compute the same, by numbering their values.

Two values have one number if the same op gave them from operands of the same numbers. Random numbers are the
same if as many were drawn before them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

__all__ = ["same_results"]

# Ops that only give their first operand another dtype, and all that give it as it is if it has the dtype and
# shape of the result.
_CONVERT = frozenset({"to", "_to_copy", "type_as"})
_GIVE_OPERAND = _CONVERT | frozenset(
    "slice expand view reshape alias detach detach_copy lift_fresh lift_fresh_copy clone contiguous".split()
)


def same_results(a: ExportedProgram, b: ExportedProgram) -> bool:
    """Of one model: whether both give the same results and leave the same in the model's buffers."""
    numbers: dict[Any, int] = {}
    return _Numbering(numbers).results(a) == _Numbering(numbers).results(b)


class _Numbering:
    """Numbers of the values of one graph; those of graphs that share `numbers` can be compared."""

    def __init__(self, numbers: dict[Any, int]) -> None:
        self._numbers = numbers
        self._drawn = 0  # random numbers, so far
        self._drawing: set[int] = set()  # bodies that draw some

    def results(self, program: ExportedProgram) -> Any:
        signature = program.graph_signature
        users = itertools.count()
        inputs = [self._number(_input_key(program, spec, users)) for spec in signature.input_specs]
        kinds = [(spec.kind, spec.target) for spec in signature.output_specs]
        return kinds, self._graph(program.graph_module, inputs), str(program.call_spec.out_spec)

    def _number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def _graph(self, module: torch.fx.GraphModule, inputs: list[int]) -> Any:
        values: dict[torch.fx.Node, int] = {}
        pending = list(inputs)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = pending.pop(0)
            elif node.op == "get_attr":
                values[node] = self._attribute(module, node.target)
            elif node.op == "output":
                return _key(node.args[0], values)
            else:
                values[node] = self._node(node, values)
        raise AssertionError("an fx graph ends with an output")

    def _attribute(self, module: Any, name: str) -> int:
        for part in name.split("."):
            module = getattr(module, part)
        if not isinstance(module, torch.fx.GraphModule):
            return self._number(_constant_key(module))
        body = _Numbering(self._numbers)
        operands = [self._number(("operand", n.name)) for n in module.graph.nodes if n.op == "placeholder"]
        number = self._number(("body", len(operands), body._graph(module, operands)))
        if body._drawn:
            self._drawing.add(number)
        return number

    def _node(self, node: torch.fx.Node, values: dict[torch.fx.Node, int]) -> int:
        name = str(node.target).split(".")
        if name[0] == "aten" and name[1] in _GIVE_OPERAND and isinstance(node.args[0], torch.fx.Node):
            operand, result = node.args[0].meta["val"], node.meta["val"]
            if (operand.shape, operand.dtype) == (result.shape, result.dtype):
                return values[node.args[0]]
            if name[1] in _CONVERT:
                return self._number(("convert", str(result.dtype), values[node.args[0]]))
        seeded = torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())
        draws = seeded or any(values[operand] in self._drawing for operand in node.all_input_nodes)
        self._drawn += draws
        operands = _key((node.args, node.kwargs), values)
        return self._number((str(node.target), operands, self._drawn if draws else 0))


def _key(value: Any, values: Mapping[torch.fx.Node, int]) -> Any:
    """Arguments of a node, with numbers for values."""
    if isinstance(value, torch.fx.Node):
        return "value", values[value]
    if isinstance(value, (list, tuple)):
        return tuple(_key(item, values) for item in value)
    if isinstance(value, Mapping):
        return tuple((name, _key(item, values)) for name, item in value.items())
    return type(value).__name__, repr(value)


def _input_key(program: ExportedProgram, spec: Any, users: Iterator[int]) -> Any:
    if spec.kind == InputKind.USER_INPUT:
        return "input", next(users)
    if spec.kind == InputKind.CONSTANT_TENSOR:
        return _constant_key(program.constants[spec.target])
    return "held", spec.target


def _constant_key(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return "object", id(value)
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return "constant", str(value.dtype), tuple(value.shape), data

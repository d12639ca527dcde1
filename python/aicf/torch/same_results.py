"""Two calls of a model in one torch graph: whether the second computes what the first did, and the first.

Each call's values are numbered: two have one number if the same op gave them from operands of the same
numbers. Both calls begin with the same symbols for the arguments and for what the model holds. What the
second call takes from the first, such as a table that it made, has the number it had there, if neither
arguments nor random numbers nor anything that calls write went into it. Random numbers are the same if as
many were drawn before them in the call.

A graph of torch.export writes to tensors. What a tensor holds is the number of the tensor and that of the
last write to its memory; the memory is that of the fake tensors which torch noted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from .decompose import is_mutable, updates_statistics

__all__ = ["first_of_two_calls", "same_results", "two_calls"]

# The place in a graph where the second call begins.
_NAME = "aicf::next_call"
torch.library.define(_NAME, "(*, Device? device=None) -> Tensor")


@torch.library.impl(_NAME, "CompositeExplicitAutograd")
def _nothing(*, device: torch.device | None = None) -> torch.Tensor:
    return torch.empty(0, device=device)


torch.library.register_fake(_NAME, _nothing)

_NEXT_CALL = torch.ops.aicf.next_call.default
_ANOTHER = torch.ops.aten.flip.default

# Ops that only give their first operand another dtype, and all that give it as it is if it has the dtype and
# shape of the result.
_CONVERT = frozenset({"to", "_to_copy", "type_as"})
_GIVE_OPERAND = _CONVERT | frozenset(
    "slice expand view reshape alias detach detach_copy lift_fresh lift_fresh_copy clone contiguous".split()
)


def two_calls(result: Any, call: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    """While a model is traced, the results of a call that gave `result` and of another one after it."""
    mark = _NEXT_CALL()
    args, kwargs = pytree.tree_map(_another, (args, kwargs))
    return result, mark, call(*args, **kwargs)


def _another(value: Any) -> Any:
    """To the eyes of a trace no operand of the first call."""
    return torch.flip(value, ()) if isinstance(value, torch.Tensor) else value


def same_results(program: ExportedProgram) -> bool:
    """Whether the second of two calls gives the same results and leaves the same in what the model holds."""
    *nodes, output = program.graph.nodes
    first, _, second = program.call_spec.out_spec.children()
    at = _next_call(nodes)
    if first != second or at is None:
        return False
    results = output.args[0]
    one = _Call(program)
    expected = one.run(nodes[:at], results[: first.num_leaves])
    return one.again(nodes[at + 1 :], results[first.num_leaves + 1 :]) == expected


def first_of_two_calls(program: ExportedProgram) -> ExportedProgram:
    """The program without the second call, in place."""
    graph, signature = program.graph, program.graph_signature
    *nodes, output = graph.nodes
    call = program.module_call_graph[0].signature
    first = call.out_spec.children()[0]
    output.args = (output.args[0][: first.num_leaves],)
    del signature.output_specs[first.num_leaves :]
    call.outputs, call.out_spec = call.outputs[: first.num_leaves], first
    for node in reversed(nodes[_next_call(nodes) :]):
        graph.erase_node(node)
    for node, spec in zip(nodes, list(signature.input_specs), strict=False):
        if spec.kind == InputKind.CONSTANT_TENSOR and not node.users:  # one that the second call made
            graph.erase_node(node)
            signature.input_specs.remove(spec)
    program.graph_module.delete_all_unused_submodules()
    program.graph_module.recompile()
    return program


def _next_call(nodes: Sequence[Node]) -> int | None:
    """None where the first call turned gradients off and left it so: the second is in a body of the graph."""
    return next((i for i, node in enumerate(nodes) if node.target is _NEXT_CALL), None)


class _Numbers:
    """A number for each key, and whether the value is the same in every call, whatever the arguments are.

    `held` of a number are the variables of the model that went into it.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}
        self._held: list[frozenset[Any] | None] = []

    def of(self, key: Any, operands: Sequence[int] = (), held: frozenset[Any] | None = frozenset()) -> int:
        """That of the key, to which numbers of operands belong; `held` is None for what calls differ in."""
        number = self._numbers.setdefault((key, tuple(operands)), len(self._numbers))
        if number == len(self._held):
            parts = [held, *(self._held[operand] for operand in operands)]
            self._held.append(None if None in parts else frozenset().union(*parts))
        return number

    def is_same_without(self, number: int, written: frozenset[Any]) -> bool:
        """Whether it is the same in every call, if these variables are not."""
        held = self._held[number]
        return held is not None and not held & written


class _Graph:
    """Numbers of the values of a graph, or of a part of one.

    A tensor's number is that of what its memory held at first, and how it lies there.
    """

    def __init__(self, numbers: _Numbers) -> None:
        self.numbers = numbers
        self.values: dict[Node, int] = {}
        self.memories: dict[int, tuple[int, Any]] = {}  # what each held at first, and the layout of that
        self.writes: dict[int, int] = {}  # by memory, of the last write
        self.drawn = 0  # random numbers, so far

    def add(self, module: GraphModule, nodes: Sequence[Node]) -> None:
        for node in nodes:
            if node.op == "get_attr":
                self.values[node] = self._attribute(module, node)
            elif node.op == "call_function":
                self.place(node, self._node(module, node))

    def place(self, node: Node, number: int) -> None:
        """Notes the node's value; `number` is that of a tensor of its own."""
        value, memory = node.meta.get("val"), _memory(node)
        if memory is not None:
            first, layout = self.memories.setdefault(memory, (number, _layout(value)))
            number = first if _layout(value) == layout else self.numbers.of(("view", _layout(value)), [first])
        self.values[node] = number

    def contents(self, value: Any) -> Any:
        """What a result holds after the nodes so far; results may be lists of values, and constants."""
        if isinstance(value, Node):
            return "value", self.content(value)
        if isinstance(value, (list, tuple)):
            return tuple(map(self.contents, value))
        return type(value).__name__, repr(value)

    def content(self, node: Node) -> int:
        """What a tensor holds after the writes so far."""
        number = self.values[node]
        last = self.writes.get(_memory(node))
        return number if last is None else self.numbers.of("after a write", (number, last))

    def _attribute(self, module: GraphModule, node: Node) -> int:
        value: Any = module
        for part in node.target.split("."):
            value = getattr(value, part)
        if not isinstance(value, GraphModule):
            return self.numbers.of(_constant_key(value))
        body = _Graph(self.numbers)
        *nodes, output = value.graph.nodes
        operands = [inner for inner in nodes if inner.op == "placeholder"]
        for index, inner in enumerate(operands):
            body.place(inner, self.numbers.of(("operand", index)))
        body.add(value, nodes)
        return self.numbers.of(("body", body.contents(output.args[0]), body.contents(operands), body.drawn))

    def _node(self, module: GraphModule, node: Node) -> int:
        size = _size_key(node.meta.get("val"))
        if size is not None:
            return self.numbers.of(size)
        given = self._given(node)
        if given is not None:
            return given
        inside = [*_nodes_of_bodies(module, node)]
        draws = any(map(_draws, [node, *inside]))
        self.drawn += draws
        operands: list[int] = []
        key = _key((node.args, node.kwargs), lambda operand: operands.append(self.content(operand)))
        differs = None if draws else frozenset()
        number = self.numbers.of((str(node.target), key, self.drawn if draws else 0), operands, differs)
        written = [_memory(operand) for writer in (node, *inside) for operand in _written(writer)]
        for index, memory in enumerate(written):
            if memory in self.memories:  # else of a body's own
                before = self.writes.get(memory, self.memories[memory][0])
                self.writes[memory] = self.numbers.of(("write", index), (before, number))
        return number

    def _given(self, node: Node) -> int | None:
        """The number of the operand that the op gives as it is, or in another dtype."""
        name = str(node.target).split(".")
        operand = node.args[0] if node.args else None
        if name[0] != "aten" or name[1] not in _GIVE_OPERAND or not isinstance(operand, Node):
            return None
        old, new = _type(operand.meta["val"]), _type(node.meta["val"])
        if old == new:
            return self.content(operand)
        return self.numbers.of(("convert", new[0]), [self.content(operand)]) if name[1] in _CONVERT else None


class _Call(_Graph):
    """Numbers of the first call, or of the second after it."""

    def __init__(self, program: ExportedProgram, numbers: _Numbers | None = None) -> None:
        super().__init__(numbers or _Numbers())
        self._program = program
        nodes = [node for node in program.graph.nodes if node.op == "placeholder"]
        self._inputs = dict(zip(nodes, program.graph_signature.input_specs, strict=True))
        self._held = [n for n, s in self._inputs.items() if s.kind in (InputKind.PARAMETER, InputKind.BUFFER)]
        users = 0
        for node, spec in self._inputs.items():
            if spec.kind == InputKind.USER_INPUT:
                self.place(node, self.numbers.of(("input", users), held=None))
                users += 1
            elif spec.kind == InputKind.CONSTANT_TENSOR:
                self.place(node, self.numbers.of(_constant_key(self._program.constants[spec.target])))
            else:
                self.place(node, self.numbers.of(("held", spec.target), held=frozenset({spec.target})))

    def run(self, nodes: Sequence[Node], results: Sequence[Any]) -> Any:
        """What the call gives, and what it leaves in the model."""
        self.add(self._program.graph_module, nodes)
        return self.contents(results), self.contents(self._held)

    def again(self, nodes: Sequence[Node], results: Sequence[Any]) -> Any:
        """The same of a call after this one."""
        written = frozenset(self._inputs[n].target for n in self._held if _memory(n) in self.writes)
        second = _Call(self._program, self.numbers)
        for memory, (number, layout) in self.memories.items():
            if memory in second.memories:
                continue
            last = self.writes.get(memory)
            if all(self.numbers.is_same_without(n, written) for n in (number, last) if n is not None):
                second.memories[memory] = number, layout
                second.writes.update({} if last is None else {memory: last})
            else:
                second.memories[memory] = self.numbers.of(("kept", memory), held=None), layout
        for node, number in self.values.items():
            if node not in second.values:
                is_same = self.numbers.is_same_without(number, written)
                second.place(node, number if is_same else self.numbers.of(("kept", node.name), held=None))
        # An argument goes by its last name: an op may give it as it is, such as broadcast_tensors.
        given = {self.values[node] for node in self._inputs}
        for node in nodes:
            if node.target is not _ANOTHER or self.values.get(node.args[0]) not in given:
                break
            second.place(node, self.values[node.args[0]])
        return second.run([node for node in nodes if node not in second.values], results)


def _key(value: Any, operand: Callable[[Node], None]) -> Any:
    """Arguments of a node without its operands, each of which is given to a function."""
    if isinstance(value, Node):
        operand(value)
        return "value"
    if isinstance(value, (list, tuple)):
        return tuple(_key(item, operand) for item in value)
    if isinstance(value, slice):
        return "slice", *(_key(item, operand) for item in (value.start, value.stop, value.step))
    if isinstance(value, Mapping):
        return tuple((name, _key(item, operand)) for name, item in value.items())
    return type(value).__name__, repr(value)


def _size_key(value: Any) -> Any:
    """A number made from sizes, which are those of the call at hand; None for anything else."""
    if not isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)) or free_unbacked_symbols(value):
        return None
    return "size", str(value.node.expr)


def _constant_key(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return "object", id(value)
    data = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
    return "constant", str(value.dtype), tuple(value.shape), data


def _type(value: torch.Tensor) -> Any:
    return value.dtype, tuple(map(_expression, value.shape))


def _layout(value: torch.Tensor) -> Any:
    """How a tensor lies in its memory."""
    places = (*value.shape, *value.stride(), value.storage_offset())
    signs = value.is_neg(), value.is_conj()
    return value.dtype, value.ndim, signs, tuple(_expression(place) for place in places)


def _expression(size: Any) -> Any:
    """Asking whether sizes are equal would tell torch that they are."""
    return size.node.expr if isinstance(size, torch.SymInt) else size


def _memory(node: Node) -> int | None:
    value = node.meta.get("val")
    is_dense = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return value.untyped_storage()._cdata if is_dense else None


def _nodes_of_bodies(module: GraphModule, node: Node) -> Iterator[Node]:
    """Those of the graphs that the node runs, and of the graphs that those run."""
    for operand in node.all_input_nodes:
        body = getattr(module, str(operand.target), None) if operand.op == "get_attr" else None
        for part in body.modules() if isinstance(body, GraphModule) else ():
            if isinstance(part, GraphModule):
                yield from part.graph.nodes


def _draws(node: Node) -> bool:
    return torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ())


def _written(node: Node) -> Iterator[Node]:
    """Operands that an op writes to."""
    if updates_statistics(node):
        yield from (n for n in node.args[3:5] if isinstance(n, Node))
    if not is_mutable(node.target):
        return
    for index, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = node.args[index] if index < len(node.args) else node.kwargs.get(argument.name)
            yield from (n for n in pytree.tree_leaves(value) if isinstance(n, Node))

"""Tracing: a Python function on SymTensors becomes a Program.

A SymTensor has a dtype and a shape, but no elements. Operators and `aicf.ops` append to the graph being
traced. A real array that meets a traced value becomes a constant; asking a traced value for its elements is
`array_in_trace`.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from . import _aicf
from ._aicf import Dim, Program
from ._dtypes import dtype_name, is_float
from ._interrupts import interrupted_between
from ._sizes import set_ranges, symbol_range
from ._specs import TensorSpec, add_inputs, is_array, name_specs, resolve_sizes
from ._structure import OUTPUT_STRUCTURE, flatten
from .errors import make_error
from .symtensor import SymTensor

__all__ = ["Graph", "TensorSpec", "Variable", "current_graph", "program_of", "trace", "tracing"]

_INT_RANGES = {"u8": range(256)} | {
    f"i{bits}": range(-(2 ** (bits - 1)), 2 ** (bits - 1)) for bits in (8, 16, 32, 64)
}


class Variable:
    """A param or state outside any trace: its contents, or only dtype and shape (then it starts as zeros).

    Inside a trace it can be used wherever a SymTensor can.
    """

    is_state = False

    def __init__(
        self, data: Any = None, *, dtype: str | None = None, shape: Sequence[int] | None = None
    ) -> None:
        if data is not None:
            found_dtype, found_shape = _aicf.array_type(data)
            if dtype is not None and dtype_name(dtype) != found_dtype:
                raise make_error(
                    "bad_dtype", "the contents have another dtype", expected=dtype, actual=found_dtype
                )
            dtype, shape = found_dtype, found_shape
        self.data = data
        self.dtype: str = dtype_name(dtype or "f32")
        self.shape: tuple[int, ...] = tuple(shape or ())

    def sym(self) -> SymTensor:
        """The value in the graph being traced."""
        return current_graph().variable(self)


class Graph:
    """A graph under construction with the params and states that it uses.

    names    paths of Variables and modules by their id.
    random   seed and step counter of random numbers (i64 states) if the graph is traced for training; layers
             that behave differently then look at `training`.
    """

    def __init__(
        self,
        name: str = "main",
        names: Mapping[int, str] | None = None,
        random: tuple[Variable, Variable] | None = None,
    ) -> None:
        self.raw = _aicf.Graph(name)
        self.training = random is not None
        self._random = random
        self._streams: list[str] = []
        self._scope: list[str] = []
        self._names = dict(names or {})  # id of a Variable → its path
        self._variables: dict[int, tuple[str, Variable]] = {}
        self._values: dict[int, SymTensor] = {}
        self._updates: dict[int, SymTensor] = {}

    def __str__(self) -> str:
        return str(self.raw)

    def input(self, name: str, shape: Sequence[int | str | Dim], dtype: str = "f32") -> SymTensor:
        return SymTensor(self, self.raw.add_input(name, dtype, shape))

    def output(self, value: Any, name: str) -> None:
        tensor = self.lift(value)
        self.raw.add_output(tensor.id, name)

    def param(self, name: str, data: Any) -> SymTensor:
        return self.declare(name, Variable(data))

    def random_bits(self, module: Any, shape: Sequence[Any]) -> SymTensor:
        """Random i32 values keyed by (seed, path of the module, how often it was called, step, index)."""
        if self._random is None:
            raise make_error("misuse", "random numbers are drawn in graphs traced for training only")
        path = self._names.get(id(module), "")
        stream = f"{path}#{self._streams.count(path)}"
        self._streams.append(path)
        seed = self.shared("rng.seed", self._random[0])
        step = self.shared("rng.step", self._random[1])
        attrs = {"shape": list(shape), "stream": zlib.crc32(stream.encode()), "dtype": "i32"}
        return self.node("random_bits", [seed, step], attrs)[0]

    def constant(self, array: Any) -> SymTensor:
        return SymTensor(self, self.raw.add_constant(array))

    def scalar(self, value: bool | int | float, dtype: str) -> SymTensor:
        return SymTensor(self, self.raw.add_scalar(dtype, value))

    def variable(self, variable: Variable) -> SymTensor:
        """The present value of a param or state, after the updates traced so far."""
        key = id(variable)
        if key in self._updates:
            return self._updates[key]
        if key not in self._values:
            if key not in self._names:
                raise make_error(
                    "array_in_trace",
                    "a parameter is used that belongs to no traced module",
                    value=f"{variable.dtype}{list(variable.shape)}",
                    remedy="trace the module that holds it, or pass the module as module=",
                )
            return self.declare(self._names[key], variable)
        return self._values[key]

    def uses(self, variable: Variable) -> bool:
        """Whether the graph reads the variable."""
        return id(variable) in self._variables

    def update(self, state: Variable, value: Any) -> None:
        """`state` holds `value` after the run; later reads in this trace see it."""
        self.variable(state)
        self._updates[id(state)] = self.lift(value)

    def lift(self, value: Any, like: SymTensor | None = None, dtype: str | None = None) -> SymTensor:
        """A SymTensor of this graph for a traced value, a Variable, a size, a number or a real array."""
        if isinstance(value, SymTensor):
            if value.graph is not self:
                raise make_error("array_in_trace", "a value of another trace was used", value=repr(value))
            return value
        if isinstance(value, Variable):
            return self.variable(value)
        dtype = dtype or (like.dtype if like is not None else None)
        if isinstance(value, Dim):
            return self.node("size_of", [], {"size": [value], "dtype": dtype or "i64"})[0]
        if isinstance(value, (bool, int, float)):
            return self.scalar(value, _scalar_dtype(value, dtype))
        if is_array(value):
            return self.constant(value)
        raise make_error(
            "array_in_trace",
            "this can be neither traced nor a constant",
            value=repr(value)[:80],
            actual=type(value).__name__,
            expected="a traced value, a number, or an array",
        )

    def node(
        self,
        op: str,
        operands: Sequence[SymTensor | None],
        attrs: Mapping[str, Any],
        bodies: Sequence[Graph] = (),
    ) -> tuple[SymTensor, ...]:
        """Results of a new node. `bodies` are graphs with inputs and outputs only, as the op wants them."""
        ids = [-1 if operand is None else operand.id for operand in operands]
        raw_bodies = [body.raw for body in bodies]
        results = self.raw.add_node(op, ids, dict(attrs), "/".join(self._scope), raw_bodies)
        return tuple(SymTensor(self, result) for result in results)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Nodes made inside carry the path as their origin."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def program(self, dims: Mapping[str, Any] | None = None) -> Program:
        """A checked Program with this graph as its entry. Each dynamic size needs a range in `dims`."""
        return program_of([self], dims)

    def finish(self) -> dict[str, Variable]:
        """Writes the updates into the graph and gives the params and states it uses, by name."""
        if self._random is not None and self._streams:
            self.update(self._random[1], self.variable(self._random[1]) + 1)
            self._streams = []
        for key, value in self._updates.items():
            self.raw.add_update(self._values[key].id, value.id)
        self._updates = {}
        return dict(self._variables.values())

    def shared(self, name: str, variable: Variable) -> SymTensor:
        """The present value of a variable, declared under the name at its first use in this graph."""
        self._names.setdefault(id(variable), name)
        return self.variable(variable)

    def declare(self, name: str, variable: Variable) -> SymTensor:
        """The value of a param or state under a name."""
        value = self.raw.add_variable(name, variable.is_state, variable.dtype, variable.shape)
        self._variables[id(variable)] = (name, variable)
        self._values[id(variable)] = SymTensor(self, value)
        return self._values[id(variable)]


def program_of(graphs: Sequence[Graph], dims: Mapping[str, Any] | None = None) -> Program:
    """A checked Program whose entries are the graphs; params and states of one name are one."""
    variables: dict[str, Variable] = {}
    for graph in graphs:
        for name, variable in graph.finish().items():
            first = variables.setdefault(name, variable)
            first.is_state = first.is_state or variable.is_state
    sizes = {name: symbol_range(name, value) for name, value in (dims or {}).items()}
    rows = [(name, v.is_state, v.dtype, v.shape, v.data) for name, v in variables.items()]
    program = _aicf.make_program(sizes, rows, [graph.raw for graph in graphs])
    set_ranges(program, dims or {})
    return program


_local = threading.local()


def current_graph() -> Graph:
    """The graph being traced on this thread; `misuse` if there is none."""
    stack = getattr(_local, "stack", [])
    if not stack:
        raise make_error(
            "misuse",
            "ops work on traced values only, and no trace is active",
            remedy="call aicf.trace or aicf.compile, or work inside `with aicf.tracing(graph):`",
        )
    return stack[-1]


@contextmanager
def tracing(graph: Graph) -> Iterator[Graph]:
    """Makes `graph` the one that ops without traced operands append to."""
    stack = _local.__dict__.setdefault("stack", [])
    stack.append(graph)
    try:
        yield graph
    finally:
        stack.pop()


@interrupted_between
def trace(
    fn: Callable[..., Any],
    specs: Sequence[Any] | Mapping[str, Any] | TensorSpec,
    *,
    dims: Mapping[str, Any] | None = None,
    module: Any = None,
) -> Program:
    """Calls `fn` once on SymTensors and gives the Program of what it computed.

    fn      a function or an `aicf.nn.Module`.
    specs   the TensorSpec of each argument, or an array like it, in order or by name.
    dims    range or value of each dynamic size by name, as in `aicf.compile`.
    module  holds the params that `fn` uses, if `fn` is not a module itself.

    Results may be nested in tuples, lists and dicts; an executable gives the same structure back.
    """
    owner = module if module is not None else fn
    names = {id(v): path for path, v in owner.named_variables()} if hasattr(owner, "named_variables") else {}
    named_specs = name_specs(fn, specs)
    fixed, ranges = resolve_sizes(named_specs.values(), dims or {})
    graph = Graph("main", names)
    with tracing(graph):
        arguments = add_inputs(graph, named_specs, fixed)
        results = fn(**arguments) if isinstance(specs, Mapping) else fn(*arguments.values())
        leaves: list[tuple[str, Any]] = []
        structure = flatten(results, leaves)
        for path, leaf in leaves:
            graph.output(leaf, _output_name(path))
    program = graph.program(ranges)
    program.metadata = {OUTPUT_STRUCTURE: json.dumps(structure)}
    return program


def _output_name(path: str) -> str:
    if not path:
        return "output"
    return f"output.{path}" if path[0].isdigit() else path


def _scalar_dtype(value: bool | int | float, dtype: str | None) -> str:
    natural = "bool" if isinstance(value, bool) else "i64" if isinstance(value, int) else "f32"
    dtype = dtype or natural
    too_large = natural == "i64" and dtype in _INT_RANGES and value not in _INT_RANGES[dtype]
    if (natural == "f32" and not is_float(dtype)) or (natural == "i64" and dtype == "bool") or too_large:
        raise make_error(
            "bad_dtype",
            "a Python number met a tensor whose dtype cannot hold it",
            value=repr(value),
            expected=f"{_INT_RANGES[dtype].start} to {_INT_RANGES[dtype].stop - 1}"
            if too_large
            else f"a number that {dtype} holds",
            actual=str(value) if too_large else type(value).__name__,
            remedy="cast the tensor with .astype first",
        )
    return dtype

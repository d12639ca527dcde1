"""A functional graph of torch's, all of whose tensors are inputs, compiled on first use.

Sizes that torch leaves symbolic get a range of ours around the size at hand; a call beyond it compiles the
graph for
a range that includes it. A graph with an op that needs its sizes when compiling is compiled for each set of
them.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
import torch

from .. import _aicf
from .._build import build
from ..errors import UserError
from ..symtensor import SymTensor
from ..tracing import Graph
from .control_flow import runs_loops
from .executable import dense
from .layout import inverse, restrided, storage_order
from .lower import Lowering
from .types import GRADIENTS, Symbols, dtype_name

__all__ = ["CompiledGraph", "device_of"]


class CompiledGraph:
    """Called with the graph's inputs, tensors and ints; gives its results as a tuple."""

    def __init__(
        self, module: torch.fx.GraphModule, options: Mapping[str, Any], trains: bool = False
    ) -> None:
        self._module = module
        self._trains = trains  # a part of a training step
        self._options = options
        self._device = options.get("device") or device_of(module)
        self._placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
        self._highest = {name: 2 * hint for name, hint in self._hints().items()}
        self._symbols = self._where_symbols_are()
        self._kept: list[int] = []
        self._orders: dict[int, tuple[int, ...]] = {}  # of inputs that are not row-major
        self._outputs: list[Any] = []
        self._per_size: dict[tuple[int, ...], _aicf.Executable] | None = None
        self._executables = []
        try:
            self._executables.append(self._compile())
        except UserError:
            if not self._symbols:
                raise
            self._per_size = {}
            self._compile(self._hints())  # what no fixed size helps is an error now

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        tensors = tuple(self._tensor(args, i) for i in self._kept)
        results = iter(self._run(args, tensors))
        return tuple(
            self._placed(next(results), value, args)
            if isinstance(value, _Result)
            else self._number(value, args)
            for value in self._outputs
        )

    def _run(self, args: tuple[Any, ...], tensors: tuple[Any, ...]) -> Any:
        if self._per_size is not None:
            values = self._values(args)
            key = tuple(values.values())
            if key not in self._per_size:
                self._per_size[key] = self._compile(values)
            return self._run_on(self._per_size[key], tensors)
        for executable in self._executables:
            try:
                return self._run_on(executable, tensors)
            except UserError as error:
                if error.name != "size_out_of_range":
                    raise
        for name, value in self._values(args).items():
            self._highest[name] = max(self._highest[name], 2 * value)
        self._executables.insert(0, self._compile())
        return self._run_on(self._executables[0], tensors)

    def _run_on(self, executable: _aicf.Executable, tensors: tuple[Any, ...]) -> Any:
        if self._device == "cpu":
            return executable.run("", tensors, {}, torch.Tensor)
        return executable.run("", tuple(map(dense, tensors)), {}, torch.Tensor, True)

    def _tensor(self, args: tuple[Any, ...], index: int) -> torch.Tensor:
        value = args[index]
        if isinstance(value, torch.Tensor):
            order = self._orders.get(index)
            return value if order is None else value.permute(order)
        return torch.empty((value, 0))  # binds a size that no tensor has

    # --- sizes

    def _hints(self) -> dict[str, int]:
        hints: dict[str, int] = {}
        for node in self._placeholders:
            value = node.meta.get("val")
            sizes = value.shape if isinstance(value, torch.Tensor) else [value]
            for size in sizes:
                if isinstance(size, torch.SymInt):
                    for symbol in size.node.expr.free_symbols:
                        hint = size.node.shape_env.backed_var_to_val.get(symbol)
                        hints[str(symbol)] = max(int(hint) if hint is not None else 1, 1)
        return hints

    def _where_symbols_are(self) -> dict[str, tuple[int, int | None]]:
        """Input and axis, or an int input, that is exactly the symbol."""
        places: dict[str, tuple[int, int | None]] = {}
        for index, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            sizes = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
            for axis, size in sizes:
                if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                    places.setdefault(str(size.node.expr), (index, axis))
        return places

    def _values(self, args: tuple[Any, ...]) -> dict[str, int]:
        return {
            name: int(args[i] if axis is None else args[i].shape[axis])
            for name, (i, axis) in self._symbols.items()
        }

    def _number(self, value: Any, args: tuple[Any, ...]) -> Any:
        if not isinstance(value, torch.SymInt):
            return value
        values = self._values(args)
        return int(value.node.expr.subs({s: values[str(s)] for s in value.node.expr.free_symbols}))

    def _placed(self, result: torch.Tensor, wanted: _Result, args: tuple[Any, ...]) -> torch.Tensor:
        """A result where and as torch expects it: it takes views of some by their strides."""
        if wanted.device is not None and wanted.device.type != result.device.type:
            result = result.to(wanted.device)
        if wanted.strides is None:
            return result
        strides = [self._number(stride, args) for stride in wanted.strides]
        if wanted.order is not None:
            return restrided(result, wanted.order, strides)
        if 0 in strides:  # an expanded tensor: no view of torch's is taken by its strides
            return result
        return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device).copy_(
            result
        )

    # --- compiling

    def _compile(self, values: dict[str, int] | None = None) -> _aicf.Executable:
        """For the ranges of the sizes, or for these values of them."""
        symbols = Symbols(values=values)
        graph = Graph("main")
        lowering = Lowering(graph, symbols, loops=runs_loops(self._device, self._options))
        inputs: list[Any] = []
        self._kept = []
        alone = {name: i for name, (i, axis) in self._symbols.items() if axis is None}
        for index, node in enumerate(self._placeholders):
            value = node.meta.get("val")
            if isinstance(value, torch.Tensor):
                inputs.append(self._input(graph, index, node.name, value, symbols))
                self._kept.append(index)
                continue
            inputs.append(symbols.size(value) if isinstance(value, torch.SymInt) else value)
            if isinstance(value, torch.SymInt) and alone.get(str(value.node.expr)) == index:
                graph.input(node.name, [symbols.size(value), 0], "f32")
                self._kept.append(index)
        results = lowering.run(self._module, inputs)
        self._write_outputs(graph, results if isinstance(results, (tuple, list)) else [results])
        ranges = {} if values else {name: (0, highest) for name, highest in self._highest.items()}
        options = self._options
        program = graph.program(ranges)
        if self._trains:
            program.metadata = {GRADIENTS: ""}
        executable = build(program, self._device, options.get("threads"), options)
        if "rng.seed" in executable.state_names():
            seed = (torch.initial_seed() + next(_streams)) % 2**62
            executable.load_weights({"rng.seed": numpy.array(seed, dtype="int64")})
        return executable

    def _input(self, graph: Graph, index: int, name: str, value: torch.Tensor, symbols: Symbols) -> SymTensor:
        shape, order = symbols.shape(value.shape), storage_order(value)
        if order is None:
            return graph.input(name, shape, dtype_name(value.dtype))
        self._orders[index] = order
        stored = graph.input(name, [shape[axis] for axis in order], dtype_name(value.dtype))
        return stored.transpose(inverse(order))

    def _write_outputs(self, graph: Graph, results: Any) -> None:
        output = next(node for node in self._module.graph.nodes if node.op == "output").args[0]
        nodes = list(output) if isinstance(output, (tuple, list)) else [output]
        self._outputs = []
        for index, (node, value) in enumerate(zip(nodes, results, strict=True)):
            fake = node.meta.get("val") if isinstance(node, torch.fx.Node) else node
            if isinstance(value, SymTensor):
                tensor = fake if isinstance(fake, torch.Tensor) else None
                order = None if tensor is None else storage_order(tensor)
                stored = value if order is None else value.transpose(order)
                graph.output(stored, f"output.{index}")
                row_major = tensor is None or tensor.is_contiguous()
                self._outputs.append(
                    _Result(
                        None if tensor is None else tensor.device,
                        order,
                        None if row_major else tensor.stride(),
                    )
                )
            else:
                self._outputs.append(fake)


@dataclass(frozen=True)
class _Result:
    """A tensor of ours: the device that torch expects it on; of one that is not row-major its strides and, if
    that is all, the order of its axes in memory.
    """

    device: torch.device | None
    order: tuple[int, ...] | None
    strides: Any


def device_of(module: torch.fx.GraphModule) -> str:
    """The GPU that a graph's tensors are on, else the CPU."""
    for node in module.graph.nodes:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.is_cuda:
            return f"cuda:{value.device.index or 0}"
    return "cpu"


_streams = itertools.count()  # graphs of one seed draw different numbers

"""A torch.export program becomes a Program of ours.

Parameters and buffers become params under their module path, buffers that the model writes become states with
an
update, tied weights stay one param, other tensors held by the model become constants.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind, TensorArgument
from torch.utils import _pytree as pytree

from .._aicf import Dim, Program
from .._progress import stage
from .._sizes import symbol_range
from .._structure import OUTPUT_STRUCTURE
from ..errors import make_error
from ..nn.module import Parameter, State
from ..symtensor import SymTensor
from ..tracing import Graph, Variable, program_of
from .decompose import STATISTICS, is_mutable, table, updates_statistics
from .exclusive import exclusive
from .function import OWNER
from .gradients import DERIVATIVES
from .lower import Lowering
from .memory import raise_if_memory_ran_out
from .objects import Opened
from .paths import leaf_paths
from .source import line_of_node
from .types import GRADIENTS, Symbols, dtype_name, require_dense

__all__ = [
    "ImportedModel",
    "Weights",
    "export_structure",
    "functional",
    "import_entries",
    "import_program",
    "symbol_ranges",
]


class Weights:
    """Params and states of a model, made once for all its entries; equal storage is one variable."""

    def __init__(self, prefix: str = "") -> None:
        self.prefix = prefix  # of names in the exported programs, not of ours
        self.variables: dict[str, Variable] = {}
        self.aliases: dict[str, str] = {}  # tied name → name of the param
        self._by_storage: dict[Any, str] = {}

    def add(self, name: str, tensor: torch.Tensor, is_state: bool) -> str:
        """The name under which the tensor is held."""
        require_dense(tensor, name)
        dtype_name(tensor.dtype)
        key = (tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tensor.stride())
        if name in self.aliases:
            return self.aliases[name]
        if name in self.variables:
            self.variables[name].is_state |= is_state
            return name
        tied = self._by_storage.get(key) if tensor.numel() and not is_state else None
        if tied is not None:
            self.aliases[name] = tied
            return tied
        data = tensor.detach().cpu().contiguous()
        self.variables[name] = (State if is_state else Parameter)(data)
        if tensor.numel() and not is_state:
            self._by_storage[key] = name
        return name


@dataclass
class ImportedModel:
    """A Program with what is needed to call it like the module."""

    program: Program
    unused: set[str]  # names of the module's state dict that the Program does not hold: tied or never read
    tied: dict[str, str]  # those of them that are tied → the name that the Program holds
    in_spec: Any
    out_spec: Any
    inputs: list[str]
    kept_inputs: list[int]  # leaves of the arguments that are inputs of the Program
    constant_outputs: dict[int, Any] = field(default_factory=dict)  # leaves of the result that are no tensors
    fixed_inputs: dict[int, Any] = field(default_factory=dict)  # leaves of the arguments that are no tensors
    positional: list[str] = field(default_factory=list)  # names of forward's arguments in order
    variables: dict[str, Variable] = field(default_factory=dict)  # params and states of the Program


def functional(exported: ExportedProgram) -> ExportedProgram:
    """The program without writes to its tensors and torch.func; torch rewrites it where there are any."""
    nodes = [
        n
        for m in exported.graph_module.modules()
        if isinstance(m, torch.fx.GraphModule)
        for n in m.graph.nodes
    ]
    if not any(_writes(node) or _is_transform(node) for node in nodes):
        return exported
    keep = dict(table())
    # What torch differentiates as one op stays one: its parts have another derivative, NaN at sinc(0).
    decompositions = {
        op: f
        for op, f in torch.export.default_decompositions().items()
        if (op in keep or str(op).split(".")[1] in STATISTICS) and str(op) not in DERIVATIVES
    }
    try:
        return exported.run_decompositions(decompositions)
    except Exception as error:  # torch has dozens of types for what it cannot do
        raise_if_memory_ran_out(error)
        constant = re.match(r"Constant (\S+) is mutated", str(error))
        if constant is not None:
            raise make_error(
                "unsupported_op",
                "the model writes to a tensor that is no buffer",
                value=constant[1],
                remedy="self.register_buffer(name, tensor) in __init__ makes it a state",
            ) from error
        raise make_error(
            "unsupported_op",
            f"torch could not make the model functional: {str(error).strip().splitlines()[0]}"[:300],
            op=type(error).__name__,
            value=next((line_of_node(n) for n in nodes if _is_transform(n)), ""),
            remedy="write the model without torch.func transforms and without writes to tensors",
        ) from error


def _is_transform(node: torch.fx.Node) -> bool:
    """A step of torch.func (vmap, jacrev), which torch carries out while it makes a graph functional."""
    return getattr(node.target, "__module__", "") == "torch._functorch.predispatch"


def _writes(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and (is_mutable(node.target) or updates_statistics(node))


@exclusive
def import_entries(
    exported: Mapping[str, ExportedProgram],
    names: Sequence[Mapping[str, str]],
    ranges: Mapping[str, tuple[int, int]],
    finish: Callable[[Graph, Sequence[Any]], None] | None = None,
    prefix: str = "",
    loops: bool = True,
    seed: int = 0,
    inputs: Sequence[Sequence[str]] | None = None,
) -> ImportedModel:
    """One Program with an entry for each exported program; what they share by name they hold once.

    `finish` writes the outputs of the first entry, which is a loss then, from its results. `prefix` is taken
    off the names of what a program holds. `loops` says whether the device runs loops, `seed` is that of
    random numbers. `inputs` are the names of each entry's inputs, if not those that torch gave.
    """
    stage("import", 0.5)
    pure = {entry: functional(program) for entry, program in exported.items()}
    written = set().union(*(_written(program) for program in pure.values()))
    weights = Weights(prefix)
    written = {name.removeprefix(prefix) for name in written}
    graphs, models = [], []
    for index, ((entry, program), symbols) in enumerate(zip(pure.items(), names, strict=True)):
        trains = finish is not None and not graphs
        lowering = Lowering(Graph(entry), Symbols(symbols, ranges=ranges), None, loops, trains, seed)
        given = None if inputs is None else list(inputs[index])
        graph, model = _import_entry(program, given, lowering, weights, written, None if graphs else finish)
        graphs.append(graph)
        models.append(model)
    stage("import", 0.8)
    first = models[0]
    first.program = program_of(graphs, ranges)
    held = {*weights.variables}
    names_of_model = {name.removeprefix(prefix) for p in exported.values() for name in p.state_dict}
    first.unused = names_of_model - held
    first.tied, first.variables = weights.aliases, weights.variables
    structure = export_structure(first)
    metadata = {} if structure is None else {OUTPUT_STRUCTURE: json.dumps(structure)}
    if weights.aliases:
        metadata["aicf.torch.tied"] = json.dumps(weights.aliases)
    if any(_is_backward(node) for program in pure.values() for node in program.graph.nodes):
        metadata[GRADIENTS] = ""
    first.program.metadata = metadata
    return first


def _is_backward(node: torch.fx.Node) -> bool:
    return node.op == "call_function" and "_backward" in str(node.target)


def import_program(exported: ExportedProgram, dims: Mapping[str, Any] | None = None) -> Program:
    """A Program from a torch.export program; its sizes keep torch's names and ranges unless `dims` gives
    others.
    """
    return import_entries({"main": exported}, [{}], symbol_ranges(exported, dims)).program


def symbol_ranges(
    exported: ExportedProgram, dims: Mapping[str, Any] | None = None
) -> dict[str, tuple[int, int]]:
    """Ranges of torch's size symbols, or those given for them."""
    given = {name: symbol_range(name, value) for name, value in (dims or {}).items()}
    symbols = [str(symbol) for symbol in exported.range_constraints if symbol.is_Symbol]
    if set(given) - set(symbols):
        raise make_error(
            "bad_option",
            "dims names a size that the exported program does not have",
            value=", ".join(sorted(set(given) - set(symbols))),
            expected=", ".join(symbols) or "none: its sizes are fixed",
            remedy="give the names that torch.export gave, or compile the module itself with dims",
        )
    return {
        str(symbol): given.get(str(symbol)) or _span(span)
        for symbol, span in exported.range_constraints.items()
        if symbol.is_Symbol
    }


def _span(span: Any) -> tuple[int, int]:
    try:
        return int(span.lower), min(int(span.upper), 2**31 - 1)
    except (TypeError, ValueError, OverflowError):
        raise make_error(
            "unset_size",
            "a dynamic size has no upper bound",
            value=str(span),
            remedy='export with torch.export.Dim("batch", min=1, max=64), or give the range in dims',
        ) from None


def _written(exported: ExportedProgram) -> set[str]:
    """Buffers and parameters that the program updates."""
    signature = exported.graph_signature
    return {*signature.buffers_to_mutate.values(), *getattr(signature, "parameters_to_mutate", {}).values()}


def _import_entry(
    exported: ExportedProgram,
    given: list[str] | None,
    lowering: Lowering,
    weights: Weights,
    mutated: set[str],
    finish: Callable[[Graph, Sequence[Any]], None] | None,
) -> tuple[Graph, ImportedModel]:
    signature = exported.graph_signature
    graph, symbols = lowering.graph, lowering.symbols
    placeholders = [n for n in exported.graph.nodes if n.op == "placeholder"]
    _refuse_written_inputs(exported)
    values: list[Any] = []
    inputs: list[str] = []
    kept: list[int] = []
    fixed: dict[int, Any] = {}
    leaf = 0
    held: dict[str, tuple[str, Variable]] = {}
    for spec, node in zip(signature.input_specs, placeholders, strict=True):
        if spec.kind == InputKind.USER_INPUT:
            is_tensor = isinstance(node.meta.get("val"), torch.Tensor)
            name = given.pop(0) if given and is_tensor else node.name
            value = _input(graph, symbols, node, name)
            if isinstance(value, SymTensor):
                kept.append(leaf)
                inputs.append(name)
            else:
                fixed[leaf] = value
            leaf += 1
        elif weights.prefix == f"{OWNER}." and not node.users and not _is_written(spec, weights, mutated):
            value = None  # of a module that a function names, a part that it does not use
        else:
            value = _held(graph, exported, spec, mutated, weights, held)
        values.append(value)
    results = lowering.run(exported.graph_module, values)
    constants = _write_results(graph, exported, results, held, finish)
    spec = exported.call_spec
    model = ImportedModel(None, set(), {}, spec.in_spec, spec.out_spec, inputs, kept, constants, fixed)  # type: ignore[arg-type]
    return graph, model


def _is_written(spec: Any, weights: Weights, mutated: set[str]) -> bool:
    return str(spec.target).removeprefix(weights.prefix) in mutated


def _input(graph: Graph, symbols: Symbols, node: torch.fx.Node, name: str) -> Any:
    value = node.meta.get("val")
    if isinstance(value, torch.Tensor):
        require_dense(value, name)
        return graph.input(name, symbols.shape(value.shape), dtype_name(value.dtype))
    return symbols.size(value) if isinstance(value, torch.SymInt) else value


def _held(
    graph: Graph,
    exported: ExportedProgram,
    spec: Any,
    mutated: set[str],
    weights: Weights,
    held: dict[str, tuple[str, Variable]],
) -> Any:
    if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
        source = exported.state_dict if spec.target in exported.state_dict else exported.constants
        tensor = source[spec.target]
        is_state = _is_written(spec, weights, mutated)
        if spec.kind == InputKind.BUFFER and spec.persistent is False and not is_state:
            return graph.constant(tensor.detach().cpu().contiguous())
        name = weights.add(spec.target.removeprefix(weights.prefix), tensor, is_state)
        variable = weights.variables[name]
        held[spec.target] = name, variable
        return graph.shared(name, variable)
    if spec.kind == InputKind.CONSTANT_TENSOR:
        return graph.constant(exported.constants[spec.target].detach().cpu().contiguous())
    raise make_error(
        "unsupported_op",
        f"the model takes a {spec.kind.name.lower()} that is no tensor",
        value=str(spec.target),
        remedy="compute with tensors only",
    )


def _refuse_written_inputs(exported: ExportedProgram) -> None:
    written = exported.graph_signature.user_inputs_to_mutate
    if not written:
        return
    node = next((n for n in exported.graph.nodes if n.name in written), None)
    raise make_error(
        "unsupported_op",
        "the model writes to an input in place",
        op=", ".join(written.values()),
        value=line_of_node(node) if node is not None else "",
        remedy="write x = x + 1 instead of x += 1, or clone the input first",
    )


def _write_results(
    graph: Graph,
    exported: ExportedProgram,
    results: Sequence[Any],
    held: Mapping[str, tuple[str, Variable]],
    finish: Callable[[Graph, Sequence[Any]], None] | None,
) -> dict[int, Any]:
    constants: dict[int, Any] = {}
    index = 0
    specs = exported.graph_signature.output_specs
    if finish is not None:
        pairs = list(zip(specs, results, strict=True))
        finish(graph, [value for spec, value in pairs if spec.kind == OutputKind.USER_OUTPUT])
    names = _output_names(exported)
    for spec, value in zip(specs, results, strict=True):
        if spec.kind in (OutputKind.BUFFER_MUTATION, getattr(OutputKind, "PARAMETER_MUTATION", None)):
            graph.update(held[spec.target][1], value)
        elif spec.kind == OutputKind.USER_OUTPUT and finish is not None:
            continue
        elif spec.kind == OutputKind.USER_OUTPUT:
            if isinstance(value, SymTensor) and isinstance(spec.arg, TensorArgument):
                graph.output(value, names[index])
            elif isinstance(value, (SymTensor, torch.SymInt, torch.SymFloat, torch.SymBool, Dim)):
                raise make_error(
                    "unsupported_op",
                    "a result is a number that depends on the input",
                    value=str(value),
                    remedy="return it as a tensor",
                )
            else:
                constants[index] = value
            index += 1
        elif spec.kind != OutputKind.TOKEN:
            raise make_error(
                "unsupported_op",
                "the model has a result of a kind that AICF does not have",
                value=str(spec.kind),
            )
    return constants


def _output_names(exported: ExportedProgram) -> list[str]:
    spec = exported.call_spec.out_spec
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    names = []
    for keys, _ in leaf_paths(tree):
        path = ".".join(keys)
        names.append("output" if not path else f"output.{path}" if path[0].isdigit() else path)
    return names


def export_structure(model: ImportedModel) -> Any:
    """The result's structure for users without torch: tuples, lists and dicts of the outputs' indices."""
    leaves = iter(range(model.out_spec.num_leaves))
    indices = [None if i in model.constant_outputs else i for i in leaves]
    numbers: list[Any] = []
    for i in indices:
        numbers.append(None if i is None else sum(j is not None for j in indices[:i]))
    tree = pytree.tree_unflatten(numbers, model.out_spec)
    return _plain(tree)


def _plain(tree: Any) -> Any:
    if tree is None or isinstance(tree, int):
        return tree
    if isinstance(tree, Opened):
        return {"dict": {path: _plain(item) for path, item in zip(tree.paths, tree.tensors, strict=True)}}
    if isinstance(tree, Mapping):
        return {"dict": {str(key): _plain(item) for key, item in tree.items() if item is not None}}
    if isinstance(tree, (tuple, list)):
        return {"list" if isinstance(tree, list) else "tuple": [_plain(item) for item in tree]}
    leaves = pytree.tree_leaves(tree)
    return {"tuple": [_plain(item) for item in leaves]}

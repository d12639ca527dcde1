"""A module and example arguments become a torch.export program, with torch's complaints in our words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export import _trace as _torch_export
from torch.nn.parameter import UninitializedTensorMixin
from torch.utils import _pytree as pytree

from .._progress import stage
from ..errors import Error, make_error
from ..tracing import TensorSpec
from .assigned import Calls, assignments_written, first_call, refusal
from .averaged_norms import averaged_norms
from .decompose import masks_as_given, plain_attention, values_unchecked, without_mkldnn
from .dims import DynamicDims, named_leaves, parse_dims, positional_names
from .exclusive import exclusive
from .function import as_module
from .memory import raise_if_memory_ran_out
from .objects import objects_opened, opened
from .plain_writes import plain_writes_as_values
from .quiet import torch_quiet
from .recurrent import whole_recurrent_layers
from .size_guards import export_over_ranges
from .source import line_of_error, lines_of_functions
from .types import DATA_DECIDES, require_dense
from .unit_draws import known_draws

__all__ = ["export", "split_inputs"]


def split_inputs(inputs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Example arguments: a tensor, a tuple in order, or a dict by name."""
    if isinstance(inputs, Mapping):
        wrong = [name for name in inputs if not isinstance(name, str)]
        if wrong:
            raise _no_arguments("a name of an argument is a text", repr(wrong[0]))
        return (), dict(inputs)
    if isinstance(inputs, torch.Tensor):
        return (inputs,), {}
    if inputs is None:
        raise make_error(
            "missing_input",
            "a torch module is compiled from example arguments",
            remedy="aicf.compile(model, (x,)), or a dict by name",
        )
    if not isinstance(inputs, (tuple, list)):
        raise _no_arguments("example arguments are a tuple in order, or a dict by name", repr(inputs))
    return tuple(inputs), {}


def _no_arguments(message: str, actual: str, example: str = "x") -> Error:
    return make_error(
        "bad_option",
        message,
        op="inputs",
        actual=actual[:80],
        remedy=f'aicf.compile(model, ({example},)), or by name: aicf.compile(model, {{"x": {example}}})',
    )


@exclusive
def export(
    model: Any, inputs: Any, dims: Mapping[str, Any] | None = None, prefix: str = ""
) -> tuple[ExportedProgram, dict[str, str], dict[str, tuple[int, int]]]:
    """The program of a module or function, our names of its size symbols, and the sizes' ranges.

    Names in errors are told without `prefix`.
    """
    model = as_module(model)
    given = split_inputs(inputs)
    if any(isinstance(leaf, TensorSpec) for leaf in pytree.tree_leaves(given)):
        raise _no_arguments(
            "a torch module is compiled from torch tensors", "a TensorSpec", "torch.zeros(2, 3)"
        )
    args, kwargs = opened(given)
    dynamic = parse_dims(model, args, kwargs, dims)
    leaves, spec = pytree.tree_flatten((args, kwargs))
    for name, leaf in named_leaves(model, args, kwargs):
        _check_example(name, leaf)
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if not isinstance(tensor, UninitializedTensorMixin):
            require_dense(tensor, name.removeprefix(prefix))
    args, kwargs = pytree.tree_unflatten(dynamic.examples(leaves), spec)
    shapes = _dynamic_shapes(dynamic, spec, model)
    stage("trace", 0.0)
    calls = Calls(prefix)
    try:
        program = _trace(model, args, kwargs, shapes, calls)
    except Error as error:
        if error.name == "unsupported_op" or not calls.are_two:
            raise
        _trace(model, args, kwargs, shapes, Calls(prefix, again=False))  # where the first call is at fault
        raise refusal(calls) from error
    program = plain_writes_as_values(first_call(program, calls))
    return program, _symbol_names(program, dynamic, model, args, kwargs), dynamic.ranges


def _trace(model: Any, args: Any, kwargs: Any, shapes: Any, calls: Calls) -> ExportedProgram:
    leaves = pytree.tree_leaves((args, kwargs))
    try:
        with ExitStack() as ways:
            for way in (
                torch_quiet,
                without_mkldnn,
                masks_as_given,
                values_unchecked,
                whole_recurrent_layers,
                averaged_norms,
                known_draws,
                lines_of_functions,
                _graphs_unprinted,
            ):
                ways.enter_context(way())
            ways.enter_context(objects_opened(model))
            ways.enter_context(assignments_written(model, calls))
            ways.enter_context(plain_attention([*model.parameters(), *leaves]))
            return export_over_ranges(model, args, kwargs, shapes)
    except Error:
        raise
    except Exception as error:  # torch has dozens of types for what a model does wrong
        raise_if_memory_ran_out(error)
        raise _explained(error, _gives_cache(model, kwargs)) from error


@contextmanager
def _graphs_unprinted() -> Iterator[None]:
    """torch.export prints the graph so far before it raises; our error names the line."""
    _torch_export.print = lambda *_, **__: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del _torch_export.print  # type: ignore[attr-defined]


def _dynamic_shapes(dynamic: DynamicDims, spec: Any, model: Any) -> Any:
    """As torch.export wants it: in the order of forward's signature, what goes to its *args as one tuple."""
    if not dynamic.ranges:
        return None
    by_position, by_name = dynamic.shapes(spec)
    if by_name:
        return by_name
    plain = len(positional_names(model))
    rest = tuple(by_position[plain:])
    return (*by_position[:plain], rest) if rest else tuple(by_position)


def _check_example(name: str, leaf: Any) -> None:
    if isinstance(leaf, torch.Tensor):
        require_dense(leaf, name)
    elif hasattr(leaf, "__dlpack__"):
        raise make_error(
            "bad_option",
            "a torch module is compiled from torch tensors",
            op=name,
            actual=f"{type(leaf).__module__}.{type(leaf).__name__}",
            remedy="give torch.from_numpy(x) or torch.from_dlpack(x)",
        )


def _symbol_names(
    program: ExportedProgram, dynamic: DynamicDims, model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> dict[str, str]:
    """torch's symbols under the names the user gave to the axes."""
    users = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    nodes = [n for n in program.graph.nodes if n.op == "placeholder" and n.name in users]
    names: dict[str, str] = {}
    for node, axes in zip(nodes, dynamic.axes, strict=True):
        for axis, length in axes.items():
            size = node.meta["val"].shape[axis]
            symbols = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
            names.update((str(symbol), length.name) for symbol in symbols)
    return names


_DATA_DEPENDENT = (
    "GuardOnDataDependentSymNode",
    "data-dependent",
    "Could not guard",
    "DynamicOutputShapeException",
)


# What torch says, what it means, and what to do.
_CAUSES = (
    (
        "uninitialized parameter",
        "a lazy module has no weights yet",
        "call the model once before it is compiled",
    ),
    (
        "ScriptModule",
        "torch.export does not take what torch.jit made",
        "compile the nn.Module that was scripted or traced",
    ),
    (
        "torch.classes.quantized",
        "the model holds packed weights of torch's quantised layers",
        "compile the model as it was before, or export it to ONNX with QuantizeLinear and DequantizeLinear",
    ),
    (
        "aten._ctc_loss",
        "torch.export does not follow the CTC loss, whose shapes depend on the values of lengths",
        'take the loss in torch: torch.compile(model, backend="aicf") trains the model',
    ),
    (
        "Did not find a flatten_with_keys_fn",
        "an argument is of a class that was registered with torch without names of its parts",
        "give its tensors, or a tuple, list or dict of them",
    ),
    (
        "in output, which is not a known type",
        "a result is of a class whose tensors torch does not know",
        "return a tuple, list or dict, or call torch.export.register_dataclass(Class) first",
    ),
    (
        "fake tensor in the exported program constant's list",
        "the model writes to the .data of a tensor that it computed",
        "write to the tensor itself, as in x = x.clamp(min=0)",
    ),
)


def _gives_cache(model: Any, kwargs: Mapping[str, Any]) -> bool:
    """Whether this is a model of transformers that gives its cache, and the call does not leave it out."""
    return getattr(getattr(model, "config", None), "use_cache", None) is True and "use_cache" not in kwargs


def _explained(error: Exception, gives_cache: bool = False) -> Error:
    text = f"{type(error).__name__}: {error}"
    line = line_of_error(error)
    first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    for mark, message, remedy in _CAUSES:
        if mark in str(error):
            return make_error(
                "unsupported_op",
                message,
                op=type(error).__name__,
                value=line,
                actual=first[:200],
                remedy=remedy,
            )
    if any(mark in text for mark in _DATA_DEPENDENT):
        return make_error(
            "unsupported_op",
            "the model's control flow or shapes depend on the values of a tensor",
            value=line,
            actual=first,
            remedy=DATA_DECIDES,
        )
    if "Constraints violated" in text or "not all values" in text or "specialized" in text:
        return make_error(
            "size_not_static",
            "the model does not run at every size of the declared range",
            value=line,
            actual=" ".join(str(error).split())[:400],
            remedy="narrow the range in dims, or leave the axis out of it"
            + ('; or give "use_cache": False: a window cuts the cache of a long text' if gives_cache else ""),
        )
    return make_error(
        "unsupported_op",
        f"torch.export could not follow the model: {first}"[:300],
        op=type(error).__name__,
        value=line,
        remedy="see that the model runs in torch with these arguments; if so, write this line with other "
        "functions, which torch.export.export follows",
    )

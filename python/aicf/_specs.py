"""What the inputs of a trace are: dtypes, shapes, names, and which of their sizes are dynamic."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from . import _aicf
from ._aicf import Dim
from ._dtypes import dtype_name
from ._sizes import dim_texts
from .errors import make_error

if TYPE_CHECKING:
    from .symtensor import SymTensor
    from .tracing import Graph

__all__ = ["CallSpecs", "TensorSpec", "add_inputs", "is_array", "name_specs", "resolve_sizes", "spec_of"]


@dataclass(frozen=True)
class TensorSpec:
    """Dtype and shape of an input; a size is a number, the name of a dynamic size, or a Dim."""

    shape: Sequence[int | str | Dim]
    dtype: str = "f32"
    name: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", dtype_name(self.dtype))
        several = isinstance(self.shape, Iterable) and not isinstance(self.shape, (str, Dim))
        sizes = list(self.shape) if several else [self.shape]
        plain = [size.__index__() if hasattr(size, "__index__") else size for size in sizes]
        legal = all(isinstance(s, (str, Dim)) or (type(s) is int and s >= 0) for s in plain)
        if not legal or not several:
            raise make_error(
                "bad_option",
                "this is not a shape",
                value=repr(self.shape),
                expected='a list of sizes: numbers not below 0, names such as "batch", or Dims',
            )
        object.__setattr__(self, "shape", tuple(plain))


@dataclass(frozen=True)
class CallSpecs:
    """Of a call: its inputs by name, and whether the caller gives them by the names of the arguments."""

    specs: dict[str, TensorSpec]
    by_name: bool

    def call(self, fn: Callable[..., Any], values: Mapping[str, Any]) -> Any:
        return fn(**values) if self.by_name else fn(*values.values())


def name_specs(fn: Callable[..., Any], specs: Any) -> dict[str, TensorSpec]:
    """By the names of the function's arguments; each argument without a default needs one."""
    parameters = _parameters(fn)
    if isinstance(specs, Mapping):
        _check_names(fn, parameters, specs)
        named = {name: spec_of(spec) for name, spec in specs.items()}
    else:
        named = {}
        names = list(parameters)
        given = [specs] if isinstance(specs, TensorSpec) or is_array(specs) else specs
        for index, spec in enumerate(map(spec_of, given)):
            name = spec.name or (names[index] if index < len(names) else f"x{index}")
            if name in named:
                name = f"{name}.{index}"
            named[name] = spec
    needed = [name for name, parameter in parameters.items() if parameter.default is parameter.empty]
    missing = [n for n in needed if n not in named] if isinstance(specs, Mapping) else needed[len(named) :]
    if missing:
        raise make_error(
            "bad_option",
            "arguments have neither a TensorSpec nor a default",
            value=", ".join(missing),
            remedy="give the dtype and shape of each as inputs",
        )
    return named


def spec_of(given: Any) -> TensorSpec:
    """A TensorSpec as it is, or that of an array."""
    if isinstance(given, TensorSpec):
        return given
    if not is_array(given):
        raise make_error(
            "bad_option",
            "an argument's dtype and shape are not known",
            value=repr(given)[:80],
            expected="an aicf.TensorSpec, or an array as an example",
        )
    dtype, shape = _aicf.array_type(given)
    return TensorSpec(shape, dtype)


def resolve_sizes(
    specs: Iterable[TensorSpec], dims: Mapping[str, Any]
) -> tuple[dict[str, int], dict[str, str]]:
    """Sizes with one value, which become numbers, and the ranges of the rest; together all that specs use."""
    texts = dim_texts(dims)
    fixed = {name: int(text) for name, text in texts.items() if text.strip().isdigit()}
    ranges = {name: text for name, text in texts.items() if name not in fixed}
    _check_sizes(_symbols(specs), set(fixed), set(ranges))
    return fixed, ranges


def add_inputs(
    graph: Graph, specs: Mapping[str, TensorSpec], fixed: Mapping[str, int]
) -> dict[str, SymTensor]:
    """The inputs of a graph by name."""

    def size_of(size: int | str | Dim) -> Any:
        return size if isinstance(size, int) else _aicf.substitute(size, dict(fixed))

    return {
        name: graph.input(name, [size_of(size) for size in spec.shape], spec.dtype)
        for name, spec in specs.items()
    }


def is_array(value: Any) -> bool:
    """Whether it has elements in memory: DLPack or the buffer protocol."""
    if hasattr(value, "__dlpack__"):
        return True
    if isinstance(value, (str, bytes, bytearray)):
        return False
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _parameters(fn: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Those that can be given by position or name; none if they cannot be known."""
    try:
        found = inspect.signature(getattr(fn, "forward", fn)).parameters
    except (TypeError, ValueError):
        return {}
    return {k: p for k, p in found.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def _check_names(fn: Callable[..., Any], parameters: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """What is given by name is passed by name."""
    try:
        kinds = {p.kind for p in inspect.signature(getattr(fn, "forward", fn)).parameters.values()}
    except (TypeError, ValueError):
        return
    unknown = [str(name) for name in given if name not in parameters]
    if unknown and inspect.Parameter.VAR_KEYWORD not in kinds:
        raise make_error(
            "bad_option",
            "the model has no argument of this name",
            value=", ".join(unknown),
            expected=", ".join(parameters),
            remedy="name its arguments, or give a list in their order",
        )


def _check_sizes(used: set[str], fixed: set[str], ranged: set[str]) -> None:
    unknown, unset = (fixed | ranged) - used, used - fixed - ranged
    if unknown:
        raise make_error(
            "bad_option",
            "dims names sizes that no input has",
            value=", ".join(sorted(unknown)),
            expected=", ".join(sorted(used)) or "none",
        )
    if unset:
        raise make_error(
            "unset_size",
            "dynamic sizes have neither a value nor a range",
            value=", ".join(sorted(unset)),
            remedy='give each in dims, such as dims={"batch": "1..8"}',
        )


def _symbols(specs: Iterable[TensorSpec]) -> set[str]:
    names: set[str] = set()
    for spec in specs:
        for size in spec.shape:
            if not isinstance(size, int):
                names.update((size if isinstance(size, Dim) else Dim(size)).symbols)
    return names

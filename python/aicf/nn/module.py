"""Modules: params, states and submodules by attribute; a param is named by its path (`layers.3.attn.q.W`)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from .. import _aicf
from .._files import load_safetensors, save_safetensors
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import Variable, current_graph

__all__ = ["Module", "ModuleList", "Parameter", "Sequential", "State"]

_BINARY = ("add sub mul truediv floordiv mod pow matmul and or xor lshift rshift").split()
_COMPARE = "lt le gt ge".split()


class Parameter(Variable):
    """A trained weight. `data` is any array of the CPU; in a trace the parameter acts as a traced value."""


class State(Variable):
    """What lives from one run to the next (a KV cache, a counter). Without `data` it starts as zeros."""

    is_state = True

    def update(self, value: Any) -> None:
        """The state holds `value` after the run; later reads in this trace see it."""
        current_graph().update(self, value)


def _forward(name: str) -> Any:
    def method(self: Variable, *args: Any, **kwargs: Any) -> Any:
        return getattr(self.sym(), name)(*args, **kwargs)

    method.__name__ = name
    return method


for _name in [
    f"__{op}__" for op in (*_BINARY, *_COMPARE, *(f"r{op}" for op in _BINARY[:-2]), "neg", "abs", "getitem")
]:
    setattr(Variable, _name, _forward(_name))
_SHAPES = "reshape transpose swapaxes broadcast_to squeeze expand_dims astype".split()
_REDUCTIONS = "sum prod max min mean argmax argmin".split()
for _name in (*_SHAPES, *_REDUCTIONS):
    setattr(Variable, _name, _forward(_name))
Variable.T = property(lambda self: self.sym().T)  # type: ignore[attr-defined]
Variable.__array_ufunc__ = _forward("__array_ufunc__")  # type: ignore[attr-defined]


class Module:
    """Base class. Subclasses set Parameters, States and Modules as attributes and define `forward`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if isinstance(value, (list, tuple)) and value and all(isinstance(item, Module) for item in value):
            value = ModuleList(value)
        object.__setattr__(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} defines no forward")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.forward(*args, **kwargs)

    def named_children(self) -> Iterator[tuple[str, Module]]:
        """(attribute, submodule), in the order of assignment."""
        return ((name, value) for name, value in vars(self).items() if isinstance(value, Module))

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """(path, module) of this module ("") and everything below it."""
        yield prefix, self
        for name, child in self.named_children():
            yield from child.named_modules(_join(prefix, name))

    def named_variables(self) -> Iterator[tuple[str, Variable]]:
        """(path, param or state), each once, under its first path."""
        seen: set[int] = set()
        for path, module in self.named_modules():
            for name, value in vars(module).items():
                if isinstance(value, Variable) and id(value) not in seen:
                    seen.add(id(value))
                    yield _join(path, name), value

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        return ((path, v) for path, v in self.named_variables() if isinstance(v, Parameter))

    def named_states(self) -> Iterator[tuple[str, State]]:
        return ((path, v) for path, v in self.named_variables() if isinstance(v, State))

    def state_dict(self) -> dict[str, Any]:
        """The contents, by path, of all params and of states that begin with some (running statistics, not
        a KV cache), shared, not copied."""
        return {path: variable.data for path, variable in self._stored().items()}

    def _stored(self) -> dict[str, Variable]:
        return {path: v for path, v in self.named_variables() if not v.is_state or v.data is not None}

    def load_state_dict(self, arrays: Mapping[str, Any], strict: bool = True) -> None:
        """Takes contents as `state_dict` gives them; dtypes and shapes must fit.

        Errors: unknown_param for names too many or missing (only names that exist are taken if not `strict`),
        input_dtype, input_shape. Nothing changes if there is an error.
        """
        variables = self._stored()
        if strict:
            _check_names(set(variables), set(arrays))
        taken = {path: array for path, array in arrays.items() if path in variables}
        for path, array in taken.items():
            _check_type(path, variables[path], array)
        for path, array in taken.items():
            variables[path].data = array

    def load_safetensors(self, path: str | os.PathLike[str], strict: bool = True) -> None:
        """load_state_dict from a file; the params share its mapping."""
        self.load_state_dict(load_safetensors(path), strict)

    def save_safetensors(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Writes the state_dict; the file appears by rename."""
        save_safetensors(path, self.state_dict(), metadata)


class ModuleList(Module):
    """Modules in a list; their paths are their positions."""

    def __init__(self, modules: Iterable[Module] = ()) -> None:
        for index, module in enumerate(modules):
            setattr(self, str(index), module)

    def __len__(self) -> int:
        return sum(1 for _ in self.named_children())

    def __iter__(self) -> Iterator[Module]:
        return (child for _, child in self.named_children())

    def __getitem__(self, index: int) -> Module:
        return list(self)[index]

    def append(self, module: Module) -> None:
        setattr(self, str(len(self)), module)


class Sequential(ModuleList):
    """Calls its modules one after the other: `Sequential(Linear(4, 8), ReLU())`."""

    def __init__(self, *modules: Module) -> None:
        super().__init__(modules)

    def forward(self, x: SymTensor) -> Any:
        for name, module in self.named_children():
            with current_graph().scope(name):
                x = module(x)
        return x


def _join(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _check_names(expected: set[str], given: set[str]) -> None:
    missing, unknown = sorted(expected - given), sorted(given - expected)
    if missing or unknown:
        raise make_error(
            "unknown_param",
            "the names do not fit the module's params",
            value=", ".join(unknown),
            expected=", ".join(sorted(expected)),
            actual=f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}",
            remedy="rename them, or pass strict=False to take those that exist",
        )


def _check_type(path: str, variable: Variable, array: Any) -> None:
    dtype, shape = _aicf.array_type(array)
    if dtype != variable.dtype:
        raise make_error(
            "input_dtype", "a param has another dtype", op=path, expected=variable.dtype, actual=dtype
        )
    if shape != variable.shape:
        raise make_error(
            "input_shape",
            "a param has another shape",
            op=path,
            expected=str(list(variable.shape)),
            actual=str(list(shape)),
        )

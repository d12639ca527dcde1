"""A function of tensors, or a method of a module, as a module that torch.export takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

from torch import nn

__all__ = ["OWNER", "as_module"]

# Where the module of a method stands in the module made for the method, or those that a function names.
OWNER = "owner"


def as_module(model: Any) -> nn.Module:
    """The module itself, or one whose forward is the function."""
    return model if isinstance(model, nn.Module) else _Function(model)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = _owner(function)
        if not isinstance(owner, nn.Module):
            named, owner = dict(_modules_named(function)), nn.Module()
            for name, module in named.items():
                owner._modules[name] = module  # by any name, such as "training"
        setattr(self, OWNER, owner)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self.forward = functools.wraps(function)(forward) if _has_signature(function) else forward


def _owner(function: Any) -> Any:
    return getattr(getattr(function, "func", function), "__self__", None)


def _modules_named(function: Any) -> Iterator[tuple[str, nn.Module]]:
    """Modules that the function calls by a name: of a variable around it, of an attribute of its object."""
    pending, known = [function], set()
    while pending:
        function = pending.pop()
        if isinstance(function, functools.partial):
            pending.append(function.func)
            yield from _modules({str(i): value for i, value in enumerate(function.args)} | function.keywords)
        owner = _owner(function)
        if hasattr(owner, "__dict__"):
            yield from _modules(vars(owner))
        function = inspect.unwrap(getattr(function, "__func__", function))
        if not isinstance(function, FunctionType) or function in known:
            continue
        known.add(function)
        around = inspect.getclosurevars(function)
        names = {**around.globals, **around.nonlocals}
        yield from _modules(names)
        pending.extend(value for value in names.values() if isinstance(value, FunctionType))


def _modules(names: dict[str, Any]) -> Iterator[tuple[str, nn.Module]]:
    return ((name, value) for name, value in names.items() if isinstance(value, nn.Module))


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):  # one of C
        return False
    return True

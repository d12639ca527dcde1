"""A function of tensors, or a method of a module, as a module that torch.export takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from torch import nn

__all__ = ["OWNER", "as_module"]

# Where the module of a method stands in the module made for the method.
OWNER = "owner"


def as_module(model: Any) -> nn.Module:
    """The module itself, or one whose forward is the function."""
    return model if isinstance(model, nn.Module) else _Function(model)


class _Function(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        owner = getattr(getattr(function, "func", function), "__self__", None)
        if isinstance(owner, nn.Module):
            setattr(self, OWNER, owner)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs)

        self.forward = functools.wraps(function)(forward) if _has_signature(function) else forward


def _has_signature(function: Callable[..., Any]) -> bool:
    try:
        inspect.signature(function)
    except (TypeError, ValueError):  # one of C
        return False
    return True

"""A trace changes functions and classes of torch's while it lasts, so a process makes one at a time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from .._interrupts import interrupted_between

__all__ = ["exclusive"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_TRACES = threading.RLock()


def exclusive(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which waits while another thread is in one of those that this was given. An interrupt
    leaves what it changed as it was.
    """
    careful = interrupted_between(function)

    @functools.wraps(function)
    def waiting(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        with _TRACES:
            return careful(*args, **kwargs)

    return waiting

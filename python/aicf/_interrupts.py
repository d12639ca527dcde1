"""An interrupt that comes while a context manager is entered or left waits until that is over.

So what it changed in other objects, such as torch's modules and the user's own, is put back whole.
"""

from __future__ import annotations

import _thread
import functools
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, ParamSpec, TypeVar

__all__ = ["interrupted_between"]

_P = ParamSpec("_P")
_R = TypeVar("_R")
_SOON = 0.002  # seconds until the interrupt comes again


class _Waiting:
    """A handler of SIGINT in front of another one."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler = handler

    def __call__(self, number: int, frame: FrameType | None) -> None:
        if _is_cleaning_up(frame):
            # Not threading.Thread: the code that was interrupted may hold a lock of that module.
            _thread.start_new_thread(_again, (number,))
        else:
            self._handler(number, frame)


def _is_cleaning_up(frame: FrameType | None) -> bool:
    """A body runs when `__enter__` has returned and `__exit__` is not called yet; generators of
    contextlib.contextmanager run below those. Python drops what is raised in `__del__`. Who called the
    careful function may be in one of its own.
    """
    while frame is not None and (frame.f_code.co_filename, frame.f_code.co_name) != (__file__, "careful"):
        if frame.f_code.co_name in ("__enter__", "__exit__", "__del__"):
            return True
        frame = frame.f_back
    return False


def _again(number: int) -> None:
    time.sleep(_SOON)
    signal.raise_signal(number)


def interrupted_between(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """The function, which an interrupt ends between the changes of its context managers only."""

    @functools.wraps(function)
    def careful(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        handler = signal.getsignal(signal.SIGINT)
        if threading.current_thread() is not threading.main_thread() or not callable(handler):
            return function(*args, **kwargs)
        if isinstance(handler, _Waiting):
            return function(*args, **kwargs)
        # An interrupt in between may leave this handler there, which then does what the other one does.
        signal.signal(signal.SIGINT, _Waiting(handler))
        try:
            return function(*args, **kwargs)
        finally:
            signal.signal(signal.SIGINT, handler)

    return careful

"""What torch logs of a model that it cannot export, with tracebacks.

The error says it with the user's line. Where the environment variable TORCH_LOGS asks for them, torch's logs
stay; the logger `aicf.torch` gets them at its level DEBUG otherwise.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["torch_quiet"]

_log = logging.getLogger("aicf.torch")


@contextmanager
def torch_quiet() -> Iterator[None]:
    """While it lasts, torch's handlers show nothing of what this thread does."""
    here = threading.get_ident()

    def passes(record: logging.LogRecord) -> bool:
        if record.thread != here:
            return True
        _log.debug("%s: %s", record.name, record.getMessage())
        return False

    names = [name for name in list(logging.root.manager.loggerDict) if name.partition(".")[0] == "torch"]
    handlers = {handler for name in names for handler in logging.getLogger(name).handlers}
    handlers = {handler for handler in handlers if type(handler) is logging.StreamHandler}
    if os.environ.get("TORCH_LOGS"):
        handlers = set()
    for handler in handlers:
        handler.addFilter(passes)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(passes)

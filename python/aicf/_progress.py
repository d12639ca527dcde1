"""How far a compilation is: a callback, a line on a terminal, an output of a notebook, lines of the log.

Stages are "trace" and "import" of a model, then those of the compiler (kStages of src/compile/compile.h).
Without a callback nothing is shown for a second of work, nor where nobody looks.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from .errors import make_error

__all__ = ["Progress", "set_progress", "stage", "work"]

Progress = Callable[[str, float], None]

_log = logging.getLogger("aicf")
_SILENT_SECONDS, _SECONDS_BETWEEN = 1.0, 0.5
_chosen: Progress | None = None
_here = threading.local()


def set_progress(progress: Progress | None) -> None:
    """Calls `progress(stage, fraction)` at the stages of every compilation that names no callback itself.

    `fraction` is the part of the work that is done, 0 to 1, as usual models need it; the last call is
    ("done", 1.0). What it raises ends the compilation. None: a line on a terminal or in a notebook, after one
    second.
    """
    global _chosen
    _chosen = progress


class _Work:
    def __init__(self, progress: Progress | None) -> None:
        self.start = time.monotonic()
        self.stage, self.done, self.since = "", 0.0, self.start
        self.progress = progress or _chosen

    def tell(self, stage: str, done: float) -> None:
        now, done = time.monotonic(), max(self.done, done)
        if self.stage and stage != self.stage:
            _log.debug("stage %s: %.0f ms", self.stage, 1000 * (now - self.since))
        if stage != self.stage:
            self.since = now
        self.stage, self.done = stage, done
        if self.progress is not None:
            self.progress(stage, done)

    def line(self) -> str:
        return f"aicf: {self.stage}, {100 * self.done:.0f} %, {time.monotonic() - self.start:.0f} s"


@contextlib.contextmanager
def work(progress: Progress | None = None) -> Iterator[None]:
    """A compilation, whose stages are told while it lasts; one inside of another is part of it."""
    if progress is not None and not callable(progress):
        raise make_error("bad_option", "progress is a function", actual=repr(progress)[:80])
    if getattr(_here, "work", None) is not None:
        yield
        return
    _here.work = current = _Work(progress)
    try:
        with _shown(current):
            yield
            current.tell("done", 1.0)
    finally:
        _here.work = None


def stage(name: str, done: float) -> None:
    """This thread's compilation, if any, is at this stage, with so much behind it."""
    current = getattr(_here, "work", None)
    if current is not None:
        current.tell(name, done)


@contextlib.contextmanager
def _shown(current: _Work) -> Iterator[None]:
    draw = None if current.progress is not None else _notebook() or _terminal()
    if draw is None:
        yield
        return
    ended = threading.Event()

    def redraw() -> None:
        wait = _SILENT_SECONDS
        while not ended.wait(wait):
            draw(current.line())
            wait = _SECONDS_BETWEEN

    drawing = threading.Thread(target=redraw, name="aicf-progress", daemon=True)
    drawing.start()
    try:
        yield
    finally:
        ended.set()
        drawing.join()
        if time.monotonic() - current.start >= _SILENT_SECONDS:
            draw("")


def _terminal() -> Callable[[str], None] | None:
    stream = sys.stderr
    if stream is None or not getattr(stream, "isatty", lambda: False)():
        return None

    def draw(line: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # one that was closed meanwhile
            stream.write(f"\r\033[K{line}")
            stream.flush()

    return draw


def _notebook() -> Callable[[str], None] | None:
    """An output that is redrawn in its place; None outside of a kernel."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    if shell is None or getattr(shell, "kernel", None) is None:
        return None
    from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

    handle: Any = None

    def draw(line: str) -> None:
        nonlocal handle
        if handle is None:
            handle = display({"text/plain": line}, raw=True, display_id=True)
        else:
            handle.update({"text/plain": line}, raw=True)

    return draw

"""Progress: a line for each step with its time, and a counter on stderr while a person is watching."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Steps", "show_count"]


class Steps:
    """Numbers the steps of a program: `[2/8] compile … 1.9 s`."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._index = 0
        self.seconds = 0.0

    @contextmanager
    def step(self, title: str) -> Iterator[None]:
        """Times the block; afterwards `seconds` holds the time of this step."""
        self._index += 1
        start = time.perf_counter()
        label = f"[{self._index}/{self._total}] {title}"
        if sys.stderr.isatty():
            print(f"\r\x1b[K{label} …", end="", file=sys.stderr, flush=True)
        try:
            yield
        finally:
            self.seconds = time.perf_counter() - start
            if sys.stderr.isatty():
                print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        print(f"{label}: {self.seconds:.2f} s", flush=True)


def show_count(done: int, total: int) -> None:
    """Overwrites one line on stderr; silent when stderr is not a terminal."""
    if sys.stderr.isatty():
        print(
            f"\r\x1b[K  {done}/{total}", end="" if done < total else "\r\x1b[K", file=sys.stderr, flush=True
        )

"""Many cases, each prepared in a process of its own kind: a wave of them compile and check at once, then each
is timed while the others wait. What ends its process costs its own case alone.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

__all__ = ["Row", "in_waves", "share_of"]

Row = dict[str, Any]
Timed = Callable[[], Row]
PREPARE_SECONDS, TIME_SECONDS = 240.0, 60.0  # of a wave, of a case


def share_of(items: Sequence[Any], share: str) -> Sequence[Any]:
    """Of "k/n" every n-th from the k-th, so that n machines do all. ValueError for what is no such share."""
    first, of = map(int, share.split("/"))
    if not 1 <= first <= of:
        raise ValueError(f"no share: {share}; expected k/n with k from 1 to n")
    return items[first - 1 :: of]


def _work(connection: Connection, prepare: Callable[[Any], Timed]) -> None:
    """A worker: prepares the items it is sent, waits, then times them one by one."""
    while (items := connection.recv()) is not None:
        steps = []
        for item in items:
            steps.append(_prepared(prepare, item))
        connection.send(len(steps))
        connection.recv()
        while steps:
            connection.send(_row(steps.pop(0)))
    sys.stdout.flush()
    os._exit(0)  # the compilers' pools of workers need not be waited for


def _prepared(prepare: Callable[[Any], Timed], item: Any) -> Timed | Exception:
    try:
        return prepare(item)
    except Exception as error:
        traceback.print_exc()
        return error


def _row(step: Timed | Exception) -> Row | str:
    """What it measured, or why not."""
    try:
        if isinstance(step, Exception):
            raise step
        return step()
    except Exception as error:
        return f"{type(error).__name__}: {str(error)[:300]}"


@dataclass
class _Worker:
    process: Any
    connection: Connection
    items: list[Any]

    def end(self) -> None:
        self.process.kill()
        self.process.join()

    def hear(self, seconds: float) -> Any:
        """EOFError where it has ended or is over its time."""
        if not self.connection.poll(seconds):
            raise EOFError
        return self.connection.recv()


def in_waves(
    prepare: Callable[[Any], Timed], items: Sequence[Any], parallel: int, end: float, each: int = 1
) -> Iterator[tuple[Any, Row | str]]:
    """Every item with its row, or with why it has none; in no order. `prepare` is a function of a module:
    it runs in `parallel` processes, `each` items in one, and what it returns runs while all others wait. An
    item whose process ends is prepared once more alone. Ends at `end` of time.monotonic(), and leaves what
    is then not prepared."""
    context = multiprocessing.get_context("spawn")
    left, alone = list(items), []
    workers: list[_Worker] = []

    def started() -> _Worker:
        ours, theirs = context.Pipe()
        process = context.Process(target=_work, args=(theirs, prepare), daemon=False)
        process.start()
        theirs.close()
        return _Worker(process, ours, [])

    try:
        while (left or alone) and time.monotonic() < end:
            while len(workers) < min(parallel, len(left) + len(alone)):
                workers.append(started())
            for worker in workers:
                retried = bool(alone) and not left
                worker.items = (
                    [alone.pop(0)] if retried else [left.pop(0) for _ in range(min(each, len(left)))]
                )
                worker.connection.send(worker.items)
            _wait_for(workers, min(end, time.monotonic() + PREPARE_SECONDS))
            for worker in list(workers):
                single = len(worker.items) == 1
                try:
                    worker.hear(0.0)
                    worker.connection.send("go")
                    while worker.items:
                        row = worker.hear(TIME_SECONDS)
                        yield worker.items.pop(0), row
                except (EOFError, OSError):
                    worker.end()
                    workers.remove(worker)
                    if time.monotonic() >= end:
                        continue
                    if single:
                        yield worker.items[0], "it ended its process or was over its time"
                    else:
                        alone += worker.items
    finally:
        for worker in workers:
            worker.end()


def _wait_for(workers: list[_Worker], until: float) -> None:
    """Until all have prepared or ended."""
    waiting = {worker.connection for worker in workers}
    while waiting and (rest := until - time.monotonic()) > 0:
        for ready in wait(list(waiting), timeout=rest):
            waiting.discard(ready)  # type: ignore[arg-type]

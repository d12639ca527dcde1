"""What the campaigns share: their arguments, workers in processes of their own, and the line at their end.

A campaign tries many cases drawn from a seed and counts what it finds. Its last line is
`seed S: N UNIT, M found`, its exit code 1 if anything was found. That fewer cases ran than were asked for is
found, too: a case that does not run shows nothing.
"""

from __future__ import annotations

import argparse
import collections
import concurrent.futures
import json
import os
import queue
import random
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def arguments(description: str | None, count: int) -> argparse.ArgumentParser:
    """With --count, --seed and --jobs."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=count, help=f"of cases; default {count}")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time; default 1")
    return parser


def finish(seed: int, done: int, unit: str, found: int, count: int) -> int:
    """Prints the last line; gives the exit code. `count` cases were to be done."""
    if done < max(count, 1):
        print(f"FOUND that {done} {unit} ran, not {count}", flush=True)
        found += 1
    print(f"seed {seed}: {done} {unit}, {found} found", flush=True)
    return 1 if found else 0


def few_right(right: int, done: int, unit: str) -> int:
    """1, and a line, if less than half of many random cases were right: most were refused or left out."""
    if done < 20 or 2 * right >= done:
        return 0
    print(f"FOUND that {right} of {done} {unit} were right", flush=True)
    return 1


LAST = re.compile(r"^seed \d+: (\d+) (.+), (\d+) found$")


def in_shares(script: str, options: argparse.Namespace, words: Iterable[str]) -> int:
    """Runs the script in `jobs` processes, each with a share of the count and a seed of its own."""
    jobs = max(min(options.jobs, options.count), 1)
    shares = [options.count * (job + 1) // jobs - options.count * job // jobs for job in range(jobs)]
    given = [
        [*words, "--seed", str(options.seed + 1_000_003 * job), "--count", str(share)]
        for job, share in enumerate(shares)
    ]
    return side_by_side(script, options.seed, given, options.count)


def side_by_side(script: str, seed: int, given: list[list[str]], count: int) -> int:
    """Runs the script once with each of these words, all at the same time: `count` cases in all.

    Their lines are printed as they come, their last lines added up.
    """
    totals: collections.Counter[str] = collections.Counter()
    units: set[str] = set()
    lock = threading.Lock()

    def one(words: list[str]) -> None:
        command = [sys.executable, script, *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        said = None
        for line in process.stdout:
            with lock:
                print(line, end="", flush=True)
            said = LAST.match(line.rstrip()) or said
        code = process.wait()
        with lock:
            if said is None or (code != 0 and said[3] == "0"):
                print(f"{' '.join(words)}: ended with {code}", flush=True)
                totals["found"] += 1
            if said is not None:
                totals["done"] += int(said[1])
                totals["found"] += int(said[3])
                units.add(said[2])

    with concurrent.futures.ThreadPoolExecutor(len(given)) as pool:
        for task in [pool.submit(one, words) for words in given]:
            task.result()
    return finish(seed, totals["done"], units.pop() if units else "cases", totals["found"], count)


def work(outcome: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The loop of a worker process: a job a line on stdin, its outcome a line on stdout."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is no answer
    for line in sys.stdin:
        try:
            result = outcome(json.loads(line))
        except Exception as error:
            import traceback

            result = {"status": "generator", "text": f"{error!r} {traceback.format_exc()[-1500:]}"}
        print(json.dumps(result), file=answers, flush=True)


class Worker:
    """A process that runs one case at a time, so that a crash or a hang is counted and not suffered."""

    def __init__(self, script: str, seconds: float) -> None:
        self.script, self.seconds = script, seconds
        self.process = self._start()

    def _start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, self.script, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin and self.process.stdout
        try:
            self.process.stdin.write(json.dumps(job) + "\n")
            self.process.stdin.flush()
            ready, _, _ = select.select([self.process.stdout], [], [], self.seconds)
            line = self.process.stdout.readline() if ready else None
        except BrokenPipeError:
            line = ""
        if line:
            return json.loads(line)
        self.process.kill()
        code = self.process.wait()
        self.process = self._start()
        return {"status": "hang"} if line is None else {"status": "crash", "text": f"exit {code}"}

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait()


def outcomes(
    script: str, jobs: list[dict[str, Any]], processes: int, seconds: float, limit: float = 0
) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Each job with its outcome, in the order of the jobs. One may take `seconds`.

    None is begun after `limit` seconds, unless that is 0.
    """
    workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    made = [Worker(script, seconds) for _ in range(min(processes, max(len(jobs), 1)))]
    for worker in made:
        workers.put(worker)
    began = time.monotonic()

    def one(job: dict[str, Any]) -> dict[str, Any] | None:
        if limit and time.monotonic() - began > limit:
            return None
        worker = workers.get()
        try:
            return worker.run(job)
        finally:
            workers.put(worker)

    with concurrent.futures.ThreadPoolExecutor(len(made)) as pool:
        for job, result in zip(jobs, pool.map(one, jobs), strict=True):
            if result is not None:
                yield job, result
    for worker in made:
        worker.close()

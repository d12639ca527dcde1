"""Interleaved timing of several programs, and the statistics that every reported figure uses.

Each program is timed in turn within a round, in an order that reverses from round to round, so that drift of
the machine hits all of them alike. A round's ratio compares neighbours in time; the median of those ratios is
the figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

import numpy as np

__all__ = ["PAUSE_SECONDS", "Quartiles", "interleave", "quartiles", "ratios"]

# onnxruntime's idle workers spin for about 45 ms after a run and would take a core from the next program.
PAUSE_SECONDS = 0.06


@dataclass(frozen=True)
class Quartiles:
    """Median and the quartiles around it, in the unit of the samples."""

    median: float
    q1: float
    q3: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)

    def scaled(self, factor: float) -> Quartiles:
        return Quartiles(self.median * factor, self.q1 * factor, self.q3 * factor)


def quartiles(samples: Sequence[float]) -> Quartiles:
    q1, median, q3 = np.percentile(np.asarray(samples, np.float64), [25, 50, 75])
    return Quartiles(float(median), float(q1), float(q3))


def ratios(peer: Sequence[float], ours: Sequence[float]) -> Quartiles:
    """Quartiles of peer/ours over the rounds: above 1 means that ours is faster."""
    return quartiles([p / o for p, o in zip(peer, ours, strict=True)])


def _timed(program: Callable[[], object], pause: float) -> float:
    """Seconds of one run, warm: other programs' workers are asleep and this one's are awake."""
    time.sleep(pause)
    program()
    start = time.perf_counter()
    program()
    return time.perf_counter() - start


def interleave(
    programs: Mapping[str, Callable[[], object]],
    rounds: int = 30,
    warm_up: int = 3,
    pause: float = PAUSE_SECONDS,
    on_round: Callable[[int, int], None] | None = None,
) -> dict[str, list[float]]:
    """Seconds per run for each program, `rounds` samples each; sample i of every program is from round i."""
    for program in programs.values():
        for _ in range(warm_up):
            program()
    samples: dict[str, list[float]] = {name: [] for name in programs}
    order = list(programs)
    for index in range(rounds):
        for name in order:
            samples[name].append(_timed(programs[name], pause))
        order.reverse()
        if on_round is not None:
            on_round(index + 1, rounds)
    return samples

"""Bare replays of a torch program: what a peer takes on the GPU without Python in the timed path."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

__all__ = ["captured", "microseconds_in_turns", "replay_microseconds"]

# A card under load needs some tenths of a second until its clock is what its power limit allows.
SETTLING_SECONDS = 0.5


def captured(program: Callable[[], object]) -> Callable[[], object]:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            program()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program()
    return graph.replay


def replay_microseconds(
    replay: Callable[[], object], rounds: int, queued: int, warm_up: int = 5
) -> list[float]:
    """Microseconds of one replay for each round, `queued` of them between two events."""
    samples = [_sample(replay, queued) for _ in range(rounds + warm_up)]
    return samples[warm_up:]


def microseconds_in_turns(
    replays: Mapping[str, Callable[[], object]], rounds: int, queued: int
) -> dict[str, list[float]]:
    """The same of several programs, a sample of each in every round, in the opposite order every other
    time: all of them meet the card equally warm and its clock equally low. Rounds before it has settled are
    not kept.
    """
    samples: dict[str, list[float]] = {name: [] for name in replays}
    settled = time.perf_counter() + SETTLING_SECONDS
    left, names = rounds, list(replays)
    while left > 0:
        keep = time.perf_counter() >= settled
        for name in names:
            sample = _sample(replays[name], queued)
            if keep:
                samples[name].append(sample)
        names.reverse()
        left -= keep
    return samples


def _sample(replay: Callable[[], object], queued: int) -> float:
    import torch

    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    first.record()
    for _ in range(queued):
        replay()
    last.record()
    torch.cuda.synchronize()
    return 1e3 * first.elapsed_time(last) / queued

"""Bare replays of a torch program: what a peer takes on the GPU without Python in the timed path."""

from __future__ import annotations

from collections.abc import Callable

__all__ = ["captured", "replay_microseconds"]


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
    import torch

    samples = []
    for index in range(rounds + warm_up):
        first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        first.record()
        for _ in range(queued):
            replay()
        last.record()
        torch.cuda.synchronize()
        if index >= warm_up:
            samples.append(1e3 * first.elapsed_time(last) / queued)
    return samples

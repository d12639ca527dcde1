"""Bare replays of a torch program: what a peer takes on the GPU without Python in the timed path."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["captured", "launches", "microseconds_in_turns", "replay_microseconds"]

# A card under load needs some tenths of a second until its clock is what its power limit allows.
SETTLING_SECONDS = 0.5


def captured(program: Callable[[], object]) -> Callable[[], object]:
    """Its replay. The graph holds addresses alone, so the replay keeps the program and its operands alive."""
    graph = _graph(program)

    def replay(_alive: Callable[[], object] = program) -> None:
        graph.replay()

    return replay


def launches(program: Callable[[], object]) -> int:
    """Kernels in the captured graph, copies and fills of memory left out."""
    import ctypes

    graph = _graph(program, keep_graph=True)  # whose nodes go when it does
    handle = ctypes.c_void_p(graph.raw_cuda_graph())
    driver, count, kind = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t(), ctypes.c_int()

    def call(name: str, *arguments: Any) -> None:
        if code := getattr(driver, name)(*arguments):
            raise RuntimeError(f"{name} gave {code}")

    call("cuGraphGetNodes", handle, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    call("cuGraphGetNodes", handle, nodes, ctypes.byref(count))
    kernels = 0
    for node in nodes:
        call("cuGraphNodeGetType", ctypes.c_void_p(node), ctypes.byref(kind))
        kernels += kind.value == 0  # CU_GRAPH_NODE_TYPE_KERNEL
    return kernels


def _graph(program: Callable[[], object], **options: bool) -> torch.cuda.CUDAGraph:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            program()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph(**options)
    with torch.cuda.graph(graph):
        program()
    return graph


def replay_microseconds(
    replay: Callable[[], object], rounds: int, queued: int, warm_up: int = 5
) -> list[float]:
    """Microseconds of one replay for each round, `queued` of them between two events."""
    samples = [_sample(replay, queued) for _ in range(rounds + warm_up)]
    return samples[warm_up:]


def microseconds_in_turns(
    replays: Mapping[str, Callable[[], object]],
    rounds: int,
    queued: int,
    settling: float = SETTLING_SECONDS,
) -> dict[str, list[float]]:
    """The same of several programs, a sample of each in every round, in the opposite order every other
    time: all of them meet the card equally warm and its clock equally low. Rounds before it has settled are
    not kept.
    """
    samples: dict[str, list[float]] = {name: [] for name in replays}
    settled = time.perf_counter() + settling
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

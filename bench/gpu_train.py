"""Whole training steps on one GPU beside torch.compile captured into a CUDA Graph, in one run: the rows of
gpu_train_steps.py. Attention's peer is FlashAttention-2's deterministic form.

Ours: a step compiled with `aicf.compile_train_step`, saved, and replayed by `aicf bench --device cuda`. The
peer: the same model, loss and fused Adam through torch.compile, captured, so that no Python stands in its
timed path. Samples are microseconds a step, each the mean of a batch of replays. bf16 rows have params and
moments in bf16 on both sides. Each runs in a process of its own, whose memory on the device is asked of the
driver twice a second; a peak is what came on top of what was in use before. Needs torch with CUDA in the
Python that runs this.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
from gpu_replay import captured, replay_microseconds
from gpu_report import Report, bench_ours, beside, compile_cold, make_parser, median, require_cuda, select
from gpu_train_steps import ROWS, Attention, Row, input_ranges, peer_step, save_ours


class DeviceMemory:
    """The most of the device's memory in use meanwhile above what was before, in MiB; 0 without a GPU."""

    SECONDS = 0.5

    def __enter__(self) -> DeviceMemory:
        self.peak, self.first = 0, self.used()
        self.done = threading.Event()
        self.thread = threading.Thread(target=self.watch)
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self.thread.join()

    @staticmethod
    def used() -> int:
        query = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"]
        try:
            return int(subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()[0])
        except (OSError, subprocess.CalledProcessError):
            return 0

    def watch(self) -> None:
        while not self.done.wait(self.SECONDS):
            self.peak = max(self.peak, self.used() - self.first)


def measure_ours(row: Row, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    path = folder / f"{row.name}.aicf"
    seconds = save_ours(row, options.device, path)
    with DeviceMemory() as memory:
        record = bench_ours(options, path, input_ranges(row), options.device)
    return {"compile_seconds": seconds, "peak_mib": memory.peak, **record}


def run_peer(row: Row, rounds: int) -> dict[str, Any]:
    torch.backends.cuda.matmul.allow_tf32 = row.precision == "tf32"
    torch.use_deterministic_algorithms(isinstance(row.shape, Attention))
    step = peer_step(row)
    start = time.perf_counter()
    step()
    torch.cuda.synchronize()
    seconds = time.perf_counter() - start
    return {"compile_seconds": seconds, "us": replay_microseconds(captured(step), rounds, queued=10)}


def measure_peer(row: Row, rounds: int) -> dict[str, Any]:
    command = [sys.executable, __file__, row.name, "--only-peer", "--rounds", str(rounds)]
    with DeviceMemory() as memory:
        result = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(result.stdout.splitlines()[-1]), "peak_mib": memory.peak}


def measure_row(row: Row, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = {
        "model": row.name,
        "batch": row.batch,
        "dtype": row.dtype,
        "precision": row.precision,
    }
    record["aicf"] = ours = measure_ours(row, options, folder)
    text = f"{row.name:<15}{median(ours):>10.1f} µs, compiled in {ours['compile_seconds']:.2f} s"
    if not options.no_peer:
        attention = isinstance(row.shape, Attention)
        key = f"{'FlashAttention-2, deterministic' if attention else 'torch.compile'}, CUDA Graph"
        record[key] = peer = measure_peer(row, options.rounds)
        text += beside(key, peer, ours) + f"   peak {ours['peak_mib']} and {peer['peak_mib']} MiB"
    print(text, flush=True)
    return record


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("--device", default="cuda", help="of ours: cuda, or cpu to try the bench")
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--only-peer", action="store_true", help=argparse.SUPPRESS)
    options = select(parser, [row.name for row in ROWS])
    compile_cold()
    if not options.no_peer:
        require_cuda()
    if options.only_peer:
        (row,) = (row for row in ROWS if row.name in options.models)
        print(json.dumps(run_peer(row, options.rounds)))
        return 0
    report = Report(options, ["torch"])
    for row in ROWS:
        if row.name in options.models:
            with tempfile.TemporaryDirectory() as folder:
                report.measure(row.name, partial(measure_row, row, options, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())

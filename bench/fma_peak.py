"""What the cores reach in multiply-adds alone, and how much of it a model's contractions need.

Both come from programs of the build: bench_kernels (peak_fma) and `aicf bench --kernels`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["beside_fma_peak", "contraction_flops", "fma_peak", "peak_line"]


def fma_peak(build: Path, threads: int) -> float:
    """FLOP/s of the widest multiply-adds on so many threads (1 or 2), the best of three repetitions."""
    command = [
        str(build / "bench" / "bench_kernels"),
        f"--benchmark_filter=^peak_fma/.*/threads:{threads}/",
        "--benchmark_repetitions=3",
        "--benchmark_format=json",
    ]
    rows = json.loads(_output(command))["benchmarks"]
    rates = [row["GF/s"] for row in rows if row["run_type"] == "iteration"]
    if not rates:
        raise SystemExit(f"bench_kernels knows no peak for {threads} threads")
    return 1e9 * max(rates)


def contraction_flops(build: Path, artifact: Path, dims: Mapping[str, int]) -> float:
    """Multiplications and additions of contractions, convolutions and attention in a run at these sizes."""
    command = [str(build / "bin" / "aicf"), "bench", str(artifact), "--kernels", "--repeat", "1", "--json"]
    for name, size in dims.items():
        command += ["--dim", f"{name}={size}"]
    return sum(kernel["flops"] for kernel in json.loads(_output(command))["kernels"])


def beside_fma_peak(
    measure: Callable[[], dict[str, Any]], flops: float, build: Path, threads: int
) -> dict[str, Any]:
    """What `measure` gives, with the peak before and after it, and the share of the higher one that `flops`
    take in the median time of "aicf". A share above 1 ends the program: then `flops` are counted wrong, or
    the machine was not the same throughout."""
    before = fma_peak(build, threads)
    row = measure()
    after = fma_peak(build, threads)
    seconds = row["milliseconds"]["aicf"]["median"] / 1e3
    share = flops / seconds / max(before, after)
    if share > 1:
        raise SystemExit(f"{share:.1%} of the peak of multiply-adds: {flops:.4g} of them in {seconds:.4g} s")
    return row | {
        "contraction_flops": flops,
        "fma_peak_flops_per_second": {"before": before, "after": after},
        "share_of_fma_peak": share,
    }


def peak_line(row: Mapping[str, Any]) -> str:
    peak = max(row["fma_peak_flops_per_second"].values())
    return f"{row['share_of_fma_peak']:.1%} of the run's peak of multiply-adds, {peak / 1e9:.0f} GF/s"


def _output(command: list[str]) -> str:
    if not Path(command[0]).exists():
        raise SystemExit(f"{command[0]} is not built: run `make bench`, or ninja -C build benches products")
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout

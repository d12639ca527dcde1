"""What the GPU benches share: their options, our command line tool, peers beside us, the report."""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import shutil
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from machine import measured_tree

__all__ = [
    "Record",
    "Report",
    "bench_ours",
    "beside",
    "compile_cold",
    "describe_gpu",
    "make_parser",
    "median",
    "require_cuda",
    "select",
    "tool",
]

Record = dict[str, Any]


def make_parser(description: str | None) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aicf", default="build/bin/aicf", help="the command line tool")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each program")
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    return parser


def select(parser: argparse.ArgumentParser, names: Sequence[str]) -> argparse.Namespace:
    """The options, with `models` out of these names; none given: all."""
    names = list(dict.fromkeys(names))
    parser.add_argument("models", nargs="*", help=f"any of {', '.join(names)}; default: all")
    options = parser.parse_args()
    if unknown := set(options.models) - set(names):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    options.models = options.models or names
    return options


def require_cuda() -> None:
    """Ends with the code of an environment error, 3, before anything is measured without its peer."""
    try:
        import torch
    except ImportError as error:
        print(f"bench: {error}; GPU_PYTHON names a Python with it", file=sys.stderr)
        sys.exit(3)
    if not torch.cuda.is_available():
        print("bench: torch sees no CUDA device", file=sys.stderr)
        sys.exit(3)


def compile_cold() -> None:
    """Leaves this process and its children without caches of compiled code: ours, and the driver's, in which
    NVRTC keeps what it compiled.
    """
    os.environ.pop("AICF_CACHE_DIR", None)
    os.environ["CUDA_CACHE_DISABLE"] = "1"


def tool(arguments: Sequence[str]) -> Record:
    """What a command prints with --json; ends with its exit code if it fails."""
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(arguments)}\n{done.stderr}", file=sys.stderr)
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def bench_ours(
    options: argparse.Namespace, model: Path, arguments: Iterable[str] = (), device: str = "cuda"
) -> Record:
    """`aicf bench` of a model or an artifact: microseconds of every sample, and what runs."""
    command = [options.aicf, "bench", str(model), "--device", device, "--repeat", str(options.rounds)]
    result = tool([*command, *arguments, "--kernels", "--json"])
    return {
        "us": [1e3 * sample for sample in result["samples"]],
        "host_us": result["host_us"],
        "host_first_us": result["host_first_us"],
        "coverage": result.get("coverage", ""),
        "kernels": result["kernels"],
    }


def median(record: Record) -> float:
    return float(np.median(record["us"]))


def beside(name: str, peer: Record, ours: Record) -> str:
    return f"   {name}: {median(peer):.1f} µs ({median(peer) / median(ours):.2f}x ours)"


def describe_gpu() -> str:
    if shutil.which("nvidia-smi") is None:
        return ""
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


class Report:
    """Rows in `--output`, if it is given, which appears anew after each: a run that is cut off keeps what it
    has, and one of which a row fails goes on. `packages` are those that were measured.
    """

    def __init__(self, options: argparse.Namespace, packages: Iterable[str]) -> None:
        self.path: Path | None = options.output
        self.rows: list[Record] = []
        self.record: Record = {
            **measured_tree(),
            "command": " ".join(["python", *sys.argv]),
            "gpu": describe_gpu(),
            "versions": {name: importlib.metadata.version(name) for name in packages},
            "rows": self.rows,
        }

    def add(self, row: Record) -> None:
        self.rows.append(row)
        self.write()

    def measure(self, name: str, row: Callable[[], Record]) -> Record | None:
        """Adds what `row` gives; where it fails, its name stands among `failed`, and the reason on stderr."""
        try:
            record = row()
        except (Exception, SystemExit):
            traceback.print_exc()
            print(f"bench: {name} failed", file=sys.stderr, flush=True)
            self.fail(name)
            return None
        self.add(record)
        return record

    def fail(self, name: str) -> None:
        self.record.setdefault("failed", []).append(name)
        self.write()

    def exit_code(self) -> int:
        return int("failed" in self.record)

    def write(self) -> None:
        if self.path is None:
            return
        part = self.path.with_name(f".{self.path.name}.part")
        part.write_text(json.dumps(self.record, indent=1))
        part.replace(self.path)

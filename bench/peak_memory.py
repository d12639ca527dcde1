"""Peak memory of a model: growth of a process's high-water mark from after its imports to after 50 runs.

`peak_growth` starts a process for one program; run as
`python -m bench.peak_memory PROGRAM FILE INPUTS THREADS` it is that process and prints bytes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

__all__ = ["PROGRAMS", "peak_growth"]

RUNS = 50
PROGRAMS = ("aicf", "onnxruntime")
_ROOT = Path(__file__).resolve().parents[1]

Inputs = dict[str, np.ndarray]
Loader = Callable[[str, int], Callable[[Inputs], object]]


def _high_water_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return 1024 * int(line.split()[1])
    raise RuntimeError("/proc/self/status has no VmHWM line")


def _import_aicf() -> Loader:
    import aicf

    def load(path: str, threads: int) -> Callable[[Inputs], object]:
        exe = aicf.load(path, threads=threads)
        return lambda inputs: exe(**inputs)

    return load


def _import_onnxruntime() -> Loader:
    from bench.onnxruntime_peer import OnnxRuntimePeer

    return OnnxRuntimePeer


def _measure(program: str, path: str, inputs_path: str, threads: int) -> int:
    load = {"aicf": _import_aicf, "onnxruntime": _import_onnxruntime}[program]()
    with np.load(inputs_path) as file:
        inputs = {name: file[name] for name in file.files}
    before = _high_water_bytes()
    run = load(path, threads)
    for _ in range(RUNS):
        run(inputs)
    return _high_water_bytes() - before


def peak_growth(program: str, path: Path, inputs: Path, threads: int) -> int:
    """Bytes; `path` is the artifact for aicf, the ONNX file for onnxruntime; `inputs` is an .npz."""
    command = [
        *(sys.executable, "-m", "bench.peak_memory", program),
        *(str(path.resolve()), str(inputs.resolve()), str(threads)),
    ]
    finished = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=_ROOT)
    return int(finished.stdout)


if __name__ == "__main__":
    print(_measure(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])))

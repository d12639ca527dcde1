"""Programs under limits on their address space: each ends well, or with an error of ours and exit 3.

    python scripts/memory_limits.py [--count 1000] [--seed S] [--jobs 4] [--only CASE [--at BYTES]]

For every verb of the command line, for a Python process and for a program of the C++ API (built here from
memory_limits_host.cc, where build/lib has the library), limits are drawn between what the process takes
when it has started and what the whole call takes. Under each the exit code is 0 or 3, exit 3 comes with an
AICF-E code, no signal ends the process, and what it was to write is absent or whole. A case that fails
without a limit is a finding; where NVRTC is not installed, what needs it is left out. A Python process sets
its limit after its imports and expects aicf.EnvError, or Python's own MemoryError. Every finding prints the
line that runs it again.
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import campaign
import numpy as np
from onnx import TensorProto, helper, numpy_helper, save

SECONDS = 120  # of a call, at most
MODEL, ARTIFACT, STEP = "m.onnx", "m.aicf", "step.aicf"
DIM, TWO = ["--dim", "batch=1..8"], ["--dim", "batch=2"]
HOST = "memory_limits_host"
LIBRARY = campaign.ROOT / "build" / "lib" / "libaicf.so"
DATA = ["--data", "x.npy", "--labels", "l.npy"]
PART, MOST = 64 << 10, 64 << 30  # limits are multiples of the one and up to the other
NO_LIBRARY = "error[AICF-E0003]"  # of a CUDA target where NVRTC is not installed


@dataclass
class Case:
    name: str
    words: list[str]  # of the command line; of a Python case its name
    writes: str = ""  # a file that is absent afterwards, or as whole as without a limit
    variables: dict[str, str] = field(default_factory=dict)
    python: bool = False
    nvrtc: bool = False  # without it the case is left out
    needs: str = ""  # and without this Python package
    host: bool = False  # of the C++ program; without a library that is built it is left out
    low: int = 0  # bytes: what the process takes before the case begins
    high: int = 0  # and what it takes in all


CASES = [
    Case("compile", ["compile", MODEL, *DIM, "-o", "c.aicf"], "c.aicf"),
    Case("compile_threads", ["compile", MODEL, *DIM, "-o", "t.aicf"], "t.aicf", {"AICF_NUM_THREADS": "16"}),
    Case("compile_json", ["compile", MODEL, *DIM, "-o", "j.aicf", "--json"], "j.aicf"),
    Case(
        "compile_cuda",
        ["compile", MODEL, *DIM, "--target", "cpu,sm_80", "-o", "g.aicf"],
        "g.aicf",
        nvrtc=True,
    ),
    Case("run", ["run", ARTIFACT, "--input", "x=x.npy", "--output-dir", "out"], "out/y.npy"),
    Case("run_threads", ["run", ARTIFACT, "--input", "x=x.npy", "--threads", "16"]),
    Case("run_mapped", ["run", ARTIFACT, "--input", "x=x.npy"], "", {"AICF_COPIED_FILES": "0"}),
    Case("bench", ["bench", ARTIFACT, "--dim", "batch=2", "--repeat", "3"]),
    Case("verify", ["verify", ARTIFACT, "--dim", "batch=2", "-n", "4", "--threads", "1,2"]),
    Case("validate", ["validate", MODEL, "--dim", "batch=2", "--against", "reference"]),
    Case("support", ["support", MODEL, *DIM]),
    Case("inspect", ["inspect", ARTIFACT, "--check"]),
    Case("inspect_json", ["inspect", ARTIFACT, "--json"]),
    Case("explain", ["explain", ARTIFACT]),
    Case("doctor", ["doctor"]),
    Case("export", ["export", STEP, "-o", "e.aicf"], "e.aicf"),
    Case("export_weights", ["export", STEP, "-o", "e.safetensors"], "e.safetensors"),
    Case("profile", ["profile", ARTIFACT, *TWO, "--repeat", "2", "-o", "trace.json"]),
    Case("tune", ["tune", MODEL, *TWO, "--again", "--samples", "1", "--count", "2", "--output", "r.csv"]),
    Case("peer", ["bench", MODEL, *TWO, "--repeat", "2", "--against", "onnxruntime"], needs="onnxruntime"),
    Case("host_compile", ["compile"], "host.aicf", host=True),
    Case("host_run", ["run"], host=True),
    Case("host_train", ["train"], host=True),
    Case("train", ["train", STEP, *DATA, "--batch", "4", "--steps", "6", "-o", "tr.aicf"], "tr.aicf"),
]
PYTHON = ("load", "compile", "run", "train", "checkpoint", "weights")


def write_inputs(folder: Path) -> None:
    rng = np.random.default_rng(0)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array((rng.standard_normal(shape) / 16).astype("f"), name)

    nodes = [
        helper.make_node("Reshape", ["x", "image"], ["i"]),
        helper.make_node("Conv", ["i", "K"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Gemm", ["f", "W", "b"], ["h"]),
        helper.make_node("Softmax", ["h"], ["s"], axis=-1),
        helper.make_node("MatMul", ["s", "V"], ["y"]),
    ]
    image = numpy_helper.from_array(np.array([-1, 1, 8, 8], "i8"), "image")
    weights = [
        image,
        weight("K", 16, 1, 3, 3),
        weight("W", 1024, 1024),
        weight("b", 1024),
        weight("V", 1024, 10),
    ]
    infos = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64]),
        helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10]),
    ]
    graph = helper.make_graph(nodes, "limits", infos[:1], infos[1:], weights)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), folder / MODEL)
    np.save(folder / "x.npy", rng.standard_normal((4, 64)).astype("f"))
    np.save(folder / "l.npy", rng.integers(0, 10, 4).astype("i4"))
    from safetensors.numpy import save_file

    save_file({"w": rng.standard_normal((512, 512)).astype("f")}, folder / "w.safetensors")


def own_bytes() -> int:
    """Of this process's address space."""
    return int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()


class PythonCases:
    """What a Python process does under a limit that begins after its imports: a fork of this process for
    each, because importing takes a hundred times as long as a case."""

    def __init__(self, folder: Path, torch: bool = False) -> None:
        os.chdir(folder)
        os.environ.setdefault("AICF_NUM_THREADS", "4")
        import aicf

        self.aicf = aicf
        self.x, self.labels = np.load("x.npy"), np.load("l.npy")
        self.model = aicf.nn.Sequential(aicf.nn.Linear(64, 512), aicf.nn.ReLU(), aicf.nn.Linear(512, 10))
        self.exe = aicf.load(ARTIFACT)
        self.step = self.make_step()
        self.torch: Any = None
        if torch:
            import torch as library

            self.torch = library
            library.set_num_threads(1)  # its pool would not be there in a fork
            self.of_torch = library.nn.Sequential(library.nn.Linear(64, 256), library.nn.GELU())
            self.compile_torch()  # what it imports at its first call

    def make_step(self) -> Any:
        aicf = self.aicf
        specs = [aicf.TensorSpec((4, 64)), aicf.TensorSpec((4,), "i32", "labels")]
        loss = aicf.nn.CrossEntropyLoss()
        return aicf.compile_train_step(self.model, loss, aicf.optim.AdamW(1e-3), specs)

    def load(self) -> None:
        self.aicf.load(ARTIFACT)(self.x)

    def compile(self) -> None:
        self.aicf.compile(MODEL, dims={"batch": "1..8"}).save("p.aicf")

    def run(self) -> None:
        for batch in (1, 2, 4):
            self.exe(self.x[:batch])
        self.exe.clone()(self.x)

    def train(self) -> None:
        step = self.make_step()
        for _ in range(3):
            step(self.x, self.labels)

    def checkpoint(self) -> None:
        self.step.save_checkpoint("p.safetensors")
        self.step.load_checkpoint("p.safetensors")

    def weights(self) -> None:
        self.aicf.nn.load_safetensors("w.safetensors")
        self.exe.load_state_dict(self.exe.state_dict() or self.exe.weights())

    def compile_torch(self) -> None:
        self.aicf.compile(self.of_torch, (self.torch.ones(4, 64),))(self.torch.ones(4, 64))

    def outcome(self, name: str, limit: int) -> int:
        """Of the case, in this process."""
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        if limit:
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        try:
            getattr(self, name)()
        except self.aicf.EnvError as error:
            os.write(2, f"error[{error.code}]\n".encode())
            return 3
        except MemoryError:
            os.write(2, b"error[AICF-E0002] as MemoryError\n")
            return 3
        return 0

    def forked(self, name: str, limit: int) -> tuple[int, str]:
        """The exit code, negative for a signal, and what the process says."""
        with tempfile.TemporaryFile() as said:
            child = os.fork()
            if child == 0:
                os.dup2(said.fileno(), 2)
                signal.alarm(SECONDS)
                try:
                    os._exit(self.outcome(name, limit))
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            said.seek(0)
            return status, said.read().decode(errors="replace")


def build_host(folder: Path) -> None:
    source, library = Path(__file__).with_name(HOST + ".cc"), LIBRARY.parent
    words = ["c++", "-std=c++20", f"-I{campaign.ROOT / 'include'}", str(source), f"-L{library}", "-laicf"]
    subprocess.run([*words, f"-Wl,-rpath,{library}", "-o", str(folder / HOST)], check=True)


def prepare(cli: str, folder: Path) -> None:
    """The inputs of all cases, a compiled model and a train step."""
    write_inputs(folder)
    words = ["compile", MODEL, *DIM, "-o", ARTIFACT]
    subprocess.run([cli, *words], cwd=folder, check=True, capture_output=True)
    here = [sys.executable, str(Path(__file__).resolve()), "--save-step", str(folder)]
    subprocess.run(here, check=True)


class Limits:
    def __init__(self, cli: str, folder: Path, seed: int) -> None:
        self.cli, self.folder, self.seed = cli, folder, seed
        self.environment = {**os.environ, "AICF_CACHE_DIR": "", "VIRTUAL_ENV": sys.prefix}
        self.codes: collections.Counter[str] = collections.Counter()
        self.whole: dict[str, bytes] = {}
        self.findings = 0
        self.python: Any = None

    def call(self, case: Case, limit: int) -> subprocess.CompletedProcess[bytes]:
        if case.python:
            code, said = self.python.forked(case.words[0], limit)
            return subprocess.CompletedProcess([], code, b"", said.encode())

        def confine() -> None:
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            if limit:
                resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

        return subprocess.run(
            [str(self.folder / HOST) if case.host else self.cli, *case.words],
            cwd=self.folder,
            env={**self.environment, **case.variables},
            preexec_fn=confine,
            capture_output=True,
            timeout=SECONDS,
            check=False,
        )

    def succeeds(self, case: Case, limit: int) -> bool:
        return self.call(case, limit).returncode == 0

    def left_out(self, case: Case) -> bool:
        without = ""
        if case.host and not LIBRARY.exists():
            without = "build/lib/libaicf.so is not built"
        elif case.needs and importlib.util.find_spec(case.needs) is None:
            without = f"{case.needs} is not installed"
        elif case.nvrtc and NO_LIBRARY.encode() in self.call(case, 0).stderr:
            without = "NVRTC is not installed"
        if without:
            print(f"{case.name}: left out: {without}")
        return bool(without)

    def measure(self, case: Case) -> bool:
        """The least limits under which it starts and under which it succeeds; whether it does without one."""
        done = self.call(case, 0)
        if done.returncode != 0:
            self.findings += 1
            print(f"FOUND {case.name} without a limit: {done.stderr.decode(errors='replace').strip()[-300:]}")
            return False
        if case.writes:
            self.whole[case.name] = (self.folder / case.writes).read_bytes()

        def least(works: Callable[[int], bool]) -> int:
            # Up from what is too little: calls that fail are short.
            low, high = 0, 1 << 20
            while high < MOST and not works(high):
                low, high = high, 2 * high
            while high - low > max(PART, high >> 10):
                middle = (low + high) // 2 // PART * PART
                low, high = (low, middle) if works(middle) else (middle, high)
            return high

        case.high = least(lambda limit: self.succeeds(case, limit))
        if case.python:
            case.low = own_bytes()
        else:
            # Below, the system ends the process before a line of ours runs: it cannot map the program
            # (SIGSEGV, SIGKILL) or the libraries (127). A program without our handlers (last_words.cc) starts
            # where C++ can throw.
            start = Case("version", ["--version"], host=case.host)
            early = {127, -signal.SIGSEGV, -signal.SIGKILL} | ({3, -signal.SIGABRT} if case.host else set())
            case.low = least(lambda limit: self.call(start, limit).returncode not in early)
        return True

    def judge(self, case: Case, limit: int) -> str:
        """What is wrong with the case under this limit; "" if nothing."""
        if case.writes:
            (self.folder / case.writes).unlink(missing_ok=True)
        try:
            done = self.call(case, limit)
        except subprocess.TimeoutExpired:
            return f"it takes more than {SECONDS} s"
        said = done.stderr.decode(errors="replace")
        code = re.search(r"error\[(AICF-\w+)\]", said)
        self.codes["ok" if done.returncode == 0 else code[1] if code else f"exit {done.returncode}"] += 1
        tail = said.strip()[-600:]
        if done.returncode < 0:
            return f"signal {-done.returncode}: {tail}"
        if done.returncode not in (0, 3):
            return f"exit {done.returncode}: {tail}"
        if done.returncode == 3 and (code is None or not code[1].startswith("AICF-E")):
            return f"exit 3 without an AICF-E code: {tail}"
        if done.returncode == 3 and "--json" in case.words:
            try:
                if not json.loads(done.stdout)["error"]["code"].startswith("AICF-E"):
                    return "the JSON names another error"
            except (ValueError, KeyError):
                return f"what it prints is not JSON: {done.stdout[-200:]!r}"
        if case.writes:
            path = self.folder / case.writes
            if path.exists() and path.read_bytes() != self.whole[case.name]:
                return "the file that it wrote is not whole"
            if done.returncode == 0 and not path.exists():
                return "the file that it was to write is not there"
        left = [p.name for p in self.folder.rglob(".aicf.tmp*")]
        return f"files are left: {left}" if left else ""

    def run(self, case: Case, count: int, at: int) -> None:
        draw = random.Random(f"{self.seed} {case.name}")
        span = max(case.high - case.low, 1)
        for _ in range(1 if at else count):
            # Half of them evenly, half near the start, where many small things are made.
            share = draw.random() if draw.random() < 0.5 else draw.random() ** 3
            limit = at or (case.low + int(share * span)) // 4096 * 4096
            wrong = self.judge(case, limit)
            if not wrong:
                continue
            self.findings += 1
            again = f"scripts/memory_limits.py --only {case.name} --at {limit}"
            print(f"FOUND {case.name} under {limit}: {wrong}\n  again: {sys.executable} {again}", flush=True)


def main() -> int:
    parser = campaign.arguments(__doc__, 1000)
    default = campaign.ROOT / "build" / "bin" / "aicf"
    parser.add_argument("--cli", default=os.environ.get("AICF_CLI", str(default)))
    parser.add_argument("--only", default="", help="cases whose name begins so")
    parser.add_argument("--at", type=int, default=0, help="this limit only, in bytes")
    parser.add_argument("--save-step", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--parts", type=int, default=1, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.save_step:
        PythonCases(options.save_step).step.save(STEP)
        return 0
    cases = CASES + [Case(f"python_{name}", [name], python=True) for name in PYTHON]
    cases.append(Case("python_compile_torch", ["compile_torch"], python=True, needs="torch"))
    cases = [case for case in cases if case.name.startswith(options.only)]
    if options.jobs > 1:  # a case is measured once, by the process that has it
        words = ["--cli", options.cli, "--only", options.only, "--seed", str(options.seed)]
        words += ["--count", str(options.count), "--parts", str(min(options.jobs, len(cases)))]
        given = [[*words, "--part", str(part)] for part in range(min(options.jobs, len(cases)))]
        return campaign.side_by_side(__file__, options.seed, given, options.count)
    with tempfile.TemporaryDirectory() as folder:
        trial = Limits(str(Path(options.cli).resolve()), Path(folder), options.seed)
        prepare(trial.cli, trial.folder)
        cases = [case for case in cases if not trial.left_out(case)]
        count = -(-options.count // max(len(cases), 1))
        cases = cases[options.part :: options.parts]
        if any(case.host for case in cases):
            build_host(trial.folder)
        if any(case.python for case in cases):
            trial.python = PythonCases(trial.folder, any(case.needs == "torch" for case in cases))
        for case in cases:
            if options.at or trial.measure(case):
                if options.at and case.writes:
                    trial.call(case, 0)
                    trial.whole[case.name] = (trial.folder / case.writes).read_bytes()
                before = trial.findings
                trial.run(case, count, options.at)
                print(f"{case.name}: {case.low}..{case.high}, {trial.findings - before} found", flush=True)
        print(dict(trial.codes))
        wanted = len(cases) * (1 if options.at else count)
        return campaign.finish(options.seed, sum(trial.codes.values()), "limits", trial.findings, wanted)


if __name__ == "__main__":
    sys.exit(main())

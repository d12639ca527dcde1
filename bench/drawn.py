"""Problems drawn by a seed, ours beside torch.compile (on a CPU onnxruntime too): right first, then timed in
turns. Which problems there are follows from the seed (drawn_problems.py); nobody has tuned to them.

    python bench/drawn.py --seed 7 --list                        the problems, with what they are estimated at
    python bench/drawn.py --seed 7 --output build/7.json         16 of inference on the GPU
    python bench/drawn.py --seed 7 --train --resume build/7.json  8 training steps, added to the file

A problem runs in a process of its own. Several prepare at once (`--parallel`): they compile both sides and
compare them with f64. Then each is timed alone. On a GPU the peer is a bare CUDA Graph of torch.compile's
program, of a training step with loss, backward and fused optimizer, in the faster layout of convolutions. A
sample is the mean of a queue of replays; ratios are peer / ours of neighbouring samples, their median counts.

A failure, a refusal or a wrong result of ours counts as 0.5 (verdicts.py). If the peer fails, the next index
takes the place. `--seconds` ends the run before that time is over: what it had no time for stands in the
file and at the end. `--resume` goes on from a file of the same commit, generator, card and versions. Models
of libraries may differ by the version of these, which the file names. With `--device cuda` the end is 3 where
torch or a GPU is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import selectors
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from drawn_problems import MODES, Problem, draw, frozen_hash, generator_hash  # noqa: E402
from drawn_report import OUR_TURN, shown, summary  # noqa: E402
from machine import describe_machine, measured_tree, physical_cores, versions  # noqa: E402

COUNTS = {
    ("cuda", "inference"): 16, ("cuda", "train"): 8,
    ("cpu", "inference"): 20, ("cpu", "train"): 10, ("cpu", "int8"): 10, ("cpu", "halves"): 10,
}  # fmt: skip
PREPARE_SECONDS, TIME_SECONDS = 400.0, 150.0
TURN_SECONDS = {"cuda": 12.0, "cpu": 60.0}  # kept for the timing of each problem that is prepared


@dataclass
class Worker:
    """A process that runs one problem, and what it has said so far."""

    problem: Problem
    process: subprocess.Popen[str]
    log: Path
    until: float
    cut: bool  # its time ends with the run's, so that being over it says nothing
    stage: str = "start"
    seen: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    def read(self) -> bool:
        """Takes what is there; false at the end of its output."""
        assert self.process.stdout is not None
        piece = os.read(self.process.stdout.fileno(), 1 << 16).decode(errors="replace")
        self.text += piece
        *lines, self.text = self.text.split("\n")
        for line in lines:
            if line.startswith("@@"):
                record = json.loads(line[2:])
                self.stage = record.pop("stage", self.stage)
                self.seen |= record
        return bool(piece)

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        lines = self.log.read_text(errors="replace").strip().splitlines()
        return lines[-1][:300] if lines else f"exit {self.process.returncode}"


class Run:
    """The records of a file, and the problems that are still to be run."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.begun = time.monotonic()
        self.untimed: set[int] = set()
        self.path: Path | None = options.output or options.resume
        self.report: dict[str, Any] = {
            **measured_tree(),
            "generator": generator_hash(),
            "command": shlex.join(["python", *sys.argv]),
            "machine": describe_machine(),
            "versions": installed(),
            "records": [],
            "cut": [],  # problems of this run that it had no time for
        }
        if options.device == "cuda":
            from gpu_report import describe_gpu

            self.report["gpu"] = describe_gpu()
        if options.resume is not None:
            if not options.resume.exists():
                refuse(f"there is no {options.resume} to go on from")
            self.resume(json.loads(options.resume.read_text()))

    def resume(self, old: dict[str, Any]) -> None:
        for key in ("commit", "generator", "versions", "gpu"):
            if old.get(key) != self.report.get(key):
                refuse(f"{self.options.resume} is of {key} {old.get(key)}, this is {self.report.get(key)}; "
                       "results of two are not mixed")  # fmt: skip
        if old["tree_changed"] or self.report["tree_changed"]:
            refuse("the tree has changes that no commit holds: a run of it is not gone on with")
        self.report["records"] = old["records"]
        self.report["command"] = f"{old['command']}; {self.report['command']}"

    def key(self) -> tuple[int, str, str]:
        return self.options.seed, self.options.device, self.options.mode

    def mine(self) -> list[dict[str, Any]]:
        key = self.key()
        return [r for r in self.report["records"] if (r["seed"], r["device"], r["mode"]) == key]

    def left(self) -> float:
        return self.options.seconds - (time.monotonic() - self.begun)

    def wanted(self) -> list[int]:
        """Indices not yet run, as many as problems with a peer are missing; what this run had no time for is
        left to another."""
        done = {r["index"]: r for r in self.mine()}
        counted = sum("peer_failed" not in r for r in done.values()) + len(self.untimed)
        fresh = (i for i in range(10_000) if i not in done and i not in self.untimed)
        return [next(fresh) for _ in range(self.options.count - counted)]

    def add(self, record: dict[str, Any]) -> None:
        self.report["records"].append(record)
        self.report["records"].sort(key=lambda r: (r["seed"], r["device"], r["mode"], r["index"]))
        print(shown(record), flush=True)
        self.write()

    def write(self) -> None:
        if self.path is not None:
            part = self.path.with_name(f".{self.path.name}.part")
            part.write_text(json.dumps(self.report, indent=1))
            part.replace(self.path)


def refuse(why: str) -> NoReturn:
    print(f"drawn: {why}", file=sys.stderr)
    sys.exit(2)


def installed() -> dict[str, str]:
    import importlib.metadata

    names = ("torch", "torchvision", "timm", "transformers", "onnxruntime", "triton", "numpy")
    found = {}
    for name in names:
        try:
            found |= versions([name])
        except importlib.metadata.PackageNotFoundError:
            found[name] = ""
    return found


def start(run: Run, problem: Problem, folder: Path, seconds: float, skip: str = "") -> Worker:
    """`seconds` are left to prepare."""
    options = run.options
    log = folder / f"{problem.index}{'-peer' if skip else ''}.log"
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(folder / f"inductor-{problem.index}"),
        "TORCHINDUCTOR_COMPILE_THREADS": "2",
        "TRITON_CACHE_DIR": str(folder / f"triton-{problem.index}"),
        "AICF_NUM_THREADS": str(options.threads),
        "TOKENIZERS_PARALLELISM": "false",
        "HF_HUB_OFFLINE": "1",
    }
    command = [
        sys.executable, str(HERE / "drawn_worker.py"), json.dumps(problem.as_dict()),
        "--threads", str(options.threads), "--rounds", str(options.rounds), "--cli", str(options.aicf),
        "--skip-ours", skip,
    ]  # fmt: skip
    with log.open("w") as errors:
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment
        )
    until = time.monotonic() + min(seconds, PREPARE_SECONDS)
    return Worker(problem, process, log, until, seconds < PREPARE_SECONDS)


def pump(workers: list[Worker], key: str) -> list[Worker]:
    """Reads what they say for a moment. Gives those that have said `key`, have ended or are over their time;
    the latter two are ended and have a reason."""
    with selectors.DefaultSelector() as selector:
        for worker in workers:
            selector.register(worker.process.stdout, selectors.EVENT_READ, worker)  # type: ignore[arg-type]
        ended = [ready.data for ready, _ in selector.select(timeout=0.5) if not ready.data.read()]
    done = []
    for worker in workers:
        if key not in worker.seen and (worker in ended or time.monotonic() > worker.until):
            over = worker not in ended
            worker.end()
            said = f"over its time in stage {worker.stage}" if over else worker.last_words()
            worker.seen.setdefault("failed", said)
        if key in worker.seen or "failed" in worker.seen:
            done.append(worker)
    return done


def wait(worker: Worker, key: str) -> None:
    while not pump([worker], key):
        pass


def prepare(run: Run, problems: list[Problem], folder: Path) -> list[Worker]:
    """Programs of several problems, some at once. Where ours ends the process, the peer is made again alone.
    Those for which there is no time are left to another run."""
    kept = min(0.5 * run.left(), TURN_SECONDS[run.options.device] * len(problems))
    end = time.monotonic() + run.left() - kept
    left = [(problem, "") for problem in problems]
    active: list[Worker] = []
    done: list[Worker] = []
    while (left and time.monotonic() < end) or active:
        while left and len(active) < run.options.parallel and time.monotonic() < end:
            problem, why = left.pop(0)
            active.append(start(run, problem, folder, end - time.monotonic(), why))
        for worker in pump(active, "prepared"):
            active.remove(worker)
            if "prepared" not in worker.seen and worker.stage == "ours" and not worker.cut:
                left.append((worker.problem, f"ended its process: {worker.seen['failed']}"))
            else:
                done.append(worker)
    return sorted(done, key=lambda worker: worker.problem.index)


def measure(run: Run, worker: Worker) -> dict[str, Any] | None:
    """The record of a prepared problem; None: there was no time for it."""
    problem, seen = worker.problem, worker.seen
    record = problem.as_dict()
    if "prepared" not in seen:
        return None if worker.cut else record | {"peer_failed": f"{worker.stage}: {seen['failed']}"}
    record |= seen["prepared"]
    if all("failed" in row for row in record["peers"].values()):
        record["peer_failed"] = "; ".join(f"{name}: {row['failed']}" for name, row in record["peers"].items())
        return record
    if run.left() < 10.0:
        return None
    overall = run.left() < TIME_SECONDS
    assert worker.process.stdin is not None
    worker.until = time.monotonic() + min(TIME_SECONDS, run.left())
    worker.process.stdin.write("go\n")
    worker.process.stdin.flush()
    wait(worker, "timed")
    if "timed" not in seen:
        print(f"{problem.index:3d} {problem.name}\n      not timed: {seen['failed']}", flush=True)
        if worker.stage != OUR_TURN or (overall and "over its time" in seen["failed"]):
            return None
        record["ours"] = record["ours"] | {"failed": f"while it was timed: {seen['failed']}"}
        return record
    wait(worker, "kernels")
    record["samples_us"], record["kernels"] = (
        seen["timed"],
        seen.get("kernels", {"failed": seen.get("failed")}),
    )
    return record


def go(run: Run) -> None:
    options = run.options
    with tempfile.TemporaryDirectory(prefix="drawn-") as name:
        folder = Path(name)
        while (indices := run.wanted()) and run.left() > 45.0:
            problems = [draw(*run.key(), i) for i in indices[: options.wave]]
            workers = prepare(run, problems, folder)
            for worker in workers:
                record = measure(run, worker)
                worker.end()
                if record is not None:
                    run.add(record)
            cut = [p for p in problems if p.index not in {r["index"] for r in run.mine()}]
            run.untimed |= {p.index for p in cut}
            run.report["cut"] += [f"{p.index} {p.name}" for p in cut]
            run.write()


def listed(options: argparse.Namespace) -> None:
    for i in range(options.count):
        problem = draw(options.seed, options.device, options.mode, i)
        sizes = f"{problem.flops / 1e9:9.3f} GF {problem.bytes / 1e6:9.2f} MB {problem.kernels:5d} kernels"
        print(
            f"{i:3d} {problem.third:6s} {1e6 * problem.seconds:8.0f} µs {sizes}  {problem.name}", flush=True
        )


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--device", choices=list(MODES), default="cuda")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--train", action="store_const", const="train", dest="mode", help="training steps")
    kinds.add_argument("--int8", action="store_const", const="int8", dest="mode", help="quantised nets (CPU)")
    kinds.add_argument(
        "--halves", action="store_const", const="halves", dest="mode", help="f16 and bf16 (CPU)"
    )
    parser.add_argument("--count", type=int, help="problems; 16, 8 of training; on a CPU 20 and 10")
    parser.add_argument("--list", action="store_true", help="only shows the problems")
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    parser.add_argument("--resume", type=Path, help="a file to go on from, at the same commit and generator")
    parser.add_argument("--seconds", type=float, default=1e9, help="the run ends before they are over")
    parser.add_argument("--parallel", type=int, help="problems that prepare at once; 8, on a CPU 1")
    parser.add_argument("--wave", type=int, help="problems prepared before the first is timed; 8, on a CPU 2")
    parser.add_argument("--rounds", type=int, default=40, help="pairs of samples, at least 30")
    parser.add_argument("--threads", type=int, help="of a CPU's programs: the physical cores; beside a GPU 2")
    parser.add_argument(
        "--aicf", type=Path, default=HERE.parent / "build/bin/aicf", help="for times of kernels"
    )
    options = parser.parse_args()
    options.mode = options.mode or "inference"
    if options.mode not in MODES[options.device]:
        parser.error(f"--{options.mode} runs with --device cpu")
    if options.rounds < 30:
        parser.error("--rounds: at least 30 pairs carry a median")
    options.count = options.count or COUNTS[options.device, options.mode]
    options.threads = options.threads or (2 if options.device == "cuda" else physical_cores())
    options.parallel = options.parallel or (8 if options.device == "cuda" else 1)
    options.wave = options.wave or (8 if options.device == "cuda" else 2)
    return options


def main() -> int:
    options = arguments()
    if options.list:
        listed(options)
        return 0
    if options.device == "cuda":
        from gpu_report import require_cuda

        require_cuda()
    run = Run(options)
    if run.report["generator"] != frozen_hash():
        print("drawn: the generator is not the frozen one; these figures do not count", file=sys.stderr)
    go(run)
    print(summary(run.mine(), run.report["cut"]))
    missing = options.count - sum("peer_failed" not in r for r in run.mine())
    if missing:
        print(f"{missing} of {options.count} problems are left; --resume {run.path} goes on")
    return 0


if __name__ == "__main__":
    sys.exit(main())

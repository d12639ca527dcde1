"""What training promises, shown on one GPU in two minutes: the same bits, PyTorch's accuracy, nothing lost.

    steps        1,000 steps of the digits example, the character GPT and GPT-2 124M in two processes each,
                 beside a process that keeps three streams busy: one hash of all params and states each, and
                 the same again from the states after half of the steps
    curve        GPT-2 124M, bf16-pure, 50 steps of text: distance of the losses to those of PyTorch in f64
                 from the same weights and batches is at most twice that of PyTorch in bf16
    kills        `aicf train` killed at random moments 50 times and resumed: the bits of an undisturbed run
    linear-loss  a large linear layer with its cross entropy and gradients (gpu_train.py): at most 1.05 times
                 the time of torch.compile in a CUDA Graph and a quarter of its memory beyond the operands

Prints a line for each proof; exit 1 if one fails. Only the last is timed, and runs alone. Needs torch with
CUDA and scikit-learn in the Python that runs this; `--device cpu --quick` tries the first three anywhere.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpu_report import Record, Report, make_parser, median, require_cuda

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

# Those of a group side by side.
GROUPS = (("steps", "curve"), ("kills",), ("linear-loss",))
PARTS = tuple(part for group in GROUPS for part in group)
MOST_DISTANCE, MOST_TIME, MOST_MEMORY = 2.0, 1.05, 0.25


@dataclass(frozen=True)
class Size:
    """How much of each is run."""

    steps: int = 1000
    curve: int = 50
    kills: int = 50
    killed_steps: int = 2000
    gpt: tuple[int, ...] = (50304, 256, 768, 12, 12)  # gpu_train_steps.Gpt
    batch: int = 4


QUICK = Size(40, 3, 3, 300, (256, 16, 32, 2, 1), 2)
Batches = Callable[[int], tuple[np.ndarray, np.ndarray]]  # of a step's number


# ---- training steps and their data


def digits(options: argparse.Namespace) -> tuple[Any, Batches]:
    import digits as example

    x, y, test, _ = example.load()

    def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
        rows = np.random.default_rng(number).integers(0, len(x), example.BATCH)
        return x[rows], y[rows]

    return example.compile_step(len(test), options.size.steps, options.device), batch


def char_gpt(options: argparse.Namespace) -> tuple[Any, Batches]:
    import char_gpt as example

    letters, data = example.read_text()
    step = example.compile_step(len(letters), options.size.steps, options.device)
    return step, lambda number: example.batch(data, np.random.default_rng(number))


def gpt2_row(size: Size) -> Any:
    import gpu_train_steps

    (row,) = (row for row in gpu_train_steps.ROWS if row.name == "gpt2-124m")
    return replace(row, batch=size.batch, shape=gpu_train_steps.Gpt(*size.gpt))


def text_batches(size: Size) -> Batches:
    """Windows of the bytes of a text, and the same one byte later."""
    import char_gpt as example

    path = next(p for p in example.TEXTS if p.exists())
    data = np.frombuffer(path.read_bytes(), np.uint8).astype(np.int64)

    def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
        starts = np.random.default_rng(number).integers(0, len(data) - size.gpt[1] - 1, size.batch)
        windows = np.stack([data[i : i + size.gpt[1] + 1] for i in starts])
        return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])

    return batch


def gpt2(options: argparse.Namespace) -> tuple[Any, Batches]:
    import gpu_train_steps

    row = gpt2_row(options.size)
    step = gpu_train_steps.compile_step(row, gpu_train_steps.peer_module(row, "cpu"), options.device)
    return step, text_batches(options.size)


STEPS = {"examples/digits.py": digits, "examples/char_gpt.py": char_gpt, "GPT-2 124M": gpt2}


# ---- what a process of its own does: it prints a record


def run_steps(options: argparse.Namespace) -> Record:
    step, batch = STEPS[options.name](options)
    total, half = options.size.steps, options.size.steps // 2
    loss: Any = None
    for number in range(total):
        if number == half:
            states = step.state_dict()
        loss = step(*batch(number))
    first = step.hash()
    step.load_state_dict(states)
    for number in range(half, total):
        step(*batch(number))
    return {"steps": total, "loss": float(np.asarray(loss)), "hash": first, "restored": step.hash()}


def run_busy(options: argparse.Namespace) -> Record:
    """Products on three streams, until it is ended."""
    import torch

    streams = [torch.cuda.Stream() for _ in range(3)]
    x = torch.randn(2048, 2048, device="cuda", dtype=torch.bfloat16)
    while True:
        for stream in streams:
            with torch.cuda.stream(stream):
                for _ in range(10):
                    x @ x
        torch.cuda.synchronize()


def torch_losses(module: Any, batches: Iterator[tuple[np.ndarray, np.ndarray]], device: str) -> list[float]:
    import gpu_train_steps
    import torch
    import torch.nn.functional as F

    module = module.to(device)
    optimizer = torch.optim.AdamW(module.parameters(), lr=gpu_train_steps.RATE, weight_decay=0.01)
    losses = []
    for ids, targets in batches:
        scores = module(torch.from_numpy(ids).to(device)).flatten(0, 1)
        scores = scores if scores.dtype == torch.float64 else scores.float()
        loss = F.cross_entropy(scores, torch.from_numpy(targets).to(device).flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return losses


def run_curve(options: argparse.Namespace) -> Record:
    import gpu_train_steps

    row, batch = gpt2_row(options.size), text_batches(options.size)
    module = gpu_train_steps.peer_module(row, "cpu")
    step = gpu_train_steps.compile_step(row, module, options.device)
    numbers = range(options.size.curve)
    ours = [float(np.asarray(step(*batch(i)))) for i in numbers]
    bf16 = torch_losses(deepcopy(module), (batch(i) for i in numbers), options.device)
    f64 = torch_losses(module.double(), (batch(i) for i in numbers), options.device)
    sizes = {"batch": [row.batch, row.shape.context], "rate": gpu_train_steps.RATE}
    return {**sizes, "ours": ours, "torch_bf16": bf16, "torch_f64": f64}


CHILDREN = {"steps": run_steps, "busy": run_busy, "curve": run_curve}


# ---- parts


def start(options: argparse.Namespace, child: str, name: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", child, "--name", name, "--device", options.device]
    if options.quick:
        command.append("--quick")
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> Record:
    output, _ = process.communicate()
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, process.args))} ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def prove_steps(options: argparse.Namespace) -> Iterator[Record]:
    neighbour = start(options, "busy") if options.device != "cpu" else None
    processes = {name: [start(options, "steps", name) for _ in range(2)] for name in STEPS}
    try:
        for name, pair in processes.items():
            runs = [finish(process) for process in pair]
            hashes = {run[key] for run in runs for key in ("hash", "restored")}
            shown = f"{runs[0]['steps']} steps, 2 processes, restored: {len(hashes)} hash {min(hashes)}"
            yield {"proof": f"same bits, {name}", "passed": len(hashes) == 1, "shown": shown, "runs": runs}
    finally:
        if neighbour is not None:
            neighbour.kill()
            neighbour.wait()


def distance(a: list[float], b: list[float]) -> float:
    return float(np.sqrt(np.mean((np.array(a) - np.array(b)) ** 2)))


def prove_curve(options: argparse.Namespace) -> Iterator[Record]:
    run = finish(start(options, "curve"))
    ours, peer = (distance(run[key], run["torch_f64"]) for key in ("ours", "torch_bf16"))
    shown = f"distance to f64 {ours:.5f}, that of PyTorch in bf16 {peer:.5f}"
    passed = ours <= MOST_DISTANCE * peer
    yield {"proof": f"GPT-2 124M, {len(run['ours'])} losses", "passed": passed, "shown": shown, **run}


class Trained:
    """Runs of `aicf train` over the digits, each with a checkpoint of its own in `folder`."""

    EVERY = 50

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        import digits as example

        self.options, self.folder = options, folder
        x, y, test, _ = example.load()
        example.export(folder, example.compile_step(len(test), 1000, options.device), x, y)

    def start(self, name: str) -> subprocess.Popen[str]:
        command = [os.path.abspath(self.options.aicf), "train", "step.aicf", "--data", "x.npy", "--labels"]
        command += ["y.npy", "--json", "--steps", str(self.options.size.killed_steps), "--checkpoint", name]
        command += ["--checkpoint-every", str(self.EVERY), "--resume", "--device", self.options.device]
        pipe = subprocess.PIPE
        return subprocess.Popen(command, cwd=self.folder, stdout=pipe, stderr=subprocess.DEVNULL, text=True)

    def whole(self, name: str) -> str:
        output, _ = self.start(name).communicate()
        return json.loads(output).get("hash", output)

    def killed(self, number: int, seconds: float) -> Record:
        """Killed until there is something to resume from, then resumed."""
        moments = random.Random(number)
        name, kills = f"killed{number}", 0
        while not (self.folder / name).exists():
            process = self.start(name)
            time.sleep(moments.uniform(0, seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            kills += 1
        return {"kills": kills, "hash": self.whole(name)}


def prove_kills(options: argparse.Namespace) -> Iterator[Record]:
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        trained = Trained(options, Path(folder))
        begin = time.monotonic()
        wholes = list(pool.map(lambda i: trained.whole(f"whole{i}"), range(options.jobs)))
        seconds = time.monotonic() - begin  # with as many beside it as later
        runs = list(pool.map(lambda i: trained.killed(i, seconds), range(options.size.kills)))
    hashes = {*wholes, *(run["hash"] for run in runs)}
    shown = (
        f"{sum(run['kills'] for run in runs)} kills, {len(runs)} resumed: {len(hashes)} hash {min(hashes)}"
    )
    passed = len(hashes) == 1
    yield {"proof": "aicf train killed", "passed": passed, "shown": shown, "seconds": seconds, "runs": runs}


def prove_linear_loss(options: argparse.Namespace) -> Iterator[Record]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "row.json"
        script = Path(__file__).with_name("gpu_train.py")
        command = [sys.executable, str(script), "linear-loss", "--aicf", options.aicf, "--output", str(path)]
        subprocess.run([*command, "--rounds", str(options.rounds)], check=True, stdout=subprocess.DEVNULL)
        row = json.loads(path.read_text())["rows"][0]
    ours, peer = row["aicf"], row["torch.compile, CUDA Graph"]
    width, classes = 4096, 131072
    operands = 2 * 2 * (row["batch"] + classes) * width / 2**20  # bf16, and their gradients
    time_ratio = median(ours) / median(peer)
    extra = [record["peak_mib"] - operands for record in (ours, peer)]
    shown = f"{median(ours) / 1e3:.1f} ms, torch.compile {median(peer) / 1e3:.1f}; "
    shown += f"memory beyond operands {extra[0]:.0f} MiB, {extra[1]:.0f}"
    passed = time_ratio <= MOST_TIME and extra[0] <= MOST_MEMORY * extra[1]
    yield {"proof": "linear + cross entropy", "passed": passed, "shown": shown, "extra_mib": extra, **row}


PROVERS = dict(zip(PARTS, (prove_steps, prove_curve, prove_kills, prove_linear_loss), strict=True))


def prove(options: argparse.Namespace, tell: Callable[[Record], None], part: str) -> None:
    try:
        for record in PROVERS[part](options):
            tell(record)
    except (Exception, SystemExit) as error:
        tell({"proof": part, "passed": False, "shown": f"no answer: {type(error).__name__}: {error}"})


def main() -> int:
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=4)
    parser.add_argument("parts", nargs="*", help=f"any of {', '.join(PARTS)}; default: all")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true", help="a few small steps, to try the program")
    parser.add_argument("--jobs", type=int, default=8, help="runs of aicf train at a time")
    parser.add_argument("--child", choices=CHILDREN, help=argparse.SUPPRESS)
    parser.add_argument("--name", default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.size = QUICK if options.quick else Size()
    if options.child:
        print(json.dumps(CHILDREN[options.child](options)))
        return 0
    if unknown := set(options.parts) - set(PARTS):
        parser.error(f"no part {', '.join(sorted(unknown))}")
    if options.device != "cpu":
        require_cuda()
    report = Report(options, ["torch"])
    begin, turn = time.monotonic(), threading.Lock()

    def tell(record: Record) -> None:
        verdict = "passed" if record["passed"] else "FAILED"
        with turn:
            late = f"{time.monotonic() - begin:.0f} s"
            print(f"{record['proof']:<34}{verdict}  {record['shown']}  ({late})", flush=True)
            report.add(record)

    for group in GROUPS:
        parts = [part for part in group if not options.parts or part in options.parts]
        with ThreadPoolExecutor(len(GROUPS)) as pool:
            list(pool.map(partial(prove, options, tell), parts))
    return int(not all(row["passed"] for row in report.rows))


if __name__ == "__main__":
    sys.exit(main())

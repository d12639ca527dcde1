"""Raises SIGINT at random moments of training, running and compiling, and checks that nothing is left behind.

    python scripts/interrupts.py [--count 1000] [--seed S] [--jobs 4] [--only NAME]

After each interrupt the object that it met goes on: it is busy with nothing, and its bits are those of a run
in which the interrupted call did not happen, or happened whole. Exits with 1 and the command that repeats it
otherwise.
"""

from __future__ import annotations

import faulthandler
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import aicf
import campaign
import numpy as np
from aicf import nn, optim
from aicf.tracing import current_graph

STEPS = 4000  # of the reference trajectories; more than fit between two interrupts


class Target:
    """What is interrupted: `work` is called again and again until the interrupt comes, `check` afterwards."""

    longest = 0.004  # seconds until the interrupt, at most

    def begin(self) -> None: ...
    def work(self) -> None: ...
    def check(self) -> None: ...


def require(holds: Any, what: str) -> None:
    if not holds:
        raise AssertionError(what)


def batches(count: int) -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(7)
    return [
        (rng.standard_normal((16, 12)).astype("f"), rng.integers(0, 4, 16).astype(np.int64))
        for _ in range(count)
    ]


def mlp() -> nn.Module:
    nn.seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))


class Training(Target):
    """A step happened or it did not: the states are those of one of two numbers of calls."""

    accumulate = 2

    def __init__(self) -> None:
        self.step = aicf.compile_train_step(
            mlp(),
            nn.CrossEntropyLoss(),
            optim.AdamW(optim.cosine(1e-2, total=STEPS)),
            [aicf.TensorSpec((16, 12)), aicf.TensorSpec((16,), "i64", "labels")],
            accumulate=self.accumulate,
            threads=2,
        )
        self.data = batches(5)
        self.start = self.step.state_dict()
        self.hashes, self.losses = [self.step.hash()], []
        self.done = 0

    def known(self, count: int) -> str:
        """The hash of all states after so many calls from the start."""
        if count >= len(self.hashes):
            states = self.step.state_dict()
            self.step.load_state_dict(self.start)
            self.hashes, self.losses = [self.step.hash()], []
            for i in range(count + 50):
                self.losses.append(float(np.asarray(self.step(*self.data[i % 5]))))
                self.hashes.append(self.step.hash())
            self.step.load_state_dict(states)
        return self.hashes[count]

    def begin(self) -> None:
        if self.done > STEPS // 2:
            self.step.load_state_dict(self.start)
            self.done = 0
        self.known(self.done + 400)

    def work(self) -> None:
        self.step(*self.data[self.done % 5])
        self.done += 1

    def check(self) -> None:
        now = self.step.hash()
        if now != self.known(self.done):
            self.done += 1
        require(now == self.known(self.done), "the states are of no number of whole calls")
        loss = float(np.asarray(self.step(*self.data[self.done % 5])))
        self.known(self.done + 1)
        require(loss == self.losses[self.done], "the next step has another loss")
        self.done += 1
        require(self.step.steps == self.done // self.accumulate, "the step counter is off")


class TrainingLoop(Training):
    """What stands around the calls in a loop: evaluation, checkpoints, states taken and given."""

    longest = 0.02

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.path = folder / "run.safetensors"

    def work(self) -> None:
        super().work()
        self.step.evaluate(self.data[0][0])
        self.step.load_state_dict(self.step.state_dict())
        self.step.save_checkpoint(self.path)
        self.step.load_checkpoint(self.path)

    def check(self) -> None:
        super().check()
        if self.path.exists():
            self.step.load_checkpoint(self.path)
            self.done = self.hashes.index(self.step.hash())


class Verifying(Training):
    """The run stands afterwards where it stood before."""

    longest = 0.02

    def work(self) -> None:
        self.step.verify(20, inputs=self.data, runs=2)


class Counting(nn.Module):
    def __init__(self, op: Callable[..., Any] | None) -> None:
        # Exact however many runs a slow machine makes before the interrupt comes.
        self.total = nn.State(shape=(3,), dtype="float64")
        self.late = nn.State(shape=(3,), dtype="float64")
        self._op = op

    def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
        total = self.total + x
        self.total.update(total)
        y = total * 1.0 if self._op is None else self._op(total)
        self.late.update(self.late + y)
        return y


class Running(Target):
    """A run happened whole or not at all: the states agree with each other, and with the next result."""

    def __init__(self, op: Callable[..., Any] | None = None) -> None:
        self.exe = aicf.compile(Counting(op), [aicf.TensorSpec((3,), "f64")], threads=2)
        self.one, self.out = np.ones(3), np.zeros(3)
        self.count = 0

    def begin(self) -> None:
        if self.count > 1000:
            self.exe.reset()
            self.count = 0

    def work(self) -> None:
        self.exe(self.one)
        self.count += 1
        self.exe.run_into([self.one], [self.out])
        self.count += 1

    def check(self) -> None:
        states = {name: np.array(value) for name, value in self.exe.state_dict().items()}
        total = int(states["total"][0])
        require(total in (self.count, self.count + 1), f"{total} runs of {self.count}")
        require((states["total"] == total).all(), "a state is of two runs")
        require((states["late"] == total * (total + 1) // 2).all(), "the states are of different runs")
        require((np.asarray(self.exe(self.one)) == total + 1).all(), "the next run gives another result")
        self.count = total + 1


def numpy_op() -> Callable[..., Any]:
    def copy(x: np.ndarray, y: np.ndarray) -> None:
        for i in range(len(x)):
            y[i] = x[i]

    return aicf.register_op("interrupts::copy", results=lambda x: x, cpu=copy)


class Compiling(Target):
    """What is compiled next gives the bits of what was compiled first."""

    longest = 0.08

    def __init__(self) -> None:
        self.x = batches(1)[0][0]
        self.right = np.asarray(self.compiled()(self.x))

    def compiled(self) -> aicf.Executable:
        return aicf.compile(mlp(), [aicf.TensorSpec(("n", 12))], dims={"n": "1..16"}, threads=2)

    def work(self) -> None:
        self.compiled()

    def check(self) -> None:
        try:
            current_graph()
        except aicf.UserError as error:
            require(error.name == "misuse", str(error))
        else:
            raise AssertionError("a trace is still active")
        require(np.array_equal(self.compiled()(self.x), self.right), "other bits")


class CompilingTorch(Target):
    """The same of a torch module; torch stands afterwards as it stood before."""

    longest = 3.0

    def __init__(self) -> None:
        import torch

        self.torch = torch
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(
            torch.nn.Linear(12, 8), torch.nn.ReLU(), torch.nn.BatchNorm1d(8), torch.nn.LSTM(8, 4)
        )
        self.x = torch.from_numpy(batches(1)[0][0])
        self.right = [r.clone() for r in self.results(self.compiled())]
        self.before = self.surface()

    def compiled(self) -> aicf.Executable:
        return aicf.compile(self.model.eval(), (self.x,), threads=2)

    def results(self, exe: aicf.Executable) -> list[Any]:
        return [
            self.torch.as_tensor(np.asarray(r)) for r in self.torch.utils._pytree.tree_leaves(exe(self.x))
        ]

    def surface(self) -> dict[str, Any]:
        """What a trace changes in torch while it lasts."""
        torch = self.torch
        owners = {
            "Tensor": torch.Tensor,
            "_VF": torch._VF,
            "Function": torch.autograd.Function,
            "functional": torch.nn.functional,
            "transformer": torch.nn.modules.transformer,
            "Distribution": torch.distributions.Distribution,
            "norm": torch.nn.modules.batchnorm._BatchNorm,
        }
        found = {f"{name}.{k}": v for name, owner in owners.items() for k, v in list(vars(owner).items())}
        modules = {name: vars(module).copy() for name, module in self.model.named_modules()}
        return {
            **{
                name: id(value)
                for name, value in found.items()
                if callable(value) or isinstance(value, property)
            },
            "mkldnn": torch._C._get_mkldnn_enabled(),
            "training": [m.training for m in self.model.modules()],
            "hooks": [
                len(state["_forward_hooks"]) + len(state["_forward_pre_hooks"]) for state in modules.values()
            ],
        }

    def work(self) -> None:
        self.compiled()

    def check(self) -> None:
        import gc

        gc.collect()
        now = self.surface()
        changed = [name for name in self.before if self.before[name] != now.get(name)]
        require(not changed, f"torch stays changed: {changed}")
        results = self.results(self.compiled())
        require(all(map(self.torch.equal, results, self.right)), "other bits")


def targets(folder: Path) -> dict[str, tuple[Callable[[], Target], int]]:
    """Each with its share of the interrupts."""
    return {
        "step": (Training, 8),
        "loop": (lambda: TrainingLoop(folder), 4),
        "verify": (Verifying, 2),
        "run": (Running, 6),
        "custom op": (lambda: Running(numpy_op()), 6),
        "compile": (Compiling, 4),
        "compile torch": (CompilingTorch, 1),
    }


@contextmanager
def own_handler() -> Iterator[None]:
    """SIGINT is KeyboardInterrupt, whatever the shell that started us says."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


# Another process, which interrupts whatever we do: a thread of ours would wait for the interpreter's lock and
# so come at the same few moments.
SENDER = """
import os, signal, sys, time
print(flush=True)
for line in sys.stdin:
    time.sleep(float(line))
    os.kill(os.getppid(), signal.SIGINT)
"""


@contextmanager
def sender() -> Iterator[Callable[[float], None]]:
    """Gives the function that asks for SIGINT in so many seconds."""
    process = subprocess.Popen(
        [sys.executable, "-c", SENDER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None and process.stdout is not None
    process.stdout.readline()  # it has started
    pipe = process.stdin

    def ask(delay: float) -> None:
        pipe.write(f"{delay}\n")
        pipe.flush()

    try:
        yield ask
    finally:
        pipe.close()
        process.wait()


def interrupt(target: Target, delay: float, ask: Callable[[float], None]) -> None:
    """Works until the interrupt, which comes once and is met here.

    Python drops what is raised in the callback of a weak reference: then it is asked for again.
    """
    try:
        ask(delay)
        late = time.monotonic() + delay + 10
        while True:
            target.work()
            if time.monotonic() > late:
                ask(0.0)
                late += 10
    except KeyboardInterrupt:
        pass


def run(count: int, seed: int, folder: Path, met: Counter[str], only: str | None = None) -> None:
    """Counts in `met` how many interrupts each target survives; AssertionError where one does not."""
    rng = random.Random(seed)
    known = targets(folder)
    names = [name for name in known if only in (None, name)]
    made: dict[str, Target] = {}
    faulthandler.enable()
    with own_handler(), sender() as ask:
        for number in range(count):
            name = rng.choices(names, [known[n][1] for n in names])[0]
            delay = rng.random() ** 2
            if name not in made:
                made[name] = known[name][0]()
            target = made[name]
            faulthandler.dump_traceback_later(120, exit=True)
            target.begin()
            interrupt(target, delay * target.longest, ask)
            try:
                target.check()
            except Exception as error:
                raise AssertionError(f"interrupt {number} of {name!r}: {error}") from error
            faulthandler.cancel_dump_traceback_later()
            met[name] += 1


def main() -> int:
    parser = campaign.arguments(__doc__, 1000)
    parser.add_argument("--only", help="one of the targets")
    options = parser.parse_args()
    only = ["--only", options.only] if options.only else []
    if options.jobs > 1:
        return campaign.in_shares(__file__, options, only)
    again = f"scripts/interrupts.py --count {options.count} --seed {options.seed} " + " ".join(only)
    met: Counter[str] = Counter()
    found = 0
    with tempfile.TemporaryDirectory() as folder:
        try:
            run(options.count, options.seed, Path(folder), met, options.only)
        except AssertionError as error:
            print(f"FOUND {error}\n  again: {again}", flush=True)
            found = 1
    print(", ".join(f"{name} {count}" for name, count in met.items()))
    return campaign.finish(options.seed, met.total(), "interrupts", found, 0 if found else options.count)


if __name__ == "__main__":
    sys.exit(main())

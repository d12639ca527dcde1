"""One drawn problem in a process of its own, started by drawn.py: makes the programs and checks them, waits
until it may have the machine, times them in turns. Speaks in lines of JSON that begin with @@.

    {"stage": …}     what it does next, so that a crash or an overrun is laid at somebody's door
    {"prepared": …}  all programs are there: errors, seconds of compiling; then it reads a line from stdin
    {"timed": …}     samples and what the kernels take
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import torch  # noqa: E402
from drawn_problems import Problem, families  # noqa: E402
from drawn_report import OUR_TURN  # noqa: E402
from drawn_sides import (  # noqa: E402
    FLOORS,
    TRAINING_FLOORS,
    Side,
    Work,
    moved_training,
    numbers,
    our_side,
    peer_names,
    reference,
    synchronize,
    undecided,
    work_of,
)
from verdicts import errors, fault, usable  # noqa: E402

ROUNDS = 40  # pairs of samples
MOVED = 4  # runs of torch from weights moved by a rounding
SAMPLE_SECONDS = 1.5e-3  # of the GPU's queue between two events


def say(**record: Any) -> None:
    print("@@" + json.dumps(record), flush=True)


def reason(error: BaseException) -> str:
    """The last line of a traceback with the lines of the error itself, of a length to read."""
    return "".join(traceback.format_exception_only(error)).strip()[:600]


def quick_microseconds(work: Work, side: Side) -> float:
    """Of one call, well enough to tell thirds apart and a layout from the other."""
    run = side.run
    if work.device == "cuda":
        from gpu_replay import microseconds_in_turns

        run()
        first = microseconds_in_turns({"side": run}, 1, 1)["side"][0]
        return sorted(microseconds_in_turns({"side": run}, 5, queued_for(first))["side"])[2]
    samples = []
    for _ in range(3):
        start = time.perf_counter()
        run()
        samples.append(1e6 * (time.perf_counter() - start))
    return sorted(samples)[1]


def queued_for(microseconds: float) -> int:
    return max(3, min(64, math.ceil(1e6 * SAMPLE_SECONDS / max(microseconds, 1.0))))


def bare(work: Work, side: Side) -> Side:
    """The peer's program as a CUDA Graph, where eager launches are not what is compared."""
    if work.device == "cuda" and work.problem.door != "backend":
        from gpu_replay import captured

        side.run = captured(side.run)
    return side


class Prepared:
    def __init__(self, work: Work) -> None:
        self.work = work
        self.peers: dict[str, Side] = {}
        self.ours: Side | None = None
        self.first: list[torch.Tensor] = []  # what ours gave when it was compared
        self.record: dict[str, Any] = {"peers": {}, "errors": {}}

    def peer(self, name: str, make: Any) -> None:
        say(stage=f"peer: {name}")
        try:
            side = bare(self.work, make())
            found = side.check()
            row = {"compile_seconds": side.seconds, "quick_us": quick_microseconds(self.work, side)}
        except (Exception, SystemExit) as error:
            self.record["peers"][name] = {"failed": reason(error)}
            return
        self.record["peers"][name] = row
        self.peers[name] = side
        self.found[name] = found

    def all(self, skip_ours: str) -> dict[str, Any]:
        self.found: dict[str, list[torch.Tensor]] = {}
        work, record = self.work, self.record
        for name, make in peer_names(work).items():
            self.peer(name, make)
        if not self.peers:
            return record
        say(stage="reference", peers=record["peers"])
        expected = reference(work)
        if work.device == "cuda":
            torch.cuda.empty_cache()
        for name, found in self.found.items():
            record["errors"][name] = self.errors(found, expected)
            if not all(usable(group) for group in record["errors"][name]):
                worst = max(max(group) for group in record["errors"][name])
                record["peers"][name] = {"failed": f"its own result is off by {worst:.2e}"}
                del self.peers[name], record["errors"][name]
        if not self.peers:
            return record
        say(stage="ours", record=record)
        record["ours"] = {"failed": skip_ours} if skip_ours else self.make_ours(expected)
        if work.device == "cuda":
            torch.cuda.empty_cache()
        return record

    def errors(self, found: list[torch.Tensor], expected: list[torch.Tensor]) -> list[list[float]]:
        """By tensor: of the results; of training of the losses, then of each weight's change, of AdamW
        without the elements that are open, and then of each moment."""
        each = errors(found, expected)
        if not self.work.training:
            return [each]
        if self.work.problem.optimizer != "adamw":
            return [each[:1], each[1:]]
        weights = len(expected) // 2
        floor = TRAINING_FLOORS[self.work.problem.dtype]
        kept = [~open_ for open_ in undecided(expected, floor)]
        changes = [[t * k for t, k in zip(side[1:], kept, strict=False)] for side in (found, expected)]
        return [each[:1], errors(*changes), each[1 + weights :]]

    def make_ours(self, expected: list[torch.Tensor]) -> dict[str, Any]:
        try:
            side = our_side(self.work)
            self.first = side.check()
            apart = self.errors(self.first, expected)
        except (Exception, SystemExit) as error:
            return {"failed": reason(error)}
        record: dict[str, Any] = {"compile_seconds": side.seconds, "error": apart}
        if said := self.wrong(apart, expected):
            return {**record, "failed": said}
        record["quick_us"] = quick_microseconds(self.work, side)
        self.ours = side
        return record

    def check_repeats(self) -> None:
        """RuntimeError if ours now gives other bits than when it was compared. A training step goes on from
        other states: it is asked for its first steps alone."""
        if self.ours is None or self.work.training:
            return
        again = self.ours.check()
        if not all(torch.equal(a, b) for a, b in zip(self.first, again, strict=True)):
            raise RuntimeError("gives other bits after its replays than before")

    def wrong(self, apart: list[list[float]], expected: list[torch.Tensor]) -> str:
        """Beside the better peer, tensor by tensor. AdamW's first step is as large for a gradient that is all
        rounding as for any other, so that a rounding may become the losses and changes after it: what is too
        far off there is compared with torch from weights moved by a rounding as well. Gradients never are."""
        dtype = self.work.problem.dtype
        training = TRAINING_FLOORS.get(dtype, 0.0)
        for i, (ours, floor) in enumerate(zip(apart, [FLOORS[dtype], training, training], strict=False)):
            rows = [row[i] for row in self.record["errors"].values()]
            theirs = [min(tensor) for tensor in zip(*rows, strict=True)]
            said = fault(ours, theirs, floor)
            if said and i < 2 and self.work.training and self.work.problem.optimizer == "adamw":
                moved = [row[i] for row in self.moved(expected)]
                said = fault(ours, [max(tensor) for tensor in zip(theirs, *moved, strict=True)], floor)
            if said:
                return said
        return ""

    def moved(self, expected: list[torch.Tensor]) -> list[list[list[float]]]:
        """Errors of torch eager from weights moved by a rounding each, of several draws."""
        if "moved" not in self.record:
            say(stage="torch from moved weights")
            found = [moved_training(self.work, seed) for seed in range(MOVED)]
            self.record["moved"] = [self.errors(each, expected) for each in found]
        return self.record["moved"]


def timed(work: Work, prepared: Prepared, rounds: int) -> dict[str, list[float]]:
    """Microseconds of every program, in turns; of several layouts of torch.compile the faster one."""
    peers = dict(prepared.peers)
    if work.device == "cuda":
        quick = {name: quick_microseconds(work, side) for name, side in peers.items()}
        fastest = min(quick, key=quick.__getitem__)
        peers = {fastest: peers[fastest]}
    programs = {name: side.run for name, side in peers.items()}
    for side in peers.values():
        side.run()
    synchronize(work)
    say(stage=OUR_TURN)
    if prepared.ours is not None:
        programs["aicf"] = prepared.ours.run
    if work.device == "cuda":
        from gpu_replay import microseconds_in_turns

        least = min(quick_microseconds(work, Side(run, list, 0.0)) for run in programs.values())
        return microseconds_in_turns(programs, rounds, queued_for(least))
    from bench.stats import interleave

    with torch.no_grad() if not work.training else torch.enable_grad():
        samples = interleave(programs, rounds)
    return {name: [1e6 * s for s in values] for name, values in samples.items()}


def kernels(
    work: Work, prepared: Prepared, cli: str, seconds: float
) -> list[dict[str, Any]] | dict[str, str]:
    """The heaviest five of ours, by `aicf bench --kernels` of the saved program."""
    if prepared.ours is None or prepared.ours.executable is None:
        return []
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.aicf"
            prepared.ours.executable.save(path)
            ranges = [
                word
                for given, info in zip(_highs(work), prepared.ours.executable.inputs, strict=False)
                if given
                for word in ("--range", f"{info.name}=0..{given - 1}")
            ]
            command = [
                cli,
                "bench",
                str(path),
                "--device",
                work.device,
                "--repeat",
                "10",
                *ranges,
                "--kernels",
                "--json",
            ]
            done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            return {"failed": done.stderr.strip()[:400]}
        rows = sorted(json.loads(done.stdout)["kernels"], key=lambda row: -row["us"])
        return rows[:5]
    except (Exception, SystemExit) as error:
        return {"failed": reason(error)}


def _highs(work: Work) -> list[int]:
    target = work.case.target[1] if work.training and work.case.target[0] == "classes" else 0
    return [*(i.high for i in work.case.inputs), target]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", help="JSON of a Problem")
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--cli", required=True)
    parser.add_argument("--skip-ours", default="", help="why ours is not made")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    problem = Problem(**{k: v for k, v in json.loads(options.problem).items() if k != "name"})
    torch.set_num_threads(options.threads)
    if problem.device == "cpu" and problem.mode in ("inference", "halves"):
        torch._inductor.config.freezing = True
    quiet_libraries()
    say(stage="model")
    work = work_of(problem, families()[problem.family], options.threads)
    with numbers(work):
        prepared = Prepared(work)
        record = prepared.all(options.skip_ours)
        say(prepared=record)
        if not prepared.peers or not sys.stdin.readline():
            return 0
        synchronize(work)
        say(stage="timing: peer")
        samples = timed(work, prepared, options.rounds)
        prepared.check_repeats()
        say(timed=samples)
        say(kernels=kernels(work, prepared, options.cli, 40.0))
    return 0


def quiet_libraries() -> None:
    import logging

    logging.disable(logging.WARNING)
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")


if __name__ == "__main__":
    code = 1
    try:
        code = main()
    except Exception as failure:
        say(failed=reason(failure))
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)  # the compilers' pools of workers need not be waited for

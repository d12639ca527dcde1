#!/usr/bin/env python3
"""Random training nets of torch, as whole train steps of ours against torch in eager mode.

    python scripts/random_training.py --count 300 --seed 7 [--jobs 4] [--device cuda] [--only 12]

Each net is drawn from (seed, number) out of random_training_nets.py: one to six parts, one to three inputs,
one or two results, a loss, an optimizer with groups, a schedule, clipping, accumulation, a precision, one to
six steps. `aicf.compile_train_step` makes a step of it, and random_training_runs.py judges losses, first
gradients, parameters, optimizer states and buffers after each call, and an evaluation at the end, by torch in
f64. A second run from a saved file gives the same bits, on another number of threads too, and so does one
that is saved in the middle as a file or as a checkpoint and goes on.

A net that torch does not train must be refused, and each refusal is a coded error; of a net that torch trains
it names a remedy. The remedy for parameters without a gradient is followed. A net with random dropout has
only its bits compared. Each net runs in a worker process, so that a crash or a hang is counted and not
suffered; each finding comes with the line that runs it again. Exit 1 if there is one.
"""

from __future__ import annotations

import argparse
import collections
import json
import re
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import campaign

SECONDS = 300  # that a net may take


def outcome(seed: int, number: int, device: str, show: bool = False) -> dict[str, Any]:
    """Draws the net, compiles it, trains it and compares."""
    import numpy as np
    import torch
    from random_training_nets import Draw, Unfit, draw_case
    from random_training_runs import DTYPES, draw_plan, in_dtype

    torch.set_num_threads(1)
    d = Draw(np.random.default_rng([seed, number]))
    try:
        case = draw_case(d)
    except Unfit:
        return {"status": "empty"}
    plan = draw_plan(d, case)
    words = plan.words = [*case.words, *plan.words]
    to = DTYPES[plan.dtype]
    batches = [[in_dtype(i.draw(), to) for i in case.inputs] for _ in range(plan.steps * plan.accumulate)]
    poison(d, plan, batches)
    if show:
        print(case.model, case.loss, plan, [tuple(x.shape) for x in batches[0]], sep="\n")
    return {"words": words, **judge(case, plan, batches, device)}


def poison(d: Any, plan: Any, batches: Any) -> None:
    """Makes a batch whose step is skipped."""
    numbers = [batch[0] for batch in batches if batch[0].is_floating_point()]
    if plan.skip and numbers and d.chance(0.08):
        d.pick(numbers).view(-1)[0] = d.pick([float("nan"), float("inf")])
        plan.words.append("poisoned")


# Why torch fails in a net that is well defined: it does not keep a value for its gradients, and it looks
# whether the shares of a poisoned batch are some.
ONLY_OF_TORCH = ("modified by an inplace operation", "all elements of input should be between 0 and 1")


def judge(case: Any, plan: Any, batches: Any, device: str) -> dict[str, Any]:
    import aicf
    import random_training_runs as runs

    exact = peer = None
    refusal = ""
    try:
        exact = runs.torch_run(case, plan, batches, "f64", plan.dtype)
        peer = runs.torch_run(case, plan, batches, plan.dtype, plan.dtype)
    except Exception as error:
        refusal = f"{type(error).__name__}: {str(error)[:200]}"
    try:
        step = runs.compile_step(case, plan, batches[0], device)
    except aicf.UserError as error:
        text = str(error)[:600]
        unused = re.findall(r"param '([^']+)'", error.value) if error.name == "unused_param" else []
        if unused and exact is not None:
            plan.leave_out(unused)
            return judge(case, plan, batches, device)
        if exact is not None and not error.remedy:
            return {"status": "no remedy", "text": text}
        return {"status": "refused", "code": error.code, "text": text, "by_both": exact is None}
    except aicf.Error as error:
        return {"status": "abort", "text": f"{error.code}: {str(error)[:900]}"}
    except Exception as error:
        return {"status": "abort", "text": f"{type(error).__name__}: {str(error)[:900]}"}
    if any(words in refusal for words in ONLY_OF_TORCH):
        return {"status": "no peer"}
    if exact is None:
        return {"status": "peer fails", "text": refusal}
    if "poisoned" not in plan.words and not (runs.finite(exact) and runs.finite(peer)):
        return {"status": "not finite"}
    with tempfile.TemporaryDirectory() as folder:
        try:
            return compared(case, plan, batches, device, step, exact, peer, Path(folder))
        except RuntimeError as error:
            if not any(words in str(error) for words in ONLY_OF_TORCH):
                raise
            return {"status": "no peer"}
        except aicf.Error as error:
            return {"status": "abort", "text": f"running: {error.code}: {str(error)[:900]}"}


def compared(
    case: Any, plan: Any, batches: Any, device: str, step: Any, exact: Any, peer: Any, folder: Path
) -> dict[str, Any]:
    import random_training_runs as runs

    step.save(folder / "start.aicf")
    ours, hashes = runs.our_run(step, case, batches)
    bits = other_bits(step, batches, hashes, folder, device, plan.threads)
    if bits:
        return {"status": "other bits", "text": bits}
    if not case.checked:
        return {"status": "bits only"}
    start = runs.numbers(runs.in_dtype(case.model, runs.DTYPES[plan.dtype]))
    lost = runs.missing(ours, exact, start)
    if lost:
        return {"status": "wrong", "text": f"there is no {lost}"}
    peers = [peer] + [
        runs.torch_run(case, plan, batches, plan.dtype, plan.dtype, seed) for seed in range(1, runs.RUNS)
    ]
    bad, worst = runs.compare(ours, exact, peers, plan)
    if bad:
        peers += [
            runs.torch_run(case, plan, batches, plan.dtype, plan.dtype, seed)
            for seed in range(runs.RUNS, runs.RUNS + runs.SECOND_LOOK)
        ]
        bad, worst = runs.compare(ours, exact, peers, plan)
    if bad:
        return {"status": "wrong", "text": bad}
    return {"status": "right", "worst": worst, "ran": True}


def other_bits(step: Any, batches: Any, hashes: list[str], folder: Path, device: str, threads: int) -> str:
    """Where another run ends in other bits; `step` has taken all batches."""
    import aicf

    on_cpu = device == "cpu"  # a GPU has no threads of ours
    other = 3 - threads if on_cpu else None
    again = aicf.load_train_step(folder / "start.aicf", device=device, threads=other)
    middle = len(batches) // 2
    for call, batch in enumerate(batches):
        if call == middle:
            again.save(folder / "middle.aicf")
            again.save_checkpoint(folder / "middle.safetensors")
        again(*batch)
        if again.hash() != hashes[call]:
            return f"a second run after call {call}"
    resumed = aicf.load_train_step(folder / "middle.aicf", device=device, threads=threads if on_cpu else None)
    step.load_checkpoint(folder / "middle.safetensors")
    for batch in batches[middle:]:
        resumed(*batch)
        step(*batch)
    if resumed.hash() != hashes[-1]:
        return f"a run that was saved after call {middle}"
    return "" if step.hash() == hashes[-1] else f"a run from a checkpoint after call {middle}"


FAILURES = ("wrong", "other bits", "abort", "no remedy", "peer fails", "crash", "hang", "generator")


def report(results: Iterable[tuple[dict[str, Any], dict[str, Any]]], refusals: bool) -> tuple[int, int]:
    """Prints findings as they come and what was seen of each kind; gives how many nets and findings."""
    began = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    codes: collections.Counter[str] = collections.Counter()
    seen: collections.Counter[str] = collections.Counter()
    worst = 0.0
    for job, result in results:
        status = result["status"]
        counts[status] += 1
        worst = max(worst, result.get("worst", 0.0))
        if status == "right":
            seen.update(set(result["words"]))
        if status == "refused":
            codes[result["code"]] += 1
        if status in FAILURES or (refusals and status == "refused"):
            again = f"--seed {job['seed']} --only {job['number']} --device {job['device']}"
            print(
                f"{status.upper()} {again}: {result.get('text', '')}\n  of {result.get('words')}", flush=True
            )
    print(f"{time.monotonic() - began:.0f} s; the largest share of a bound was {worst:.2f}")
    print("  " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))
    print("  refused: " + (", ".join(f"{code} {n}" for code, n in codes.most_common()) or "none"))
    print(f"  {len(seen)} kinds of parts, losses and settings in right nets")
    done = sum(counts.values())
    few = campaign.few_right(counts["right"], done, "nets")
    return done, few + sum(counts[name] for name in FAILURES)


def main() -> int:
    parser = campaign.arguments(__doc__, 300)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--first", type=int, default=0, help="the number of the first net")
    parser.add_argument("--only", type=int, help="the number of one net to run again, in this process")
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; default no limit")
    parser.add_argument("--refusals", action="store_true", help="print every refusal")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        campaign.work(lambda job: outcome(job["seed"], job["number"], job["device"]))
        return 0
    if args.only is not None:
        print(json.dumps(outcome(args.seed, args.only, args.device, show=True), indent=1))
        return 0
    numbers = range(args.first, args.first + args.count)
    jobs = [{"seed": args.seed, "number": number, "device": args.device} for number in numbers]
    done, found = report(campaign.outcomes(__file__, jobs, args.jobs, SECONDS, args.seconds), args.refusals)
    return campaign.finish(args.seed, done, "nets", found, 0 if args.seconds else args.count)


if __name__ == "__main__":
    sys.exit(main())

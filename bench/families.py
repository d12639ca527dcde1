"""Kernel families on one GPU over a grid of shapes: round, odd, few rows, few columns, large. Of each, the
time of ours, the share of the limit that bounds it, and the best library's time.

The limits are measured in the same run: the rate of a copy of 1 GiB, and that of a product of
8192 x 8192 x 8192 in f16 or bf16, of 4096 x 4096 x 4096 in f32. A program is several copies of a case over
operands of their own, one graph, so that large cases do not find their operands in the L2 cache; 12 copies at
most, so small cases do. Our rules that join independent calls stay off: they would join the copies.

The library is what torch calls: cuBLASLt, cuDNN (its fastest algorithm), flash attention, torch's own
kernels. Maps come with channels first and last on both sides, and the faster counts. Ours is compared with
torch's result first. A refusal, failure or wrong result of ours is shown and counts as 0.5 (verdicts.py).
Needs torch with CUDA and aicf in the Python that runs this.

    python bench/families.py [FAMILY …] [--dtypes f16 f32] [--seconds 500] [--output out.json]

Several cases compile at once (waves.py); the libraries choose their algorithms and all are timed alone.
`--share 1/2` measures every second case, for two GPUs.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from families_grid import Case, cases
from gpu_replay import captured, microseconds_in_turns
from gpu_report import Report, require_cuda
from verdicts import FAILED, MOST, errors, geometric_mean
from waves import in_waves, share_of

CACHE_BYTES = 120e6  # of operands of all copies: more than twice an H100's L2
MOST_COPIES = 12
JOINING = ["group_products", "bundle_calls"]  # independent calls, as copies are
# Both compute in the dtype and round in places of their own.
TOLERANCES = {"f16": 1e-2, "bf16": 8e-2, "f32": 1e-3}
COPY_BYTES = 1 << 30


def operands_of(case: Case, dtype: Any) -> list[list[Any]]:
    """Of every copy."""

    def made(kind: str, shape: tuple[int, ...]) -> Any:
        if kind == "":
            return torch.randn(shape, device="cuda").to(dtype)
        if kind.startswith("f32"):
            return (
                torch.rand(shape, device="cuda") + 0.5
                if kind.endswith("positive")
                else torch.randn(shape, device="cuda")
            )
        if kind == "weights":  # so that steps of a recurrent layer do not blow up what is rounded
            return torch.randn(shape, device="cuda").mul(shape[-1] ** -0.5).to(dtype)
        if kind == "positive":
            return torch.rand(shape, device="cuda").to(dtype) + 0.5
        return torch.randint(0, int(kind), shape, device="cuda")

    copies = max(1, min(MOST_COPIES, math.ceil(CACHE_BYTES / (case.elements * dtype.itemsize))))
    return [[made(kind, shape) for kind, shape in case.operands] for _ in range(copies)]


def turned(values: Any, order: tuple[int, ...]) -> list[Any]:
    """Those of four axes in another order, without a copy."""
    return [x.permute(order) if x.dim() == 4 else x for x in values]


FIRST_OF_LAST, LAST_OF_FIRST = (0, 3, 1, 2), (0, 2, 3, 1)  # channels


def ours(
    case: Case, operands: list[list[Any]], precision: str, channels_last: bool
) -> tuple[Callable[[], object], list[torch.Tensor]]:
    """All copies in one program of ours, and what it gave. With channels last the program takes and gives
    maps as [N, H, W, C], as the library's tensors of that layout lie in memory."""
    import aicf

    count = len(case.operands)

    def of_maps(*values: Any) -> Any:
        results = case.call(*turned(values, FIRST_OF_LAST))
        if isinstance(results, torch.Tensor):
            return turned([results], LAST_OF_FIRST)[0]
        return turned(results, LAST_OF_FIRST)

    call = of_maps if channels_last else case.call

    def program(*flat: Any) -> Any:
        return tuple(call(*flat[i : i + count]) for i in range(0, len(flat), count))

    flat = [x for each in operands for x in each]
    if channels_last:
        flat = [x.contiguous() for x in turned(flat, LAST_OF_FIRST)]
    options = {"target": "cuda", "skip_passes": JOINING}
    traced = case.traced
    if traced is not None:
        names = [f"x{i}" for i in range(len(flat))]
        kinds = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", torch.int64: "i64"}
        specs = [
            aicf.TensorSpec(tuple(x.shape), kinds[x.dtype], name) for x, name in zip(flat, names, strict=True)
        ]

        def graph(*values: Any) -> Any:
            return tuple(y for i in range(0, len(values), count) for y in traced(*values[i : i + count]))

        graph.__signature__ = _signature(names)  # type: ignore[attr-defined]
        exe = aicf.compile(aicf.trace(graph, specs), device="cuda", options=options)
    else:
        exe = aicf.compile(program, tuple(flat), device="cuda", precision=precision, options=options)
    results = exe(*flat)
    leaves, _ = torch.utils._pytree.tree_flatten(results)
    outputs = [torch.empty_like(torch.as_tensor(y, device="cuda")) for y in leaves]
    stream = torch.cuda.current_stream()
    if len(exe.inputs) != len(flat) or len(exe.outputs) != len(outputs):
        return lambda: exe(*flat), placed([torch.as_tensor(y) for y in leaves], channels_last)

    def run() -> None:
        exe.run_into(flat, outputs, stream=stream)

    run()
    torch.cuda.synchronize()
    return run, placed(outputs, channels_last)


def placed(results: list[torch.Tensor], channels_last: bool) -> list[torch.Tensor]:
    return turned(results, FIRST_OF_LAST) if channels_last else results


def fault_of(case: Case, operands: list[list[Any]], found: list[torch.Tensor], dtype: str) -> str:
    """What is wrong with our results, beside torch's of the same operands; "" if nothing is."""
    leaves, _ = torch.utils._pytree.tree_flatten([case.call(*each) for each in operands])
    apart = errors(found, leaves)
    worst = max(apart, default=0.0)
    return (
        "" if worst <= TOLERANCES[dtype] else f"wrong: off by {worst:.2e}, {TOLERANCES[dtype]:.0e} is allowed"
    )


def _signature(names: list[str]) -> Any:
    import inspect

    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return inspect.Signature([inspect.Parameter(name, kind) for name in names])


def libraries(case: Case, operands: list[list[Any]]) -> dict[str, Callable[[], object]]:
    """What torch calls; of maps in both layouts, whose operands are laid out beforehand."""
    found: dict[str, Callable[[], object]] = {}
    layouts = {"torch": operands}
    if case.maps:
        last = torch.channels_last
        layouts["torch, channels last"] = [
            [x.to(memory_format=last) if x.dim() == 4 else x for x in each] for each in operands
        ]
    calls = {"": case.call, **case.peers}
    for layout, placed in layouts.items():
        for name, call in calls.items():
            try:
                replay = captured(lambda call=call, placed=placed: [call(*each) for each in placed])
            except Exception as error:  # a library that does not take the shape is no peer of it
                print(f"   {case.name}: without {layout} {name}: {str(error).splitlines()[0][:120]}")
                torch.cuda.synchronize()
                continue
            found[f"{layout} {name}".strip()] = replay
    return found


def rates(rounds: int) -> dict[str, float]:
    """Bytes a second of a copy, FLOPs a second of a product in each dtype, of this card in this run."""
    x = torch.zeros(COPY_BYTES // 4, device="cuda")
    y = torch.empty_like(x)
    # The copy of a graph runs at two thirds of what a kernel moves on an H200.
    copies: dict[str, Callable[[], object]] = {
        "copy": captured(lambda: y.copy_(x)),
        "negation": captured(lambda: torch.neg(x, out=y)),
    }
    programs = dict(copies)
    n = 8192
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16), ("f32", torch.float32)):
        size = n if name != "f32" else n // 2
        a, b = (torch.randn(size, size, device="cuda", dtype=dtype) for _ in range(2))
        programs[name] = captured(lambda a=a, b=b: a @ b)
    us = {k: float(np.median(v)) for k, v in microseconds_in_turns(programs, rounds, 3).items()}
    found = {"copy": 2 * COPY_BYTES / min(us[name] for name in copies) * 1e6}
    for name in ("f16", "bf16", "f32"):
        size = n if name != "f32" else n // 2
        found[name] = 2.0 * size**3 / us[name] * 1e6
    return found


def prepared(case: Case, name: str, limits: dict[str, float], rounds: int) -> Callable[[], dict[str, Any]]:
    """Ours, compiled; what is returned compares it with torch and times it beside the libraries. Torch runs
    there first: cuDNN keeps the algorithm that it chose while others were using the card."""
    dtype = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32}[name]
    operands = operands_of(case, dtype)
    mine: dict[str, Callable[[], object]] = {}
    found: dict[str, list[torch.Tensor]] = {}
    refused = ""
    with torch.no_grad():
        for channels_last in (False, True) if case.maps else (False,):
            try:
                layout = "aicf, channels last" if channels_last else "aicf"
                mine[layout], found[layout] = ours(case, operands, "f32", channels_last)
            except Exception as error:
                refused = refused or f"{type(error).__name__}: {str(error)[:300]}"

    copies = len(operands)
    moved = case.elements * dtype.itemsize
    least = 1e6 * max(moved / limits["copy"], case.flops / limits[name])
    record: dict[str, Any] = {"family": case.family, "case": case.name, "dtype": name, "copies": copies}
    record |= {"bytes": moved, "flops": case.flops, "limit_us": least}

    @torch.no_grad()
    def timed() -> dict[str, Any]:
        programs = libraries(case, operands)
        if not programs:
            raise RuntimeError("no library takes the shape")
        record["refused"] = refused or next(
            filter(None, (fault_of(case, operands, results, name) for results in found.values())), ""
        )
        runs = programs if record["refused"] else programs | mine
        both = microseconds_in_turns(runs, 3, 2, 0.0)
        times = {n: float(np.median(v)) for n, v in both.items()}
        best = [sorted(side.keys() & runs.keys(), key=times.__getitem__) for side in (programs, mine)]
        kept = [*best[0][:2], *best[1][:1]]
        queued = max(2, min(32, math.ceil(1000 / max(min(times.values()), 1.0))))
        samples = microseconds_in_turns({n: runs[n] for n in kept}, rounds, queued)
        record["us"] = {
            n.split(",")[0] if n in mine else n: [s / copies for s in values] for n, values in samples.items()
        }
        record["layouts"] = {n: times[n] / copies for n in best[1]}  # ours in each, of three samples
        return record

    return timed


# Tensors and elements of each: many small ones, a transformer's, a few large ones.
OPTIMIZED = [(400, 300), (148, 300_000), (60, 1_000_003), (8, 16_000_000)]


class Sums(torch.nn.Module):
    """A loss whose gradients are slices of its input, so that a step of it is little but the optimizer."""

    def __init__(self, tensors: int, elements: int) -> None:
        super().__init__()
        self.parts = torch.nn.ParameterList(torch.randn(elements) for _ in range(tensors))
        self.elements = elements

    def forward(self, gradients: torch.Tensor) -> torch.Tensor:
        n = self.elements
        return sum((p * gradients[i * n : (i + 1) * n]).sum() for i, p in enumerate(self.parts))


def prepared_optimizer(
    tensors: int, elements: int, limits: dict[str, float], rounds: int
) -> Callable[[], dict[str, Any]]:
    """AdamW of f32, with the norm of all gradients clipped; the library is torch's fused step and clip."""
    import aicf
    from aicf import optim

    module, count = Sums(tensors, elements), tensors * elements
    gradients = torch.randn(count, device="cuda")
    programs: dict[str, Callable[[], object]] = {}
    refused = ""
    try:
        step = aicf.compile_train_step(
            module, None, optim.AdamW(1e-3, weight_decay=0.01), [aicf.TensorSpec((count,))], clip_norm=1.0,
            skip_bad_steps=False, device="cuda", options={"target": "cuda"},
        )  # fmt: skip
        programs["aicf"] = lambda: step(gradients)
        step(gradients)
    except Exception as error:
        refused = f"{type(error).__name__}: {str(error)[:300]}"
    parameters = [p.detach().cuda().requires_grad_() for p in module.parts]
    for i, p in enumerate(parameters):
        p.grad = gradients[i * elements : (i + 1) * elements].clone()
    optimizer = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=0.01, fused=True, capturable=True)

    def library() -> None:
        torch.nn.utils.clip_grad_norm_(parameters, 1.0, foreach=True)
        optimizer.step()

    programs["torch"] = captured(library)
    record: dict[str, Any] = {"family": "optimizer", "case": f"{tensors} of {elements}", "dtype": "f32"}
    moved = 32.0 * count  # the gradients twice
    record |= {"bytes": moved, "flops": 0.0, "limit_us": 1e6 * moved / limits["copy"], "refused": refused}
    return lambda: record | {"us": microseconds_in_turns(programs, rounds, 3)}


@dataclass(frozen=True)
class Work:
    """A case of the grid by its place, or an optimizer by its tensors and their elements."""

    name: str
    case: tuple[int, str] | None
    optimizer: tuple[int, int] | None = None


def prepare(work: Work, limits: dict[str, float], rounds: int) -> Callable[[], dict[str, Any]]:
    torch.backends.cudnn.benchmark = True
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.cuda.empty_cache()
    if work.optimizer is not None:
        return prepared_optimizer(*work.optimizer, limits, rounds)
    assert work.case is not None
    index, dtype = work.case
    return prepared(list(cases())[index], dtype, limits, rounds)


def line(record: dict[str, Any]) -> str:
    us = {n: float(np.median(v)) for n, v in record["us"].items()}
    peers = {n: t for n, t in us.items() if n != "aicf"}
    text = f"{record['family']:<20}{record['case']:<46}{record['dtype']:<5}"
    bound = "copy" if record["limit_us"] and record["flops"] == 0 else "limit"
    if "aicf" in us:
        text += f"{us['aicf']:>10.1f} µs {100 * record['limit_us'] / us['aicf']:>4.0f} % of {bound}"
    else:
        text += f"   refused: {record['refused'][:160]}"
    if peers:
        best = min(peers, key=peers.__getitem__)
        share = 100 * record["limit_us"] / peers[best]
        text += f"   {best} {peers[best]:.1f} µs, {share:.0f} %"
        text += f" ({peers[best] / us['aicf']:.2f}x)" if "aicf" in us else ""
    return text


def summary(rows: list[dict[str, Any]]) -> str:
    """Of each family the geometric mean over the best library, refusals as 0.5, and the median share."""
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        ratios, shares = [], []
        for row in (r for r in rows if r["family"] == family):
            us = {n: float(np.median(v)) for n, v in row["us"].items()}
            peers = [t for n, t in us.items() if n != "aicf"]
            if "aicf" in us:
                shares.append(row["limit_us"] / us["aicf"])
            if peers:
                ratios.append(min(MOST, min(peers) / us["aicf"]) if "aicf" in us else FAILED)
        mean = geometric_mean(ratios)
        worst = min(ratios, default=math.nan)
        share = 100 * float(np.median(shares)) if shares else math.nan
        lines.append(
            f"{family:<20} {len(ratios):3d} cases  mean over the library {mean:.2f}, worst {worst:.2f}; "
            f"median share of the limit {share:.0f} %"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=30, help="samples of each program")
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    parser.add_argument("families", nargs="*", help="names of families, or parts of them; default: all")
    parser.add_argument("--dtypes", nargs="+", choices=["f16", "bf16", "f32"], default=["f16"])
    parser.add_argument("--seconds", type=float, default=1e9, help="the run ends before they are over")
    parser.add_argument("--parallel", type=int, default=8, help="processes that compile at once")
    parser.add_argument("--each", type=int, default=2, help="cases that one of them prepares")
    parser.add_argument("--share", default="1/1", help="k/n: every n-th case from the k-th")
    options: argparse.Namespace = parser.parse_args()
    require_cuda()
    end = time.monotonic() + options.seconds
    report = Report(options, ["torch"])
    report.record["limits"] = limits = rates(options.rounds)
    print("limits of this run:", {k: f"{v / 1e12:.2f} T/s" for k, v in limits.items()}, flush=True)

    names = {case.family for case in cases()}

    def chosen(family: str) -> bool:
        return not options.families or any(
            part == family if part in names else part in family for part in options.families
        )

    work = [
        Work(f"{case.family} {case.name} {name}", (i, name))
        for name in options.dtypes
        for i, case in enumerate(cases())
        if chosen(case.family)
    ]
    if chosen("optimizer"):
        work += [Work(f"optimizer {n} of {size}", None, (n, size)) for n, size in OPTIMIZED]
    work = list(share_of(work, options.share))
    each = partial(prepare, limits=limits, rounds=options.rounds)
    done = 0
    for item, row in in_waves(each, work, options.parallel, end - 15, each=options.each):
        done += 1
        if isinstance(row, str):
            print(f"{item.name}: {row}", flush=True)
            report.fail(item.name)
        else:
            print(line(row), flush=True)
            report.add(row)
    if done < len(work):
        print(f"families: no time for {len(work) - done} of {len(work)} cases", file=sys.stderr)
    print(summary(report.rows))
    if failed := report.record.get("failed"):
        print(f"{len(failed)} cases ended in an error and are in no mean: {', '.join(failed)}")
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())

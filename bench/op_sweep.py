"""Every op of src/ir/ops.def that has a torch form, and the usual forms of torch, each at three drawn sizes
and with gradients: ours beside torch eager and, for a third drawn by the seed, torch.compile.

    python bench/op_sweep.py --seed 3 --device cpu [--ops conv topk] [--dtypes f32 bf16] [--output out.json]

Operands are arguments on all sides, weights too. A gradient is one program: the op and the gradients of
all its floats; ours is the graph of ATen's ops that torch traces for it. On a GPU every side is replayed as
a CUDA Graph, ours as its own. Each result is compared with f64 first, tensor by tensor (verdicts.py).
Refusals, failures and wrong results of ours count as 0.5, each ratio as at most 3. A row that torch cannot
give is counted apart. Several rows compile at once on a GPU (waves.py), each is timed alone.
`--share 1/2` measures every second op, for two GPUs. Needs torch.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import numpy as np  # noqa: E402
import torch  # noqa: E402
from drawn_sides import FLOORS  # noqa: E402
from drawn_streams import Stream  # noqa: E402
from machine import describe_machine, measured_tree, physical_cores, versions  # noqa: E402
from sweep_ops import OPS, Operand, Sizes  # noqa: E402
from verdicts import FAILED, errors, fault, geometric_mean, usable  # noqa: E402
from waves import in_waves, share_of  # noqa: E402

from bench.stats import ratios  # noqa: E402

SIZES = 3
DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
DEFAULT_DTYPES = {"cpu": ["f32"], "cuda": ["f16", "f32"]}
SETTLING = 0.15  # seconds before the samples of a row, in which the card was busy with the row before
PAUSE = 0.004  # between the programs of a round on a CPU: torch's idle threads spin for less

Call = Callable[..., Any]


def tensors(operands: list[Operand], dtype: torch.dtype, device: str, seed: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)

    def made(o: Operand) -> torch.Tensor:
        if o.kind == "i64":
            return torch.randint(0, o.high or 1000, o.shape, generator=generator)
        if o.kind == "bool":
            return torch.rand(o.shape, generator=generator) < 0.5
        if o.kind == "distinct":  # at most 4096 of a row are distinct in f16
            order = torch.rand(o.shape, generator=generator).argsort(-1)
            return ((order - o.shape[-1] // 2) / 64).to(dtype)
        x = torch.rand(o.shape, generator=generator) if o.kind else torch.randn(o.shape, generator=generator)
        return ({"unit": 0.05 + 0.9 * x, "over": 1.1 + x}.get(o.kind, x)).to(dtype)

    return [made(o).to(device) for o in operands]


def leaves(result: Any) -> list[torch.Tensor]:
    return [x for x in torch.utils._pytree.tree_leaves(result) if isinstance(x, torch.Tensor)]


def written_out(x: torch.Tensor) -> torch.Tensor:
    """A gradient each of whose elements has memory of its own, as an optimizer's operands have: torch's
    gradient of a sum is a view that repeats a few."""
    repeats = any(stride == 0 and size > 1 for size, stride in zip(x.shape, x.stride(), strict=True))
    return x.contiguous() if repeats else x


def with_gradients(call: Call, operands: list[torch.Tensor]) -> Call:
    """The op's result and, where its tanh is the gradient by it, that by each float operand, written out. A
    cosine of a large result would show nothing but its rounding."""
    places = [i for i, x in enumerate(operands) if x.is_floating_point()]

    def run(*given: torch.Tensor) -> Any:
        with torch.enable_grad():
            inputs = [x.detach().requires_grad_() if i in places else x for i, x in enumerate(given)]
            result = call(*inputs)
            gradients = torch.autograd.grad(result, [inputs[i] for i in places], result.detach().tanh())
        return (result.detach(), *map(written_out, gradients))

    return run


def our_graph(call: Call, operands: list[torch.Tensor], gradient: bool) -> Any:
    """What is compiled: the call itself, or what torch traces of it and its gradients."""
    if not gradient:
        return call
    from aicf.torch.decompose import whole_attention
    from torch.fx.experimental.proxy_tensor import make_fx

    with whole_attention(operands):
        return make_fx(with_gradients(call, operands), tracing_mode="fake")(*operands)


def ours(
    call: Call, operands: list[torch.Tensor], gradient: bool, device: str, threads: int
) -> tuple[Call, Any]:
    import aicf

    options = {"target": "cuda"} if device == "cuda" else {}
    count = threads if device == "cpu" else None
    graph = our_graph(call, operands, gradient)
    exe = aicf.compile(graph, tuple(operands), device=device, threads=count, options=options)
    first = exe(*operands)
    if device == "cpu" or len(exe.inputs) != len(operands):
        return (lambda: exe(*operands)), first
    outputs = [torch.empty_like(x) for x in leaves(first)]
    inputs, stream = [x.contiguous() for x in operands], torch.cuda.current_stream()

    def run() -> None:
        exe.run_into(inputs, outputs, stream=stream)

    run()
    torch.cuda.synchronize()
    return run, outputs


def compiled(call: Call, operands: list[torch.Tensor], gradient: bool) -> Call:
    torch._dynamo.reset()
    forward = torch.compile(call, dynamic=False)
    run = with_gradients(forward, operands) if gradient else forward
    return lambda: run(*operands)


def errors_of(found: Any, reference: Any) -> list[float]:
    """By tensor; of indices and flags the share that differs."""
    return errors(leaves(found), leaves(reference))


def microseconds(programs: dict[str, Call], device: str, rounds: int) -> dict[str, list[float]]:
    if device == "cuda":
        from gpu_replay import microseconds_in_turns

        first = trial(programs, device)
        least = min(v[0] for v in first.values())
        queued = max(2, min(64, math.ceil(1000 / max(least, 1.0))))
        return microseconds_in_turns(programs, rounds, queued, SETTLING)
    from bench.stats import interleave

    return {n: [1e6 * s for s in v] for n, v in interleave(programs, rounds, pause=PAUSE).items()}


def trial(programs: dict[str, Call], device: str) -> dict[str, list[float]]:
    """A round that shows that the programs run, and about how long; a GPU's clock need not settle for it."""
    if device != "cuda":
        return microseconds(programs, device, 1)
    from gpu_replay import microseconds_in_turns

    return microseconds_in_turns(programs, 1, 1, settling=0)


def replayed(run: Call, device: str) -> Call:
    if device != "cuda":
        return run
    from gpu_replay import captured

    return captured(run)


@dataclass(frozen=True)
class Place:
    """Of a row: the op's place in OPS, which of its sizes, the dtype, and whether with gradients."""

    op: int
    index: int
    dtype: str
    gradient: bool

    def row(self) -> dict[str, Any]:
        op = OPS[self.op]
        row: dict[str, Any] = {"op": op.name, "of": op.of}
        return row | {"index": self.index, "dtype": self.dtype, "gradient": self.gradient}


def drawn(place: Place, options: argparse.Namespace) -> tuple[list[Operand], Call, bool]:
    """Operands, the call over them, and whether torch.compile runs beside it."""
    stream = Stream("sweep", options.seed, options.device, OPS[place.op].name, place.index)
    operands, call = OPS[place.op].draw(Sizes(stream, options.device))
    third = options.compiled == "third" and stream.below(3) == 0
    return operands, call, options.compiled == "all" or third


def prepare(place: Place, options: argparse.Namespace) -> Callable[[], dict[str, Any]]:
    """The programs of a row, compared with f64; what is returned times them."""
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    device, dtype, gradient = options.device, place.dtype, place.gradient
    operands, call, with_compile = drawn(place, options)
    row = place.row() | {"shapes": [list(o.shape) for o in operands]}
    inputs = tensors(operands, DTYPES[dtype], device, place.index)
    peer = with_gradients(call, inputs) if gradient else call
    try:
        with torch.no_grad():
            expected = peer(*[x.double() if x.is_floating_point() else x for x in inputs])
            row["torch_error"] = errors_of(peer(*inputs), expected)
            programs = {"eager": replayed(lambda: peer(*inputs), device)}
    except Exception as error:
        said = f"torch: {str(error)[:200]}"
        missing = isinstance(error, NotImplementedError) or "not implemented for" in said
        row["left_out" if missing else "peer_failed"] = said
        return lambda: row
    if not usable(row["torch_error"]):
        row["peer_failed"] = f"torch's own result is off by {max(row['torch_error']):.2e}"
        return lambda: row
    with torch.no_grad():
        try:
            run, first = ours(call, inputs, gradient, device, options.threads)
            row["error"] = errors_of(first, expected)
            said = fault(row["error"], row["torch_error"], FLOORS[dtype])
        except Exception as error:
            said = f"{type(error).__name__}: {str(error)[:300]}"
        if said:
            row["failed"] = said
        else:
            programs["aicf"] = run
        if with_compile:
            try:
                programs["torch.compile"] = replayed(compiled(call, inputs, gradient), device)
            except Exception as error:
                row["torch_compile_failed"] = str(error)[:200]

    @torch.no_grad()
    def timed() -> dict[str, Any]:
        """Torch's programs, then all in turns: what fails then is ours."""
        theirs = {name: run for name, run in programs.items() if name != "aicf"}
        if "aicf" not in programs:
            row["samples_us"] = microseconds(theirs, device, options.rounds)
            return row
        row["samples_us"] = trial(theirs, device)
        try:
            row["samples_us"] = microseconds(programs, device, options.rounds)
        except Exception as error:
            row["failed"] = f"while it was timed: {type(error).__name__}: {str(error)[:300]}"
        return row

    return timed


class Sweep:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.end = time.monotonic() + options.seconds
        self.report: dict[str, Any] = {
            **measured_tree(),
            "command": " ".join(["python", *sys.argv]),
            "machine": describe_machine(),
            "versions": versions(["torch"]),
            "threads": options.threads,
            "rows": [],
        }
        if options.device == "cuda":
            from gpu_report import describe_gpu

            self.report["gpu"] = describe_gpu()

    def places(self) -> list[Place]:
        options = self.options
        chosen = [
            i for i, op in enumerate(OPS) if not options.ops or any(part in op.name for part in options.ops)
        ]
        return [
            Place(i, index, dtype, gradient)
            for dtype in options.dtypes
            for index in range(options.sizes)
            for i in share_of(chosen, options.share)
            for gradient in ((False, True) if OPS[i].gradient and options.gradients else (False,))
        ]

    def run(self) -> int:
        options, places = self.options, self.places()
        work = partial(prepare, options=options)
        for place, row in in_waves(work, places, options.parallel, self.end - 10, each=options.each):
            self.add(self.lost(place, row) if isinstance(row, str) else row)
        if (missing := len(places) - len(self.report["rows"])) > 0:
            print(f"op_sweep: no time for {missing} of {len(places)} rows", file=sys.stderr)
        print(summary(self.report["rows"]))
        return 0

    def lost(self, place: Place, why: str) -> dict[str, Any]:
        """The row of a process that ended, whoever ended it: it counts as a failure of ours."""
        operands, _, _ = drawn(place, self.options)
        return place.row() | {"shapes": [list(o.shape) for o in operands], "samples_us": {}, "failed": why}

    def add(self, row: dict[str, Any]) -> None:
        self.report["rows"].append(row)
        print(line(row), flush=True)
        path = self.options.output
        if path is not None:
            part = path.with_name(f".{path.name}.part")
            part.write_text(json.dumps(self.report, indent=1))
            part.replace(path)


def ratio(row: dict[str, Any]) -> float:
    """The better peer over ours."""
    if "failed" in row:
        return FAILED
    samples = row["samples_us"]
    return min(ratios(v, samples["aicf"]).median for n, v in samples.items() if n != "aicf")


def title(row: dict[str, Any]) -> str:
    shapes = " ".join("x".join(map(str, s)) or "scalar" for s in row["shapes"])
    return f"{row['op']}{', gradient' if row['gradient'] else ''} {row['dtype']} {shapes}"


def line(row: dict[str, Any]) -> str:
    if said := row.get("left_out") or row.get("peer_failed"):
        return f"  --    {title(row)}: {said}"
    times = "  ".join(f"{n} {float(np.median(v)):.1f}" for n, v in row["samples_us"].items())
    failed = f"  FAILED: {row['failed']}" if "failed" in row else ""
    return f"{ratio(row):6.2f}  {title(row)}: {times} µs{failed}"


def summary(rows: list[dict[str, Any]]) -> str:
    counted = [r for r in rows if "left_out" not in r and "peer_failed" not in r]
    apart = [sum(key in r for r in rows) for key in ("left_out", "peer_failed", "torch_compile_failed")]
    not_there = (
        f"{apart[0]} rows that torch has not in their dtype, {apart[1]} that it failed or has wrong itself, "
        f"{apart[2]} without torch.compile, which failed"
    )
    if not counted:
        return f"nothing was measured; {not_there}"
    lines = ["", not_there, "worst of each op, below 1:"]
    worst: dict[str, dict[str, Any]] = {}
    for row in sorted(counted, key=ratio, reverse=True):
        worst[f"{row['op']} {row['gradient']}"] = row
    lines += [f"  {line(r)}" for r in sorted(worst.values(), key=ratio) if ratio(r) < 1]
    for dtype in dict.fromkeys(r["dtype"] for r in counted):
        for gradient in (False, True):
            some = [r for r in counted if (r["dtype"], r["gradient"]) == (dtype, gradient)]
            if some:
                lines.append(f"{dtype} {'gradients' if gradient else 'forward'}: {means(some)}")
    return "\n".join(lines)


def means(rows: list[dict[str, Any]]) -> str:
    counted = [ratio(r) for r in rows]
    failed = sum("failed" in r for r in rows)
    mean = geometric_mean(counted)
    return f"{len(rows)} rows, geometric mean {mean:.3f}, worst {min(counted):.2f}, {failed} failed"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--ops", nargs="*", help="parts of the names of ops; default: all")
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES))
    parser.add_argument("--sizes", type=int, choices=range(1, SIZES + 1), default=SIZES, help="of each op")
    parser.add_argument("--compiled", choices=["third", "all", "none"], default="third", help="torch.compile")
    parser.add_argument("--no-gradients", dest="gradients", action="store_false")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=physical_cores(), help="of a CPU's programs")
    parser.add_argument("--seconds", type=float, default=1e9, help="the run ends before they are over")
    parser.add_argument("--parallel", type=int, help="processes that compile at once: 8, on a CPU 1")
    parser.add_argument("--each", type=int, default=4, help="rows that one of them prepares")
    parser.add_argument("--share", default="1/1", help="k/n: every n-th op from the k-th")
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    options = parser.parse_args()
    options.parallel = options.parallel or (8 if options.device == "cuda" else 1)
    options.dtypes = options.dtypes or DEFAULT_DTYPES[options.device]
    if options.device == "cuda":
        from gpu_report import require_cuda

        require_cuda()
    return Sweep(options).run()


if __name__ == "__main__":
    sys.exit(main())

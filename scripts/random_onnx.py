#!/usr/bin/env python3
"""Random ONNX models against onnxruntime and the reference of onnx.

    python scripts/random_onnx.py --count 2000 --seed 7 [--jobs 4] [--first 500] [--ops Conv,Slice]

Each graph is drawn from (seed, number): up to a handful of nodes of random_onnx_ops.py, opsets 7 to 23, sizes
from 0 on, several outputs, shared operands, bodies, and in a third of the graphs a dynamic size, which is
compiled as a range and run at its ends too. A graph is right if all outputs lie within the bounds that
random_onnx_graph.py derives. It is run in a worker process, so that a crash is counted and not suffered.

Graph number N of a seed is the same whatever --count, --first and --jobs say: a run that was stopped goes on
with --first. A line for each failure gives the first wrong node and the command that reruns it. Exit 1 if a
graph was wrong, crashed or hung. `refused` counts coded errors by their code; a graph that no peer runs has
only to end well. Where onnxruntime says that we are wrong and the reference does not, the peers disagree: the
graph is printed and is no failure.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import campaign

SECONDS = 60  # that a graph may take


@dataclass(frozen=True)
class Drawn:
    """`graph` is a random_onnx_graph.Graph, `model` its Model; `extra` the node that all should refuse."""

    graph: Any
    model: Any
    extra: Any


def draw(seed: int, number: int, ops: list[str]) -> Drawn | str:
    """The graph of these numbers; or why there is none."""
    import numpy as np
    from random_onnx_graph import Graph, Refused, Unfit, finish
    from random_onnx_ops import OPS

    rng = np.random.default_rng([seed, number])
    opset = int(rng.choice([7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23]))
    graph = Graph(rng, opset, bool(rng.random() < 0.33))
    names = ops or list(OPS)
    wanted = int(rng.choice([1, 2, 3, 5, 8], p=[0.2, 0.25, 0.25, 0.2, 0.1]))
    extra = None
    for _ in range(wanted * 12):
        if len(graph.nodes) >= wanted:
            break
        try:
            OPS[names[int(rng.integers(len(names)))]](graph)
        except Unfit:
            continue
        except Refused:
            if not graph.nodes and rng.random() < 0.1:
                extra = graph.refused_node
                break
        if graph.nodes and rng.random() < 0.1:
            repeat_node(graph)
    if not graph.nodes and extra is None:
        return "empty"
    made = [name for node, _, _ in graph.nodes for name in node.output if name]
    if any(
        not graph.values[name].dtype.isbuiltin and graph.values[name].dtype.name != "bfloat16"
        for name in made
    ):
        return "empty"
    read = {name for node, _, _ in graph.nodes for name in node.input}
    outputs = [name for name in made if name not in read or rng.random() < 0.25]
    try:
        return Drawn(graph, finish(graph, outputs, extra), extra)
    except Exception as error:
        return f"generator: {error!r}"


def outcome(seed: int, number: int, ops: list[str], keep: str) -> dict[str, Any]:
    """Draws the graph, compiles, runs and compares it."""
    drawn = draw(seed, number, ops)
    if isinstance(drawn, str):
        status, _, text = drawn.partition(": ")
        return {"status": status, "text": text} if text else {"status": status}
    graph = drawn.graph
    if keep:
        save(drawn.model, Path(keep))
    kinds = sorted({node.op_type for node, _, _ in graph.nodes})
    return {"ops": kinds, "opset": graph.opset, **judge(graph, drawn.model, drawn.extra)}


def repeat_node(graph: Any) -> None:
    """The same node again under other names."""
    from onnx import NodeProto

    node, rule, _ = graph.nodes[int(graph.rng.integers(len(graph.nodes)))]
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.name = graph.name("n")
    copy.output[:] = [graph.name() if name else "" for name in node.output]
    graph.add(copy, rule)


def save(model: Any, folder: Path) -> None:
    import numpy as np
    import onnx

    folder.mkdir(parents=True, exist_ok=True)
    onnx.save(model.proto, folder / "model.onnx")
    np.savez(folder / "inputs.npz", **model.feeds)


def judge(graph: Any, model: Any, extra: Any) -> dict[str, Any]:
    import aicf.errors
    import numpy as np

    data = model.proto.SerializeToString()
    ranges = {s: f"{max(1, n - 1)}..{n + 2}" for s, n in model.symbols.items()}
    try:
        exe, fixed = compiled(data, ranges, model.feeds)
    except aicf.UserError as error:
        if not ranges:
            return {
                "status": "refused",
                "code": error.code,
                "text": str(error)[:400],
                "by_both": extra is not None,
            }
        # What does not fit every size of a range may fit one.
        try:
            exe, fixed = compiled(data, dict(model.symbols), model.feeds)
            ranges = {}
        except aicf.UserError as exact:
            return {
                "status": "refused",
                "code": exact.code,
                "text": str(exact)[:400],
                "by_both": extra is not None,
            }
        except aicf.Error as other:
            return {"status": "abort", "text": f"{other.code}: {str(other)[:600]}"}
    except aicf.Error as error:
        return {"status": "abort", "text": f"{error.code}: {str(error)[:600]}"}
    except Exception as error:
        return {"status": "abort", "text": f"{type(error).__name__}: {str(error)[:600]}"}
    if extra is not None:
        exe(**model.feeds)
        return {"status": "no peer"}
    start = {name: value for name, value in graph.values.items() if value.kind != "node"}
    bad = wrong(graph, data, exe, model.feeds, model.wanted, start, model, ranges)
    if bad:
        return {"status": bad[0], "text": bad[1]}
    ran = 1
    for symbol, number in model.symbols.items():
        for size in (max(1, number - 1), number + 2) if ranges and not fixed else ():
            from random_onnx_graph import at_other_size

            other = at_other_size(graph, model, {**model.symbols, symbol: size})
            if other is None:
                continue
            try:
                bad = wrong(graph, data, exe, *other, model, ranges)
            except aicf.errors.RangeError:
                continue  # the peer reads outside of its data at this size and does not say so
            if bad:
                return {"status": bad[0], "text": f"at {symbol}={size} of {ranges}: {bad[1]}"}
            ran += 1
    return {"status": "right", "runs": ran, "range": bool(ranges), "feeds": len(np.shape(model.feeds))}


def compiled(data: bytes, dims: Any, feeds: Any) -> tuple[Any, dict[str, Any]]:
    """With the values that decide shapes, as the error names them."""
    import aicf

    values: dict[str, Any] = {}
    while True:
        try:
            return aicf.compile(data, values, dims=dims, threads=1), values
        except aicf.UserError as error:
            if error.name != "size_not_static" or error.value not in feeds or error.value in values:
                raise
            values[error.value] = feeds[error.value]


def wrong(
    graph: Any, data: bytes, exe: Any, feeds: Any, wanted: Any, start: Any, model: Any, dims: Any
) -> tuple[str, str] | None:
    """Whether we are wrong or the peers disagree and the reference is with us, and the first such node."""
    import aicf
    import numpy as np
    from random_onnx_graph import by_reference, compare

    results = exe(**feeds)
    results = [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]
    if len(results) != len(wanted):
        return "wrong", f"{len(results)} outputs, not {len(wanted)}"
    texts = []
    for got, value in zip(results, wanted, strict=True):
        verdict = compare(got, value)
        if not verdict.right:
            texts.append(f"{value.name} {value.dtype}{list(value.shape)}: {verdict.text}")
    if not texts:
        return None
    other = by_reference(graph, start, wanted)
    if other and all(compare(got, value).right for got, value in zip(results, other[0], strict=True)):
        return "peers disagree", f"{texts[0]}; {describe(graph, other[1], None)}"
    for node, _, peer in graph.nodes:
        for name in node.output:
            value = next((v for v in wanted if v.name == name), graph.values.get(name))
            if not name or value is None:
                continue
            try:
                alone = aicf.compile(
                    data, {}, dims=dims or model.symbols, threads=1, options={"results": [name]}
                )
                got = np.asarray(alone(**{i.name: feeds[i.name] for i in alone.inputs}))
            except aicf.Error:
                continue
            if not compare(got, value).right:
                return "wrong", f"{texts[0]}; {describe(graph, node, peer)}"
    first = next(node for node, _, _ in graph.nodes if texts[0].split()[0] in node.output)
    return "wrong", f"{texts[0]}; {describe(graph, first, None)} (right alone)"


def describe(graph: Any, node: Any, peer: Any) -> str:
    from onnx import helper

    inputs = [
        "-"
        if not name
        else f"{name}:{graph.values[name].dtype}{list(graph.values[name].shape)}"
        + ("" if graph.values[name].kind == "node" else "=" + graph.values[name].kind)
        + (
            str(graph.values[name].array.tolist())
            if graph.values[name].kind == "constant" and graph.values[name].array.size < 9
            else ""
        )
        for name in node.input
    ]
    attributes = ", ".join(
        f"{a.name}={helper.get_attribute_value(a)}" for a in node.attribute if a.type != a.GRAPH
    )
    by = "" if peer is None or peer.session is not None else " [by the reference]"
    return f"{node.op_type}-{graph.opset}({', '.join(inputs)}){{{attributes}}}{by}"


# --- driver

FAILURES = ("wrong", "abort", "crash", "hang", "generator")


def report(results: Iterable[tuple[dict[str, Any], dict[str, Any]]], refusals: bool) -> tuple[int, int]:
    """Prints failures as they come and what was seen of each kind; gives how many graphs and failures."""
    began = time.monotonic()
    counts: collections.Counter[str] = collections.Counter()
    codes: collections.Counter[str] = collections.Counter()
    seen: collections.Counter[str] = collections.Counter()
    runs = ranges = 0
    for job, result in results:
        status = result["status"]
        counts[status] += 1
        runs += result.get("runs", 0)
        ranges += result.get("range", False)
        if status == "right":
            seen.update(result["ops"])
        if status == "refused":
            codes[result["code"]] += 1
        if status in (*FAILURES, "peers disagree") or (
            refusals and status == "refused" and not result["by_both"]
        ):
            again = f"--seed {job['seed']} --only {job['number']}"
            again += f" --ops {','.join(job['ops'])}" if job["ops"] else ""
            print(f"{status.upper()} {again}: {result.get('text', '')}", flush=True)
    print(f"{runs} runs, {ranges} graphs over a range, {time.monotonic() - began:.0f} s")
    print("  " + ", ".join(f"{counts[name]} {name}" for name in sorted(counts)))
    print("  refused: " + (", ".join(f"{code} {n}" for code, n in codes.most_common()) or "none"))
    print(f"  {len(seen)} kinds of ops in right graphs")
    done = sum(counts.values())
    few = campaign.few_right(counts["right"], done, "graphs")
    return done, few + sum(counts[name] for name in FAILURES)


def main() -> int:
    parser = campaign.arguments(__doc__, 300)
    parser.add_argument("--first", type=int, default=0, help="the number of the first graph")
    parser.add_argument("--only", type=int, help="the number of one graph to run again, in this process")
    parser.add_argument("--ops", default="", help="names of builders, by comma; default all")
    parser.add_argument(
        "--keep", default="", help="with --only: write model.onnx and inputs.npz into this folder"
    )
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long; default no limit")
    parser.add_argument("--refusals", action="store_true", help="print every refusal")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.work:
        campaign.work(outcome_of)
        return 0
    ops = [name for name in args.ops.split(",") if name]
    if args.only is not None:
        print(json.dumps(outcome(args.seed, args.only, ops, args.keep), indent=1))
        return 0
    numbers = range(args.first, args.first + args.count)
    jobs = [{"seed": args.seed, "number": number, "ops": ops} for number in numbers]
    done, found = report(campaign.outcomes(__file__, jobs, args.jobs, SECONDS, args.seconds), args.refusals)
    return campaign.finish(args.seed, done, "graphs", found, 0 if args.seconds else args.count)


def outcome_of(job: dict[str, Any]) -> dict[str, Any]:
    return outcome(job["seed"], job["number"], job["ops"], "")


if __name__ == "__main__":
    sys.exit(main())

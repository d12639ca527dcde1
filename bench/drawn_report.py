"""What the records of drawn problems say: a line for each, and the means of the thirds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from drawn_problems import CLASSES, LIMITS
from verdicts import FAILED, geometric_mean

from bench.stats import ratios

__all__ = ["OUR_TURN", "peer_microseconds", "ratio", "shown", "summary", "third"]

Record = dict[str, Any]
# The stage of a problem in which the peer has run already: what ends its process then is ours.
OUR_TURN = "timing: ours"


def peer_microseconds(record: Record) -> float:
    """Of the better peer; of one that was not timed in turns what it took when it was made."""
    samples = {n: v for n, v in record.get("samples_us", {}).items() if n != "aicf"}
    if samples:
        return min(float(np.median(v)) for v in samples.values())
    return min(row["quick_us"] for row in record["peers"].values() if "quick_us" in row)


def ratio(record: Record) -> float:
    """The better peer over ours: the median of neighbouring samples."""
    if "failed" in record["ours"]:
        return FAILED
    samples = record["samples_us"]
    return min(ratios(v, samples["aicf"]).median for name, v in samples.items() if name != "aicf")


def third(record: Record) -> str:
    seconds = 1e-6 * peer_microseconds(record)
    return next(c for c, high in zip(CLASSES, LIMITS[record["device"]][1:], strict=True) if seconds < high)


def shown(record: Record) -> str:
    head = f"{record['index']:3d} {record['name']}"
    if "peer_failed" in record:
        return f"{head}\n      replaced, as the peer failed: {record['peer_failed'][:300]}"
    text = f"{head}\n      {third(record):6s} peer {peer_microseconds(record):9.1f} µs"
    text += f" (estimate {1e6 * record['seconds']:.0f})"
    if "failed" in record["ours"]:
        return f"{text}  OURS FAILED, counts as {FAILED}: {record['ours']['failed']}"
    ours = float(np.median(record["samples_us"]["aicf"]))
    errors = "/".join(f"{max(group):.1e}" for group in record["ours"]["error"])
    theirs = "/".join(f"{max(group):.1e}" for group in next(iter(record["errors"].values())))
    text += f"  ours {ours:9.1f} µs  ratio {ratio(record):.3f}  error {errors} (torch {theirs})"
    compiled = [row["compile_seconds"] for row in record["peers"].values() if "compile_seconds" in row]
    text += f"  compiled {record['ours']['compile_seconds']:.1f} s (peer {compiled[0]:.1f} s)"
    return text + "".join(f"\n        {line}" for line in kernel_lines(record.get("kernels")))


def inductor_seconds(record: Record) -> float | None:
    """Of the layout that torch.compile sees first; with the other it finds kernels in its caches."""
    peers = record["peers"].items()
    seconds = (row.get("compile_seconds") for name, row in peers if name.startswith("torch.compile"))
    return next((float(s) for s in seconds if s is not None), None)


def kernel_lines(kernels: Any) -> list[str]:
    if isinstance(kernels, dict):
        return [f"no times of kernels: {kernels['failed']}"]
    lines = []
    for row in kernels or []:
        share = row.get("share_of_limit")
        limit = f"{100 * share:3.0f} % of the limit" if share is not None else "limit unknown"
        lines.append(f"{row['us']:8.2f} µs  {limit}  {row['kernel']}  {row['origin']}")
    return lines


def summary(records: Sequence[Record], cut: Sequence[str] = ()) -> str:
    counted = [r for r in records if "peer_failed" not in r]
    left = [f"cut for lack of time, in no mean: {', '.join(cut)}"] if cut else []
    if not counted:
        return "\n".join(["nothing was measured", *left])
    lines = ["", "worst first:"]
    lines += [f"  {ratio(r):6.3f} {third(r):6s} {r['name']}" for r in sorted(counted, key=ratio)]
    for name in CLASSES:
        rows = [ratio(r) for r in counted if third(r) == name]
        worst = f", worst {min(rows):.3f}" if rows else ""
        lines.append(f"{name:6s} {len(rows):3d} problems, geometric mean {geometric_mean(rows):.3f}{worst}")
    every = [ratio(r) for r in counted]
    failed = sum("failed" in r["ours"] for r in counted)
    replaced = len(records) - len(counted)
    lines.append(
        f"all    {len(every):3d} problems, geometric mean {geometric_mean(every):.3f}, "
        f"worst {min(every):.3f}; {failed} failures of ours at {FAILED}, {replaced} of the peer replaced"
    )
    compiled = [
        seconds / r["ours"]["compile_seconds"]
        for r in counted
        if "compile_seconds" in r["ours"] and (seconds := inductor_seconds(r))
    ]
    if compiled:
        lines.append(f"seconds of compiling, torch.compile's over ours, while others compile: median "
                     f"{float(np.median(compiled)):.1f}, worst {min(compiled):.1f}")  # fmt: skip
    return "\n".join(lines + left)

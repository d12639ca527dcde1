"""Tuning records for the products of a benchmark model, chosen inside the model.

`aicf tune` times a problem by itself. Where a step takes a few microseconds, what counts is how it fits
between the steps before and after it: how much of its weights comes ahead, how soon it leaves. Here the
candidates of one problem after another are forced on all its steps, and the whole model is replayed on a GPU;
a candidate is kept where that is faster by a margin. `us` and `heuristic_us` of the records are replays of
the model. Needs what gpu_inference.py needs, for the decoder also torch.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from gpu_inference import ROWS, Row
from gpu_report import describe_gpu, tool
from machine import measured_tree

HEADER = "target,units,op,region,params,operands,choice,us,heuristic_us,versions"


class Model:
    """A model on disk, and replays of it with forced choices."""

    def __init__(self, aicf: str, target: str, row: Row, folder: Path, rounds: int) -> None:
        self.aicf, self.target, self.row, self.folder, self.rounds = aicf, target, row, folder, rounds
        self.path = folder / f"{row.model}-{row.label}.onnx"
        self.sizes = row.write(self.path)
        self.samples: list[dict[str, Any]] = []

    def problems(self) -> dict[str, list[dict[str, Any]]]:
        """The steps of each problem that has more than one candidate, by its key, the longest first."""
        command = [self.aicf, "explain", str(self.path), *self.sizes, "--target", self.target]
        choices = tool([*command, "--records", "none", "--candidates", "1000", "--json"])["choices"]
        steps: dict[str, list[dict[str, Any]]] = {}
        for choice in choices:
            if "key" in choice:
                steps.setdefault(choice["key"], []).append(choice)
        order = sorted(steps, key=lambda k: -len(steps[k]) * steps[k][0]["candidates"][0]["estimated_us"])
        return {key: steps[key] for key in order}

    def compile(self, name: str, forced: dict[str, str]) -> Path:
        artifact = self.folder / f"{name}.aicf"
        command = [self.aicf, "compile", str(self.path), *self.sizes, "--target", self.target]
        for step, candidate in forced.items():
            command += ["--choose", f"{step}={candidate}"]
        tool([*command, "--records", "none", "-o", str(artifact), "--json"])
        return artifact

    def replay(self, artifact: Path, what: str) -> float:
        command = [self.aicf, "bench", str(artifact), "--device", "cuda", "--repeat", str(self.rounds)]
        us = [1e3 * sample for sample in tool([*command, *self.row.values, "--json"])["samples"]]
        artifact.unlink()
        self.samples.append({"what": what, "us": us})
        print(f"{self.row.model} {self.row.label}  {np.median(us):9.2f} µs  {what}", flush=True)
        return float(np.median(us))


def rivals(names: list[str], present: str, count: int) -> list[str]:
    """The first candidates of the first one's kind, and the present one with other numbers of stages."""

    def without_stages(name: str) -> str:
        return re.sub(r"stages \d+", "", name)

    kind = names[0].split()[0]
    first = [name for name in names if name != present and name.split()[0] == kind][:count]
    staged = [n for n in names if n != present and without_stages(n) == without_stages(present)]
    return first + [name for name in staged if name not in first]


def tune(model: Model, count: int, margin: float) -> list[str]:
    problems = model.problems()
    chosen: dict[str, str] = {}
    records = []

    def forced(choices: dict[str, str]) -> dict[str, str]:
        return {step["origin"]: name for key, name in choices.items() for step in problems[key]}

    for key, steps in problems.items():
        names = [candidate["name"] for candidate in steps[0]["candidates"]]
        tried = [*rivals(names, names[0], count)]
        ways = [forced(chosen), *(forced(chosen | {key: name}) for name in tried)]
        with ThreadPoolExecutor(8) as workers:
            artifacts = list(workers.map(lambda i, w=ways: model.compile(f"way{i}", w[i]), range(len(ways))))
        times = [
            model.replay(artifact, f"{steps[0]['origin']}: {name}")
            for artifact, name in zip(artifacts, [names[0], *tried], strict=True)
        ]
        best = int(np.argmin(times))
        if times[best] < (1 - margin) * times[0]:
            chosen[key] = tried[best - 1]
            records.append(f"{key},{chosen[key]},{times[best]:.3f},{times[0]:.3f}")
    return records


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    labels = {f"{row.model}-{row.label}": row for row in ROWS}
    parser.add_argument("model", choices=sorted(labels))
    parser.add_argument("--aicf", default="build/bin/aicf", help="the command line tool")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--rounds", type=int, default=15, help="samples of each way")
    parser.add_argument("--count", type=int, default=5, help="candidates of each problem")
    parser.add_argument("--margin", type=float, default=0.005, help="by which another choice must be faster")
    parser.add_argument("--versions", required=True, help="for the records: nvrtc 13.0 kernel 1")
    parser.add_argument("--output", type=Path, help="the records")
    parser.add_argument("--samples", type=Path, help="raw samples as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = Model(options.aicf, options.target, labels[options.model], Path(folder), options.rounds)
        records = [f"{record},{options.versions}" for record in tune(model, options.count, options.margin)]
    text = "\n".join([HEADER, *records]) + "\n"
    print(text, end="")
    if options.output is not None:
        options.output.write_text(text)
    if options.samples is not None:
        record = {**measured_tree(), "model": options.model, "gpu": describe_gpu(), "records": records}
        options.samples.write_text(json.dumps(record | {"samples": model.samples}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

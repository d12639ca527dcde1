"""The kernels of small models (sanitize_models.py) under compute-sanitizer, on a machine with a GPU:
memcheck, racecheck, initcheck and synccheck.

Every model is compiled outside of the tools and run once under each of them, several processes at a time.
Prints what each run reports, then the counts; exit 1 if any run reports something that racecheck.py does not
know to be false. `--prepare` only writes the compiled models to `--folder`, on any machine.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from gpu_report import Report
from racecheck import disassembled, races, total, unknown
from sanitize_models import CASES, Case

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")


def prepare(options: argparse.Namespace, name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    path = options.folder / f"{case.name}.aicf"
    if case.traced:
        return case.write(path)
    source = path.with_suffix(".onnx")
    case.write(source)
    target = () if "--target" in case.options else ("--target", "sm_90")
    command = [options.aicf, "compile", str(source), *target, *case.options, "-o", str(path)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


# ---- runs


def run(options: argparse.Namespace, tool: str, case: Case) -> dict[str, Any]:
    """How many errors (or races) the tool counts, -1 where it came to no count, and what it printed."""
    model = options.folder / f"{case.name}.aicf"
    command = [options.sanitizer, "--tool", tool, "--target-processes", "application-only"]
    # Every race is judged; of errors a few say enough.
    command += ["--print-limit", "10000" if tool == "racecheck" else "5"]
    command += [options.aicf, "run", str(model), "--device", "cuda", "--input", "random"]
    for name, values in case.ranges.items():
        command += ["--range", f"{name}={values}"]
    start = time.monotonic()
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=options.seconds)
        output, code = done.stdout + done.stderr, done.returncode
    except subprocess.TimeoutExpired as late:
        output, code = str(late.stdout) + f"\nno end within {options.seconds} s", -1
    found = re.search(r"ERROR SUMMARY: (\d+)", output)
    count = total(output) if tool == "racecheck" else int(found[1]) if found else None
    if code != 0 or count is None:
        count = -1
    record = {"tool": tool, "case": case.name, "count": count, "seconds": round(time.monotonic() - start, 1)}
    if count != 0:
        races_alone = tool == "racecheck" and count > 0
        record["unknown"] = judged(options, model, output) if races_alone else [output[-3000:]]
        record["output"] = output[:30000]
    return record


def judged(options: argparse.Namespace, model: Path, output: str) -> list[str]:
    """The races of a run that are not known to be false."""
    try:
        kernels = {race.first.kernel for race in races(output)}
        return unknown(output, disassembled(model, kernels, options.disassembler))
    except (OSError, subprocess.CalledProcessError, ValueError) as error:
        return [f"not judged: {error}", output[-3000:]]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aicf", default="build/bin/aicf", help="the command line tool")
    parser.add_argument("--sanitizer", default="compute-sanitizer")
    parser.add_argument("--disassembler", default="nvdisasm", help="says what a reported instruction is")
    parser.add_argument("--folder", type=Path, default=Path("build/sanitize"), help="of the compiled models")
    parser.add_argument("--prepare", action="store_true", help="compile, and run nothing")
    parser.add_argument("--prepared", action="store_true", help="take the compiled models as they are")
    parser.add_argument("--tools", nargs="*", default=TOOLS, choices=TOOLS)
    parser.add_argument("--cases", nargs="*", help="only models whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=8, help="runs at a time")
    parser.add_argument("--seconds", type=int, default=240, help="limit of one run")
    parser.add_argument("--output", type=Path, help="all runs as JSON")
    options = parser.parse_args()
    cases = [c for c in CASES if not options.cases or any(part in c.name for part in options.cases)]
    options.folder.mkdir(parents=True, exist_ok=True)
    if not options.prepared:
        # In processes of their own: of a traced model this one would be the compiler.
        with ProcessPoolExecutor(options.jobs, get_context("fork")) as pool:
            list(pool.map(partial(prepare, options), [case.name for case in cases]))
    if options.prepare:
        return 0
    report = Report(options, [])
    version = subprocess.run([options.sanitizer, "--version"], capture_output=True, text=True, check=True)
    report.record["sanitizer"] = version.stdout
    pairs = [(t, c) for t, c in itertools.product(options.tools, cases) if t not in c.left_out]
    with ThreadPoolExecutor(options.jobs) as pool:
        for each in pool.map(lambda pair: run(options, *pair), pairs):
            report.add(each)
            if each.get("unknown"):
                text = "\n".join(each["unknown"])
                print(f"--- {each['tool']} {each['case']}: {each['count']}\n{text}", flush=True)
    for case in cases:
        for tool, reason in case.left_out.items():
            print(f"{tool} does not run {case.name}: {reason}")
    runs = report.rows
    for tool in options.tools:
        counts = [each["count"] for each in runs if each["tool"] == tool]
        known = sum(each.get("unknown") == [] for each in runs if each["tool"] == tool)
        seconds = sum(each["seconds"] for each in runs if each["tool"] == tool)
        clean, silent = counts.count(0), counts.count(-1)
        print(
            f"{tool}: {clean} of {len(counts)} models clean, {known} with known false reports, "
            f"{silent} without an answer, {seconds:.0f} s"
        )
    return int(any(each.get("unknown", []) for each in runs))


if __name__ == "__main__":
    sys.exit(main())

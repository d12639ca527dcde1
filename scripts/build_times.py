#!/usr/bin/env python3
"""What each unit of a build cost, as a Markdown table: reads .ninja_log of a build folder.

    scripts/build_times.py build [--most 25] [--targets aicf_cli _aicf]

The log has the wall time of each edge of its latest run, so make the build in question the folder's first, on an
idle machine and without a compiler cache (CCACHE_DISABLE=1). `--targets` keeps what these targets need.

On a machine that has other work, measure processor time. This script is then the launcher of the compiler, which
notes the time of each unit in compiler_times.tsv of the build folder, and the table is of that:

    cmake --preset release -DCMAKE_CXX_COMPILER_LAUNCHER="$PWD/scripts/build_times.py;--launch"
"""

from __future__ import annotations

import argparse
import re
import resource
import subprocess
import sys
from collections import defaultdict
from pathlib import Path


CPU_LOG = "compiler_times.tsv"  # in the build folder, where ninja runs the compiler


def launch(command: list[str]) -> int:
    """Runs the compiler and notes the processor time of what it made."""
    status = subprocess.call(command)
    if "-o" in command:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        milliseconds = round(1000 * (used.ru_utime + used.ru_stime))
        with open(CPU_LOG, "a", encoding="utf-8") as log:
            log.write(f"{milliseconds}\t{command[command.index('-o') + 1]}\n")
    return status


def read_cpu_log(folder: Path) -> dict[str, float]:
    """Output file → seconds of processor time, the latest entry of each."""
    lines = (folder / CPU_LOG).read_text(encoding="utf-8").splitlines()
    entries = (line.split("\t") for line in lines)
    return {output: int(milliseconds) / 1000 for milliseconds, output in entries}


def read_log(folder: Path) -> dict[str, tuple[int, int]]:
    """Output file → start and end in milliseconds, the latest entry of each."""
    times: dict[str, tuple[int, int]] = {}
    for line in (folder / ".ninja_log").read_text(encoding="utf-8").splitlines():
        if line.startswith("#"):
            continue
        start, end, _, output, _ = line.split("\t")
        times[output] = int(start), int(end)
    return times


def needed(folder: Path, targets: list[str]) -> set[str]:
    """The outputs of everything that the targets need."""
    graph = subprocess.run(
        ["ninja", "-C", str(folder), "-t", "inputs", *targets], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    return {line.strip().strip("'") for line in graph}


def unit(output: str) -> tuple[str, str]:
    """The target of an output and its name without the build's folders."""
    match = re.match(r"CMakeFiles/([^/]+)\.dir/(.*)\.o$", output)
    if not match:
        return "link and generate", output
    name = re.sub(r"^Unity/unity_(.*)_cxx\.cxx$", r"\1 (several files)", match[2])
    return match[1], name


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--most", type=int, default=25, help="units that have a row of their own")
    parser.add_argument("--targets", nargs="*", default=[])
    arguments = parser.parse_args()
    by_cpu = (arguments.folder / CPU_LOG).exists()
    spans = {} if by_cpu else read_log(arguments.folder)
    times = {output: (end - start) / 1000 for output, (start, end) in spans.items()}
    if by_cpu:
        times = read_cpu_log(arguments.folder)
    if arguments.targets:
        wanted = needed(arguments.folder, arguments.targets)
        times = {output: seconds for output, seconds in times.items() if output in wanted}
    by_target: dict[str, list[float]] = defaultdict(list)
    rows = []
    for output, seconds in times.items():
        target, name = unit(output)
        by_target[target].append(seconds)
        rows.append((seconds, target, name))
    what = "seconds of a processor" if by_cpu else "seconds"
    print(f"| target | units | {what} |\n|---|---|---|")
    for target, of_target in sorted(by_target.items(), key=lambda item: -sum(item[1])):
        print(f"| {target} | {len(of_target)} | {sum(of_target):.1f} |")
    print(f"| all | {len(rows)} | {sum(times.values()):.1f} |\n")
    if spans:
        wall = max(end for _, end in spans.values()) - min(start for start, _ in spans.values())
        print(f"{wall / 1000:.0f} s from the first start to the last end.\n")
    print(f"| unit | target | {what} |\n|---|---|---|")
    for seconds, target, name in sorted(rows, reverse=True)[: arguments.most]:
        print(f"| `{name}` | {target} | {seconds:.1f} |")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--launch"]:
        sys.exit(launch(sys.argv[2:]))
    main()

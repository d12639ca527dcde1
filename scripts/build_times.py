"""What each unit of a build cost, as a Markdown table: reads .ninja_log of a build folder.

    scripts/build_times.py build [--least 3] [--targets aicf_cli _aicf]

The log has the wall time of each edge of its latest run, so make the build in question the folder's first, on an
idle machine and without a compiler cache (CCACHE_DISABLE=1). `--targets` keeps what these targets need."""

from __future__ import annotations

import argparse
import re
import subprocess
from collections import defaultdict
from pathlib import Path


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
    parser.add_argument(
        "--least", type=float, default=3.0, help="seconds from which a unit has a row of its own"
    )
    parser.add_argument("--targets", nargs="*", default=[])
    arguments = parser.parse_args()
    times = read_log(arguments.folder)
    if arguments.targets:
        wanted = needed(arguments.folder, arguments.targets)
        times = {output: span for output, span in times.items() if output in wanted}
    by_target: dict[str, list[float]] = defaultdict(list)
    rows = []
    for output, (start, end) in times.items():
        target, name = unit(output)
        seconds = (end - start) / 1000
        by_target[target].append(seconds)
        rows.append((seconds, target, name))
    print("| target | units | seconds |\n|---|---|---|")
    for target, spans in sorted(by_target.items(), key=lambda item: -sum(item[1])):
        print(f"| {target} | {len(spans)} | {sum(spans):.1f} |")
    total = sum(seconds for seconds, _, _ in rows)
    wall = (max(end for _, end in times.values()) - min(start for start, _ in times.values())) / 1000
    print(f"| all | {len(rows)} | {total:.1f}; {wall:.0f} from the first start to the last end |\n")
    print("| unit | target | seconds |\n|---|---|---|")
    for seconds, target, name in sorted(rows, reverse=True):
        if seconds >= arguments.least:
            print(f"| `{name}` | {target} | {seconds:.1f} |")


if __name__ == "__main__":
    main()

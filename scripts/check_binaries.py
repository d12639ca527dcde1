#!/usr/bin/env python3
"""Checks what a build produced: `check_binaries.py <build folder>`.

1. Objects compiled for a CPU level define no weak function outside that level's namespaces. The linker keeps
   one copy of an inline function; if that copy came from an AVX-512 object, older CPUs would execute it.
2. libaicf.so and the command line need nothing beyond libc and libstdc++, and the library exports only names
   of aicf.

Exit 1 with one line per violation.
"""

import re
import subprocess
import sys
from pathlib import Path

HIGHWAY_NAMESPACE = {"avx2": "hwy::N_AVX2", "avx512": "hwy::N_AVX3"}
NEEDED = re.compile(r"(libc|libm|libpthread|libstdc\+\+|libgcc_s|ld-linux[\w-]*)\.so\.\d+$")
EXPORTED = re.compile(r"^(aicf_\w+|(typeinfo (name )?for |vtable for )?aicf::.*)$")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def check_isa_objects(build):
    for level, highway in HIGHWAY_NAMESPACE.items():
        own = re.compile(rf"\b(isa_{level}|{highway})\b")
        for obj in sorted(build.glob(f"CMakeFiles/aicf_isa_{level}.dir/**/*.o")):
            for line in output("nm", "-C", "--defined-only", str(obj)).splitlines():
                kind, name = line[17:18], line[19:]
                if kind == "W" and not own.search(name):
                    source = obj.name.removesuffix(".o")
                    yield f"{source} ({level}): the linker may keep this weak function for all CPUs: {name}"


def check_needed(binary):
    for line in output("readelf", "-d", str(binary)).splitlines():
        needed = re.search(r"\(NEEDED\).*\[(.+)\]", line)
        if needed and not NEEDED.match(needed[1]):
            yield f"{binary.name} needs {needed[1]}"


def check_exports(library):
    for line in output("nm", "-DC", "--defined-only", str(library)).splitlines():
        name = line[19:]
        if not EXPORTED.match(name):
            yield f"{library.name} exports {name}"


def main():
    build = Path(sys.argv[1])
    problems = list(check_isa_objects(build))
    library, tool = build / "lib" / "libaicf.so", build / "bin" / "aicf"
    problems += [problem for binary in (library, tool) if binary.exists() for problem in check_needed(binary)]
    if library.exists():
        problems += check_exports(library)
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_binaries: {len(problems)} violations", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

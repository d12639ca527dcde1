#!/usr/bin/env python3
"""Checks every #include under src/ against the include arrows of the design.

The arrows are the DEPS of aicf_folder() in CMakeLists.txt, so linking and including cannot drift apart. What
CMake cannot say stands in the tables below: folders of which only a part may be seen, and folders that must
not be reached even through other headers. Exit 1 with one line per violation.
"""

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SRC = ROOT / "src"

# (folder, seen folder) -> what may be included from it. A target and selection ask the kernel table and how
# large a packed form is, never kernel code. Code generation and planning know what a launch and a tile
# program look like, not which kernels there are; of the calls, code generation sees the forms that it writes
# text for, never a rule.
LAUNCH = {
    "kernels/common/abi.h",
    "kernels/common/control_launches.h",
    "kernels/common/cuda_launch.h",
    "kernels/common/lanes.h",
    "kernels/common/tile_program.h",
}
PARTIAL = {
    ("target", "kernels"): {
        "kernels/common/kernel.h",
        "kernels/common/cuda_kernel.h",
        "kernels/common/tile_program.h",
    },
    ("select", "kernels"): LAUNCH
    | {
        "kernels/common/kernel.h",
        "kernels/common/cuda_kernel.h",
        "kernels/common/custom_kernel.h",
        "kernels/common/kernel_revision.h",
        "kernels/common/lanes.h",
        "kernels/common/way.h",
        "kernels/common/work.h",
    }
    | {"kernels/matmul/cpu/pack.h", "kernels/conv/cpu/pack_conv_w.h", "kernels/common/library_call.h"},
    ("calls", "kernels"): {
        "kernels/common/cuda_kernel.h",
        "kernels/common/custom_kernel.h",
        "kernels/common/tile_program.h",
        "kernels/common/scatter_order.h",
    }
    | {"kernels/common/kernel.h"}
    | {"kernels/control/control_code.h", "kernels/common/prologue.h", "kernels/common/product_group.h"},
    ("calls", "select"): {
        "select/call_program.h",
        "select/choose.h",
        "select/cost_model.h",
        "select/cuda_problem.h",
        "select/kernel_call.h",
        "select/layout.h",
        "select/region_codegen.h",
    },
    ("codegen", "kernels"): LAUNCH
    | {
        "kernels/common/cuda_kernel.h",
        "kernels/common/cuda_machine.h",
        "kernels/common/cuda_text.h",
        "kernels/common/custom_kernel.h",
        "kernels/common/prologue.h",
    }
    | {"kernels/common/product_group.h"},
    ("codegen", "select"): {"select/call_program.h", "select/cuda_problem.h", "select/layout.h"},
    ("codegen", "calls"): {"calls/call_code.h"},
    ("plan", "kernels"): LAUNCH,
}

# The runtime and the artifact layer work on plans; the IR must not reach them by any route.
NEVER_REACHES = {"runtime": {"ir"}, "artifact": {"ir"}, "kernels": {"ir"}}

# Users of the public API only.
PUBLIC_ONLY = ["examples"]

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".cc", ".h", ".def", ".inc", ".c", ".cu", ".cuh"}


def read_arrows():
    """Folder -> (folders it may include, folders its tests may include besides), from CMakeLists.txt."""
    arrows = {}
    text = (ROOT / "CMakeLists.txt").read_text()
    for call in re.findall(r"^aicf_folder\(([^)]*)\)", text, re.MULTILINE):
        words = call.split()
        lists, current = {}, None
        for word in words[1:]:
            if word.isupper() and word.replace("_", "").isalpha():
                current = lists.setdefault(word, set())
            elif current is not None:
                current.add(word)
        arrows[words[0]] = (lists.get("DEPS", set()), lists.get("TEST_DEPS", set()))
    arrows["api"] = (set(arrows), set())
    return arrows


def includes_of(path):
    """The (line, kind, target) of every include of a file; kind is the opening quote."""
    text = path.read_text(errors="replace")
    return [(text.count("\n", 0, m.start(2)) + 1, m[1], m[2]) for m in INCLUDE.finditer(text)]


def check_folder_arrows(arrows):
    for path in sorted(p for p in SRC.rglob("*") if p.suffix in SUFFIXES):
        relative = path.relative_to(SRC)
        folder = relative.parts[0]
        where = f"src/{relative}"
        if folder not in arrows:
            yield f"{where}: folder src/{folder} has no aicf_folder() in CMakeLists.txt"
            continue
        allowed, test_extra = arrows[folder]
        is_test = "testing" in relative.parts or path.stem.endswith(("_test", "_bench"))
        for line, kind, target in includes_of(path):
            seen = target.split("/")[0]
            if (SRC / seen).is_dir() and "/" in target:
                if seen != folder and seen not in allowed and not (is_test and seen in test_extra):
                    yield f"{where}:{line}: src/{folder} may not include {target}"
                    continue
                part = PARTIAL.get((folder, seen))
                if part and not is_test and target not in part:
                    yield f"{where}:{line}: src/{folder} may see only a part of src/{seen}, not {target}"
            elif seen == "aicf" and folder != "api":
                yield f"{where}:{line}: the public header {target} is for src/api and users"
            # NVRTC gets device headers by their bare names, without folders.
            elif path.suffix in (".cu", ".cuh"):
                continue
            # The API's tests do not have src/ on their include path.
            elif kind == '"' and (path.parent / target).exists() and not (folder == "api" and is_test):
                yield f"{where}:{line}: include paths are relative to src/, not to the file: {target}"


def check_reach():
    """Follows includes transitively from each folder of NEVER_REACHES (tests excepted)."""
    for folder, forbidden in NEVER_REACHES.items():
        origin = {}
        pending = [p for p in sorted((SRC / folder).rglob("*")) if p.suffix in SUFFIXES]
        pending = [p for p in pending if not p.stem.endswith(("_test", "_bench"))]
        origin.update({p: None for p in pending})
        while pending:
            path = pending.pop()
            for _, _, target in includes_of(path):
                included = SRC / target
                if not included.is_file() or included in origin:
                    continue
                origin[included] = path
                if target.split("/")[0] in forbidden:
                    chain = [included]
                    while origin[chain[-1]]:
                        chain.append(origin[chain[-1]])
                    route = " -> ".join(str(p.relative_to(SRC)) for p in reversed(chain))
                    yield f"src/{folder} reaches src/{target.split('/')[0]}: {route}"
                else:
                    pending.append(included)


def check_public_only():
    for name in PUBLIC_ONLY:
        for path in sorted(p for p in (ROOT / name).rglob("*") if p.suffix in SUFFIXES):
            for line, _, target in includes_of(path):
                if (SRC / target.split("/")[0]).is_dir() and "/" in target:
                    yield f"{path.relative_to(ROOT)}:{line}: {name}/ uses the public API only, not {target}"


def main():
    arrows = read_arrows()
    problems = [*check_folder_arrows(arrows), *check_reach(), *check_public_only()]
    for problem in problems:
        print(problem, file=sys.stderr)
    if problems:
        print(f"check_includes: {len(problems)} violations of the include arrows", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())

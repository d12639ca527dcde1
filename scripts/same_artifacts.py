#!/usr/bin/env python3
"""Compiles many models (same_artifacts_cases.py) with two builds and compares, byte for byte, what comes of
them: program, plans, the text of every CUDA unit; what is chosen for each step; weights; errors.

    .venv/bin/python scripts/same_artifacts.py OLD NEW [--cases gate onnx-node] [--jobs 1] [--output F]

OLD and NEW are source trees after `make build`. A library in place of NVRTC, built with the tests, gives a
unit's text as its machine code: neither CUDA nor a GPU is needed. A line for each model that differs names
the first unit and line, or the first member of a plan; exit 1 if there is one. `--output` keeps the list
with the hash of what the old build gave.

    .venv/bin/python scripts/same_artifacts.py --check | --rewrite

compares a short list with hashes that are kept in same_artifacts.json, or writes them anew: for a change that
means to change what is compiled. It writes nothing if one of the models does not compile. The hashes hold on
any x86-64 machine.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
GOLDEN = ROOT / "scripts" / "same_artifacts.json"
STAND_IN = ROOT / "build" / "test" / "fake_nvrtc" / "libnvrtc.so.13"
KEPT = ("aicf.program", "aicf.plan.", "aicf.code.")  # what a golden hash is of
SECONDS = 600  # that a model may take

Texts = dict[str, str]  # of an artifact: text by section; of weights the hash


# ---- one artifact


def sha(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:16]


def texts_of(artifact: Path) -> Texts:
    """Sections of an artifact; of a weight or a constant its dtype, shape and hash."""
    with artifact.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        texts: Texts = {"metadata": json.dumps(header.pop("__metadata__"), sort_keys=True)}
        for name, tensor in sorted(header.items()):
            begin, end = tensor["data_offsets"]
            file.seek(8 + size + begin)
            data = file.read(end - begin)
            if name.startswith("aicf.filler"):
                continue
            if name.startswith((*KEPT, "aicf.header")):
                texts[name] = data.decode(errors="surrogateescape")
            else:
                texts[f"tensor {name}"] = f"{tensor['dtype']} {tensor['shape']} {sha(data)}"
    return texts


def hashes_of(texts: Mapping[str, str]) -> dict[str, str]:
    return {name: sha(text.encode(errors="surrogateescape")) for name, text in texts.items()}


# ---- what differs


def first_difference(old: Mapping[str, str], new: Mapping[str, str]) -> str:
    """Of two artifacts; "" if there is none. Code comes first: a plan follows from it."""

    def rank(name: str) -> tuple[int, str]:
        order = ["error", "aicf.program", "aicf.code", "aicf.plan", "choices"]
        return next((i for i, head in enumerate(order) if name.startswith(head)), len(order)), name

    for name in sorted(old.keys() | new.keys(), key=rank):
        if name not in old or name not in new:
            return f"{name}: only in the {'old' if name in old else 'new'}"
        if old[name] == new[name]:
            continue
        if name.startswith(("aicf.plan.", "choices")):
            return f"{name}: {member_difference(json.loads(old[name]), json.loads(new[name]))}"
        return f"{name}: {line_difference(old[name], new[name])}"
    return ""


def line_difference(old: str, new: str) -> str:
    pairs = itertools.zip_longest(old.splitlines(), new.splitlines())
    for number, (a, b) in enumerate(pairs, 1):
        if a != b:
            return f"line {number}:\n    - {a}\n    + {b}"
    return "ends of lines"


def member_difference(old: Any, new: Any, path: str = "") -> str:
    """The first member of two JSON values that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                return member_difference(old.get(name), new.get(name), f"{path}.{name}")
    if isinstance(old, list) and isinstance(new, list):
        for i, (a, b) in enumerate(zip(old, new, strict=False)):
            if a != b:
                return member_difference(a, b, f"{path}[{i}]")
        return f"{path or '.'}: {len(old)} and {len(new)} items"
    return f"{path or '.'}:\n    - {json.dumps(old)[:300]}\n    + {json.dumps(new)[:300]}"


# ---- compiling, in a process for each build


def environment(tree: Path) -> dict[str, str]:
    """With nothing of the caller's that decides what is compiled."""
    kept = {name: text for name, text in os.environ.items() if not name.startswith("AICF_")}
    folders = [tree / "python", ROOT, ROOT / "bench", ROOT / "scripts"]
    # Any machine's: hashes must not follow from the one that compiles.
    return kept | {
        "AICF_CUDA_PATH": str(STAND_IN.parent),
        "CUDA_VISIBLE_DEVICES": "",
        "PYTHONPATH": os.pathsep.join(map(str, folders)),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONHASHSEED": "0",
    }


def compile_case(case: Any, tool: str, folder: Path, with_choices: bool) -> Texts:
    """Runs where `aicf` is the build's."""
    source, artifact = folder / "model.onnx", folder / "model.aicf"
    for left in folder.iterdir():
        left.unlink()
    if case.traced:
        import aicf

        try:
            case.write(artifact)
        except aicf.Error as error:
            return {"error": f"{error.code}: {error}"}
        return texts_of(artifact)
    made = case.write(source) or []
    target = () if "--target" in case.options else ("--target", "sm_90")
    options = [str(source), *target, *case.options, *made]
    done = run_tool([tool, "compile", *options, "-o", str(artifact)])
    # An input that decides a shape gets the value that is there for it.
    while (asked := re.search(r"--value (\S+)=x\.npy", done.stderr)) and done.returncode != 0:
        value = folder / f"{asked[1]}.npy"
        if not value.exists() or f"{asked[1]}={value}" in options:
            break
        options += ["--value", f"{asked[1]}={value}"]
        done = run_tool([tool, "compile", *options, "-o", str(artifact)])
    if done.returncode != 0:
        return {"error": f"exit {done.returncode}\n{done.stderr}".replace(str(folder), "FOLDER")}
    texts = texts_of(artifact)
    if with_choices:
        explained = run_tool([tool, "explain", *options, "--json"])
        texts["choices"] = json.dumps(json.loads(explained.stdout)["choices"], indent=1)
    return texts


def run_tool(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=SECONDS)


def work(tree: Path, folder: Path, golden: bool) -> None:
    """Compiles the cases named on stdin, and says of each, in a line, that its texts are in `folder`."""
    from same_artifacts_cases import CASES

    by_name = {case.name: case for case in CASES}
    for line in sys.stdin:
        case = by_name[line.strip()]
        choices = not golden and not case.name.startswith("onnx-")
        try:
            texts = compile_case(case, str(tree / "build" / "bin" / "aicf"), folder, choices)
        except Exception as error:
            texts = {"error": f"{type(error).__name__}: {error}"}
        (folder / "texts.json").write_text(json.dumps(texts))
        print("done", flush=True)


class Build:
    """A build that compiles one case after another."""

    def __init__(self, tree: Path, folder: Path, golden: bool = False) -> None:
        self.tree, self.folder, self.golden = tree.resolve(), folder, golden
        self.folder.mkdir(parents=True)
        self.worker: subprocess.Popen[str] | None = None

    def compile(self, name: str) -> Texts:
        if self.worker is None:
            command = [sys.executable, __file__, "--work", str(self.tree), str(self.folder)]
            self.worker = subprocess.Popen(
                [*command, *(["--check"] if self.golden else [])],
                env=environment(self.tree),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        assert self.worker.stdin is not None and self.worker.stdout is not None
        self.worker.stdin.write(name + "\n")
        self.worker.stdin.flush()
        if self.worker.stdout.readline() != "done\n":
            code = self.worker.wait()
            self.worker = None
            return {"error": f"the process that compiled ended with {code}"}
        return json.loads((self.folder / "texts.json").read_text())

    def close(self) -> None:
        if self.worker is not None:
            assert self.worker.stdin is not None
            self.worker.stdin.close()
            self.worker.wait()


# ---- two builds, or one and the hashes that are kept


def compare(
    old: Path, new: Path, names: list[str], jobs: int
) -> Iterator[tuple[str, str, dict[str, str] | str]]:
    """Of each model its name, its first difference, and the old build's hashes or its error."""
    with (
        tempfile.TemporaryDirectory(prefix="same_artifacts_") as folder,
        ThreadPoolExecutor(2 * jobs) as pool,
    ):
        pairs: Queue[list[Build]] = Queue()
        for job in range(jobs):
            pairs.put(
                [Build(tree, Path(folder) / f"{kind}{job}") for kind, tree in (("old", old), ("new", new))]
            )

        def compile_both(name: str) -> tuple[str, str, dict[str, str] | str]:
            pair = pairs.get()
            a, b = pool.map(lambda build: build.compile(name), pair)
            pairs.put(pair)
            return name, first_difference(a, b), a.get("error") or hashes_of(a)

        with ThreadPoolExecutor(jobs) as workers:
            yield from workers.map(compile_both, names)
        while not pairs.empty():
            for build in pairs.get():
                build.close()


def golden_hashes(tree: Path, names: list[str]) -> dict[str, dict[str, str]]:
    """By case, and by section without its number: programs, plans, code of all units of a target."""
    result: dict[str, dict[str, str]] = {}
    with tempfile.TemporaryDirectory(prefix="same_artifacts_") as folder:
        build = Build(tree, Path(folder) / "build", golden=True)
        for name in names:
            whole: dict[str, str] = {}
            for section, text in build.compile(name).items():
                if section.startswith((*KEPT, "error")):
                    kind = section.rpartition(".")[0] if section.startswith("aicf.code") else section
                    whole[kind] = whole.get(kind, "") + text
            result[name] = hashes_of(whole)
        build.close()
    return result


def golden_differences(tree: Path = ROOT) -> list[str]:
    """Lines that say which of the kept hashes the build does not give."""
    kept = json.loads(GOLDEN.read_text())
    found = golden_hashes(tree, list(kept))
    return [
        f"{name}: {section}"
        for name in kept
        for section in sorted(kept[name].keys() | found[name].keys())
        if kept[name].get(section) != found[name].get(section)
    ]


def rewrite(names: list[str], tree: Path = ROOT) -> int:
    """Keeps the hashes of these cases; of none if one does not compile."""
    golden = golden_hashes(tree, names)
    if failed := [name for name, sections in golden.items() if "error" in sections]:
        print("same_artifacts: nothing is kept, for these do not compile:", *failed, sep="\n  ")
        return 1
    GOLDEN.write_text(json.dumps(golden, indent=1) + "\n")
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "trees", nargs="*", type=Path, metavar="TREE", help="the old build's and the new one's"
    )
    parser.add_argument("--cases", nargs="+", help="only models whose names contain one of these")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time, each by two processes")
    parser.add_argument("--output", type=Path, help="what differs, and all hashes, as JSON")
    parser.add_argument("--check", action="store_true", help="compare the short list with the hashes kept")
    parser.add_argument("--rewrite", action="store_true", help="keep the hashes of the short list")
    parser.add_argument("--work", nargs=2, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work(*options.work, golden=options.check)
        return 0
    if not STAND_IN.exists():
        parser.error("the library in place of NVRTC is not built: ninja -C build fake_nvrtc")
    sys.path[:0] = [str(ROOT), str(ROOT / "bench")]
    from same_artifacts_cases import CASES

    names = [c.name for c in CASES if not options.cases or any(part in c.name for part in options.cases)]
    if options.rewrite:
        return rewrite([case.name for case in CASES if case.golden])
    if options.check:
        differences = golden_differences()
        print("\n".join(differences) or "same_artifacts: as kept")
        return int(bool(differences))
    if len(options.trees) != 2:
        parser.error("name two trees, or --check or --rewrite")
    from machine import describe_machine, measured_tree, versions

    record: dict[str, Any] = {
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
        **measured_tree(),
        "machine": describe_machine(),
        "versions": versions(["numpy", "onnx"]),
        "differs": {},
        "errors": {},
        "hashes": {},
    }
    for name, difference, old in compare(*options.trees, names, options.jobs):
        if isinstance(old, str):
            record["errors"][name] = old
        else:
            record["hashes"][name] = sha(json.dumps(old).encode())
        if difference:
            record["differs"][name] = difference
            print(f"{name}: {difference}", flush=True)
    if options.output:
        options.output.write_text(json.dumps(record, indent=1) + "\n")
    print(
        f"same_artifacts: {len(names) - len(record['differs'])} of {len(names)} equal, "
        f"{len(record['errors'])} not compiled, for the same reason"
    )
    return int(bool(record["differs"]))


if __name__ == "__main__":
    sys.exit(main())

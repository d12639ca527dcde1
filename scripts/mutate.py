"""Breaks drawn over src/, and which of them the tests catch.

Copies the tree, puts every drawn mutant into one build behind a switch (mutation/mutant.h), asks each test
once which mutants it reaches, then runs for each mutant the tests that reach it, the shortest first, until
one fails. Steps whose result lies in the folder are not done again. Prints the survivors; exit 1 if more than
5 % survive that mutation/survivors.csv does not explain. Drawing needs libclang (requirements-lint.txt). With
--cuda the GoogleTest programs run on the CPU and on the GPU; the folder may travel to a machine that has one.

    scripts/mutate.py --seed 1 --count 200 --folder build-mutants --jobs 2
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import random
import re
import shlex
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MUTATION = ROOT / "scripts" / "mutation"
PYTHON = str(ROOT / ".venv" / "bin" / "python") if (ROOT / ".venv").exists() else sys.executable
sys.path.insert(0, str(MUTATION))

from site_record import Site  # noqa: E402

NOT_MUTATED = re.compile(r"/testing/|_(test|bench)\.cc$|/cudnn_|/cublas")
# The GoogleTest programs whose tests take the device of AICF_TEST_DEVICE.
TAKE_A_DEVICE = {"test_compile", "test_tune"}


def say(text: str) -> None:
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


class Session:
    def __init__(self, folder: Path, jobs: int, configure: str, cuda: bool) -> None:
        self.folder, self.jobs, self.configure, self.cuda = folder.resolve(), jobs, configure, cuda
        self.original, self.tree = self.folder / "original", self.folder / "tree"
        self.build = self.tree / "build"
        self.deadline = float("inf")

    # --- drawing ---

    def draw(self, seed: int, count: int) -> list[Site]:
        kept = self.folder / "sites.json"
        if kept.exists():
            return [Site(**row) for row in json.loads(kept.read_text())]
        self._copy_tree()
        import sites as mutation_sites  # libclang is needed here only

        source = self.original / "src"
        files = [p for p in sorted(source.rglob("*.cc")) + sorted(source.rglob("*.h"))
                 if not NOT_MUTATED.search(str(p))]  # fmt: skip
        include = subprocess.run(
            ["g++", "-print-file-name=include"], capture_output=True, text=True
        ).stdout.strip()
        arguments = ["-std=c++20", f"-I{source}", f"-I{self.original / 'include'}", f"-I{include}"]

        def find(path: Path) -> list[Site]:
            return mutation_sites.of_file(path, self.original, arguments)

        drawn = mutation_sites.draw(files, count, random.Random(seed), find)
        kept.write_text(json.dumps([asdict(site) for site in drawn], indent=1))
        say(f"drew {len(drawn)} mutants in {len({s.file for s in drawn})} files: "
            f"{dict(Counter(s.operator for s in drawn))}")  # fmt: skip
        return drawn

    def _copy_tree(self) -> None:
        shutil.rmtree(self.original, ignore_errors=True)
        self.original.mkdir(parents=True)
        archive = subprocess.Popen(["git", "-C", str(ROOT), "archive", "HEAD"], stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x", "-C", str(self.original)], stdin=archive.stdout, check=True)

    # --- building ---

    def compile(self, drawn: list[Site]) -> list[int]:
        """The numbers of the mutants that compile, all of them in one build."""
        kept = self.folder / "compiled.json"
        if kept.exists():
            return json.loads(kept.read_text())
        alive = list(range(len(drawn)))
        if not self.tree.exists():
            shutil.copytree(self.original, self.tree)
            (self.tree / ".venv").symlink_to(ROOT / ".venv")
        main = self.tree / "cmake" / "test_main.cc"
        text = main.read_text()
        if "mutation/" not in text:
            text = f'#include "{MUTATION / "test_listener.h"}"\n' + text
            main.write_text(text.replace("const int result", "aicf_mutant::listen();\n  const int result"))
        if not (self.build / "build.ninja").exists():
            subprocess.run(shlex.split(self.configure), cwd=self.tree, check=True, stdout=subprocess.DEVNULL)
        while True:
            spans = self._write(drawn, alive)
            say(f"building with {len(alive)} mutants")
            log = subprocess.run(["ninja", "-C", str(self.build), "-j", str(self.jobs), "-k", "0"],
                                 capture_output=True, text=True)  # fmt: skip
            if log.returncode == 0:
                break
            broken = self._broken(log.stdout, spans)
            (self.folder / "build.log").write_text(log.stdout)
            if not broken:
                raise SystemExit(
                    f"mutate: the build fails for no mutant's sake; see {self.folder / 'build.log'}"
                )
            say(f"{len(broken)} mutants do not compile")
            alive = [i for i in alive if i not in broken]
        kept.write_text(json.dumps(alive))
        return alive

    def _write(self, drawn: list[Site], alive: list[int]) -> dict[str, list[tuple[int, int, int]]]:
        """Files with their mutants; for each file the lines (first, last, mutant) of it."""
        spans: dict[str, list[tuple[int, int, int]]] = defaultdict(list)
        for file in {site.file for site in drawn}:
            text = original = (self.original / file).read_bytes()
            for number in sorted((i for i in alive if drawn[i].file == file), key=lambda i: -drawn[i].start):
                site = drawn[number]
                put = site.mutated.replace("{on}", f"aicf_mutant::on({number})").encode()
                text = text[: site.start] + put + text[site.end :]
                first = original[: site.start].count(b"\n") + 1
                spans[file].append((first, first + site.original.count("\n"), number))
            if text != original:
                text = f'#include "{MUTATION / "mutant.h"}"\n#line 1\n'.encode() + text
            path = self.tree / file
            if path.read_bytes() != text:
                path.write_bytes(text)
        return spans

    def _broken(self, log: str, spans: dict[str, list[tuple[int, int, int]]]) -> set[int]:
        """The mutants on the lines that errors name, or else all those of a file that errors name."""
        broken: set[int] = set()
        files: set[str] = set()
        for name, line in re.findall(r"(\S+?):(\d+):\d+: (?:error|note|  required)", log):
            file = name[name.rfind("src/") :]
            files.add(file)
            broken |= {n for first, last, n in spans.get(file, []) if first <= int(line) <= last}
        return broken or {n for file in files for _, _, n in spans.get(file, [])}

    # --- running ---

    def reached(self) -> dict[str, tuple[float, list[int]]]:
        """Test that passes → (seconds, mutants that it reaches). A GoogleTest is "program:Suite.Name", or
        "program@cuda:Suite.Name"."""
        kept = self.folder / "reached.json"
        if kept.exists():
            return json.loads(kept.read_text())
        tests: dict[str, tuple[float, list[int]]] = {}

        def record(prefix: str, log: Path) -> None:
            for line in log.read_text().splitlines() if log.exists() else []:
                name, seconds, *mutants = line.split(" ")
                tests[prefix + name.replace("\x1f", " ")] = (float(seconds), [int(m) for m in mutants])

        def program(name: str, shard: int, shards: int) -> None:
            log = self.folder / f"reached.{name}.{shard}"
            log.unlink(missing_ok=True)
            extra = {"AICF_MUTANT_REACHED": str(log), "GTEST_SHARD_INDEX": str(shard),
                     "GTEST_TOTAL_SHARDS": str(shards)}  # fmt: skip
            done = self._call(
                [*self._program(name), "--gtest_brief=1"], f"base.{name}.{shard}", -1, 1800, extra
            )
            if done != 0:
                say(f"{name} fails without a mutant ({done}); its failing tests are not used")
            record(name + ":", log)

        names = sorted(
            p.name for p in (self.build / "test").glob("test_*") if p.is_file() and os.access(p, os.X_OK)
        )
        if self.cuda:
            names += [f"{name}@cuda" for name in names if name in TAKE_A_DEVICE]
        shards = dict.fromkeys(names, self.jobs)
        parts = [(name, i, n) for name, n in shards.items() for i in range(n)]
        with ThreadPoolExecutor(self.jobs) as pool:
            list(pool.map(lambda part: program(*part), parts))
        say(f"{len(tests)} GoogleTests; now pytest")
        log = self.folder / "reached.pytest"
        log.unlink(missing_ok=True)
        self._call([*self._pytest(), "-n", str(self.jobs), "examples", "python/tests"], "base.py", -1, 3600,
                   {"AICF_MUTANT_REACHED": str(log)})  # fmt: skip
        record("", log)
        kept.write_text(json.dumps(tests))
        return tests

    def _pytest(self) -> list[str]:
        return [PYTHON, "-m", "pytest", "-q", "-p", "reached_plugin", "-p", "no:cacheprovider"]

    def _program(self, name: str) -> list[str]:
        name, _, device = name.partition("@")
        set_device = ["env", f"AICF_TEST_DEVICE={device}"] if device else []
        return [*set_device, str(self.build / "test" / name)]

    def _call(
        self, words: list[str], page: str, mutant: int, seconds: float, extra: dict[str, str] | None = None
    ) -> int:
        """Exit status, or 124 after `seconds`."""
        path = self.folder / "pages" / page
        path.parent.mkdir(exist_ok=True)
        for stale in path.parent.glob(page + "*"):
            stale.unlink()
        path.write_bytes(mutant.to_bytes(4, "little", signed=True) + bytes(4092))
        # Each mutant meets the kernels that were compiled without one, and leaves none to the next.
        cache = self.folder / ("cache" if mutant < 0 else f"{page}.cache")
        if mutant >= 0:
            shutil.rmtree(cache, ignore_errors=True)
            subprocess.run(["cp", "-al", str(self.folder / "cache"), str(cache)], check=False)
        cache.mkdir(exist_ok=True)
        environment = os.environ | {
            "AICF_MUTANT_PAGE": str(path),
            "PYTHONPATH": f"{MUTATION}:{self.tree / 'python'}",
            "VIRTUAL_ENV": str(ROOT / ".venv"),
            "AICF_CACHE_DIR": str(cache),
            "AICF_CLI": str(self.build / "bin" / "aicf"),
        }
        for onnx in (ROOT / ".venv" / "lib").glob("python3*/site-packages/onnx/backend/test/data"):
            environment["AICF_ONNX_TESTS"] = str(onnx)
        none = subprocess.DEVNULL
        process = subprocess.Popen(
            words, cwd=self.tree, env=environment | (extra or {}), stdin=none, stdout=none, stderr=none,
            start_new_session=True,
        )  # fmt: skip
        try:
            return process.wait(min(seconds, self.deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
            return 124

    def judge(
        self, mutant: int, tests: dict[str, tuple[float, list[int]]], cap: float
    ) -> dict[str, object] | None:
        """Which batch of tests fails under the mutant; batches grow from the shortest tests to all. None: no
        time is left."""
        reaching = sorted((seconds, name) for name, (seconds, mutants) in tests.items() if mutant in mutants)
        result: dict[str, object] = {"mutant": mutant, "tests": len(reaching), "caught_by": None}
        spent, at = 0.0, 0
        sizes = iter([60, 300])
        begin = time.monotonic()
        while at < len(reaching) and result["caught_by"] is None and spent < cap:
            batch = reaching[at : at + next(sizes, 2000)]
            at += len(batch)
            groups: dict[str, list[str]] = defaultdict(list)
            for _, name in batch:
                program, _, test = name.partition(":")
                groups[program if program.startswith("test_") else ""].append(
                    test if program.startswith("test_") else name
                )
            for program in sorted(groups, reverse=True):  # Python last
                names = groups[program]
                expected = sum(tests[f"{program}:{n}" if program else n][0] for n in names)
                if program:
                    words = [*self._program(program), "--gtest_fail_fast", "--gtest_brief=1",
                             "--gtest_filter=" + ":".join(names)]  # fmt: skip
                else:
                    words = [*self._pytest(), "-x", "-n", "0", *names]
                status = self._call(words, f"run.{threading.get_ident()}", mutant, 30 + 5 * expected)
                if time.monotonic() > self.deadline:
                    return None
                if status != 0:
                    result["caught_by"] = (
                        f"{program or 'pytest'} ({'time' if status == 124 else status}), among {len(names)}"
                    )
                    break
            spent = time.monotonic() - begin
        result["seconds"] = round(time.monotonic() - begin, 1)
        result["capped"] = result["caught_by"] is None and at < len(reaching)
        return result


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=ROOT / "build-mutants")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--cap", type=float, default=300, help="seconds of tests for one mutant")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then; a later call goes on")
    parser.add_argument("--configure", default="cmake --preset release --no-warn-unused-cli")
    parser.add_argument("--cuda", action="store_true", help="run the programs' tests on the GPU, too")
    parser.add_argument("--until", choices=["draw", "build", "reach", "judge"], default="judge")
    options = parser.parse_args()
    session = Session(options.folder, options.jobs, options.configure, options.cuda)
    session.deadline = time.monotonic() + options.seconds
    session.folder.mkdir(parents=True, exist_ok=True)
    drawn = session.draw(options.seed, options.count)
    if options.until == "draw":
        return
    alive = session.compile(drawn)
    if options.until == "build":
        return
    tests = session.reached()
    if options.until == "reach":
        return

    log = session.folder / "judged.jsonl"
    judged = (
        {row["mutant"]: row for row in map(json.loads, log.read_text().splitlines())} if log.exists() else {}
    )

    def one(mutant: int) -> None:
        if (result := session.judge(mutant, tests, options.cap)) is None:
            return
        judged[mutant] = result
        with log.open("a") as out:
            out.write(json.dumps(result) + "\n")
        site = drawn[mutant]
        verdict = result["caught_by"] or "SURVIVED"
        say(f"{len(judged)}/{len(alive)} {site.file}:{site.line} {site.operator}: {verdict}")

    with ThreadPoolExecutor(options.jobs) as pool:
        list(pool.map(one, [i for i in alive if i not in judged]))
    if len(judged) < len(alive):
        raise SystemExit(f"mutate: {len(alive) - len(judged)} mutants are not judged yet; call again")
    raise SystemExit(report(drawn, alive, judged))


def report(drawn: list[Site], alive: list[int], judged: dict[int, dict]) -> int:
    reasons = {}
    explained = MUTATION / "survivors.csv"
    if explained.exists():
        with explained.open() as rows:
            reasons = {(r["file"], r["original"], r["mutated"]): r["reason"] for r in csv.DictReader(rows)}
    survivors = [i for i in alive if judged[i]["caught_by"] is None]
    open_ones = []
    for i in sorted(survivors, key=lambda i: drawn[i]):
        site = drawn[i]
        reason = reasons.get((site.file, site.original, site.shown))
        if reason is None:
            open_ones.append(i)
        reach = "reached by no test" if judged[i]["tests"] == 0 else f"{judged[i]['tests']} tests reach it"
        print(f"{site.file}:{site.line} {site.operator}: {site.original!r} -> {site.shown!r} ({reach})"
              + (f": {reason}" if reason else ""))  # fmt: skip
    print(f"{len(alive)} mutants, {len(alive) - len(survivors)} caught, {len(survivors)} survive, "
          f"{len(survivors) - len(open_ones)} of them explained")  # fmt: skip
    return int(len(open_ones) > 0.05 * len(alive))


if __name__ == "__main__":
    main()

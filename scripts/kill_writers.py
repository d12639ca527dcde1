"""Writers that are killed at any moment: the file of before stays whole, and the next writer cleans the
folder.

    python scripts/kill_writers.py [--cli build/bin/aicf] [--count 200] [--seed S] [--jobs 4] [--only KIND]

Kinds: artifact, checkpoint, arrays (outputs of run), records, cache (machine code; left out where NVRTC is
not installed). Each round starts a writer over files of a known content, kills it after a time drawn by the
seed, and looks: every file holds the old content or a whole new one. Then a writer runs to its end, and no
temporary file may be left.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import campaign
import memory_limits

TRAIN = ["train", memory_limits.STEP, "--data", "x.npy", "--labels", "l.npy", "--batch", "4", "--steps", "40"]
TRAIN += ["--checkpoint", "c.safetensors", "--checkpoint-every", "1", "-o", "t.aicf"]


@dataclass
class Kind:
    name: str
    words: list[str]
    files: tuple[str, ...]  # what it writes; folders of which every file counts
    same: bool = True  # a whole run writes the same bytes each time
    nvrtc: bool = False  # without it the kind is left out


KINDS = [
    Kind(
        "artifact", ["compile", memory_limits.MODEL, "--dim", "batch=1..8", "-o", "out.aicf"], ("out.aicf",)
    ),
    Kind("checkpoint", TRAIN, ("c.safetensors", "t.aicf"), same=False),
    Kind("arrays", ["run", memory_limits.ARTIFACT, "--input", "x=x.npy", "--output-dir", "out"], ("out",)),
    Kind(
        "records",
        ["tune", memory_limits.MODEL, "--dim", "batch=2", "--count", "2", "--output", "records.csv"],
        ("records.csv",),
        same=False,
    ),
    Kind(
        "cache",
        ["compile", memory_limits.MODEL, "--dim", "batch=2", "--target", "sm_80", "-o", "g.aicf"],
        ("cache",),
        nvrtc=True,
    ),
]


def readable(kind: Kind, path: Path) -> bool:
    """A file whose bytes are not known before: whether all of it is there."""
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        try:
            load_file(path)
        except Exception as error:  # noqa: BLE001
            print(error)
            return False
    if path.suffix == ".csv":
        return path.read_bytes().endswith(b"\n")
    return path.stat().st_size > 0


class Kills:
    def __init__(self, cli: str, folder: Path, seed: int) -> None:
        self.cli, self.folder, self.random = cli, folder, random.Random(seed)
        cache = str(folder / "cache")
        self.environment = {**os.environ, "AICF_CACHE_DIR": cache, "VIRTUAL_ENV": sys.prefix}
        self.kills = self.lost = 0

    def start(self, kind: Kind) -> subprocess.Popen[bytes]:
        if kind.name == "cache":
            shutil.rmtree(self.folder / "cache", ignore_errors=True)
        command = [self.cli, *kind.words]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
        return subprocess.Popen(command, cwd=self.folder, env=self.environment, **quiet)

    def contents(self, kind: Kind) -> dict[Path, bytes]:
        paths = [self.folder / name for name in kind.files]
        files = [f for path in paths for f in (path.rglob("*") if path.is_dir() else [path]) if f.is_file()]
        return {f: f.read_bytes() for f in files if not f.name.startswith(".aicf.tmp") and f.name != "lock"}

    def left(self) -> list[str]:
        return [str(path) for path in self.folder.rglob(".aicf.tmp*")]

    def say(self, kind: Kind, what: str) -> None:
        self.lost += 1
        print(f"FOUND {kind.name}: {what}", flush=True)

    def finish(self, kind: Kind) -> str:
        """Runs a writer to its end; gives what it says if it fails."""
        process = self.start(kind)
        said = process.communicate()[1].decode(errors="replace")
        return f"exit {process.returncode}: {said.strip()[-300:]}" if process.returncode else ""

    def left_out(self, kind: Kind) -> bool:
        if not (kind.nvrtc and memory_limits.NO_LIBRARY in self.finish(kind)):
            return False
        print(f"{kind.name}: left out: NVRTC is not installed")
        return True

    def run(self, kind: Kind, count: int) -> None:
        start = time.monotonic()
        if failed := self.finish(kind):
            self.say(kind, f"a writer that nobody kills fails: {failed}")
            return
        seconds = time.monotonic() - start
        known = self.contents(kind)
        for _ in range(count):
            process = self.start(kind)
            time.sleep(self.random.uniform(0, 1.1 * seconds))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            self.kills += 1
            for path, contents in self.contents(kind).items():
                if kind.same and known.get(path) != contents:
                    self.say(kind, f"{path} is neither the old nor the new one")
                if not kind.same and not readable(kind, path):
                    self.say(kind, f"{path} is not whole")
            if kind.name != "cache" and set(known) - set(self.contents(kind)):
                self.say(kind, "a file is gone")
            if self.random.random() < 0.2:
                self.settle(kind)
        self.settle(kind)
        print(f"{kind.name}: {count} kills of a writer that takes {seconds:.2f} s", flush=True)

    def settle(self, kind: Kind) -> None:
        if failed := self.finish(kind):
            self.say(kind, f"the next writer fails: {failed}")
        if self.left():
            self.say(kind, f"the next writer leaves {self.left()}")


def main() -> int:
    parser = campaign.arguments(__doc__, 200)
    default = campaign.ROOT / "build" / "bin" / "aicf"
    parser.add_argument("--cli", default=os.environ.get("AICF_CLI", str(default)))
    parser.add_argument("--only", default="", help="kinds whose name begins so")
    options = parser.parse_args()
    if options.jobs > 1:
        return campaign.in_shares(__file__, options, ["--cli", options.cli, "--only", options.only])
    with tempfile.TemporaryDirectory() as folder:
        cli = str(Path(options.cli).resolve())
        memory_limits.prepare(cli, Path(folder))
        kills = Kills(cli, Path(folder), options.seed)
        kinds = [kind for kind in KINDS if kind.name.startswith(options.only) and not kills.left_out(kind)]
        for index, kind in enumerate(kinds):
            share = options.count * (index + 1) // len(kinds) - options.count * index // len(kinds)
            kills.run(kind, share)
    if kills.lost:
        words = f"--seed {options.seed} --count {options.count} --only '{options.only}'"
        print(f"  again: {sys.executable} scripts/kill_writers.py {words}")
    return campaign.finish(options.seed, kills.kills, "kills", kills.lost, options.count)


if __name__ == "__main__":
    sys.exit(main())

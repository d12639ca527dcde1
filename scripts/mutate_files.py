"""Files that somebody changed, by a seed: none may end a program, hang it, or be taken for a bug of ours.

    python scripts/mutate_files.py [--count 50000] [--seed S] [--jobs 4] [--only aicf] [--keep FOLDER]

Builds the targets mutate_* of fuzz/ (any compiler; docs in fuzz/README.md) and gives each its share of the
files: .aicf under checksums that fit, ONNX, safetensors, npy, npz, tuning records, programs as text.
Each finding comes with the line that runs it again.
"""

from __future__ import annotations

import concurrent.futures
import math
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import campaign
import numpy as np

SHARES = {
    "aicf": 0.3,
    "onnx": 0.25,
    "safetensors": 0.15,
    "npy": 0.05,
    "npz": 0.1,
    "records": 0.05,
    "text": 0.1,
}
MOST_BYTES = 4096  # of a model of the ONNX package that is a seed


def npz_seeds(folder: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "x": rng.standard_normal((3, 4)).astype("f"),
        "i": np.arange(5),
        "empty": np.zeros((0, 2), "f2"),
    }
    np.savez(folder / "stored.npz", **arrays)
    np.savez_compressed(folder / "deflated.npz", **arrays)
    with zipfile.ZipFile(folder / "mixed.npz", "w") as archive:
        with archive.open("a.npy", "w") as member:
            np.save(member, np.asfortranarray(arrays["x"]))
        archive.writestr("notes.txt", "no array")


def onnx_seeds(folder: Path) -> None:
    import onnx

    cases = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for path in sorted(cases.glob("*/*/model.onnx")):
        if path.stat().st_size < MOST_BYTES:
            (folder / f"{path.parent.name}.onnx").write_bytes(path.read_bytes())


def mutate(command: list[str], kind: str) -> tuple[int, int]:
    """Runs a target over its files; gives how many, and how many of them were findings."""
    done = subprocess.run(command, capture_output=True, text=True, errors="replace")
    said = re.search(r"(\d+) inputs of (\d+) seeds, (\d+) found", done.stdout)
    if said is None:
        print(f"{kind}: does not run: {done.stdout[-300:]}{done.stderr[-300:]}", flush=True)
        return 0, 1
    print(f"{kind}: {said[0]}", flush=True)
    if int(said[3]):
        print(done.stdout, done.stderr[-2000:], flush=True)
    return int(said[1]), int(said[3])


def main() -> int:
    parser = campaign.arguments(__doc__, 50000)
    parser.add_argument("--build", type=Path, default=campaign.ROOT / "build")
    parser.add_argument("--only", choices=sorted(SHARES), help="one kind of file, all of the number")
    parser.add_argument("--keep", type=Path, help="folder for the files that were found")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(SHARES)
    names = [f"mutate_{kind}" for kind in kinds]
    if subprocess.run(
        ["ninja", "-C", options.build, *names], stdout=subprocess.DEVNULL, check=False
    ).returncode:
        return 3
    with tempfile.TemporaryDirectory() as temporary:
        commands = []
        for kind in kinds:
            seeds = Path(temporary) / kind
            seeds.mkdir()
            {"npz": npz_seeds, "onnx": onnx_seeds}.get(kind, lambda _: None)(seeds)
            count = options.count if options.only else math.ceil(options.count * SHARES[kind])
            for job in range(options.jobs):
                share = count * (job + 1) // options.jobs - count * job // options.jobs
                words = ["--runs", share, "--seed", options.seed + 1_000_003 * job]
                words += ["--seeds", seeds] if any(seeds.iterdir()) else []
                words += ["--keep", options.keep / kind] if options.keep else []
                target = options.build / "fuzz" / f"mutate_{kind}"
                commands.append(([str(word) for word in (target, *words)], kind))
        with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
            results = list(pool.map(lambda each: mutate(*each), commands))
    files, found = (sum(column) for column in zip(*results, strict=True))
    return campaign.finish(options.seed, files, "files", found, options.count)


if __name__ == "__main__":
    sys.exit(main())

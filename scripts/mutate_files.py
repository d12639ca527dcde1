"""Files that somebody changed, by a seed: none may end a program, hang it, or be taken for a bug of ours.

    python scripts/mutate_files.py [--files 50000] [--seed S] [--only aicf] [--keep FOLDER]

Builds the targets mutate_* of fuzz/ (any compiler; docs in fuzz/README.md) and gives each its share of the
files: .aicf under checksums that fit, ONNX, safetensors, npy, npz, tuning records, programs as text.
Each finding comes with the line that runs it again.
"""

from __future__ import annotations

import argparse
import random
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--build", type=Path, default=ROOT / "build")
    parser.add_argument("--files", type=int, default=50000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    parser.add_argument("--only", choices=sorted(SHARES), help="one kind of file, all of the number")
    parser.add_argument("--keep", type=Path, help="folder for the files that were found")
    options = parser.parse_args()
    kinds = [options.only] if options.only else list(SHARES)
    names = [f"mutate_{kind}" for kind in kinds]
    if subprocess.run(
        ["ninja", "-C", options.build, *names], stdout=subprocess.DEVNULL, check=False
    ).returncode:
        return 3
    print(f"seed {options.seed}")
    files = found = 0
    with tempfile.TemporaryDirectory() as temporary:
        for kind in kinds:
            seeds = Path(temporary) / kind
            seeds.mkdir()
            {"npz": npz_seeds, "onnx": onnx_seeds}.get(kind, lambda _: None)(seeds)
            count = options.files if options.only else int(options.files * SHARES[kind])
            command = [options.build / "fuzz" / f"mutate_{kind}", "--runs", count, "--seed", options.seed]
            command += ["--seeds", seeds] if any(seeds.iterdir()) else []
            command += ["--keep", options.keep / kind] if options.keep else []
            done = subprocess.run(
                [str(word) for word in command], capture_output=True, text=True, errors="replace"
            )
            said = re.search(r"(\d+) inputs of (\d+) seeds, (\d+) found", done.stdout)
            if said is None:
                print(f"{kind}: does not run: {done.stdout[-300:]}{done.stderr[-300:]}")
                found += 1
                continue
            print(f"{kind}: {said[0]}", flush=True)
            if int(said[3]):
                print(done.stdout, done.stderr[-2000:])
            files, found = files + int(said[1]), found + int(said[3])
    print(f"{files} files, {found} found")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

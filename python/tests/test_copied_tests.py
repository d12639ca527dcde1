"""`make wheel` runs a copy of these tests where no tree is: each file is collected there."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_a_copy_without_the_tree_is_collected(tmp_path: Path) -> None:
    if not (ROOT / "scripts" / "test_wheel.sh").exists():
        pytest.skip("needs the tree")
    # Those of the PyTorch door are skipped as a whole where torch is not installed.
    left_out = shutil.ignore_patterns("torch_door", "__pycache__")
    for folder in ("python/tests", "bench"):
        shutil.copytree(ROOT / folder, tmp_path / Path(folder).name, ignore=left_out)
    script = (ROOT / "scripts" / "test_wheel.sh").read_text()
    names = script.split('rm -f "$scratch/tests/"{')[1].split("}")[0]
    for name in names.split(","):
        (tmp_path / "tests" / f"{name}.py").unlink()
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    words += ["--assert=plain", "tests"]  # no assertion runs
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]

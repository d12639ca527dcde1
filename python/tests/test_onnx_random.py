"""A few hundred graphs of scripts/random_onnx.py; --count and --seed there draw more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
SCRIPT = Path(__file__).parents[2] / "scripts" / "random_onnx.py"


def test_random_graphs_are_right() -> None:
    command = [sys.executable, str(SCRIPT), "--count", "400", "--seed", "20261123"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    assert finished.stdout.endswith("seed 20261123: 400 graphs, 0 found\n"), finished.stdout[-4000:]

"""A few nets of scripts/random_training.py; --count and --seed there draw more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")
SCRIPT = Path(__file__).parents[3] / "scripts" / "random_training.py"


@pytest.mark.skipif(not SCRIPT.exists(), reason="of the tree only")
def test_random_nets_train_as_in_torch() -> None:
    command = [sys.executable, str(SCRIPT), "--count", "25", "--seed", "20261123"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    assert finished.stdout.endswith("seed 20261123: 25 nets, 0 found\n"), finished.stdout[-4000:]


@pytest.mark.skipif(not SCRIPT.exists(), reason="of the tree only")
def test_a_sum_that_cancels_is_bounded_by_its_terms() -> None:
    """All gradients of this net are 0 in torch, in any order of its own: its classes are copies."""
    command = [sys.executable, str(SCRIPT), "--seed", "20261124", "--only", "189"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert '"status": "right"' in finished.stdout, finished.stdout[-4000:] + finished.stderr[-2000:]

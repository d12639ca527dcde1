"""A short round of scripts/memory_limits.py and of scripts/kill_writers.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    "words",
    [
        ("memory_limits.py", "--seed", "1", "--count", "66", "--only", "compile"),
        ("memory_limits.py", "--seed", "1", "--count", "66", "--only", "run"),
        ("memory_limits.py", "--seed", "1", "--count", "20", "--only", "inspect"),
        ("memory_limits.py", "--seed", "1", "--count", "20", "--only", "python_run"),
        ("kill_writers.py", "--seed", "1", "--count", "12"),
    ],
)
def test_a_short_round(cli: str, words: tuple[str, ...]) -> None:
    if not (SCRIPTS / words[0]).exists():
        pytest.skip("needs the source tree")
    command = [sys.executable, str(SCRIPTS / words[0]), "--cli", cli, *words[1:]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr

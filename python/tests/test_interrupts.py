"""Interrupts at random moments leave nothing taken and nothing half done (scripts/interrupts.py)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "interrupts.py"
COUNT = 1000 if os.environ.get("AICF_SOAK") == "1" else 40


def ignore() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


@pytest.mark.timeout(3000)
@pytest.mark.skipif(not SCRIPT.exists(), reason="of the tree only")
def test_interrupts_leave_nothing_behind() -> None:
    """Started as from a shell that ignores the signal."""
    words = [sys.executable, SCRIPT, "--count", str(COUNT), "--seed", "1"]
    done = subprocess.run(words, capture_output=True, text=True, preexec_fn=ignore, timeout=3000, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{COUNT} interrupts" in done.stdout

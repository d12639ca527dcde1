"""A short round of scripts/memory_limits.py and of scripts/kill_writers.py."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.mark.parametrize(
    "script, count, only",
    [
        ("memory_limits.py", 66, "compile"),
        ("memory_limits.py", 66, "run"),
        ("memory_limits.py", 20, "inspect"),
        ("memory_limits.py", 20, "python_run"),
        ("memory_limits.py", 16, "export"),
        ("memory_limits.py", 45, "host"),
        ("kill_writers.py", 12, ""),
    ],
)
def test_a_short_round(cli: str, script: str, count: int, only: str) -> None:
    done = short_round(cli, script, count, only)
    assert done.returncode == 0, done.stdout + done.stderr
    last = re.fullmatch(r"seed 1: (\d+) (limits|kills), 0 found", done.stdout.splitlines()[-1])
    assert last and int(last[1]) >= count, done.stdout


@pytest.mark.parametrize("script, only", [("memory_limits.py", "inspect"), ("kill_writers.py", "")])
def test_a_tool_that_does_nothing_does_not_pass(cli: str, tmp_path: Path, script: str, only: str) -> None:
    """It compiles the model that all cases need, and fails at everything else."""
    tool = tmp_path / "tool"
    tool.write_text(f"""#!/bin/sh
for last; do :; done
case "$1 $last" in
  "compile m.aicf" | --version*) exec '{cli}' "$@" ;;
esac
exit 1
""")
    tool.chmod(0o755)
    done = short_round(str(tool), script, 4, only)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FOUND that 0 " in done.stdout


def short_round(cli: str, script: str, count: int, only: str) -> subprocess.CompletedProcess[str]:
    if not (SCRIPTS / script).exists():
        pytest.skip("needs the source tree")
    command = [sys.executable, str(SCRIPTS / script), "--cli", cli, "--seed", "1", "--count", str(count)]
    return subprocess.run([*command, "--only", only], capture_output=True, text=True, check=False)

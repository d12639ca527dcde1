"""The command line tool in a folder of a test's own."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

__all__ = ["DIM", "FIXED", "Cli"]

DIM = ("--dim", "batch=1..8")
FIXED = ("--dim", "batch=3")


class Cli:
    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.folder = folder

    def finished(self, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.path, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
        )

    def run(self, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        finished = self.finished(*words, **variables)
        assert finished.returncode == code, finished.stderr + finished.stdout
        return finished

    def json(self, *words: str, code: int = 0, **variables: str) -> dict[str, Any]:
        answer = json.loads(self.run(*words, "--json", code=code, **variables).stdout)
        assert answer["schema"] == 1
        return answer

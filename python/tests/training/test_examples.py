"""The training examples do what they say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def run(*command: object) -> str:
    finished = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    return finished.stdout


def found(pattern: str, text: str) -> str:
    match = re.search(pattern, text)
    assert match is not None, text
    return match.group(1)


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("digits")
    return folder, run(sys.executable, ROOT / "examples" / "digits.py", "--export", folder)


def test_digits_are_read(digits: tuple[Path, str]) -> None:
    assert float(found(r"accuracy: ([\d.]+)", digits[1])) >= 97


def test_cpp_reaches_the_same_bits(digits: tuple[Path, str], cli: str) -> None:
    program = Path(cli).parents[1] / "examples" / "train_digits"
    if not program.exists():
        pytest.skip("the C++ examples are not built: run make build")
    folder, text = digits
    steps = found(r"(\d+) steps", text)
    run(program, folder, 700)  # leaves a checkpoint of 500 steps, from which the next call goes on
    finished = run(program, folder, steps)
    assert found(r"state (\w+)", finished) == found(r"state (\w+)", text)
    assert float(found(r"accuracy: ([\d.]+)", finished)) >= 99


def test_char_gpt_learns_and_writes() -> None:
    text = run(sys.executable, ROOT / "examples" / "char_gpt.py", "--steps", 60, "--length", 20)
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
    assert losses[-1] < 0.75 * losses[0]
    assert len(text.split("state ", 1)[1]) > 32 + 64 + 20

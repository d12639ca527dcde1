"""The program that proves training on a GPU, tried with small steps on the CPU; and that it can fail."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpu_train_proofs as proofs
import pytest


def test_small_proofs_pass_on_the_cpu(cli: str, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("sklearn")
    output = tmp_path / "proofs.json"
    command = [sys.executable, proofs.__file__, "curve", "kills", "--quick", "--jobs", "2"]
    command += ["--device", "cpu", "--aicf", cli, "--output", output]
    finished = subprocess.run(list(map(str, command)), capture_output=True, text=True, timeout=300)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    curve, kills = json.loads(output.read_text())["rows"]
    assert len(curve["ours"]) == len(curve["torch_f64"]) == proofs.QUICK.curve
    assert len(kills["runs"]) == proofs.QUICK.kills


def failing(monkeypatch: pytest.MonkeyPatch, runs: list[dict[str, Any]]) -> None:
    left = iter(runs)
    monkeypatch.setattr(proofs, "start", lambda *_: None)
    monkeypatch.setattr(proofs, "finish", lambda _: next(left))


def test_one_other_hash_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [{"steps": 2, "hash": "a", "restored": "a"} for _ in range(2 * len(proofs.STEPS))]
    runs[3]["restored"] = "b"
    failing(monkeypatch, runs)
    passed = [record["passed"] for record in proofs.prove_steps(argparse.Namespace(device="cpu"))]
    assert passed == [True, False, True]


def test_a_part_without_an_answer_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_: argparse.Namespace) -> Any:
        yield {"proof": "first", "passed": True, "shown": ""}
        raise RuntimeError("a process ended with 1")

    monkeypatch.setitem(proofs.PROVERS, "steps", broken)
    records: list[Any] = []
    proofs.prove(argparse.Namespace(), records.append, "steps")
    assert [record["passed"] for record in records] == [True, False]
    assert "ended with 1" in records[1]["shown"]


@pytest.mark.parametrize(("ours", "passed"), [(1.19, True), (1.21, False)])
def test_losses_further_than_twice_the_peers_fail(
    monkeypatch: pytest.MonkeyPatch, ours: float, passed: bool
) -> None:
    failing(monkeypatch, [{"ours": [1.0, ours], "torch_bf16": [1.0, 1.1], "torch_f64": [1.0, 1.0]}])
    (record,) = proofs.prove_curve(argparse.Namespace())
    assert record["passed"] is passed

"""What a file of bench/results must say of itself: the check that all of them pass, on files that do not."""

from __future__ import annotations

import importlib.util
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = {
    "schema": 1,
    "commit": "0123abc",
    "date": "2026-11-23",
    "command": "python bench/x.py",
    "machine": "two cores",
    "versions": {"aicf": "0.2"},
}


@pytest.fixture(scope="module")
def checks() -> Any:
    path = ROOT / "scripts" / "check_docs.py"
    if not path.exists():
        pytest.skip("needs the source tree")
    spec = importlib.util.spec_from_file_location("check_docs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faults(checks: Any, data: dict[str, Any], name: str = "r.json") -> list[str]:
    return list(checks.check_result(name, json.dumps(data).encode()))


def test_a_whole_file_passes(checks: Any) -> None:
    assert faults(checks, GOOD) == []
    raw = lzma.compress(json.dumps({**GOOD, "rows": ["x" * 99999]}).encode())
    assert list(checks.check_result("r.json.xz", raw)) == []


@pytest.mark.parametrize("lost", GOOD)
def test_what_a_file_does_not_say_is_told(checks: Any, lost: str) -> None:
    data = {key: value for key, value in GOOD.items() if key != lost}
    assert lost in " ".join(faults(checks, data))


def test_only_files_of_before_may_lack_something(checks: Any) -> None:
    data = {key: value for key, value in GOOD.items() if key != "versions"} | {"not_recorded": ["versions"]}
    assert faults(checks, {**data, "date": "2026-11-22"}) == []
    assert "not_recorded" in faults(checks, data)[0]
    assert "no commit" in faults(checks, {**GOOD, "commit": "today"})[0]
    assert "compress" in faults(checks, {**GOOD, "rows": ["x" * 99999]})[0]

"""What the benches share: the GPU's report, in which a run that is cut off keeps rows; shares of a peak."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

import fma_peak
import gpu_report
import pytest


def test_the_file_is_whole_after_every_row(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    report = gpu_report.Report(argparse.Namespace(output=path), ["numpy"])
    assert not path.exists()
    for count in (1, 2):
        report.add({"us": [1.0] * count})
        written = json.loads(path.read_text())
        assert written["schema"] == 1 and "numpy" in written["versions"]
        assert [len(row["us"]) for row in written["rows"]] == list(range(1, count + 1))
    assert [p.name for p in tmp_path.iterdir()] == ["rows.json"]


def test_without_an_output_nothing_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    gpu_report.Report(argparse.Namespace(output=None), []).add({"us": []})
    assert list(tmp_path.iterdir()) == []


def test_a_row_that_fails_does_not_lose_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "rows.json"
    report = gpu_report.Report(argparse.Namespace(output=path), [])
    assert report.measure("one", lambda: {"us": [1.0]}) == {"us": [1.0]} and report.exit_code() == 0
    # What a command that is not there, one that fails and a peer out of memory raise.
    for row in (
        lambda: gpu_report.tool(["/bin/false"]),
        lambda: gpu_report.tool(["/no/tool"]),
        lambda: [][0],
    ):
        assert report.measure("two", row) is None
    report.measure("three", lambda: {"us": [2.0]})
    written = json.loads(path.read_text())
    assert written["rows"] == [{"us": [1.0]}, {"us": [2.0]}] and written["failed"] == ["two"] * 3
    assert report.exit_code() == 1 and "two failed" in capsys.readouterr().err


def test_cold_compiles_find_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICF_CACHE_DIR", "/kept")
    monkeypatch.setenv("CUDA_CACHE_DISABLE", "0")
    gpu_report.compile_cold()
    seen = (
        "import json, os; print(json.dumps([os.getenv('AICF_CACHE_DIR'), os.getenv('CUDA_CACHE_DISABLE')]))"
    )
    assert gpu_report.tool([sys.executable, "-c", seen]) == [None, "1"]


def test_a_share_above_one_ends_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fma_peak, "fma_peak", lambda build, threads: 1e9)

    def measure() -> dict[str, object]:
        return {"milliseconds": {"aicf": {"median": 10.0}}}

    assert fma_peak.beside_fma_peak(measure, 9e6, Path(), 1)["share_of_fma_peak"] == pytest.approx(0.9)
    with pytest.raises(SystemExit, match="110.0% of the peak"):
        fma_peak.beside_fma_peak(measure, 11e6, Path(), 1)

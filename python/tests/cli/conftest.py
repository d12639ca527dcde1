"""The command line, and a CUDA driver that computes nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import Cli


@pytest.fixture
def cli(cli: str, tmp_path: Path, mlp: bytes) -> Cli:
    """In a folder with m.onnx (x f32[batch, 16] to y f32[batch, 8])."""
    (tmp_path / "m.onnx").write_bytes(mlp)
    return Cli(cli, tmp_path)


@pytest.fixture
def fake(nvrtc: None, cli: Cli) -> dict[str, str]:
    """Variables by which programs find a CUDA driver that computes nothing."""
    driver = Path(cli.path).resolve().parent.parent / "test" / "fake_cuda"
    if not driver.exists():
        pytest.skip("needs the made-up CUDA driver of a build with tests")
    return {"AICF_CUDA_PATH": str(driver)}

"""For tests of Triton's kernels: AICF_REQUIRE_TRITON makes a failure of what else would be skipped."""

from __future__ import annotations

import importlib
import os

import pytest

__all__ = ["need_triton"]


def need_triton() -> None:
    if os.environ.get("AICF_REQUIRE_TRITON") is not None:
        importlib.import_module("triton")
    else:
        pytest.importorskip("triton")

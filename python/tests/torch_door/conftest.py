"""AICF_TEST_DEVICE=cuda runs these tests on a GPU: tensors are made there, and models compiled for it."""

from __future__ import annotations

import os

import pytest

torch = pytest.importorskip("torch", reason="the PyTorch front door is tested where torch is installed")

import aicf.compiler  # noqa: E402
import aicf.torch  # noqa: E402

DEVICE = os.environ.get("AICF_TEST_DEVICE", "cpu")

if DEVICE == "cuda":
    torch.set_default_device(DEVICE)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    compilers = (
        aicf.compiler.compile,
        aicf.torch.compile_causal_lm,
        aicf.torch.compile_seq2seq_lm,
        aicf.torch.precision_report,
    )
    for function in compilers:
        function.__kwdefaults__["device"] = DEVICE


@pytest.fixture
def only_on_the_cpu() -> None:
    if DEVICE != "cpu":
        pytest.skip("of the CPU")

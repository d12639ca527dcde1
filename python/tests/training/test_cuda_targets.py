"""Every kernel of a train step compiles for GPUs, with or without one in the machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import aicf
import numpy as np
import pytest
from aicf import nn, optim


def mlp() -> tuple[nn.Module, list[aicf.TensorSpec]]:
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.1), nn.Linear(16, 8))
    return model, [aicf.TensorSpec((64, 8)), aicf.TensorSpec((64,), "i64", "labels")]


def conv_net() -> tuple[nn.Module, list[aicf.TensorSpec]]:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(128, 8),
    )
    return model, [aicf.TensorSpec((16, 1, 8, 8)), aicf.TensorSpec((16,), "i64", "labels")]


@pytest.mark.parametrize("make", [mlp, conv_net])
@pytest.mark.parametrize("precision", ["f32", "bf16-mixed"])
def test_steps_compile_for_sm_90(
    nvrtc: None, make: Callable[[], tuple[nn.Module, list[aicf.TensorSpec]]], precision: str, tmp_path: Path
) -> None:
    model, specs = make()
    step = aicf.compile_train_step(
        model,
        nn.CrossEntropyLoss(),
        optim.AdamW(1e-3),
        specs,
        clip_norm=1.0,
        precision=precision,
        options={"target": "cpu,sm_90"},
    )
    rng = np.random.default_rng(0)
    x = rng.standard_normal(specs[0].shape).astype(np.float32)
    assert np.isfinite(np.asarray(step(x, rng.integers(0, 8, specs[1].shape))))
    step.save(tmp_path / "step.aicf")
    assert b"sm_90" in (tmp_path / "step.aicf").read_bytes()

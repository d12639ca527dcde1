from __future__ import annotations

from collections.abc import Callable

import aicf
import numpy as np
import pytest
from aicf import nn, optim

Batch = tuple[np.ndarray, np.ndarray]


def mlp_model() -> nn.Module:
    nn.seed(0)
    return nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))


@pytest.fixture(scope="session")
def make_step() -> Callable[..., aicf.TrainStep]:
    """A step of a 12-24-4 network over batches of 16 with AdamW; keywords replace its options."""

    def make(**options: object) -> aicf.TrainStep:
        settings = {
            "model": mlp_model(),
            "loss": nn.CrossEntropyLoss(),
            "optimizer": optim.AdamW(optim.cosine(1e-2, total=400, warmup=10)),
            "inputs": [aicf.TensorSpec((16, 12)), aicf.TensorSpec((16,), "i64", "labels")],
            **options,
        }
        return aicf.compile_train_step(**settings)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def data() -> Batch:
    """200 rows of which the label is a function."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((200, 12)).astype(np.float32)
    return x, (x[:, :4].argmax(1)).astype(np.int64)


@pytest.fixture(scope="session")
def batches(data: Batch) -> list[Batch]:
    x, y = data
    return [(x[i : i + 16], y[i : i + 16]) for i in range(0, 192, 16)]

"""The optimizers of ONNX's training operators, against the formulas of their texts."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import draw, model_of, ours, specs

DOMAIN = "ai.onnx.preview.training"
RATE, NORM, POST, EPSILON = 0.1, 0.01, 0.02, 1e-3


def adam(step: int, x: np.ndarray, g: np.ndarray, v: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    alpha, beta = 0.8, 0.95
    g = g + NORM * x
    v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
    rate = RATE * np.sqrt(1 - beta**step) / (1 - alpha**step) if step else RATE
    return [(1 - POST) * (x - rate * v / (np.sqrt(h) + EPSILON)), v, h]


def adagrad(step: int, x: np.ndarray, g: np.ndarray, h: np.ndarray) -> list[np.ndarray]:
    g = g + NORM * x
    h = h + g * g
    return [x - RATE / (1 + step * 0.3) * g / (np.sqrt(h) + EPSILON), h]


CASES: list[tuple[str, Any, dict[str, float]]] = [
    ("Adam", adam, {"alpha": 0.8, "beta": 0.95, "norm_coefficient_post": POST}),
    ("Adagrad", adagrad, {"decay_factor": 0.3}),
]


@pytest.mark.parametrize(("op", "formula", "attributes"), CASES, ids=[c[0] for c in CASES])
@pytest.mark.parametrize("step", [0, 3])
def test_tensors_of_an_optimizer_take_their_own_states(
    op: str, formula: Any, attributes: dict[str, float], step: int
) -> None:
    kinds = ["x", "g", "v", "h"] if op == "Adam" else ["x", "g", "h"]
    tensors = [
        [np.abs(draw(size, i + 2)) if kind in "vh" else draw(size, i + 2) for i, kind in enumerate(kinds)]
        for size in (3, 5)
    ]
    # Operands of a kind stand together, and so do results.
    tensors = [[t[:, :2].copy() for t in row] for row in tensors]
    feeds = {f"{kind}{i}": row[k] for k, kind in enumerate(kinds) for i, row in enumerate(tensors)}
    scalars = {"r": np.array(RATE, np.float32), "t": np.array(step, np.int64)}
    outputs = [f"new_{kind}{i}" for kind in kinds if kind != "g" for i in range(len(tensors))]
    node = helper.make_node(
        op, ["r", "t", *feeds], outputs, domain=DOMAIN, epsilon=EPSILON, norm_coefficient=NORM, **attributes
    )
    model = model_of([node], specs(feeds), outputs, scalars, domains={DOMAIN: 1})
    results = [formula(step, *(t.astype(np.float64) for t in row)) for row in tensors]
    for mine, wanted in zip(
        ours(aicf.compile(model, threads=1), feeds),
        [result[k] for k in range(len(results[0])) for result in results],
        strict=True,
    ):
        np.testing.assert_allclose(mine, wanted, rtol=1e-5, atol=1e-6)

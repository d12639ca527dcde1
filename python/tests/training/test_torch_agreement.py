"""Beside PyTorch from the same weights and batches, judged by PyTorch in f64.

Our distance from the f64 run may be at most twice that of PyTorch: of the first gradients, and of the losses
of a run. Losses differ by rounding alone, so the distance is the largest over the run, not of one step.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import nn, optim

torch = pytest.importorskip("torch")
F = torch.nn.functional

STEPS = 50 if os.environ.get("AICF_SOAK") == "1" else 20
RATE, DECAY = 3e-3, 0.01
Batch = tuple[np.ndarray, np.ndarray]
Weights = dict[str, Any]


@dataclass
class Case:
    """A model of ours, PyTorch's functional twin over weights of our names, and batches for both."""

    model: nn.Module
    twin: Callable[[Weights, Any], Any]
    batches: list[Batch]
    loss: Callable[[Any, Any], Any]


def linear(w: Weights, name: str, x: Any) -> Any:
    y = x @ w[f"{name}.W"]
    return y + w[f"{name}.b"] if f"{name}.b" in w else y


def class_batches(shape: tuple[int, ...], classes: int, seed: int) -> list[Batch]:
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((classes, *shape)).astype(np.float32)
    batches = []
    for _ in range(8):
        y = rng.integers(0, classes, 32)
        x = centres[y] + 2 * rng.standard_normal((32, *shape)).astype(np.float32)
        batches.append((x.astype(np.float32), y))
    return batches


def mlp() -> Case:
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    return Case(
        model,
        lambda w, x: linear(w, "2", torch.relu(linear(w, "0", x))),
        class_batches((64,), 10, 1),
        nn.CrossEntropyLoss(label_smoothing=0.1),
    )


def conv_net() -> Case:
    model = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 16, 3, stride=2, padding=1, bias=False),
        nn.ReLU(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 10),
    )

    def twin(w: Weights, x: Any) -> Any:
        x = F.conv2d(x, w["0.W"], w["0.b"], padding=1)
        x = F.batch_norm(x, None, None, w["1.scale"], w["1.bias"], training=True)
        x = F.max_pool2d(torch.relu(x), 2)
        x = torch.relu(F.conv2d(x, w["4.W"], stride=2, padding=1))
        return linear(w, "8", F.avg_pool2d(x, 2).flatten(1))

    return Case(model, twin, class_batches((1, 8, 8), 10, 2), nn.CrossEntropyLoss(label_smoothing=0.1))


class Gpt(nn.Module):
    def __init__(self) -> None:
        self.tokens = nn.Embedding(30, 32)
        self.norm1, self.norm2 = nn.LayerNorm(32), nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, causal=True)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.gelu, self.head = nn.GELU(), nn.Linear(32, 30, bias=False)

    def forward(self, ids: Any) -> Any:
        x = self.tokens(ids)
        x = x + self.attention(self.norm1(x))
        x = x + self.down(self.gelu(self.up(self.norm2(x))))
        return self.head(x).reshape(8 * 24, 30)


def gpt() -> Case:
    def twin(w: Weights, ids: Any) -> Any:
        x = w["tokens.W"][ids]
        h = F.layer_norm(x, (32,), w["norm1.scale"], w["norm1.bias"])
        heads = [linear(w, f"attention.{n}", h).reshape(8, 24, 4, 8).transpose(1, 2) for n in "qkv"]
        a = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + linear(w, "attention.o", a.transpose(1, 2).reshape(8, 24, 32))
        h = F.layer_norm(x, (32,), w["norm2.scale"], w["norm2.bias"])
        x = x + linear(w, "down", F.gelu(linear(w, "up", h)))
        return linear(w, "head", x).reshape(8 * 24, 30)

    rng = np.random.default_rng(3)
    text = (np.arange(2000) * 7 % 30 + rng.integers(0, 3, 2000)) % 30
    starts = rng.integers(0, 1900, (8, 8))
    windows = [np.stack([text[i : i + 25] for i in row]) for row in starts]
    batches = [(np.ascontiguousarray(w[:, :-1]), np.ascontiguousarray(w[:, 1:]).reshape(-1)) for w in windows]
    return Case(Gpt(), twin, batches, nn.CrossEntropyLoss(label_smoothing=0.1))


def torch_run(case: Case, start: Weights, dtype: Any) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Gradients of the first step and the losses of all."""
    weights = {n: torch.tensor(w, dtype=dtype, requires_grad=True) for n, w in start.items()}
    optimizer = torch.optim.AdamW(list(weights.values()), lr=RATE, weight_decay=DECAY)
    losses, gradients = [], {}
    for number in range(STEPS):
        x, y = (torch.tensor(a) for a in case.batches[number % len(case.batches)])
        optimizer.zero_grad()
        scores = case.twin(weights, x.to(dtype) if x.is_floating_point() else x)
        loss = F.cross_entropy(scores, y, label_smoothing=0.1)
        loss.backward()
        if number == 0:
            gradients = {n: w.grad.double().numpy().copy() for n, w in weights.items()}
        optimizer.step()
        losses.append(loss.item())
    return gradients, np.array(losses, np.float64)


def our_run(case: Case) -> tuple[dict[str, np.ndarray], np.ndarray]:
    x, y = case.batches[0]
    step = aicf.compile_train_step(
        case.model,
        case.loss,
        optim.AdamW(RATE, weight_decay=DECAY),
        [aicf.TensorSpec(x.shape, str(x.dtype)), aicf.TensorSpec(y.shape, "i64", "target")],
        gradients=True,
    )
    results = [np.asarray(t) for t in step.run_entry("gradients", x, y)]
    names = sorted(path for path, _ in case.model.named_parameters())
    losses = [float(np.asarray(step(*case.batches[number % len(case.batches)]))) for number in range(STEPS)]
    return dict(zip(names, results[1:], strict=True)), np.array(losses, np.float64)


@pytest.mark.parametrize("make", [mlp, conv_net, gpt])
def test_no_further_from_f64_than_twice_pytorch(make: Callable[[], Case]) -> None:
    torch.manual_seed(0)
    nn.seed(4)
    case = make()
    start = {path: np.asarray(p.data).copy() for path, p in case.model.named_parameters()}
    exact_gradients, exact = torch_run(case, start, torch.float64)
    peer_gradients, peer = torch_run(case, start, torch.float32)
    gradients, ours = our_run(case)

    def error(found: dict[str, np.ndarray]) -> float:
        square = sum(((found[n].astype(np.float64) - g) ** 2).sum() for n, g in exact_gradients.items())
        return float(np.sqrt(square))

    print(f"gradients: ours {error(gradients):.2e}, PyTorch {error(peer_gradients):.2e}")
    print(f"losses: ours {np.abs(ours - exact).max():.2e}, PyTorch {np.abs(peer - exact).max():.2e}")
    assert exact[-1] < exact[0]
    assert error(gradients) <= 2 * error(peer_gradients)
    assert np.abs(ours - exact).max() <= 2 * np.abs(peer - exact).max()

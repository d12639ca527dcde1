"""torch.nn.Module as the model of a train step."""

from __future__ import annotations

import aicf
import numpy as np
import pytest
from aicf import nn, optim

torch = pytest.importorskip("torch")

ROWS, STEPS = 32, 25


class Net(torch.nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.drop = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(6 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(self.drop(x.flatten(1)))


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    centres = rng.standard_normal((5, 1, 8, 8))
    labels = [rng.integers(0, 5, ROWS) for _ in range(5)]
    return [((centres[y] + rng.standard_normal((ROWS, 1, 8, 8))).astype(np.float32), y) for y in labels]


SPECS = [aicf.TensorSpec((ROWS, 1, 8, 8)), aicf.TensorSpec((ROWS,), "i64")]


@pytest.mark.parametrize("loss", [torch.nn.CrossEntropyLoss(), nn.CrossEntropyLoss()], ids=["torch", "aicf"])
def test_a_module_trains_as_in_torch(loss: object) -> None:
    torch.manual_seed(0)
    model = Net()
    step = aicf.compile_train_step(model, loss, optim.SGD(0.05, momentum=0.9), SPECS)
    assert model.training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(STEPS):
        x, y = (torch.from_numpy(a) for a in batches()[number % 5])
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 2e-5
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(np.asarray(step.state_dict()[name]), value.numpy(), atol=2e-5)
    model.eval()
    x = torch.from_numpy(batches()[0][0])
    np.testing.assert_allclose(np.asarray(step.evaluate(x)), model(x).detach().numpy(), atol=1e-4)


def test_dropout_and_frozen_params() -> None:
    torch.manual_seed(0)
    model = Net(dropout=0.5)
    model.conv.requires_grad_(False)
    before = model.conv.weight.detach().numpy().copy()
    runs = []
    for seed_threads in (1, 2):
        step = aicf.compile_train_step(
            model, nn.CrossEntropyLoss(), optim.Adam(1e-2), SPECS, threads=seed_threads
        )
        losses = [float(np.asarray(step(*batches()[0]))) for _ in range(40)]
        assert losses[-1] < losses[0] and "conv.weight" not in step.parameters()
        runs.append(step.hash())
    assert runs[0] == runs[1]
    np.testing.assert_array_equal(model.conv.weight.detach().numpy(), before)

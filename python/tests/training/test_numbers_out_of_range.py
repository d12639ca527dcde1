"""Impossible numbers are refused where they are written: bad_option with the value and what is allowed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import TensorSpec, nn, optim

NAN, INF = float("nan"), float("inf")

MISTAKES: dict[str, Callable[[], Any]] = {
    "negative rate": lambda: optim.AdamW(-1),
    "rate that is no number": lambda: optim.SGD(NAN),
    "rate without end": lambda: optim.Adam(INF),
    "rate of another type": lambda: optim.AdamW("fast"),  # type: ignore[arg-type]
    "no rate": lambda: optim.AdamW(None),  # type: ignore[arg-type]
    "truth as a rate": lambda: optim.AdamW(True),
    "negative momentum": lambda: optim.SGD(0.1, momentum=-1),
    "nesterov without momentum": lambda: optim.SGD(0.1, nesterov=True),
    "beta of 1": lambda: optim.Adam(betas=(1.0, 0.9)),
    "three betas": lambda: optim.Adam(betas=(0.9, 0.9, 0.9)),  # type: ignore[arg-type]
    "epsilon of 0": lambda: optim.AdamW(eps=0),
    "negative decay": lambda: optim.AdamW(1e-3, -1),
    "negative peak": lambda: optim.cosine(-1, 10),
    "floor that is no number": lambda: optim.cosine(1, 10, floor=NAN),
    "warm-up longer than the whole": lambda: optim.cosine(1e-3, 10, 20),
    "half a step": lambda: optim.cosine(1e-3, 10.5),  # type: ignore[arg-type]
    "negative end": lambda: optim.linear(1e-3, -1, 10),
    "negative factor": lambda: optim.step(1, -0.5, 10),
    "stair of no step": lambda: optim.step(1, 0.1, 0),
    "negative warm-up": lambda: optim.constant(1e-3, -5),
    "group of a bare pattern": lambda: optim.Group("*.b"),
    "group of a negative factor": lambda: optim.Group(["*"], rate_factor=-1),
    "group of a decay that is no number": lambda: optim.Group(["*"], weight_decay=NAN),
    "scale that shrinks as it grows": lambda: optim.LossScale(growth=0.5),
    "scale that grows as it backs off": lambda: optim.LossScale(backoff=2),
    "scale that never grows": lambda: optim.LossScale(interval=0),
    "momentum of another type": lambda: optim.SGD(0.1, momentum="a"),  # type: ignore[arg-type]
    "no decay": lambda: optim.SGD(0.1, weight_decay=None),  # type: ignore[arg-type]
    "no betas": lambda: optim.Adam(betas=None),  # type: ignore[arg-type]
    "betas of another type": lambda: optim.Adam(betas=("a", "b")),  # type: ignore[arg-type]
    "epsilon of another type": lambda: optim.Adam(eps="a"),  # type: ignore[arg-type]
    "constant of another type": lambda: optim.constant("a"),  # type: ignore[arg-type]
    "steps beyond 63 bits": lambda: optim.cosine(1e-3, 2**70),
    "group of numbers": lambda: optim.Group([1]),  # type: ignore[list-item]
    "factor of another type": lambda: optim.Group(["*"], rate_factor="x"),  # type: ignore[arg-type]
    "scale of another type": lambda: optim.LossScale("a"),  # type: ignore[arg-type]
    "half an interval": lambda: optim.LossScale(interval=1.5),  # type: ignore[arg-type]
    "groups that are none": lambda: optim.SGD(0.1, groups=[1]),  # type: ignore[list-item]
    "negative rows": lambda: aicf.shuffled_rows(-1, 0, 0),
    "more rows than memory": lambda: aicf.shuffled_rows(2**60, 0, 0),
    "rows of another type": lambda: aicf.shuffled_rows(5.0, 0, 0),  # type: ignore[arg-type]
    "negative layer": lambda: nn.Linear(-1, 3),
    "half a layer": lambda: nn.Linear(2.5, 3),  # type: ignore[arg-type]
    "heads that do not divide": lambda: nn.MultiheadAttention(10, 3),
    "key heads that do not divide": lambda: nn.MultiheadAttention(12, 4, 3),
    "groups that do not divide": lambda: nn.Conv2d(3, 4, 3, groups=2),
    "kernel of nothing": lambda: nn.Conv2d(3, 4, 0),
    "momentum of a norm": lambda: nn.BatchNorm2d(3, momentum=5),
    "smoothing beyond all": lambda: nn.CrossEntropyLoss(label_smoothing=2),
    "delta of a loss": lambda: nn.HuberLoss(delta=0),
    "negative size": lambda: TensorSpec((-1, 3)),
    "half a size": lambda: TensorSpec((2.5,)),  # type: ignore[arg-type]
    "text as a shape": lambda: TensorSpec("abc"),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_refused_where_written(what: str) -> None:
    with pytest.raises(aicf.UserError) as caught:
        MISTAKES[what]()
    assert caught.value.name == "bad_option"
    assert caught.value.expected and (caught.value.value or caught.value.actual)


def step_with(**options: Any) -> Any:
    given = {
        "loss": nn.MSELoss(),
        "optimizer": optim.SGD(0.1),
        "inputs": [TensorSpec((2, np.int64(3))), TensorSpec((2, 1))],
    }
    return aicf.compile_train_step(nn.Linear(3, 1), **{**given, **options})


def test_a_size_may_be_numpys() -> None:
    assert float(np.asarray(step_with()(np.ones((2, 3), "f"), np.ones((2, 1), "f")))) >= 0


@pytest.mark.parametrize(
    "options",
    [
        {"optimizer": "adam"},
        {"optimizer": optim.AdamW},
        {"loss": 5},
        {"accumulate": 1.5},
        {"clip_norm": "1"},
        {"seed": 2**70},
        {"precision": None},
        {"loss_scale": 5},
        {"skip_bad_steps": "no"},
        {"gradients": 1},
        {"inputs": [TensorSpec((2, 3), "f32", "x")] * 2},
        {"inputs": []},
        {"threads": "2"},
        {"options": {"opt": "x"}},
        {"options": {"skip_passes": "simplify"}},
        {"dims": "n=3"},
    ],
)
def test_options_of_another_type(options: dict[str, Any]) -> None:
    with pytest.raises(aicf.UserError) as caught:
        step_with(**options)
    assert caught.value.name == "bad_option"


def test_no_replays_prove_nothing() -> None:
    step = step_with()
    for verify in (
        lambda: step.verify(steps=0, inputs=(np.ones((2, 3), "f"), np.ones((2, 1), "f"))),
        lambda: aicf.compile(lambda x: x + 1, TensorSpec((2,))).verify(0),
    ):
        with pytest.raises(aicf.UserError) as caught:
            verify()
        assert caught.value.name == "bad_option"

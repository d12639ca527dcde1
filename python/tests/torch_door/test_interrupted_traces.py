"""An interrupt while a trace begins or ends leaves torch and the model as they were."""

from __future__ import annotations

import gc
import os
import random
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import aicf
import numpy as np
import pytest
import torch
from torch import nn

COUNT = 200 if os.environ.get("AICF_SOAK") == "1" else 10
OURS = str(Path(aicf.__file__).parent / "torch")
OWNERS = (
    torch.Tensor,
    torch._VF,
    torch.autograd.Function,
    nn.functional,
    nn.modules.transformer,
    torch.distributions.Distribution,
)


class Model(nn.Module):
    """Keeps a buffer and has a recurrent layer, so that every context manager has something to change."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 5), nn.LSTM(5, 4))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls = self.calls + 1
        return self.layers(x)[0] + self.calls


def surface(model: nn.Module) -> list[Any]:
    """What a trace changes while it lasts."""
    found: list[Any] = [torch._C._get_mkldnn_enabled(), {n: id(v) for n, v in model.named_buffers()}]
    for module in model.modules():
        found += [
            module.training,
            len(module._forward_hooks),
            len(module._forward_pre_hooks),
            sorted(vars(module)),
        ]
    for owner in OWNERS:
        found.append({n: id(v) for n, v in vars(owner).items() if callable(v) or isinstance(v, property)})
    return found


def interrupting(at: int) -> tuple[Callable[..., Any], list[int]]:
    """A trace function that raises SIGINT at the line of this number of those that enter or leave a context
    manager of ours, and the count of those lines so far.
    """
    count = [0]

    def line(frame: FrameType, event: str, _: Any) -> Any:
        if event == "line":
            count[0] += 1
            if count[0] == at:
                signal.raise_signal(signal.SIGINT)
        return line

    def call(frame: FrameType, _event: str, _: Any) -> Any:
        if not frame.f_code.co_filename.startswith(OURS):
            return None
        outer: FrameType | None = frame
        while outer is not None and outer.f_code.co_name not in ("__enter__", "__exit__"):
            outer = outer.f_back
        return None if outer is None else line

    return call, count


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_trace_leaves_torch_as_it_was() -> None:
    model, x = Model().eval(), torch.randn(3, 2, 6)
    right = np.asarray(aicf.compile(model, (x,))(x))

    def compile_at(at: int) -> int:
        call, count = interrupting(at)
        before = surface(model)
        sys.settrace(call)
        try:
            aicf.compile(model, (x,))
            sys.settrace(None)
            time.sleep(0.1)
        except KeyboardInterrupt:
            assert at > 0
        else:
            assert at == 0, "the interrupt was lost"
        finally:
            sys.settrace(None)
        gc.collect()
        assert surface(model) == before, f"line {at}"
        return count[0]

    lines = compile_at(0)
    assert lines > 20
    for at in random.Random(1).sample(range(1, lines), COUNT):
        compile_at(at)
    assert np.array_equal(aicf.compile(model, (x,))(x), right)


@pytest.mark.usefixtures("interruptible")
def test_a_caller_that_enters_a_context_of_its_own_is_interrupted_at_once() -> None:
    done = []

    class Caller:
        def __enter__(self) -> None:
            aicf.trace(self.model, [aicf.TensorSpec((2,))])

        def __exit__(self, *_: object) -> None: ...

        def model(self, x: Any) -> Any:
            signal.raise_signal(signal.SIGINT)
            done.append(x)
            return x

    with pytest.raises(KeyboardInterrupt), Caller():
        pass
    assert not done
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

"""Custom ops whose GPU side is a Triton kernel, with a function for the CPU beside it."""

from __future__ import annotations

import aicf
import numpy as np
import triton
import triton.language as tl

__all__ = ["row_softmax", "scale_shift"]


@triton.jit
def _scale_shift(x, y, n, shift, alpha, BLOCK: tl.constexpr):  # noqa: N803
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, value * alpha.to(tl.float32) + shift.to(tl.float32), mask=at < n)


def _scale_shift_cpu(x: np.ndarray, y: np.ndarray, *, shift: int, alpha: float) -> None:
    y[...] = np.float32(alpha) * x + np.float32(shift)


# alpha x + shift.
scale_shift = aicf.register_op(
    "tritontest::scale_shift",
    results=lambda x, *, shift, alpha: x,
    attributes={"shift": 0, "alpha": 1.0},
    cpu=_scale_shift_cpu,
    cuda=aicf.TritonKernel(_scale_shift, lambda y: [-(-y.shape[0] * y.shape[1] // 256)], {"BLOCK": 256}),
)


@triton.jit
def _row_softmax(x, y, rows, columns, WIDTH: tl.constexpr):  # noqa: N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, WIDTH)
    value = tl.load(x + row * columns + column, mask=column < columns, other=float("-inf"))
    power = tl.exp(value - tl.max(value, 0))
    tl.store(y + row * columns + column, power / tl.sum(power, 0), mask=column < columns)


def _row_softmax_cpu(x: np.ndarray, y: np.ndarray) -> None:
    power = np.exp(x - x.max(-1, keepdims=True))
    y[...] = power / power.sum(-1, keepdims=True)


# Softmax of rows of up to 512 elements; its reductions pass through shared memory.
row_softmax = aicf.register_op(
    "tritontest::row_softmax",
    results=lambda x: x,
    cpu=_row_softmax_cpu,
    cuda=aicf.TritonKernel(
        _row_softmax,
        lambda y: [y.shape[0]],
        {"WIDTH": 512},
        params=lambda inputs, outputs: list(inputs[0].shape),
        options={"num_warps": 8},
    ),
)

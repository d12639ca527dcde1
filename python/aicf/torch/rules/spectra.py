"""Jacobi's rotations as a scan over rounds of disjoint pairs of columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..control_flow import scan
from .table import rule

if TYPE_CHECKING:
    from ..lower import Lowering

__all__: list[str] = []

_EPSILON = 2.0**-52


def _partners(n: int) -> np.ndarray:
    """For each round of a sweep, with whom each column meets, as in a tournament of n; itself if left out."""
    players = list(range(n + n % 2))
    rounds = []
    for _ in range(len(players) - 1):
        row = list(range(n))
        for a, b in zip(players, reversed(players), strict=True):
            if a < n and b < n:
                row[a] = b
        rounds.append(row)
        players = [players[0], players[-1], *players[1:-1]]
    return np.array(rounds, dtype=np.int64)


def _rotation(gram: SymTensor, partner: SymTensor) -> SymTensor:
    """J [..., n, n] in f64 so that J^T G J is 0 where each column meets its partner."""
    n, graph, dtype = gram.shape[-1], gram.graph, gram.dtype
    own, other = ops.iota(shape=[n], axis=0, dtype="i64"), partner
    eye = ops.cast(ops.eq(own.expand_dims(1), own), dtype=dtype)
    meets = ops.cast(ops.eq(other.expand_dims(1), own), dtype=dtype)
    diagonal = ops.reduce_sum(gram * eye, axes=[gram.ndim - 1])
    theirs = ops.reduce_sum(meets * diagonal.expand_dims(-2), axes=[gram.ndim - 1])
    shared = ops.reduce_sum(gram * meets, axes=[gram.ndim - 1])
    one, zero = graph.scalar(1.0, dtype), graph.scalar(0.0, dtype)
    # Columns at right angles up to rounding stay as they are, so that nothing changes after convergence.
    bound = ops.sqrt(ops.abs(diagonal) * ops.abs(theirs)) * _EPSILON
    still = ops.bit_or(ops.le(ops.abs(shared), bound), ops.eq(own, other))
    tau = (theirs - diagonal) / (ops.select(still, one, shared) * 2.0)
    # One of a pair turns the other way, also where both are as long.
    first = ops.select(ops.lt(own, other), one, graph.scalar(-1.0, dtype))
    sign = ops.select(ops.eq(tau, zero), first, ops.sign(tau))
    tangent = ops.select(still, zero, sign / (ops.abs(tau) + ops.sqrt(tau * tau + 1.0)))
    cosine = 1.0 / ops.sqrt(tangent * tangent + 1.0)
    return eye * cosine.expand_dims(-1) + meets * (tangent * cosine).expand_dims(-1)


@rule("aicf.jacobi")
def _jacobi(c: Call, x: Any, symmetric: bool, sweeps: int) -> list[SymTensor]:
    n = x.shape[-1]
    v = ops.broadcast_to(c.graph.constant(np.eye(n)), shape=c.shape_of(1))
    if n < 2 or 0 in x.shape:
        return [x, v]

    def step(_: Lowering, carried: Sequence[Any], rows: Sequence[Any]) -> Any:
        now, total = carried
        gram = now if symmetric else ops.matmul(now, now, transpose_x=True)
        j = _rotation(gram, rows[0])
        now = ops.matmul(now, j)
        return [ops.matmul(j, now, transpose_x=True) if symmetric else now, ops.matmul(total, j)], []

    rounds = c.graph.constant(np.tile(_partners(n), (sweeps, 1)))
    return scan(c.lowering, step, [x, v], [rounds], [], unroll=False)

"""LSTM, GRU and plain recurrent layers: the products with the inputs of all steps at once, then a scan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..control_flow import scan
from .table import rule

__all__: list[str] = []

# (x's part of the gates, the state's part, state) → next state, its output first.
_Cell = Callable[[SymTensor, SymTensor, Sequence[SymTensor]], list[SymTensor]]


def _split(gates: SymTensor, count: int) -> list[SymTensor]:
    width = gates.shape[-1] // count
    return [gates[..., i * width : (i + 1) * width] for i in range(count)]


def _lstm(x: SymTensor, h: SymTensor, state: Sequence[SymTensor]) -> list[SymTensor]:
    i, f, g, o = _split(x + h, 4)
    c = ops.sigmoid(f) * state[1] + ops.sigmoid(i) * ops.tanh(g)
    return [ops.sigmoid(o) * ops.tanh(c), c]


def _gru(x: SymTensor, h: SymTensor, state: Sequence[SymTensor]) -> list[SymTensor]:
    (xr, xz, xn), (hr, hz, hn) = _split(x, 3), _split(h, 3)
    n = ops.tanh(xn + ops.sigmoid(xr + hr) * hn)
    return [n + ops.sigmoid(xz + hz) * (state[0] - n)]


def _plain(function: Callable[[SymTensor], SymTensor]) -> _Cell:
    return lambda x, h, state: [function(x + h)]


_CELLS: dict[str, _Cell] = {
    "lstm": _lstm,
    "gru": _gru,
    "rnn_tanh": _plain(ops.tanh),
    "rnn_relu": _plain(ops.relu),
}


def _direction(
    c: Call, cell: _Cell, x: SymTensor, state: Sequence[SymTensor], weights: Sequence[Any], backward: bool
) -> list[SymTensor]:
    """Outputs [T, B, H] and the last state, over x [T, B, I]."""
    w_x, w_h, b_x, b_h, projection = weights
    if backward:
        x = ops.reverse(x, axes=[0])
    given = ops.linear(x, w_x, b_x, transpose_w=True)

    def step(_: Any, carried: list[Any], rows: list[Any]) -> tuple[list[SymTensor], list[SymTensor]]:
        *own, w, b, p = carried
        following = cell(rows[0], ops.linear(own[0], w, b, transpose_w=True), own)
        if p is not None:
            following[0] = ops.matmul(following[0], p, transpose_y=True)
        return following, following[:1]

    *last, outputs = scan(c.lowering, step, state, [given], [w_h, b_h, projection])
    return [ops.reverse(outputs, axes=[0]) if backward else outputs, *last]


@rule("aicf.recurrent")
def _recurrent(
    c: Call,
    mode: str,
    x: Any,
    state: Any,
    weights: Any,
    biases: Any,
    layers: Any,
    both: Any,
    batch_first: Any,
) -> list[SymTensor]:
    single = x.ndim == 2  # one sequence without a batch
    if single:
        x, state = x.expand_dims(1), [s.expand_dims(1) for s in state]
    elif batch_first:
        x = x.swapaxes(0, 1)
    directions = 2 if both else 1
    count = len(weights) // (layers * directions)
    finals: list[list[SymTensor]] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            at = layer * directions + direction
            own = list(weights[at * count : (at + 1) * count])
            bias = own[2:4] if biases else [None, None]
            projection = own[-1] if count in (3, 5) else None
            start = [s[at] for s in state]
            made, *last = _direction(
                c, _CELLS[mode], x, start, [*own[:2], *bias, projection], backward=direction == 1
            )
            outputs.append(made)
            finals.append(last)
        x = outputs[0] if directions == 1 else ops.concat(outputs, axis=-1)
    columns = zip(*finals, strict=True)
    last = [ops.concat([h.expand_dims(0) for h in column], axis=0) for column in columns]
    if single:
        return [x.squeeze(1), *(s.squeeze(1) for s in last)]
    return [x.swapaxes(0, 1) if batch_first else x, *last]

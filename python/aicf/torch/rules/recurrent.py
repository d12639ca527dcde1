"""LSTM, GRU and plain recurrent layers: products with the inputs of all steps, then one op a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from ..control_flow import scan
from .table import rule

__all__: list[str] = []

_Tensors = Sequence[SymTensor]


def _projected_lstm(
    c: Call, x: SymTensor, state: _Tensors, weights: _Tensors, backward: bool
) -> list[SymTensor]:
    """Outputs [T, B, P] and the last state of one direction whose h is projected after every step."""
    w_x, w_h, *biases, projection = weights
    b_x, b_h = biases or (None, None)
    if backward:
        x = ops.reverse(x, axes=[0])
    given = ops.linear(x, w_x, b_x, transpose_w=True)

    def step(_: Any, carried: list[Any], rows: list[Any]) -> tuple[list[SymTensor], list[SymTensor]]:
        h, cell, w, b, p = carried
        gates = rows[0] + ops.linear(h, w, b, transpose_w=True)
        width = gates.shape[-1] // 4
        i, f, g, o = (gates[..., k * width : (k + 1) * width] for k in range(4))
        cell = ops.sigmoid(f) * cell + ops.sigmoid(i) * ops.tanh(g)
        h = ops.matmul(ops.sigmoid(o) * ops.tanh(cell), p, transpose_y=True)
        return [h, cell], [h]

    *last, outputs = scan(c.lowering, step, state, [given], [w_h, b_h, projection])
    return [ops.reverse(outputs, axes=[0]) if backward else outputs, *last]


def _stacked(parts: _Tensors) -> SymTensor:
    rows = [part.expand_dims(0) for part in parts]
    return rows[0] if len(rows) == 1 else ops.concat(rows, axis=0)


def _joined(parts: _Tensors, axis: int) -> SymTensor:
    return parts[0] if len(parts) == 1 else ops.concat(parts, axis=axis)


def _layer(
    mode: str, x: SymTensor, state: _Tensors, weights: Sequence[_Tensors], training: bool
) -> list[SymTensor]:
    """Outputs [T, B, D H] and the last states [D, B, H] of a layer's directions."""
    w_x, w_h, *biases = zip(*weights, strict=True)
    b_x, b_h = biases or (None, None)
    given = ops.linear(x, _joined(w_x, 0), _joined(b_x, 0) if b_x else None, transpose_w=True)
    h, *cell = state
    y, cells, _ = ops.recurrent(
        given,
        h,
        _stacked(w_h),
        _stacked(b_h) if b_h else None,
        *cell,
        cell=mode,
        direction="bidirectional" if len(weights) == 2 else "forward",
        keep=training,
    )
    return [y, *(_last(steps, h.shape[-1], len(weights)) for steps in [y, cells][: len(state)])]


def _last(steps: SymTensor, width: Any, directions: int) -> SymTensor:
    """Of [T, B, D H] what each direction ends with, [D, B, H]: the second one's at the first step."""
    return _stacked([steps[-1 if d == 0 else 0, :, d * width : (d + 1) * width] for d in range(directions)])


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
    training: Any,
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
        first = layer * directions
        own = [list(weights[at * count : (at + 1) * count]) for at in range(first, first + directions)]
        if count in (3, 5):
            made = [
                _projected_lstm(c, x, [s[first + d] for s in state], own[d], backward=d == 1)
                for d in range(directions)
            ]
            outputs, *last = zip(*made, strict=True)
            x = _joined(outputs, -1)
            finals.append([_stacked(parts) for parts in last])
        else:
            x, *ended = _layer(mode, x, [s[first : first + directions] for s in state], own, training)
            finals.append(ended)
    last_states = [_joined(column, 0) for column in zip(*finals, strict=True)]
    if single:
        return [x.squeeze(1), *(s.squeeze(1) for s in last_states)]
    return [x.swapaxes(0, 1) if batch_first else x, *last_states]

"""torch's control flow (cond, while_loop, scan, map, associative_scan) as ops that own their bodies.

A body is a graph of its own whose inputs stand for all tensors that it uses. A scan of a few steps becomes
its steps, which can be fused; a longer one, or one over an axis whose size is known at the call only, stays a
loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import ops
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import Graph, tracing

if TYPE_CHECKING:
    from .lower import Lowering

__all__ = ["CONTROL_FLOW", "MISSING", "Incomplete", "Step", "runs_loops", "scan"]

# Steps of a scan, at most, that become nodes of the graph around it: they are fused, their weights packed.
_UNROLLED = 128
# The same where no loops run: as many as one may want.
_UNROLLED_WITHOUT_LOOPS = 512
# The result of a node that a survey could not stand in for; what depends on it is not looked at.
MISSING = object()


class Incomplete(Exception):  # noqa: N818
    """A survey has no stand-in for a result of a body."""


# The lowering of a body, next carried values and kept values, rows → next carried values, rows of results.
Step = Callable[["Lowering", list[Any], list[Any]], tuple[Sequence[Any], Sequence[Any]]]


def runs_loops(device: str, options: Mapping[str, Any]) -> bool:
    """Whether what is compiled for runs loops."""
    return device == "cpu" and options.get("target") in (None, "", "cpu")


class _Body:
    """A body under construction, with one input for each tensor given to `stand_ins`."""

    def __init__(self, lowering: Lowering, name: str = "body") -> None:
        self.graph = Graph(name)
        self.lowering = lowering.inside(self.graph)
        self._inputs = 0

    def stand_ins(self, values: Sequence[Any], rows: bool = False) -> list[Any]:
        """Inputs of the types of these tensors, or of their rows; numbers and sizes are what they are."""
        return [self._stand_in(value, rows) if isinstance(value, SymTensor) else value for value in values]

    def _stand_in(self, value: SymTensor, row: bool) -> SymTensor:
        self._inputs += 1
        return self.graph.input(f"in{self._inputs}", value.shape[1:] if row else value.shape, value.dtype)

    def finish(self, outputs: Sequence[Any]) -> Graph:
        for index, value in enumerate(outputs):
            self.graph.output(value, f"out{index}")
        return self.graph


def _tensors(values: Sequence[Any]) -> list[SymTensor]:
    return [value for value in values if isinstance(value, SymTensor)]


def _filled(values: Sequence[Any], tensors: Sequence[SymTensor]) -> list[Any]:
    """The values with other tensors in the places of theirs."""
    left: Iterator[SymTensor] = iter(tensors)
    return [next(left) if isinstance(value, SymTensor) else value for value in values]


def cond(lowering: Lowering, condition: Any, true: Any, false: Any, operands: Sequence[Any]) -> Any:
    """Branches that cannot fail are computed both where that is cheaper; that is for a pass to say."""
    if not isinstance(condition, SymTensor):
        return lowering.run_inner(true if condition else false, operands)
    condition = ops.reshape(condition, shape=[])
    captures = _tensors(operands) or [condition]
    bodies = []
    results: list[Any] = []
    for module in (true, false):
        body = _Body(lowering, "branch")
        inputs = body.stand_ins(captures)
        given = _filled(operands, inputs) if _tensors(operands) else list(operands)
        results = body.lowering.run_inner(module, given)
        bodies.append(body.finish(_tensors(results)))
    return _filled(results, lowering.graph.node("if_else", [condition, *captures], {}, bodies))


def while_loop(
    lowering: Lowering, test: Any, step: Any, carried: Sequence[Any], kept: Sequence[Any], **_: Any
) -> Any:
    carried = [lowering.graph.lift(value) for value in carried]
    operands = [*carried, *_tensors(kept)]
    bodies = []
    for module, name in ((test, "test"), (step, "body")):
        body = _Body(lowering, name)
        inputs = body.stand_ins(operands)
        own = _filled(kept, inputs[len(carried) :])
        results = body.lowering.run_inner(module, [*inputs[: len(carried)], *own])
        if module is test:
            results = [ops.reshape(body.graph.lift(results[0]), shape=[])]
        else:
            results += _tensors(own)
        bodies.append(body.finish(results))
    return list(lowering.graph.node("while_loop", operands, {}, bodies)[: len(carried)])


def scan(
    lowering: Lowering,
    step: Step,
    carried: Sequence[Any],
    rows: Sequence[SymTensor],
    kept: Sequence[Any],
    unroll: bool = True,
) -> Any:
    """Carried values at the end, and the rows of results stacked. `unroll` says whether few steps are better
    unrolled.

    `step` takes the carried values with the kept ones behind them, and one row of each of `rows`.
    """
    length = rows[0].shape[0]
    if length == 0:
        raise make_error("unsupported_op", "a scan over no steps", remedy="leave the call out")
    most = (_UNROLLED if unroll else 0) if lowering.loops else _UNROLLED_WITHOUT_LOOPS
    if isinstance(length, int) and length <= most:
        return _unrolled(lowering, step, carried, rows, kept)
    body = _Body(lowering)
    initial = [*carried, *kept]
    state = body.stand_ins(initial)
    with tracing(body.graph):
        following, stacked = step(body.lowering, state, body.stand_ins(rows, rows=True))
    own = _tensors(state[len(carried) :])
    graph = body.finish([*following, *own, *stacked])
    attrs = {"carried": len(carried) + len(own), "reverse": False}
    results = lowering.graph.node("scan", [*_tensors(initial), *rows], attrs, [graph])
    return [*results[: len(carried)], *results[len(carried) + len(own) :]]


def _unrolled(
    lowering: Lowering, step: Step, carried: Sequence[Any], rows: Sequence[SymTensor], kept: Sequence[Any]
) -> Any:
    stacks: list[Sequence[Any]] = []
    for at in range(rows[0].shape[0]):
        carried, made = step(lowering, [*carried, *kept], [row[at] for row in rows])
        stacks.append(made)
    columns = zip(*stacks, strict=True)
    return [*carried, *(ops.concat([x.expand_dims(0) for x in column], axis=0) for column in columns)]


def _scan(
    lowering: Lowering, module: Any, carried: Sequence[Any], rows: Sequence[Any], kept: Sequence[Any]
) -> Any:
    count = len(carried)

    def step(inner: Lowering, state: list[Any], row: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        results = inner.run_inner(module, [*state[:count], *row, *state[count:]])
        return results[:count], results[count:]

    return scan(lowering, step, carried, rows, kept)


def _map(lowering: Lowering, module: Any, rows: Sequence[Any], kept: Sequence[Any]) -> Any:
    return _scan(lowering, module, [], rows, kept)


def _associative_scan(lowering: Lowering, module: Any, rows: Sequence[Any], kept: Sequence[Any]) -> Any:
    """y[0] = x[0], y[t] = f(y[t - 1], x[t])."""
    first = [x[0] for x in rows]
    if rows[0].shape[0] == 1:
        return list(rows)
    count = len(rows)

    def step(inner: Lowering, state: list[Any], row: list[Any]) -> tuple[Sequence[Any], Sequence[Any]]:
        results = inner.run_inner(module, [*state[:count], *row, *state[count:]])
        return results, results

    results = scan(lowering, step, first, [x[1:] for x in rows], kept)
    pairs = zip(first, results[count:], strict=True)
    return [ops.concat([one.expand_dims(0), rest], axis=0) for one, rest in pairs]


CONTROL_FLOW: dict[str, Callable[..., Any]] = {
    "cond": cond,
    "while_loop": while_loop,
    "scan": _scan,
    "map_impl": _map,
    "associative_scan": _associative_scan,
}

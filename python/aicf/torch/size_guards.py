"""What torch asks about sizes while exporting and cannot answer for a whole range.

torch refuses a model for such a question, even one that has one answer, as whether 1 % (96 (w // 4)) is 0.
Exported once more, the questions are asserts in the program, and hold or not at each size of the ranges.
"""

from __future__ import annotations

import inspect
import itertools
import math
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.value_ranges import bound_sympy

__all__ = ["export_over_ranges"]

_LATER = "prefer_deferred_runtime_asserts_over_guards"
_MOST = 1 << 14  # sizes for which an assert is tried


def export_over_ranges(model: Any, args: Any, kwargs: Any, shapes: Any) -> ExportedProgram:
    """torch.export's program, which holds at every size of the ranges; its error if there is none."""
    try:
        return torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False)
    except Exception as error:  # torch has several types for it
        known = inspect.signature(torch.export.export).parameters
        if shapes is None or _LATER not in known or "Constraints violated" not in str(error):
            raise
        refusal = error
    options: Any = {_LATER: True}
    program = torch.export.export(model, args, kwargs, dynamic_shapes=shapes, strict=False, **options)
    if not all(_holds(node, program) for node in program.graph.nodes):
        raise refusal
    return program


def _holds(node: torch.fx.Node, program: ExportedProgram) -> bool:
    """Whether an assert about sizes is true at all of them; others are about data."""
    if node.target is not torch.ops.aten._assert_scalar.default or not isinstance(
        node.args[0], torch.fx.Node
    ):
        return True
    condition = node.args[0].meta["val"]
    if not isinstance(condition, torch.SymBool):
        return bool(condition)
    expr = condition.node.expr
    ranges = {symbol: program.range_constraints.get(symbol) for symbol in expr.free_symbols}
    if any(str(symbol).startswith(("u", "zuf")) for symbol in ranges):
        return True
    if any(span is None or not span.upper.is_Integer for span in ranges.values()):
        return False
    if bound_sympy(expr, ranges).lower == True:  # noqa: E712 (sympy's own true)
        return True
    spans = [range(int(span.lower), int(span.upper) + 1) for span in ranges.values()]
    if math.prod(map(len, spans)) > _MOST:
        return False
    return all(
        sympy_interp(PythonReferenceAnalysis, dict(zip(ranges, sizes, strict=True)), expr)
        for sizes in itertools.product(*spans)
    )

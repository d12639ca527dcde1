"""The one table from torch op to a function of torch ops that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...errors import make_error

__all__ = ["DECOMPOSITIONS", "LONGEST_UNROLLED", "decomposes", "unrolled"]

DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {}

# A factorisation becomes a few nodes for each row or column.
LONGEST_UNROLLED = 64


def decomposes(*ops: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def add(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in ops:
            DECOMPOSITIONS[op] = function
        return function

    return add


def unrolled(size: Any, op: str) -> range:
    """The steps of a factorisation, one for each row or column."""
    if not isinstance(size, int) or size > LONGEST_UNROLLED:
        raise make_error(
            "unsupported_op",
            f"{op} of a matrix this large is not supported: AICF computes it in one step for each row",
            op=op,
            expected=f"a fixed size of at most {LONGEST_UNROLLED}",
            actual=str(size),
            remedy="factorise large matrices outside the model",
        )
    return range(size)

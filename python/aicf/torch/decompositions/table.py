"""The one table from torch op to a function of torch ops that computes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...errors import make_error

__all__ = ["DECOMPOSITIONS", "LONGEST_UNROLLED", "decomposes", "foreach", "unrolled"]

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


def foreach(op: Any) -> Callable[..., Any] | None:
    """torch._foreach_add and its like: the op of one tensor for each of a list."""
    name = getattr(op, "_opname", "")
    single = getattr(torch.ops.aten, name.removeprefix("_foreach_"), None)
    if not name.startswith("_foreach_") or name.endswith("_"):
        return None
    if name == "_foreach_norm":
        single = torch.linalg.vector_norm
    if single is None:
        return None

    def run(*args: Any, **more: Any) -> list[Any]:
        if name in ("_foreach_addcmul", "_foreach_addcdiv") and len(args) == 4:
            *args, more["value"] = args
        count = next(len(a) for a in args if isinstance(a, (list, tuple)))

        def of(argument: Any, i: int) -> Any:
            return argument[i] if isinstance(argument, (list, tuple)) else argument

        return [
            single(*(of(a, i) for a in args), **{key: of(a, i) for key, a in more.items()})
            for i in range(count)
        ]

    return run

"""Branches on a random number that compare it with a bound outside its range.

Models with layers that are dropped ask `torch.rand([]) < self.layerdrop` even where that share is 0. A trace
cannot follow a branch on a drawn number, but of this one the outcome is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

__all__ = ["known_draws"]

# What a comparison of a number from [0, 1) with a bound gives where it is known: below 0 or at it, from 1 on.
_ALWAYS: dict[Callable[..., Any], tuple[bool, bool]] = {
    **dict.fromkeys((torch.lt, torch.Tensor.lt, torch.Tensor.__lt__), (False, True)),
    **dict.fromkeys((torch.ge, torch.Tensor.ge, torch.Tensor.__ge__), (True, False)),
}


class _Draws(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self._draws: list[torch.Tensor] = []  # single numbers from [0, 1)

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        known = _ALWAYS.get(func)
        if known is not None and len(args) == 2 and not kwargs and any(args[0] is x for x in self._draws):
            bound = args[1]
            if isinstance(bound, (int, float)) and not 0 < bound < 1:
                return torch.tensor(known[0] if bound <= 0 else known[1])
        result = func(*args, **(kwargs or {}))
        if func is torch.rand and isinstance(result, torch.Tensor) and result.dim() == 0:
            self._draws.append(result)
        return result


@contextmanager
def known_draws() -> Iterator[None]:
    """Such comparisons are constants."""
    with _Draws():
        yield

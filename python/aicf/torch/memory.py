"""Memory that torch could not get, told from what it says of a model."""

from __future__ import annotations

from .._aicf import met_memory_limit
from ..errors import make_error

__all__ = ["raise_if_memory_ran_out"]

_WORDS = ("can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc")


def raise_if_memory_ran_out(error: BaseException) -> None:
    """out_of_memory if the error, or what it came of, tells of it; where the process came near its limit
    torch and Python say whatever they meet then."""
    causes: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in causes:
        causes.append(at)
        at = at.__cause__ or at.__context__
    told = any(isinstance(c, MemoryError) or any(w in str(c).lower() for w in _WORDS) for c in causes)
    if told or met_memory_limit():
        raise make_error(
            "out_of_memory",
            "torch could not get the memory to trace the model",
            actual=f"{type(error).__name__}: {error}"[:200],
            remedy="free memory, or raise the limit of the process (ulimit -v, the container's)",
        ) from error

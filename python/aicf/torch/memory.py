"""Memory that torch could not get, told from what it says of a model."""

from __future__ import annotations

import resource
from pathlib import Path

from ..errors import make_error

__all__ = ["raise_if_memory_ran_out"]

_WORDS = ("can't allocate memory", "cannot allocate memory", "not enough memory", "std::bad_alloc")
_NEAR = 64 << 20  # bytes to the limit, of which torch may have asked more at once


def raise_if_memory_ran_out(error: BaseException) -> None:
    """out_of_memory if the error, or what it came of, tells of it; where the process came near its limit
    torch and Python say whatever they meet then."""
    causes: list[BaseException] = []
    at: BaseException | None = error
    while at is not None and at not in causes:
        causes.append(at)
        at = at.__cause__ or at.__context__
    told = any(isinstance(c, MemoryError) or any(w in str(c).lower() for w in _WORDS) for c in causes)
    if told or _met_limit():
        raise make_error(
            "out_of_memory",
            "torch could not get the memory to trace the model",
            actual=f"{type(error).__name__}: {error}"[:200],
            remedy="free memory, or raise the limit of the process (ulimit -v, the container's)",
        ) from error


def _met_limit() -> bool:
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit == resource.RLIM_INFINITY:
        return False
    status = Path("/proc/self/status").read_text()
    most = next(line.split()[1] for line in status.splitlines() if line.startswith("VmPeak:"))
    return (int(most) << 10) + _NEAR > limit

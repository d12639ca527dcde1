"""Special functions, by series or by identities."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from .table import rule

__all__: list[str] = []


@rule("erfc", "prims.erfc", "special_erfc")
def _erfc(c: Call, x: Any) -> SymTensor:
    return ops.sub(c.number(1, c.dtype), ops.erf(c.cast(x)))

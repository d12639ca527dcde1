"""Casts, and ops that are copies where there is no memory."""

from __future__ import annotations

from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call
from .table import rule

__all__: list[str] = []


@rule(
    "to.dtype",
    "to.dtype_layout",
    "to.device",
    "to.other",
    "_to_copy",
    "type_as",
    "prims.convert_element_type",
    "prims.device_put",
    "_to_cpu",
)
def _to(c: Call, x: Any, *_: Any, **__: Any) -> SymTensor:
    return c.cast(x)


@rule(
    "clone",
    "detach",
    "alias",
    "contiguous",
    "lift_fresh",
    "lift_fresh_copy",
    "lift",
    "positive",
    "resolve_conj",
    "resolve_neg",
    "detach_copy",
    "alias_copy",
    "prims.clone",
    "prims.view_of",
    "prims.copy_strided",
    "real",
    "conj",
    "_conj",
    "_conj_physical",
    "conj_physical",
)
def _same(c: Call, x: Any, *_: Any, **__: Any) -> SymTensor:
    return x


@rule("copy")
def _copy(c: Call, x: Any, source: Any, non_blocking: bool = False) -> SymTensor:
    return ops.broadcast_to(c.cast(source), shape=c.shape)

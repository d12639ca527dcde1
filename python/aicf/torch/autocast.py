"""What torch.autocast does to the operands of a node."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import ops
from ..symtensor import SymTensor
from .types import dtype_name, is_float

__all__ = ["autocast"]

_CASTS = frozenset("to _to_copy type_as to_dtype convert_element_type".split())


def autocast(ours: Any, fakes: Any, node: torch.fx.Node, out: Any) -> tuple[Any, Any]:
    """Operands of a node inside torch.autocast, in the dtype in which torch computes it: its result's."""
    first = out[0] if isinstance(out, (tuple, list)) and out else out
    cast = getattr(node.target, "_opname", "") in _CASTS
    if cast or not isinstance(first, torch.Tensor) or not first.dtype.is_floating_point:
        return ours, fakes
    dtype = dtype_name(first.dtype)

    def narrow(x: Any) -> Any:
        known = isinstance(x, SymTensor) and is_float(x.dtype) and x.dtype != dtype
        return ops.cast(x, dtype=dtype) if known else x

    def fake(x: Any) -> Any:
        return x.to(first.dtype) if isinstance(x, torch.Tensor) and x.dtype.is_floating_point else x

    return torch.fx.node.map_aggregate(ours, narrow), pytree.tree_map(fake, fakes)

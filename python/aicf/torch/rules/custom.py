"""Ops of the user's own: torch.ops.my.op is the op registered as "my::op" (aicf.register_op)."""

from __future__ import annotations

from typing import Any

import torch

from ...custom import registered_op
from ...symtensor import SymTensor
from ..call import Call
from .table import Rule

__all__ = ["custom_rule"]


def custom_rule(target: Any) -> Rule | None:
    """The rule of a registered op; its attributes have the names of the torch op's arguments."""
    if not isinstance(target, torch._ops.OpOverload):
        return None
    op = registered_op(target._schema.name)
    if op is None:
        return None
    names = [argument.name for argument in target._schema.arguments]

    def rule(_call: Call, *args: Any, **kwargs: Any) -> Any:
        given = dict(zip(names, args, strict=False)) | kwargs
        operands = [value for value in given.values() if isinstance(value, SymTensor)]
        numbers = {name: value for name, value in given.items() if not isinstance(value, SymTensor)}
        return op(*operands, **numbers)

    return rule

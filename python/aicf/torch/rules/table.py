"""The one table from torch op to ours. A family file adds its rules with `@rule`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

__all__ = ["OPMATH", "RULES", "Opmath", "Rule", "rule"]

Rule = Callable[..., Any]
# When a rule sees operands of 16 bits as f32, in which torch computes, and its results are rounded once:
# where a number beside them is none of theirs ("numbers"), or always, as it makes several ops ("whole").
Opmath = Literal["numbers", "whole"]

# By the op's full name with its overload: "aten.add.Tensor".
RULES: dict[str, Rule] = {}
OPMATH: dict[str, Opmath] = {}


def rule(*names: str, opmath: Opmath | None = None) -> Callable[[Rule], Rule]:
    """Adds a rule for these ops; a name without a namespace is an ATen op, one without an overload its
    default. One of three parts is whole.

    A rule takes a Call and the node's arguments, tensors as SymTensors and sizes as ints or Dims, and gives
    the node's result. It raises Decompose for arguments that torch shall decompose.
    """

    def add(function: Rule) -> Rule:
        for name in names:
            RULES[full_name(name)] = function
            if opmath is not None:
                OPMATH[full_name(name)] = opmath
        return function

    return add


def full_name(name: str) -> str:
    parts = name.split(".")
    if len(parts) < 3 and parts[0] not in ("aten", "prims", "aicf"):
        parts.insert(0, "aten")
    return ".".join(parts if len(parts) == 3 else [*parts, "default"])

"""ATen ops in terms of ours, by family; one table, `RULES`."""

from __future__ import annotations

from . import (
    attention,
    backward,
    create,
    index,
    linalg,
    nn,
    order,
    pointwise,
    random,
    recurrent,
    reduce,
    search,
    shape,
    special,
    spectra,
)
from .table import RULES, Rule, rule

__all__ = [
    "RULES",
    "Rule",
    "attention",
    "backward",
    "create",
    "index",
    "linalg",
    "nn",
    "order",
    "pointwise",
    "random",
    "recurrent",
    "reduce",
    "rule",
    "search",
    "shape",
    "special",
    "spectra",
]

"""ATen ops in terms of ours, by family; one table, `RULES`."""

from __future__ import annotations

from . import (
    activations,
    attention,
    backward,
    conversions,
    convolutions,
    create,
    index,
    linalg,
    logic,
    norms,
    order,
    pointwise,
    pools,
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
    "activations",
    "attention",
    "backward",
    "conversions",
    "convolutions",
    "create",
    "index",
    "linalg",
    "logic",
    "norms",
    "order",
    "pointwise",
    "pools",
    "random",
    "recurrent",
    "reduce",
    "rule",
    "search",
    "shape",
    "special",
    "spectra",
]

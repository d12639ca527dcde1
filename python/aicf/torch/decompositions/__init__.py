"""Decompositions that torch lacks, written with torch's own functions; one table, `DECOMPOSITIONS`."""

from __future__ import annotations

from . import bags, linalg, quantize, sampling, triangular
from .table import DECOMPOSITIONS

__all__ = ["DECOMPOSITIONS", "bags", "linalg", "quantize", "sampling", "triangular"]

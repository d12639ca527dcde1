"""Decompositions that torch lacks, written with torch's own functions; one table, `DECOMPOSITIONS`."""

from __future__ import annotations

from . import bags, linalg, losses, pools, products, quantize, sampling, spectra, triangular
from .table import DECOMPOSITIONS, foreach

__all__ = [
    "DECOMPOSITIONS",
    "bags",
    "foreach",
    "linalg",
    "losses",
    "pools",
    "products",
    "quantize",
    "sampling",
    "spectra",
    "triangular",
]

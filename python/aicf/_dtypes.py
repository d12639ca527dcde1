"""Element types by class, under our names (src/base/dtypes.def)."""

from __future__ import annotations

from typing import Any

from . import _aicf

__all__ = ["FLOATS", "HALVES", "INTS", "dtype_name", "is_float", "is_half", "is_int"]

FLOATS = ("f64", "f32", "f16", "bf16")
HALVES = ("f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u8")


def dtype_name(dtype: Any) -> str:
    """Our name of a dtype, given by its name here or in numpy, or as numpy, ml_dtypes and torch have it."""
    if not isinstance(dtype, str):
        names = (getattr(dtype, attribute, None) for attribute in ("name", "__name__"))
        dtype = next((name for name in names if isinstance(name, str)), str(dtype).removeprefix("torch."))
    return _aicf.dtype_name(dtype)


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_half(dtype: str) -> bool:
    return dtype in HALVES


def is_int(dtype: str) -> bool:
    return dtype in INTS

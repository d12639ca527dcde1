"""First contents of params. One generator with a fixed seed, so a script builds the same model each time."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

import numpy as np

from .. import _aicf
from .._dtypes import FLOATS, dtype_name, is_float
from ..errors import make_error
from .module import Parameter

__all__ = ["filled", "normal", "seed", "uniform"]

_state = {"rng": np.random.default_rng(0)}


def seed(value: int) -> None:
    """Restarts the generator that new layers draw from."""
    _state["rng"] = np.random.default_rng(value)


def _checked(shape: Sequence[int]) -> tuple[int, ...]:
    if all(hasattr(size, "__index__") and size >= 0 for size in shape):
        return tuple(operator.index(size) for size in shape)
    raise make_error(
        "bad_option",
        "a param cannot have these sizes",
        value=str(list(shape)),
        expected="whole numbers, not below 0",
    )


def _parameter(data: np.ndarray, dtype: str) -> Parameter:
    """Of f64 contents."""
    name = dtype_name(dtype)
    if not is_float(name):
        raise make_error(
            "bad_dtype", "params of a layer are floats", actual=dtype, expected=", ".join(FLOATS)
        )
    if name == "bf16":
        return Parameter(_aicf.rounded(data, name))
    return Parameter(data.astype(f"f{int(name[1:]) // 8}"))


def uniform(shape: Sequence[int], fan_in: int, dtype: str = "float32") -> Parameter:
    """Uniform in ±1/sqrt(fan_in)."""
    bound = 1.0 / math.sqrt(max(fan_in, 1))
    return _parameter(_state["rng"].uniform(-bound, bound, _checked(shape)), dtype)


def normal(shape: Sequence[int], dtype: str = "float32", deviation: float = 1.0) -> Parameter:
    """Normal around 0."""
    return _parameter(_state["rng"].standard_normal(_checked(shape)) * deviation, dtype)


def filled(shape: Sequence[int], value: float, dtype: str = "float32") -> Parameter:
    return _parameter(np.full(_checked(shape), value, "f8"), dtype)

"""Indexing of traced values: ints, slices, None, Ellipsis, and one integer tensor, as numpy means them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _aicf
from .errors import make_error

if TYPE_CHECKING:
    from .symtensor import SymTensor

__all__ = ["take_index"]


def take_index(tensor: SymTensor, key: Any) -> SymTensor:
    keys = list(key) if isinstance(key, tuple) else [key]
    keys = _expand_ellipsis(tensor, keys)
    tensors = [k for k in keys if _is_array(k)]
    if len(tensors) > 1:
        raise _bad_key(key, "more than one index array", "aicf.ops.gather_nd")
    sliced = _slice_axes(tensor, [slice(None) if _is_array(k) else k for k in keys if k is not None])
    return _reshape_axes(tensor, sliced, keys)


def _is_array(key: Any) -> bool:
    return not isinstance(key, (int, slice)) and key is not None and hasattr(key, "dtype")


def _expand_ellipsis(tensor: SymTensor, keys: list[Any]) -> list[Any]:
    used = sum(key is not None and key is not Ellipsis for key in keys)
    missing = tensor.ndim - used
    if missing < 0:
        raise _bad_key(keys, f"{used} indices for {tensor.ndim} axes", "fewer indices")
    at = [i for i, key in enumerate(keys) if key is Ellipsis]
    if len(at) > 1:
        raise _bad_key(keys, "more than one ellipsis", "one ellipsis")
    cut = at[0] if at else len(keys)
    return keys[:cut] + [slice(None)] * missing + keys[cut + len(at) :]


def _slice_axes(tensor: SymTensor, keys: list[Any]) -> SymTensor:
    starts, limits, steps, flips = [], [], [], []
    for axis, (size, key) in enumerate(zip(tensor.shape, keys, strict=True)):
        start, limit, step = _int_range(size, key) if not isinstance(key, slice) else _slice_range(size, key)
        if step < 0:
            flips.append(axis)
        starts.append(start)
        limits.append(limit)
        steps.append(abs(step))
    result = tensor._op("reverse", axes=flips) if flips else tensor
    whole = all(
        step == 1 and start == 0 and limit == size
        for start, limit, step, size in zip(starts, limits, steps, tensor.shape, strict=True)
    )
    return result if whole else result._op("slice", starts=starts, limits=limits, steps=steps)


def _int_range(size: Any, key: Any) -> tuple[Any, Any, int]:
    if isinstance(key, bool) or not hasattr(key, "__index__"):
        raise _bad_key(key, type(key).__name__, "ints, slices, None, ... or an integer tensor")
    index = key.__index__()
    if isinstance(size, int) and not -size <= index < size:
        raise make_error(
            "index_out_of_range",
            "an index is out of range",
            op="[]",
            value=str(index),
            expected=f"{-size} <= index < {size}",
        )
    start = index if index >= 0 else size + index
    return start, start + 1, 1


def _slice_range(size: Any, key: slice) -> tuple[Any, Any, int]:
    """(start, limit, step); with a negative step, in the reversed axis."""
    key = slice(*(_plain_end(end) for end in (key.start, key.stop, key.step)))
    step = 1 if key.step is None else key.step
    if step == 0 or not isinstance(step, int):
        raise _bad_key(key, f"step {step}", "a step that is a number other than 0")
    if isinstance(size, int) and all(end is None or isinstance(end, int) for end in (key.start, key.stop)):
        start, stop, step = key.indices(size)
        count = len(range(start, stop, step))
        if step < 0:
            start = size - 1 - start
        if count == 0:
            return 0, 0, step
        return start, start + (count - 1) * abs(step) + 1, step
    if step < 0 and (key.start is not None or key.stop is not None):
        raise _bad_key(key, "a backward slice of a symbolic size", "[::-1], then a slice")
    return _end(size, key.start, 0), _end(size, key.stop, size), step


def _plain_end(end: Any) -> Any:
    """An int for what counts as one, such as numpy.int64."""
    return end.__index__() if hasattr(end, "__index__") else end


def _end(size: Any, end: Any, default: Any) -> Any:
    if end is None:
        return default
    if isinstance(end, int):
        return _aicf.dim_max(size + end, 0) if end < 0 else _aicf.dim_min(size, end)
    return end


def _reshape_axes(tensor: SymTensor, sliced: SymTensor, keys: list[Any]) -> SymTensor:
    """Drops the axes of ints, adds those of None, and gathers with an index tensor."""
    sizes: list[Any] = []
    source, gather_axis, indices = 0, -1, None
    for key in keys:
        if key is None:
            sizes.append(1)
            continue
        if _is_array(key):
            gather_axis, indices = len(sizes), key
        if _is_array(key) or isinstance(key, slice):
            sizes.append(sliced.shape[source])
        source += 1
    result = sliced if tuple(sizes) == sliced.shape else sliced._op("reshape", shape=sizes)
    if indices is None:
        return result
    index = tensor.graph.lift(indices)
    if index.dtype == "bool":
        raise _bad_key("a bool tensor", "a mask, whose result has no fixed shape", "aicf.ops.select")
    return tensor.graph.node("gather", [result, index], {"axis": gather_axis})[0]


def _bad_key(key: Any, actual: str, expected: str) -> Exception:
    return make_error(
        "bad_option",
        "this index is not supported",
        op="[]",
        value=repr(key)[:80],
        actual=actual,
        expected=expected,
    )

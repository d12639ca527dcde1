"""Sizes as users write them: 8, "8", "1,8", "16..512", (16, 512), range(16, 513), or another size's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ._aicf import Program, set_range
from ._build import has_utf8
from .errors import make_error

__all__ = ["dim_text", "dim_texts", "set_ranges", "symbol_range"]

_FORMS = '8, "1,8", "16..512", (16, 512), range(16, 513) or a name'


def _is_whole(value: Any) -> bool:
    """Python's integers and those of arrays, which say of themselves that they are whole."""
    return hasattr(value, "__index__") and not isinstance(value, bool) and getattr(value, "ndim", 0) == 0


def dim_text(name: str, value: Any) -> str:
    """The form of the command line."""
    if isinstance(value, str) and has_utf8(value):
        return value
    if isinstance(value, range) and value.step == 1 and len(value) > 0:
        return f"{value.start}..{value.stop - 1}"
    if isinstance(value, tuple) and len(value) == 2 and all(_is_whole(end) for end in value):
        return f"{int(value[0])}..{int(value[1])}"
    if _is_whole(value):
        return str(int(value))
    raise make_error("bad_option", "this does not give a size", op=name, value=repr(value), expected=_FORMS)


def dim_texts(dims: Mapping[str, Any]) -> dict[str, str]:
    if not isinstance(dims, Mapping) or not all(isinstance(name, str) and has_utf8(name) for name in dims):
        raise make_error(
            "bad_option", "dims maps names to sizes", expected='{"batch": "1..8"}', actual=repr(dims)[:80]
        )
    return {name: dim_text(name, value) for name, value in dims.items()}


def symbol_range(name: str, value: Any) -> tuple[int, int]:
    """Lowest and highest value."""
    text = dim_text(name, value)
    ends = text.split("..") if ".." in text else text.split(",")
    try:
        numbers = [int(end) for end in ends]
    except ValueError:
        numbers = []
    if not numbers or (".." in text and len(numbers) != 2) or min(numbers) < 0 or numbers != sorted(numbers):
        raise make_error(
            "bad_option",
            "this does not give a range of sizes",
            op=name,
            value=text,
            expected='8, "1,8" or "16..512"',
        )
    return numbers[0], numbers[-1]


def set_ranges(program: Program, dims: Mapping[str, Any]) -> None:
    """Gives sizes of the program these ranges; a list becomes buckets (docs/binding.md)."""
    for name, value in dims.items():
        text, (low, high) = dim_text(name, value), symbol_range(name, value)
        ends = [] if ".." in text or low == high else sorted({int(end) for end in text.split(",")})
        set_range(program, name, low, high, ends)

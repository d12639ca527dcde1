"""`dims={"x": {0: "batch=1..64"}}`: which axes of which arguments are dynamic, as torch.export wants it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._build import check_type
from .._sizes import symbol_range
from ..errors import make_error
from .objects import children_listed
from .paths import leaf_paths

__all__ = ["DynamicDims", "named_leaves", "parse_dims", "positional_names"]

_FORMS = (
    '{"x": {0: "batch=1..64", 1: "2*half + 1"}}: argument, axis, name, range; a range serves every axis of '
    'its name, and may stand by itself: {..., "half": (1, 8)}'
)
_AXIS = re.compile(r"(?:(?P<factor>\d+) *\* *)?(?P<name>[^\W\d]\w*)(?: *(?P<offset>[+-] *\d+))?")


@dataclass(frozen=True)
class Length:
    """How long an axis is: factor · size + offset."""

    name: str
    factor: int = 1
    offset: int = 0

    def of(self, size: Any) -> Any:
        return size * self.factor + self.offset if (self.factor, self.offset) != (1, 0) else size


@dataclass
class DynamicDims:
    """Ranges by size name, and the lengths of the named axes for every tensor leaf of the arguments.

    A size with one value is none of torch.export's: the example gets it.
    """

    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    axes: list[dict[int, Length]] = field(default_factory=list)
    fixed: dict[str, int] = field(default_factory=dict)

    def shapes(self, spec: pytree.TreeSpec) -> Any:
        """torch.export's `dynamic_shapes` for arguments of this structure."""
        dims = {name: torch.export.Dim(name, min=lo, max=hi) for name, (lo, hi) in self.ranges.items()}
        leaves = [
            {axis: length.of(dims[length.name]) for axis, length in axes.items() if length.name in dims}
            or None
            for axes in self.axes
        ]
        return children_listed(pytree.tree_unflatten(leaves, spec))

    def examples(self, leaves: Sequence[Any]) -> list[Any]:
        """The same arguments at sizes torch does not specialise: one above 1 for each dynamic axis."""
        return [self._example(leaf, axes) for leaf, axes in zip(leaves, self.axes, strict=True)]

    def _example(self, leaf: Any, axes: Mapping[int, Length]) -> Any:
        for axis, length in axes.items():
            given = leaf.shape[axis]
            wanted = length.of(self._example_size(length, given))
            if given == 0:
                leaf = leaf.new_zeros([*leaf.shape[:axis], wanted, *leaf.shape[axis + 1 :]])
            elif given != wanted:
                leaf = leaf.index_select(axis, torch.arange(wanted, device=leaf.device) % given)
        return leaf

    def _example_size(self, length: Length, given: int) -> int:
        """One for all axes of the name, near that of the first."""
        if length.name in self.fixed:
            return self.fixed[length.name]
        lo, hi = self.ranges[length.name]
        near = (given - length.offset) // length.factor
        return self._sizes.setdefault(length.name, max(lo, min(hi, max(near, 2))))

    def __post_init__(self) -> None:
        self._sizes: dict[str, int] = {}


def parse_dims(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dims: Mapping[str, Any] | None
) -> DynamicDims:
    """Sizes named in `dims`; unset_size if a name has no range, bad_option for what no argument has."""
    result = DynamicDims()
    check_type("dims", {} if dims is None else dims, Mapping, _FORMS)
    given = dict(dims or {})
    ranges = {key: given.pop(key) for key in list(given) if not _names_axes(given[key])}
    result.ranges = {name: symbol_range(name, value) for name, value in ranges.items()}
    for path, leaf in named_leaves(model, args, kwargs):
        result.axes.append(_axes_of(path, leaf, given, result.ranges))
    unknown = set(given) - {name for path, _ in named_leaves(model, args, kwargs) for name in _prefixes(path)}
    if unknown:
        names = ", ".join(path for path, _ in named_leaves(model, args, kwargs))
        raise make_error(
            "bad_option",
            "dims names no argument of the model",
            value=", ".join(sorted(unknown)),
            expected=names,
            remedy=f'name it as forward does: dims={{"{names.split(", ")[0]}": {{0: "batch=1..64"}}}}',
        )
    named = {length.name for axes in result.axes for length in axes.values()}
    unused = sorted(set(result.ranges) - named)
    if unused:
        name, (low, high) = unused[0], result.ranges[unused[0]]
        first = next((p for p, leaf in named_leaves(model, args, kwargs) if _has_axes(leaf)), "x")
        raise make_error(
            "bad_option",
            "dims names a size that no axis has",
            value=", ".join(unused),
            expected=_FORMS,
            remedy=f'say which axis it is: dims={{"{first}": {{0: "{name}={low}..{high}"}}}}',
        )
    unset = named - set(result.ranges)
    if unset:
        raise make_error(
            "unset_size",
            "dynamic sizes have no range",
            value=", ".join(sorted(unset)),
            expected=_FORMS,
        )
    result.fixed = {name: low for name, (low, high) in result.ranges.items() if low == high}
    for name in result.fixed:
        del result.ranges[name]
    return result


def _has_axes(leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.ndim > 0


def _names_axes(value: Any) -> bool:
    """{0: "batch"} or ["batch", None], not a range such as "1..8", (1, 8) or range(1, 9)."""
    if isinstance(value, (str, range)):
        return False
    return isinstance(value, Mapping) or (
        isinstance(value, Sequence) and not all(type(item) is int for item in value)
    )


def _axes_of(
    path: str, leaf: Any, given: Mapping[str, Any], ranges: dict[str, tuple[int, int]]
) -> dict[int, Length]:
    chosen = next((given[name] for name in reversed(_prefixes(path)) if name in given), None)
    if chosen is None:
        return {}
    if not isinstance(leaf, torch.Tensor):
        if path not in given:  # a number or None beside tensors in a structure
            return {}
        raise make_error(
            "bad_option", "this argument is no tensor, and has no axes", op=path, actual=repr(leaf)[:80]
        )
    if not isinstance(chosen, Mapping) and len(chosen) > leaf.ndim:
        raise make_error(
            "bad_option",
            "dims names more axes than the argument has",
            op=path,
            expected=f"{leaf.ndim} or fewer",
            actual=str(len(chosen)),
        )
    pairs = chosen.items() if isinstance(chosen, Mapping) else enumerate(chosen)
    axes = {}
    for axis, text in pairs:
        if text is None:
            continue
        if isinstance(text, torch.export.Dim):
            text = f"{text.__name__}={text.min}..{text.max}"
        name, _, span = text.partition("=") if isinstance(text, str) else ("", "", "")
        length = _length(name.strip())
        inside = isinstance(axis, int) and -leaf.ndim <= axis < leaf.ndim
        if not inside or length is None or (span and length != Length(length.name)):
            raise make_error(
                "bad_option", "this names no axis", op=path, value=f"{axis}: {text!r}", expected=_FORMS
            )
        if span:
            lo, hi = symbol_range(length.name, span)
            if ranges.setdefault(length.name, (lo, hi)) != (lo, hi):
                raise make_error(
                    "bad_option",
                    "a size has two ranges",
                    op=path,
                    value=text,
                    expected=str(ranges[length.name]),
                )
        axes[axis % leaf.ndim] = length
    return axes


def _length(text: str) -> Length | None:
    """ "4*h - 1" """
    match = _AXIS.fullmatch(text)
    if match is None or match["factor"] == "0":
        return None
    offset = (match["offset"] or "0").replace(" ", "")
    return Length(match["name"], int(match["factor"] or 1), int(offset))


def _prefixes(path: str) -> list[str]:
    parts = path.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))]


def positional_names(model: Any) -> list[str]:
    """Names of forward's arguments that may be given in order; those of *args have none."""
    try:
        parameters = inspect.signature(getattr(model, "forward", model)).parameters.values()
    except (TypeError, ValueError):
        return []
    return [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]


def named_leaves(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Leaves of the arguments in torch's order with names: `x`, `pair.0`, `cache.keys`."""
    known = positional_names(model)
    names = [known[index] if index < len(known) else f"x{index}" for index in range(len(args))]
    named = [*zip(names, args, strict=True), *kwargs.items()]
    leaves = []
    for name, value in named:
        leaves.extend((".".join([name, *path]), leaf) for path, leaf in leaf_paths(value))
    return leaves

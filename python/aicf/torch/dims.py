"""`dims={"x": {0: "batch=1..64"}}`: which axes of which arguments are dynamic, as torch.export wants it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._sizes import symbol_range
from ..errors import make_error

__all__ = ["DynamicDims", "named_leaves", "parse_dims", "positional_names"]

_FORMS = '{"x": {0: "batch=1..64"}}: argument, axis, name, range; a range serves every axis of its name'


@dataclass
class DynamicDims:
    """Ranges by size name, and the sizes' names by axis for every tensor leaf of the arguments."""

    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    axes: list[dict[int, str]] = field(default_factory=list)

    def shapes(self, spec: pytree.TreeSpec) -> Any:
        """torch.export's `dynamic_shapes` for arguments of this structure."""
        dims = {name: torch.export.Dim(name, min=lo, max=hi) for name, (lo, hi) in self.ranges.items()}
        leaves = [{axis: dims[name] for axis, name in axes.items()} or None for axes in self.axes]
        return pytree.tree_unflatten(leaves, spec)

    def examples(self, leaves: Sequence[Any]) -> list[Any]:
        """The same arguments at sizes torch does not specialise: one above 1 for each dynamic axis."""
        return [self._example(leaf, axes) for leaf, axes in zip(leaves, self.axes, strict=True)]

    def _example(self, leaf: Any, axes: Mapping[int, str]) -> Any:
        for axis, name in axes.items():
            lo, hi = self.ranges[name]
            at = self._sizes.setdefault(name, max(lo, min(hi, max(leaf.shape[axis], 2))))
            if leaf.shape[axis] != at:
                index = torch.arange(at) % max(leaf.shape[axis], 1)
                leaf = leaf.index_select(axis, index) if leaf.shape[axis] else leaf.new_zeros(at)
        return leaf

    def __post_init__(self) -> None:
        self._sizes: dict[str, int] = {}


def parse_dims(
    model: Any, args: Sequence[Any], kwargs: Mapping[str, Any], dims: Mapping[str, Any] | None
) -> DynamicDims:
    """Sizes named in `dims`; unset_size if a name has no range, bad_option for what no argument has."""
    result = DynamicDims()
    given = dict(dims or {})
    texts = {
        key: given.pop(key)
        for key in list(given)
        if not isinstance(given[key], (Mapping, Sequence)) or isinstance(given[key], (str, tuple))
    }
    result.ranges = {name: symbol_range(name, value) for name, value in texts.items()}
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
        )
    unset = {name for axes in result.axes for name in axes.values()} - set(result.ranges)
    if unset:
        raise make_error(
            "unset_size",
            "dynamic sizes have no range",
            value=", ".join(sorted(unset)),
            expected=_FORMS,
        )
    return result


def _axes_of(
    path: str, leaf: Any, given: Mapping[str, Any], ranges: dict[str, tuple[int, int]]
) -> dict[int, str]:
    chosen = next((given[name] for name in reversed(_prefixes(path)) if name in given), None)
    if chosen is None or not isinstance(leaf, torch.Tensor):
        return {}
    pairs = chosen.items() if isinstance(chosen, Mapping) else enumerate(chosen)
    axes = {}
    for axis, text in pairs:
        if text is None:
            continue
        if not isinstance(axis, int) or not -leaf.ndim <= axis < leaf.ndim or not isinstance(text, str):
            raise make_error(
                "bad_option", "this names no axis", op=path, value=f"{axis}: {text!r}", expected=_FORMS
            )
        name, _, span = text.partition("=")
        if span:
            lo, hi = symbol_range(name, span)
            if ranges.setdefault(name, (lo, hi)) != (lo, hi):
                raise make_error(
                    "bad_option", "a size has two ranges", op=path, value=text, expected=str(ranges[name])
                )
        axes[axis % leaf.ndim] = name
    return axes


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
        for key, leaf in pytree.tree_flatten_with_path(value)[0]:
            leaves.append((".".join([name, *map(_key_text, key)]), leaf))
    return leaves


def _key_text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)

"""Where the leaves of a structure stand: keys of dicts, names of fields, indices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils import _pytree as pytree

__all__ = ["leaf_paths"]


def leaf_paths(tree: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    """The leaves in torch's order, each with its path, also of classes that were registered without names."""
    node = pytree.SUPPORTED_NODES.get(pytree._get_node_type(tree))
    if node is None:
        yield (), tree
        return
    for key, part in _parts(tree, node):
        for path, leaf in leaf_paths(part):
            yield (key, *path), leaf


def _parts(tree: Any, node: Any) -> Iterator[tuple[str, Any]]:
    if node.flatten_with_keys_fn is not None:
        yield from ((_text(key), part) for key, part in node.flatten_with_keys_fn(tree)[0])
        return
    parts = list(node.flatten_fn(tree)[0])
    names = [*tree] if isinstance(tree, Mapping) and len(tree) == len(parts) else range(len(parts))
    yield from zip(map(str, names), parts, strict=True)


def _text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)

"""The structure of a model's results as JSON text, so that it travels in the artifact's metadata.

A leaf is the index of an output; tuples, lists and dicts nest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["OUTPUT_STRUCTURE", "flatten", "restore"]

OUTPUT_STRUCTURE = "aicf.python.outputs"


def flatten(value: Any, leaves: list[tuple[str, Any]], path: str = "") -> Any:
    """Appends (path, leaf) pairs and gives the structure; dict keys must be strings."""
    if isinstance(value, dict):
        return {"dict": {key: flatten(item, leaves, _join(path, key)) for key, item in value.items()}}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(item, leaves, _join(path, str(i))) for i, item in enumerate(value)]}
    leaves.append((path, value))
    return len(leaves) - 1


def restore(structure: str, leaves: Sequence[Any]) -> Any:
    return _build(json.loads(structure), leaves)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


def _build(node: Any, leaves: Sequence[Any]) -> Any:
    if isinstance(node, int):
        return leaves[node]
    ((kind, items),) = node.items()
    if kind == "dict":
        return {key: _build(item, leaves) for key, item in items.items()}
    built = [_build(item, leaves) for item in items]
    return built if kind == "list" else tuple(built)

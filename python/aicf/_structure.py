"""The structure of a model's results as JSON text, so that it travels in the artifact's metadata.

A leaf is the index of an output, or null for None; tuples, lists and dicts nest.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from .errors import make_error

__all__ = ["OUTPUT_STRUCTURE", "flatten", "parse", "restore"]

OUTPUT_STRUCTURE = "aicf.python.outputs"


def flatten(value: Any, leaves: list[tuple[str, Any]], path: str = "") -> Any:
    """Appends (path, leaf) pairs and gives the structure; dict keys must be strings."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {"dict": {key: flatten(item, leaves, _join(path, key)) for key, item in value.items()}}
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [flatten(item, leaves, _join(path, str(i))) for i, item in enumerate(value)]}
    leaves.append((path, value))
    return len(leaves) - 1


def parse(text: str, outputs: int) -> Any:
    """The structure in a file's metadata, over so many outputs; bad_artifact if it is none."""
    try:
        structure = json.loads(text)
        restore(structure, range(outputs))
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as problem:
        raise make_error(
            "bad_artifact",
            "the structure of the results is not sound",
            op=OUTPUT_STRUCTURE,
            value=text[:80],
            actual=str(problem),
            remedy="compile the model again",
        ) from None
    return structure


def restore(structure: Any, leaves: Sequence[Any]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, int):
        return leaves[structure]
    ((kind, items),) = structure.items()
    if kind == "dict":
        return {key: restore(item, leaves) for key, item in items.items()}
    built = [restore(item, leaves) for item in items]
    return built if kind == "list" else tuple(built)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key

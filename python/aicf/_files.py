"""safetensors files as dicts of tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _aicf
from ._aicf import Tensor

__all__ = ["load_safetensors", "save_safetensors"]


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors by name; they share the mapped file and keep it open."""
    return _aicf.read_safetensors(os.fspath(path))[0]


def save_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors by name; the file appears by rename."""
    _aicf.write_safetensors(os.fspath(path), dict(tensors), dict(metadata or {}))

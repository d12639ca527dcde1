"""Paths as the extension takes them, and safetensors files as dicts of tensors."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from . import _aicf
from ._aicf import Tensor
from ._build import check_type, has_utf8
from .errors import make_error

__all__ = ["check_texts", "file_path", "is_compiled", "load_safetensors", "save_safetensors"]


def file_path(path: Any) -> str:
    """The path as text; bad_option for what is no path, or none in UTF-8."""
    check_type("path", path, (str, bytes, os.PathLike), "the path of a file")
    text = os.fsdecode(path)
    if not has_utf8(text):
        raise make_error(
            "bad_option",
            "a path is not in UTF-8",
            value=text.encode(errors="backslashreplace").decode(),
            expected="a path that is",
            remedy="rename the file or the folder, or go into the folder and name the file alone",
        )
    return text


def is_compiled(path: str) -> bool:
    """Whether the file is an artifact: it begins with the length of a JSON header, as no ONNX file does."""
    try:
        with open(path, "rb") as file:
            begin = file.read(9)
    except OSError:
        return False
    return len(begin) == 9 and begin[6:] == b"\0\0{"


def check_texts(name: str, texts: Any) -> None:
    """bad_option unless this maps texts to texts."""
    check_type(name, texts, Mapping, "texts by name")
    for part in (part for item in texts.items() for part in item):
        check_type(name, part, str, "texts by name")
        if not has_utf8(part):
            raise make_error("bad_option", "a text has no form in UTF-8", value=name, actual=repr(part)[:80])


def load_safetensors(path: str | os.PathLike[str]) -> dict[str, Tensor]:
    """Tensors by name; they share the mapped file, keep it open and cannot be written."""
    return _aicf.read_safetensors(file_path(path))[0]


def save_safetensors(
    path: str | os.PathLike[str], tensors: Mapping[str, Any], metadata: Mapping[str, str] | None = None
) -> None:
    """Writes tensors by name; the file appears by rename."""
    check_type("tensors", tensors, Mapping, "arrays by name")
    check_texts("metadata", metadata or {})
    _aicf.write_safetensors(file_path(path), dict(tensors), dict(metadata or {}))

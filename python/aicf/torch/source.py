"""Where in the user's Python a node of a torch graph comes from."""

from __future__ import annotations

import re
import traceback
from pathlib import Path
from typing import Any

import torch

__all__ = ["line_of_error", "line_of_node", "path_of_node"]

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n\s*(?P<code>[^\n]*)'
)
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)


def line_of_node(node: torch.fx.Node) -> str:
    """`file.py:12 in forward: y = x.relu()`, or "" if the exporter kept none."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    own = [f for f in frames if not f["file"].startswith((_TORCH, _OURS, "<"))]
    return _text(*(own or frames)[-1].group("file", "line", "function", "code")) if frames else ""


def line_of_error(error: BaseException) -> str:
    """The innermost line outside torch and this package that led to the error."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not frame.filename.startswith((_TORCH, _OURS, "<"))
    ]
    inside = list(_FRAME.finditer(str(error)))
    inside = [f for f in inside if not f["file"].startswith((_TORCH, _OURS))]
    if inside:
        return _text(*inside[-1].group("file", "line", "function", "code"))
    if not frames:
        return ""
    last = frames[-1]
    return _text(last.filename, str(last.lineno), last.name, last.line or "")


def path_of_node(node: torch.fx.Node) -> str:
    """Path of the module that ran the node: `encoder.layer.0.attention`."""
    stack = node.meta.get("nn_module_stack")
    path = str(list(stack.values())[-1][0]) if stack else ""
    return path.removeprefix("L['self'].").removeprefix("L__self___")


def _text(file: Any, line: Any, function: Any, code: Any) -> str:
    return f"{file}:{line} in {function}: {code.strip()}"

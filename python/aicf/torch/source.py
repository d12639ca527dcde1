"""Where in the user's Python a node of a torch graph comes from."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch.fx.proxy import TracerBase

__all__ = ["line_of_error", "line_of_node", "lines_of_functions", "path_of_node"]

_FRAME = re.compile(
    r'File "(?P<file>[^"]+)", line (?P<line>\d+), in (?P<function>[^\n]+)\n(?!\s*File)\s*(?P<code>[^\n]*)'
)
_TORCH = str(Path(torch.__file__).parent)
_OURS = str(Path(__file__).parent)
_STANDARD = str(Path(traceback.__file__).parent)


@contextmanager
def lines_of_functions() -> Iterator[None]:
    """torch notes the lines of methods named forward alone; here those of functions that they call, too."""
    plain = getattr(TracerBase, "_filter_traceback_frames", None)
    if plain is None:
        yield
        return

    def from_forward(self: Any, frames: traceback.StackSummary) -> traceback.StackSummary:
        first = next((i for i, frame in enumerate(frames) if frame.name == "forward"), len(frames))
        return traceback.StackSummary.from_list(
            frame for frame in frames[first:] if frame.name == "forward" or _is_users(frame.filename)
        )

    TracerBase._filter_traceback_frames = from_forward
    try:
        yield
    finally:
        TracerBase._filter_traceback_frames = plain


def _is_users(file: str) -> bool:
    if file.startswith(_STANDARD) and "-packages" not in file:
        return False
    return not file.startswith((_TORCH, _OURS, "<"))


def line_of_node(node: torch.fx.Node) -> str:
    """`file.py:12 in forward: y = x.relu()`, or "" if the exporter kept none."""
    frames = list(_FRAME.finditer(node.meta.get("stack_trace") or ""))
    own = [f for f in frames if _is_users(f["file"])]
    return _text(*(own or frames)[-1].group("file", "line", "function", "code")) if frames else ""


def line_of_error(error: BaseException) -> str:
    """The innermost line outside torch and this package that led to the error."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    inside = [frame for frame in _FRAME.finditer(str(error)) if _is_users(frame["file"])]
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

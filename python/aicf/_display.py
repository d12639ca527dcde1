"""What `repr` and a notebook show of the objects that a compile gives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Protocol

from ._aicf import printable_name

__all__ = ["html_table", "plan_rows", "signature"]


class _Info(Protocol):
    name: str
    dtype: str
    shape: tuple[int | str, ...]


class _Plan(Protocol):
    regions: int
    kernels: int
    arena_bytes: int
    packed_bytes: int


def _tensors(infos: Iterable[_Info]) -> str:
    return ", ".join(
        f"{printable_name(i.name)}: {i.dtype}[{', '.join(printable_name(str(size)) for size in i.shape)}]"
        for i in infos
    )


def signature(inputs: Iterable[_Info], outputs: Iterable[_Info]) -> str:
    """`x: f32[batch, 16] -> y: f32[batch, 4]`; a stranger's names are printable."""
    return f"{_tensors(inputs)} -> {_tensors(outputs)}"


def plan_rows(plan: _Plan) -> list[tuple[str, str]]:
    return [
        ("kernels", f"{plan.kernels:,}"),
        ("regions", f"{plan.regions:,}"),
        ("arena", f"{plan.arena_bytes:,} bytes"),
        ("packed weights", f"{plan.packed_bytes:,} bytes"),
    ]


def html_table(title: str, rows: Sequence[tuple[str, str]], text: str = "") -> str:
    """A caption over rows of name and value; `text` folded under them. A stranger's names are escaped."""
    body = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in rows)
    folded = f"<details><summary>plan</summary><pre>{escape(text)}</pre></details>" if text else ""
    return f"<table><caption>{escape(title)}</caption>{body}</table>{folded}"

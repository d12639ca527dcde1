"""What a precision such as "bf16-mixed" costs: a report that compares with f32 on the caller's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .paths import leaf_paths

__all__ = ["PrecisionError", "precision_report"]


@dataclass(frozen=True)
class PrecisionError:
    """Of one result: largest absolute difference from f32, and relative to f32's largest element."""

    name: str
    absolute: float
    relative: float


def precision_report(
    model: torch.nn.Module,
    inputs: Any,
    precision: str,
    *,
    dims: Mapping[str, Any] | None = None,
    device: str = "cpu",
    threads: int | None = None,
) -> list[PrecisionError]:
    """Compiles the module in f32 and in `precision`, runs both on the example arguments, and compares."""
    from ..compiler import compile
    from .export import split_inputs

    args, kwargs = split_inputs(inputs)
    runs = [
        compile(model, inputs, dims=dims, device=device, threads=threads, precision=p)(*args, **kwargs)
        for p in ("f32", precision)
    ]
    rows = []
    for (path, wide), narrow in zip(leaf_paths(runs[0]), pytree.tree_leaves(runs[1]), strict=True):
        if isinstance(wide, torch.Tensor) and wide.is_floating_point() and wide.numel():
            error = (narrow.double() - wide.double()).abs().max().item()
            largest = wide.abs().max().item()
            rows.append(PrecisionError(".".join(path) or "output", error, error / largest))
    return rows

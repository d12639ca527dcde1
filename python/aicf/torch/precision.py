"""`precision="bf16-mixed"`: contractions take bf16 operands and accumulate in f32; everything else, weights
included, stays f32. The error report compares with f32 on the caller's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import ops
from ..symtensor import SymTensor

__all__ = ["PRECISIONS", "PrecisionError", "is_contraction", "narrowed", "precision_report", "widened"]

# Dtype of the operands of contractions.
PRECISIONS: dict[str, str | None] = {"f32": None, "bf16-mixed": "bf16"}

_CONTRACTIONS = frozenset(
    "linear matmul mm bmm mv dot addmm baddbmm addbmm addmv bilinear convolution _convolution conv1d conv2d "
    "conv3d conv_transpose1d conv_transpose2d conv_transpose3d scaled_dot_product_attention".split()
)


def is_contraction(op: Any) -> bool:
    return getattr(op, "_opname", "") in _CONTRACTIONS


def narrowed(arguments: Any, dtype: str) -> Any:
    """The f32 operands in another dtype."""
    return torch.fx.node.map_aggregate(arguments, lambda x: _cast(x, "f32", dtype))


def widened(result: SymTensor, dtype: str) -> SymTensor:
    return _cast(result, dtype, "f32")


def _cast(x: Any, source: str, target: str) -> Any:
    return ops.cast(x, dtype=target) if isinstance(x, SymTensor) and x.dtype == source else x


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
    for (path, wide), narrow in zip(
        pytree.tree_flatten_with_path(runs[0])[0], pytree.tree_leaves(runs[1]), strict=True
    ):
        if isinstance(wide, torch.Tensor) and wide.is_floating_point() and wide.numel():
            error = (narrow.double() - wide.double()).abs().max().item()
            largest = wide.abs().max().item()
            rows.append(PrecisionError(pytree.keystr(path) or "output", error, error / largest))
    return rows

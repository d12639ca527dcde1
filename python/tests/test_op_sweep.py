"""The sweep of single ops and the grid of kernel families: nothing of ops.def is left out, and every case is
a call that torch takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the cases are calls of torch")

import families_grid
import sweep_ops
import torch
from drawn_streams import Stream

TABLE = Path(sweep_ops.__file__).resolve().parents[1] / "src" / "ir" / "ops.def"


@pytest.mark.skipif(not TABLE.exists(), reason="the op table is in the tree alone")
def test_every_op_is_swept_or_has_a_reason() -> None:
    rows = set(re.findall(r"^AICF_(?:OP|POINTWISE|COMPOSITE)\((\w+)", TABLE.read_text(), re.MULTILINE))
    swept = {name for op in sweep_ops.OPS for name in op.of}
    assert len(rows) > 100
    assert swept | set(sweep_ops.NO_TORCH_FORM) == rows
    assert not swept & set(sweep_ops.NO_TORCH_FORM)
    names = [op.name for op in sweep_ops.OPS]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_sweep_draws_calls_that_torch_takes(device: str) -> None:
    kinds = {"i64": torch.int64, "bool": torch.bool}
    for op in sweep_ops.OPS:
        shapes = set()
        for index in range(3):
            operands, call = op.draw(sweep_ops.Sizes(Stream("sweep", 0, device, op.name, index), device))
            call(
                *(
                    torch.empty(o.shape, dtype=kinds.get(o.kind, torch.float32), device="meta")
                    for o in operands
                )
            )
            shapes.add(str(operands))
        assert len(shapes) > 1, op.name


def test_the_grid_of_families_is_of_calls_that_torch_takes() -> None:
    cases = list(families_grid.cases())
    assert len({(c.family, c.name) for c in cases}) == len(cases)
    for case in cases:
        operands = [torch.empty(shape, device="meta", dtype=dtype_of(kind)) for kind, shape in case.operands]
        case.call(*operands)
        assert case.elements > 0, case.name


def dtype_of(kind: str) -> torch.dtype:
    if kind.startswith("f32"):
        return torch.float32
    return torch.float16 if kind in ("", "positive") else torch.int64

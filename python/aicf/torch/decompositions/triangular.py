"""Triangular systems and Cholesky factors, one row or column at a time."""

from __future__ import annotations

from typing import Any

import torch

from .table import decomposes, unrolled

__all__ = ["cholesky", "forward_substitution", "solve_triangular"]

aten = torch.ops.aten


def forward_substitution(a: torch.Tensor, b: torch.Tensor, unit: bool = False) -> torch.Tensor:
    """X of L X = B; only the lower triangle of `a` is read."""
    steps = unrolled(a.shape[-1], "a triangular system")
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    a, b = a.expand(*batch, *a.shape[-2:]), b.expand(*batch, *b.shape[-2:])
    rows: list[torch.Tensor] = []
    for i in steps:
        row = b[..., i : i + 1, :]
        if i:
            row = row - a[..., i : i + 1, :i] @ torch.cat(rows, dim=-2)
        rows.append(row if unit else row / a[..., i : i + 1, i : i + 1])
    return torch.cat(rows, dim=-2) if rows else b


def solve_triangular(a: torch.Tensor, b: torch.Tensor, upper: bool, unit: bool = False) -> torch.Tensor:
    if not upper:
        return forward_substitution(a, b, unit)
    return forward_substitution(a.flip((-2, -1)), b.flip(-2), unit).flip(-2)


@decomposes(aten.linalg_solve_triangular.default)
def linalg_solve_triangular(
    a: torch.Tensor, b: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> torch.Tensor:
    if left:
        return solve_triangular(a, b, upper, unitriangular)
    return solve_triangular(a.mT, b.mT, not upper, unitriangular).mT


@decomposes(aten.triangular_solve.default)
def triangular_solve(
    b: torch.Tensor, a: torch.Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    batch = torch.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    copy = a.expand(*batch, *a.shape[-2:]).clone()
    if transpose:
        return solve_triangular(a.mT, b, not upper, unitriangular), copy
    return solve_triangular(a, b, upper, unitriangular), copy


def cholesky(a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower factor by columns, and 1 + the first column whose pivot is not positive, 0 if there is
    none.
    """
    steps = unrolled(a.shape[-1], "a Cholesky factor")
    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    columns: list[torch.Tensor] = []
    for j in steps:
        column = a[..., j:, j : j + 1]
        if j:
            left = torch.cat(columns, dim=-1)
            column = column - left[..., j:, :] @ left[..., j : j + 1, :].mT
        pivot = column[..., :1, :]
        bad = ~(pivot[..., 0, 0] > 0)
        info = torch.where((info == 0) & bad, j + 1, info)
        column = column / pivot.sqrt()
        columns.append(torch.nn.functional.pad(column, (0, 0, j, 0)))
    return (torch.cat(columns, dim=-1) if columns else a.clone()), info


@decomposes(aten.linalg_cholesky_ex.default)
def linalg_cholesky_ex(
    a: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    factor, info = cholesky(a.mT if upper else a)
    return (factor.mT if upper else factor), info.to(torch.int32)


@decomposes(aten.cholesky.default)
def old_cholesky(a: torch.Tensor, upper: bool = False) -> torch.Tensor:
    return linalg_cholesky_ex(a, upper=upper)[0]


@decomposes(aten.cholesky_solve.default)
def cholesky_solve(b: torch.Tensor, factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    lower = factor.mT if upper else factor
    return solve_triangular(lower.mT, forward_substitution(lower, b), True)


@decomposes(aten.cholesky_inverse.default)
def cholesky_inverse(factor: torch.Tensor, upper: bool = False) -> torch.Tensor:
    identity = torch.eye(factor.shape[-1], dtype=factor.dtype, device=factor.device)
    return cholesky_solve(identity.expand(factor.shape), factor, upper)


def identity_like(a: torch.Tensor) -> Any:
    return torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(
        *a.shape[:-2], a.shape[-1], a.shape[-1]
    )

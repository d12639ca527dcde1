"""LU with partial pivoting and what follows from it; QR by Householder reflections, as LAPACK computes
them.
"""

from __future__ import annotations

from typing import Any

import torch

from .table import decomposes, unrolled
from .triangular import forward_substitution, identity_like, solve_triangular

__all__ = ["lu_factor"]

aten = torch.ops.aten


def lu_factor(a: torch.Tensor, pivot: bool = True) -> tuple[torch.Tensor, ...]:
    """(L and U in one matrix, pivots counted from 1, rows of A in their new order, info)."""
    rows, columns = a.shape[-2:]
    order = torch.arange(rows, device=a.device).expand(*a.shape[:-2], rows)
    info = torch.zeros(a.shape[:-2], dtype=torch.int32, device=a.device)
    pivots = []
    below = torch.arange(rows, device=a.device)
    for j in unrolled(min(rows, columns), "an LU factorisation"):
        best = torch.full(a.shape[:-2], j, dtype=torch.int64, device=a.device)
        if pivot:
            best = j + a[..., j:, j].abs().argmax(-1)
            # Rows j and best change places.
            swap = torch.where(below == j, best[..., None], torch.where(below == best[..., None], j, below))
            a = torch.gather(a, -2, swap[..., None].expand(a.shape))
            order = torch.gather(order, -1, swap)
        pivots.append(best + 1)
        top = a[..., j : j + 1, j : j + 1]
        zero = top == 0
        info = torch.where((info == 0) & zero[..., 0, 0], j + 1, info)
        if j + 1 < rows:
            factors = a[..., j + 1 :, j : j + 1] / torch.where(zero, 1, top)
            right = a[..., j + 1 :, j + 1 :] - factors * a[..., j : j + 1, j + 1 :]
            low = torch.cat([a[..., j + 1 :, :j], factors, right], dim=-1)
            a = torch.cat([a[..., : j + 1, :], low], dim=-2)
    empty = torch.zeros(*a.shape[:-2], 0, dtype=torch.int32, device=a.device)
    places = torch.stack(pivots, dim=-1).to(torch.int32) if pivots else empty
    return a.clone(), places, order, info.to(torch.int32)


def _parts(lu: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = min(lu.shape[-2:])
    lower = lu[..., :, :size].tril(-1)
    lower = lower + torch.eye(lu.shape[-2], size, dtype=lu.dtype, device=lu.device)
    return lower, lu[..., :size, :].triu()


def _permutation(order: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """P of A = P L U: row order[i] of P holds a one in column i."""
    rows = torch.arange(order.shape[-1], device=order.device)
    return (rows[:, None] == order[..., None, :]).to(dtype)


def _order(pivots: torch.Tensor, rows: int) -> torch.Tensor:
    places = torch.arange(rows, device=pivots.device)
    order = places.expand(*pivots.shape[:-1], rows)
    for j in unrolled(pivots.shape[-1], "a permutation"):
        best = pivots[..., j : j + 1].long() - 1
        order = torch.gather(
            order, -1, torch.where(places == j, best, torch.where(places == best, j, places))
        )
    return order


@decomposes(aten.linalg_lu_factor_ex.default)
def linalg_lu_factor_ex(a: torch.Tensor, *, pivot: bool = True, check_errors: bool = False) -> Any:
    lu, pivots, _, info = lu_factor(a, pivot)
    return lu, pivots, info


@decomposes(aten.linalg_lu.default)
def linalg_lu(a: torch.Tensor, *, pivot: bool = True) -> Any:
    lu, _, order, _ = lu_factor(a, pivot)
    p = _permutation(order, a.dtype) if pivot else torch.empty(0, dtype=a.dtype, device=a.device)
    return p, *_parts(lu)


@decomposes(aten.lu_unpack.default)
def lu_unpack(
    lu: torch.Tensor, pivots: torch.Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> Any:
    empty = torch.empty(0, dtype=lu.dtype, device=lu.device)
    p = _permutation(_order(pivots, lu.shape[-2]), lu.dtype) if unpack_pivots else empty
    return (p, *_parts(lu)) if unpack_data else (p, empty, empty)


def _taken(b: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    batch = torch.broadcast_shapes(b.shape[:-2], order.shape[:-1])
    b = b.expand(*batch, *b.shape[-2:])
    return torch.gather(b, -2, order.expand(*batch, order.shape[-1])[..., None].expand(b.shape))


def _solve(lu: torch.Tensor, order: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return solve_triangular(lu, forward_substitution(lu, _taken(b, order), True), True)


def _solved(
    lu: torch.Tensor, order: torch.Tensor, b: torch.Tensor, left: bool, adjoint: bool
) -> torch.Tensor:
    if not left:  # X A = B is A^T X^T = B^T
        return _solved(lu, order, b.mT, True, not adjoint).mT
    if not adjoint:
        return _solve(lu, order, b)
    x = solve_triangular(lu.mT, forward_substitution(lu.mT, b), True, True)
    return _taken(x, order.argsort(-1))


@decomposes(aten.linalg_lu_solve.default)
def linalg_lu_solve(
    lu: torch.Tensor, pivots: torch.Tensor, b: torch.Tensor, *, left: bool = True, adjoint: bool = False
) -> torch.Tensor:
    return _solved(lu, _order(pivots, lu.shape[-2]), b, left, adjoint)


@decomposes(aten.lu_solve.default)
def lu_solve(b: torch.Tensor, lu: torch.Tensor, pivots: torch.Tensor) -> torch.Tensor:
    return linalg_lu_solve(lu, pivots, b)


@decomposes(aten._linalg_solve_ex.default)
def linalg_solve_ex(
    a: torch.Tensor, b: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> Any:
    vector = b.ndim == 1 or (b.ndim == a.ndim - 1 and b.shape == a.shape[:-1])
    lu, pivots, order, info = lu_factor(a)
    x = _solved(lu, order, b[..., None] if vector else b, left or vector, False)
    return (x[..., 0] if vector else x), lu, pivots, info


@decomposes(aten.linalg_inv_ex.default)
def linalg_inv_ex(a: torch.Tensor, *, check_errors: bool = False) -> Any:
    lu, _, order, info = lu_factor(a)
    return _solve(lu, order, identity_like(a)), info


def _sign(pivots: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Of the permutation: -1 for each row that changed its place."""
    own = torch.arange(1, pivots.shape[-1] + 1, device=pivots.device)
    return (1 - 2 * ((pivots != own).sum(-1) % 2)).to(dtype)


def _transposed(a: torch.Tensor) -> bool:
    """Whether torch factorises A^T for a determinant, which its gradient relies on."""
    return a.is_contiguous()


@decomposes(aten._linalg_det.default)
def linalg_det(a: torch.Tensor) -> Any:
    lu, pivots, _, _ = lu_factor(a.mT if _transposed(a) else a)
    return lu.diagonal(dim1=-2, dim2=-1).prod(-1) * _sign(pivots, a.dtype), lu, pivots


@decomposes(aten._linalg_slogdet.default)
def linalg_slogdet(a: torch.Tensor) -> Any:
    lu, pivots, _, _ = lu_factor(a.mT if _transposed(a) else a)
    diagonal = lu.diagonal(dim1=-2, dim2=-1)
    sign = diagonal.sign().prod(-1) * _sign(pivots, a.dtype)
    return sign, diagonal.abs().log().sum(-1), lu, pivots


# --- QR


def _reflections(a: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], list[torch.Tensor]]:
    """R, and vectors v with v[j] = 1 and factors tau, of H = I - tau v v^T, as LAPACK's geqrf."""
    rows, columns = a.shape[-2:]
    vectors, taus = [], []
    for j in unrolled(min(rows, columns), "a QR factorisation"):
        alpha = a[..., j : j + 1, j : j + 1]
        below = a[..., j + 1 :, j : j + 1]
        rest = below.square().sum(-2, keepdim=True)
        beta = torch.where(alpha > 0, -1.0, 1.0) * (alpha.square() + rest).sqrt()
        beta = torch.where(rest == 0, alpha, beta).to(a.dtype)
        plain = rest == 0
        tau = torch.where(plain, 0, (beta - alpha) / torch.where(plain, 1, beta))
        low = below / torch.where(plain, 1, alpha - beta)
        v = torch.cat([torch.ones_like(alpha), low], dim=-2)
        part = a[..., j:, j:]
        part = part - tau * v * (v.mT @ part)
        right = torch.cat([a[..., j:, :j], part], dim=-1)
        a = torch.cat([a[..., :j, :], right], dim=-2)
        vectors.append(torch.nn.functional.pad(v, (0, 0, j, 0)))
        taus.append(tau)
    return a, vectors, taus


def _product(vectors: list[torch.Tensor], taus: list[torch.Tensor], start: torch.Tensor) -> torch.Tensor:
    """H_0 H_1 … start."""
    for v, tau in zip(reversed(vectors), reversed(taus), strict=True):
        start = start - tau * v * (v.mT @ start)
    return start


def _eye(a: torch.Tensor, columns: int) -> torch.Tensor:
    rows = a.shape[-2]
    return torch.eye(rows, columns, dtype=a.dtype, device=a.device).expand(*a.shape[:-2], rows, columns)


@decomposes(aten.linalg_qr.default)
def linalg_qr(a: torch.Tensor, mode: str = "reduced") -> Any:
    rows, columns = a.shape[-2:]
    size = min(rows, columns)
    r, vectors, taus = _reflections(a)
    kept = rows if mode == "complete" else size
    if mode == "r":
        return torch.empty(0, dtype=a.dtype, device=a.device), r[..., :size, :].triu()
    return _product(vectors, taus, _eye(a, kept)).clone(), r[..., :kept, :].triu()


@decomposes(aten.geqrf.default)
def geqrf(a: torch.Tensor) -> Any:
    r, vectors, taus = _reflections(a)
    size = min(a.shape[-2:])
    if not size:
        return a.clone(), a.new_zeros(*a.shape[:-2], 0)
    below = torch.cat(vectors, dim=-1).tril(-1)
    if a.shape[-1] > size:
        below = torch.nn.functional.pad(below, (0, a.shape[-1] - size))
    return r.triu() + below, torch.cat(taus, dim=-1)[..., 0, :]


def _stored(a: torch.Tensor, tau: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """The reflections that geqrf left below the diagonal."""
    vectors, taus = [], []
    for j in unrolled(tau.shape[-1], "a product of reflections"):
        column = torch.cat([torch.ones_like(a[..., :1, j : j + 1]), a[..., j + 1 :, j : j + 1]], dim=-2)
        vectors.append(torch.nn.functional.pad(column, (0, 0, j, 0)))
        taus.append(tau[..., j, None, None])
    return vectors, taus


@decomposes(aten.linalg_householder_product.default, aten.orgqr.default)
def householder_product(a: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:
    return _product(*_stored(a, tau), _eye(a, a.shape[-1])).clone()


@decomposes(aten.ormqr.default)
def ormqr(
    a: torch.Tensor, tau: torch.Tensor, other: torch.Tensor, left: bool = True, transpose: bool = False
) -> torch.Tensor:
    if not left:  # C Q = (Q^T C^T)^T
        return ormqr(a, tau, other.mT, True, not transpose).mT
    vectors, taus = _stored(a, tau)
    if transpose:
        vectors, taus = vectors[::-1], taus[::-1]
    return _product(vectors, taus, other).clone()

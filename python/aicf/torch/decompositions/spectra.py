"""Eigenvalues of symmetric matrices, singular values, and what follows from them, by Jacobi's rotations.

A round rotates disjoint pairs of columns; a fixed number of sweeps over all pairs makes the result a function
of shapes alone (Golub and Van Loan, Matrix Computations, 8.5 and 8.6). Columns of vectors have the signs that
come out, as torch's have. All is computed in f64: the errors of many rotations add up.
"""

from __future__ import annotations

from typing import Any

import torch

from ...errors import make_error
from .table import decomposes

__all__: list[str] = []

aten = torch.ops.aten
_LARGEST = 128
# Convergence is quadratic; these are more than sizes up to the largest need.
_SWEEPS = 12

# x [..., m, n] → (x V, V), V orthogonal, so that the columns of x V are orthogonal; of a symmetric x,
# (V^T x V, V), the first diagonal.
torch.library.define("aicf::jacobi", "(Tensor x, bool symmetric, int sweeps) -> (Tensor, Tensor)")


@torch.library.register_fake("aicf::jacobi")
def _(x: torch.Tensor, symmetric: bool, sweeps: int) -> tuple[torch.Tensor, torch.Tensor]:
    n = x.shape[-1]
    return x.new_empty(x.shape), x.new_empty(*x.shape[:-2], n, n)


def _rotated(a: torch.Tensor, symmetric: bool) -> tuple[torch.Tensor, torch.Tensor]:
    size = a.shape[-1]
    if not isinstance(size, int) or size > _LARGEST:
        raise make_error(
            "unsupported_op",
            "eigenvalues or singular values of a matrix this large are not supported",
            expected=f"a fixed size of at most {_LARGEST}",
            actual=str(size),
            remedy="decompose large matrices outside the model",
        )
    return torch.ops.aicf.jacobi(a, symmetric, _SWEEPS)


def _columns(a: torch.Tensor, order: torch.Tensor) -> torch.Tensor:
    return torch.gather(a, -1, order[..., None, :].expand(a.shape))


@decomposes(aten._linalg_eigh.default)
def eigh(a: torch.Tensor, uplo: str = "L", compute_v: bool = True) -> Any:
    lower = (a if uplo == "L" else a.mT).double()
    x, v = _rotated(lower.tril() + lower.tril(-1).mT, True)
    values, order = x.diagonal(dim1=-2, dim2=-1).sort(-1)
    return values.to(a.dtype), _columns(v, order).to(a.dtype) if compute_v else a.new_empty(0)


@decomposes(aten._linalg_svd.default)
def svd(
    a: torch.Tensor, full_matrices: bool = False, compute_uv: bool = True, *, driver: str | None = None
) -> Any:
    if a.shape[-2] < a.shape[-1]:
        u, s, vh = svd(a.mT, full_matrices, compute_uv)
        return (vh.mT.clone(), s, u.mT.clone()) if compute_uv else (u, s, vh)
    x, v = _rotated(a.double(), False)
    s, order = x.square().sum(-2).sqrt().sort(-1, descending=True)
    if not compute_uv:
        return a.new_empty(0), s.to(a.dtype), a.new_empty(0)
    # Q completes what columns of zeros leave open; its columns have the signs of R's diagonal.
    q, r = torch.linalg.qr(_columns(x, order), mode="complete" if full_matrices else "reduced")
    n = a.shape[-1]
    sign = torch.where(r.diagonal(dim1=-2, dim2=-1) < 0, -1.0, 1.0).double()
    u = torch.cat([q[..., :n] * sign[..., None, :], q[..., n:]], dim=-1)
    return u.to(a.dtype), s.to(a.dtype), _columns(v, order).mT.to(a.dtype)


@decomposes(aten.linalg_pinv.atol_rtol_tensor)
def pinv(
    a: torch.Tensor,
    *,
    atol: torch.Tensor | None = None,
    rtol: torch.Tensor | None = None,
    hermitian: bool = False,
) -> torch.Tensor:
    """Singular values up to max(atol, rtol times the largest) count as 0."""
    if 0 in a.shape:
        return a.mT.clone()
    if rtol is None:
        rtol = a.new_full((), torch.finfo(a.dtype).eps * max(a.shape[-2:]))
        rtol = rtol if atol is None else torch.where(atol > 0, 0, rtol)
    if hermitian:
        s, u = eigh(a)
        vh = u.mT
    else:
        u, s, vh = svd(a)
    size = s.abs()
    limit = rtol[..., None] * size.amax(-1, keepdim=True)
    if atol is not None:
        limit = torch.maximum(atol[..., None], limit)
    inverse = torch.where(size > limit, 1 / torch.where(size > limit, s, 1), 0).to(a.dtype)
    return (vh.mT * inverse[..., None, :]) @ u.mT


@decomposes(aten.linalg_matrix_exp.default)
def matrix_exp(a: torch.Tensor) -> torch.Tensor:
    """Taylor's polynomial of degree 18 of A / 2^s, whose norm is at most 1, squared s times (Higham,
    Functions of Matrices, 10.3).
    """
    if 0 in a.shape:
        return a.clone()
    norm = a.abs().sum(-2).amax(-1)[..., None, None]
    squarings = norm.clamp(min=1).log2().ceil()
    x = a * torch.exp2(-squarings)
    identity = torch.eye(a.shape[-1], dtype=a.dtype, device=a.device).expand(a.shape)
    power = identity + x / 18
    for degree in range(17, 0, -1):
        power = identity + x @ power / degree
    for step in range(_SQUARINGS):
        power = torch.where(step < squarings, power @ power, power)
    return power


# exp of a larger norm overflows, or the squarings have lost all digits.
_SQUARINGS = 24

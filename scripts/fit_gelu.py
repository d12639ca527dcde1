"""Fits the polynomials of src/kernels/tile/cpu/gelu_table.h and prints that file; with --half those of
gelu_f16 and gelu_bf16 in src/kernels/tile/cuda/tile_activations.cuh.

Q(t) = erfc(t / sqrt 2) / 2 around each node, in powers of the distance from it, with the least relative
error: weighted least squares whose weights grow where the error is largest. For halves log2 Q(t) as one
polynomial with the least error. Needs numpy.
"""

from __future__ import annotations

import math
import sys

import numpy as np

NODES, SPACING, DEGREE = 32, 0.1875, 6
ROUNDS, POINTS = 60, 400

HEADER = """\
// Written by scripts/fit_gelu.py. The upper tail Q(t) = erfc(t / sqrt 2) / 2 of the normal distribution
// around the nodes t = i * kGeluSpacing: sum over p of kGeluTail[p][i] r^p, r = t - node, is within 2.7e-8 of
// it (relative) for |r| <= kGeluSpacing / 2.
#pragma once

namespace aicf {

constexpr float kGeluSpacing = 0.1875f, kGeluPerSpacing = 5.33333349f;  // the second: 1 / kGeluSpacing
constexpr float kGeluTableEnd = 5.90625f;                               // the last node's reach

constexpr int kGeluNodes = 32, kGeluCoefficients = 7;
alignas(64) constexpr float kGeluTail[kGeluCoefficients][kGeluNodes] = {
"""


def tail(t: np.ndarray) -> np.ndarray:
    return np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in t])


def fit(node: float) -> np.ndarray:
    reach = SPACING / 2 * 1.0001
    low, high = max(node - reach, 0.0), node + reach
    t = (low + high) / 2 + (high - low) / 2 * np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS)
    rows = np.vander((t - node) / reach, DEGREE + 1, increasing=True) / tail(t)[:, None]
    weights, best, least = np.ones(POINTS), np.zeros(DEGREE + 1), math.inf
    for _ in range(ROUNDS):
        found = np.linalg.lstsq(rows * weights[:, None], weights, rcond=None)[0]
        errors = np.abs(rows @ found - 1)
        if errors.max() < least:
            best, least = found, errors.max()
        weights *= 0.5 + errors / errors.max()
        weights /= weights.max()
    return best / reach ** np.arange(DEGREE + 1)


def fit_log_tail(end: float, degree: int) -> tuple[np.ndarray, float]:
    """Coefficients of log2 Q on [0, end], lowest first, and the largest relative error of Q."""
    t = end / 2 * (1 + np.cos(np.pi * (np.arange(POINTS) + 0.5) / POINTS))
    rows, exact = np.polynomial.chebyshev.chebvander(2 * t / end - 1, degree), np.log2(tail(t))
    weights, best, least = np.full(POINTS, 1 / POINTS), np.zeros(degree + 1), math.inf
    for _ in range(3000):
        root = np.sqrt(weights)
        found = np.linalg.lstsq(rows * root[:, None], exact * root, rcond=None)[0]
        errors = np.abs(rows @ found - exact)
        if errors.max() < least:
            best, least = found, errors.max()
        weights *= errors
        weights /= weights.sum()
    chebyshev = np.polynomial.chebyshev.Chebyshev(best, domain=[0, end])
    return chebyshev.convert(kind=np.polynomial.Polynomial).coef, least * math.log(2)


def print_log_tails() -> None:
    for name, end, degree in (("gelu_f16", 5.8, 6), ("gelu_bf16", 13.3, 8)):
        coefficients, error = fit_log_tail(end, degree)
        print(f"{name}: error 2^{math.log2(error):.2f};", ", ".join(f"{x:.9g}f" for x in coefficients[::-1]))


def main() -> None:
    if "--half" in sys.argv[1:]:
        print_log_tails()
        return
    table = np.array([fit(i * SPACING) for i in range(NODES)], np.float64).T
    lines = ["    {" + ", ".join(f"{x:.9g}f" if x % 1 else f"{x:.1f}f" for x in row) + "}" for row in table]
    print(HEADER + ",\n".join(lines) + "};\n\n}  // namespace aicf")


if __name__ == "__main__":
    main()

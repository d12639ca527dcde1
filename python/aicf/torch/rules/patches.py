"""Patches of images as columns, and images as sums of patches."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .pads import padded
from .shape import joined, take
from .table import rule

__all__: list[str] = []

_MOST_PLACES = 25  # of a patch, each a slice; more are left to a gather


def _are_tiles(kernel: Sequence[int], dilation: Sequence[int], stride: Sequence[int]) -> bool:
    return list(kernel) == list(stride) and all(
        d == 1 or k == 1 for k, d in zip(kernel, dilation, strict=True)
    )


def _counts(sizes: Sequence[Any], kernel: Any, dilation: Any, padding: Any, stride: Any) -> list[Any]:
    """Patches along each axis."""
    lists = zip(sizes, kernel, dilation, padding, stride, strict=True)
    return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in lists]


def _numbers(c: Call, sizes: Sequence[Any]) -> None:
    if not all(isinstance(size, int) for size in sizes):
        raise Decompose("images of symbolic sizes")


@rule("im2col")
def _im2col(c: Call, x: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> SymTensor:
    """A slice for each place of a patch; patches that tile the image are a view of it."""
    _numbers(c, x.shape[-2:])
    lead = list(x.shape)[:-2]
    height, width = _counts(x.shape[-2:], kernel, dilation, padding, stride)
    x = padded(c, x, [padding[1], padding[1], padding[0], padding[0]], "constant")
    if _are_tiles(kernel, dilation, stride):
        x = take(take(x, x.ndim - 2, 0, height * kernel[0]), x.ndim - 1, 0, width * kernel[1])
        tiles = ops.reshape(x, shape=[*lead, height, kernel[0], width, kernel[1]])
        n = len(lead)
        return ops.reshape(ops.transpose(tiles, perm=[*range(n), n + 1, n + 3, n, n + 2]), shape=c.shape)
    if math.prod(kernel) > _MOST_PLACES:
        raise Decompose("a gather is shorter")
    parts = []
    for i, j in itertools.product(*map(range, kernel)):
        rows = take(x, x.ndim - 2, i * dilation[0], height, stride[0])
        part = take(rows, x.ndim - 1, j * dilation[1], width, stride[1])
        parts.append(ops.reshape(part, shape=[*lead, 1, height, width]))
    return ops.reshape(joined(parts, len(lead)), shape=c.shape)


@rule("col2im")
def _col2im(
    c: Call, grad: Any, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any
) -> SymTensor:
    """Every position sums its places in the patches over it, in their order."""
    _numbers(c, size)
    lead, n = list(c.shape)[:-2], c.out.ndim - 2
    height, width = _counts(size, kernel, dilation, padding, stride)
    apart = ops.reshape(grad, shape=[*lead, *kernel, height, width])
    exact = [height * kernel[0], width * kernel[1]] == list(size)
    if _are_tiles(kernel, dilation, stride) and exact and not any(padding):
        return ops.reshape(ops.transpose(apart, perm=[*range(n), n + 2, n, n + 3, n + 1]), shape=c.shape)
    if list(stride) != [1, 1] or math.prod(kernel) > _MOST_PLACES:
        raise Decompose("places that a step apart patches miss, or a scatter is shorter")
    reach = [d * (k - 1) for k, d in zip(kernel, dilation, strict=True)]
    apart = padded(c, apart, [reach[1], reach[1], reach[0], reach[0]], "constant")

    def part(place: tuple[int, ...]) -> SymTensor:
        given = take(take(apart, n, place[0], 1), n + 1, place[1], 1)
        for a in range(2):
            start = padding[a] - place[a] * dilation[a] + reach[a]
            given = take(given, n + 2 + a, start, size[a])
        return c.summed(ops.reshape(given, shape=c.shape))

    return c.cast(functools.reduce(ops.add, map(part, itertools.product(*map(range, kernel)))))

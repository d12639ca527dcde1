"""Views and data movement. torch's aliases have no meaning in a functional graph: every view is a value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch.fx.experimental.symbolic_shapes import statically_known_true

from ... import ops
from ..._aicf import dim_max
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .table import rule

__all__ = ["axis_of", "joined", "moved", "take", "with_zeros"]


def axis_of(axis: int, rank: int) -> int:
    return axis % rank if rank else 0


def take(x: SymTensor, axis: int, start: Any, size: Any, step: int = 1) -> SymTensor:
    """`size` elements along an axis from `start` on."""
    starts: list[Any] = [0] * x.ndim
    limits, steps = list(x.shape), [1] * x.ndim
    starts[axis], steps[axis] = start, step
    limits[axis] = start + (size - 1) * step + 1 if not (isinstance(size, int) and size == 0) else start
    if all(s == 0 for s in starts) and limits == list(x.shape) and step == 1:
        return x
    return ops.slice(x, starts=starts, limits=limits, steps=steps)


def moved(x: SymTensor, source: int, target: int) -> SymTensor:
    """`x` with one axis at another place."""
    perm = [i for i in range(x.ndim) if i != source]
    perm.insert(target, source)
    return x if perm == sorted(perm) else ops.transpose(x, perm=perm)


def squeezed(x: SymTensor, axis: int) -> SymTensor:
    return ops.reshape(x, shape=[s for i, s in enumerate(x.shape) if i != axis])


_RESHAPES = (
    "view reshape _unsafe_view _reshape_alias unsqueeze squeeze squeeze.dim squeeze.dims flatten.using_ints "
    "ravel unflatten.int view_copy unsqueeze_copy squeeze_copy squeeze_copy.dim squeeze_copy.dims "
    "prims.reshape prims.squeeze prims.collapse prims.split_dim prims.collapse_view prims.view_element_type "
    "_reshape_copy view_as reshape_as atleast_1d atleast_2d atleast_3d"
).split()


@rule(*_RESHAPES)
def _reshape(c: Call, x: Any, *_: Any, **__: Any) -> SymTensor:
    return x if list(x.shape) == c.shape else ops.reshape(x, shape=c.shape)


@rule("view.dtype")
def _bit_cast(c: Call, x: Any, dtype: Any) -> SymTensor:
    if c.dtype != x.dtype:
        raise Decompose("bits of one type read as another")
    return x


@rule("permute", "permute_copy", "prims.transpose")
def _permute(c: Call, x: Any, dims: Sequence[int]) -> SymTensor:
    perm = [axis_of(d, x.ndim) for d in dims]
    return x if perm == sorted(perm) else ops.transpose(x, perm=perm)


@rule("transpose.int", "transpose_copy.int", "swapaxes", "swapdims")
def _transpose(c: Call, x: Any, first: int, second: int) -> SymTensor:
    perm = list(range(x.ndim))
    if not perm:
        return x
    perm[first], perm[second] = perm[second], perm[first]
    return _permute(c, x, perm)


@rule("t", "t_copy", "numpy_T", "mT", "adjoint", "matrix_H", "mH")
def _t(c: Call, x: Any) -> SymTensor:
    if x.ndim < 2:
        return x
    return (
        _permute(c, x, list(range(x.ndim))[::-1])
        if c.node.target._opname == "numpy_T"
        else x.swapaxes(-1, -2)
    )


@rule("expand", "expand_copy", "expand_as", "broadcast_to", "prims.broadcast_in_dim")
def _expand(c: Call, x: Any, *args: Any, **_: Any) -> SymTensor:
    if c.node.target._opname == "broadcast_in_dim":
        sizes: list[Any] = [1] * len(c.shape)
        for axis, size in zip(args[1], x.shape, strict=True):
            sizes[axis] = size
        x = ops.reshape(x, shape=sizes)
    return x if list(x.shape) == c.shape else ops.broadcast_to(x, shape=c.shape)


def _start(start: Any, size: Any) -> Any:
    """Where a slice begins: negative values count from the end, and both ends clamp."""
    if start is None:
        return 0
    if not isinstance(start, int):
        return start
    if start < 0:
        return max(size + start, 0) if isinstance(size, int) else size + start
    return min(start, size) if isinstance(size, int) else start


@rule("slice.Tensor", "slice_copy.Tensor")
def _slice(c: Call, x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> SymTensor:
    axis = axis_of(dim, x.ndim)
    if isinstance(c.shape[axis], int) and c.shape[axis] == 0:
        return take(x, axis, 0, 0)
    return take(x, axis, _clamped_start(c, start, x.shape[axis], axis), c.shape[axis], step)


def _clamped_start(c: Call, start: Any, size: Any, axis: int) -> Any:
    """As `_start`, also where a symbolic size may be shorter than what is counted from its end."""
    if not isinstance(start, int) or start >= 0 or isinstance(size, int):
        return _start(start, size)
    first = c.fakes[0].shape[axis] + start
    if statically_known_true(first >= 0):
        return size + start
    return 0 if statically_known_true(first <= 0) else dim_max(size + start, 0)


@rule("select.int", "select_copy.int")
def _select(c: Call, x: Any, dim: int, index: Any) -> SymTensor:
    axis = axis_of(dim, x.ndim)
    return squeezed(take(x, axis, _start(index, x.shape[axis]), 1), axis)


@rule("narrow")
def _narrow(c: Call, x: Any, dim: int, start: Any, length: Any) -> SymTensor:
    if isinstance(start, SymTensor):
        raise Decompose("a start that is a tensor")
    axis = axis_of(dim, x.ndim)
    return take(x, axis, _start(start, x.shape[axis]), c.shape[axis])


_SPLITS = (
    "split.Tensor split.sizes split_with_sizes chunk split_copy.Tensor split_with_sizes_copy "
    "tensor_split.sections tensor_split.indices unsafe_split.Tensor unsafe_chunk unsafe_split_with_sizes"
).split()


@rule(*_SPLITS)
def _split(c: Call, x: Any, _how: Any = None, dim: int = 0, **__: Any) -> list[SymTensor]:
    axis, start, parts = axis_of(dim, x.ndim), 0, []
    for index in range(len(c.out)):
        size = c.shape_of(index)[axis]
        parts.append(take(x, axis, start, size))
        start = start + size
    return parts


@rule("unbind.int", "unbind_copy.int")
def _unbind(c: Call, x: Any, dim: int = 0) -> list[SymTensor]:
    axis = axis_of(dim, x.ndim)
    return [squeezed(take(x, axis, i, 1), axis) for i in range(len(c.out))]


@rule("cat", "concat", "concatenate", "prims.cat")
def _cat(c: Call, tensors: Sequence[Any], dim: int = 0) -> SymTensor:
    kept = [c.cast(t) for t in tensors if not (t.ndim == 1 and t.shape == (0,) and len(c.shape) != 1)]
    return kept[0] if len(kept) == 1 else ops.concat(kept, axis=axis_of(dim, len(c.shape)))


@rule("stack")
def _stack(c: Call, tensors: Sequence[Any], dim: int = 0) -> SymTensor:
    axis = axis_of(dim, len(c.shape))
    return ops.concat([c.cast(t).expand_dims(axis) for t in tensors], axis=axis)


@rule("flip", "prims.rev")
def _flip(c: Call, x: Any, dims: Sequence[int]) -> SymTensor:
    axes = sorted({axis_of(d, x.ndim) for d in dims})
    return ops.reverse(x, axes=axes) if axes and x.ndim else x


@rule("roll")
def _roll(c: Call, x: Any, shifts: Any, dims: Any = ()) -> SymTensor:
    shifts = [shifts] if isinstance(shifts, int) else list(shifts)
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims:
        flat = ops.reshape(x, shape=[x.size])
        return ops.reshape(_roll_axis(flat, shifts[0], 0), shape=c.shape) if x.ndim else x
    for shift, dim in zip(shifts, dims, strict=True):
        x = _roll_axis(x, shift, axis_of(dim, x.ndim))
    return x


def _roll_axis(x: SymTensor, shift: Any, axis: int) -> SymTensor:
    size = x.shape[axis]
    if size == 0:
        return x
    first = shift % size
    if isinstance(first, int) and first == 0:
        return x
    return ops.concat([take(x, axis, size - first, first), take(x, axis, 0, size - first)], axis=axis)


@rule("repeat", "tile")
def _repeat(c: Call, x: Any, repeats: Sequence[Any]) -> SymTensor:
    """[a, b] repeated (m, n): [1, a, 1, b] → [m, a, n, b] → [m a, n b]."""
    rank = len(c.shape)
    repeats = [1] * (rank - len(repeats)) + list(repeats)
    sizes = [1] * (rank - x.ndim) + list(x.shape)
    if all(isinstance(r, int) and r == 1 for r in repeats):
        return ops.reshape(x, shape=c.shape)
    apart = [s for size in sizes for s in (1, size)]
    wide = [s for pair in zip(repeats, sizes, strict=True) for s in pair]
    return ops.reshape(ops.broadcast_to(ops.reshape(x, shape=apart), shape=wide), shape=c.shape)


@rule("select_scatter")
def _select_scatter(c: Call, x: Any, source: Any, dim: int, index: Any) -> SymTensor:
    axis = axis_of(dim, x.ndim)
    return _replaced(x, c.cast(source).expand_dims(axis), axis, _start(index, x.shape[axis]))


def _replaced(x: SymTensor, source: SymTensor, axis: int, start: Any) -> SymTensor:
    """`x` with `source` in place of the elements from `start` on."""
    end = start + source.shape[axis]
    return joined([take(x, axis, 0, start), source, take(x, axis, end, x.shape[axis] - end)], axis)


def joined(parts: Sequence[SymTensor], axis: int) -> SymTensor:
    """A concat of the parts that are not empty."""
    kept = [p for p in parts if not (isinstance(p.shape[axis], int) and p.shape[axis] == 0)] or parts[:1]
    return kept[0] if len(kept) == 1 else ops.concat(kept, axis=axis)


@rule("slice_scatter")
def _slice_scatter(
    c: Call, x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> SymTensor:
    axis = axis_of(dim, x.ndim)
    first = _clamped_start(c, start, x.shape[axis], axis)
    source = c.cast(source)
    if step == 1:
        return _replaced(x, source, axis, first)
    if not all(isinstance(size, int) for size in (source.shape[axis], x.shape[axis], first)):
        raise Decompose("a slice with a step of a symbolic size")
    return x if source.shape[axis] == 0 else _every_replaced(x, source, axis, first, step)


def _every_replaced(x: SymTensor, source: SymTensor, axis: int, first: int, step: int) -> SymTensor:
    """`x` with `source` in place of every `step`th element from `first` on."""
    size, count = x.shape[axis], source.shape[axis]
    if first == 0 and count * step == size:  # the first column of x as rows
        rows = ops.reshape(x, shape=[*x.shape[:axis], count, step, *x.shape[axis + 1 :]])
        column = source.expand_dims(axis + 1)
        return _flat_rows(ops.concat([column, take(rows, axis + 1, 1, step - 1)], axis=axis + 1), axis)
    line = [1] * x.ndim
    line[axis] = count
    written = ops.broadcast_to(x.graph.scalar(True, "bool"), shape=line)
    return ops.select(*(_spaced(v, axis, first, step, size) for v in (written, source)), x)


def _spaced(x: SymTensor, axis: int, first: int, step: int, size: int) -> SymTensor:
    """Zeros of `size` along an axis with `x` at every `step`th element from `first` on: a column of rows."""
    column = x.expand_dims(axis + 1)
    low, high = [0] * column.ndim, [0] * column.ndim
    low[axis], low[axis + 1] = divmod(first, step)
    high[axis], high[axis + 1] = -(-size // step) - low[axis] - x.shape[axis], step - 1 - low[axis + 1]
    return take(_flat_rows(ops.pad(column, low=low, high=high), axis), axis, 0, size)


def _flat_rows(rows: SymTensor, axis: int) -> SymTensor:
    """Rows [count, step] at an axis as [count * step]."""
    shape = list(rows.shape)
    shape[axis : axis + 2] = [shape[axis] * shape[axis + 1]]
    return ops.reshape(rows, shape=shape)


def with_zeros(x: SymTensor, axis: int, start: Any, size: Any) -> SymTensor:
    """Zeros of `size` along an axis with `x` from `start` on."""
    low: list[Any] = [0] * x.ndim
    high: list[Any] = [0] * x.ndim
    low[axis], high[axis] = start, size - start - x.shape[axis]
    return x if start == 0 and high[axis] == 0 else ops.pad(x, low=low, high=high)


@rule("slice_backward")
def _slice_backward(
    c: Call, grad: Any, sizes: Sequence[Any], dim: int, start: Any, end: Any, step: int
) -> SymTensor:
    """The gradient between zeros: as a column of rows of `step` where the slice has a step."""
    axis = axis_of(dim, grad.ndim)
    size, count = c.shape[axis], grad.shape[axis]
    first = _clamped_start(c, start, size, axis)
    if isinstance(count, int) and count == 0:
        return c.full(c.shape, 0)
    if step == 1:
        return with_zeros(grad, axis, first, size)
    if all(isinstance(value, int) for value in (size, count, first)):
        return _spaced(grad, axis, first, step, size)
    rows = with_zeros(grad.expand_dims(axis + 1), axis + 1, 0, step)
    return with_zeros(take(_flat_rows(rows, axis), axis, 0, (count - 1) * step + 1), axis, first, size)


@rule("unfold", "unfold_copy")
def _unfold(c: Call, x: Any, dim: int, size: int, step: int) -> SymTensor:
    """Windows along an axis: a gather at start + offset; the offset becomes the last axis."""
    if x.ndim == 0:
        return ops.reshape(x, shape=c.shape)
    axis = axis_of(dim, x.ndim)
    count = c.shape[axis]
    starts = ops.iota(shape=[count, size], axis=0, dtype="i64") * step
    windows = ops.gather(x, starts + ops.iota(shape=[count, size], axis=1, dtype="i64"), axis=axis)
    return moved(windows, axis + 1, windows.ndim - 1)


@rule("as_strided", "as_strided_copy", "prims.as_strided")
def _as_strided(
    c: Call, x: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> SymTensor:
    """Elements by their place in memory, which is known where the operand is dense and row-major."""
    fake = c.fakes[0]
    if not fake.is_contiguous() or fake.storage_offset() != 0:
        raise Decompose("as_strided of a tensor that is a view")
    if 0 in c.shape:
        return c.full(c.shape, 0)
    places = _places(c.shape, stride, storage_offset or 0, c)
    return ops.gather(ops.reshape(x, shape=[x.size]), places, axis=0)


def _places(sizes: list[Any], stride: Sequence[Any], offset: Any, c: Call) -> SymTensor:
    """Places in memory of the elements of a strided view."""
    if not all(isinstance(v, int) for v in (*sizes, *stride, offset)):
        raise Decompose("as_strided with symbolic sizes")
    places = ops.broadcast_to(c.number(offset, "i64"), shape=sizes)
    for axis, step in enumerate(stride):
        places = places + ops.iota(shape=sizes, axis=axis, dtype="i64") * step
    return places


@rule("as_strided_scatter", "prims.as_strided_scatter")
def _as_strided_scatter(
    c: Call, x: Any, source: Any, size: Sequence[Any], stride: Sequence[Any], storage_offset: Any = None
) -> SymTensor:
    fake = c.fakes[0]
    if not fake.is_contiguous() or fake.storage_offset() != 0:
        raise Decompose("as_strided_scatter of a tensor that is a view")
    places = _places(list(size), stride, storage_offset or 0, c)
    flat = ops.reshape(x, shape=[x.size])
    count = [places.size]
    source = ops.reshape(ops.broadcast_to(c.cast(source), shape=list(size)), shape=count)
    return ops.reshape(
        ops.scatter_elements(flat, ops.reshape(places, shape=count), source, axis=0), shape=c.shape
    )


@rule("diagonal_scatter")
def _diagonal_scatter(
    c: Call, x: Any, source: Any, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> SymTensor:
    """The source along a diagonal: row i of dim1 and column i + offset of dim2."""
    first, second = axis_of(dim1, x.ndim), axis_of(dim2, x.ndim)
    rows, columns = (ops.iota(shape=list(x.shape), axis=a, dtype="i64") for a in (first, second))
    on = ops.eq(columns, rows + offset)
    order = ops.min(rows, columns)
    source = c.cast(source)
    if 0 in source.shape:
        return x
    # The source's last axis is the diagonal; put it where `first` is and spread it over `second`.
    rest = [a for a in range(x.ndim) if a not in (first, second)]
    spread = ops.broadcast_to(source.expand_dims(source.ndim), shape=[*source.shape, x.shape[second]])
    perm = [
        rest.index(a) if a in rest else (len(rest) if a == first else len(rest) + 1) for a in range(x.ndim)
    ]
    table = ops.transpose(spread, perm=perm)
    order = ops.min(order, c.number(table.shape[first] - 1, "i64"))
    return ops.select(on, ops.gather_elements(table, order, axis=first), x)

"""SymTensor: a value in a graph being traced, with the operators of an array."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from . import _aicf
from ._aicf import Dim, printable_name
from ._dtypes import FLOATS, dtype_name, is_float
from ._indexing import take_index
from .errors import make_error

if TYPE_CHECKING:
    from .tracing import Graph

__all__ = ["SymTensor"]

Size = int | Dim
Axes = int | Sequence[int] | None
_UFUNC_OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "divide": operator.truediv,
    "true_divide": operator.truediv,
    "floor_divide": operator.floordiv,
    "remainder": operator.mod,
    "power": operator.pow,
    "matmul": operator.matmul,
    "less": operator.lt,
    "less_equal": operator.le,
    "greater": operator.gt,
    "greater_equal": operator.ge,
    "equal": operator.eq,
    "not_equal": operator.ne,
    "bitwise_and": operator.and_,
    "bitwise_or": operator.or_,
    "bitwise_xor": operator.xor,
}


class SymTensor:
    """A traced value. Its dtype and shape are known, its elements are not; sizes are ints or `Dim`s."""

    __slots__ = ("graph", "id")

    def __init__(self, graph: Graph, value_id: int) -> None:
        self.graph = graph
        self.id = value_id

    @property
    def dtype(self) -> str:
        return self.graph.raw.dtype(self.id)

    @property
    def shape(self) -> tuple[Size, ...]:
        return self.graph.raw.shape(self.id)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> Size:
        return math.prod(self.shape)

    @property
    def T(self) -> SymTensor:
        return self.transpose()

    def __repr__(self) -> str:
        return f"SymTensor({self.dtype}[{', '.join(printable_name(str(size)) for size in self.shape)}])"

    def _op(self, name: str, *others: Any, **attrs: Any) -> SymTensor:
        operands = [self, *(self.graph.lift(other, self) for other in others)]
        return self.graph.node(name, operands, attrs)[0]

    def _reflected(self, name: str, other: Any) -> SymTensor:
        return self.graph.node(name, [self.graph.lift(other, self), self], {})[0]

    # --- arithmetic

    def __add__(self, other: Any) -> SymTensor:
        return self._op("add", other)

    def __radd__(self, other: Any) -> SymTensor:
        return self._reflected("add", other)

    def __sub__(self, other: Any) -> SymTensor:
        return self._op("sub", other)

    def __rsub__(self, other: Any) -> SymTensor:
        return self._reflected("sub", other)

    def __mul__(self, other: Any) -> SymTensor:
        return self._op("mul", other)

    def __rmul__(self, other: Any) -> SymTensor:
        return self._reflected("mul", other)

    def __truediv__(self, other: Any) -> SymTensor:
        return self._float_only("/")._op("div", other)

    def __rtruediv__(self, other: Any) -> SymTensor:
        return self._float_only("/")._reflected("div", other)

    def __floordiv__(self, other: Any) -> SymTensor:
        return _floor_divide(self, self.graph.lift(other, self))

    def __rfloordiv__(self, other: Any) -> SymTensor:
        return _floor_divide(self.graph.lift(other, self), self)

    def __mod__(self, other: Any) -> SymTensor:
        return self._op("mod", other)

    def __rmod__(self, other: Any) -> SymTensor:
        return self._reflected("mod", other)

    def __pow__(self, other: Any) -> SymTensor:
        return self._op("pow", other)

    def __rpow__(self, other: Any) -> SymTensor:
        return self._reflected("pow", other)

    def __pos__(self) -> SymTensor:
        return self

    def __neg__(self) -> SymTensor:
        return self._op("neg")

    def __abs__(self) -> SymTensor:
        return self._op("abs")

    def __matmul__(self, other: Any) -> SymTensor:
        return _matmul(self, self.graph.lift(other, self))

    def __rmatmul__(self, other: Any) -> SymTensor:
        return _matmul(self.graph.lift(other, self), self)

    # --- logic and comparisons

    def __and__(self, other: Any) -> SymTensor:
        return self._op("bit_and", other)

    def __rand__(self, other: Any) -> SymTensor:
        return self._reflected("bit_and", other)

    def __or__(self, other: Any) -> SymTensor:
        return self._op("bit_or", other)

    def __ror__(self, other: Any) -> SymTensor:
        return self._reflected("bit_or", other)

    def __xor__(self, other: Any) -> SymTensor:
        return self._op("bit_xor", other)

    def __rxor__(self, other: Any) -> SymTensor:
        return self._reflected("bit_xor", other)

    def __invert__(self) -> SymTensor:
        return self._op("logical_not" if self.dtype == "bool" else "bit_not")

    def __lshift__(self, other: Any) -> SymTensor:
        return self._op("shift_left", other)

    def __rlshift__(self, other: Any) -> SymTensor:
        return self._reflected("shift_left", other)

    def __rshift__(self, other: Any) -> SymTensor:
        return self._op("shift_right", other)

    def __rrshift__(self, other: Any) -> SymTensor:
        return self._reflected("shift_right", other)

    def __lt__(self, other: Any) -> SymTensor:
        return self._op("lt", other)

    def __le__(self, other: Any) -> SymTensor:
        return self._op("le", other)

    def __gt__(self, other: Any) -> SymTensor:
        return self._op("gt", other)

    def __ge__(self, other: Any) -> SymTensor:
        return self._op("ge", other)

    def __eq__(self, other: object) -> SymTensor:  # type: ignore[override]
        return self._op("eq", other)

    def __ne__(self, other: object) -> SymTensor:  # type: ignore[override]
        return self._op("ne", other)

    __hash__ = object.__hash__

    # --- shape

    def __getitem__(self, key: Any) -> SymTensor:
        return take_index(self, key)

    def reshape(self, *shape: Any) -> SymTensor:
        """Same elements in row-major order; one size may be -1."""
        sizes = [_plain(size) for size in _spread(shape)]
        holes = [i for i, size in enumerate(sizes) if isinstance(size, int) and size == -1]
        if len(holes) == 1:
            rest = math.prod(size for i, size in enumerate(sizes) if i != holes[0])
            whole = _aicf.dim_divide(self.size, rest) if rest != 0 else None
            if whole is None:
                raise make_error(
                    "bad_shape",
                    "the -1 cannot be worked out",
                    op="reshape",
                    value=str(sizes),
                    actual=str(list(self.shape)),
                )
            sizes[holes[0]] = whole
        return self._op("reshape", shape=sizes)

    def transpose(self, *perm: Any) -> SymTensor:
        """Result axis i is axis perm[i]; without arguments all axes are reversed."""
        axes = _spread(perm) or list(reversed(range(self.ndim)))
        return self._op("transpose", perm=[_axis("transpose", axis, self.ndim) for axis in axes])

    def swapaxes(self, first: int, second: int) -> SymTensor:
        perm = list(range(self.ndim))
        first, second = (_axis("swapaxes", axis, self.ndim) for axis in (first, second))
        perm[first], perm[second] = perm[second], perm[first]
        return self.transpose(perm)

    def broadcast_to(self, *shape: Any) -> SymTensor:
        return self._op("broadcast_to", shape=[_plain(size) for size in _spread(shape)])

    def squeeze(self, axis: int) -> SymTensor:
        axis = _axis("squeeze", axis, self.ndim)
        if self.shape[axis] != 1:
            raise make_error(
                "bad_shape", "only an axis of size 1 can go", op="squeeze", actual=str(self.shape[axis])
            )
        return self._op("reshape", shape=[size for i, size in enumerate(self.shape) if i != axis])

    def expand_dims(self, axis: int) -> SymTensor:
        sizes = list(self.shape)
        sizes.insert(_axis("expand_dims", axis, self.ndim + 1), 1)
        return self._op("reshape", shape=sizes)

    def astype(self, dtype: str) -> SymTensor:
        name = dtype_name(dtype)
        return self if name == self.dtype else self._op("cast", dtype=name)

    # --- reductions over `axis`: one, several, or all; as numpy's, sums and products of integers are i64

    def sum(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self._widened()._reduce("reduce_sum", axis, keepdims)

    def prod(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self._widened()._reduce("reduce_prod", axis, keepdims)

    def max(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self._reduce("reduce_max", axis, keepdims)

    def min(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self._reduce("reduce_min", axis, keepdims)

    def mean(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self._float_only("mean")._reduce("reduce_mean", axis, keepdims)

    def var(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        centred = self - self.mean(axis, keepdims=True)
        return (centred * centred).mean(axis, keepdims)

    def std(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self.var(axis, keepdims)._op("sqrt")

    def any(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self.astype("bool")._reduce("reduce_max", axis, keepdims)

    def all(self, axis: Axes = None, keepdims: bool = False) -> SymTensor:
        return self.astype("bool")._reduce("reduce_min", axis, keepdims)

    def argmax(self, axis: int, keepdims: bool = False) -> SymTensor:
        return self._op("argmax", axis=_plain(axis), keepdims=keepdims)

    def argmin(self, axis: int, keepdims: bool = False) -> SymTensor:
        return self._op("argmin", axis=_plain(axis), keepdims=keepdims)

    def _reduce(self, op: str, axis: Axes, keepdims: bool) -> SymTensor:
        several = axis if isinstance(axis, (tuple, list, range)) else [axis]
        axes = range(self.ndim) if axis is None else [_axis(op, one, self.ndim) for one in several]
        return self._op(op, axes=list(axes), keepdims=keepdims)

    def _widened(self) -> SymTensor:
        """As numpy adds and multiplies: integers and bools in i64."""
        return self if is_float(self.dtype) else self.astype("i64")

    def _float_only(self, what: str) -> SymTensor:
        if is_float(self.dtype):
            return self
        raise make_error(
            "bad_dtype",
            f"{what} needs floats",
            actual=self.dtype,
            expected=", ".join(FLOATS),
            remedy="use // or .astype",
        )

    # --- what only a real array can do

    def __array__(self, *_: Any, **__: Any) -> NoReturn:
        self._not_real("as a numpy array", "use aicf.ops or the operators instead of numpy functions")

    def __array_ufunc__(self, ufunc: Any, method: str, *operands: Any, **options: Any) -> SymTensor:
        """`array + traced` comes here; functions of numpy that are no operator are refused."""
        apply = _UFUNC_OPERATORS.get(ufunc.__name__)
        if method != "__call__" or options or apply is None or len(operands) != 2:
            self._not_real(
                f"in numpy.{ufunc.__name__}", "use aicf.ops or the operators instead of numpy functions"
            )
        return apply(self.graph.lift(operands[0], self), operands[1])

    def __dlpack__(self, *_: Any, **__: Any) -> NoReturn:
        self._not_real("as an array", "use aicf.ops instead of another library's functions")

    def __bool__(self) -> NoReturn:
        self._not_real(
            "as a truth value", "use aicf.ops.select, which chooses element by element when running"
        )

    def __int__(self) -> NoReturn:
        self._not_real("as an int", "work with the tensor; a size is in .shape")

    def __index__(self) -> NoReturn:
        self._not_real("as an index", "use aicf.ops.gather")

    def __float__(self) -> NoReturn:
        self._not_real("as a float", "work with the tensor")

    def __len__(self) -> int:
        if self.ndim == 0:
            raise TypeError("len() of a scalar")
        size = self.shape[0]
        if not isinstance(size, int):
            self._not_real(f"for its length, which is the symbolic size {size}", "use .shape[0]")
        return size

    def __iter__(self) -> Iterator[SymTensor]:
        return (self[i] for i in range(len(self)))

    def _not_real(self, how: str, remedy: str) -> NoReturn:
        raise make_error("array_in_trace", f"a traced value was used {how}", value=repr(self), remedy=remedy)


def _spread(sizes: tuple[Any, ...]) -> list[Any]:
    """f(2, 3) and f((2, 3)) mean the same."""
    return list(sizes[0]) if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)) else list(sizes)


def _plain(number: Any) -> Any:
    """An int for what counts as one, such as numpy.int64."""
    return operator.index(number) if hasattr(number, "__index__") else number


def _axis(op: str, axis: Any, rank: int) -> int:
    axis = _plain(axis)
    if isinstance(axis, int) and -rank <= axis < rank:
        return axis % rank
    raise make_error(
        "bad_attribute",
        "there is no such axis",
        op=op,
        value=repr(axis),
        expected=f"{-rank} to {rank - 1}" if rank > 0 else "no axis: it is a scalar",
    )


def _floor_divide(x: SymTensor, y: SymTensor) -> SymTensor:
    """As numpy's: the quotient of what is left when the remainder is taken away, which no rounding lifts to
    the next whole number."""
    rest = x._op("rem", y)
    down = (rest != 0) & ((rest < 0) != (y < 0))
    if not is_float(x.dtype):
        return x._op("div", y) - down.astype(x.dtype)
    quotient = ((x - rest)._op("div", y) - down.astype(x.dtype))._op("round")
    return (y != 0)._op("select", quotient, x._op("div", y))


def _matmul(x: SymTensor, y: SymTensor) -> SymTensor:
    """numpy's rules: a vector on the left is a row, on the right a column, and that axis goes afterwards."""
    row, column = x.ndim == 1, y.ndim == 1
    result = (x.expand_dims(0) if row else x)._op("matmul", y.expand_dims(1) if column else y)
    if row:
        result = result.squeeze(result.ndim - 2)
    return result.squeeze(result.ndim - 1) if column else result

"""Ops of the user's own: a rule for the results, a function for the CPU, a CUDA or Triton kernel for GPUs.

>>> double = aicf.register_op("my::double", results=lambda x: (x.dtype, x.shape), cpu=double_it)
>>> y = double(x)  # when tracing; torch.ops.my.double and ONNX nodes of domain "my" become it too
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from . import _aicf
from ._apply import apply
from ._build import check_type
from ._dtypes import dtype_name
from .errors import make_error
from .triton_kernel import TritonKernel, compile_triton

__all__ = ["CudaKernel", "CustomOp", "TensorType", "TritonKernel", "register_op", "registered_op"]


class TensorType(NamedTuple):
    """What a rule sees of an operand: sizes are ints or `Dim`s."""

    dtype: str
    shape: tuple[Any, ...]


@dataclass(frozen=True)
class CudaKernel:
    """A kernel of a custom op: CUDA text with `extern "C" __global__ void function(...)`.

    It takes the addresses of the inputs and the outputs, dense and row-major; then int64_t values: those of
    `params` (by default the element count of the first result) and the op's whole attributes; then its real
    attributes as doubles. It calls aicf::wait_for_inputs() before its first access to memory.

    grid     blocks, from the types of the results: one to three sizes. By default a thread for each element
             of the first result.
    """

    text: str
    function: str
    block: int = 128
    shared_bytes: int = 0
    grid: Callable[..., Sequence[Any]] | None = None
    params: Callable[[Sequence[TensorType], Sequence[TensorType]], Sequence[Any]] | None = None


Results = Callable[..., Any]


class CustomOp:
    """A registered op, called with tensors of a trace and its attributes by name."""

    def __init__(
        self,
        name: str,
        results: Results,
        attributes: Mapping[str, int | float],
        cuda: CudaKernel | TritonKernel | None,
    ) -> None:
        self.name = name
        self.attributes = dict(attributes)
        self._results = results
        self._cuda = cuda

    def __call__(self, *operands: Any, **attributes: int | float) -> Any:
        for given in attributes:
            if given not in self.attributes:
                raise make_error(
                    "bad_attribute",
                    "the custom op has no such attribute",
                    op=self.name,
                    value=given,
                    expected=", ".join(self.attributes),
                )
        types = [TensorType(x.dtype, tuple(x.shape)) for x in operands]
        values = [attributes.get(name, default) for name, default in self.attributes.items()]
        made = apply("custom", operands, self.node_attributes(types, values))
        return made[0] if len(made) == 1 else made

    def result_types(self, types: Sequence[TensorType], values: Sequence[int | float]) -> list[TensorType]:
        rule = self._results(*types, **dict(zip(self.attributes, values, strict=True)))
        pair = isinstance(rule, (tuple, list)) and len(rule) == 2
        rows = [rule] if pair and not isinstance(rule[0], (tuple, list)) else rule
        rows = [tuple(row) if _is_list(row) else () for row in rows] if _is_list(rows) else []
        if not rows or not all(len(row) == 2 and _is_list(row[1]) for row in rows):
            raise make_error(
                "bad_option",
                "the rule of a custom op gives no types",
                op=self.name,
                value="results",
                expected="(dtype, shape) of the result, or a list of them",
                actual=repr(rule)[:80],
            )
        return [TensorType(dtype_name(dtype), tuple(shape)) for dtype, shape in rows]

    def node_attributes(self, types: Sequence[Any], values: Sequence[int | float]) -> dict[str, Any]:
        """The attributes of our op `custom` for operands of these types."""
        types = [TensorType(*type_) for type_ in types]
        whole = [isinstance(default, int) for default in self.attributes.values()]
        values = [int(v) if w else float(v) for v, w in zip(values, whole, strict=True)]
        results = self.result_types(types, values)
        attrs: dict[str, Any] = {
            "name": self.name,
            "dtypes": ",".join(result.dtype for result in results),
            "ranks": [len(result.shape) for result in results],
            "sizes": [size for result in results for size in result.shape],
            "params": [v for v, w in zip(values, whole, strict=True) if w],
            "fparams": [v for v, w in zip(values, whole, strict=True) if not w],
        }
        return attrs if self._cuda is None else attrs | self._kernel(self._cuda, types, results)

    def _kernel(
        self, cuda: CudaKernel | TritonKernel, types: Sequence[TensorType], results: Sequence[TensorType]
    ) -> dict[str, Any]:
        count = math.prod(results[0].shape)
        params = [count] if cuda.params is None else list(cuda.params(types, results))
        if isinstance(cuda, TritonKernel):
            whole = sum(isinstance(default, int) for default in self.attributes.values())
            dtypes = [tensor.dtype for tensor in (*types, *results)]
            reals = len(self.attributes) - whole
            code = compile_triton(cuda, dtypes, len(params) + whole, reals, self.name)
            grid = list(cuda.grid(*results))
        else:
            code = cuda
            grid = [-(-count // cuda.block)] if cuda.grid is None else list(cuda.grid(*results))
        return {
            "cuda": code.text,
            "function": code.function,
            "grid": grid,
            "block": code.block,
            "shared_bytes": code.shared_bytes,
            "cuda_params": params,
        }


def _is_list(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))


_ops: dict[str, CustomOp] = {}


def register_op(
    name: str,
    *,
    results: Results,
    attributes: Mapping[str, int | float] | None = None,
    cpu: Any = None,
    cuda: CudaKernel | TritonKernel | None = None,
    checked: bool = False,
) -> CustomOp:
    """Registers an op for the life of the process, for tracing, torch and ONNX.

    name        "domain::op": torch.ops.domain.op and ONNX nodes `op` of that domain are this op.
    results     the rule: from a TensorType for each operand and the attributes by name, (dtype, shape) of
                the result, or a list of them. Shapes may hold `Dim`s and arithmetic on them.
    attributes  names with their defaults: whole numbers or real ones.
    cpu         the function (aicf/custom_op.h): a ctypes function, its address, a (library, symbol) pair, or
                a Python function that takes numpy arrays, inputs then outputs, and the attributes by name,
                and fills the outputs. The arrays are its own: it may keep them. bf16 comes as ml_dtypes has
                it. What it raises, the call of the program raises; the states are then as before.
                None: the op runs on GPUs only, or its library is in AICF_CUSTOM_OPS.
    cuda        a CudaKernel or a TritonKernel; None: the op runs on the CPU only.
    checked     the C function is an aicf_checked_function: its status says whether it failed.

    A compiled file for the CPU holds the op's name only: who loads it registers the op first (AICF-U0504).
    For a GPU it holds the compiled kernel and needs nothing.
    """
    _check_parts(name, results, attributes or {}, cpu, cuda)
    if name in _ops:
        raise make_error("misuse", "a custom op of this name is registered already", value=name)
    op = CustomOp(name, results, attributes or {}, cuda)
    if cpu is not None:
        _register_cpu(cpu, op, checked)
    rows = [(key, isinstance(default, int), float(default)) for key, default in op.attributes.items()]
    _aicf.register_onnx_op(name, rows, op.node_attributes)
    _ops[name] = op
    return op


def _check_parts(name: Any, results: Any, attributes: Any, cpu: Any, cuda: Any) -> None:
    check_type("name", name, str, 'a name such as "my::op"')
    if not all(name.partition("::")[::2]):
        raise make_error(
            "bad_option", "a custom op needs a domain", value=name, expected='a name such as "my::op"'
        )
    check_type("attributes", attributes, Mapping, "numbers by name")
    for key, default in attributes.items():
        check_type(f"attributes[{key!r}]", default, (int, float), "a number")
    pair = isinstance(cpu, tuple) and len(cpu) == 2
    parts = {
        "results": (callable(results), results, "a function that gives (dtype, shape)"),
        "cpu": (
            cpu is None or callable(cpu) or pair or isinstance(cpu, int),
            cpu,
            "a function, a function of ctypes, its address, or a (library, symbol) pair",
        ),
        "cuda": (
            cuda is None or isinstance(cuda, (CudaKernel, TritonKernel)),
            cuda,
            "an aicf.CudaKernel or aicf.TritonKernel",
        ),
    }
    for part, (fits, value, expected) in parts.items():
        if not fits:
            raise make_error(
                "bad_option",
                "a custom op is given something else",
                value=part,
                expected=expected,
                actual=repr(value)[:80],
            )


def registered_op(name: str) -> CustomOp | None:
    """The op that `register_op` was given under this name."""
    return _ops.get(name)


# --- functions for the CPU

_kept: list[Any] = []  # what registered addresses belong to


def _register_cpu(cpu: Any, op: CustomOp, checked: bool) -> None:
    if isinstance(cpu, tuple):
        library, symbol = cpu
        cpu = getattr(ctypes.CDLL(str(library)), symbol)
    if isinstance(cpu, ctypes._CFuncPtr):
        _kept.append(cpu)
        cpu = ctypes.cast(cpu, ctypes.c_void_p).value
    if isinstance(cpu, int):
        _aicf.register_custom_op(op.name, cpu, checked)
        return
    if checked:
        raise make_error(
            "bad_option",
            "only C functions are checked",
            op=op.name,
            value="checked",
            actual=repr(cpu)[:80],
            remedy="leave it out: a Python function fails by raising",
        )
    rows = [(name, isinstance(default, int)) for name, default in op.attributes.items()]
    _aicf.register_python_op(op.name, rows, cpu)

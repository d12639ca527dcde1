"""ONNX's backend interface over compiled kernels: `prepare`, `run_model`, `run_node`, `supports_device`.

Whatever cannot be imported or compiled raises; nothing is skipped or evaluated by another library.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..compiler import compile
from ..errors import UserError, make_error
from ..executable import Executable

__all__ = ["AicfBackendRep", "prepare", "run_model", "run_node", "supports_device"]

Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class AicfBackendRep:
    """A prepared model. An executable is compiled for the sizes of the first run, again when they change."""

    def __init__(self, model: Any, options: Mapping[str, Any]) -> None:
        self._bytes = model.SerializeToString()
        self._options = dict(options)
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._inputs = [value for value in model.graph.input if value.name not in initializers]
        self._deciding: dict[Shapes, tuple[str, ...]] = {}  # inputs whose values decide shapes
        self._executables: dict[tuple[Shapes, tuple[bytes, ...]], Executable] = {}

    def run(self, inputs: Any, **options: Any) -> tuple[np.ndarray, ...]:
        """Inputs in the model's order, or by name; results as numpy arrays in the model's order."""
        _refuse_unknown(options, ())
        arrays = self._by_name(inputs)
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        key = shapes, self._contents(shapes, arrays)
        if key not in self._executables:
            exe, self._deciding[shapes] = self._compile(arrays)
            key = shapes, self._contents(shapes, arrays)
            self._executables[key] = exe
        results = self._executables[key](**arrays)
        return tuple(np.asarray(r) for r in (results if isinstance(results, tuple) else (results,)))

    def _by_name(self, inputs: Any) -> dict[str, np.ndarray]:
        if not isinstance(inputs, Mapping):
            sequence = inputs if isinstance(inputs, (list, tuple)) else [inputs]
            if len(sequence) > len(self._inputs):
                raise make_error(
                    "unknown_input",
                    "there are more inputs than the model has",
                    expected=f"{len(self._inputs)}",
                    actual=f"{len(sequence)}",
                )
            inputs = dict(zip([value.name for value in self._inputs], sequence, strict=False))
        for name, value in inputs.items():
            if isinstance(value, list) or value is None:
                raise make_error(
                    "unsupported_dtype", "inputs are tensors only", op=name, actual=type(value).__name__
                )
        return {name: np.asarray(array) for name, array in inputs.items()}

    def _contents(self, shapes: Shapes, arrays: Mapping[str, np.ndarray]) -> tuple[bytes, ...]:
        return tuple(arrays[name].tobytes() for name in self._deciding.get(shapes, ()))

    def _compile(self, arrays: Mapping[str, np.ndarray]) -> tuple[Executable, tuple[str, ...]]:
        """Values of inputs are given to the compiler only when it says that they decide a shape."""
        values: dict[str, np.ndarray] = {}
        dims = self._dims(arrays)
        while True:
            try:
                return compile(self._bytes, values, dims=dims, **self._options), tuple(values)
            except UserError as error:
                if error.name != "size_not_static" or error.value not in arrays or error.value in values:
                    raise
                values[error.value] = arrays[error.value]

    def _dims(self, arrays: Mapping[str, np.ndarray]) -> dict[str, int]:
        """The dynamic sizes, as these arrays have them."""
        dims: dict[str, int] = {}
        for value in self._inputs:
            if value.name not in arrays or not value.type.HasField("tensor_type"):
                continue
            for axis, dim in enumerate(value.type.tensor_type.shape.dim[: arrays[value.name].ndim]):
                if not dim.HasField("dim_value"):
                    dims[dim.dim_param or f"{value.name}:{axis}"] = arrays[value.name].shape[axis]
        return dims


def prepare(model: Any, device: str = "CPU", **options: Any) -> AicfBackendRep:
    """Checks model and device. `options` are those of `aicf.compile` (threads, options)."""
    if not supports_device(device):
        raise make_error("unsupported_option", "this build has no such device", value=device, expected="CPU")
    import onnx

    onnx.checker.check_model(model)
    _refuse_unknown(options, ("threads", "options"))
    return AicfBackendRep(model, options)


def _refuse_unknown(given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            expected = ", ".join(known) or "none"
            raise make_error("bad_option", "the backend has no such option", value=name, expected=expected)


def run_model(model: Any, inputs: Any, device: str = "CPU", **options: Any) -> tuple[np.ndarray, ...]:
    """Prepares the model and runs it once; its outputs in order. Errors are those of `aicf.compile`."""
    return prepare(model, device, **options).run(inputs)


def run_node(
    node: Any,
    inputs: Sequence[Any],
    device: str = "CPU",
    outputs_info: Sequence[tuple[Any, Sequence[int]]] | None = None,
    **options: Any,
) -> tuple[np.ndarray, ...]:
    """One node as a model of its own; `outputs_info` gives (dtype, shape) of its outputs, or None."""
    from onnx import defs, helper, shape_inference

    arrays = [np.asarray(array) for array in inputs]
    names = [name for name in node.input if name]
    feeds = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, arrays, strict=True)
    ]
    outputs = [name for name in node.output if name]
    if outputs_info is None:
        results = [helper.make_empty_tensor_value_info(name) for name in outputs]
    else:
        results = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)
            for name, (dtype, shape) in zip(outputs, outputs_info, strict=True)
        ]
    opset = options.pop("opset_version", None) or defs.onnx_opset_version()
    graph = helper.make_graph([node], "node", feeds, results)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid(node.domain, opset)])
    return run_model(
        shape_inference.infer_shapes(model), dict(zip(names, arrays, strict=True)), device, **options
    )


def supports_device(device: str) -> bool:
    """Of the names that ONNX gives devices ("CPU", "CUDA:1"): the CPU."""
    return device.split(":")[0] == "CPU"

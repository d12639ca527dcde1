"""A writer of ONNX graphs whose names follow the PyTorch exporter: `/encoder/layer.0/MatMul_output_0`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["GraphWriter"]

_OPSET = 17
_IR_VERSION = 8  # the IR version that belongs to opset 17


class GraphWriter:
    """Collects nodes, initializers, inputs and outputs; `op` and `constant` return the name of a value."""

    def __init__(self) -> None:
        self._nodes: list[onnx.NodeProto] = []
        self._initializers: dict[str, onnx.TensorProto] = {}
        self._inputs: list[onnx.ValueInfoProto] = []
        self._outputs: list[onnx.ValueInfoProto] = []
        self._scope: list[str] = []
        self._used: Counter[str] = Counter()
        self._folded = 0

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Node names inside carry this module path."""
        self._scope.append(name)
        try:
            yield
        finally:
            self._scope.pop()

    def input(self, name: str, shape: list[str | int]) -> str:
        self._inputs.append(helper.make_tensor_value_info(name, TensorProto.INT64, shape))
        return name

    def output(self, name: str, shape: list[str | int]) -> None:
        self._outputs.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape))

    def initializer(self, name: str, value: np.ndarray) -> str:
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(np.ascontiguousarray(value), name)
        return name

    def folded_initializer(self, value: np.ndarray) -> str:
        """A weight that constant folding changed, so that it has no module path of its own any more."""
        self._folded += 1
        return self.initializer(f"onnx::MatMul_{self._folded}", value)

    def constant(self, value: object, dtype: type) -> str:
        tensor = numpy_helper.from_array(np.array(value, dtype=dtype))
        return self.op("Constant", [], value=tensor)

    def op(self, op_type: str, inputs: list[str], output: str | None = None, **attributes: Any) -> str:
        name = self._unique(op_type)
        result = output or f"{name}_output_0"
        self._nodes.append(helper.make_node(op_type, inputs, [result], name=name, **attributes))
        return result

    def model(self, graph_name: str, metadata: dict[str, str]) -> onnx.ModelProto:
        graph = helper.make_graph(
            self._nodes, graph_name, self._inputs, self._outputs, list(self._initializers.values())
        )
        model = helper.make_model(
            graph,
            producer_name="aicf examples",
            opset_imports=[helper.make_opsetid("", _OPSET)],
            ir_version=_IR_VERSION,
        )
        helper.set_model_props(model, metadata)
        return model

    def _unique(self, op_type: str) -> str:
        base = "/" + "/".join([*self._scope, op_type])
        count = self._used[base]
        self._used[base] += 1
        return base if count == 0 else f"{base}_{count}"

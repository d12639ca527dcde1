"""ONNX files of the GPU benchmarks: encoders of BERT's shape with random weights in half precision.

Weights are drawn as the original initialiser does (normal, 0.02), so activations keep their usual size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["BERT_BASE", "MINILM", "EncoderShape", "write_encoder"]


@dataclass(frozen=True)
class EncoderShape:
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512


BERT_BASE = EncoderShape(768, 12, 12, 3072)
MINILM = EncoderShape(384, 6, 12, 1536)


class _Graph:
    def __init__(self, dtype: type[np.floating], seed: int) -> None:
        self.dtype = dtype
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self.count = 0

    def tensor(self, name: str, array: np.ndarray) -> str:
        self.initializers.append(numpy_helper.from_array(array, name))
        return name

    def weight(self, name: str, *sizes: int) -> str:
        return self.tensor(name, (0.02 * self.rng.standard_normal(sizes, np.float32)).astype(self.dtype))

    def constant(self, value: object, dtype: type[np.generic]) -> str:
        self.count += 1
        return self.tensor(f"constant_{self.count}", np.asarray(value, dtype))

    def op(self, kind: str, inputs: list[str], output: str | None = None, **attributes: object) -> str:
        self.count += 1
        output = output or f"{kind}_{self.count}"
        self.nodes.append(helper.make_node(kind, inputs, [output], name=f"{kind}_{self.count}", **attributes))
        return output

    def linear(self, x: str, name: str, inner: int, outer: int) -> str:
        product = self.op("MatMul", [x, self.weight(f"{name}.weight", inner, outer)])
        return self.op("Add", [product, self.weight(f"{name}.bias", outer)])

    def layer_norm(self, x: str, name: str, size: int, output: str | None = None) -> str:
        scale = self.tensor(f"{name}.weight", np.ones(size, self.dtype))
        bias = self.tensor(f"{name}.bias", np.zeros(size, self.dtype))
        return self.op("LayerNormalization", [x, scale, bias], output, axis=-1, epsilon=1e-12)


def _layer(g: _Graph, x: str, mask: str, shape: EncoderShape, name: str, output: str | None) -> str:
    size = shape.hidden // shape.heads
    split = g.constant([0, 0, shape.heads, size], np.int64)

    def heads(part: str) -> str:
        projected = g.linear(x, f"{name}.{part}", shape.hidden, shape.hidden)
        return g.op("Transpose", [g.op("Reshape", [projected, split])], perm=[0, 2, 1, 3])

    query, key, value = heads("query"), heads("key"), heads("value")
    scores = g.op("MatMul", [query, g.op("Transpose", [key], perm=[0, 1, 3, 2])])
    scores = g.op("Mul", [scores, g.constant(size**-0.5, g.dtype)])
    weights = g.op("Softmax", [g.op("Add", [scores, mask])], axis=-1)
    context = g.op("Transpose", [g.op("MatMul", [weights, value])], perm=[0, 2, 1, 3])
    context = g.op("Reshape", [context, g.constant([0, 0, shape.hidden], np.int64)])
    attended = g.linear(context, f"{name}.attended", shape.hidden, shape.hidden)
    x = g.layer_norm(g.op("Add", [attended, x]), f"{name}.norm", shape.hidden)
    wide = g.linear(x, f"{name}.wide", shape.hidden, shape.intermediate)
    wide = g.op("Gelu", [wide])
    narrow = g.linear(wide, f"{name}.narrow", shape.intermediate, shape.hidden)
    return g.layer_norm(g.op("Add", [narrow, x]), f"{name}.out_norm", shape.hidden, output)


def write_encoder(
    path: Path, shape: EncoderShape, dtype: type[np.floating] = np.float16, seed: int = 0
) -> None:
    """Inputs input_ids and attention_mask, int64 [batch, sequence]; output last_hidden_state."""
    g = _Graph(dtype, seed)
    words = g.op("Gather", [g.weight("words", shape.vocabulary, shape.hidden), "input_ids"])
    length = g.op("Gather", [g.op("Shape", ["input_ids"]), g.constant([1], np.int64)])
    zero = g.constant([0], np.int64)
    places = g.op("Slice", [g.weight("places", shape.positions, shape.hidden), zero, length, zero])
    kind = g.op("Slice", [g.weight("kinds", 2, shape.hidden), zero, g.constant([1], np.int64), zero])
    x = g.layer_norm(g.op("Add", [g.op("Add", [words, kind]), places]), "embedding_norm", shape.hidden)
    kept = g.op(
        "Cast",
        [g.op("Unsqueeze", ["attention_mask", g.constant([1, 2], np.int64)])],
        to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)),
    )
    lowest = g.constant(np.finfo(dtype).min, dtype)
    mask = g.op("Mul", [g.op("Sub", [g.constant(1, dtype), kept]), lowest])
    for i in range(shape.layers):
        x = _layer(g, x, mask, shape, f"layer.{i}", "last_hidden_state" if i == shape.layers - 1 else None)
    sizes = ["batch", "sequence"]
    inputs = [
        helper.make_tensor_value_info(n, TensorProto.INT64, sizes) for n in ("input_ids", "attention_mask")
    ]
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    output = helper.make_tensor_value_info("last_hidden_state", element, [*sizes, shape.hidden])
    graph = helper.make_graph(g.nodes, "encoder", inputs, [output], g.initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)

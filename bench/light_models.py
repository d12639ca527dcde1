"""The nine topologies that ONNX's backend suite calls its real models, with random weights.

The package onnx ships them with every weight made by a ConstantOfShape node; here each of these nodes becomes
an initializer filled by what its readers expect of it, so that values keep their size from layer to layer.
"""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["LIGHT_MODELS", "image", "input_name", "light_path", "random_weights", "with_dtype"]

LIGHT_MODELS = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
_VIEWS = ("Unsqueeze", "Reshape", "Squeeze")


def light_path(name: str) -> Path:
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / f"light_{name}.onnx"


def _readers(graph: onnx.GraphProto, name: str) -> list[tuple[onnx.NodeProto, int]]:
    """The nodes that read a value and at which position, looking through views."""
    found = []
    for node in graph.node:
        for position, operand in enumerate(node.input):
            if operand == name and node.op_type in _VIEWS and position == 0:
                found += _readers(graph, node.output[0])
            elif operand == name:
                found.append((node, position))
    return found


def _fill(shape: list[int], op: str, position: int, rng: np.random.Generator) -> np.ndarray:
    if op in ("Conv", "Gemm") and position == 1:
        fan_in = int(np.prod(shape[1:]))  # Gemm's weights are stored [N, K] in these models
        return rng.standard_normal(shape) * np.sqrt(2 / fan_in)
    if op == "BatchNormalization" and position in (1, 4):  # scale, variance
        return rng.uniform(0.5, 1.5, shape)
    if op == "Mul":
        return rng.uniform(0.5, 1.5, shape)
    return rng.standard_normal(shape) * 0.1  # biases and means


def random_weights(name: str, seed: int = 0) -> onnx.ModelProto:
    """Model `name` of LIGHT_MODELS; the same seed gives the same bytes."""
    model = onnx.load(light_path(name))
    graph = model.graph
    rng = np.random.default_rng([seed, zlib.crc32(name.encode())])
    shapes = {
        t.name: [int(n) for n in numpy_helper.to_array(t)] for t in graph.initializer if t.data_type == 7
    }
    made = [node for node in graph.node if node.op_type == "ConstantOfShape"]
    for node in made:
        op, position = next(((n.op_type, p) for n, p in _readers(graph, node.output[0])), ("", 0))
        array = _fill(shapes[node.input[0]], op, position, rng).astype(np.float32)
        graph.initializer.append(numpy_helper.from_array(array, node.output[0]))
        graph.node.remove(node)
    used = {operand for node in graph.node for operand in node.input}
    kept = [tensor for tensor in graph.initializer if tensor.name in used]
    known = {tensor.name for tensor in graph.initializer}
    inputs = [value for value in graph.input if value.name not in known]
    del graph.initializer[:], graph.input[:]
    graph.initializer.extend(kept)
    graph.input.extend(inputs)
    # Random logits are large enough to make probabilities 0 and 1, which would hide errors.
    for node in graph.node:
        if node.op_type == "Softmax":
            graph.output.append(onnx.helper.make_empty_tensor_value_info(node.input[0]))
            graph.output[-1].type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    model.ir_version = max(model.ir_version, 4)  # from here on initializers need not be inputs
    return model


def with_dtype(model: onnx.ModelProto, dtype: np.dtype[np.floating]) -> onnx.ModelProto:
    """The same model with every f32 tensor, input and output in another float type."""
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    elem_type = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for tensor in copy.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            tensor.CopyFrom(numpy_helper.from_array(numpy_helper.to_array(tensor).astype(dtype), tensor.name))
    for value in (*copy.graph.input, *copy.graph.output):
        value.type.tensor_type.elem_type = elem_type
    del copy.graph.value_info[:]
    return copy


def input_name(model: onnx.ModelProto) -> str:
    return str(model.graph.input[0].name)


def image(seed: int = 0) -> np.ndarray:
    """A random picture f32[1, 3, 224, 224] of mean 0 and variance 1."""
    return np.random.default_rng(seed).standard_normal((1, 3, 224, 224), np.float32)

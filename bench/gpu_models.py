"""ONNX files of the GPU benchmarks, with random weights in half precision: encoders of BERT's shape,
ResNet-50 and decode steps of Llama's shape.

Weights are drawn as the original initialisers do, so activations keep their usual size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = [
    "BERT_BASE",
    "LLAMA_1B",
    "MINILM",
    "DecoderShape",
    "EncoderShape",
    "decoder_states",
    "decoder_weights",
    "write_decoder",
    "write_encoder",
    "write_resnet50",
]


@dataclass(frozen=True)
class EncoderShape:
    hidden: int
    layers: int
    heads: int
    intermediate: int
    vocabulary: int = 30522
    positions: int = 512


@dataclass(frozen=True)
class DecoderShape:
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    cache: int
    theta: float = 500000.0

    @property
    def head_size(self) -> int:
        return self.hidden // self.heads


BERT_BASE = EncoderShape(768, 12, 12, 3072)
MINILM = EncoderShape(384, 6, 12, 1536)
LLAMA_1B = DecoderShape(2048, 16, 32, 8, 8192, 128256, 1024)


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


def _convolution(g: _Graph, x: str, name: str, sizes: tuple[int, int, int], stride: int, relu: bool) -> str:
    """Convolution, batch norm and, if asked for, ReLU; `sizes`: maps, channels, kernel."""
    maps, channels, kernel = sizes
    fan_out = maps * kernel * kernel
    weight = np.sqrt(2 / fan_out) * g.rng.standard_normal((maps, channels, kernel, kernel), np.float32)
    y = g.op(
        "Conv",
        [x, g.tensor(f"{name}.weight", weight.astype(g.dtype))],
        kernel_shape=[kernel] * 2,
        strides=[stride] * 2,
        pads=[kernel // 2] * 4,
    )
    norm = {"scale": (0.5, 1.5), "bias": (-0.1, 0.1), "mean": (-0.1, 0.1), "variance": (0.5, 1.5)}
    parts = [g.tensor(f"{name}.{k}", g.rng.uniform(*v, maps).astype(g.dtype)) for k, v in norm.items()]
    y = g.op("BatchNormalization", [y, *parts], epsilon=1e-5)
    return g.op("Relu", [y]) if relu else y


def write_resnet50(path: Path, dtype: type[np.floating] = np.float16, seed: int = 0) -> None:
    """Input x [batch, 3, 224, 224]; output logits [batch, 1000]. Strides stand in the 3x3 convolutions, as
    torchvision has them."""
    g = _Graph(dtype, seed)
    x = _convolution(g, "x", "stem", (64, 3, 7), 2, True)
    x = g.op("MaxPool", [x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        inner, outer = 64 << stage, 256 << stage
        for block in range(blocks):
            name, stride = f"stage.{stage}.{block}", 2 if stage > 0 and block == 0 else 1
            y = _convolution(g, x, f"{name}.reduce", (inner, channels, 1), 1, True)
            y = _convolution(g, y, f"{name}.middle", (inner, inner, 3), stride, True)
            y = _convolution(g, y, f"{name}.expand", (outer, inner, 1), 1, False)
            if block == 0:
                x = _convolution(g, x, f"{name}.shortcut", (outer, channels, 1), stride, False)
            x, channels = g.op("Relu", [g.op("Add", [y, x])]), outer
    x = g.op("Flatten", [g.op("GlobalAveragePool", [x])])
    weight = g.weight("classifier.weight", 1000, channels)
    g.op("Gemm", [x, weight, g.weight("classifier.bias", 1000)], "logits", transB=1)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    image = helper.make_tensor_value_info("x", element, ["batch", 3, 224, 224])
    logits = helper.make_tensor_value_info("logits", element, ["batch", 1000])
    graph = helper.make_graph(g.nodes, "resnet50", [image], [logits], g.initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), path)


def decoder_weights(shape: DecoderShape) -> dict[str, tuple[int, ...]]:
    """Names and sizes of a decoder's weights, which multiply from the right; the embedding is also the output
    layer."""
    sizes: dict[str, tuple[int, ...]] = {
        "embedding": (shape.vocabulary, shape.hidden),
        "norm": (shape.hidden,),
    }
    columns = (shape.heads + 2 * shape.kv_heads) * shape.head_size
    for i in range(shape.layers):
        sizes |= {
            f"layer.{i}.attn_norm": (shape.hidden,),
            f"layer.{i}.qkv": (shape.hidden, columns),
            f"layer.{i}.o": (shape.heads * shape.head_size, shape.hidden),
            f"layer.{i}.mlp_norm": (shape.hidden,),
            f"layer.{i}.gate_up": (shape.hidden, 2 * shape.intermediate),
            f"layer.{i}.down": (shape.intermediate, shape.hidden),
        }
    return sizes


def _external(
    path: Path, name: str, sizes: tuple[int, ...], element: int, offset: int, length: int
) -> onnx.TensorProto:
    tensor = TensorProto(name=name, data_type=element, dims=sizes)
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": path.name, "offset": offset, "length": length}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def _decoder_layer(g: _Graph, x: str, place: dict[str, str], shape: DecoderShape, i: int) -> str:
    name, head = f"layer.{i}", shape.head_size
    counts = [shape.heads, shape.kv_heads, shape.kv_heads]

    def norm(value: str, which: str) -> str:
        return g.op("RMSNormalization", [value, f"{name}.{which}_norm"], axis=-1, epsilon=1e-5)

    qkv = g.op("MatMul", [norm(x, "attn"), f"{name}.qkv"])
    parts = [f"{name}.split.{part}" for part in "qkv"]
    split = g.constant([count * head for count in counts], np.int64)
    g.nodes.append(helper.make_node("Split", [qkv, split], parts, axis=-1))
    q, k, v = (
        g.op(
            "Transpose",
            [g.op("Reshape", [part, g.constant([1, -1, count, head], np.int64)])],
            perm=[0, 2, 1, 3],
        )
        for part, count in zip(parts, counts, strict=True)
    )
    q, k = (g.op("RotaryEmbedding", [value, place["cos"], place["sin"], place["ids"]]) for value in (q, k))
    keys, values = (
        g.op("TensorScatter", [f"past.{i}.{which}", value, "position"], f"present.{i}.{which}", axis=2)
        for which, value in (("key", k), ("value", v))
    )
    context = g.op("Attention", [q, keys, values, place["seen"]], scale=head**-0.5)
    context = g.op("Transpose", [context], perm=[0, 2, 1, 3])
    context = g.op("Reshape", [context, g.constant([1, -1, shape.heads * head], np.int64)])
    x = g.op("Add", [x, g.op("MatMul", [context, f"{name}.o"])])
    halves = [f"{name}.gated", f"{name}.weighed"]
    both = g.op("MatMul", [norm(x, "mlp"), f"{name}.gate_up"])
    g.nodes.append(helper.make_node("Split", [both], halves, axis=-1, num_outputs=2))
    gate = g.op("Mul", [halves[0], g.op("Sigmoid", [halves[0]])])
    wide = g.op("Mul", [gate, halves[1]])
    return g.op("Add", [x, g.op("MatMul", [wide, f"{name}.down"])])


def write_decoder(path: Path, shape: DecoderShape, weights: dict[str, bytes], element: int) -> None:
    """One step: inputs token i64 [1, 1], position i64 [1], past.<layer>.key and .value, which are
    [1, kv_heads, cache, head]; outputs logits, next_token, next_position, present.<layer>.key and .value.
    `weights` are the bytes of decoder_weights() in the ONNX type `element`; they go to a file of their own.
    """
    g = _Graph(np.float32, 0)
    data = path.with_suffix(".data")
    offset = 0
    with data.open("wb") as file:
        for name, sizes in decoder_weights(shape).items():
            g.initializers.append(_external(data, name, sizes, element, offset, len(weights[name])))
            offset += file.write(weights[name])
    angles = np.outer(
        np.arange(shape.cache), shape.theta ** -(np.arange(0, shape.head_size, 2) / shape.head_size)
    )
    place = {
        name: g.op("Cast", [g.constant(table, np.float32)], to=element)
        for name, table in (("cos", np.cos(angles)), ("sin", np.sin(angles)))
    }
    place["ids"] = g.op("Unsqueeze", ["position", g.constant([0], np.int64)])
    slots = g.constant(np.arange(shape.cache).reshape(1, 1, 1, -1), np.int64)
    place["seen"] = g.op("LessOrEqual", [slots, "position"])
    x = g.op("Gather", ["embedding", "token"])
    for i in range(shape.layers):
        x = _decoder_layer(g, x, place, shape, i)
    x = g.op("RMSNormalization", [x, "norm"], axis=-1, epsilon=1e-5)
    logits = g.op("MatMul", [x, g.op("Transpose", ["embedding"], perm=[1, 0])], "logits")
    g.op("ArgMax", [logits], "next_token", axis=-1, keepdims=0)
    g.op("Add", ["position", g.constant([1], np.int64)], "next_position")
    cache = [1, shape.kv_heads, shape.cache, shape.head_size]
    tensors = {"token": (TensorProto.INT64, [1, 1]), "position": (TensorProto.INT64, [1])}
    both = [(i, which) for i in range(shape.layers) for which in ("key", "value")]
    inputs = tensors | {f"past.{i}.{which}": (element, cache) for i, which in both}
    outputs = {f"next_{name}": value for name, value in tensors.items()}
    outputs["logits"] = (element, [1, 1, shape.vocabulary])
    outputs |= {f"present.{i}.{which}": (element, cache) for i, which in both}
    infos = [
        [helper.make_tensor_value_info(name, *value) for name, value in each.items()]
        for each in (inputs, outputs)
    ]
    graph = helper.make_graph(g.nodes, "decoder", *infos, g.initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    path.write_bytes(model.SerializeToString())


def decoder_states(shape: DecoderShape, advancing: bool) -> list[str]:
    """Arguments of the command line that make the caches states; `advancing`: the token and its position too,
    so that runs go on by themselves."""
    pairs = [(f"past.{i}.{w}", f"present.{i}.{w}") for i in range(shape.layers) for w in ("key", "value")]
    if advancing:
        pairs += [("token", "next_token"), ("position", "next_position")]
    return [argument for past, present in pairs for argument in ("--state", f"{past}={present}")]

"""Writes all-MiniLM-L6-v2 as an ONNX file from the packaged weights, node for node as PyTorch exports it.

Inputs  `input_ids`, `attention_mask`, `token_type_ids`: int64 [batch, sequence].
Outputs `last_hidden_state` [batch, sequence, 384] and `sentence_embedding` [batch, 384] (masked mean of
unit length).
"""

from __future__ import annotations

import hashlib
import math
import os
import sys
from pathlib import Path

import numpy as np

from .onnx_graph import GraphWriter
from .package import PACKAGE, MiniLmConfig, load_config, load_weights, model_file, package_version

__all__ = ["export_key", "write_minilm_onnx"]

_F32_MIN = float(np.finfo(np.float32).min)


class _Exporter:
    """One method for each module of the network; every tensor is a value name."""

    def __init__(self) -> None:
        self.config: MiniLmConfig = load_config()
        self.weights = load_weights()
        self.graph = GraphWriter()

    def parameter(self, name: str) -> str:
        return self.graph.initializer(name, self.weights[name])

    def dim(self, value: str, axis: int) -> str:
        """A size read at run time, as a scalar."""
        g = self.graph
        return g.op("Gather", [g.op("Shape", [value]), g.constant(axis, np.int64)], axis=0)

    def as_vector(self, scalar: str) -> str:
        return self.graph.op("Unsqueeze", [scalar, self.graph.constant([0], np.int64)])

    def reshape(self, value: str, like: str, tail: list[int]) -> str:
        """Reshape to [batch, sequence] of `like`, then the fixed sizes in `tail`."""
        g = self.graph
        leading = [self.as_vector(self.dim(like, 0)), self.as_vector(self.dim(like, 1))]
        sizes = leading + [g.constant([size], np.int64) for size in tail]
        return g.op("Reshape", [value, g.op("Concat", sizes, axis=0)])

    def linear(self, value: str, module: str) -> str:
        g = self.graph
        # Exporters fold the transpose of nn.Linear into the weight, which loses its name by it.
        weight = g.folded_initializer(self.weights[f"{module}.weight"].T)
        product = g.op("MatMul", [value, weight])
        return g.op("Add", [self.parameter(f"{module}.bias"), product])

    def layer_norm(self, value: str, module: str, output: str | None = None) -> str:
        inputs = [value, self.parameter(f"{module}.weight"), self.parameter(f"{module}.bias")]
        return self.graph.op(
            "LayerNormalization", inputs, output, axis=-1, epsilon=self.config.layer_norm_eps
        )

    def embeddings(self, input_ids: str, token_type_ids: str) -> str:
        g = self.graph
        with g.scope("embeddings"):
            length = self.as_vector(self.dim(input_ids, 1))
            positions = g.op(
                "Slice",
                [
                    self.parameter("embeddings.position_ids"),
                    g.constant([0], np.int64),
                    length,
                    g.constant([1], np.int64),
                    g.constant([1], np.int64),
                ],
            )
            words = g.op("Gather", [self.parameter("embeddings.word_embeddings.weight"), input_ids])
            types = g.op(
                "Gather", [self.parameter("embeddings.token_type_embeddings.weight"), token_type_ids]
            )
            total = g.op("Add", [words, types])
            places = g.op("Gather", [self.parameter("embeddings.position_embeddings.weight"), positions])
            total = g.op("Add", [total, places])
            with g.scope("LayerNorm"):
                return self.layer_norm(total, "embeddings.LayerNorm")

    def additive_mask(self, attention_mask: str) -> str:
        """[batch, 1, 1, sequence]: 0 where a token is, the smallest float where padding is."""
        g = self.graph
        mask = g.op("Unsqueeze", [attention_mask, g.constant([1], np.int64)])
        mask = g.op("Unsqueeze", [mask, g.constant([2], np.int64)])
        mask = g.op("Cast", [mask], to=1)
        inverted = g.op("Sub", [g.constant(1.0, np.float32), mask])
        return g.op("Mul", [inverted, g.constant(_F32_MIN, np.float32)])

    def heads(self, projected: str, perm: list[int]) -> str:
        """[batch, sequence, hidden] to heads; `perm` is over [batch, sequence, head, head_dim]."""
        split = self.reshape(projected, projected, [self.config.heads, self.config.head_dim])
        return self.graph.op("Transpose", [split], perm=perm)

    def projection(self, value: str, module: str, name: str) -> str:
        with self.graph.scope(name):
            return self.linear(value, f"{module}.{name}")

    def attention(self, value: str, mask: str, module: str) -> str:
        g = self.graph
        query = self.projection(value, module, "query")
        key = self.projection(value, module, "key")
        key = self.heads(key, [0, 2, 3, 1])
        values = self.heads(self.projection(value, module, "value"), [0, 2, 1, 3])
        query = self.heads(query, [0, 2, 1, 3])
        scores = g.op("MatMul", [query, key])
        scores = g.op("Div", [scores, g.constant(math.sqrt(self.config.head_dim), np.float32)])
        scores = g.op("Add", [scores, mask])
        weights = g.op("Softmax", [scores], axis=-1)
        context = g.op("MatMul", [weights, values])
        context = g.op("Transpose", [context], perm=[0, 2, 1, 3])
        return self.reshape(context, context, [self.config.hidden])

    def gelu(self, value: str) -> str:
        g = self.graph
        scaled = g.op("Div", [value, g.constant(math.sqrt(2.0), np.float32)])
        shifted = g.op("Add", [g.op("Erf", [scaled]), g.constant(1.0, np.float32)])
        product = g.op("Mul", [value, shifted])
        return g.op("Mul", [product, g.constant(0.5, np.float32)])

    def residual_block(self, value: str, skip: str, module: str, output: str | None = None) -> str:
        g = self.graph
        with g.scope("output"):
            with g.scope("dense"):
                dense = self.linear(value, f"{module}.dense")
            total = g.op("Add", [dense, skip])
            with g.scope("LayerNorm"):
                return self.layer_norm(total, f"{module}.LayerNorm", output)

    def layer(self, value: str, mask: str, index: int) -> str:
        g = self.graph
        module = f"encoder.layer.{index}"
        last = index == self.config.layers - 1
        with g.scope("encoder"), g.scope(f"layer.{index}"):
            with g.scope("attention"):
                with g.scope("self"):
                    context = self.attention(value, mask, f"{module}.attention.self")
                attended = self.residual_block(context, value, f"{module}.attention.output")
            with g.scope("intermediate"):
                with g.scope("dense"):
                    wide = self.linear(attended, f"{module}.intermediate.dense")
                with g.scope("intermediate_act_fn"):
                    wide = self.gelu(wide)
            return self.residual_block(
                wide, attended, f"{module}.output", "last_hidden_state" if last else None
            )

    def mean_pooling(self, hidden: str, attention_mask: str) -> str:
        g = self.graph
        mask = g.op("Unsqueeze", [attention_mask, g.constant([-1], np.int64)])
        mask = g.op("Expand", [mask, g.op("Shape", [hidden])])
        mask = g.op("Cast", [mask], to=1)
        axis = g.constant([1], np.int64)
        total = g.op("ReduceSum", [g.op("Mul", [hidden, mask]), axis], keepdims=0)
        count = g.op("ReduceSum", [mask, axis], keepdims=0)
        count = g.op("Clip", [count, g.constant(1e-9, np.float32)])
        return g.op("Div", [total, count])

    def normalize(self, value: str, output: str) -> str:
        g = self.graph
        norm = g.op("ReduceL2", [value], axes=[1], keepdims=1)
        norm = g.op("Clip", [norm, g.constant(1e-12, np.float32)])
        norm = g.op("Expand", [norm, g.op("Shape", [value])])
        return g.op("Div", [value, norm], output)

    def run(self) -> GraphWriter:
        g = self.graph
        axes: list[str | int] = ["batch", "sequence"]
        names = ("input_ids", "attention_mask", "token_type_ids")
        input_ids, attention_mask, token_type_ids = (g.input(name, axes) for name in names)
        mask = self.additive_mask(attention_mask)
        value = self.embeddings(input_ids, token_type_ids)
        for index in range(self.config.layers):
            value = self.layer(value, mask, index)
        with g.scope("pooling"):
            pooled = self.mean_pooling(value, attention_mask)
        with g.scope("normalize"):
            self.normalize(pooled, "sentence_embedding")
        g.output("last_hidden_state", ["batch", "sequence", self.config.hidden])
        g.output("sentence_embedding", ["batch", self.config.hidden])
        return g


def export_key() -> str:
    """Changes whenever the exported file would: the weights' package and the code that writes the graph."""
    digest = hashlib.sha256(f"{PACKAGE} {package_version()}".encode())
    for source in ("export_onnx.py", "onnx_graph.py", "package.py"):
        digest.update((Path(__file__).parent / source).read_bytes())
    return digest.hexdigest()


def write_minilm_onnx(path: str | Path) -> Path:
    """Writes the model (91 MB, f32, opset 17), the vocabulary in its metadata. The file appears by rename."""
    path = Path(path)
    metadata = {
        "source": f"{PACKAGE} {package_version()}",
        "vocabulary": model_file("vocab.txt").read_text(encoding="utf-8"),
    }
    model = _Exporter().run().model("all-MiniLM-L6-v2", metadata)
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.part")
    try:
        partial.write_bytes(model.SerializeToString(deterministic=True))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return path


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.minilm.export_onnx OUT.onnx")
    print(write_minilm_onnx(sys.argv[1]))

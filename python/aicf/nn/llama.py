"""Decoders of Llama's shape with a KV cache: one run of the decode entry is one token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from .._aicf import Program
from ..symtensor import SymTensor
from ..tracing import Graph, current_graph, program_of, tracing
from .init import filled, normal
from .layers import Linear, RMSNorm
from .module import Module, Parameter, State

__all__ = ["Llama", "LlamaConfig"]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model; `cache` is the number of positions that fit, `theta` the base of the rotary angles.

    frequencies  one angle per pair of a head and position, in place of those that follow from theta.
    tied         the output layer is the embedding.
    """

    vocabulary: int
    features: int
    layers: int
    heads: int
    kv_heads: int
    hidden: int
    cache: int
    batch: int = 1
    head_size: int | None = None
    epsilon: float = 1e-5
    theta: float = 10000.0
    frequencies: tuple[float, ...] | None = None
    tied: bool = True
    dtype: str = "float32"

    @property
    def head(self) -> int:
        return self.head_size or self.features // self.heads

    def angles(self) -> np.ndarray:
        """f64 [cache, head / 2]."""
        frequencies = self.frequencies or self.theta ** -(np.arange(0, self.head, 2) / self.head)
        return np.outer(np.arange(self.cache), np.asarray(frequencies, "f8"))


def _weights(*shape: int, dtype: str) -> Parameter:
    """Normal with deviation 0.02; zeros, to be loaded, in a dtype that numpy does not have."""
    if dtype not in ("float64", "float32", "float16"):
        return Parameter(dtype=dtype, shape=shape)
    parameter = normal(shape, dtype)
    parameter.data *= np.asarray(0.02, dtype)
    return parameter


def _ones(size: int, epsilon: float, dtype: str) -> RMSNorm:
    norm = RMSNorm(size, epsilon)
    norm.scale = (
        filled((size,), 1.0, dtype) if dtype.startswith("float") else Parameter(dtype=dtype, shape=(size,))
    )
    return norm


class _Linear(Linear):
    def __init__(self, in_features: int, out_features: int, dtype: str) -> None:
        self.W = _weights(in_features, out_features, dtype=dtype)
        self.b = None


class _Layer(Module):
    """`qkv` holds the columns of q, k and v side by side, `gate_up` those of the gate and what it weighs."""

    def __init__(self, c: LlamaConfig) -> None:
        self.config = c
        self.attn_norm = _ones(c.features, c.epsilon, c.dtype)
        self.qkv = _Linear(c.features, (c.heads + 2 * c.kv_heads) * c.head, c.dtype)
        self.o = _Linear(c.heads * c.head, c.features, c.dtype)
        self.mlp_norm = _ones(c.features, c.epsilon, c.dtype)
        self.gate_up = _Linear(c.features, 2 * c.hidden, c.dtype)
        self.down = _Linear(c.hidden, c.features, c.dtype)
        cache = (c.batch, c.kv_heads, c.cache, c.head)
        self.k_cache = State(dtype=c.dtype, shape=cache)
        self.v_cache = State(dtype=c.dtype, shape=cache)

    def forward(
        self, x: SymTensor, cos: SymTensor, sin: SymTensor, start: SymTensor, seen: SymTensor
    ) -> SymTensor:
        c = self.config
        batch, length, _ = x.shape
        heads = [c.heads, c.kv_heads, c.kv_heads]
        ends = np.cumsum([0, *heads]) * c.head
        qkv = self.qkv(self.attn_norm(x))
        q, k, v = (
            qkv[:, :, int(first) : int(last)].reshape(batch, length, count, c.head).transpose(0, 2, 1, 3)
            for first, last, count in zip(ends, ends[1:], heads, strict=False)
        )
        q, keys, values = ops.rope_append(q, k, v, cos, sin, self.k_cache.sym(), self.v_cache.sym(), start)
        self.k_cache.update(keys)
        self.v_cache.update(values)
        y = ops.attention(q, keys, values, seen, scale=1.0 / math.sqrt(c.head))
        x = x + self.o(y.transpose(0, 2, 1, 3).reshape(batch, length, c.heads * c.head))
        y = self.gate_up(self.mlp_norm(x))
        return x + self.down(ops.silu(y[:, :, : c.hidden]) * y[:, :, c.hidden :])


class Llama(Module):
    """A decoder with rotary positions, grouped heads, RMS norms and gated SiLU layers.

    The KV caches, the `position` i64 [1] of the next token and the last `token` i64 [batch, 1] are states, so
    that runs of the decode entry go on by themselves: each takes the last token, appends it to the cache,
    picks the most likely next one and gives it back.
    """

    def __init__(self, config: LlamaConfig) -> None:
        c = self.config = config
        self.embedding = _weights(c.vocabulary, c.features, dtype=c.dtype)
        self.layers = [_Layer(c) for _ in range(c.layers)]
        self.norm = _ones(c.features, c.epsilon, c.dtype)
        self.head = None if c.tied else _weights(c.vocabulary, c.features, dtype=c.dtype)
        self.position = State(dtype="i64", shape=(1,))
        self.token = State(dtype="i64", shape=(c.batch, 1))

    def logits(self, ids: SymTensor, last: bool = False) -> SymTensor:
        """Of the tokens after ids i64 [batch, T]: [batch, T, vocabulary], or after the last one only."""
        c = self.config
        length = ids.shape[1]
        start = self.position.sym()
        steps = ops.iota(shape=[length], axis=0, dtype="i64") + start
        cos, sin = (
            ops.gather(current_graph().constant(table.astype("f4")).astype(c.dtype), steps, axis=0)
            for table in (np.cos(c.angles()), np.sin(c.angles()))
        )
        key = ops.iota(shape=[1, 1, 1, c.cache], axis=3, dtype="i64")
        seen = key <= steps.reshape(1, 1, length, 1)
        x = ops.gather(self.embedding, ids, axis=0)
        for layer in self.layers:
            x = layer(x, cos, sin, start, seen)
        self.position.update(start + current_graph().lift(length, dtype="i64"))
        if last:
            batch, _, features = x.shape
            x = ops.slice(x, starts=[0, length - 1, 0], limits=[batch, length, features], steps=[1, 1, 1])
        return ops.linear(self.norm(x), self.head or self.embedding, transpose_w=True)

    def forward(self, ids: SymTensor) -> SymTensor:
        """The most likely next token i64 [batch, 1] after `ids`, which join the cache."""
        following = ops.argmax(self.logits(ids, last=True), axis=-1)
        self.token.update(following)
        return following

    def program(self, prompt: Any = None) -> Program:
        """Entry `decode`, without inputs; with a range of lengths, `prompt="1..512"`, also `prefill`(ids)."""
        names = {id(variable): path for path, variable in self.named_variables()}
        decode = Graph("decode", names)
        with tracing(decode):
            decode.output(self.forward(self.token.sym()), "token")
        if prompt is None:
            return program_of([decode])
        prefill = Graph("prefill", names)
        with tracing(prefill):
            ids = prefill.input("ids", (self.config.batch, "prompt"), "i64")
            prefill.output(self.forward(ids), "token")
        return program_of([decode, prefill], {"prompt": prompt})

    def load_transformers(self, weights: Mapping[str, Any]) -> None:
        """Takes the `state_dict()` of transformers' LlamaForCausalLM of the same sizes."""
        self.load_state_dict(dict(_renamed(weights, self.config)))


def _renamed(weights: Mapping[str, Any], c: LlamaConfig) -> Any:
    """(our name, array): transformers stores [out, in] and q, k and v apart."""
    import torch

    yield "embedding", weights["model.embed_tokens.weight"]
    yield "norm.scale", weights["model.norm.weight"]
    if not c.tied:
        yield "head", weights["lm_head.weight"]
    for i in range(c.layers):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"

        def columns(*names: str, prefix: str = theirs) -> Any:
            return torch.cat([weights[f"{prefix}.{name}_proj.weight"] for name in names]).T.contiguous()

        yield f"{ours}.attn_norm.scale", weights[f"{theirs}.input_layernorm.weight"]
        yield f"{ours}.mlp_norm.scale", weights[f"{theirs}.post_attention_layernorm.weight"]
        yield f"{ours}.qkv.W", columns("self_attn.q", "self_attn.k", "self_attn.v")
        yield f"{ours}.o.W", columns("self_attn.o")
        yield f"{ours}.gate_up.W", columns("mlp.gate", "mlp.up")
        yield f"{ours}.down.W", columns("mlp.down")

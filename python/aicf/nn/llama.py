"""Decoders of Llama's shape with a KV cache: one run of the decode entry is one token."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import ops
from .._aicf import Program
from .._build import check_whole
from .._dtypes import dtype_name
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import Graph, current_graph, program_of, tracing
from .init import filled, normal
from .layers import Linear, RMSNorm
from .llama_of_transformers import config_of, dtype_of, parts_of, renamed
from .module import Module, Parameter, State

__all__ = ["Llama", "LlamaConfig"]


@dataclass(frozen=True)
class LlamaConfig:
    """Sizes of a model; `cache` is the number of positions that fit, `theta` the base of the rotary angles.

    frequencies   one angle per pair of a head and position, in place of those that follow from theta.
    rotary_scale  what cosines and sines are multiplied by.
    tied          the output layer is the embedding.
    qkv_bias      of the products that give q, k and v; output_bias of the one after attention; mlp_bias of
                  those of the gated layers.
    head_norms    q and k are normalised in each head, before they are rotated.
    windows       of each layer, the keys that a query sees up to its own; 0: all.
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
    rotary_scale: float = 1.0
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    head_norms: bool = False
    windows: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("vocabulary", "features", "layers", "heads", "kv_heads", "hidden", "cache", "batch"):
            check_whole(name, getattr(self, name), 1)
        if (
            self.heads % self.kv_heads
            or (self.head_size is None and self.features % self.heads)
            or self.head % 2
        ):
            raise make_error(
                "bad_option",
                "the heads of a decoder do not fit",
                value=f"features={self.features}, heads={self.heads}, kv_heads={self.kv_heads}",
                actual=f"heads of {self.head}",
                expected="features a multiple of heads, heads a multiple of kv_heads, heads of an even size",
            )
        if self.frequencies is not None and len(self.frequencies) != self.head // 2:
            raise _wrong_size("frequencies", len(self.frequencies), self.head // 2)
        if self.windows and len(self.windows) != self.layers:
            raise _wrong_size("windows", len(self.windows), self.layers)

    @property
    def head(self) -> int:
        return self.head_size or self.features // self.heads

    def angles(self) -> np.ndarray:
        """f64 [cache, head / 2]."""
        frequencies = self.frequencies or self.theta ** -(np.arange(0, self.head, 2) / self.head)
        return np.outer(np.arange(self.cache), np.asarray(frequencies, "f8"))


def _wrong_size(name: str, actual: int, expected: int) -> Exception:
    return make_error(
        "bad_option", "a list has the wrong length", value=name, expected=str(expected), actual=str(actual)
    )


def _weights(*shape: int, dtype: str) -> Parameter:
    return normal(shape, dtype, deviation=0.02)


class _Linear(Linear):
    def __init__(self, in_features: int, out_features: int, dtype: str, bias: bool = False) -> None:
        self.W = _weights(in_features, out_features, dtype=dtype)
        self.b = filled((out_features,), 0.0, dtype) if bias else None


class _Layer(Module):
    """`qkv` holds the columns of q, k and v side by side, `gate_up` those of the gate and what it weighs."""

    def __init__(self, c: LlamaConfig) -> None:
        self.config = c
        self.attn_norm = RMSNorm(c.features, c.epsilon, c.dtype)
        self.qkv = _Linear(c.features, (c.heads + 2 * c.kv_heads) * c.head, c.dtype, c.qkv_bias)
        self.q_norm = RMSNorm(c.head, c.epsilon, c.dtype) if c.head_norms else None
        self.k_norm = RMSNorm(c.head, c.epsilon, c.dtype) if c.head_norms else None
        self.o = _Linear(c.heads * c.head, c.features, c.dtype, c.output_bias)
        self.mlp_norm = RMSNorm(c.features, c.epsilon, c.dtype)
        self.gate_up = _Linear(c.features, 2 * c.hidden, c.dtype, c.mlp_bias)
        self.down = _Linear(c.hidden, c.features, c.dtype, c.mlp_bias)
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
        parts = (
            qkv[:, :, int(first) : int(last)].reshape(batch, length, count, c.head)
            for first, last, count in zip(ends, ends[1:], heads, strict=False)
        )
        norms = (self.q_norm, self.k_norm, None)
        q, k, v = (
            (norm(part) if norm else part).transpose(0, 2, 1, 3)
            for part, norm in zip(parts, norms, strict=True)
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
        self.norm = RMSNorm(c.features, c.epsilon, c.dtype)
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
            for table in (np.cos(c.angles()) * c.rotary_scale, np.sin(c.angles()) * c.rotary_scale)
        )
        key = ops.iota(shape=[1, 1, 1, c.cache], axis=3, dtype="i64")
        query = steps.reshape(1, 1, length, 1)
        # Of each window; one as long as the cache hides nothing.
        seen = {0: key <= query}
        windows = [window if window < c.cache else 0 for window in c.windows or (0,) * c.layers]
        for window in {*windows} - {0}:
            seen[window] = (key <= query) & (key > query - window)
        x = ops.gather(self.embedding, ids, axis=0)
        for layer, window in zip(self.layers, windows, strict=True):
            x = layer(x, cos, sin, start, seen[window])
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

    @classmethod
    def from_transformers(cls, source: Any, *, cache: int, batch: int = 1, dtype: str | None = None) -> Llama:
        """The decoder of a transformers model (Llama, Mistral, Qwen2 or Qwen3), or of the folder of one.

        A folder is read without transformers: config.json, and the weights in safetensors, in one file or
        several. What the configuration says is used (rope_scaling, biases, windows, …), makes no difference
        to the logits, or is refused with unsupported_option. `dtype` is by default that of the weights.
        """
        config, weights = parts_of(source)
        model = cls(config_of(config, cache, batch, dtype_name(dtype or dtype_of(weights))))
        model.load_state_dict(dict(renamed(weights, model.config)))
        return model

    def load_transformers(self, weights: Mapping[str, Any]) -> None:
        """Takes the `state_dict()` of a transformers model of the same sizes and options.

        A state dict holds the weights alone: rotary positions, epsilon and windows are those of this model's
        `LlamaConfig`, which `from_transformers` reads from the model's configuration. unknown_param for
        weights that are missing or left over.
        """
        self.load_state_dict(dict(renamed(weights, self.config)))

"""Multi-head attention with grouped key heads and an optional KV cache."""

from __future__ import annotations

import math

from .. import ops
from .._build import check_flag
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import current_graph
from .layers import Linear
from .module import Module, State

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Self-attention of x [B, T, features]; with `kv_heads` < `heads`, groups of heads share keys and values.

    window  each token sees the last `window` tokens up to itself, without `causal` and a cache as many ahead;
           0: all.
    cache  (batch, length): keys and values of earlier runs are states `k_cache` and `v_cache`
           [batch, kv_heads, length, head size], and `position` i64[] counts the tokens seen. Each run appends
           its T tokens, at positions position..position+T-1 < length, and is causal.
    """

    def __init__(
        self,
        features: int,
        heads: int,
        kv_heads: int | None = None,
        *,
        causal: bool = False,
        window: int = 0,
        bias: bool = True,
        cache: tuple[int, int] | None = None,
        dtype: str = "float32",
    ) -> None:
        self.heads, self.kv_heads = heads, heads if kv_heads is None else kv_heads
        if heads < 1 or features % heads != 0 or self.kv_heads < 1 or heads % self.kv_heads != 0:
            raise make_error(
                "bad_option",
                "the heads of an attention do not fit",
                value=f"features={features}, heads={heads}, kv_heads={self.kv_heads}",
                expected="features a multiple of heads, heads a multiple of kv_heads",
            )
        check_flag("causal", causal)
        self.head_size = features // heads
        self.causal, self.window = causal, window
        self.q = Linear(features, heads * self.head_size, bias, dtype)
        self.k = Linear(features, self.kv_heads * self.head_size, bias, dtype)
        self.v = Linear(features, self.kv_heads * self.head_size, bias, dtype)
        self.o = Linear(heads * self.head_size, features, bias, dtype)
        if cache is not None:
            shape = (cache[0], self.kv_heads, cache[1], self.head_size)
            self.k_cache = State(dtype=dtype, shape=shape)
            self.v_cache = State(dtype=dtype, shape=shape)
            self.position = State(dtype="i64", shape=())

    def forward(self, x: SymTensor, mask: SymTensor | None = None) -> SymTensor:
        """`mask` broadcasts to [B, heads, T, T]: added, or kept where true if bool."""
        q = self._split(self.q(x), self.heads)
        k = self._split(self.k(x), self.kv_heads)
        v = self._split(self.v(x), self.kv_heads)
        causal, window = self.causal, self.window
        if hasattr(self, "k_cache"):
            k, v, mask, causal, window = *self._append(k, v), self._seen(x.shape[1]), False, 0
        scale = 1.0 / math.sqrt(self.head_size)
        y = ops.attention(q, k, v, mask, scale=scale, causal=causal, window=window)
        batch, length = x.shape[0], x.shape[1]
        return self.o(y.transpose(0, 2, 1, 3).reshape(batch, length, self.heads * self.head_size))

    def _split(self, x: SymTensor, heads: int) -> SymTensor:
        batch, length, _ = x.shape
        return x.reshape(batch, length, heads, self.head_size).transpose(0, 2, 1, 3)

    def _append(self, k: SymTensor, v: SymTensor) -> tuple[SymTensor, SymTensor]:
        self._start = self.position.sym()
        length = k.shape[2]
        at = (ops.iota(shape=[1, 1, length, 1], axis=2, dtype="i64") + self._start).broadcast_to(k.shape)
        keys = ops.scatter_elements(self.k_cache.sym(), at, k, axis=2)
        values = ops.scatter_elements(self.v_cache.sym(), at, v, axis=2)
        self.k_cache.update(keys)
        self.v_cache.update(values)
        self.position.update(self._start + current_graph().lift(length, dtype="i64"))
        return keys, values

    def _seen(self, length: object) -> SymTensor:
        """bool [1, 1, T, cache length]: query i, at position + i, sees its window's keys up to its own."""
        key = ops.iota(shape=[1, 1, 1, self.k_cache.shape[2]], axis=3, dtype="i64")
        query = ops.iota(shape=[1, 1, length, 1], axis=2, dtype="i64") + self._start
        seen = key <= query
        return ops.bit_and(seen, key > query - self.window) if self.window else seen

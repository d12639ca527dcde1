"""all-MiniLM-L6-v2 in numpy float64, straight from the packaged weights: the judge of every other evaluation.

It shares nothing with the ONNX file. The network is BERT (Devlin et al. 2018, arXiv:1810.04805) with
post-norm layers and the erf form of GELU, then the masked mean and unit length of Sentence-BERT
(arXiv:1908.10084).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from .package import MiniLmConfig, load_config, load_weights

__all__ = ["MiniLmF64"]

Array = np.ndarray


def _erf(x: Array) -> Array:
    flat = np.fromiter(map(math.erf, x.ravel().tolist()), np.float64, x.size)
    return flat.reshape(x.shape)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + _erf(x / math.sqrt(2.0)))


def _softmax(x: Array) -> Array:
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


class MiniLmF64:
    """Callable: named int inputs [batch, sequence] → (last_hidden_state, sentence_embedding), float64."""

    def __init__(self) -> None:
        self.config: MiniLmConfig = load_config()
        self._weights = {
            name: value.astype(np.float64)
            for name, value in load_weights().items()
            if value.dtype == np.float32 and not name.startswith("pooler.")
        }

    def __call__(self, inputs: Mapping[str, Array]) -> tuple[Array, Array]:
        mask = inputs["attention_mask"] != 0
        x = self._embed(inputs["input_ids"], inputs["token_type_ids"])
        for index in range(self.config.layers):
            module = f"encoder.layer.{index}"
            attended = self._attention(x, mask, f"{module}.attention.self")
            x = self._add_norm(
                self._linear(attended, f"{module}.attention.output.dense"), x, f"{module}.attention.output"
            )
            wide = _gelu(self._linear(x, f"{module}.intermediate.dense"))
            x = self._add_norm(self._linear(wide, f"{module}.output.dense"), x, f"{module}.output")
        return x, self._pool(x, mask)

    def _embed(self, ids: Array, types: Array) -> Array:
        w = self._weights
        x = w["embeddings.word_embeddings.weight"][ids] + w["embeddings.token_type_embeddings.weight"][types]
        x = x + w["embeddings.position_embeddings.weight"][: ids.shape[1]]
        return self._layer_norm(x, "embeddings.LayerNorm")

    def _linear(self, x: Array, module: str) -> Array:
        return x @ self._weights[f"{module}.weight"].T + self._weights[f"{module}.bias"]

    def _layer_norm(self, x: Array, module: str) -> Array:
        centred = x - x.mean(axis=-1, keepdims=True)
        variance = np.square(centred).mean(axis=-1, keepdims=True)
        unit = centred / np.sqrt(variance + self.config.layer_norm_eps)
        return unit * self._weights[f"{module}.weight"] + self._weights[f"{module}.bias"]

    def _add_norm(self, x: Array, skip: Array, module: str) -> Array:
        return self._layer_norm(x + skip, f"{module}.LayerNorm")

    def _heads(self, x: Array) -> Array:
        batch, sequence, _ = x.shape
        return x.reshape(batch, sequence, self.config.heads, self.config.head_dim).swapaxes(1, 2)

    def _attention(self, x: Array, mask: Array, module: str) -> Array:
        query, key, value = (
            self._heads(self._linear(x, f"{module}.{name}")) for name in ("query", "key", "value")
        )
        scores = query @ key.swapaxes(-1, -2) / math.sqrt(self.config.head_dim)
        # A finite floor keeps a row without any token defined: it averages all positions, like the f32 model.
        scores = np.where(mask[:, None, None, :], scores, np.finfo(np.float64).min)
        return (_softmax(scores) @ value).swapaxes(1, 2).reshape(x.shape)

    def _pool(self, x: Array, mask: Array) -> Array:
        weight = mask[:, :, None].astype(np.float64)
        mean = (x * weight).sum(axis=1) / np.maximum(weight.sum(axis=1), 1e-9)
        return mean / np.maximum(np.linalg.norm(mean, axis=1, keepdims=True), 1e-12)

"""How far an evaluation of MiniLM is from the float64 reference."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["MAX_ABS_ERROR", "MIN_COSINE", "Agreement", "Outputs", "measure"]

MIN_COSINE = 0.99999
MAX_ABS_ERROR = 1e-5

Outputs = tuple[np.ndarray, np.ndarray]  # last_hidden_state, sentence_embedding


@dataclass(frozen=True)
class Agreement:
    """Worst values over all sentences; hidden states are compared where there is a token.

    Hidden states of padding are read by nobody, and there a layer norm can meet an almost constant row, which
    magnifies the rounding of any float32 evaluation.
    """

    cosine: float
    embedding_error: float
    hidden_error: float

    @property
    def max_abs_error(self) -> float:
        return float(np.maximum(self.embedding_error, self.hidden_error))  # unlike max(), keeps a NaN

    @property
    def passed(self) -> bool:
        return self.cosine >= MIN_COSINE and self.max_abs_error <= MAX_ABS_ERROR


def _cosines(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    return (a * b).sum(axis=1) / (np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1))


def measure(
    outputs: Sequence[Outputs], expected: Sequence[Outputs], masks: Sequence[np.ndarray]
) -> Agreement:
    """Compares batch by batch; `masks` are the attention masks. NaN anywhere fails the comparison."""
    cosine, embedding_error, hidden_error = 1.0, 0.0, 0.0
    for (hidden, embedding), (hidden_want, embedding_want), mask in zip(
        outputs, expected, masks, strict=True
    ):
        if hidden.shape != hidden_want.shape or embedding.shape != embedding_want.shape:
            want, got = (hidden_want.shape, embedding_want.shape), (hidden.shape, embedding.shape)
            raise ValueError(f"expected output shapes {want}, got {got}")
        cosines = _cosines(embedding.astype(np.float64), embedding_want.astype(np.float64))
        difference = np.abs(hidden.astype(np.float64) - hidden_want)[mask != 0]
        cosine = float(np.minimum(cosine, cosines.min()))
        embedding_error = float(np.maximum(embedding_error, np.abs(embedding - embedding_want).max()))
        hidden_error = float(np.maximum(hidden_error, difference.max()))
    return Agreement(cosine, embedding_error, hidden_error)

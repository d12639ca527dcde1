"""MiniLM in onnxruntime: the outside judge of the numbers and the peer of the timings."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnxruntime

from .agreement import Outputs

__all__ = ["OnnxRuntimeMiniLm"]


class OnnxRuntimeMiniLm:
    """Callable: named inputs → (last_hidden_state, sentence_embedding). `threads=None` is its own default."""

    def __init__(self, model: str | Path, threads: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        if threads is not None:
            options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> Outputs:
        hidden, embedding = self._session.run(["last_hidden_state", "sentence_embedding"], dict(inputs))
        return hidden, embedding

"""onnxruntime as the peer of timings and memory figures."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

__all__ = ["OnnxRuntimePeer"]


class OnnxRuntimePeer:
    """Callable: named inputs → all outputs. `threads=None` is its own default."""

    def __init__(self, model: str | Path, threads: int | None = None) -> None:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3  # its remarks on unused initializers say nothing here
        if threads is not None:
            options.intra_op_num_threads = threads
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])

    def __call__(self, inputs: Mapping[str, np.ndarray]) -> list[Any]:
        return list(self._session.run(None, dict(inputs)))

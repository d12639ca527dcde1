"""Layers for models written in Python: `aicf.compile(module, inputs=[aicf.TensorSpec(...)])`."""

from __future__ import annotations

from .._files import load_safetensors, save_safetensors
from .attention import MultiheadAttention
from .init import seed
from .layers import (
    GELU,
    Dropout,
    Embedding,
    LayerNorm,
    Linear,
    ReLU,
    RMSNorm,
    Sigmoid,
    SiLU,
    Softmax,
    Tanh,
)
from .module import Module, ModuleList, Parameter, Sequential, State

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "Module",
    "ModuleList",
    "MultiheadAttention",
    "Parameter",
    "RMSNorm",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "State",
    "Tanh",
    "load_safetensors",
    "save_safetensors",
    "seed",
]

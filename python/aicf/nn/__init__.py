"""Layers for models written in Python: `aicf.compile(module, inputs=[aicf.TensorSpec(...)])`."""

from __future__ import annotations

from .._files import load_safetensors, save_safetensors
from .attention import MultiheadAttention
from .conv import AvgPool2d, BatchNorm2d, Conv2d, Flatten, MaxPool2d
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
from .llama import Llama, LlamaConfig
from .losses import BCEWithLogitsLoss, CrossEntropyLoss, HuberLoss, KLDivLoss, MSELoss
from .module import Module, ModuleList, Parameter, Sequential, State

__all__ = [
    "GELU",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "HuberLoss",
    "KLDivLoss",
    "LayerNorm",
    "Linear",
    "Llama",
    "LlamaConfig",
    "MSELoss",
    "MaxPool2d",
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

"""AICF compiles a model into a static, deterministic program and replays it.

>>> exe = aicf.compile("model.onnx", dims={"batch": "1..8"})
>>> y = exe(x)
>>> exe.save("model.aicf")
"""

from __future__ import annotations

from . import nn, ops
from ._aicf import DeviceTensor, Dim, Program, Tensor, __version__
from ._files import load_safetensors, save_safetensors
from .compiler import compile, support
from .errors import EnvError, Error, InternalError, UserError
from .executable import Executable, PlanSummary, TensorInfo, VerifyResult, load
from .symtensor import SymTensor
from .tracing import Graph, TensorSpec, trace, tracing

__all__ = [
    "DeviceTensor",
    "Dim",
    "EnvError",
    "Error",
    "Executable",
    "Graph",
    "InternalError",
    "PlanSummary",
    "Program",
    "SymTensor",
    "Tensor",
    "TensorInfo",
    "TensorSpec",
    "UserError",
    "VerifyResult",
    "__version__",
    "compile",
    "load",
    "load_safetensors",
    "nn",
    "ops",
    "save_safetensors",
    "support",
    "trace",
    "tracing",
]

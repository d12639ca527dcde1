"""AICF compiles a model into a static, deterministic program and replays it.

>>> exe = aicf.compile("model.onnx", dims={"batch": "1..8"})
>>> y = exe(x)
>>> exe.save("model.aicf")
"""

from __future__ import annotations

from . import nn, ops, optim
from ._aicf import DeviceTensor, Dim, Program, Tensor, __version__
from ._files import load_safetensors, save_safetensors
from .compiler import compile, support
from .custom import CudaKernel, register_op
from .errors import EnvError, Error, InternalError, UserError
from .executable import Executable, PlanSummary, TensorInfo, VerifyResult, load
from .symtensor import SymTensor
from .tracing import Graph, TensorSpec, trace, tracing
from .training import TrainStep, compile_train_step, load_train_step, shuffled_rows
from .triton_kernel import TritonKernel

__all__ = [
    "CudaKernel",
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
    "TrainStep",
    "TritonKernel",
    "UserError",
    "VerifyResult",
    "__version__",
    "compile",
    "compile_train_step",
    "load",
    "load_safetensors",
    "load_train_step",
    "nn",
    "ops",
    "optim",
    "register_op",
    "save_safetensors",
    "shuffled_rows",
    "support",
    "trace",
    "tracing",
]

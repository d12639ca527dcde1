"""AICF compiles a model into a static, deterministic program and replays it.

>>> exe = aicf.compile("model.onnx", dims={"batch": "1..8"})
>>> y = exe(x)
>>> exe.save("model.aicf")
"""

from __future__ import annotations

from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import nn, ops, optim
from ._aicf import DeviceTensor, Dim, Program, Tensor, __version__
from ._files import load_safetensors, save_safetensors
from ._progress import set_progress
from .compiler import compile, support
from .custom import CudaKernel, register_op
from .errors import EnvError, Error, InternalError, UserError
from .executable import Executable, PlanSummary, TensorInfo, VerifyResult, load
from .symtensor import SymTensor
from .tracing import Graph, TensorSpec, trace, tracing
from .training import TrainStep, compile_train_step, load_train_step, shuffled_rows
from .triton_kernel import TritonKernel

if _TYPE_CHECKING:
    from . import onnx as onnx
    from . import torch as torch

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
    "set_progress",
    "shuffled_rows",
    "support",
    "trace",
    "tracing",
]

# Parts that need a package of the same name. `__all__` leaves them out: a star would import the packages.
_LAZY = ("onnx", "torch")


def __getattr__(name: str) -> object:
    if name in _LAZY:
        import importlib

        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LAZY})

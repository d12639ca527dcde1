"""AICF compiles a model into a static, deterministic program and replays it.

>>> exe = aicf.compile("model.onnx", dims={"batch": "1..8"})
>>> y = exe(x)
>>> exe.save("model.aicf")
"""

from __future__ import annotations

from ._aicf import Program, Tensor, __version__
from .compiler import compile
from .errors import EnvError, Error, InternalError, UserError
from .executable import Executable, PlanSummary, TensorInfo, VerifyResult, load

__all__ = [
    "EnvError",
    "Error",
    "Executable",
    "InternalError",
    "PlanSummary",
    "Program",
    "Tensor",
    "TensorInfo",
    "UserError",
    "VerifyResult",
    "__version__",
    "compile",
    "load",
]

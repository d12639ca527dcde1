"""The PyTorch front door. `aicf.compile(model, (x,))` comes here by itself; torch is imported only then."""

from __future__ import annotations

from ..errors import make_error

try:
    import torch as _torch
except ImportError as _missing:
    raise make_error(
        "tool_missing",
        "this needs PyTorch, which is not installed",
        value="torch",
        remedy="pip install torch",
    ) from _missing

from .causal_lm import CausalLM, compile_causal_lm
from .executable import TorchExecutable
from .importer import import_program
from .module import compile_model, import_module
from .precision import PrecisionError, precision_report
from .seq2seq_lm import Seq2SeqLM, compile_seq2seq_lm
from .support import Support, support_of
from .survey import Unsupported

__all__ = [
    "CausalLM",
    "PrecisionError",
    "Seq2SeqLM",
    "Support",
    "TorchExecutable",
    "Unsupported",
    "compile_causal_lm",
    "compile_model",
    "compile_seq2seq_lm",
    "import_module",
    "import_program",
    "precision_report",
    "support_of",
]

del _torch

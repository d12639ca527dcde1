"""`aicf.compile`: a model becomes an Executable."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any

from . import _aicf
from ._build import build, check_options, check_type, state_pairs
from ._files import file_path, is_compiled
from ._progress import Progress, stage, work
from ._sizes import dim_texts, set_ranges
from .errors import make_error
from .executable import Executable
from .nn.module import Module
from .tracing import trace

__all__ = ["compile", "is_torch", "support"]

_ONNX = (str, os.PathLike, bytes, bytearray, memoryview)


def compile(
    model: Any,
    inputs: Any = None,
    *,
    dims: Mapping[str, Any] | None = None,
    device: str = "cpu",
    precision: str = "f32",
    threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Executable:
    """Compiles a model for one device.

    model      an `aicf.nn` module, a function to trace, a traced Program, the path or bytes of an ONNX file,
               a torch.nn.Module, or a function of torch tensors.
    inputs     for a module or function: the TensorSpec of each argument, or an array like it, in order or by
               name; for those of torch: example arguments, torch tensors; for ONNX: values, by name, of
               inputs that decide shapes.
    dims       dynamic sizes by name: 8, "8", "1,8", "16..512", (16, 512), range(16, 513), the name of
               another size, or for ONNX arithmetic on such names: {"height": "2*h", "h": "8..256"}. For a
               torch module, of its arguments' axes: {"x": {0: "batch=1..64"}}.
    threads    of the CPU; default AICF_NUM_THREADS, else the physical cores.
    precision  "f32"; "bf16-mixed" or "f16-mixed": contractions of f32 take operands of that type and
               accumulate in f32; "tf32": f32 matrix products, convolutions, attention.
    device     "cpu", "cuda" or "cuda:ORDINAL".
    options    opt: 0, 1 or 2 · skip_passes: names · isa: "avx512", "avx2", "portable" · states: (past,
               present) pairs, or a dict, of ONNX inputs and outputs that become state · results: names of
               results of ONNX nodes to give instead of the model's outputs · target: exactly what to compile
               for, like "sm_90,compute_80,cpu", or "cuda". By default that is the device, and on a GPU `save`
               adds PTX for other GPUs and the CPU's variant to the file.
    progress   called with the name of each stage and the fraction of the work behind it; see
               `aicf.set_progress`.
    """
    chosen = check_options(options or {}, onnx=isinstance(model, _ONNX))
    check_type("dims", {} if dims is None else dims, Mapping, '{"batch": "1..8"}')
    with work(progress):
        if is_torch(model, inputs):
            from .torch import compile_model

            return compile_model(model, inputs, dims, device, threads, chosen, precision)
        stage("import", 0.0)
        program = _to_program(model, inputs, dims or {}, chosen)
        return Executable(build(program, device, threads, chosen, precision))


def support(model: Any, inputs: Any = None, dims: Mapping[str, Any] | None = None) -> Any:
    """What of a torch module or function AICF does not support, with the lines of Python, before compiling.

    Gives an `aicf.torch.Support`: true if everything is supported, `str()` is the report.
    """
    if not is_torch(model, inputs):
        raise make_error(
            "bad_option",
            "this is not a torch module",
            actual=type(model).__name__,
            expected="a torch.nn.Module, or a function with torch tensors as its arguments",
            remedy="for ONNX files use the command aicf support",
        )
    if inputs is None:
        raise make_error(
            "missing_input",
            "the example arguments of the model are needed",
            value="inputs",
            remedy="give torch tensors: aicf.support(model, (x,))",
        )
    from .torch import support_of

    return support_of(model, inputs, dims)


def is_torch(model: Any, inputs: Any = ()) -> bool:
    """A torch module, exported program or function of torch tensors; torch is imported for nothing else."""
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    exported = getattr(sys.modules.get("torch.export"), "ExportedProgram", ())
    if isinstance(model, (torch.nn.Module, exported)):
        return True
    if not callable(model) or isinstance(model, Module):
        return False
    return any(isinstance(leaf, torch.Tensor) for leaf in torch.utils._pytree.tree_leaves(inputs))


def _to_program(
    model: Any, inputs: Any, dims: Mapping[str, Any], options: Mapping[str, Any]
) -> _aicf.Program:
    if isinstance(model, _aicf.Program):
        if inputs is not None:
            raise make_error(
                "bad_option",
                "a Program brings its inputs",
                value="inputs",
                remedy="leave them out",
            )
        set_ranges(model, dims)
        return model
    if callable(model):
        return trace(model, inputs if inputs is not None else [], dims=dims)
    importer: Any = None
    if isinstance(model, (str, os.PathLike)):
        importer, model = _aicf.import_onnx, file_path(model)
        if is_compiled(model):
            raise make_error(
                "bad_option",
                "the model is compiled already",
                value=model,
                expected="an .onnx file",
                remedy="load it: aicf.load(path), or aicf.load_train_step(path) if it trains",
            )
    elif isinstance(model, (bytes, bytearray, memoryview)):
        importer, model = _aicf.import_onnx_bytes, bytes(model)
    else:
        raise make_error(
            "bad_option",
            "this is not a model that can be compiled",
            actual=type(model).__name__,
            expected="an aicf.nn or torch.nn module, a function, a Program, or the path or bytes of an ONNX "
            "model",
        )
    values = {} if inputs is None or (isinstance(inputs, (list, tuple)) and not inputs) else inputs
    check_type("inputs", values, Mapping, "the values of ONNX inputs that decide shapes, by name")
    results = options.get("results", ())
    for part in results if isinstance(results, (list, tuple)) else [results]:
        check_type("results", part, str, "names of results of an ONNX model's nodes")
    check_type("results", results, (list, tuple), "names of results of an ONNX model's nodes")
    return importer(model, dim_texts(dims), state_pairs(options), dict(values), list(results))

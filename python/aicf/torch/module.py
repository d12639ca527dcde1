"""`aicf.compile` of a torch.nn.Module, a function of torch tensors, or an exported program."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.export import ExportedProgram

from .._build import build
from ..errors import make_error
from .control_flow import runs_loops
from .dims import positional_names
from .executable import TorchExecutable
from .export import export
from .function import OWNER
from .importer import ImportedModel, import_entries, symbol_ranges

__all__ = ["compile_model", "import_module"]


def import_module(
    model: Any, inputs: Any, dims: Mapping[str, Any] | None = None, loops: bool = True
) -> ImportedModel:
    """A module or function with example arguments, or a torch.export program, as a Program of ours."""
    if isinstance(model, ExportedProgram):
        if inputs is not None:
            raise make_error(
                "bad_option",
                "an exported program brings its arguments",
                value="inputs",
                remedy="leave them out",
            )
        return import_entries({"main": model}, [{}], symbol_ranges(model, dims), loops=loops)
    with torch.no_grad():
        prefix = "" if isinstance(model, torch.nn.Module) else f"{OWNER}."
        program, names, ranges = export(model, inputs, dims, prefix)
        imported = import_entries({"main": program}, [names], ranges, prefix=prefix, loops=loops)
        imported.positional = positional_names(model)
        return imported


def compile_model(
    model: Any,
    inputs: Any,
    dims: Mapping[str, Any] | None,
    device: str,
    threads: int | None,
    options: Mapping[str, Any],
    precision: str = "f32",
) -> TorchExecutable:
    """`aicf.compile` of a torch module or function, whose arguments these are."""
    imported = import_module(model, inputs, dims, runs_loops(device, options))
    return TorchExecutable(build(imported.program, device, threads, options, precision), imported)

"""`aicf.support(model, args)`: everything that is in the way of compiling a module, before compiling it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import Error
from .exclusive import exclusive
from .export import export
from .importer import functional
from .survey import Unsupported, count_ops, survey
from .types import Symbols

__all__ = ["Support", "support_of"]


@dataclass(frozen=True)
class Support:
    """`ops` calls of torch ops, those of them that are `unsupported`, and what stopped torch.export, if it
    did.

    True if the model compiles whole; `str()` is a report with the lines of Python.
    """

    ops: int
    unsupported: tuple[Unsupported, ...]
    export_error: Error | None = None

    def __bool__(self) -> bool:
        return not self.unsupported and self.export_error is None

    def __str__(self) -> str:
        if self.export_error is not None:
            return str(self.export_error)
        head = f"{self.ops - len(self.unsupported)} of {self.ops} ops are supported"
        return "\n\n".join([head, *map(str, self.unsupported)])


@exclusive
def support_of(model: Any, inputs: Any, dims: Mapping[str, Any] | None = None) -> Support:
    """`aicf.support` of a torch module or function; nothing is compiled."""
    try:
        with torch.no_grad():
            program, names, _ = export(model, inputs, dims)
            program = functional(program)
    except Error as error:
        return Support(0, (), error)
    found = survey(program.graph_module, Symbols(names))
    written = program.graph_signature.user_inputs_to_mutate
    rows = [*found.values(), *(_written(name) for name in written.values())]
    return Support(count_ops(program.graph_module), tuple(rows))


def _written(name: str) -> Unsupported:
    return Unsupported(
        "copy_",
        f"input '{name}'",
        "the model writes to an input",
        "clone the input first, or return the new value",
    )

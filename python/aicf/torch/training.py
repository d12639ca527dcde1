"""A torch.nn.Module as the model of a train step: its training form with a loss, and its evaluation form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from .._aicf import Program, dtype_name
from ..errors import make_error
from ..tracing import Graph, TensorSpec, tracing
from .export import export
from .gradients import no_custom_derivatives, stop_where_no_grad
from .importer import ImportedModel, import_entries

__all__ = ["import_training"]

_DTYPES = {
    "f64": torch.float64,
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i64": torch.int64,
    "i32": torch.int32,
    "i16": torch.int16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "bool": torch.bool,
}


class _WithLoss(torch.nn.Module):
    """The model followed by a loss of torch's, under the model's own parameter names."""

    def __init__(self, model: torch.nn.Module, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *args: Any) -> Any:
        return self.loss(self.model(*args[:-1]), args[-1])


def import_training(
    model: torch.nn.Module,
    loss: Callable[[Any, Any], Any] | None,
    specs: Mapping[str, TensorSpec],
    eval_specs: Mapping[str, TensorSpec],
    seed: int,
) -> tuple[Program, list[str]]:
    """Entries "loss", traced in training mode, and "eval"; and the params that are not trained.

    A loss that is a torch module is traced with the model; any other maps traced values. Sizes are fixed.
    """
    rows = list(specs.items())
    model_specs, target = (rows, None) if loss is None else (rows[:-1], rows[-1])
    torch_loss = isinstance(loss, torch.nn.Module)
    with _mode(model, training=True), torch.enable_grad(), no_custom_derivatives():
        whole = _WithLoss(model, loss) if torch_loss else model
        trained, names, _ = export(whole, _examples(rows if torch_loss else model_specs))
        trained = stop_where_no_grad(trained)
    with _mode(model, training=False), torch.no_grad():
        evaluated, eval_names, _ = export(model, _examples(list(eval_specs.items())))

    def finish(graph: Graph, results: Sequence[Any]) -> None:
        with tracing(graph):
            value = results[0]
            if target is not None and not torch_loss:
                name, spec = target
                value = loss(value, graph.input(name, spec.shape, dtype_name(spec.dtype)))  # type: ignore[misc]
            graph.output(value, "loss")

    prefix = "model." if torch_loss else ""
    imported = import_entries(
        {"loss": trained, "eval": evaluated}, [names, eval_names], {}, finish=finish, prefix=prefix, seed=seed
    )
    return imported.program, _untrained(whole, imported, prefix)


def _untrained(whole: torch.nn.Module, imported: ImportedModel, prefix: str) -> list[str]:
    """Buffers, and parameters that need no gradient, by their names in the Program."""
    parameters = whole.named_parameters(remove_duplicate=False)
    trained = {name.removeprefix(prefix) for name, parameter in parameters if parameter.requires_grad}
    written = [n for n, variable in imported.variables.items() if variable.is_state and n in trained]
    if written:
        raise make_error(
            "unsupported_op",
            "the model writes to a parameter that is trained",
            value=", ".join(written),
            remedy="use the new value without storing it, as w = self.w.clamp(-1, 1); an embedding without "
            "max_norm; or requires_grad_(False)",
        )
    return [n for n, variable in imported.variables.items() if not variable.is_state and n not in trained]


def _examples(rows: Sequence[tuple[str, TensorSpec]]) -> tuple[torch.Tensor, ...]:
    for name, spec in rows:
        if not all(isinstance(size, int) for size in spec.shape):
            raise make_error(
                "unsupported_option",
                "the train step of a torch module takes fixed sizes",
                op=name,
                actual=str(list(spec.shape)),
            )
    return tuple(torch.zeros(tuple(spec.shape), dtype=_DTYPES[dtype_name(spec.dtype)]) for _, spec in rows)  # type: ignore[arg-type]


@contextmanager
def _mode(model: torch.nn.Module, training: bool) -> Iterator[None]:
    """The module in a mode; each part is put back into its own afterwards.

    One that is in this mode already stays as it stands, as in a call of torch's: parts that were put into the
    other, such as a frozen norm in eval mode, are meant to be.
    """
    before = [(module, module.training) for module in model.modules()]
    if model.training != training:
        model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode

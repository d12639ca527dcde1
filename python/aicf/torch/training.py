"""A torch.nn.Module as the model of a train step: its training form with a loss, and its evaluation form."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .._aicf import Program, dtype_name
from .._specs import CallSpecs
from ..errors import Error, make_error
from ..nn.module import Module
from ..tracing import Graph, TensorSpec, tracing
from .exclusive import exclusive
from .export import export
from .function import OWNER, as_module
from .gradients import no_custom_derivatives, refuse_gradient_hooks
from .importer import ImportedModel, import_entries
from .no_grad import stop_where_no_grad
from .objects import closed
from .types import TORCH_DTYPES

__all__ = ["import_training"]

_MODEL = "model"  # where the model stands in a call


class _Call(torch.nn.Module):
    """The model called with `args` and `kwargs`, followed by a loss of torch's where there is a target."""

    def __init__(self, model: torch.nn.Module, loss: torch.nn.Module | None = None) -> None:
        super().__init__()
        self.model = model
        self.loss_name = ""
        if loss is not None:
            # The model's own names lose their prefix, so the loss must have none that the model has.
            taken = {name.split(".")[0] for name, _ in model.named_modules()}
            names = (f"loss{'_' * i}" for i in range(len(taken) + 1))
            self.loss_name = next(name for name in names if name not in taken)
            self.add_module(self.loss_name, loss)

    def forward(self, args: Any, kwargs: Any, target: Any) -> Any:
        result = self.model(*args, **kwargs)
        return result if target is None else getattr(self, self.loss_name)(result, target)


@exclusive
def import_training(
    model: torch.nn.Module,
    loss: Callable[[Any, Any], Any] | None,
    training: CallSpecs,
    evaluation: CallSpecs,
    seed: int,
) -> tuple[Program, list[str]]:
    """Entries "loss", traced in training mode, and "eval"; and the params that are not trained.

    A loss of `aicf.nn` maps traced values, and so does a function that calls ops of ours; a torch module and
    any other function map torch's tensors, traced with the model. Sizes are fixed.
    """
    if isinstance(loss, Module) or not callable(loss):
        return _import(model, loss, None, training, evaluation, seed)
    try:
        return _import(model, loss, as_module(loss), training, evaluation, seed)
    except Error as error:
        if error.name != "misuse" or isinstance(loss, torch.nn.Module):
            raise
    return _import(model, loss, None, training, evaluation, seed)


def _import(
    model: torch.nn.Module,
    loss: Callable[[Any, Any], Any] | None,
    torch_loss: torch.nn.Module | None,
    training: CallSpecs,
    evaluation: CallSpecs,
    seed: int,
) -> tuple[Program, list[str]]:
    model_specs = dict(training.specs)
    target = None if loss is None else model_specs.popitem()
    whole = _Call(model, torch_loss)
    refuse_gradient_hooks(whole, f"{_MODEL}.")
    arguments = _arguments(model_specs, training.by_name, None if torch_loss is None else target)
    with _mode(model, training=True), torch.enable_grad(), no_custom_derivatives():
        trained = stop_where_no_grad(export(whole, _examples(arguments), prefix=f"{_MODEL}.")[0])
    eval_arguments = _arguments(evaluation.specs, evaluation.by_name)
    with _mode(model, training=False), torch.no_grad():
        evaluated = export(whole, _examples(eval_arguments), prefix=f"{_MODEL}.")[0]

    def finish(graph: Graph, results: Sequence[Any]) -> None:
        with tracing(graph):
            value = results[0]
            if target is not None and torch_loss is None:
                name, spec = target
                result = closed(pytree.tree_unflatten(results, trained.call_spec.out_spec))
                value = loss(result, graph.input(name, spec.shape, dtype_name(spec.dtype)))  # type: ignore[misc]
            graph.output(value, "loss")

    imported = import_entries(
        {"loss": trained, "eval": evaluated},
        [{}, {}],
        {},
        finish=finish,
        prefix=f"{_MODEL}.",
        seed=seed,
        inputs=[[name for name, _ in _leaves(given)] for given in (arguments, eval_arguments)],
    )
    return imported.program, _untrained(whole, imported)


def _untrained(whole: _Call, imported: ImportedModel) -> list[str]:
    """Buffers, and parameters that need no gradient or are only named by a function that is the loss.

    By their names in the Program.
    """
    parameters = whole.named_parameters(remove_duplicate=False)
    named_by_loss = f"{whole.loss_name}.{OWNER}."
    trained = {
        name.removeprefix(f"{_MODEL}.")
        for name, parameter in parameters
        if parameter.requires_grad and not name.startswith(named_by_loss)
    }
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


_Named = tuple[str, TensorSpec]


def _arguments(specs: Mapping[str, TensorSpec], by_name: bool, target: _Named | None = None) -> Any:
    """What a call takes, with the name and spec of each tensor in its place."""
    rows = tuple(specs.items())
    return ((), {row[0]: row for row in rows}, target) if by_name else (rows, {}, target)


def _leaves(arguments: Any) -> list[_Named]:
    return [leaf for leaf in pytree.tree_leaves(arguments, is_leaf=_is_named) if leaf is not None]


def _is_named(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], TensorSpec)


def _examples(arguments: Any) -> Any:
    for name, spec in _leaves(arguments):
        if not all(isinstance(size, int) for size in spec.shape):
            raise make_error(
                "unsupported_option",
                "the train step of a torch module takes fixed sizes",
                op=name,
                actual=str(list(spec.shape)),
            )

    def zeros(row: _Named | None) -> torch.Tensor | None:
        if row is None:
            return None
        spec = row[1]
        return torch.zeros(tuple(spec.shape), dtype=TORCH_DTYPES[dtype_name(spec.dtype)])  # type: ignore[arg-type]

    return pytree.tree_map(zeros, arguments, is_leaf=_is_named)


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

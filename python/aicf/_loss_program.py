"""What `aicf.compile_train_step` differentiates: a model and a loss become a program that gives the loss."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _aicf
from ._specs import CallSpecs, TensorSpec, add_inputs, name_specs, resolve_sizes, spec_of
from .compiler import is_torch
from .errors import make_error
from .optim import Optimizer
from .tracing import Graph, Variable, program_of, tracing

__all__ = ["Specs", "loss_program"]

Specs = Sequence[TensorSpec] | Mapping[str, TensorSpec]


def loss_program(
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    inputs: Specs | None,
    eval_inputs: Specs | None,
    dims: Mapping[str, Any],
    seed: int,
    optimizer: Optimizer,
) -> tuple[_aicf.Program, list[str]]:
    """A program whose first entry gives the loss: the model's own, or traced, with an entry "eval".

    With it the params that the model holds but does not train.
    """
    if isinstance(model, _aicf.Program):
        given = {
            "loss": loss,
            "inputs": inputs,
            "eval_inputs": eval_inputs,
            "dims": dims or None,
            "seed": seed or None,
        }
        unused = [name for name, value in given.items() if value is not None]
        if unused:
            raise make_error(
                "bad_option",
                "a Program brings its inputs, sizes and seed, and gives its loss",
                value=", ".join(unused),
                remedy="leave them out",
            )
        return model, []
    if inputs is None:
        raise make_error(
            "bad_option",
            "a train step needs the specs of its inputs",
            expected="inputs=[aicf.TensorSpec(...)]",
        )
    specs = _split_target(model, inputs, loss is not None)
    training = CallSpecs(specs, isinstance(inputs, Mapping))
    if eval_inputs is not None:
        evaluation = CallSpecs(name_specs(model, eval_inputs), isinstance(eval_inputs, Mapping))
    else:
        own = dict(list(specs.items())[:-1]) if loss is not None else specs
        evaluation = CallSpecs(own, training.by_name)
    if is_torch(model):
        return _torch_program(model, loss, training, evaluation, dims, seed)
    return _trace(model, loss, training, evaluation, dims, seed, optimizer), []


def _torch_program(
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    training: CallSpecs,
    evaluation: CallSpecs,
    dims: Mapping[str, Any],
    seed: int,
) -> tuple[_aicf.Program, list[str]]:
    from .torch.training import import_training

    if dims:
        raise make_error(
            "unsupported_option", "the train step of a torch module takes fixed sizes", value="dims"
        )
    return import_training(model, loss, training, evaluation, seed)


def _split_target(model: Any, inputs: Specs, has_target: bool) -> dict[str, TensorSpec]:
    """Specs by name; with a target, which stands last, it is called "target" unless it has a name."""
    if not has_target:
        return name_specs(model, inputs)
    if isinstance(inputs, Mapping):
        *pairs, (name, target) = inputs.items() or [("target", TensorSpec(()))]
        named = name_specs(model, dict(pairs))
        named[name] = spec_of(target)
        return named
    *given, target = [spec_of(spec) for spec in inputs] or [TensorSpec(())]
    named = name_specs(model, given)
    if target.name in named:
        raise make_error("bad_option", "the target has the name of an input", value=target.name)
    name = target.name or "target"
    while name in named:
        name += ".1"
    named[name] = target
    return named


def _trace(
    model: Any,
    loss: Callable[[Any, Any], Any] | None,
    training: CallSpecs,
    evaluation: CallSpecs,
    dims: Mapping[str, Any],
    seed: int,
    optimizer: Optimizer,
) -> _aicf.Program:
    fixed, ranges = resolve_sizes([*training.specs.values(), *evaluation.specs.values()], dims)
    names = _paths(model)
    states = tuple(_counter(value) for value in (seed, 0))
    train, evaluate = Graph("loss", names, states), Graph("eval", names)  # type: ignore[arg-type]
    with tracing(train):
        values = add_inputs(train, training.specs, fixed)
        target = None if loss is None else values.popitem()[1]
        result = training.call(model, values)
        train.output(result if loss is None else loss(result, target), "loss")
    with tracing(evaluate):
        values = add_inputs(evaluate, evaluation.specs, fixed)
        results = evaluation.call(model, values)
        several = isinstance(results, (tuple, list))
        for index, value in enumerate(results if several else [results]):
            evaluate.output(value, f"output.{index}" if several else "output")
    _check_used(model, train, optimizer)
    return program_of([train, evaluate], ranges)


def _paths(model: Any) -> dict[int, str]:
    names = {id(module): path for path, module in model.named_modules()}
    names.update({id(variable): path for path, variable in model.named_variables()})
    return names


def _counter(value: int) -> Variable:
    variable = Variable(np.array(value, np.int64))
    variable.is_state = True
    return variable


def _check_used(model: Any, graph: Graph, optimizer: Optimizer) -> None:
    """A param that the trace never met would silently stay as it is."""
    frozen = [pattern for group in optimizer.groups if not group.trainable for pattern in group.patterns]
    unused = [
        path
        for path, parameter in model.named_parameters()
        if not graph.uses(parameter) and not any(_aicf.matches_pattern(p, path) for p in frozen)
    ]
    if unused:
        names = ", ".join(f'"{path}"' for path in unused)
        raise make_error(
            "unused_param",
            "a param does not take part in the loss",
            value=", ".join(unused),
            remedy="remove it, or put it into a group that is not trained: "
            f"optim.Group([{names}], trainable=False)",
        )

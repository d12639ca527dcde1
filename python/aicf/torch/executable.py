"""An Executable that is called like the torch module it was made from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from .. import _aicf
from ..errors import make_error
from ..executable import Executable
from .importer import ImportedModel
from .objects import closed, has_objects, opened

__all__ = ["TorchExecutable", "dense"]

_NO_NAMES: dict[str, Any] = {}


class TorchExecutable(Executable):
    """Calls take the module's arguments and give its results, torch tensors without copies in both
    directions.

    No gradient flows through a call; `torch.compile(model, backend="aicf")` trains.
    """

    def __init__(self, raw: _aicf.Executable, model: ImportedModel) -> None:
        super().__init__(raw)
        self._model = model
        self._flat_inputs = _is_flat(model)
        self._on_gpu = raw.device().startswith("cuda")
        self._takes_objects = has_objects(model.in_spec)
        self._has_objects = has_objects(model.out_spec)
        self._single_output = model.out_spec.is_leaf() and not model.constant_outputs

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_dynamo_compiling():
            return _apart(self, args, kwargs)
        if kwargs or not self._flat_inputs or len(args) != len(self._model.kept_inputs):
            args = self._leaves(args, kwargs)
        results = self._run("", args, _NO_NAMES)
        return results[0] if self._single_output else self._restore(results)

    def _run(self, entry: str, args: tuple[Any, ...], by_name: dict[str, Any]) -> tuple[Any, ...]:
        if self._on_gpu:
            args = tuple(map(dense, args))
            by_name = {name: dense(value) for name, value in by_name.items()}
        return self._raw.run(entry, args, by_name, torch.Tensor)

    def run_entry(self, entry: str, *args: Any, **by_name: Any) -> Any:
        results = self._run(entry, args, by_name)
        return results[0] if len(results) == 1 else results

    def clone(self) -> TorchExecutable:
        return TorchExecutable(self._raw.clone(), self._model)

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Params and states by the module's names; the weights are packed again, nothing is compiled."""
        given = dict(states)
        for alias, name in self._model.tied.items():
            value = given.pop(alias, None)
            if value is not None and not _same(value, given.setdefault(name, value)):
                raise make_error(
                    "bad_option",
                    "two names of one weight are given different values",
                    value=f"{name}, {alias}",
                    remedy="compile a model in which they are not tied",
                )
        unused = self._model.unused
        super().load_state_dict(
            {name: value.detach().cpu() for name, value in given.items() if name not in unused}
        )

    def _leaves(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """The tensors among the arguments, which must be structured as those the model was compiled with."""
        spec = self._model.in_spec
        args, kwargs = self._arranged(args, kwargs, len(spec.children()[0].children()))
        names = spec.children()[1].context or []
        if set(kwargs) == set(names):
            kwargs = {name: kwargs[name] for name in names}
        arguments = (args, dict(kwargs))
        leaves, given = pytree.tree_flatten(opened(arguments) if self._takes_objects else arguments)
        if given != spec:
            raise make_error(
                "missing_input",
                "the arguments are structured otherwise than those the model was compiled with",
                expected=_call_text(spec),
                actual=_call_text(given),
            )
        for index, value in self._model.fixed_inputs.items():
            if leaves[index] is not value and leaves[index] != value:
                raise make_error(
                    "input_value",
                    "an argument that is no tensor has only the value it had when compiling",
                    expected=repr(value),
                    actual=repr(leaves[index])[:100],
                    remedy="compile again with the new value, or make it a tensor",
                )
        return tuple(leaves[i] for i in self._model.kept_inputs)

    def _arranged(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any], count: int
    ) -> tuple[tuple[Any, ...], Mapping[str, Any]]:
        """The first `count` arguments by position and the others by name, however the caller gave them."""
        names = self._model.positional
        by_name = dict(kwargs)
        if len(args) > count and len(args) <= len(names) and not set(names[: len(args)]) & set(by_name):
            by_name.update(zip(names[count:], args[count:], strict=False))
            args = args[:count]
        while len(args) < min(count, len(names)) and names[len(args)] in by_name:
            args = (*args, by_name.pop(names[len(args)]))
        return args, by_name

    def _restore(self, tensors: tuple[Any, ...]) -> Any:
        model = self._model
        pending = iter(tensors)
        count = model.out_spec.num_leaves
        leaves = [
            model.constant_outputs[i] if i in model.constant_outputs else next(pending) for i in range(count)
        ]
        result = pytree.tree_unflatten(leaves, model.out_spec)
        return closed(result) if self._has_objects else result


@torch.compiler.disable
def _apart(exe: TorchExecutable, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """A call from a function under torch.compile: its graph ends before the call, another begins after it."""
    return exe(*args, **kwargs)


def _call_text(spec: pytree.TreeSpec) -> str:
    """Arguments as a user writes them, a * for each tensor or number: (*, [*, *], mask=*)."""
    args, kwargs = pytree.tree_unflatten([_ANY] * spec.num_leaves, spec)
    texts = [*map(repr, args), *(f"{name}={value!r}" for name, value in kwargs.items())]
    return f"({', '.join(texts)})"


class _Any:
    def __repr__(self) -> str:
        return "*"


_ANY = _Any()


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or (a.data_ptr() == b.data_ptr() and a.shape == b.shape) or torch.equal(a.cpu(), b.cpu())


def dense(tensor: Any) -> Any:
    """A strided tensor in a GPU's memory must be made contiguous by torch; the host's are copied by us."""
    if isinstance(tensor, torch.Tensor) and tensor.is_cuda and not tensor.is_contiguous():
        return tensor.contiguous()
    return tensor


def _is_flat(model: ImportedModel) -> bool:
    """Every argument is a tensor given by position."""
    return model.in_spec.num_leaves == len(model.kept_inputs) and all(
        child.is_leaf() for child in model.in_spec.children()[0].children()
    )

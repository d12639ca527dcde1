"""What a call of a model leaves in it for the next call.

Buffers that a model assigns, `self.mean = 0.9 * self.mean + ...`, are written where they lie: torch.export
follows an assignment in the outermost module alone, in any other it is lost. Where a call
leaves anything else in the model (a tensor that is no buffer, a number, a buffer of another shape), the trace
calls the model once more, as the next call would find it: a model in which it makes a difference is refused.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..errors import Error, make_error
from .memory import raise_if_memory_ran_out
from .module_state import Change, ModuleState, settled
from .recurrent import weights_listed
from .same_results import first_of_two_calls, same_results, two_calls

_BUFFER_HOOKS = torch.nn.modules.module._global_buffer_registration_hooks

__all__ = ["Calls", "assignments_written", "first_call", "refusal"]


@dataclass
class Calls:
    """What a trace's first call leaves in the model, and whether the trace then calls it once more."""

    prefix: str = ""  # of names, which are told without it
    again: bool = True
    left: list[Change] = field(default_factory=list)

    @property
    def are_two(self) -> bool:
        return self.again and bool(self.left)


@contextmanager
def assignments_written(model: torch.nn.Module, calls: Calls) -> Iterator[None]:
    """While it lasts, a call of the model ends with copies of what was assigned into the buffers.

    If `calls` are two, it gives the results of both. The model holds afterwards what it held before.
    """
    before: list[ModuleState] = []
    buffer_hooks = dict(_BUFFER_HOOKS)

    def begin(*_: Any) -> None:
        for number in [n for n in _BUFFER_HOOKS if n not in buffer_hooks]:
            del _BUFFER_HOOKS[number]  # torch.export's, which follows the outermost module's assignments
        weights_listed(model)
        before.append(ModuleState(model))

    def end(_model: Any, args: Any, kwargs: Any, result: Any) -> Any:
        state = before[-1]
        try:
            inside, failed = len(before) > 1, sys.exc_info()[1] is not outer
            return result if inside or failed else _calls(model, calls, state, args, kwargs, result)
        finally:
            if len(before) == 1:
                state.restore()
            before.pop()

    outer = sys.exc_info()[1]
    whole = ModuleState(model)
    model.register_forward_pre_hook(begin)
    model.register_forward_hook(end, with_kwargs=True, always_call=True)
    try:
        with warnings.catch_warnings(), _data_copied(model):
            # torch's advice to register what is no buffer; `first_call` asks whether it makes a difference.
            warnings.filterwarnings("ignore", "The tensor attribute")
            yield
    finally:
        whole.restore()


def _calls(model: Any, calls: Calls, state: ModuleState, args: Any, kwargs: Any, result: Any) -> Any:
    """The results of the calls, the first of which gave `result`.

    A number, or the length of a list, that each call changes is refused: a branch may ask for it later.
    """
    held = {id(buffer) for buffer in state.buffers()}
    result = _write(state, held, result)
    calls.left = state.changes()
    if not calls.are_two:
        return result
    again = ModuleState(model)

    def call(*args: Any, **kwargs: Any) -> Any:
        return _write(again, held, model.forward(*args, **kwargs))

    try:
        results = two_calls(result, call, args, kwargs)
    except Exception as error:  # as when a branch decides by the values of what the first call kept
        raise_if_memory_ran_out(error)
        raise _refusal(calls.left, calls.prefix) from error
    counted = [change for change in again.changes() if not settled(change.old, change.new)]
    if counted:
        raise _refusal(counted, calls.prefix)
    return results


def _write(state: ModuleState, held: set[int], result: Any) -> Any:
    """The result, after what was assigned since `state` was copied into the buffers, `held` by the model."""
    assigned = [c for c in state.changes() if c.is_buffer and _fits(c) and id(c.old) in held]
    if not assigned:
        return result
    # What was assigned, or is returned, may be the buffer's contents of before.
    result = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, result)
    values = [change.new.clone() for change in assigned]
    for change, value in zip(assigned, values, strict=True):
        change.put(change.old.copy_(value))
    return result


def _fits(change: Change) -> bool:
    return (change.old.shape, change.old.dtype) == (change.new.shape, change.new.dtype)


@contextmanager
def _data_copied(model: torch.nn.Module) -> Iterator[None]:
    """`tensor.data = value`, which a trace does not see, becomes a copy into the tensor that is traced."""
    data = torch._C.TensorBase.data

    def write(tensor: torch.Tensor, value: torch.Tensor) -> None:
        fits = isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (tensor.shape, tensor.dtype)
        held = (*model.parameters(), *model.buffers())
        if fits and isinstance(tensor, (FakeTensor, FunctionalTensor)) and any(t is tensor for t in held):
            with torch.no_grad():
                tensor.copy_(value)
        else:
            data.__set__(tensor, value)  # type: ignore[attr-defined]

    before = torch.Tensor.__dict__.get("data")
    torch.Tensor.data = property(data.__get__, write)  # type: ignore[assignment, arg-type]
    try:
        yield
    finally:
        if before is None:
            del torch.Tensor.data
        else:
            torch.Tensor.data = before


def first_call(program: ExportedProgram, calls: Calls) -> ExportedProgram:
    """The program of the first of the calls, if what it leaves makes no difference for the next one, whose
    program would be the first one's.
    """
    if not calls.are_two:
        return program
    if not same_results(program):
        raise _refusal(calls.left, calls.prefix)
    return first_of_two_calls(program)


def refusal(calls: Calls) -> Error:
    return _refusal(calls.left, calls.prefix)


def _refusal(changes: Sequence[Change], prefix: str) -> Error:
    values = [value for change in changes for value in pytree.tree_leaves((change.old, change.new))]
    has_tensors = any(isinstance(value, torch.Tensor) for value in values)
    names = ", ".join(list(dict.fromkeys(change.name.removeprefix(prefix) for change in changes))[:5])
    old, new = changes[0].old, changes[0].new
    if changes[0].is_buffer:
        return make_error(
            "unsupported_op",
            "the model assigns a buffer a tensor of another shape or dtype",
            value=names,
            expected=f"{old.dtype} {list(old.shape)}",
            actual=f"{new.dtype} {list(new.shape)}",
            remedy="write into a buffer of the largest size"
            if old.shape != new.shape
            else "register it with the dtype that it gets",
        )
    once = "if only its first call sets it, call the model once before it is compiled; else "
    if has_tensors:
        return make_error(
            "unsupported_op",
            "a call leaves a tensor that is no buffer for the next one",
            value=names,
            remedy=f"{once}self.register_buffer(name, tensor) in __init__ makes it a state, or take it as "
            "an argument and return it",
        )
    return make_error(
        "unsupported_op",
        "the model changes a number of Python's from call to call, which a compiled one cannot",
        value=names,
        remedy=f"{once}keep it in a buffer, self.register_buffer(name, torch.tensor(0)) and self.name += 1, "
        "or leave it out",
    )

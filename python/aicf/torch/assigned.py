"""Buffers that a model assigns, `self.mean = 0.9 * self.mean + ...`, are written where they lie.

torch.export follows an assignment in the outermost module alone; in any other it is lost. Other tensors that
a module holds are constants for it, whatever is assigned.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..errors import make_error

__all__ = ["Lost", "assignments_written", "refuse_lost"]

_STANDARD = frozenset(vars(torch.nn.Module()))


@dataclass
class Lost:
    """What a call replaced: tensors that are no buffers, and buffers by tensors that do not fit into them."""

    plain: dict[str, torch.Tensor] = field(default_factory=dict)
    buffers: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)  # old and new


@contextmanager
def assignments_written(model: torch.nn.Module) -> Iterator[Lost]:
    """While it lasts, a call of the model ends with copies of what was assigned into the buffers.

    Gives, when the call has ended, what was replaced and cannot be written.
    """
    before: list[dict[str, Any]] = []
    plain: dict[str, torch.Tensor] = {}
    lost = Lost()

    def begin(*_: Any) -> None:
        before.append({path: dict(module._buffers) for path, module in model.named_modules()})
        plain.update(_plain_tensors(model))

    def end(_model: Any, _args: Any, result: Any) -> Any:
        now = _plain_tensors(model)
        lost.plain.update({name: old for name, old in plain.items() if now.get(name, old) is not old})
        changed = list(_changed(model, before.pop(), lost))
        if not changed:
            return result
        # What was assigned, or is returned, may be the buffer's contents of before.
        result = pytree.tree_map(lambda x: x.clone() if isinstance(x, torch.Tensor) else x, result)
        values = [module._buffers[name].clone() for module, name, _ in changed]  # type: ignore[union-attr]
        for (module, name, old), value in zip(changed, values, strict=True):
            module._buffers[name] = old.copy_(value)
        return result

    handles = [model.register_forward_pre_hook(begin), model.register_forward_hook(end)]
    try:
        with _data_copied(model):
            yield lost
    finally:
        for handle in handles:
            handle.remove()


_EXPORTS = threading.RLock()  # one at a time: what follows changes a class of torch's


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

    with _EXPORTS:
        before = torch.Tensor.__dict__.get("data")
        torch.Tensor.data = property(data.__get__, write)  # type: ignore[assignment, arg-type]
        try:
            yield
        finally:
            if before is None:
                del torch.Tensor.data
            else:
                torch.Tensor.data = before


def refuse_lost(lost: Lost, program: ExportedProgram) -> None:
    """What was replaced after the model had read it would be the same in every call.

    What it replaced unread, such as a table for other sizes, it makes again in every call.
    """
    read = {id(value) for value in program.constants.values()}
    names = [name for name, old in lost.plain.items() if id(old) in read]
    if names:
        raise make_error(
            "unsupported_op",
            "the model reads and assigns a tensor that is no buffer",
            value=", ".join(names),
            remedy="self.register_buffer(name, tensor) makes it a state",
        )
    used = {node.name for node in program.graph.nodes if node.op == "placeholder" and node.users}
    held = {name for node, name in program.graph_signature.inputs_to_buffers.items() if node in used}
    for name, (old, new) in lost.buffers.items():
        if name in held:
            raise make_error(
                "unsupported_op",
                "the model assigns a buffer a tensor of another shape or dtype",
                value=name,
                expected=f"{old.dtype} {list(old.shape)}",
                actual=f"{new.dtype} {list(new.shape)}",
                remedy="write into a buffer of the largest size",
            )


def _plain_tensors(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that modules hold as attributes, or in lists and dicts there."""
    return {
        f"{path}.{name}{pytree.keystr(key)}".lstrip("."): leaf
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if name not in _STANDARD and isinstance(value, (torch.Tensor, list, tuple, dict))
        for key, leaf in pytree.tree_flatten_with_path(value)[0]
        if isinstance(leaf, torch.Tensor)
    }


def _changed(
    model: torch.nn.Module, before: dict[str, dict[str, Any]], lost: Lost
) -> Iterator[tuple[torch.nn.Module, str, torch.Tensor]]:
    """Modules and names of buffers that hold another tensor now, and the one of before.

    A buffer whose new tensor has another shape or dtype holds the old one again.
    """
    names: dict[int, list[str]] = {}
    for path, buffers in before.items():
        for name, old in buffers.items():
            names.setdefault(id(old), []).append(f"{path}.{name}".lstrip("."))
    for path, module in model.named_modules():
        for name, old in before.get(path, {}).items():
            new = module._buffers.get(name)
            if new is old or not isinstance(old, torch.Tensor) or not isinstance(new, torch.Tensor):
                continue
            if (new.shape, new.dtype) == (old.shape, old.dtype):
                yield module, name, old
                continue
            module._buffers[name] = old
            lost.buffers.update(dict.fromkeys(names[id(old)], (old, new)))

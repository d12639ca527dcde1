"""Arguments and results of classes that torch's pytree does not know, as the caches of Hugging Face's models.

A trace sees the tensors of such an object. The rest of it, its form, makes an equal object of other tensors.
"""

from __future__ import annotations

import functools
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from types import FunctionType, ModuleType
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import make_error

__all__ = ["Opened", "children_listed", "closed", "has_objects", "objects_opened", "opened"]

_NUMBERS: dict[type, tuple[Callable[[Any], Any], torch.dtype]] = {
    torch.SymInt: (int, torch.int64),
    torch.SymFloat: (float, torch.float64),
    torch.SymBool: (bool, torch.bool),
}
_MOST = 10_000  # objects that are searched for tensors
_PLAIN = (bool, int, float, complex, str, bytes, type(None), type, Enum, torch.dtype, torch.device)


@dataclass
class Opened:
    """An object as its tensors, each with its path in it (`layers.0.keys`), and its form."""

    form: _Form
    paths: list[str]
    tensors: list[Any]


@contextmanager
def objects_opened(model: torch.nn.Module) -> Iterator[None]:
    """While it lasts, the model takes Opened in the place of objects that torch's pytree does not know, and
    gives them for such objects.
    """
    if isinstance(model, torch.jit.ScriptModule):  # torch.export takes none
        yield
        return
    forward = model.forward
    own = vars(model).get("forward")

    @functools.wraps(forward)
    def opening(*args: Any, **kwargs: Any) -> Any:
        given: list[tuple[Opened, Any]] = []
        args, kwargs = closed((args, kwargs), given)
        result = forward(*args, **kwargs)
        _refuse_lost(given, result)
        return opened(result)

    model.forward = opening  # type: ignore[method-assign]
    try:
        yield
    finally:
        if own is None:
            del model.forward
        else:
            model.forward = own


def opened(value: Any) -> Any:
    """The structure with Opened in the place of objects that are of classes unknown to pytree."""
    return pytree.tree_map(_opened, value)


def closed(value: Any, made: list[tuple[Opened, Any]] | None = None) -> Any:
    """The structure with an object in the place of each Opened; these pairs are appended to `made`."""

    def close(leaf: Any) -> Any:
        if not isinstance(leaf, Opened):
            return leaf
        result = leaf.form.make(leaf.tensors)
        if made is not None:
            made.append((leaf, result))
        return result

    return pytree.tree_map(close, value, is_leaf=_is_opened)


def children_listed(value: Any) -> Any:
    """The structure with the parts of each Opened as a list, as torch.export takes `dynamic_shapes`."""
    return pytree.tree_map(
        lambda x: list(x.tensors) if isinstance(x, Opened) else x, value, is_leaf=_is_opened
    )


def _refuse_lost(given: list[tuple[Opened, Any]], result: Any) -> None:
    """An object that a call changes must be among its results: the caller's own stays as it is."""
    results = {id(leaf) for leaf in pytree.tree_leaves(result)}
    for before, value in given:
        after = _opened(value)
        same = isinstance(after, Opened) and after.form == before.form
        if same and all(a is b for a, b in zip(after.tensors, before.tensors, strict=True)):
            continue
        if id(value) not in results:
            raise make_error(
                "unsupported_op",
                "the model changes an object that it is given and does not return it",
                value=type(value).__name__,
                remedy="return it, or give use_cache=True to a model of transformers",
            )


def has_objects(spec: pytree.TreeSpec) -> bool:
    """Whether arguments or results of this structure hold an Opened."""
    return spec.type is Opened or any(map(has_objects, spec.children()))


def _is_opened(value: Any) -> bool:
    return isinstance(value, Opened)


@dataclass(frozen=True)
class _Form:
    """What stands at a place of an object.

    kind    tensor: number `index`, as `number` if that is not None; plain: `index` itself; object: of the
            class `index`, with the attributes `names`; tree: of the pytree node `index`, whose context is
            `names`.
    """

    kind: str
    index: Any
    names: Any = None
    parts: tuple[_Form, ...] = ()
    number: Callable[[Any], Any] | None = None

    def make(self, tensors: Sequence[Any]) -> Any:
        """The object of these tensors."""
        if self.kind == "tensor":
            tensor = tensors[self.index]
            return tensor if self.number is None else self.number(tensor)
        if self.kind == "plain":
            return self.index
        parts = [part.make(tensors) for part in self.parts]
        if self.kind == "tree":
            return pytree.SUPPORTED_NODES[self.index].unflatten_fn(parts, self.names)
        made = self.index.__new__(self.index)
        vars(made).update(zip(self.names, parts, strict=True))
        return made


class _Unopened(Exception):  # noqa: N818
    """An object is of a kind that is not opened."""


def _opened(leaf: Any) -> Any:
    if isinstance(leaf, (torch.Tensor, *_PLAIN, *_NUMBERS)):
        return leaf
    opened = Opened(_Form("plain", None), [], [])
    try:
        opened.form = _Opening(opened).form(leaf, "")
    except _Unopened:
        return leaf  # torch.export refuses it
    return leaf if opened.form.kind == "plain" else opened


class _Opening:
    """Collects the tensors of one object; one that is found twice is one."""

    def __init__(self, opened: Opened) -> None:
        self._opened = opened
        self._known: dict[int, int] = {}
        self._around: set[int] = set()

    def form(self, value: Any, path: str) -> _Form:
        if isinstance(value, torch.Tensor):
            return _Form("tensor", self._add(value, path))
        for kind, (number, dtype) in _NUMBERS.items():
            if isinstance(value, kind):
                tensor = torch.scalar_tensor(value, dtype=dtype)  # type: ignore[arg-type]
                return _Form("tensor", self._add(tensor, path), number=number)
        if isinstance(value, (*_PLAIN, FunctionType, torch.nn.Module)):
            return _Form("plain", value)
        if id(value) in self._around:
            raise _Unopened
        self._around.add(id(value))
        try:
            return self._container(value, path)
        finally:
            self._around.remove(id(value))

    def _container(self, value: Any, path: str) -> _Form:
        kind = pytree._get_node_type(value)
        node = pytree.SUPPORTED_NODES.get(kind)
        if node is not None:
            parts, context = node.flatten_fn(value)
            names = [str(key) for key in value] if isinstance(value, dict) else map(str, range(len(parts)))
            forms = tuple(self.form(part, _join(path, key)) for key, part in zip(names, parts, strict=True))
            return _Form("tree", kind, context, forms)
        if not _has_plain_state(value):
            if _holds_tensor(value):
                raise _Unopened
            return _Form("plain", value)
        names, parts = zip(*vars(value).items(), strict=True) if vars(value) else ((), ())
        forms = tuple(self.form(part, _join(path, key)) for key, part in zip(names, parts, strict=True))
        return _Form("object", type(value), names, forms)

    def _add(self, tensor: torch.Tensor, path: str) -> int:
        index = self._known.setdefault(id(tensor), len(self._opened.tensors))
        if index == len(self._opened.tensors):
            self._opened.tensors.append(tensor)
            self._opened.paths.append(path)
        return index


def _has_plain_state(value: Any) -> bool:
    """Whether the attributes are all that an object is made of; not those of libraries below the model's."""
    kind = type(value)
    alien = kind.__module__.split(".")[0] in {*sys.stdlib_module_names, "numpy", "torch"}
    slots = any(getattr(base, "__slots__", ()) for base in kind.__mro__[:-1])
    return (
        not alien and not slots and hasattr(value, "__dict__") and not isinstance(value, (dict, list, tuple))
    )


def _holds_tensor(value: Any) -> bool:
    """Whether a tensor can be reached from an object of C, of slots, or of a library below the model's."""
    pending, known = [value], {id(value)}
    while pending and len(known) < _MOST:
        for part in gc.get_referents(pending.pop()):
            if isinstance(part, torch.Tensor):
                return True
            if id(part) not in known and not isinstance(part, (*_PLAIN, FunctionType, ModuleType)):
                known.add(id(part))
                pending.append(part)
    return bool(pending)


def _join(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


pytree.register_pytree_node(
    Opened,
    lambda opened: (opened.tensors, (opened.form, opened.paths)),
    lambda tensors, context: Opened(*context, list(tensors)),
    flatten_with_keys_fn=lambda opened: (
        [(pytree.MappingKey(path), t) for path, t in zip(opened.paths, opened.tensors, strict=True)],
        (opened.form, opened.paths),
    ),
    serialized_type_name="aicf.torch.objects.Opened",
)

"""What a module and its parts hold besides the values of tensors: attributes, lists and dicts, other objects.

A trace calls the model, which may leave something behind: a tensor it kept, a number it counted, a buffer or
a part it made. Those would be the trace's, so what the model held is put back.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

__all__ = ["Change", "ModuleState", "settled"]

_REGISTERED = frozenset({"_parameters", "_buffers", "_modules"})  # their entries go by the module's name
_ALIEN = frozenset({*sys.stdlib_module_names, "torch", "numpy"})  # whose objects keep no notes of a model's
_PLAIN = (bool, int, float, complex, str, bytes, type(None))


class _Nothing:
    """Stands for the value of a name that does not exist."""


@dataclass(frozen=True)
class _Held:
    """A dict, list or set, and a copy of it.

    The entries of a namespace are `path.key`, those of another container `path[key]`.
    """

    path: str
    is_namespace: bool
    is_buffers: bool
    container: Any
    copy: Any

    def name_of(self, key: Any) -> str:
        return f"{self.path}.{key}".lstrip(".") if self.is_namespace else f"{self.path}[{key!r}]"

    def changes(self) -> Iterator[Change]:
        old, new = dict(_items(self.copy)), dict(_items(self.container))
        for key in {**old, **new}:
            change = Change(self, key, old.get(key, _Nothing), new.get(key, _Nothing))
            if change.old is not change.new and not (_plain(change.old) and settled(change.old, change.new)):
                yield change

    def restore(self) -> None:
        if list(map(_identity, _items(self.container))) != list(map(_identity, _items(self.copy))):
            self.container.clear()
            fill = self.container.update if hasattr(self.container, "update") else self.container.extend
            fill(self.copy)


@dataclass(frozen=True)
class Change:
    """What was held at a place, and what is held there now."""

    held: _Held
    key: Any
    old: Any
    new: Any

    @property
    def name(self) -> str:
        return self.held.name_of(self.key)

    @property
    def is_buffer(self) -> bool:
        return (
            self.held.is_buffers and isinstance(self.old, torch.Tensor) and isinstance(self.new, torch.Tensor)
        )

    def put(self, value: Any) -> None:
        """Holds `value` at the place."""
        self.held.container[self.key] = value


class ModuleState:
    """What `model` holds when this is made."""

    def __init__(self, model: torch.nn.Module) -> None:
        self._held: list[_Held] = []
        known: set[int] = set()
        pending = [_Held("", True, False, vars(model), vars(model).copy())]
        while pending:
            held = pending.pop()
            if id(held.container) in known:
                continue
            known.add(id(held.container))
            self._held.append(held)
            pending.extend(_inside(held))

    def restore(self) -> None:
        """The same containers hold the same objects in the same order again."""
        for held in self._held:
            held.restore()

    def buffers(self) -> list[Any]:
        """The registered buffers."""
        return [value for held in self._held if held.is_buffers for value in held.copy.values()]

    def changes(self) -> list[Change]:
        """What is held otherwise now, in what was held before."""
        return [change for held in self._held for change in held.changes()]


def settled(old: Any, new: Any) -> bool:
    """Whether Python's `if` sees the same: tensors may be others, numbers and lengths may not."""
    if isinstance(old, torch.Tensor) and isinstance(new, torch.Tensor):
        return True
    if isinstance(old, torch.SymInt) or isinstance(new, torch.SymInt):
        return str(old) == str(new)
    if type(old) is not type(new):
        return False
    if isinstance(old, _PLAIN):
        return bool(old == new or (old != old and new != new))
    if isinstance(old, dict):
        return old.keys() == new.keys() and all(settled(old[key], new[key]) for key in old)
    if isinstance(old, (list, tuple, deque)):
        return len(old) == len(new) and all(settled(a, b) for a, b in zip(old, new, strict=True))
    return True


def _plain(value: Any) -> bool:
    """Whether nothing but numbers and texts is in it."""
    if isinstance(value, dict):
        return all(map(_plain, value.values()))
    return (
        all(map(_plain, value))
        if isinstance(value, (list, tuple))
        else isinstance(value, (*_PLAIN, torch.SymInt))
    )


def _inside(held: _Held) -> Iterator[_Held]:
    """What the entries of a container hold."""
    for key, value in _items(held.copy):
        registered = held.is_namespace and key in _REGISTERED
        container = _container(value)
        if container is not None:
            path = held.path if registered else held.name_of(key)
            namespace = registered or container is not value
            yield _Held(path, namespace, registered and key == "_buffers", container, container.copy())


def _container(value: Any) -> Any:
    """The dict, list or set that holds what `value` holds."""
    if isinstance(value, (dict, list, set, deque)):
        return value
    if isinstance(value, torch.nn.Module):
        return vars(value)
    if isinstance(value, (type, torch.Tensor)) or type(value).__module__.split(".")[0] in _ALIEN:
        return None
    attributes = getattr(value, "__dict__", None)
    return attributes if isinstance(attributes, dict) else None


def _items(container: Any) -> list[tuple[Any, Any]]:
    if isinstance(container, dict):
        return list(container.items())
    if isinstance(container, set):
        return [(item, item) for item in container]
    return list(enumerate(container))


def _identity(item: tuple[Any, Any]) -> tuple[Any, int]:
    return item[0], id(item[1])

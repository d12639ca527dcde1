"""Coded errors: a user's mistake, a failing environment and our own bug are different types.

Every error carries `.code` ("AICF-U0403"), `.name` ("input_shape") and the fields of the printed form: `.op`,
`.value`, `.expected`, `.actual`, `.remedy` (empty strings where there is nothing to say).
"""

from __future__ import annotations

from functools import cache

__all__ = ["EnvError", "Error", "InternalError", "UserError", "make_error", "with_remedy"]


class Error(Exception):
    """Base of all errors that AICF raises."""

    code: str = ""
    name: str = ""
    kind: str = ""
    op: str = ""
    value: str = ""
    expected: str = ""
    actual: str = ""
    remedy: str = ""


class UserError(Error):
    """The model, an input or an option is at fault."""


class RangeError(UserError, IndexError):
    """An index lies outside its axis; Python's loops end at an IndexError."""


class EnvError(Error):
    """The machine refused something: files, memory, devices, missing packages."""


class InternalError(Error):
    """A bug in AICF."""


_TYPES: dict[str, type[Error]] = {"user": UserError, "environment": EnvError, "internal": InternalError}
_FIELDS = ("op", "value", "expected", "actual", "remedy")


@cache
def _table() -> dict[str, tuple[str, str]]:
    from . import _aicf

    return {name: (code, kind) for code, kind, name, _ in _aicf.error_table()}


def _shown(text: str, field: str = "") -> str:
    """As the command line prints it: no name of a file's acts on a terminal or begins a line."""
    from . import _aicf

    text = text.encode("utf-8", "backslashreplace").decode()
    return _aicf.printable_name(text) if field in ("op", "value") else _aicf.error_lines(text)


def make_error(
    name: str,
    message: str,
    op: str = "",
    value: str = "",
    expected: str = "",
    actual: str = "",
    remedy: str = "",
) -> Error:
    """The exception for the error called `name` in docs/errors.md; the caller raises it."""
    code, kind = _table()[name]
    fields = dict(zip(_FIELDS, (op, value, expected, actual, remedy), strict=True))
    lines = [f"[{code}] {_shown(message)}"]
    lines += [f"  {field}: {_shown(text, field)}" for field, text in fields.items() if text]
    error = (RangeError if name == "index_out_of_range" else _TYPES[kind])("\n".join(lines))
    error.code, error.name, error.kind = code, name, kind
    for field, text in fields.items():
        setattr(error, field, text)
    return error


def with_remedy(error: Error, remedy: str) -> Error:
    """The same error with another remedy."""
    text = str(error).removeprefix(f"[{error.code}] ")
    fields = {field: getattr(error, field) for field in _FIELDS}
    for field, value in fields.items():
        text = text.replace(f"\n  {field}: {value}", "", 1) if value else text
    return make_error(error.name, text, **(fields | {"remedy": remedy}))

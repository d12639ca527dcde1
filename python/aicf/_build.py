"""The extension's compiler behind `aicf.compile`, and the checks of options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from . import _aicf
from ._progress import stage, work
from .errors import make_error

__all__ = [
    "build",
    "check_flag",
    "check_options",
    "check_run_options",
    "check_type",
    "check_whole",
    "has_utf8",
    "state_pairs",
]

_BEFORE = 0.8  # of the work of usual models is done when compiling a Program begins
_OF_ONNX = ("results", "states")
_OPTIONS = ("isa", "opt", "results", "skip_passes", "states", "target")


def build(
    program: _aicf.Program,
    device: str,
    threads: int | None,
    options: Mapping[str, Any],
    precision: str = "f32",
) -> _aicf.Executable:
    """The extension's compiler with the options of `compile`."""
    level, skipped = options.get("opt", 2), options.get("skip_passes", ())
    check_type("opt", level, int, "0, 1 or 2")
    check_run_options(device, threads, options.get("isa"))
    check_type("skip_passes", skipped, (list, tuple, set, frozenset), "a list of names")
    for name in skipped:
        check_type("skip_passes", name, str, "a list of names")
    check_type("target", options.get("target") or "", str, '"cpu", "sm_90", …, several by comma, or "cuda"')
    check_type("precision", precision, str, '"f32", "tf32", "bf16-mixed" or "f16-mixed"')
    with work():
        return _aicf.compile_program(
            program,
            level,
            list(skipped),
            threads or 0,
            options.get("isa") or "",
            device,
            options.get("target") or "",
            precision,
            lambda name, done: stage(name, _BEFORE + (1 - _BEFORE) * done),
        )


def check_type(name: str, value: Any, types: Any, expected: str) -> None:
    """bad_option unless `value` is one of `types`; a bool is no number."""
    if not isinstance(value, types) or isinstance(value, bool):
        raise _wrong_type(name, value, expected)


def check_run_options(device: Any, threads: Any, isa: Any) -> None:
    """bad_option unless the types are those of `aicf.load`; what they say is checked by the extension."""
    check_type("device", device, str, '"cpu", "cuda" or "cuda:ORDINAL"')
    check_type("threads", 0 if threads is None else threads, int, "a number of threads")
    check_whole("threads", threads or 0, -(2**31), 2**31)
    check_type("isa", "" if isa is None else isa, str, '"portable", "avx2" or "avx512"')


def check_whole(name: str, value: Any, least: int = -(2**63), end: int = 2**63) -> None:
    """bad_option unless `value` is a whole number from `least` to before `end`."""
    check_type(name, value, (int, np.integer), "a whole number")
    if not least <= value < end:
        raise make_error(
            "bad_option",
            "a number is out of range",
            value=name,
            expected=f"{least} to {end - 1}",
            actual=str(value),
        )


def has_utf8(text: str) -> bool:
    """Not what stands for bytes that are no text, as in names of files that the system gives."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def check_flag(name: str, value: Any) -> None:
    """bad_option unless `value` is true or false."""
    if not isinstance(value, (bool, np.bool_)):
        raise _wrong_type(name, value, "True or False")


def check_options(options: Mapping[str, Any], onnx: bool = False) -> Mapping[str, Any]:
    """The `options` of `aicf.compile`, if it has all of their names; some are of ONNX models alone."""
    check_type("options", options, Mapping, '{"opt": 1}')
    for name in options:
        if name not in _OPTIONS:
            raise make_error(
                "bad_option", "no compile option of this name", value=name, expected=", ".join(_OPTIONS)
            )
        if name in _OF_ONNX and not onnx:
            raise make_error(
                "unsupported_option",
                "this option is of ONNX models",
                value=name,
                remedy="leave it out; states of aicf.nn modules are nn.State, of torch modules buffers",
            )
    return options


def state_pairs(options: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The option `states`, as pairs of an input and the output that updates it."""
    given = options.get("states") or ()
    pairs = given.items() if isinstance(given, Mapping) else given
    expected = '[("past", "present")] or {"past": "present"}'
    if not isinstance(given, (Mapping, list, tuple)):
        raise _wrong_type("states", given, expected)
    for pair in pairs:
        if not isinstance(pair, (list, tuple)) or [type(name) for name in pair] != [str, str]:
            raise _wrong_type("states", pair, expected)
    return [(past, present) for past, present in pairs]


def _wrong_type(name: str, value: Any, expected: str) -> Exception:
    return make_error(
        "bad_option",
        "an option has the wrong type",
        value=name,
        expected=expected,
        actual=repr(value)[:80],
    )

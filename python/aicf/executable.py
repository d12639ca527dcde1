"""Executable: what a compile or a load gives, to be called with arrays."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _aicf
from ._aicf import Tensor
from ._build import check_run_options, check_type, check_whole
from ._display import html_table, plan_rows, signature
from ._files import file_path
from ._structure import OUTPUT_STRUCTURE, parse, restore
from .errors import make_error

__all__ = ["Executable", "PlanSummary", "TensorInfo", "VerifyResult", "load", "load_raw"]


@dataclass(frozen=True)
class TensorInfo:
    """An input or output: sizes are numbers, or the text of a symbolic size."""

    name: str
    dtype: str
    shape: tuple[int | str, ...]


@dataclass(frozen=True)
class PlanSummary:
    """What the plan decided; `str()` is the whole plan as tables.

    `kernels` are the kernel calls of a run and `regions` those of them that run a fused region. Bytes are
    those at the largest sizes of the declared ranges: `arena_bytes` for intermediates, `packed_bytes` for
    packed weights.
    """

    regions: int
    kernels: int
    arena_bytes: int
    packed_bytes: int
    text: str = field(repr=False)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return html_table("Plan", plan_rows(self), self.text)


@dataclass(frozen=True)
class VerifyResult:
    """`hashes` maps the hash of all outputs and states to the number of replays that gave it."""

    replays: int
    hashes: dict[str, int]
    passed: bool

    @property
    def hash(self) -> str:
        """The one hash, or all of them joined by commas if the replays differ."""
        return ",".join(sorted(self.hashes))


class Executable:
    """A compiled model with its states and working memory; one run is in flight at a time.

    Calls take arrays by position or by name, in place through DLPack or the buffer protocol, and never write
    to them. Results have the structure of the model's output; every array owns its memory.

    On a GPU an array may lie in the device's memory (DLPack, `__cuda_array_interface__`). If any does,
    results are `DeviceTensor`s, and the call returns when it is queued on the stream: that of `use_stream`,
    else the current one of the arrays' library (torch), else the device's own, and then it waits for arrays
    of others. Errors in data are met by `finish()` or a later call.
    """

    def __init__(self, raw: _aicf.Executable) -> None:
        self._raw = raw
        text = raw.metadata().get(OUTPUT_STRUCTURE)
        count = len(raw.outputs(""))
        plain = 0 if count == 1 else {"tuple": list(range(count))}
        self._structure = plain if text is None else parse(text, count)

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        return self._results(self._raw.run("", args, by_name))

    def __repr__(self) -> str:
        return f"<aicf.Executable {signature(self.inputs, self.outputs)}, {self.plan.kernels} kernels>"

    def _repr_html_(self) -> str:
        plan = self.plan
        rows = [("signature", signature(self.inputs, self.outputs)), *plan_rows(plan)]
        return html_table("Executable", rows, plan.text)

    def run_entry(self, entry: str, *args: Any, **by_name: Any) -> Any:
        """Calls an entry other than the first; its results come as one array or a tuple."""
        check_type("entry", entry, str, "the name of an entry")
        results = self._raw.run(entry, args, by_name)
        return results[0] if len(results) == 1 else results

    def run_into(
        self,
        inputs: Sequence[Any] | Mapping[str, Any],
        outputs: Sequence[Any] | Mapping[str, Any],
        *,
        stream: Any = None,
        wait: bool = False,
    ) -> None:
        """Runs into arrays of the caller, of exactly the dtypes and shapes that the inputs imply.

        Outputs in the host's memory are there when it returns; what is on the device may still be queued on
        the stream, unless `wait`. `stream`: see `use_stream`.
        """
        # The usual types first: asking an instance whether it is a Mapping takes half a microsecond.
        if not isinstance(inputs, (tuple, list)):
            inputs = _in_order("inputs", inputs, self.inputs)
        if not isinstance(outputs, (tuple, list)):
            outputs = _in_order("outputs", outputs, self.outputs)
        self._raw.run_into("", inputs, outputs, stream, wait)

    def use_stream(self, stream: Any) -> None:
        """The CUDA stream of later calls: a handle as int, a stream of torch, CuPy or cuda.core, or None for
        that of the arrays. It must live as long as it is used.
        """
        self._raw.use_stream(stream)

    def finish(self) -> None:
        """Waits for the calls that are still queued; raises what was wrong with their data."""
        self._raw.finish()

    def _results(self, results: tuple[Tensor, ...]) -> Any:
        return restore(self._structure, results)

    @property
    def inputs(self) -> list[TensorInfo]:
        return [TensorInfo(*row) for row in self._raw.inputs("")]

    @property
    def outputs(self) -> list[TensorInfo]:
        return [TensorInfo(*row) for row in self._raw.outputs("")]

    @property
    def metadata(self) -> dict[str, str]:
        """Free text that travels with the model."""
        return self._raw.metadata()

    @property
    def plan(self) -> PlanSummary:
        return PlanSummary(**self._raw.plan())

    def explain(self) -> str:
        """What each pass did and how long it took, if this process compiled the model, and the plan."""
        return self._raw.explain()

    def verify(
        self,
        n: int = 100,
        *,
        inputs: Mapping[str, Any] | None = None,
        dims: Mapping[str, int] | None = None,
        seed: int | None = None,
    ) -> VerifyResult:
        """Runs `n` times from the states at load and hashes every output and state, which then are as before.

        Without `inputs` they are drawn from `seed`, 0 by default, at the sizes `dims` or the lowest of their
        ranges. Given `inputs` bring their sizes: `dims` and `seed` are refused beside them.
        """
        check_whole("n", n)
        check_whole("seed", 0 if seed is None else seed, 0, 2**64)
        check_type("inputs", {} if inputs is None else inputs, Mapping, "arrays by name")
        check_type("dims", {} if dims is None else dims, Mapping, '{"batch": 3}')
        for name, value in (dims or {}).items():
            check_type("dims", name, str, '{"batch": 3}')
            check_whole(f"dims[{name!r}]", value)
        if n < 1:
            raise make_error("bad_option", "verify needs at least one replay", actual=str(n))
        if inputs or not self.inputs:
            _refuse_undrawn({"dims": dims or None, "seed": seed})
        sizes = {name: int(size) for name, size in (dims or {}).items()}
        return VerifyResult(**self._raw.verify(int(n), sizes, int(seed or 0), dict(inputs or {})))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the .aicf file; it appears by rename."""
        self._raw.save(file_path(path))

    def clone(self) -> Executable:
        """A second user of the same weights, with states of its own that start equal to the present ones."""
        return Executable(self._raw.clone())

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of the states (KV caches, counters) by name; weights are in `weights()`."""
        return self._raw.states()

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Sets the named params and states; the others stay. Nothing is compiled: packed weights are packed
        again.

        Errors, after which nothing has changed: unknown_param, input_dtype, input_shape; busy for params
        while a run is in flight.
        """
        check_type("states", states, Mapping, "arrays by name")
        self._raw.load_weights(dict(states))

    def reset(self) -> None:
        """All states as at load."""
        self._raw.reset()

    def weights(self) -> dict[str, Tensor]:
        """Params and initial states by name, sharing memory with the model; they cannot be written."""
        return self._raw.weights()


def _refuse_undrawn(options: Mapping[str, Any]) -> None:
    """bad_option for what only says how inputs are drawn, where none is."""
    unused = [name for name, value in options.items() if value is not None]
    if unused:
        raise make_error(
            "bad_option", "no input is drawn", value=", ".join(unused), remedy="leave it out, or the inputs"
        )


def _in_order(what: str, arrays: Any, infos: Sequence[TensorInfo]) -> tuple[Any, ...]:
    if not isinstance(arrays, Mapping):
        check_type(what, arrays, Iterable, "a list of arrays, or arrays by name")
        return tuple(arrays)
    names = [info.name for info in infos]
    for name in arrays:
        if name not in names:
            raise make_error(
                "unknown_input", "the model has no tensor of this name", value=name, expected=", ".join(names)
            )
    for name in names:
        if name not in arrays:
            raise make_error("missing_input", "a tensor was not given", value=name, expected=", ".join(names))
    return tuple(arrays[name] for name in names)


def load(
    path: str | os.PathLike[str],
    *,
    device: str = "cpu",
    threads: int | None = None,
    isa: str | None = None,
    device_memory_limit: int = 0,
) -> Executable:
    """Loads a .aicf file onto a device: "cpu", "cuda" or "cuda:ORDINAL".

    `isa`: "avx512", "avx2" or "portable"; by default the best that the machine has. `device_memory_limit`:
    bytes of a GPU's memory that the model and all its clones take together, 0 for no limit.
    """
    return Executable(load_raw(path, device, threads, isa, device_memory_limit))


def load_raw(
    path: Any, device: Any, threads: Any, isa: Any, device_memory_limit: Any = 0
) -> _aicf.Executable:
    """The extension's loader behind `load` and `load_train_step`."""
    check_run_options(device, threads, isa)
    check_whole("device_memory_limit", device_memory_limit)
    return _aicf.load(file_path(path), threads or 0, isa or "", device, device_memory_limit)

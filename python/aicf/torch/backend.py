"""`torch.compile(model, backend="aicf")`: forward and backward graphs by way of AOT autograd.

options: fallback="eager" runs in torch what AICF does not support, and reports it; otherwise that is an
error. The others are those of aicf.compile.
"""

from __future__ import annotations

import inspect
import logging
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import torch
from functorch.compile import make_boxed_func
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import list_backends, register_backend
from torch._dynamo.exc import BackendCompilerFailed, ShortenTraceback
from torch._functorch import config as functorch_config
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..errors import Error, make_error, with_remedy
from .circular import circular_pads_whole
from .compiled_graph import CompiledGraph
from .decompose import table, whole_attention, whole_to_autograd
from .survey import count_ops, survey

__all__ = ["aicf_backend", "partitions"]

_log = logging.getLogger("aicf.torch")
_OPTIONS = ("fallback", "device", "threads", "isa", "opt", "skip_passes", "target")

_FALLBACK = 'torch.compile(model, backend="aicf", options={"fallback": "eager"})'
_LEFT_TO_EAGER = ("unsupported_op", "unsupported_dtype")  # errors that the fallback is the remedy of

# One line per graph that ran partly in eager, as it was logged.
partitions: list[str] = []


def aicf_backend(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    *,
    options: Mapping[str, Any] | None = None,
    **others: Any,
) -> Any:
    """What `torch.compile(model, backend="aicf")` calls: forward and backward graphs, each compiled by us.

    With options={"fallback": "eager"} unsupported ops run in torch; without it they are errors.
    """
    if others:
        raise make_error(
            "bad_option",
            "the backend takes no such argument of torch.compile",
            value=", ".join(f"{name}={value!r}" for name, value in others.items()),
            expected="options",
            remedy='leave it out, or give options={"opt": 0, 1 or 2}',
        )
    chosen = dict(options or {})
    for name in chosen:
        if name not in _OPTIONS:
            raise make_error(
                "bad_option", "no option of the backend", value=name, expected=", ".join(_OPTIONS)
            )
    if chosen.get("fallback") not in (None, "eager"):
        raise make_error("bad_option", "no such fallback", value=str(chosen["fallback"]), expected="eager")

    def forward(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(_compile(graph, chosen, trains=True))

    def inference(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        return make_boxed_func(_compile(graph, chosen))

    def backward(graph: torch.fx.GraphModule, _inputs: Sequence[Any]) -> Callable[..., Any]:
        try:
            return make_boxed_func(_compile(graph, chosen, trains=True))
        except Error as error:  # torch would log it at once with what led to it, and may never call the graph
            return make_boxed_func(_raiser(error))

    trace = aot_autograd(
        fw_compiler=forward,
        bw_compiler=backward,
        inference_compiler=inference,
        decompositions=table(),
    )
    circular_pads_whole(module)
    # Effects (torch.linalg's checks) are ordered by tokens; they stay inside of the graph.
    try:
        unlifted = functorch_config.patch(unlift_effect_tokens=True)
        with unlifted, whole_attention(inputs), whole_to_autograd():
            return trace(module, inputs)
    except Error as error:
        raise _as_torch_raises_it(error, inspect.currentframe()) from None


def _raiser(error: Error) -> Callable[..., Any]:
    def call(*_: Any) -> Any:
        raise error

    return call


def _as_torch_raises_it(error: Error, frame: Any) -> Error:
    """The error as one of torch's kind too, which torch gives to the caller as it is."""
    kind: Any = type(type(error).__name__, (BackendCompilerFailed, type(error)), {"__init__": _init})
    raised = kind(str(error), frame)
    raised.__dict__.update({**vars(error), "backend_name": "aicf", "inner_exception": error})
    return raised


def _init(self: Any, text: str, frame: Any) -> None:
    ShortenTraceback.__init__(self, text, first_useful_frame=frame)


def _compile(
    graph: torch.fx.GraphModule, options: Mapping[str, Any], trains: bool = False
) -> Callable[..., Any]:
    if options.get("fallback") != "eager":
        try:
            return CompiledGraph(graph, options, trains)
        except Error as error:
            if error.name not in _LEFT_TO_EAGER:
                raise
            raise with_remedy(
                error, f"{error.remedy}; or {_FALLBACK} runs it in torch".lstrip("; ")
            ) from None
    missing = survey(graph)
    if not missing:
        return CompiledGraph(graph, options, trains)
    counts = Counter(found.op for found in missing.values())
    names = ", ".join(f"{op} ({n})" if n > 1 else op for op, n in counts.items())
    partitions.append(f"{len(missing)} of {count_ops(graph)} ops in eager: {names}")
    _log.warning(partitions[-1])
    return _partitioned(graph, _left_out(graph, missing), options, trains)


def _left_out(graph: torch.fx.GraphModule, missing: Container[torch.fx.Node]) -> set[torch.fx.Node]:
    """Nodes of the graph itself that are missing, or have a body with a missing node."""

    def is_left_out(node: torch.fx.Node) -> bool:
        bodies = [
            getattr(graph, str(arg.target), None) for arg in node.all_input_nodes if arg.op == "get_attr"
        ]
        return node in missing or any(
            _left_out(body, missing) for body in bodies if isinstance(body, torch.fx.GraphModule)
        )

    return {node for node in graph.graph.nodes if is_left_out(node)}


class _Supported(OperatorSupportBase):
    def __init__(self, eager: set[torch.fx.Node]) -> None:
        self._eager = {node.name for node in eager}

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function" and node.name not in self._eager and _has_tensors(node)


def _has_tensors(node: torch.fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (torch.Tensor, tuple, list))


def _partitioned(
    graph: torch.fx.GraphModule, eager: set[torch.fx.Node], options: Mapping[str, Any], trains: bool
) -> Callable[..., Any]:
    """Runs of supported nodes become compiled graphs, the rest stays as it is."""
    partitioner = CapabilityBasedPartitioner(graph, _Supported(eager), allows_single_node_partition=True)
    fused = partitioner.fuse_partitions(partitioner.propose_partitions())
    for name in [str(node.target) for node in fused.graph.nodes if node.op == "call_module"]:
        part = getattr(fused, name)
        setattr(fused, name, _Part(CompiledGraph(part, options, trains), part))
    fused.recompile()
    return fused


class _Part(torch.nn.Module):
    """A compiled graph where torch expects a module; a single result stands alone."""

    def __init__(self, compiled: CompiledGraph, source: torch.fx.GraphModule) -> None:
        super().__init__()
        self._compiled = compiled
        output = next(node for node in source.graph.nodes if node.op == "output")
        self._single = not isinstance(output.args[0], (tuple, list))

    def forward(self, *args: Any) -> Any:
        results = self._compiled(*args)
        return results[0] if self._single else results


# An installed package is found by its entry point; a tree that is only on the path registers itself.
if "aicf" not in list_backends():
    register_backend(aicf_backend, name="aicf")

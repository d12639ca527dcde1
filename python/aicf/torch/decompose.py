"""Ops without a rule: one node becomes the graph that torch's own decomposition of it gives."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import detect_fake_mode
from torch.distributions import Distribution
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .decompositions import DECOMPOSITIONS, foreach
from .rules import RULES

__all__ = [
    "STATISTICS",
    "decompose",
    "is_mutable",
    "masks_as_given",
    "plain_attention",
    "table",
    "updates_statistics",
    "values_unchecked",
    "whole_attention",
    "whole_to_autograd",
    "without_mkldnn",
]


# Ops that bring running statistics up to date without saying so; their sixth argument is whether they do.
STATISTICS = frozenset({"batch_norm", "instance_norm", "native_batch_norm"})


@cache
def table() -> dict[Any, Any]:
    """Decompositions of all ops that have no rule: torch's and ours."""
    known = {**decomposition_table, **DECOMPOSITIONS}
    return {op: function for op, function in known.items() if str(op) not in RULES}


_EARLY_KEYS = (torch._C.DispatchKey.Autograd, torch._C.DispatchKey.CompositeImplicitAutograd)


@cache
def _early_decomposed() -> list[torch._ops.OpOverload]:
    ours = {str(op) for op in DECOMPOSITIONS} | set(RULES)
    return [
        op
        for op in decomposition_table
        if isinstance(op, torch._ops.OpOverload)
        and torch._C.DispatchKey.Autograd in op.py_kernels
        and op._opname not in STATISTICS
        and f"aten.{op._opname.removesuffix('_forward')}_backward.default" in ours
    ]


@contextmanager
def whole_to_autograd() -> Iterator[None]:
    """torch takes some ops apart before it differentiates them: resizing becomes gathers, whose gradients are
    scatters. Those whose backward op is ours stay whole.
    """
    removed = {}
    for op in _early_decomposed():
        removed[op] = {key: op.py_kernels.pop(key) for key in _EARLY_KEYS if key in op.py_kernels}
        op._dispatch_cache.clear()
    try:
        yield
    finally:
        for op, kernels in removed.items():
            op.py_kernels.update(kernels)
            op._dispatch_cache.clear()


@contextmanager
def without_mkldnn() -> Iterator[None]:
    """torch makes an LSTM one op of mkldnn's where it may; torch.backends.mkldnn.flags warns of other
    settings.
    """
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(enabled)


@contextmanager
def plain_attention(tensors: Iterable[Any]) -> Iterator[None]:
    """torch's fused attention kernels of a GPU keep what only they understand for the backward graph, and pad
    masks to sizes that fit their alignment, which fixes those sizes.
    """
    with ExitStack() as stack:
        if any(isinstance(x, torch.Tensor) and x.is_cuda for x in tensors):
            stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        yield


@contextmanager
def whole_attention(tensors: Iterable[Any]) -> Iterator[None]:
    """On a GPU attention becomes the op that torch has for it on a CPU, whose backward op is ours too; what
    that one does not take is taken apart.
    """
    tensors = list(tensors)
    with plain_attention(tensors), ExitStack() as stack:
        if any(isinstance(x, torch.Tensor) and x.is_cuda for x in tensors):
            stack.enter_context(_WholeAttention())
        yield


class _WholeAttention(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is functional.scaled_dot_product_attention:
            result = _attention(*args, **kwargs)
            if result is not None:
                return result
        return func(*args, **kwargs)


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attn_mask: torch.Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> torch.Tensor | None:
    """By torch's op for a CPU; None if it is another function than this."""
    given = [query, key, value]
    kind = query.device.type
    if torch.is_autocast_enabled(kind):
        dtype = torch.get_autocast_dtype(kind)
        given = [x.to(dtype) for x in given]
        if attn_mask is not None and attn_mask.is_floating_point():
            attn_mask = attn_mask.to(dtype)
    q, k, v = given
    if dropout_p or any(x.dim() != 4 for x in given) or (is_causal and q.shape[2] != k.shape[2]):
        return None
    if len({x.dtype for x in given}) > 1 or q.dtype not in _ATTENTION_TYPES or q.shape[3] != v.shape[3]:
        return None
    if q.shape[0] != k.shape[0] or (q.shape[1] != k.shape[1] and not enable_gqa):
        return None
    if attn_mask is not None and (attn_mask.requires_grad or attn_mask.dim() not in (2, 4)):
        return None
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    return flash(q, k, v, 0.0, is_causal, attn_mask=attn_mask, scale=scale)[0]


_ATTENTION_TYPES = (torch.float32, torch.float16, torch.bfloat16)


@contextmanager
def masks_as_given() -> Iterator[None]:
    """torch.nn's transformers ask whether a mask is the causal one, element by element, to hint at a kernel.

    The mask is applied either way.
    """
    detect = transformer._detect_is_causal_mask

    def hinted(mask: Any, is_causal: bool | None = None, size: Any = None) -> bool:
        return is_causal is True

    transformer._detect_is_causal_mask = hinted
    try:
        yield
    finally:
        transformer._detect_is_causal_mask = detect


@contextmanager
def values_unchecked() -> Iterator[None]:
    """Distributions and a loss look whether values are in range, which no compiled model can stop for."""
    validate, loss = Distribution._validate_args, functional.gaussian_nll_loss
    Distribution.set_default_validate_args(False)
    functional.gaussian_nll_loss = _gaussian_nll_loss
    try:
        yield
    finally:
        Distribution.set_default_validate_args(validate)
        functional.gaussian_nll_loss = loss


def _gaussian_nll_loss(
    x: torch.Tensor,
    target: torch.Tensor,
    var: Any,
    full: bool = False,
    eps: float = 1e-6,
    reduction: str = "mean",
) -> torch.Tensor:
    """torch's, which asks for negative variances; a variance below eps keeps its derivative."""
    var = var * torch.ones_like(x) if isinstance(var, float) else var
    var = var.unsqueeze(-1) if var.ndim == x.ndim - 1 and var.ndim else var
    var = torch.where(var < eps, eps + (var - var.detach()), var)
    terms = 0.5 * (torch.log(var) + (x - target) ** 2 / var)
    terms = terms + 0.5 * math.log(2 * math.pi) if full else terms
    return terms.mean() if reduction == "mean" else terms.sum() if reduction == "sum" else terms


def is_mutable(op: Any) -> bool:
    return isinstance(op, torch._ops.OpOverload) and op._schema.is_mutable


def updates_statistics(node: torch.fx.Node) -> bool:
    """Whether the op writes running statistics, its fourth and fifth argument."""
    parts = str(node.target).split(".")
    return parts[0] == "aten" and parts[1] in STATISTICS and bool(node.args[5]) and node.args[3] is not None


def decompose(op: Any, args: Any, kwargs: Any) -> tuple[torch.fx.GraphModule, list[int]] | None:
    """The op's decomposition on these fake operands, and which leaves of (args, kwargs) are its inputs.

    None if torch has none: the graph would be the op itself.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    inputs = [i for i, leaf in enumerate(leaves) if isinstance(leaf, (torch.Tensor, torch.SymInt))]

    def run(*values: Any) -> Any:
        full = list(leaves)
        for index, value in zip(inputs, values, strict=True):
            full[index] = value
        own_args, own_kwargs = pytree.tree_unflatten(full, spec)
        # Called here: torch takes a composite op apart before it looks into a table.
        return DECOMPOSITIONS.get(op, op)(*own_args, **own_kwargs)

    decompositions = dict(table())
    if op in decomposition_table:
        decompositions[op] = decomposition_table[op]
    function = foreach(op)
    if function is not None:
        decompositions[op] = function
    with ExitStack() as stack:
        mode = detect_fake_mode([leaves[i] for i in inputs]) or torch._subclasses.FakeTensorMode()
        stack.enter_context(mode)
        stack.enter_context(torch.no_grad())
        stack.enter_context(enable_python_dispatcher())
        stack.enter_context(without_mkldnn())
        operands = [leaves[i] for i in inputs]
        graph = make_fx(run, decomposition_table=decompositions)(*operands)
        if any(is_mutable(node.target) for node in graph.graph.nodes):
            graph = make_fx(torch.func.functionalize(graph), decomposition_table=decompositions)(*operands)
    if any(node.target is op for node in graph.graph.nodes):
        return None
    return graph, inputs

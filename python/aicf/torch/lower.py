"""A functional torch.fx graph of ATen ops becomes nodes of ours, one torch node after the other."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from torch._guards import detect_fake_mode
from torch._higher_order_ops.flex_attention import math_attention
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols
from torch.utils import _pytree as pytree

from .. import ops
from ..errors import Error, make_error
from ..nn.module import State
from ..symtensor import SymTensor
from ..tracing import Graph, tracing
from .autocast import autocast
from .call import Call, Decompose, computes_wide, narrowed, widened
from .control_flow import CONTROL_FLOW, MISSING, Incomplete
from .decompose import decompose, is_mutable
from .gradients import DERIVATIVES
from .memory import raise_if_memory_ran_out
from .rules import OPMATH, RULES, Rule
from .rules.custom import custom_rule
from .source import line_of_node, path_of_node
from .symbolic import at_every_size, fixed_fakes, symbols_in
from .types import DATA_DECIDES, Symbols, dtype_name

__all__ = ["MISSING", "Lowering", "unsupported"]

# Nodes that check what torch assumed while exporting, for which our sizes have ranges of their own, and
# whether a matrix can be factorised: the result of one that cannot holds NaNs or infinities.
_CHECKS = frozenset(
    {
        "aten._linalg_check_errors.default",
        "prims._make_token.default",
        "prims._sink_tokens.default",
        "aten._assert_scalar.default",
        "aten._assert_async.msg",
        "aten._assert_async.default",
        "aten._assert_tensor_metadata.default",
        "aten.sym_constrain_range.default",
        "aten.sym_constrain_range_for_size.default",
    }
)
# The element of a tensor of one: it stays a tensor, so that it can be computed with.
_SCALARS = frozenset({"aten.item.default", "aten._local_scalar_dense.default"})
_DETACHING = frozenset({"aten.detach.default", "aten.detach_copy.default"})
_INLINED = ("wrap_with_set_grad_enabled", "wrap_with_autocast", "invoke_subgraph", "hints_wrapper")


def _read_by_checks_alone(graph: torch.fx.Graph) -> set[torch.fx.Node]:
    """What is computed only to be checked, with the checks."""
    unread: set[torch.fx.Node] = set()
    for node in reversed(graph.nodes):
        if node.op != "call_function" or isinstance(node.target, torch._ops.HigherOrderOperator):
            continue
        if _is_check(node) or (node.users and unread.issuperset(node.users)):
            unread.add(node)
    return unread


def _is_check(node: torch.fx.Node) -> bool:
    return str(node.target) in _CHECKS or node.target is torch._check


def unsupported(node: torch.fx.Node, reason: str) -> Error:
    return make_error(
        "unsupported_op",
        f"{node.target} is not supported: {reason}",
        op=str(node.target),
        value=line_of_node(node) or path_of_node(node),
        remedy=_remedy(node),
    )


def _remedy(node: torch.fx.Node) -> str:
    """What to write instead, by the kind of the result."""
    tensors = [leaf for leaf in pytree.tree_leaves(node.meta.get("val")) if isinstance(leaf, torch.Tensor)]
    if any(tensor.layout != torch.strided for tensor in tensors):
        return "compute with dense tensors, and make an Embedding with sparse=False"
    if any(free_unbacked_symbols(tensor) for tensor in tensors):
        return DATA_DECIDES
    return "write the line with other functions"


class Lowering:
    """Appends to `graph`. `on_unsupported(node, error)` may give a stand-in for the node's result; it raises
    by default. `error` is None where an op inside the node was told of already."""

    def __init__(
        self,
        graph: Graph,
        symbols: Symbols,
        on_unsupported: Callable[[torch.fx.Node, Error | None], Any] | None = None,
        loops: bool = True,
        trains: bool = False,
        seed: int = 0,
    ) -> None:
        self.loops = loops  # whether the device runs them
        self.trains = trains  # whether the graph will be differentiated
        self.seed = seed  # of its random numbers
        self.graph = graph
        self.symbols = symbols
        self.streams = 0  # of random numbers, one per node that draws some
        self._rng: tuple[SymTensor, SymTensor] | None = None
        self._on_unsupported = on_unsupported
        self._node: torch.fx.Node | None = None
        self._sizes: Any = None  # torch's knowledge of the sizes
        self._symbols: frozenset[Any] = frozenset()  # those of the inputs
        self._autocast = False
        self._in_parts = False  # of an op that torch decomposed
        self._is_body = False

    def run(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        """Values of the graph's output for the values of its placeholders."""
        fakes = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
        mode = detect_fake_mode(fakes)
        self._sizes = mode.shape_env if mode is not None else None
        self._symbols = symbols_in(fakes)
        with tracing(self.graph):
            return self._run(module, inputs)

    def random_state(self) -> tuple[SymTensor, SymTensor]:
        """Seed and step of this run; the step's update is added once."""
        if self._is_body:
            raise make_error(
                "unsupported_op",
                "random numbers are drawn inside of control flow",
                remedy="draw them before the loop or the branch, and give them to it",
            )
        if self._rng is None:
            seed, step = (State(np.array(start, np.int64)) for start in (self.seed, 0))
            self._rng = self.graph.declare("rng.seed", seed), self.graph.declare("rng.step", step)
            self.graph.update(step, self._rng[1] + 1)
        return self._rng

    def _run(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
        values: dict[torch.fx.Node, Any] = {}
        pending = list(inputs)
        unread = _read_by_checks_alone(module.graph)
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = pending.pop(0)
            elif node.op == "get_attr":
                values[node] = self._values(_attribute(module, node.target), values)
            elif node.op == "output":
                return self._values(node.args[0], values)
            else:
                values[node] = None if node in unread else self._node_value(node, values)
        raise AssertionError("an fx graph ends with an output")

    def _values(self, argument: Any, values: dict[torch.fx.Node, Any]) -> Any:
        def convert(leaf: Any) -> Any:
            if isinstance(leaf, torch.fx.Node):
                leaf = values[leaf]
            if isinstance(leaf, torch.SymFloat):
                return self.symbols.real(leaf)
            if isinstance(leaf, torch.Tensor):
                with unset_fake_temporarily():  # a backend compiles inside of torch's fake mode
                    return self.graph.constant(leaf.detach().cpu().contiguous())
            return self.symbols.size(leaf) if isinstance(leaf, torch.SymInt) else leaf

        return torch.fx.node.map_aggregate(argument, convert)

    def _node_value(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        if node.target is operator.getitem and values[node.args[0]] is not MISSING:
            return values[node.args[0]][node.args[1]]
        if any(values.get(operand) is MISSING for operand in node.all_input_nodes):
            return self._without_operand(node)
        out = node.meta.get("val")
        if str(node.target) in _SCALARS:
            element = self._values(node.args[0], values)
            # To torch it is a number of Python's, which has no derivative.
            is_tensor = self.trains and isinstance(element, SymTensor)
            return ops.stop_gradient(element) if is_tensor else element
        if isinstance(out, (torch.SymInt, int)) and not isinstance(out, bool):
            return self.symbols.size(out)
        if isinstance(out, (torch.SymBool, torch.SymFloat, bool, float)):
            return out
        outer = self._node is None
        if outer:
            self._node = node
        try:
            with self.graph.scope(path_of_node(node)), self._at_every_size(outer, node):
                return self._lower(node, out, values)
        except Error as error:
            if not outer:
                raise
            located = _located(error, node)
            if self._on_unsupported is None:
                raise located from error
            return self._on_unsupported(node, located)
        finally:
            if outer:
                self._node = None

    def _without_operand(self, node: torch.fx.Node) -> Any:
        """In a survey, the result of a node that takes what has no stand-in: a complex tensor, or one whose
        shape depends on data.
        """
        if node.target is operator.getitem or self._on_unsupported is None or self._is_body:
            return MISSING
        error = make_error("unsupported_op", f"{node.target} takes a value of an unsupported type or shape")
        return self._on_unsupported(node, _located(error, node))

    def _lower(self, node: torch.fx.Node, out: Any, values: dict[torch.fx.Node, Any]) -> Any:
        if isinstance(node.target, torch._ops.HigherOrderOperator):
            try:
                return self._higher_order(node, values)
            except Incomplete:
                assert self._on_unsupported is not None
                return self._on_unsupported(node, None)
        args, kwargs = self._values(node.args, values), self._values(node.kwargs, values)
        fakes, fake_kwargs = torch.fx.node.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
        if self._autocast:
            (args, kwargs), (fakes, fake_kwargs) = autocast((args, kwargs), (fakes, fake_kwargs), node, out)
        rule = RULES.get(str(node.target)) or custom_rule(node.target)
        reason = "AICF has no rule for it, and torch no decomposition"
        if rule is not None:
            try:
                result = self._ruled(rule, node, out, (fakes, fake_kwargs), (args, kwargs))
                return self._checked(
                    node, out, self._differentiated(node, out, fakes, result, (args, kwargs))
                )
            except Decompose as other:
                reason = str(other) or reason
        if is_mutable(node.target):
            raise unsupported(node, "it writes to an operand")
        _check_dtypes(out)
        result = self._parts(node, node.target, fakes, fake_kwargs, (args, kwargs))
        if result is None:
            raise unsupported(node, reason)
        return self._differentiated(node, out, fakes, result, (args, kwargs))

    def _ruled(self, rule: Rule, node: torch.fx.Node, out: Any, fakes: Any, operands: Any) -> Any:
        """What the rule gives, in f32 and rounded once where it says so."""
        wide = computes_wide(OPMATH.get(str(node.target)), out, fakes)
        args, kwargs = widened(operands) if wide else operands
        result = rule(Call(self, node, out, fakes[0], wide), *args, **kwargs)
        return narrowed(result, out) if wide else result

    def _differentiated(
        self, node: torch.fx.Node, out: Any, fakes: Any, result: Any, operands: tuple[Any, Any]
    ) -> Any:
        """The result with torch's derivative, where that is another than the one of what we compute."""
        derivative = DERIVATIVES.get(str(node.target)) if self.trains else None
        if self._in_parts and str(node.target) in _DETACHING:
            return result  # torch decomposes what it has differentiated already
        if derivative is None:
            return result
        return derivative(Call(self, node, out, fakes), result, *operands[0], **operands[1])

    def _parts(self, node: torch.fx.Node, op: Any, fakes: Any, fake_kwargs: Any, operands: Any) -> Any:
        """The result of torch's decomposition of an op; None if it has none."""
        if self.symbols.values:
            fakes, fake_kwargs = fixed_fakes((fakes, fake_kwargs), self.symbols)
        parts = _decompose(node, op, fakes, fake_kwargs)
        if parts is None:
            return None
        module, used = parts
        leaves = pytree.tree_leaves(operands, is_leaf=lambda x: x is None or isinstance(x, SymTensor))
        outer, self._in_parts = self._in_parts, True
        try:
            return self._run(module, [leaves[i] for i in used])
        finally:
            self._in_parts = outer

    def _at_every_size(self, outer: bool, node: torch.fx.Node) -> Any:
        """Not where each size has one value, or where the outer node is watched."""
        if not outer or self.symbols.values or self._sizes is None:
            return nullcontext()
        return at_every_size(self._sizes, self._symbols, node.target)

    def _higher_order(self, node: torch.fx.Node, values: dict[torch.fx.Node, Any]) -> Any:
        name = node.target.name()
        if name == "with_effects" and str(node.args[1]) in _CHECKS:
            return values[node.args[0]], None
        args, kwargs = self._values(node.args, values), self._values(node.kwargs, values)
        if name in CONTROL_FLOW:
            return CONTROL_FLOW[name](self, *args, **kwargs)
        if name == "flex_attention":
            fakes = torch.fx.node.map_arg(node.args, lambda n: n.meta.get("val", values[n]))
            return self._parts(node, math_attention, fakes, {}, (args, kwargs))
        if name not in _INLINED:
            raise make_error(
                "unsupported_op",
                f"torch's {name} is not supported",
                op=name,
                value=line_of_node(node),
                remedy="write it with plain functions of tensors, torch.cond, while_loop, scan or map",
            )
        at = next(i for i, arg in enumerate(args) if isinstance(arg, torch.fx.GraphModule))
        outer = self._autocast
        if name == "wrap_with_autocast":
            self._autocast = bool(args[2])
        try:
            return self._run(args[at], [arg for arg in args[at + 1 :] if not isinstance(arg, str)])
        finally:
            self._autocast = outer

    def inside(self, graph: Graph) -> Lowering:
        """A lowering into a body of a node of this graph, whose sizes are watched already."""
        inner = Lowering(graph, self.symbols, loops=self.loops, trains=self.trains)
        inner._autocast = self._autocast
        inner._is_body = True
        note = self._on_unsupported
        if note is not None:

            def missing(node: torch.fx.Node, error: Error | None) -> Any:
                if error is not None:
                    note(node, error)
                return MISSING

            inner._on_unsupported = missing
        return inner

    def run_inner(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> list[Any]:
        """Results of a body's torch graph."""
        with tracing(self.graph):
            results = self._run(module, inputs)
        results = list(results) if isinstance(results, (tuple, list)) else [results]
        if any(result is MISSING for result in results):
            raise Incomplete
        return results

    def _checked(self, node: torch.fx.Node, out: Any, result: Any) -> Any:
        """Our result has the dtype and the shape that torch promised."""
        pairs = zip(result, out, strict=False) if isinstance(out, (tuple, list)) else [(result, out)]
        for ours, theirs in pairs:
            if not isinstance(theirs, torch.Tensor) or ours is None:
                continue
            shape = tuple(self.symbols.shape(theirs.shape))
            if ours.dtype != dtype_name(theirs.dtype) or not _same_shape(ours.shape, shape):
                raise make_error(
                    "check_failed",
                    f"the rule of {node.target} gave another type than torch",
                    expected=f"{dtype_name(theirs.dtype)}{list(shape)}",
                    actual=f"{ours.dtype}{list(ours.shape)}",
                )
        return result


def _same_shape(ours: Sequence[Any], theirs: Sequence[Any]) -> bool:
    return len(ours) == len(theirs) and all(
        a == b or not (isinstance(a, int) and isinstance(b, int)) for a, b in zip(ours, theirs, strict=True)
    )


def _check_dtypes(out: Any) -> None:
    for leaf in pytree.tree_leaves(out):
        if isinstance(leaf, torch.Tensor):
            dtype_name(leaf.dtype)


def _decompose(node: torch.fx.Node, op: Any, fakes: Any, fake_kwargs: Any) -> Any:
    try:
        return decompose(op, fakes, fake_kwargs)
    except Error:
        raise
    except Exception as error:  # torch's decompositions raise whatever they like
        raise_if_memory_ran_out(error)
        raise unsupported(
            node, f"torch could not decompose it ({type(error).__name__}: {error})"[:300]
        ) from error


def _attribute(module: torch.fx.GraphModule, path: str) -> Any:
    value: Any = module
    for name in path.split("."):
        value = getattr(value, name)
    return value


def _located(error: Error, node: torch.fx.Node) -> Error:
    """The same error with the user's line in it."""
    line = line_of_node(node)
    if not line or line in str(error):
        return error
    return make_error(
        error.name,
        str(error).splitlines()[0].split("] ", 1)[-1],
        op=error.op or str(node.target),
        value=f"{error.value} at {line}" if error.value else line,
        expected=error.expected,
        actual=error.actual,
        remedy=error.remedy,
    )

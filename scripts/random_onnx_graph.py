"""A random ONNX graph in construction, for random_onnx.py: every value is known, with a bound of its error.

Each node runs alone in a peer (onnxruntime, else the reference of onnx) as it is added, so the graph knows
shapes, dtypes and contents. `Value.error` bounds how far a right implementation may be from `array`. It grows
from node to node: what the node's own roundings do, from dtype and length, and what the errors of its inputs
do, by running the node on inputs moved by them. None means equal.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime as ort
from onnx import AttributeProto, NodeProto, TensorProto, defs, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = (np.dtype(np.float16), BF16)
FLOATS = (np.dtype(np.float32), np.dtype(np.float64), *HALVES)
MOST_ELEMENTS = 6000
# Ops whose types are attributes or come from a constant.
AS_THEY_ARE = {"Cast", "CastLike", "ConstantOfShape", "EyeLike", "Range", "Identity"}
# Of which onnxruntime wants some operands as initialisers.
NEED_CONSTANTS = {
    "Resize",
    "Upsample",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
    "DequantizeLinear",
    "Range",
}
ort.set_default_logger_severity(4)
warnings.filterwarnings("ignore")


class Refused(Exception):
    """The peers do not run this node."""


class Unfit(Exception):
    """A builder finds nothing to draw here."""


def is_float(dtype: Any) -> bool:
    return np.dtype(dtype) in FLOATS


def eps(dtype: Any) -> float:
    """One unit in the last place of numbers from 1 to 2."""
    return {BF16: 2.0**-7}.get(np.dtype(dtype)) or float(np.finfo(dtype).eps)


def tiny(dtype: Any) -> float:
    """The least step between numbers near 0."""
    return {BF16: 2.0**-133}.get(np.dtype(dtype)) or float(np.finfo(dtype).smallest_subnormal)


def onnx_type(dtype: Any) -> int:
    return helper.np_dtype_to_tensor_dtype(np.dtype(dtype))


@dataclass
class Value:
    name: str
    array: np.ndarray
    error: np.ndarray | None = None
    kind: str = "node"  # input, constant or node
    draw: Callable[[Sequence[int]], np.ndarray] | None = None

    @property
    def exact(self) -> bool:
        return self.error is None

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.array.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape


@dataclass
class Rule:
    """How exact a node's results are. `ulps`: its own rounding. `length`: how many terms its sums have at
    most. `kind`: "exact", "round" (a function of each element), "sum" (linear in its operands but for their
    signs: the terms are bounded by a run on magnitudes) or "chain" (several steps: as if its operands had
    relative errors of `length` units); "halves": whole numbers, one off where a half is rounded."""

    kind: str = "exact"
    ulps: float = 1
    length: int = 1
    absolute: float = 0  # of results that onnxruntime approximates to a fixed number of digits
    rounds: int = 0  # of halves: how often a sum is rounded before it is done
    steps: bool = False  # whole numbers that may be one off where the operands are not exact


class Peer:
    """One node alone, run by onnxruntime, else by the reference of onnx.

    Roundings are ours to bound, so halves are computed in f32 and rounded once, and so are results of f64 for
    which onnxruntime has no kernel; `unit` is what the arithmetic of the peer then keeps.
    """

    def __init__(self, graph: Graph, node: NodeProto, rule: Rule, prefer: str = "onnxruntime") -> None:
        self.node = node
        floats = {graph.values[n].dtype for n in free_reads(node) if is_float(graph.values[n].dtype)}
        self.positive: Peer | None = None  # the same with attributes of magnitudes, where some are below 0
        self.has_body = any(a.type == a.GRAPH for a in node.attribute)
        movable = node.op_type not in AS_THEY_ARE and not self.has_body
        self.narrow = movable and bool(floats & set(HALVES))
        self._build(graph, node, prefer)
        movable = movable and rule.kind != "exact"
        if (
            movable
            and not self.narrow
            and np.dtype(np.float64) in floats
            and self.session is None
            and prefer == "onnxruntime"
        ):
            self.narrow = True
            self._build(graph, node, prefer)

    def _build(self, graph: Graph, node: NodeProto, prefer: str) -> None:
        reads = free_reads(node)
        values = graph.values

        def fixed(name: str) -> bool:
            """Constants of floats are fed where the peers allow it, so that errors can be tried on them."""
            value = values[name]
            wanted = node.op_type in NEED_CONSTANTS and name != node.input[0]
            return value.kind == "constant" and (not is_float(value.dtype) or wanted)

        self.names = [name for name in reads if not fixed(name)]
        constants = [numpy_helper.from_array(values[name].array, name) for name in reads if fixed(name)]
        outputs = [name for name in node.output if name]
        bare = [
            helper.make_tensor_value_info(
                name, onnx_type(values[name].dtype), [None] * values[name].array.ndim
            )
            for name in self.names
        ]
        if self.narrow:
            constants = [
                numpy_helper.from_array(_in_f32(numpy_helper.to_array(c)), c.name) for c in constants
            ]
        probe = helper.make_model(
            helper.make_graph(
                [node], "g", bare, [onnx.ValueInfoProto(name=name) for name in outputs], constants
            ),
            opset_imports=graph.imports(),
            ir_version=10,
        )
        try:
            inferred = onnx.shape_inference.infer_shapes(probe)
        except Exception as error:
            raise Refused(f"onnx: {error}") from error
        types = {v.name: v.type.tensor_type.elem_type for v in inferred.graph.output}
        default = onnx_type(values[self.names[0]].dtype) if self.names else TensorProto.FLOAT
        self.model = self._wrapped(graph, node, constants, outputs, types, default)
        self.session: Any = None
        self.reference: Any = None
        self.why = ""
        if prefer == "onnxruntime":
            options = ort.SessionOptions()
            options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
            options.intra_op_num_threads = 1
            options.inter_op_num_threads = 1
            options.log_severity_level = 4
            try:
                self.session = ort.InferenceSession(
                    self.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
                )
            except Exception as error:
                self.why = str(error)

    def _wrapped(
        self,
        graph: Graph,
        node: NodeProto,
        constants: list[TensorProto],
        outputs: list[str],
        types: dict[str, int],
        default: int,
    ) -> onnx.ModelProto:
        """bf16 goes in and out as f32, since onnxruntime's Python has no bf16."""
        before, after, inputs, results = [], [], [], []
        bf16, f32 = TensorProto.BFLOAT16, TensorProto.FLOAT
        wide = {onnx_type(d) for d in FLOATS} if self.narrow else {bf16}
        for name in self.names:
            kind = onnx_type(graph.values[name].dtype)
            feed = name
            if kind == bf16 and not self.narrow:
                feed = name + "__f"
                before.append(helper.make_node("Cast", [feed], [name], to=bf16))
            shape = [None] * graph.values[name].array.ndim
            inputs.append(helper.make_tensor_value_info(feed, f32 if kind in wide else kind, shape))
        self.kinds = []
        for name in outputs:
            kind = types.get(name) or default
            if kind == bf16 and not self.narrow:
                after.append(helper.make_node("Cast", [name], [name + "__f"], to=f32))
                results.append(helper.make_tensor_value_info(name + "__f", f32, None))
            else:
                results.append(helper.make_tensor_value_info(name, f32 if kind in wide else kind, None))
            self.kinds.append(helper.tensor_dtype_to_np_dtype(kind))
        made = helper.make_graph([*before, node, *after], "g", inputs, results, constants)
        return helper.make_model(made, opset_imports=graph.imports(), ir_version=10)

    def __call__(self, arrays: Mapping[str, np.ndarray], strict: bool = False) -> list[np.ndarray]:
        feeds = {}
        for name in self.names:
            array = arrays[name]
            bf16 = array.dtype == BF16
            if bf16 or self.narrow:
                array = _in_f32(array)
            feeds[name + "__f" if bf16 and not self.narrow else name] = np.ascontiguousarray(array).reshape(
                array.shape
            )
        if self.session is not None:
            try:
                results = self.session.run(None, feeds)
            except Exception as error:
                if strict or self.has_body:
                    raise Refused(str(error)) from error
                self.why, self.session = str(error), None
                return self(arrays)
        else:
            if self.has_body:  # the reference stacks the rows of a Loop of one step wrongly
                raise Refused(self.why)
            if self.reference is None:
                try:
                    self.reference = ReferenceEvaluator(self.model)
                except Exception as error:
                    raise Refused(f"{self.why[:300]} | {error}") from error
            try:
                results = self.reference.run(None, feeds)
            except Exception as error:
                raise Refused(f"{self.why[:300]} | {type(error).__name__}: {error}") from error
        out = []
        for result, kind in zip(results, self.kinds, strict=True):
            array = np.asarray(result)
            if array.dtype == object or isinstance(result, list):
                raise Refused("a result that is no tensor")
            with np.errstate(all="ignore"):
                out.append(array.astype(kind) if is_float(kind) else array)
        return out


def _in_f32(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float32) if is_float(array.dtype) else array


def free_reads(node: NodeProto) -> list[str]:
    """Names that the node and its bodies read from outside, in order."""
    names = [name for name in node.input if name]
    for attribute in node.attribute:
        if attribute.type == AttributeProto.GRAPH:
            inner = attribute.g
            made = {v.name for v in inner.input} | {t.name for t in inner.initializer}
            for each in inner.node:
                names += [name for name in free_reads(each) if name not in made]
                made |= set(each.output)
            names += [v.name for v in inner.output if v.name not in made]
    return list(dict.fromkeys(names))


class Graph:
    """What the builders of random_onnx_ops.py add to. All choices come from `rng`."""

    def __init__(self, rng: np.random.Generator, opset: int, dynamic: bool) -> None:
        self.rng, self.opset, self.dynamic = rng, opset, dynamic
        self.values: dict[str, Value] = {}
        self.nodes: list[tuple[NodeProto, Rule, Peer]] = []
        self.domains: dict[str, int] = {}
        self.count = 0
        self.body_depth = 0
        self.sizes = [int(n) for n in rng.integers(2, 8, 3)]
        self.refusal = ""
        # Of values that builders took the ranges they asked for: scales are above 0, say.
        self.asked: dict[str, list[tuple[float, float]]] = {}

    # --- choices

    def chance(self, p: float) -> bool:
        return bool(self.rng.random() < p)

    def pick(self, items: Sequence[Any]) -> Any:
        return items[int(self.rng.integers(len(items)))]

    def whole(self, low: int, high: int) -> int:
        """From low to high, both included."""
        return int(self.rng.integers(low, high + 1))

    def size(self, least: int = 0) -> int:
        kind = self.rng.random()
        if kind < 0.04:
            return max(0, least)
        if kind < 0.2:
            return max(1, least)
        if kind < 0.7:
            return max(self.pick(self.sizes), least)
        if kind < 0.95:
            return max(self.whole(2, 9), least)
        return max(self.whole(15, 70), least)

    def shape(self, low: int = 0, high: int = 6, least: int = 0) -> tuple[int, ...]:
        rank = min(
            max(int(self.rng.choice([0, 1, 2, 3, 4, 5, 6], p=[0.08, 0.2, 0.25, 0.2, 0.17, 0.06, 0.04])), low),
            high,
        )
        sizes = [self.size(least) for _ in range(rank)]
        while np.prod(sizes) > MOST_ELEMENTS:
            sizes[int(np.argmax(sizes))] = max(2, least)
            if max(sizes, default=0) <= max(2, least):
                break
        return tuple(sizes)

    def axis(self, rank: int, low: int = 0) -> int:
        """Of `rank` axes, sometimes from the end."""
        if rank <= low:
            raise Unfit
        at = self.whole(low, rank - 1)
        return at - rank if self.chance(0.4) else at

    def broadcastable(self, shape: Sequence[int]) -> tuple[int, ...]:
        """A shape that broadcasts to this one."""
        start = self.whole(0, len(shape)) if self.chance(0.3) else 0
        return tuple(1 if self.chance(0.2) else n for n in shape[start:])

    def name(self, stem: str = "v") -> str:
        self.count += 1
        return f"{stem}{self.count}"

    # --- values

    def draw(
        self, dtype: Any, low: float | None = None, high: float | None = None
    ) -> Callable[[Sequence[int]], np.ndarray]:
        """What makes arrays of this dtype between these, or around 0."""
        dtype = np.dtype(dtype)
        scale = self.pick([1.0, 1.0, 1.0, 4.0, 0.1])
        rng = np.random.default_rng(self.rng.integers(1 << 62))

        def made(shape: Sequence[int]) -> np.ndarray:
            if dtype == np.dtype(bool):
                return np.asarray(rng.random(shape) < 0.5)
            if is_float(dtype):
                if low is None or high is None:
                    return np.asarray(rng.standard_normal(shape) * scale).astype(dtype)
                return np.asarray(rng.random(shape) * (high - low) + low).astype(dtype)
            info = np.iinfo(dtype)
            least = int(max(info.min, -9) if low is None else low)
            most = int(min(info.max, 9) if high is None else high)
            return np.asarray(rng.integers(least, most, shape, endpoint=True)).astype(dtype)

        return made

    def new_input(
        self, dtype: Any, shape: Sequence[int], low: float | None = None, high: float | None = None
    ) -> str:
        draw = self.draw(dtype, low, high)
        name = self.name("in")
        self.values[name] = Value(name, draw(shape), None, "input", draw)
        return name

    def const(self, array: Any, dtype: Any = None) -> str:
        array = np.asarray(array, dtype)
        name = self.name("c")
        self.values[name] = Value(name, array, None, "constant")
        return name

    def value(
        self,
        dtype: Any,
        shape: Sequence[int],
        low: float | None = None,
        high: float | None = None,
        exact: bool = False,
        constant: float = 0.25,
    ) -> str:
        """An operand of this type: one that the graph has, an input or a constant."""
        dtype, shape = np.dtype(dtype), tuple(int(n) for n in shape)
        if self.chance(0.7):
            fitting = [
                v
                for v in self.values.values()
                if v.dtype == dtype
                and v.shape == shape
                and v.kind != "constant"
                and (v.exact or not exact)
                and _within(v, low, high)
            ]
            if fitting:
                return self.took(self.pick(fitting), low, high).name
        if self.chance(constant):
            return self.const(self.draw(dtype, low, high)(shape))
        return self.new_input(dtype, shape, low, high)

    def any_value(
        self,
        dtypes: Sequence[Any],
        low_rank: int = 0,
        high_rank: int = 6,
        least: int = 0,
        exact: bool = False,
        low: float | None = None,
        high: float | None = None,
    ) -> Value:
        """An operand of any shape."""
        kinds = [np.dtype(d) for d in dtypes]
        if self.chance(0.75):
            fitting = [
                v
                for v in self.values.values()
                if v.dtype in kinds
                and v.kind != "constant"
                and low_rank <= v.array.ndim <= high_rank
                and min(v.shape, default=9) >= least
                and (v.exact or not exact)
                and _within(v, low, high)
            ]
            if fitting:
                return self.took(self.pick(fitting[-6:]), low, high)
        dtype = self.dtype(kinds)
        return self.values[self.value(dtype, self.shape(low_rank, high_rank, least), low, high, exact, 0.1)]

    def took(self, value: Value, low: float | None, high: float | None) -> Value:
        if low is not None and high is not None:
            self.asked.setdefault(value.name, []).append((low, high))
        return value

    def dtype(self, kinds: Sequence[Any]) -> np.dtype[Any]:
        """f32 more often than others."""
        kinds = [np.dtype(k) for k in kinds]
        if np.dtype(np.float32) in kinds and self.chance(0.5):
            return np.dtype(np.float32)
        return self.pick(kinds)

    def ints(self, values: Sequence[int], dtype: Any = np.int64) -> str:
        """Numbers that decide a shape: a constant."""
        return self.const(np.asarray(values, dtype))

    # --- nodes

    def imports(self) -> list[onnx.OperatorSetIdProto]:
        return [helper.make_opsetid(d, v) for d, v in {"": self.opset, **self.domains}.items()]

    def known(self, op: str, domain: str = "") -> bool:
        try:
            return not defs.get_schema(op, self.opset, domain).deprecated
        except Exception:
            return False

    def has_attribute(self, op: str, name: str) -> bool:
        return name in defs.get_schema(op, self.opset, "").attributes

    def dtypes_of(self, op: str, operand: int = 0, of: Sequence[Any] = ()) -> list[np.dtype[Any]]:
        """What the schema of this opset lets the operand be, of those that we draw."""
        schema = defs.get_schema(op, self.opset, "")
        kind = schema.inputs[operand].type_str
        texts = next(
            (c.allowed_type_strs for c in schema.type_constraints if c.type_param_str == kind), [kind]
        )
        found = [d for text, d in DTYPES.items() if f"tensor({text})" in texts and (not of or d in of)]
        if not found:
            raise Unfit
        return found

    def node(
        self,
        op: str,
        inputs: Sequence[str],
        rule: Rule | None = None,
        outputs: int | Sequence[bool] = 1,
        domain: str = "",
        **attributes: Any,
    ) -> list[str]:
        """Adds the node and gives the names of its outputs; Refused if no peer runs it."""
        rule = rule or Rule()
        wanted = [True] * outputs if isinstance(outputs, int) else list(outputs)
        names = [self.name() if want else "" for want in wanted]
        given = {k: v for k, v in attributes.items() if v is not None}
        if domain:
            self.domains.setdefault(domain, 1)
        inputs = list(inputs)
        while inputs and not inputs[-1]:
            inputs.pop()
        node = helper.make_node(op, inputs, names, name=self.name("n"), domain=domain, **given)
        self.add(node, rule)
        return [name for name in names if name]

    def add(self, node: NodeProto, rule: Rule) -> None:
        try:
            peer = Peer(self, node, rule, self.prefer(node))
            below = [a for a in node.attribute if a.type == AttributeProto.FLOAT and a.f < 0]
            if below and rule.kind == "sum":
                copy = NodeProto()
                copy.CopyFrom(node)
                for attribute in copy.attribute:
                    attribute.f = abs(attribute.f)
                peer.positive = Peer(self, copy, rule, self.prefer(node))
            results, errors = evaluate(peer, rule, self.values)
        except Refused as error:
            self.refusal = str(error)
            self.refused_node = node
            raise
        if any(r.size > 8 * MOST_ELEMENTS for r in results):
            raise Unfit
        for name, array, error in zip([n for n in node.output if n], results, errors, strict=True):
            self.values[name] = Value(name, array, error)
        self.nodes.append((node, rule, peer))

    def prefer(self, node: NodeProto) -> str:
        from random_onnx_ops import FAULTS

        return next((fault.right for fault in FAULTS if fault.concerns(self, node)), "onnxruntime")


DTYPES: dict[str, np.dtype[Any]] = {
    "float": np.dtype(np.float32),
    "double": np.dtype(np.float64),
    "float16": np.dtype(np.float16),
    "bfloat16": BF16,
    "int64": np.dtype(np.int64),
    "int32": np.dtype(np.int32),
    "int16": np.dtype(np.int16),
    "int8": np.dtype(np.int8),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "uint64": np.dtype(np.uint64),
    "bool": np.dtype(bool),
}


def _within(value: Value, low: float | None, high: float | None) -> bool:
    if low is None or high is None:
        return (
            value.array.size == 0
            or not is_float(value.dtype)
            or bool(np.abs(value.array.astype(np.float64)).max() < 1e4)
        )
    if value.array.size == 0 or value.dtype == np.dtype(bool):
        return False
    wide = value.array.astype(np.float64)
    return bool((wide >= low).all() and (wide <= high).all())


def evaluate(
    peer: Peer, rule: Rule, values: Mapping[str, Value], strict: bool = False
) -> tuple[list[np.ndarray], list[np.ndarray | None]]:
    """The node's results and the bounds of their errors."""
    arrays = {name: values[name].array for name in peer.names}
    errors = {name: values[name].error for name in peer.names if values[name].error is not None}
    results = peer(arrays, strict)
    inexact = bool(errors) or rule.kind != "exact"
    if not inexact:
        return results, [None] * len(results)
    with np.errstate(all="ignore"):
        bounds = [np.zeros(r.shape) for r in results]
        moved = dict(errors)
        narrowed = peer.narrow and any(a.dtype == np.dtype(np.float64) for a in arrays.values())
        if rule.kind == "chain" or narrowed:
            for name, array in arrays.items():
                if is_float(array.dtype) and (rule.kind == "chain" or array.dtype == np.dtype(np.float64)):
                    wide = np.abs(array.astype(np.float64))
                    # Steps of a half may each be rounded.
                    unit = eps(np.float32) if peer.narrow else eps(array.dtype)
                    length = rule.length if rule.kind == "chain" else 1
                    # What the peer's functions keep of a step goes through the steps after it.
                    own = np.maximum(length * unit, 2 * eps(array.dtype)) * wide + rule.absolute
                    if rule.kind != "chain":  # a function of what f32 makes of the operand
                        own = np.where(_in_f32(array).astype(array.dtype) == array, 0, own)
                    moved[name] = own + (moved[name] if name in moved else 0)
        if moved:
            bounds = _response(peer, arrays, moved, results)
        if rule.kind == "sum":
            magnitude = (peer.positive or peer)(
                {n: np.abs(a) if is_float(a.dtype) else a for n, a in arrays.items()}
            )
        for i, (result, bound) in enumerate(zip(results, bounds, strict=True)):
            if not is_float(result.dtype):
                if not bound.any() and not rule.steps:
                    bounds[i] = bound
                elif rule.steps:
                    off = bool(errors) or rule.kind == "halves"
                    bounds[i] = np.ones(result.shape) if off else np.zeros(result.shape)
                continue
            wide = np.abs(result.astype(np.float64))
            unit = eps(np.float32) if peer.narrow else eps(result.dtype)
            own = rule.ulps * max(eps(result.dtype), unit) * wide + 2 * tiny(result.dtype)
            if rule.kind == "sum" and rule.rounds and result.dtype in HALVES:
                own = own + rule.rounds * eps(result.dtype) * np.abs(magnitude[i].astype(np.float64))
            if rule.kind == "sum":
                own = own + (rule.length + 2) * unit * np.abs(magnitude[i].astype(np.float64))
            if rule.kind == "chain" and bound.size:
                finite = bound[np.isfinite(bound)]
                own = own + (finite.mean() / 2 if finite.size else 0)
                # A step may be as large as an operand before another cancels it.
                largest = max(
                    (float(np.abs(a[np.isfinite(a)]).max(initial=0)) for a in map(_wide, arrays.values())),
                    default=0,
                )
                own = own + 2 * max(eps(result.dtype), unit) * largest
            if rule.kind == "exact":
                own = np.zeros(result.shape)
            bounds[i] = bound + own + rule.absolute
    return results, [None if not b.any() else b for b in bounds]


def _wide(array: np.ndarray) -> np.ndarray:
    return array.astype(np.float64) if is_float(array.dtype) else np.zeros(0)


def _response(
    peer: Peer,
    arrays: Mapping[str, np.ndarray],
    moved: Mapping[str, np.ndarray],
    results: Sequence[np.ndarray],
) -> list[np.ndarray]:
    """How far results go when operands move by as much as `moved`: several directions, and twice that. Of
    operands about which nothing is known, neither is anything of the results that change with them."""
    rng = np.random.default_rng(1)
    farthest = [np.zeros(r.shape) for r in results]
    floats = {name: by for name, by in moved.items() if is_float(arrays[name].dtype)}
    for direction in range(4):
        tried = dict(arrays)
        for name, by in floats.items():
            array = arrays[name]
            sign = 1.0 if direction == 0 else -1.0 if direction == 1 else rng.choice([-1.0, 1.0], array.shape)
            step = np.asarray(sign * np.where(np.isfinite(by), by, 0))
            tried[name] = np.asarray(array.astype(np.float64) + step).astype(array.dtype)
        for i, gap in enumerate(_gaps(peer(tried), results)):
            farthest[i] = np.maximum(farthest[i], gap)
    unknown = {name: ~np.isfinite(by) for name, by in moved.items() if not np.isfinite(by).all()}
    if unknown.keys() - floats.keys():
        return [np.full(r.shape, np.inf) for r in results]
    for put in (1e3, -1e3, np.nan) if unknown else ():
        tried = {
            n: np.where(unknown[n], np.asarray(put, a.dtype), a) if n in unknown else a
            for n, a in arrays.items()
        }
        try:
            gaps = _gaps(peer(tried), results)
        except Refused:
            return [np.full(r.shape, np.inf) for r in results]
        for i, gap in enumerate(gaps):
            farthest[i] = np.where(gap > 0, np.inf, farthest[i])
    return [2 * f for f in farthest]


def _gaps(there: Sequence[np.ndarray], here: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Between results of the peer; infinite where one is not a number or has another shape."""
    gaps = []
    for a, b in zip(there, here, strict=True):
        if a.shape != b.shape:
            gaps.append(np.full(b.shape, np.inf))
            continue
        gap = np.abs(a.astype(np.float64) - b.astype(np.float64))
        gap = np.where(np.isnan(gap), np.where(a == b, 0, np.inf), gap)
        both = np.isnan(a.astype(np.float64)) & np.isnan(b.astype(np.float64))
        gaps.append(np.where(both, 0, gap))
    return gaps


@dataclass
class Verdict:
    right: bool
    text: str = ""


def compare(got: np.ndarray, value: Value) -> Verdict:
    """Whether `got` is what a right implementation may give for this value."""
    want = value.array
    if got.shape != want.shape:
        return Verdict(False, f"shape {got.shape}, not {want.shape}")
    wide_got, wide_want = got.astype(np.float64), want.astype(np.float64)
    same = (wide_got == wide_want) | (np.isnan(wide_got) & np.isnan(wide_want))
    if want.dtype in (np.dtype(np.int64), np.dtype(np.uint64)):
        same = got.astype(np.int64) == want.astype(np.int64)
    if value.error is not None:
        with np.errstate(all="ignore"):
            close = np.abs(wide_got - wide_want) <= value.error
            same = same | close | ~np.isfinite(value.error)
            # Near the largest number a rounding decides between it and infinity.
            if is_float(want.dtype) and want.dtype == np.dtype(np.float16):
                same = same | ((np.abs(wide_want) > 65000) & (np.abs(wide_got) > 65000))
    if same.all():
        return Verdict(True)
    at = np.unravel_index(int(np.argmin(same)), same.shape)
    bound = "equal" if value.error is None else f"within {value.error[at]:.3g}"
    return Verdict(
        False,
        f"{int((~same).sum())} of {same.size} wrong, first at {tuple(int(i) for i in at)}: {wide_got[at]!r},"
        f" not {wide_want[at]!r} ({bound})",
    )


@dataclass
class Model:
    """The graph as a model: bytes, what to feed, what to expect, and the names of dynamic sizes."""

    proto: onnx.ModelProto
    feeds: dict[str, np.ndarray]
    wanted: list[Value]
    symbols: dict[str, int] = field(default_factory=dict)
    axes: dict[str, list[str | int]] = field(default_factory=dict)


def boundary(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """What a value of this dtype is at the model's border: numpy and our API have no bf16, and unsigned
    integers of 16 to 64 bits are read from and written as i64."""
    if dtype == BF16:
        return np.dtype(np.float32)
    if dtype in (np.dtype(np.uint16), np.dtype(np.uint32), np.dtype(np.uint64)):
        return np.dtype(np.int64)
    return dtype


def finish(graph: Graph, outputs: Sequence[str], extra: NodeProto | None = None) -> Model:
    """`extra`: a node that no peer runs, whose outputs nobody compares."""
    rng = graph.rng
    nodes = [node for node, _, _ in graph.nodes] + ([extra] if extra else [])
    read = {name for node in nodes for name in free_reads(node)} | set(outputs)
    inputs = [v for v in graph.values.values() if v.kind == "input" and v.name in read]
    symbols: dict[str, int] = {}
    if graph.dynamic and inputs:
        found = sorted({n for v in inputs for n in v.shape if n > 1})
        for number in [graph.pick(found)] if found else []:
            symbols[f"s{number}"] = number
    axes: dict[str, list[str | int]] = {
        v.name: [f"s{n}" if f"s{n}" in symbols else n for n in v.shape] for v in inputs
    }
    front: list[NodeProto] = []
    infos = []
    initializers = []
    for v in inputs:
        kind = boundary(v.dtype)
        if kind != v.dtype:
            infos.append(helper.make_tensor_value_info(v.name + "__f", onnx_type(kind), axes[v.name]))
            front.append(helper.make_node("Cast", [v.name + "__f"], [v.name], to=onnx_type(v.dtype)))
        else:
            infos.append(helper.make_tensor_value_info(v.name, onnx_type(kind), axes[v.name]))
    for v in graph.values.values():
        if v.kind != "constant" or v.name not in read:
            continue
        if rng.random() < 0.2 and v.dtype != BF16:
            front.append(
                helper.make_node("Constant", [], [v.name], value=numpy_helper.from_array(v.array, v.name))
            )
        else:
            initializers.append(numpy_helper.from_array(v.array, v.name))
    back, results = [], []
    for name in outputs:
        v = graph.values[name]
        kind = boundary(v.dtype)
        if kind != v.dtype:
            back.append(helper.make_node("Cast", [name], [name + "__f"], to=onnx_type(kind)))
        results.append(
            helper.make_tensor_value_info(name + "__f" if kind != v.dtype else name, onnx_type(kind), None)
        )
    if extra:
        results += [onnx.ValueInfoProto(name=name) for name in extra.output if name]
    proto = helper.make_model(
        helper.make_graph([*front, *nodes, *back], "random", infos, results, initializers),
        opset_imports=graph.imports(),
        ir_version=10,
    )
    feeds = {
        v.name + ("__f" if boundary(v.dtype) != v.dtype else ""): np.asarray(v.array).astype(
            boundary(v.dtype)
        )
        for v in inputs
    }
    return Model(proto, feeds, [graph.values[name] for name in outputs], symbols, axes)


def at_other_size(
    graph: Graph, model: Model, sizes: Mapping[str, int]
) -> tuple[dict[str, np.ndarray], list[Value], dict[str, Value]] | None:
    """Feeds, expected outputs and what the graph starts from with these sizes; None if it does not run, or if
    a value leaves the range that the builder of a node asked for: at a scale of 0 peers differ."""
    values = {name: v for name, v in graph.values.items() if v.kind == "constant"}
    feeds: dict[str, np.ndarray] = {}
    for name, axes in model.axes.items():
        old = graph.values[name]
        assert old.draw is not None
        shape = [sizes[a] if isinstance(a, str) else a for a in axes]
        array = old.draw(shape)
        values[name] = Value(name, array, None, "input")
        feeds[name + ("__f" if boundary(array.dtype) != array.dtype else "")] = array.astype(
            boundary(array.dtype)
        )
    start = dict(values)
    for node, rule, peer in graph.nodes:
        if any(name not in values for name in peer.names):
            return None
        if node.op_type == "Compress" and _is_too_long(node, values):
            return None
        try:
            rule = replace(rule, length=rule.length * 8)
            results, errors = evaluate(peer, rule, values, strict=True)
        except Exception:
            return None
        for name, array, error in zip([n for n in node.output if n], results, errors, strict=True):
            values[name] = Value(name, array, error)
    if not all(
        _within(values[name], *range)
        for name, asked in graph.asked.items()
        if name in values
        for range in asked
    ):
        return None
    return feeds, [values[v.name] for v in model.wanted], start


def _is_too_long(node: NodeProto, values: Mapping[str, Value]) -> bool:
    """A condition of Compress with more flags than elements; onnxruntime leaves out what is not there."""
    x, flags = (values[name] for name in node.input)
    axis = next((a.i for a in node.attribute if a.name == "axis"), None)
    return flags.array.size > (x.array.size if axis is None else x.shape[axis])


def by_reference(
    graph: Graph, start: Mapping[str, Value], wanted: Sequence[Value]
) -> tuple[list[Value], NodeProto] | None:
    """What the reference of onnx expects of a graph, and the first node where the peers disagree.

    None if they agree, or the reference does not run such a node.
    """
    values, first = dict(start), None
    for node, rule, peer in graph.nodes:
        results, errors = evaluate(peer, rule, values, strict=True)
        names = [n for n in node.output if n]
        if peer.session is not None and not peer.has_body:
            try:
                other = Peer(graph, node, rule, "reference")
                by_other, bounds = evaluate(other, rule, values, strict=True)
            except Refused:
                by_other, bounds = results, errors
            expected = [Value(n, a, e) for n, a, e in zip(names, results, errors, strict=True)]
            if not all(compare(got, value).right for got, value in zip(by_other, expected, strict=True)):
                first = first or node
                results, errors = by_other, bounds
        for name, array, error in zip(names, results, errors, strict=True):
            values[name] = Value(name, array, error)
    return None if first is None else ([values[v.name] for v in wanted], first)

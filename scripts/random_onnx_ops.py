"""The ops that random_onnx.py draws: a builder each, and the peers' own faults.

A builder draws operands and attributes over their legal ranges in the form of the graph's opset, and adds one
node with the rule of its exactness. Random ops, ops on text and ops with a result whose size depends on data
are left out: there is nothing to compare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper
from random_onnx_graph import (
    FLOATS,
    Graph,
    Rule,
    Unfit,
    Value,
    eps,
    is_float,
    onnx_type,
)

Builder = Callable[[Graph], Any]
OPS: dict[str, Builder] = {}
F32, F64, F16 = np.dtype(np.float32), np.dtype(np.float64), np.dtype(np.float16)
I64, I32, I8, U8 = np.dtype(np.int64), np.dtype(np.int32), np.dtype(np.int8), np.dtype(np.uint8)
BOOL = np.dtype(bool)
INTS = [np.dtype(t) for t in ("int64", "int32", "int16", "int8", "uint8", "uint16", "uint32", "uint64")]
SIGNED = [I64, I32, np.dtype(np.int16), I8]
REALS = list(FLOATS)
ANY = [*FLOATS, *INTS, BOOL]


@dataclass(frozen=True)
class Fault:
    """Where a peer is wrong, and which of the peers is right; `why` is the text that says so."""

    op: str
    right: str  # "onnxruntime" or "reference"
    why: str
    concerns: Callable[[Graph, NodeProto], bool]


def _attribute(node: NodeProto, name: str, absent: Any = None) -> Any:
    return next((helper.get_attribute_value(a) for a in node.attribute if a.name == name), absent)


def _first(graph: Graph, node: NodeProto) -> Value:
    return graph.values[node.input[0]]


def _keeps_a_length(g: Graph, node: NodeProto) -> bool:
    if node.op_type != "Resize" or len(node.input) < 3 or not node.input[2]:
        return False
    scales = g.values[node.input[2]].array
    return any(s != 1 and int(n * s) == n for n, s in zip(_first(g, node).shape, scales, strict=False))


FAULTS = [
    Fault(
        "MatMul",
        "reference",
        "onnxruntime does not broadcast batches where the products sum nothing",
        lambda g, n: n.op_type == "MatMul" and _first(g, n).array.size == 0,
    ),
    Fault(
        "Resize",
        "reference",
        "onnxruntime copies an axis whose scale is not 1 where its length stays the same",
        _keeps_a_length,
    ),
    Fault(
        "Shrink",
        "reference",
        "onnxruntime computes f64 in f32",
        lambda g, n: n.op_type == "Shrink" and _first(g, n).dtype == F64,
    ),
    Fault(
        "Col2Im",
        "reference",
        "onnxruntime puts columns in wrong places where pads or dilations are uneven",
        lambda g, n: n.op_type == "Col2Im",
    ),
    Fault(
        "Reduce*",
        "reference",
        "onnxruntime gives nothing instead of the neutral element where it reduces an empty axis",
        lambda g, n: n.op_type.startswith("Reduce") and _first(g, n).array.size == 0,
    ),
    Fault(
        "Dropout",
        "reference",
        "onnxruntime gives a mask of zeros before opset 12; what is kept is marked by ones",
        lambda g, n: n.op_type == "Dropout" and g.opset < 12 and len(n.output) > 1 and n.output[1] != "",
    ),
]


def op(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Registers a builder under names; with several it takes the name as second argument."""

    def register(build: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            OPS[name] = build if len(names) == 1 else _bound(build, name)
        return build

    return register


def _bound(build: Callable[..., Any], name: str) -> Builder:
    return lambda g: build(g, name)


def need(g: Graph, name: str, domain: str = "") -> None:
    if not g.known(name, domain):
        raise Unfit


def func(ulps: float = 16, absolute: float = 0) -> Rule:
    return Rule("round", ulps, 1, absolute)


# --- pointwise

# Units in the last place beyond the exact result, of ours and of the peer's together.
UNARY: dict[str, tuple[float, tuple[float, float] | None]] = {
    "Abs": (0, None),
    "Neg": (0, None),
    "Relu": (0, None),
    "Sign": (0, None),
    "Floor": (0, None),
    "Ceil": (0, None),
    "Round": (0, None),
    "Identity": (0, None),
    "Exp": (16, (-20, 8)),
    "Log": (16, (0.01, 50)),
    "Sqrt": (1, (0, 100)),
    "Reciprocal": (1, (0.01, 10)),
    "Sin": (16, None),
    "Cos": (16, None),
    "Tan": (32, (-1.4, 1.4)),
    "Asin": (16, (-1, 1)),
    "Acos": (16, (-1, 1)),
    "Atan": (16, None),
    "Sinh": (32, (-8, 8)),
    "Cosh": (32, (-8, 8)),
    "Asinh": (32, None),
    "Acosh": (32, (1, 50)),
    "Atanh": (32, (-0.99, 0.99)),
    "Tanh": (16, None),
    "Sigmoid": (16, None),
    "Erf": (16, None),
    "Softplus": (16, None),
    "Softsign": (4, None),
    "HardSwish": (8, None),
    "Mish": (48, None),
    "Not": (0, None),
    "BitwiseNot": (0, None),
}
# onnxruntime's polynomials keep so many digits, not so many ulps.
ABSOLUTE = {
    "Tanh": 5e-7,
    "Sigmoid": 5e-7,
    "Erf": 5e-7,
    "Sin": 3e-7,
    "Cos": 3e-7,
    "Mish": 3e-6,
    "Softplus": 5e-7,
}
STEPS = {"Sign", "Floor", "Ceil", "Round"}


@op(*UNARY)
def unary(g: Graph, name: str) -> Any:
    need(g, name)
    ulps, domain = UNARY[name]
    kinds = g.dtypes_of(name)
    low, high = domain or (None, None)
    x = g.any_value(kinds, exact=name in STEPS, low=low, high=high)
    if name == "Identity" or ulps == 0:
        return g.node(name, [x.name], Rule())
    if name in ("HardSwish", "Mish", "Softsign"):
        return g.node(name, [x.name], Rule("chain", ulps, 2, ABSOLUTE.get(name, 0)))
    return g.node(name, [x.name], func(ulps, ABSOLUTE.get(name, 0)))


def operands(
    g: Graph,
    kinds: Sequence[Any],
    count: int = 2,
    exact: bool = False,
    low: float | None = None,
    high: float | None = None,
) -> list[str]:
    """Values that broadcast together, of one dtype."""
    first = g.any_value(kinds, exact=exact, low=low, high=high)
    names = [first.name]
    shape = first.shape
    while len(names) < count:
        if g.chance(0.3) and len(shape) < 5 and np.prod(shape) < 500:
            other: tuple[int, ...] = (g.whole(1, 4), *shape) if g.chance(0.5) else shape
        else:
            other = shape
        names.append(g.value(first.dtype, g.broadcastable(other), low, high, exact))
    if g.chance(0.5):
        names.reverse()
    return names


@op("Add", "Sub", "Mul")
def arithmetic(g: Graph, name: str) -> Any:
    return g.node(name, operands(g, g.dtypes_of(name)), Rule("round", 1))


@op("Div")
def divide(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Div"))
    shape = g.broadcastable(x.shape)
    if is_float(x.dtype):
        sign = g.pick([1, -1])
        low, high = sorted((0.25 * sign, 8.0 * sign))
        return g.node("Div", [x.name, g.value(x.dtype, shape, low, high)], Rule("round", 1))
    high = -1 if g.chance(0.3) and np.iinfo(x.dtype).min < 0 else 9
    return g.node("Div", [x.name, g.value(x.dtype, shape, -9 if high < 0 else 1, high)])


@op("Pow")
def power(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Pow"), low=0.1, high=5, exact=True)
    kinds = g.dtypes_of("Pow", 1) if g.opset >= 12 else [x.dtype]
    kind = x.dtype if g.chance(0.5) else g.dtype(kinds)
    if not is_float(x.dtype) and is_float(kind):
        raise Unfit
    y = g.value(kind, g.broadcastable(x.shape), 0, 3, True)
    return g.node("Pow", [x.name, y], Rule("round", 32))


@op("Mod")
def modulo(g: Graph) -> Any:
    need(g, "Mod")
    x = g.any_value(g.dtypes_of("Mod"), exact=True)
    fmod = is_float(x.dtype) or g.chance(0.4)
    low = 1 if is_float(x.dtype) or np.iinfo(x.dtype).min == 0 or g.chance(0.5) else -9
    y = g.value(x.dtype, g.broadcastable(x.shape), low, low + 8 if low > 0 else -1, True)
    return g.node("Mod", [x.name, y], Rule(), fmod=1 if fmod else g.pick([0, None]))


@op("And", "Or", "Xor")
def logic(g: Graph, name: str) -> Any:
    return g.node(name, operands(g, [BOOL]))


@op("BitwiseAnd", "BitwiseOr", "BitwiseXor")
def bits(g: Graph, name: str) -> Any:
    need(g, name)
    return g.node(name, operands(g, g.dtypes_of(name)))


@op("BitShift")
def shift(g: Graph) -> Any:
    need(g, "BitShift")
    x = g.any_value(g.dtypes_of("BitShift"))
    y = g.value(x.dtype, g.broadcastable(x.shape), 0, 7)
    return g.node("BitShift", [x.name, y], Rule(), direction=g.pick(["LEFT", "RIGHT"]))


@op("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")
def comparison(g: Graph, name: str) -> Any:
    need(g, name)
    return g.node(name, operands(g, g.dtypes_of(name), exact=True))


@op("Max", "Min", "Sum", "Mean")
def variadic(g: Graph, name: str) -> Any:
    count = g.whole(1, 4)
    names = operands(g, g.dtypes_of(name), count)
    rule = Rule() if name in ("Max", "Min") else Rule("sum", count + 1, count, rounds=count)
    return g.node(name, names, rule)


@op("Where")
def where(g: Graph) -> Any:
    need(g, "Where")
    x, y = operands(g, g.dtypes_of("Where", 1))
    shape = np.broadcast_shapes(g.values[x].shape, g.values[y].shape)
    return g.node("Where", [g.value(BOOL, g.broadcastable(shape)), x, y])


@op("IsNaN", "IsInf")
def is_special(g: Graph, name: str) -> Any:
    need(g, name)
    x = g.any_value(g.dtypes_of(name))
    flags = (
        {}
        if name == "IsNaN"
        else {"detect_negative": g.pick([0, 1, None]), "detect_positive": g.pick([0, 1, None])}
    )
    if g.chance(0.5) and x.dtype == F32 and x.exact:
        special = g.const(np.array([np.inf, -np.inf, np.nan, 0, 1], F32))
        return g.node(name, [special], Rule(), **flags)
    return g.node(name, [x.name], Rule(), **flags)


@op("Clip")
def clip(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Clip"))
    low, high = (-1, 2) if is_float(x.dtype) or np.iinfo(x.dtype).min < 0 else (1, 5)
    if g.opset < 11:
        return g.node(
            "Clip",
            [x.name],
            Rule(),
            min=float(low) if g.chance(0.7) else None,
            max=float(high) if g.chance(0.7) else None,
        )
    ends = [
        g.value(x.dtype, (), low, low, True, 0.5) if g.chance(0.7) else "",
        g.value(x.dtype, (), high, high, True, 0.5) if g.chance(0.7) else "",
    ]
    return g.node("Clip", [x.name, *ends])


@op("LeakyRelu", "Elu", "Selu", "Celu", "HardSigmoid", "ThresholdedRelu", "Shrink", "Swish")
def activation(g: Graph, name: str) -> Any:
    need(g, name)
    x = g.any_value(g.dtypes_of(name), exact=name in ("ThresholdedRelu", "Shrink"))
    number = lambda low, high: round(float(g.rng.random() * (high - low) + low), 2) if g.chance(0.6) else None  # noqa: E731
    attributes: dict[str, Any] = {"alpha": number(0.1, 2)}
    if name == "Selu":
        attributes["gamma"] = number(0.5, 2)
    if name == "HardSigmoid":
        attributes["beta"] = number(0, 1)
    if name == "Shrink":
        attributes = {"bias": number(0, 1), "lambd": number(0, 1)}
        if not is_float(x.dtype):
            attributes = {
                "bias": float(g.whole(0, 2)) if x.dtype in SIGNED else 0.0,
                "lambd": float(g.whole(0, 3)),
            }
    absolute = 1e-6 if name in ("Elu", "Selu", "Celu", "Swish") else 0
    return g.node(name, [x.name], Rule("chain", 16, 2, absolute), **attributes)


@op("PRelu")
def prelu(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("PRelu"), 1)
    shape = g.broadcastable(x.shape)
    return g.node("PRelu", [x.name, g.value(x.dtype, shape)], Rule("round", 1))


@op("Gelu")
def gelu(g: Graph) -> Any:
    need(g, "Gelu")
    x = g.any_value(g.dtypes_of("Gelu"))
    return g.node("Gelu", [x.name], func(32, 1e-6), approximate=g.pick([None, "none", "tanh"]))


@op("Cast")
def cast(g: Graph) -> Any:
    x = g.any_value([k for k in g.dtypes_of("Cast") if k in ANY])
    to = g.dtype(g.dtypes_of("Cast"))
    if is_float(x.dtype) and not is_float(to):
        signed = to == BOOL or np.iinfo(to).min < 0
        x = g.any_value([x.dtype], exact=True, low=-100 if signed else 0, high=100)
    wide = not is_float(to) or not is_float(x.dtype) or eps(to) > eps(x.dtype)
    return g.node("Cast", [x.name], Rule() if x.exact or not wide else Rule("round", 1), to=onnx_type(to))


@op("CastLike")
def cast_like(g: Graph) -> Any:
    need(g, "CastLike")
    x = g.any_value([*REALS, *SIGNED], exact=True)
    like = g.any_value([d for d in FLOATS if d in g.dtypes_of("CastLike", 1)])
    return g.node("CastLike", [x.name, like.name])


@op("Dropout")
def dropout(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Dropout"))
    masks = [True, g.chance(0.4)]
    if g.opset < 12:
        return g.node("Dropout", [x.name], Rule(), masks, ratio=g.pick([None, 0.3]))
    extra = [g.const(0.3, F32)] if g.chance(0.5) else []
    if extra and g.chance(0.5):
        extra.append(g.const(False))
    return g.node("Dropout", [x.name, *extra], Rule(), masks)


# --- shapes


@op("Reshape")
def reshape(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Reshape"))
    count = int(np.prod(x.shape))
    rest, to = count, []
    while rest > 1 and len(to) < 4:
        factor = g.pick([f for f in range(1, rest + 1) if rest % f == 0][:8])
        to.append(factor)
        rest //= factor
    if rest != 1 or count == 0:
        to.append(rest)
    while len(to) < 6 and g.chance(0.3):
        to.insert(g.whole(0, len(to)), 1)
    allow = None
    if count == 0:
        allow = 1 if g.opset >= 14 else None
        if allow is None:
            to = list(x.shape)
    else:
        for i, n in enumerate(to):
            if i < len(x.shape) and x.shape[i] == n and g.chance(0.5):
                to[i] = 0
        if to and g.chance(0.6):
            to[g.whole(0, len(to) - 1)] = -1
    if g.dynamic and g.chance(0.5) and x.shape:
        to = [0, -1] if len(x.shape) > 1 and count else [-1]
        allow = None
    return g.node("Reshape", [x.name, g.ints(to)], Rule(), allowzero=allow)


@op("Flatten")
def flatten(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Flatten"), 0 if g.opset >= 9 else 1)
    rank = len(x.shape)
    axis = g.whole(0 if g.opset < 11 else -rank, rank)
    if rank == 0:
        axis = 0
    return g.node("Flatten", [x.name], Rule(), axis=g.pick([axis, None]) if rank else 0)


def axes_operand(
    g: Graph, op_name: str, x: Value, axes: Sequence[int], until: int
) -> tuple[list[str], dict[str, Any]]:
    """Axes as an attribute before this opset, as an operand from it on."""
    if g.opset < until:
        return [x.name], {"axes": [int(a) for a in axes]}
    return [x.name, g.ints(axes)], {}


@op("Squeeze")
def squeeze(g: Graph) -> Any:
    shape = [1 if g.chance(0.4) else n for n in g.shape(1, 5)]
    x = g.values[g.value(g.dtype(g.dtypes_of("Squeeze")), shape)]
    ones = [i for i, n in enumerate(x.shape) if n == 1]
    if not ones or (g.chance(0.2) and not g.dynamic):
        if g.dynamic:
            raise Unfit
        return g.node("Squeeze", [x.name])
    chosen = [a for a in ones if g.chance(0.7)] or ones[:1]
    if g.opset >= 11 and g.chance(0.4):
        chosen = [a - len(x.shape) for a in chosen]
    inputs, attributes = axes_operand(g, "Squeeze", x, chosen, 13)
    return g.node("Squeeze", inputs, Rule(), **attributes)


@op("Unsqueeze")
def unsqueeze(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Unsqueeze"), 0, 4)
    count = g.whole(1, 2)
    rank = len(x.shape) + count
    axes = [int(a) for a in g.rng.choice(rank, count, replace=False)]
    if g.opset < 13:
        axes.sort()
    if g.opset >= 11 and g.chance(0.4):
        axes = [a - rank for a in axes]
    inputs, attributes = axes_operand(g, "Unsqueeze", x, axes, 13)
    return g.node("Unsqueeze", inputs, Rule(), **attributes)


@op("Transpose")
def transpose(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Transpose"))
    perm = [int(p) for p in g.rng.permutation(len(x.shape))]
    return g.node("Transpose", [x.name], Rule(), perm=perm if perm and g.chance(0.8) else None)


@op("DepthToSpace", "SpaceToDepth")
def blocks(g: Graph, name: str) -> Any:
    kinds = g.dtypes_of(name)
    b = g.whole(1, 3)
    n, c, h, w = g.whole(1, 2), g.whole(1, 3), g.whole(1, 4), g.whole(1, 4)
    shape = (n, c * b * b, h, w) if name == "DepthToSpace" else (n, c, h * b, w * b)
    mode = {"mode": g.pick(["DCR", "CRD", None])} if name == "DepthToSpace" and g.opset >= 11 else {}
    return g.node(name, [g.value(g.dtype(kinds), shape)], Rule(), blocksize=b, **mode)


@op("Concat")
def concat(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Concat"), 1)
    axis = g.axis(len(x.shape))
    names = [x.name]
    for _ in range(g.whole(0, 3)):
        shape = list(x.shape)
        shape[axis] = g.size()
        names.append(g.value(x.dtype, shape))
    if g.opset < 11:
        axis %= len(x.shape)
    g.rng.shuffle(names)
    return g.node("Concat", names, Rule(), axis=axis)


@op("Split")
def split(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Split"), 1)
    axis = g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)
    size = x.shape[axis]
    parts = g.whole(1, min(max(size, 1), 4))
    given = axis if axis or g.chance(0.5) else None
    if g.chance(0.5):
        if g.opset >= 18:
            if size < parts or -(-size // parts) * (parts - 1) > size:
                raise Unfit
            return g.node("Split", [x.name], Rule(), parts, axis=given, num_outputs=parts)
        if size % parts:
            raise Unfit
        return g.node("Split", [x.name], Rule(), parts, axis=given)
    cuts = sorted(g.whole(0, size) for _ in range(parts - 1))
    sizes = [b - a for a, b in zip([0, *cuts], [*cuts, size], strict=True)]
    if g.opset < 13:
        return g.node("Split", [x.name], Rule(), parts, axis=given, split=sizes)
    return g.node("Split", [x.name, g.ints(sizes)], Rule(), parts, axis=given)


def end(g: Graph, size: int, most: bool = True) -> int:
    """Not the largest numbers where a step goes down: onnxruntime takes them for all, the text clamps."""
    far = [2**31 - 1, 2**63 - 1] if most else [2**31 - 2, 2**63 - 2]
    near = g.whole(-size - 2, size + 2)
    return g.pick([near, near, g.whole(0, size), *far, -(2**31), -(2**63), -(2**63) + 1])


@op("Slice")
def slice_(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Slice"), 1)
    rank = len(x.shape)
    count = g.whole(1, rank)
    axes = [int(a) for a in g.rng.permutation(rank)[:count]]
    starts = [end(g, x.shape[a]) for a in axes]
    steps = [1 if g.opset < 10 else g.pick([1, 1, 2, 3, -1, -1, -2, -3, 7, -7]) for _ in axes]
    ends = [end(g, x.shape[a], s > 0) for a, s in zip(axes, steps, strict=True)]
    if g.opset < 10:
        given = {"axes": axes} if count < rank or g.chance(0.5) else {}
        if not given:
            order = np.argsort(axes)
            starts, ends = [starts[i] for i in order], [ends[i] for i in order]
        return g.node("Slice", [x.name], Rule(), starts=starts, ends=ends, **given)
    if g.chance(0.05):
        steps[0] = g.pick([2**63 - 1, 2**31]) if steps[0] > 0 else g.pick([-(2**63) + 1, -(2**31)])
    kind = I64
    if g.chance(0.3) and all(-(2**31) <= n < 2**31 for n in [*starts, *ends, *steps]):
        kind = I32
    if g.chance(0.4):
        axes = [a - rank for a in axes]
    inputs = [x.name, g.ints(starts, kind), g.ints(ends, kind)]
    if axes != list(range(count)) or g.chance(0.5):
        inputs.append(g.ints(axes, kind))
    else:
        inputs.append("")
    if any(s != 1 for s in steps) or g.chance(0.3):
        inputs.append(g.ints(steps, kind))
    return g.node("Slice", inputs)


@op("Expand")
def expand(g: Graph) -> Any:
    need(g, "Expand")
    to = g.shape()
    x = g.value(g.dtype(g.dtypes_of("Expand")), g.broadcastable(to))
    if g.chance(0.3):
        to = g.broadcastable(to)
        try:
            if np.prod(np.broadcast_shapes(to, g.values[x].shape)) > 6000:
                raise Unfit
        except ValueError:
            raise Unfit from None
    return g.node("Expand", [x, g.ints(to)])


@op("Tile")
def tile(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Tile"), 1)
    repeats = [g.pick([1, 1, 2, 3, 0 if g.chance(0.2) else 1]) for _ in x.shape]
    return g.node("Tile", [x.name, g.ints(repeats)])


@op("Pad")
def pad(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Pad"), 1)
    rank = len(x.shape)
    modes = ["constant", "constant", None, "edge", "reflect"] + (["wrap"] if g.opset >= 19 else [])
    mode = g.pick(modes)
    low, high = [], []
    for n in x.shape:
        most = n - 1 if mode == "reflect" else n if mode == "wrap" else 3
        least = -min(n // 2, 2) if g.chance(0.2) and mode in ("constant", None) else 0
        if mode in ("edge", "wrap", "reflect") and n == 0:
            raise Unfit
        low.append(g.whole(least, max(0, min(most, 3))))
        high.append(g.whole(least, max(0, min(most, 3))))
    if g.opset < 11:
        return g.node(
            "Pad",
            [x.name],
            Rule(),
            pads=[*low, *high],
            mode=mode,
            value=g.pick([None, 1.5]) if mode in ("constant", None) else None,
        )
    inputs = [x.name, g.ints([*low, *high])]
    constant = mode in ("constant", None)
    inputs.append(g.value(x.dtype, ()) if constant and g.chance(0.5) else "")
    if g.opset >= 18 and g.chance(0.4):
        axes = [int(a) for a in g.rng.permutation(rank)[: g.whole(1, rank)]]
        inputs[1] = g.ints([low[a] for a in axes] + [high[a] for a in axes])
        inputs.append(g.ints([a - rank if g.chance(0.3) else a for a in axes]))
    return g.node("Pad", inputs, Rule(), mode=mode)


@op("CenterCropPad")
def center_crop_pad(g: Graph) -> Any:
    need(g, "CenterCropPad")
    x = g.any_value(g.dtypes_of("CenterCropPad"), 1)
    rank = len(x.shape)
    if g.chance(0.5):
        return g.node("CenterCropPad", [x.name, g.ints([g.whole(1, 6) for _ in x.shape])])
    axes = [int(a) for a in g.rng.permutation(rank)[: g.whole(1, rank)]]
    return g.node(
        "CenterCropPad",
        [x.name, g.ints([g.whole(1, 6) for _ in axes])],
        Rule(),
        axes=[a - rank if g.chance(0.3) else a for a in axes],
    )


@op("Shape", "Size")
def shape_of(g: Graph, name: str) -> Any:
    x = g.any_value(g.dtypes_of(name))
    rank = len(x.shape)
    ends = {}
    if name == "Shape" and g.opset >= 15:
        ends = {
            "start": g.pick([None, g.whole(-rank - 1, rank + 1)]),
            "end": g.pick([None, g.whole(-rank - 1, rank + 1)]),
        }
    return g.node(name, [x.name], Rule(), **ends)


@op("ShapeOfToReshape")
def shape_arithmetic(g: Graph) -> Any:
    """Shape, parts of it, arithmetic, and a Reshape or Expand by the result."""
    x = g.any_value([F32, I64, F16 if g.opset >= 13 else F32], 2, 4, 1)
    (shape,) = g.node("Shape", [x.name])
    at = g.whole(0, len(x.shape) - 2)
    index = g.const(np.array([at] if g.chance(0.5) else at, np.int64))
    (first,) = g.node("Gather", [shape, index], Rule(), axis=g.pick([0, None]))
    if g.values[first].array.ndim == 0:
        inputs, attributes = axes_operand(g, "Unsqueeze", g.values[first], [0], 13)
        (first,) = g.node("Unsqueeze", inputs, Rule(), **attributes)
    (joined,) = g.node("Concat", [first, g.ints([-1])], Rule(), axis=0)
    return g.node("Reshape", [x.name, joined])


@op("SliceBySizes")
def slice_by_sizes(g: Graph) -> Any:
    """Its ends are sizes of another value, less a number: below 0 for some sizes."""
    if g.opset < 10:
        raise Unfit
    x, like = g.any_value([F32, I64], 1, 3, 1), g.any_value([F32, I64], 1, 3, 1)
    (shape,) = g.node("Shape", [like.name])
    at = g.whole(0, len(like.shape) - 1)
    (size,) = g.node("Gather", [shape, g.const(np.array([at]))], Rule(), axis=0)
    (less,) = g.node(g.pick(["Sub", "Add", "Mul"]), [size, g.const(np.array([g.whole(-2, 3)]))])
    axis = g.whole(0, len(x.shape) - 1)
    ends = [less, size if g.chance(0.5) else g.const(np.array([end(g, x.shape[axis])]))]
    if g.chance(0.5):
        ends.reverse()
    return g.node("Slice", [x.name, *ends, g.const(np.array([axis])), g.const(np.array([g.pick([1, 1, 2])]))])


@op("ConstantOfShape")
def constant_of_shape(g: Graph) -> Any:
    need(g, "ConstantOfShape")
    kind = g.dtype(g.dtypes_of("Cast", 0, [F32, F64, F16, I64, I32, U8, BOOL]))
    value = numpy_helper.from_array(np.ones(1, kind)) if g.chance(0.7) else None
    return g.node("ConstantOfShape", [g.ints(g.shape())], Rule(), value=value)


@op("Range")
def range_(g: Graph) -> Any:
    need(g, "Range")
    kind = g.dtype([F32, F64, I64, I32, np.dtype(np.int16)])
    start, delta = g.whole(-5, 5), g.pick([1, 2, 3, -1, -2])
    limit = start + delta * g.whole(-1, 9) + g.pick([0, 1 if delta > 0 else -1])
    parts = [start, limit, delta] if not is_float(kind) or g.chance(0.5) else [start, limit, delta / 2 or 1]
    return g.node(
        "Range",
        [g.const(p, kind) for p in parts],
        Rule("round", 2 if is_float(kind) else 0, absolute=4 * eps(kind) * 20 if is_float(kind) else 0)
        if is_float(kind)
        else Rule(),
    )


@op("Trilu")
def trilu(g: Graph) -> Any:
    need(g, "Trilu")
    x = g.any_value(g.dtypes_of("Trilu"), 2)
    extra = [g.const(np.array(g.whole(-4, 4)))] if g.chance(0.6) else []
    return g.node("Trilu", [x.name, *extra], Rule(), upper=g.pick([0, 1, None]))


@op("EyeLike")
def eye_like(g: Graph) -> Any:
    need(g, "EyeLike")
    x = g.any_value(g.dtypes_of("EyeLike"), 2, 2)
    return g.node(
        "EyeLike",
        [x.name],
        Rule(),
        k=g.pick([None, g.whole(-3, 3)]),
        dtype=g.pick([None, TensorProto.FLOAT, TensorProto.INT64, TensorProto.DOUBLE]),
    )


@op("Gather")
def gather(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("Gather"), 1, 5, 1)
    axis = g.axis(len(x.shape))
    size = x.shape[axis]
    low = -size if g.opset >= 11 and g.chance(0.5) else 0
    index = g.value(g.pick([I64, I32]), g.shape(0, 2), low, size - 1, True)
    return g.node("Gather", [x.name, index], Rule(), axis=axis if axis or g.chance(0.5) else None)


@op("GatherElements")
def gather_elements(g: Graph) -> Any:
    need(g, "GatherElements")
    x = g.any_value(g.dtypes_of("GatherElements"), 1, 5, 1)
    axis = g.axis(len(x.shape))
    shape = [g.whole(1, n) if i != axis % len(x.shape) else g.size(1) for i, n in enumerate(x.shape)]
    size = x.shape[axis]
    index = g.value(g.pick([I64, I32]), shape, -size if g.chance(0.5) else 0, size - 1, True)
    return g.node("GatherElements", [x.name, index], Rule(), axis=axis)


@op("GatherND")
def gather_nd(g: Graph) -> Any:
    need(g, "GatherND")
    x = g.any_value(g.dtypes_of("GatherND"), 1, 5, 1)
    batch = g.whole(0, len(x.shape) - 1) if g.opset >= 12 and g.chance(0.4) else 0
    depth = g.whole(1, len(x.shape) - batch)
    lead = [*x.shape[:batch], *(g.whole(1, 4) for _ in range(g.whole(0, 2)))]
    columns = [g.draw(I64, -n if g.chance(0.5) else 0, n - 1)(lead) for n in x.shape[batch : batch + depth]]
    index = np.stack(columns, -1).astype(np.int64)
    return g.node(
        "GatherND",
        [x.name, g.const(index)],
        Rule(),
        batch_dims=batch if g.opset >= 12 and (batch or g.chance(0.5)) else None,
    )


def scattered(g: Graph, name: str) -> str | None:
    """A reduction of this opset; those that add in any order have exact operands."""
    if g.opset < 16:
        return None
    more = ["max", "min"] if g.opset >= 18 else []
    return g.pick(["none", None, "add", "mul", *more])


@op("ScatterElements")
def scatter_elements(g: Graph) -> Any:
    name = "ScatterElements" if g.opset >= 11 else "Scatter"
    need(g, name)
    x = g.any_value(g.dtypes_of(name), 1, 4, 1)
    axis = g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)
    reduction = scattered(g, name) if name == "ScatterElements" else None
    shape = [g.whole(1, n) for n in x.shape] if g.chance(0.8) else [1] * len(x.shape)
    size = x.shape[axis]
    at = axis % len(x.shape)
    if reduction in (None, "none"):
        order = np.argsort(g.rng.random(x.shape), axis=at)
        index = np.take(order, range(shape[at]), at)[tuple(slice(0, n) for n in shape)]
        if g.opset >= 11 and g.chance(0.4):
            index = index - size
        indices = g.const(index, g.pick([np.int64, np.int32]))
    else:
        indices = g.value(g.pick([I64, I32]), shape, -size if g.chance(0.4) else 0, size - 1, True)
    updates = g.value(x.dtype, shape)
    rule = Rule() if reduction in (None, "none", "max", "min") else Rule("sum", 2, shape[at] + 1)
    if reduction == "mul":
        if shape[at] > 6 and not is_float(x.dtype):
            raise Unfit
        rule = Rule("chain", shape[at] + 1, shape[at] + 1)
    return g.node(
        name,
        [x.name, indices, updates],
        rule,
        axis=axis if axis or g.chance(0.5) else None,
        reduction=reduction,
    )


@op("ScatterND")
def scatter_nd(g: Graph) -> Any:
    need(g, "ScatterND")
    x = g.any_value(g.dtypes_of("ScatterND"), 1, 4, 1)
    reduction = scattered(g, "ScatterND")
    depth = g.whole(1, len(x.shape))
    places = int(np.prod(x.shape[:depth]))
    lead = [g.whole(1, 3) for _ in range(g.whole(0, 2))]
    count = int(np.prod(lead))
    if count > places:
        lead, count = [1] * len(lead), 1
    chosen = g.rng.choice(places, count, replace=reduction not in (None, "none")).reshape(lead)
    index = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1).astype(np.int64)
    if g.chance(0.3):
        index = index - np.array(x.shape[:depth])
    updates = g.value(x.dtype, [*lead, *x.shape[depth:]])
    rule = Rule() if reduction in (None, "none", "max", "min") else Rule("sum", 2, count + 1)
    if reduction == "mul":
        rule = Rule("chain", count + 1, count + 1)
    return g.node("ScatterND", [x.name, g.const(index), updates], rule, reduction=reduction)


@op("OneHot")
def one_hot(g: Graph) -> Any:
    need(g, "OneHot")
    depth = g.whole(1, 7)
    low = -depth if g.opset >= 11 and g.chance(0.4) else 0
    # The reference takes what lies outside modulo the depth: it stays inside where onnxruntime has no kernel.
    kind = g.pick([I64, I32])
    high = depth + (1 if kind == I64 and g.chance(0.3) else -1)
    indices = g.values[g.value(kind, g.shape(1, 3), low, high, True)]
    axis = g.whole(-len(indices.shape) - 1, len(indices.shape))
    values = g.value(g.pick([F32, I64]) if kind == I64 else g.pick([I64, I32]), (2,))
    return g.node(
        "OneHot",
        [indices.name, g.const(np.array(depth, kind) if g.chance(0.5) else np.array([depth], kind)), values],
        # The reference adds the difference of on and off where onnxruntime has no kernel.
        Rule("chain", 2, 1) if is_float(g.values[values].dtype) else Rule(),
        axis=g.pick([axis, None]),
    )


@op("Compress")
def compress(g: Graph) -> Any:
    need(g, "Compress")
    x = g.any_value(g.dtypes_of("Compress"), 1)
    axis = g.axis(len(x.shape)) if g.chance(0.7) else None
    if axis is not None and g.opset < 11:
        axis %= len(x.shape)
    size = int(np.prod(x.shape)) if axis is None else x.shape[axis]
    if not size:
        raise Unfit
    flags = g.rng.random(g.whole(1, size)) < 0.5
    return g.node("Compress", [x.name, g.const(flags)], Rule(), axis=axis)


@op("ReverseSequence")
def reverse_sequence(g: Graph) -> Any:
    need(g, "ReverseSequence")
    x = g.any_value(g.dtypes_of("ReverseSequence"), 2, 4, 1)
    time = g.pick([0, 1])
    ends = g.value(I64, (x.shape[1 - time],), 1, x.shape[time], True)
    return g.node("ReverseSequence", [x.name, ends], Rule(), time_axis=time, batch_axis=1 - time)


@op("NonZero")
def non_zero(g: Graph) -> Any:
    need(g, "NonZero")
    known = g.const(g.draw(g.pick([I64, F32, BOOL]), 0, 1)(g.shape(1, 3)))
    return g.node("NonZero", [known])


@op("Hardmax")
def hardmax(g: Graph) -> Any:
    x = g.any_value(
        g.dtypes_of("Hardmax") if g.opset >= 13 else [F32], 2 if g.opset < 13 else 1, exact=True, least=1
    )
    return g.node(
        "Hardmax",
        [x.name],
        Rule(),
        axis=g.pick([None, g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)]),
    )


@op("Softmax", "LogSoftmax")
def softmax(g: Graph, name: str) -> Any:
    # The reference has only the form of opset 13.
    x = g.any_value(g.dtypes_of(name) if g.opset >= 13 else [F32], 2 if g.opset < 13 else 1)
    axis = g.pick([None, g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)])
    length = max(x.shape, default=1)
    return g.node(
        name,
        [x.name],
        Rule(
            "chain",
            16 + length / 4,
            4 if g.opset >= 13 else 16,
            4 * eps(F32) if name == "LogSoftmax" else 1e-7,
        ),
        axis=axis,
    )


# --- reductions

REDUCE = [
    "ReduceSum",
    "ReduceMean",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceL1",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSum",
    "ReduceLogSumExp",
]


@op(*REDUCE)
def reduction(g: Graph, name: str) -> Any:
    positive = name == "ReduceLogSum"
    kinds = g.dtypes_of(name)
    if name in ("ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean", "ReduceProd"):
        kinds = [k for k in kinds if is_float(k)]
    least = 0 if name in ("ReduceSum", "ReduceL1", "ReduceSumSquare", "ReduceL2") and g.chance(0.5) else 1
    x = g.any_value(kinds, 0, 6, least, low=0.1 if positive else None, high=5 if positive else None)
    rank = len(x.shape)
    if name == "ReduceProd" and x.array.size > 200:
        raise Unfit
    axes = [int(a) for a in g.rng.permutation(rank)[: g.whole(1, max(rank, 1))]]
    length = int(np.prod([x.shape[a] for a in axes]))
    if g.opset >= 11 and g.chance(0.4):
        axes = [a - rank for a in axes]
    since = 13 if name == "ReduceSum" else 18
    attributes: dict[str, Any] = {"keepdims": g.pick([0, 1, None])}
    inputs = [x.name]
    if not axes or g.chance(0.2):
        length = max(int(np.prod(x.shape)), 1)
        if g.opset >= since and g.chance(0.4):
            attributes["noop_with_empty_axes"] = g.pick([0, 1])
            if g.chance(0.4):
                inputs.append(g.ints([]))
    elif g.opset < since:
        attributes["axes"] = axes
    else:
        inputs.append(g.ints(axes))
    if name in ("ReduceMax", "ReduceMin") or not is_float(x.dtype):
        rule = Rule()
    elif name in ("ReduceSum", "ReduceMean", "ReduceL1", "ReduceSumSquare"):
        rule = Rule("sum", 4, length)
    else:
        rule = Rule("chain", 16 + length / 2, length, 1e-6 if name.startswith("ReduceLog") else 0)
    return g.node(name, inputs, rule, **attributes)


@op("ArgMax", "ArgMin")
def arg_reduce(g: Graph, name: str) -> Any:
    x = g.any_value(g.dtypes_of(name), 1, 5, 1, exact=True)
    axis = g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)
    last = {"select_last_index": g.pick([0, 1, None])} if g.opset >= 12 else {}
    return g.node(name, [x.name], Rule(), axis=g.pick([axis, None]), keepdims=g.pick([0, 1, None]), **last)


@op("CumSum", "CumProd")
def cumulative(g: Graph, name: str) -> Any:
    need(g, name)
    x = g.any_value(
        g.dtypes_of(name), 1, low=None if name == "CumSum" else 0.5, high=None if name == "CumSum" else 1.5
    )
    axis = g.axis(len(x.shape))
    kind = (
        Rule("sum" if name == "CumSum" else "chain", x.shape[axis] + 1, x.shape[axis] + 1)
        if is_float(x.dtype)
        else Rule()
    )
    return g.node(
        name,
        [x.name, g.const(np.array(axis, g.pick([np.int64, np.int32])))],
        kind,
        exclusive=g.pick([0, 1, None]),
        reverse=g.pick([0, 1, None]),
    )


@op("TopK")
def top_k(g: Graph) -> Any:
    x = g.any_value(g.dtypes_of("TopK"), 1, 5, 1, exact=True)
    axis = g.axis(len(x.shape)) if g.opset >= 11 else g.whole(0, len(x.shape) - 1)
    k = g.whole(1, x.shape[axis])
    if g.opset < 10:
        return g.node("TopK", [x.name], Rule(), 2, axis=axis, k=k)
    more = {"largest": g.pick([0, 1, None])} if g.opset >= 11 else {}
    return g.node(
        "TopK",
        [x.name, g.ints([k])],
        Rule(),
        2,
        axis=g.pick([axis, -1]) if axis == len(x.shape) - 1 else axis,
        **more,
    )


# --- products


@op("MatMul")
def matmul(g: Graph) -> Any:
    kinds = [k for k in g.dtypes_of("MatMul")]
    kind = g.dtype(kinds)
    m, k, n = g.size(), g.size(1 if g.chance(0.9) else 0), g.size()
    batch = g.shape(0, 2)
    left, right = [*g.broadcastable(batch), m, k], [*g.broadcastable(batch), k, n]
    if g.chance(0.15):
        left = [k]
    if g.chance(0.15):
        right = [k]
    return g.node("MatMul", [g.value(kind, left), g.value(kind, right, constant=0.5)], Rule("sum", 1, k))


@op("Gemm")
def gemm(g: Graph) -> Any:
    kind = g.dtype(g.dtypes_of("Gemm"))
    m, k, n = g.size(1), g.size(1), g.size(1)
    flip_a, flip_b = g.chance(0.3), g.chance(0.4)
    a, b = (
        g.value(kind, (k, m) if flip_a else (m, k)),
        g.value(kind, (n, k) if flip_b else (k, n), constant=0.5),
    )
    inputs = [a, b]
    if g.chance(0.7) or g.opset < 11:
        inputs.append(g.value(kind, g.pick([(m, n), (n,), (1, n), (m, 1), (1, 1), (1,), ()]), constant=0.5))
    numbers = [None, 0.5, 2.0, -1.0] if is_float(kind) else [None, 2.0, -1.0]
    if np.dtype(kind).kind == "u":
        numbers = [None, 2.0]
    return g.node(
        "Gemm",
        inputs,
        Rule("sum", 3, k + 2, rounds=2),
        transA=int(flip_a) if flip_a or g.chance(0.3) else None,
        transB=int(flip_b) if flip_b else None,
        alpha=g.pick(numbers),
        beta=g.pick([*numbers, 0.0]),
    )


@op("Einsum")
def einsum(g: Graph) -> Any:
    need(g, "Einsum")
    kind = g.dtype([F32, F64, I64, I32])
    text = g.pick(
        [
            "ij,jk->ik",
            "bij,bjk->bik",
            "ij->ji",
            "ii->i",
            "ij->",
            "ij,ij->",
            "i,j->ij",
            "bij,jk->bik",
            "...ij,...jk->...ik",
            "ij,jk",
            "ij,jk,kl->il",
            "bhqd,bhkd->bhqk",
            "ii",
            "ij,j->i",
            "a b , b -> a",
            "ijk->kji",
            "...i->...",
            "ij,ik->jk",
        ]
    )
    sizes: dict[str, int] = {}
    shapes = []
    for term in text.replace(" ", "").split("->")[0].split(","):
        lead = [2] if term.startswith("...") else []
        shapes.append([*lead, *(sizes.setdefault(c, g.whole(1, 6)) for c in term.replace(".", ""))])
    length = int(np.prod(list(sizes.values())))
    return g.node(
        "Einsum", [g.value(kind, s) for s in shapes], Rule("sum", 3, length, rounds=3), equation=text
    )


def window(
    g: Graph,
    name: str,
    spatial: Sequence[int],
    kernel: Sequence[int],
    dilations: bool = True,
    cuts: bool = True,
) -> dict[str, Any]:
    """Strides, pads and dilations that leave at least one window. `cuts`: the peer knows pools that cut."""
    n = len(spatial)
    attributes: dict[str, Any] = {}
    dilation = [g.pick([1, 1, 2, 3]) for _ in spatial] if dilations and g.chance(0.35) else [1] * n
    if dilation != [1] * n:
        attributes["dilations"] = dilation
    if g.chance(0.6):
        attributes["strides"] = [g.pick([1, 1, 2, 3, 4, 7]) for _ in spatial]
    style = g.rng.random()
    span = [(k - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    if style < 0.25 and dilation == [1] * n:
        attributes["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER"])
        # Where windows stand further apart than SAME needs, the text of convolutions says nothing, their
        # reference pads nothing and onnxruntime cuts: left out. Pools cut.
        strides = attributes.get("strides", [1] * n)
        over = [(-(-i // s) - 1) * s + k - i < 0 for i, s, k in zip(spatial, strides, kernel, strict=True)]
        if any(over) and not (name.endswith("Pool") and cuts):
            raise Unfit
        return attributes
    if style < 0.35:
        attributes["auto_pad"] = "VALID"
        pads = [0] * (2 * n)
    elif style < 0.75:
        most = [s - 1 if name.endswith("Pool") else s for s in (kernel if name.endswith("Pool") else span)]
        pads = [g.whole(0, min(p, 3)) for p in [*most, *most]]
        attributes["pads"] = pads
    else:
        pads = [0] * (2 * n)
        if g.chance(0.3):
            attributes["auto_pad"] = "NOTSET"
    for i, size in enumerate(spatial):
        if size + pads[i] + pads[n + i] < span[i]:
            raise Unfit
    return attributes


def image(
    g: Graph, channels: int | None = None, low: int = 3, high: int = 5
) -> tuple[list[int], list[int], list[int]]:
    spatial = [g.whole(3, 12) for _ in range(int(g.rng.choice([1, 2, 3], p=[0.3, 0.55, 0.15])))]
    if len(spatial) == 3:
        spatial = [min(s, 6) for s in spatial]
    kernel = [g.whole(1, min(4, s)) for s in spatial]
    return [g.whole(1, 3), channels or g.whole(1, 5)], spatial, kernel


@op("Conv")
def conv(g: Graph) -> Any:
    kind = g.dtype(g.dtypes_of("Conv"))
    (n, _), spatial, kernel = image(g)
    groups = g.pick([1, 1, 1, 2, 3, 4])
    each, filters = g.whole(1, 4), groups * g.whole(1, 4)
    if g.chance(0.2):
        each = 1
    x = g.value(kind, (n, groups * each, *spatial))
    w = g.value(kind, (filters, each, *kernel), constant=0.8)
    bias = [g.value(kind, (filters,), constant=0.8)] if g.chance(0.5) else []
    attributes = window(g, "Conv", spatial, kernel)
    if g.chance(0.5):
        attributes["kernel_shape"] = kernel
    return g.node(
        "Conv",
        [x, w, *bias],
        Rule("sum", 2, each * int(np.prod(kernel)) + 1),
        group=groups if groups > 1 or g.chance(0.3) else None,
        **attributes,
    )


@op("ConvTranspose")
def conv_transpose(g: Graph) -> Any:
    kind = g.dtype(g.dtypes_of("ConvTranspose"))
    (n, _), spatial, kernel = image(g)
    spatial = [min(s, 6) for s in spatial]
    groups = g.pick([1, 1, 2])
    into, out = groups * g.whole(1, 3), g.whole(1, 3)
    x = g.value(kind, (n, into, *spatial))
    w = g.value(kind, (into, out, *kernel), constant=0.8)
    bias = [g.value(kind, (groups * out,), constant=0.8)] if g.chance(0.5) else []
    strides = [g.whole(1, 3) for _ in spatial]
    dilations = [g.pick([1, 1, 2]) for _ in spatial]
    attributes: dict[str, Any] = {"strides": strides, "dilations": dilations}
    style = g.rng.random()
    natural = [
        s * (i - 1) + (k - 1) * d + 1 for s, i, k, d in zip(strides, spatial, kernel, dilations, strict=True)
    ]
    if style < 0.2:
        attributes["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER"])
        # The text asks for stride times the size; onnxruntime gives less where the windows leave gaps.
        if any((k - 1) * d + 1 < s for s, k, d in zip(strides, kernel, dilations, strict=True)):
            raise Unfit
    elif style < 0.4:
        wanted = [max(1, m + g.whole(-2, 1)) for m in natural]
        # onnxruntime refuses what no window reaches, and the reference does not cut where none is asked for.
        if any(n > m for n, m in zip(wanted, natural, strict=True)) and any(
            n < m for n, m in zip(wanted, natural, strict=True)
        ):
            raise Unfit
        attributes["output_shape"] = wanted
        if g.chance(0.3):
            attributes["auto_pad"] = g.pick(["SAME_UPPER", "SAME_LOWER", "NOTSET"])
    else:
        pads = [g.whole(0, 1) for _ in [*spatial, *spatial]]
        if any(m - pads[i] - pads[len(spatial) + i] < 1 for i, m in enumerate(natural)):
            raise Unfit
        attributes["pads"] = pads
        if g.chance(0.4):
            attributes["output_padding"] = [
                g.whole(0, max(s, d) - 1) for s, d in zip(strides, dilations, strict=True)
            ]
    return g.node(
        "ConvTranspose",
        [x, w, *bias],
        Rule("sum", 2, into // groups * int(np.prod(kernel)) + 1),
        group=groups if groups > 1 else None,
        **attributes,
    )


@op("MaxPool", "AveragePool", "LpPool")
def pool(g: Graph, name: str) -> Any:
    # The reference of old pools takes pads in another order.
    kind = g.dtype(g.dtypes_of(name)) if g.opset >= 8 else F32
    lead, spatial, kernel = image(g)
    dilations = g.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[name]
    # onnxruntime refuses to cut in its f32 kernel of MaxPool only; the reference rounds halves otherwise.
    attributes = window(g, name, spatial, kernel, dilations, name != "MaxPool" or kind in (F64, I8, U8))
    if g.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[name] and g.chance(0.4):
        attributes["ceil_mode"] = g.pick([0, 1])
    x = g.value(kind, (*lead, *spatial))
    outputs = [True]
    rule = Rule()
    if name == "AveragePool":
        attributes["count_include_pad"] = g.pick([0, 1, None])
        rule = Rule("sum", 4, int(np.prod(kernel)))
    if name == "LpPool":
        attributes["p"] = g.pick([None, 1, 2, 3])
        rule = Rule("chain", 32, int(np.prod(kernel)), 1e-6)
    if name == "MaxPool" and g.opset >= 8 and g.values[x].exact and g.chance(0.3):
        outputs = [True, True]
        attributes["storage_order"] = g.pick([0, None, 1])
    return g.node(name, [x], rule, outputs, kernel_shape=kernel, **attributes)


@op("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool")
def global_pool(g: Graph, name: str) -> Any:
    lead, spatial, _ = image(g)
    # Where onnxruntime has no kernel the reference of GlobalMaxPool takes two axes, whatever the rank.
    x = g.value(g.dtype([k for k in g.dtypes_of(name) if k != F64]), (*lead, *spatial))
    length = int(np.prod(spatial))
    rule = {
        "GlobalAveragePool": Rule("sum", 3, length),
        "GlobalMaxPool": Rule(),
        "GlobalLpPool": Rule("chain", 32, length),
    }[name]
    return g.node(name, [x], rule, **({"p": g.pick([None, 1, 2, 3])} if name == "GlobalLpPool" else {}))


@op("MaxUnpool")
def max_unpool(g: Graph) -> Any:
    need(g, "MaxUnpool")
    if g.opset < 9:
        raise Unfit
    h, w = g.whole(2, 4) * 2, g.whole(2, 4) * 2
    x = g.value(F32, (1, g.whole(1, 3), h, w), exact=True)
    top, where_ = g.node("MaxPool", [x], Rule(), 2, kernel_shape=[2, 2], strides=[2, 2])
    return g.node("MaxUnpool", [top, where_], Rule(), kernel_shape=[2, 2], strides=[2, 2])


@op("Col2Im")
def col2im(g: Graph) -> Any:
    need(g, "Col2Im")
    shape = [g.whole(3, 7) for _ in range(g.pick([1, 2, 2, 3]))]
    block = [g.whole(1, 3) for _ in shape]
    strides, dilations = [g.whole(1, 2) for _ in shape], [g.whole(1, 2) for _ in shape]
    pads = [g.whole(0, 1) for _ in [*shape, *shape]]
    count = 1
    for i, size in enumerate(shape):
        span = size + pads[i] + pads[len(shape) + i] - dilations[i] * (block[i] - 1) - 1
        if span < 0:
            raise Unfit
        count *= span // strides[i] + 1
    x = g.value(
        g.dtype(g.dtypes_of("Col2Im", 0, [F32, F64])),
        (g.whole(1, 2), g.whole(1, 3) * int(np.prod(block)), count),
    )
    return g.node(
        "Col2Im",
        [x, g.ints(shape), g.ints(block)],
        Rule("sum", 2, int(np.prod(block))),
        strides=g.pick([None, strides]) if strides == [1] * len(shape) else strides,
        dilations=dilations,
        pads=pads,
    )


@op("DeformConv")
def deform_conv(g: Graph) -> Any:
    need(g, "DeformConv")
    n, groups, og = g.whole(1, 2), g.pick([1, 2]), g.pick([1, 2])
    c, m, h, w, kh, kw = (
        groups * og * g.whole(1, 2),
        groups * g.whole(1, 2),
        g.whole(3, 6),
        g.whole(3, 6),
        g.whole(1, 3),
        g.whole(1, 3),
    )
    pads = [g.whole(0, 1) for _ in range(4)]
    strides, dilations = [g.whole(1, 2), g.whole(1, 2)], [1, g.whole(1, 2)]
    oh = (h + pads[0] + pads[2] - dilations[0] * (kh - 1) - 1) // strides[0] + 1
    ow = (w + pads[1] + pads[3] - dilations[1] * (kw - 1) - 1) // strides[1] + 1
    if min(oh, ow) < 1:
        raise Unfit
    inputs = [
        g.value(F32, (n, c, h, w), exact=True),
        g.value(F32, (m, c // groups, kh, kw)),
        g.value(F32, (n, og * kh * kw * 2, oh, ow), exact=True),
    ]
    inputs.append(g.value(F32, (m,)) if g.chance(0.5) else "")
    inputs.append(g.value(F32, (n, og * kh * kw, oh, ow)) if g.chance(0.5) else "")
    return g.node(
        "DeformConv",
        inputs,
        Rule("chain", 16, 8 + c * kh * kw),
        group=groups,
        offset_group=og,
        pads=pads,
        strides=strides,
        dilations=dilations,
    )


# --- norms


@op("BatchNormalization")
def batch_norm(g: Graph) -> Any:
    kind = g.dtype([k for k in g.dtypes_of("BatchNormalization")])
    shape = g.shape(2, 5, 1)
    c = shape[1]
    parts = [
        g.value(kind, (c,), constant=0.7),
        g.value(kind, (c,), constant=0.7),
        g.value(kind, (c,), constant=0.7),
        g.value(kind, (c,), 0.2, 3, constant=0.7),
    ]
    extra = {"spatial": 1} if g.opset < 9 and g.chance(0.3) else {}
    if g.opset >= 14 and g.chance(0.2) and len(shape) > 2 and kind in (F32, F64):
        return g.node(
            "BatchNormalization",
            [g.value(kind, shape), *parts],
            Rule("chain", 32, int(np.prod(shape)) / c + 8),
            3,
            training_mode=1,
            momentum=g.pick([None, 0.8]),
        )
    return g.node(
        "BatchNormalization",
        [g.value(kind, shape), *parts],
        Rule("chain", 8, 8),
        epsilon=g.pick([None, 1e-3]),
        momentum=g.pick([None, 0.8]),
        **extra,
    )


@op("InstanceNormalization")
def instance_norm(g: Graph) -> Any:
    kind = g.dtype(g.dtypes_of("InstanceNormalization"))
    shape = g.shape(3, 5, 2)
    c = shape[1]
    x, scale, bias = g.value(kind, shape), g.value(kind, (c,)), g.value(kind, (c,))
    epsilon = g.pick([None, 1e-3])
    # onnxruntime folds the mean into the bias, and so rounds x / sqrt(variance + epsilon) times the scale.
    folded = np.prod([float(np.abs(g.values[v].array.astype(F64)).max(initial=0)) for v in (x, scale)])
    rule = Rule(
        "chain", 32, int(np.prod(shape[2:])) + 8, 4 * eps(F32) * float(folded) / (epsilon or 1e-5) ** 0.5
    )
    return g.node("InstanceNormalization", [x, scale, bias], rule, epsilon=epsilon)


@op("LayerNormalization", "RMSNormalization")
def layer_norm(g: Graph, name: str) -> Any:
    need(g, name)
    x = g.any_value(g.dtypes_of(name), 1, 5, 1)
    axis = g.axis(len(x.shape))
    rest = x.shape[axis % len(x.shape) :]
    if np.prod(rest) < 2:
        raise Unfit
    shape = rest if g.chance(0.7) else g.broadcastable(rest)
    inputs = [x.name, g.value(x.dtype, shape)]
    outputs = [True]
    if name == "LayerNormalization":
        if g.chance(0.6):
            inputs.append(g.value(x.dtype, shape))
        if g.chance(0.3):
            outputs = [True, g.chance(0.7), g.chance(0.7)]
    given = None if axis == -1 and g.chance(0.5) else axis
    return g.node(
        name,
        inputs,
        Rule("chain", 32, int(np.prod(rest)) + 8, 1e-6),
        outputs,
        axis=given,
        epsilon=g.pick([None, 1e-2]),
    )


@op("GroupNormalization")
def group_norm(g: Graph) -> Any:
    need(g, "GroupNormalization")
    groups = g.whole(1, 3)
    c = groups * g.whole(1, 3)
    shape = (g.whole(1, 3), c, *[g.whole(2, 5) for _ in range(g.whole(1, 2))])
    size = c if g.opset >= 21 else groups
    kind = F32  # f64 would be computed in f32, as stash_type says
    return g.node(
        "GroupNormalization",
        [g.value(kind, shape), g.value(kind, (size,)), g.value(kind, (size,))],
        Rule("chain", 32, int(np.prod(shape[2:])) * c / groups + 8, 1e-6),
        num_groups=groups,
        epsilon=g.pick([None, 1e-3]),
    )


@op("LpNormalization")
def lp_norm(g: Graph) -> Any:
    x = g.any_value([F32, F64], 1, 5, 1)
    axis = g.axis(len(x.shape))
    return g.node(
        "LpNormalization",
        [x.name],
        Rule("chain", 16, x.shape[axis] + 4),
        axis=axis if g.opset >= 11 else axis % len(x.shape),
        p=g.pick([None, 1, 2]),
    )


@op("MeanVarianceNormalization")
def mean_variance(g: Graph) -> Any:
    need(g, "MeanVarianceNormalization")
    shape = g.shape(4, 4, 2)
    axes = g.pick([None, [0, 2, 3], [2, 3], [1, 2, 3], [-1, -2]])
    return g.node(
        "MeanVarianceNormalization",
        [g.value(F32, shape)],
        Rule("chain", 32, int(np.prod(shape)) + 8, 1e-6),
        axes=axes,
    )


@op("LRN")
def lrn(g: Graph) -> Any:
    shape = g.shape(4, 4, 1)
    return g.node(
        "LRN",
        [g.value(F32, shape)],
        Rule("chain", 32, 16),
        size=g.pick([1, 3, 5]),
        alpha=g.pick([None, 0.1]),
        beta=g.pick([None, 0.5]),
        bias=g.pick([None, 2.0]),
    )


# --- resize, grids


@op("Resize")
def resize(g: Graph) -> Any:
    if g.opset < 11:
        name = "Upsample" if g.opset < 10 else "Resize"
        x = g.values[g.value(F32, g.shape(4, 4, 1))]
        scales = g.const(np.array([1, 1, g.pick([1, 2, 1.5, 2.5]), g.pick([1, 2, 3])], F32))
        mode = g.pick(["nearest", "linear"])
        rule = Rule("chain", 8, 16 + 3 * max(x.shape))  # places are as inexact as they are large
        if g.opset < 9:
            return g.node(
                name,
                [x.name],
                rule,
                mode=mode,
                scales=[float(n) for n in g.values[scales].array],
            )
        return g.node(name, [x.name, scales], rule, mode=mode)
    mode = g.pick(["nearest", "linear", "cubic", None])
    kind = g.dtype([F32, F32, U8, I32] if mode in ("nearest", None) else [F32])
    x = g.values[g.value(kind, (g.whole(1, 2), g.whole(1, 2), g.whole(1, 7), g.whole(1, 7)))]
    coordinates = g.pick(
        [None, "half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
        + (["half_pixel_symmetric"] if g.opset >= 19 else [])
    )
    nearest = (
        g.pick([None, "round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
        if mode in ("nearest", None)
        else None
    )
    extra: dict[str, Any] = {}
    if mode == "cubic":
        extra = {"cubic_coeff_a": g.pick([None, -0.5]), "exclude_outside": g.pick([None, 0, 1])}
    if g.opset >= 18 and mode in ("linear", "cubic") and g.chance(0.3):
        extra["antialias"] = 1
    roi = "" if g.opset >= 13 else g.const(np.zeros(0, F32))
    rule = Rule() if mode in ("nearest", None) else Rule("chain", 64, 64, 2e-6)
    # The operator list leaves open how align_corners rounds a length.
    by_scales = coordinates not in ("align_corners", "half_pixel_symmetric")  # whose middle is a tie
    if by_scales and g.chance(0.5):
        scales = [1.0, 1.0, g.pick([0.5, 0.6, 1.0, 1.3, 2.0, 3.0]), g.pick([0.5, 0.7, 1.0, 1.7, 2.0, 4.0])]
        lengths = [n * s for n, s in zip(x.shape, scales, strict=True)]
        if any(n < 1 for n in lengths):
            raise Unfit
        # The reference takes the fraction for the length, onnxruntime copies the axis: no peer is left.
        keeps = any(s != 1 and int(m) == n for n, s, m in zip(x.shape, scales, lengths, strict=True))
        if coordinates == "pytorch_half_pixel" and keeps and any(1 < n < 2 for n in lengths):
            raise Unfit
        inputs = [x.name, roi, g.const(np.array(scales, F32))]
    else:
        sizes = [*x.shape[:2], g.whole(1, 9), g.whole(1, 9)]
        inputs = [x.name, roi, "" if g.opset >= 13 else g.const(np.zeros(0, F32)), g.ints(sizes)]
    return g.node(
        "Resize",
        inputs,
        rule,
        mode=mode,
        coordinate_transformation_mode=coordinates,
        nearest_mode=nearest,
        **extra,
    )


@op("GridSample")
def grid_sample(g: Graph) -> Any:
    need(g, "GridSample")
    x = g.value(F32, (g.whole(1, 2), g.whole(1, 3), g.whole(2, 6), g.whole(2, 6)))
    n = g.values[x].shape[0]
    grid = g.value(F32, (n, g.whole(1, 4), g.whole(1, 4), 2), -1.3, 1.3, True)
    modes = (
        ["linear", "nearest", "cubic", None] if g.opset >= 20 else ["bilinear", "nearest", "bicubic", None]
    )
    mode = g.pick(modes)
    rule = Rule() if mode == "nearest" else Rule("chain", 64, 64, 1e-5)
    return g.node(
        "GridSample",
        [x, grid],
        rule,
        mode=mode,
        padding_mode=g.pick([None, "zeros", "border", "reflection"]),
        align_corners=g.pick([None, 0, 1]),
    )


@op("AffineGrid")
def affine_grid(g: Graph) -> Any:
    need(g, "AffineGrid")
    n = g.whole(1, 2)
    if g.chance(0.6):
        theta, size = g.value(F32, (n, 2, 3)), [n, 1, g.whole(2, 5), g.whole(2, 5)]
    else:
        theta, size = g.value(F32, (n, 3, 4)), [n, 1, g.whole(2, 4), g.whole(2, 4), g.whole(2, 4)]
    return g.node(
        "AffineGrid", [theta, g.ints(size)], Rule("chain", 8, 16), align_corners=g.pick([None, 0, 1])
    )


@op("RoiAlign")
def roi_align(g: Graph) -> Any:
    need(g, "RoiAlign")
    x = g.value(F32, (g.whole(1, 2), g.whole(1, 3), g.whole(3, 7), g.whole(3, 7)))
    n, count = g.values[x].shape[0], g.whole(1, 3)
    low, size = g.rng.random((count, 2)) * 4, g.rng.random((count, 2)) * 4 + 0.5
    rois = g.const(np.concatenate([low, low + size], 1), F32)
    batch = g.const(g.rng.integers(0, n, count))
    rule = (
        {"coordinate_transformation_mode": g.pick([None, "half_pixel", "output_half_pixel"])}
        if g.opset >= 16
        else {}
    )
    return g.node(
        "RoiAlign",
        [x, rois, batch],
        Rule("chain", 64, 64, 1e-5),
        mode=g.pick([None, "avg"]),
        output_height=g.whole(1, 3),
        output_width=g.whole(1, 3),
        sampling_ratio=g.whole(1, 3),
        spatial_scale=g.pick([None, 0.5]),
        **rule,
    )


# --- quantised


def scale_of(g: Graph, shape: Sequence[int], low: float = 0.02, high: float = 0.5, kind: Any = F32) -> str:
    return g.value(kind, shape, low, high, True, 0.8)


@op("QuantizeLinear")
def quantize(g: Graph) -> Any:
    need(g, "QuantizeLinear")
    x = g.any_value([F32], 0, 4, 1, exact=True)
    kind = g.pick([U8, I8])
    axis = None
    shape: tuple[int, ...] = ()
    if g.opset >= 13 and x.shape and g.chance(0.4):
        axis = g.axis(len(x.shape))
        shape = (x.shape[axis],)
    inputs = [x.name, scale_of(g, shape)]
    if kind == I8 or g.chance(0.6):
        inputs.append(g.value(kind, shape, None, None, True, 0.8))
    return g.node("QuantizeLinear", inputs, Rule(steps=True), axis=axis)


@op("DequantizeLinear")
def dequantize(g: Graph) -> Any:
    need(g, "DequantizeLinear")
    kind = g.pick([U8, I8, I32])
    x = g.any_value([kind], 0, 4, 1)
    axis = None
    shape: tuple[int, ...] = ()
    if g.opset >= 13 and x.shape and g.chance(0.4):
        axis = g.axis(len(x.shape))
        shape = (x.shape[axis],)
    inputs = [x.name, scale_of(g, shape)]
    if kind != I32 and g.chance(0.6):
        inputs.append(g.value(kind, shape, None, None, True, 0.8))
    return g.node("DequantizeLinear", inputs, Rule("round", 1), axis=axis)


@op("QuantizeDequantize")
def quantize_dequantize(g: Graph) -> Any:
    """The pair that quantised models hold, around a value."""
    need(g, "QuantizeLinear")
    x = g.any_value([F32], 0, 4, 1, exact=True)
    kind = g.pick([U8, I8])
    ends = [scale_of(g, ()), g.value(kind, (), None, None, True, 1.0)]
    (q,) = g.node("QuantizeLinear", [x.name, *ends])
    return g.node("DequantizeLinear", [q, *ends], Rule("round", 1))


@op("DynamicQuantizeLinear")
def dynamic_quantize(g: Graph) -> Any:
    need(g, "DynamicQuantizeLinear")
    x = g.any_value([F32], 0, 4, 1, exact=True)
    if not x.array.size or not np.abs(x.array).max() > 0:
        raise Unfit
    return g.node("DynamicQuantizeLinear", [x.name], Rule("round", 1), 3)


@op("MatMulInteger")
def matmul_integer(g: Graph) -> Any:
    need(g, "MatMulInteger")
    m, k, n = g.size(1), g.size(1), g.size(1)
    a, b = g.pick([U8, I8]), g.pick([U8, I8])
    batch = g.shape(0, 1, 1)
    inputs = [g.value(a, (*batch, m, k)), g.value(b, (k, n), constant=0.7)]
    if g.chance(0.6):
        inputs.append(g.value(a, (), constant=0.7))
        if g.chance(0.6):
            inputs.append(g.value(b, g.pick([(), (n,)]), constant=0.7))
    return g.node("MatMulInteger", inputs)


@op("QLinearMatMul")
def qlinear_matmul(g: Graph) -> Any:
    need(g, "QLinearMatMul")
    m, k, n = g.size(1), g.size(1), g.size(1)
    a, b, y = g.pick([U8, I8]), g.pick([U8, I8]), g.pick([U8, I8])
    zero = lambda kind: g.value(kind, (), None, None, True, 0.9)  # noqa: E731
    inputs = [
        g.value(a, (m, k)),
        scale_of(g, ()),
        zero(a),
        g.value(b, (k, n), constant=0.8),
        scale_of(g, ()),
        zero(b),
        scale_of(g, (), 0.3, 2),
        zero(y),
    ]
    return g.node("QLinearMatMul", inputs, Rule(steps=True))


@op("ConvInteger")
def conv_integer(g: Graph) -> Any:
    need(g, "ConvInteger")
    (n, c), spatial, kernel = image(g)
    attributes = window(g, "Conv", spatial, kernel)
    inputs = [g.value(U8, (n, c, *spatial)), g.value(U8, (g.whole(1, 4), c, *kernel), constant=0.8)]
    if g.chance(0.6):
        inputs.append(g.value(U8, (), constant=0.8))
    return g.node("ConvInteger", inputs, Rule(), **attributes)


@op("QLinearConv")
def qlinear_conv(g: Graph) -> Any:
    need(g, "QLinearConv")
    (n, c), spatial, kernel = image(g)
    attributes = window(g, "Conv", spatial, kernel)
    filters = g.whole(1, 4)
    kind, weight = g.pick([(U8, U8), (U8, I8), (I8, I8)])
    per = (filters,) if g.chance(0.4) else ()
    zero = lambda k, shape=(): g.const(g.draw(k)(shape))  # noqa: E731
    inputs = [
        g.value(kind, (n, c, *spatial)),
        scale_of(g, ()),
        zero(kind),
        g.const(g.draw(weight)((filters, c, *kernel))),
        g.const(g.draw(F32, 0.02, 0.3)(per)),
        g.const(np.zeros(per, weight)) if per else zero(weight),
        scale_of(g, (), 0.2, 2),
        zero(kind),
    ]
    if g.chance(0.5):
        inputs.append(g.const(g.draw(I32)((filters,))))
    return g.node("QLinearConv", inputs, Rule(steps=True), **attributes)


# --- recurrent, attention, losses, signals


# layout=1 is left out: onnxruntime has none, and the reference takes the axes of Y_h and the states wrongly.
@op("LSTM", "GRU", "RNN")
def recurrent(g: Graph, name: str) -> Any:
    gates = {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    t, b, i, h = g.whole(1, 6), g.whole(1, 3), g.whole(1, 4), g.whole(1, 5)
    direction = g.pick([None, "forward", "reverse", "bidirectional"])
    d = 2 if direction == "bidirectional" else 1
    inputs = [
        g.value(F32, (t, b, i)),
        g.value(F32, (d, gates * h, i), constant=0.8),
        g.value(F32, (d, gates * h, h), constant=0.8),
    ]
    inputs.append(g.value(F32, (d, 2 * gates * h), constant=0.8) if g.chance(0.6) else "")
    inputs.append(g.value(I32, (b,), 1, t, True) if g.chance(0.3) else "")
    inputs.append(g.value(F32, (d, b, h)) if g.chance(0.5) else "")
    attributes: dict[str, Any] = {}
    if name == "LSTM":
        inputs.append(g.value(F32, (d, b, h)) if g.chance(0.5) else "")
        inputs.append(g.value(F32, (d, 3 * h), constant=0.9) if g.chance(0.3) else "")
    if name == "GRU":
        attributes["linear_before_reset"] = g.pick([None, 0, 1])
    wanted = [True, g.chance(0.6), *([g.chance(0.6)] if name == "LSTM" else [])]
    if g.chance(0.2):
        attributes["clip"] = 1.5
    return g.node(
        name,
        inputs,
        Rule("chain", 64, 8 * (i + h), 1e-5),
        wanted,
        hidden_size=h,
        direction=direction,
        **attributes,
    )


@op("Attention")
def attention(g: Graph) -> Any:
    need(g, "Attention")
    b, hq, s, t, d = g.whole(1, 2), g.pick([1, 2, 4]), g.whole(1, 6), g.whole(1, 6), g.pick([2, 4, 8])
    hk = g.pick([n for n in (1, 2, 4) if hq % n == 0])
    inputs = [g.value(F32, (b, hq, s, d)), g.value(F32, (b, hk, t, d)), g.value(F32, (b, hk, t, d))]
    if g.chance(0.4):
        inputs.append(g.value(g.pick([F32, BOOL]), (s, t)))
    return g.node(
        "Attention",
        inputs,
        Rule("chain", 32, d + t + 8, 1e-6),
        is_causal=g.pick([None, 0, 1]),
        scale=g.pick([None, 0.3]),
        softcap=g.pick([None, None, 5.0]),
    )


@op("RotaryEmbedding")
def rotary(g: Graph) -> Any:
    need(g, "RotaryEmbedding")
    b, h, s, d = g.whole(1, 2), g.whole(1, 3), g.whole(1, 5), g.pick([2, 4, 8])
    inputs = [g.value(F32, (b, h, s, d)), g.value(F32, (b, s, d // 2)), g.value(F32, (b, s, d // 2))]
    return g.node("RotaryEmbedding", inputs, Rule("chain", 8, 8), interleaved=g.pick([None, 0, 1]))


@op("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def losses(g: Graph, name: str) -> Any:
    need(g, name)
    n, c = g.whole(1, 4), g.whole(1, 5)
    rest = [g.whole(1, 3) for _ in range(g.whole(0, 2))]
    inputs = [g.value(F32, (n, c, *rest)), g.value(g.pick([I64, I32]), (n, *rest), 0, c - 1, True)]
    if g.chance(0.4):
        inputs.append(g.value(F32, (c,), 0.2, 2))
    outputs = [True, name.startswith("Soft") and g.chance(0.4)]
    return g.node(
        name,
        inputs,
        Rule("chain", 32, n * int(np.prod(rest)) + c + 8, 1e-6),
        outputs if name.startswith("Soft") else 1,
        reduction=g.pick([None, "mean", "sum", "none"]),
        ignore_index=g.pick([None, 0]) if c > 1 and len(inputs) < 3 and g.chance(0.3) else None,
    )


@op("HannWindow", "HammingWindow", "BlackmanWindow")
def windows(g: Graph, name: str) -> Any:
    need(g, name)
    return g.node(
        name, [g.const(np.array(g.whole(2, 20)))], Rule("round", 32, 1, 1e-6), periodic=g.pick([None, 0, 1])
    )


@op("Det")
def det(g: Graph) -> Any:
    n = g.whole(1, 4)
    return g.node("Det", [g.value(F32, (*g.shape(0, 2, 1), n, n), exact=True)], Rule("chain", 32, 24 * n))


@op("DFT")
def dft(g: Graph) -> Any:
    need(g, "DFT")
    n = g.whole(2, 9)
    parts = g.pick([1, 2])
    inverse = g.chance(0.3) and parts == 2
    x = g.value(F32, (g.whole(1, 2), n, parts))
    onesided = 1 if parts == 1 and g.chance(0.4) else None
    if g.opset >= 20:
        return g.node(
            "DFT",
            [x, "", g.const(np.array(1))],
            Rule("chain", 32, 8 * n, 1e-5),
            inverse=1 if inverse else None,
            onesided=onesided,
        )
    return g.node(
        "DFT", [x], Rule("chain", 32, 8 * n, 1e-5), axis=1, inverse=1 if inverse else None, onesided=onesided
    )


# --- control flow


def body(
    g: Graph,
    inputs: Sequence[tuple[str, Any, Sequence[int] | None]],
    outputs: int,
    like: Value,
    captured: Sequence[str],
    name: str,
) -> Any:
    """A graph of a few pointwise nodes on values of one shape and dtype, some of them from outside."""
    values = [n for n, kind, _ in inputs if kind == like.dtype] + list(captured)
    if not values:
        raise Unfit
    nodes = []
    kinds = (
        ["Add", "Sub", "Mul", "Max", "Min", "Neg", "Abs", "Tanh"]
        if is_float(like.dtype)
        else ["Add", "Sub", "Max", "Min", "Abs"]
    )
    for _ in range(g.whole(outputs, outputs + 2)):
        kind = g.pick(kinds)
        out = g.name("b")
        count = 1 if kind in ("Neg", "Abs", "Tanh") else 2
        nodes.append(helper.make_node(kind, [g.pick(values[-4:]) for _ in range(count)], [out]))
        values.append(out)
    ends = values[-outputs:]
    return nodes, ends


def info(name: str, kind: Any, shape: Sequence[int] | None = None) -> Any:
    return helper.make_tensor_value_info(name, onnx_type(kind), shape)


@op("If")
def if_(g: Graph) -> Any:
    like = g.any_value([F32, I64, F64], 0, 3, 1)
    count = g.whole(1, 2)
    condition = g.const(np.array(g.chance(0.5))) if g.chance(0.4) else g.value(BOOL, ())
    graphs = []
    for name in ("then", "else"):
        nodes, ends = body(g, [], count, like, [like.name, g.value(like.dtype, like.shape)], name)
        graphs.append(helper.make_graph(nodes, name, [], [info(e, like.dtype) for e in ends]))
    return g.node(
        "If",
        [condition],
        Rule("chain", 64, 16, 1e-6) if is_float(like.dtype) else Rule(),
        count,
        then_branch=graphs[0],
        else_branch=graphs[1],
    )


@op("Loop")
def loop(g: Graph) -> Any:
    like = g.any_value([F32, I64], 0, 3, 1, low=-3, high=3)
    trips = g.whole(1, 4)
    i, cond, x = g.name("i"), g.name("k"), g.name("x")
    nodes, ends = body(g, [(x, like.dtype, None)], 1, like, [g.value(like.dtype, like.shape, -2, 2)], "body")
    if any(n.op_type == "Mul" for n in nodes):
        raise Unfit
    go = g.name("k")
    nodes.append(helper.make_node("Identity", [cond], [go]))
    row = g.name("b")
    nodes.append(helper.make_node("Identity", [ends[0]], [row]))
    scans = g.chance(0.6)
    made = helper.make_graph(
        nodes,
        "body",
        [info(i, I64, []), info(cond, BOOL, []), info(x, like.dtype)],
        [info(go, BOOL), info(ends[0], like.dtype), *([info(row, like.dtype)] if scans else [])],
    )
    count = g.const(np.array(trips)) if g.chance(0.7) or scans else g.value(I64, (), 1, 4, True)
    return g.node(
        "Loop",
        [count, g.const(np.array(True)) if g.chance(0.5) else "", like.name],
        Rule("chain", 64, 32, 1e-6) if is_float(like.dtype) else Rule(),
        2 if scans else 1,
        body=made,
    )


@op("Scan")
def scan(g: Graph) -> Any:
    if g.opset < 9:
        raise Unfit
    sequence = g.any_value([F32, I64], 1, 3, 1, low=-3, high=3)
    axis = g.axis(len(sequence.shape)) if g.chance(0.3) and g.opset >= 11 else 0
    row_shape = list(sequence.shape)
    del row_shape[axis]
    row = Value("", np.zeros(row_shape, sequence.dtype))
    state, x = g.name("s"), g.name("x")
    start = g.value(sequence.dtype, row_shape, -2, 2)
    nodes, ends = body(g, [(state, row.dtype, None), (x, row.dtype, None)], 1, row, [], "body")
    if any(n.op_type == "Mul" for n in nodes):
        raise Unfit
    copy = g.name("b")
    nodes.append(helper.make_node("Identity", [ends[0]], [copy]))
    made = helper.make_graph(
        nodes,
        "body",
        [info(state, row.dtype), info(x, row.dtype)],
        [info(ends[0], row.dtype), info(copy, row.dtype)],
    )
    more: dict[str, Any] = {}
    if axis:
        more["scan_input_axes"] = [axis]
    if g.chance(0.3):
        more["scan_input_directions"] = [1]
    if g.chance(0.3):
        more["scan_output_directions"] = [1]
    return g.node(
        "Scan",
        [start, sequence.name],
        Rule("chain", 64, 32, 1e-6) if is_float(row.dtype) else Rule(),
        2,
        body=made,
        num_scan_inputs=1,
        **more,
    )


# --- ops of onnxruntime's own domain, as its optimiser and its quantiser write them, and of ai.onnx.ml

CONTRIB, ML = "com.microsoft", "ai.onnx.ml"


@op("QuickGelu", "FastGelu", "BiasGelu")
def contrib_gelu(g: Graph, name: str) -> Any:
    x = g.any_value([F32], 1, 4, 1)
    inputs = [x.name]
    if name == "BiasGelu" or (name == "FastGelu" and g.chance(0.5)):
        inputs.append(g.value(F32, (x.shape[-1],), constant=0.8))
    alpha = g.pick([None, 1.0, 1.702]) if name == "QuickGelu" else None
    return g.node(name, inputs, Rule("chain", 32, 4, 2e-6), domain=CONTRIB, alpha=alpha)


@op("FusedMatMul")
def fused_matmul(g: Graph) -> Any:
    m, k, n = g.size(1), g.size(1), g.size(1)
    flip_a, flip_b = g.chance(0.4), g.chance(0.4)
    batch = g.shape(0, 1, 1)
    a = g.value(F32, (*batch, k, m) if flip_a else (*batch, m, k))
    b = g.value(F32, (*batch, n, k) if flip_b else (*batch, k, n))
    flags = {"transA": int(flip_a), "transB": int(flip_b), "alpha": g.pick([None, 0.5, 2.0])}
    return g.node("FusedMatMul", [a, b], Rule("sum", 2, k), domain=CONTRIB, **flags)


@op("SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(g: Graph, name: str) -> Any:
    shape = (g.whole(1, 3), g.whole(1, 4), g.whole(2, 9))
    hidden = (shape[2],)
    inputs = [g.value(F32, shape), g.value(F32, shape), g.value(F32, hidden, constant=0.8)]
    if name == "SkipLayerNormalization" and g.chance(0.6):
        inputs.append(g.value(F32, hidden, constant=0.8))
    rule = Rule("chain", 32, shape[2] + 8, 1e-6)
    return g.node(name, inputs, rule, domain=CONTRIB, epsilon=g.pick([None, 1e-3]))


@op("QLinearAdd", "QLinearMul")
def qlinear_binary(g: Graph, name: str) -> Any:
    kind = g.pick([U8, I8])
    shape = g.shape(1, 4, 1)

    def ends(low: float, high: float) -> list[str]:
        return [g.const(g.draw(F32, low, high)(())), g.const(g.draw(kind)(()))]

    a, b = g.value(kind, shape), g.value(kind, g.broadcastable(shape))
    inputs = [a, *ends(0.02, 0.5), b, *ends(0.02, 0.5), *ends(0.1, 1)]
    # onnxruntime adds and multiplies in f32 in an order of its own: halves may fall to either side.
    return g.node(name, inputs, Rule("halves", steps=True), domain=CONTRIB)


@op("MatMulIntegerToFloat")
def matmul_integer_to_float(g: Graph) -> Any:
    m, k, n = g.size(1), g.size(1), g.size(1)
    per = (n,) if g.chance(0.4) else ()
    inputs = [
        g.value(U8, (m, k)),
        g.value(I8, (k, n), constant=0.8),
        g.const(g.draw(F32, 0.02, 0.5)(())),
        g.const(g.draw(F32, 0.02, 0.5)(per)),
        g.const(g.draw(U8)(())),
    ]
    if g.chance(0.4):
        inputs += ["", g.value(F32, (n,), constant=0.8)]
    return g.node("MatMulIntegerToFloat", inputs, Rule("chain", 8, 4), domain=CONTRIB)


@op("Scaler", "Normalizer", "Binarizer", "LinearRegressor")
def features(g: Graph, name: str) -> Any:
    n, c = g.whole(1, 5), g.whole(1, 6)
    x = g.value(F32, (n, c), exact=True)
    g.domains[ML] = 3
    numbers = lambda count: [round(float(v), 2) for v in g.rng.standard_normal(count)]  # noqa: E731
    if name == "Scaler":
        length = g.pick([1, c])
        given: dict[str, Any] = {"offset": numbers(length), "scale": numbers(length)}
    elif name == "Normalizer":
        given = {"norm": g.pick(["MAX", "L1", "L2"])}
    elif name == "Binarizer":
        given = {"threshold": g.pick([0.0, 0.5])}
    else:
        targets = g.whole(1, 3)
        given = {"coefficients": numbers(targets * c), "targets": targets}
        if g.chance(0.6):
            given["intercepts"] = numbers(targets)
    rule = Rule() if name == "Binarizer" else Rule("chain", 8, c + 4)
    return g.node(name, [x], rule, domain=ML, **given)

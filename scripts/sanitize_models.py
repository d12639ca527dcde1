"""The models that sanitize_gpu.py runs: small ones that between them call every family of CUDA kernels."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from gpu_models import (
    LLAMA_1B,
    MINILM,
    DecoderShape,
    EncoderShape,
    decoder_states,
    decoder_weights,
    write_decoder,
    write_encoder,
)
from onnx import TensorProto, helper, save

DECODER = replace(
    LLAMA_1B, hidden=512, layers=1, heads=8, kv_heads=2, intermediate=1024, vocabulary=512, cache=300
)
# So many pairs of heads that attention needs no second kernel, and rotates and appends in its own.
ROPED = replace(DECODER, hidden=1024, heads=16, kv_heads=8)
# Lengths, depths and heads of attention with more tiles than there are multiprocessors.
MANY_TILES = ((600, 64, 32), (400, 128, 40))
WIDE = EncoderShape(512, 1, 8, 2048)
F16, BF16, F32 = TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT


@dataclass(frozen=True)
class Case:
    """`write` makes the .onnx file, compiled with `options`; or, where `traced`, the .aicf file itself."""

    name: str
    write: Callable[[Path], None]
    options: tuple[str, ...] = ()
    ranges: dict[str, str] = field(default_factory=dict)
    traced: bool = False


# ---- models of a few nodes

Sizes = tuple[int, ...]
Nodes = list[tuple[str, list[str], dict[str, Any]]]


def nodes(element: int, inputs: dict[str, Sizes], ops: Nodes) -> Callable[[Path], None]:
    """A model of these ops, the i-th of which gives "i", and the last the output."""

    def write(path: Path) -> None:
        made = [helper.make_node(kind, args, [str(i)], **attrs) for i, (kind, args, attrs) in enumerate(ops)]
        infos = [helper.make_tensor_value_info(n, element, s) for n, s in inputs.items()]
        result = helper.make_empty_tensor_value_info(str(len(ops) - 1))
        graph = helper.make_graph(made, path.stem, infos, [result])
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def linear(rows: int, inner: int, outer: int, element: int = BF16) -> Callable[[Path], None]:
    sizes = {"x": (rows, inner), "w": (inner, outer), "b": (outer,), "r": (rows, outer)}
    ops: Nodes = [
        ("MatMul", ["x", "w"], {}),
        ("Add", ["0", "b"], {}),
        ("Gelu", ["1"], {"approximate": "tanh"}),
        ("Add", ["2", "r"], {}),
    ]
    return nodes(element, sizes, ops)


def way(name: str, rows: int, inner: int, outer: int, variant: str) -> Case:
    """linear() in a variant of products on matrix units."""
    return Case(name, linear(rows, inner, outer), ("--choose", f"*=matmul_tensor_core/wgmma {variant}"))


def early_linears(rows: int, width: int = 1024) -> Callable[[Path], None]:
    """Products with constant weights: the second reads its x, too, before the first has ended."""

    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        weights = {f"w{i}": rng.standard_normal((width, width)) / 32 for i in range(2)}
        made = [helper.make_node("MatMul", [f"x{i}", f"w{i}"], [str(i)]) for i in range(2)]
        infos = [helper.make_tensor_value_info(f"x{i}", F16, (rows, width)) for i in range(2)]
        results = [helper.make_empty_tensor_value_info(str(i)) for i in range(2)]
        constants = [
            helper.make_tensor(name, F16, w.shape, w.astype(np.float16).tobytes(), raw=True)
            for name, w in weights.items()
        ]
        graph = helper.make_graph(made, path.stem, infos, results, constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11), path)

    return write


def attention(length: int, depth: int, heads: int = 4) -> Callable[[Path], None]:
    shared = (1, heads // 2, length, depth)
    sizes = {"q": (1, heads, length, depth), "k": shared, "v": shared}
    return nodes(F16, sizes, [("Attention", ["q", "k", "v"], {"is_causal": 1})])


def convolutions(element: int) -> Callable[[Path], None]:
    sizes = {
        "x": (2, 8, 30, 30), "stem": (64, 8, 7, 7), "reduce": (32, 64, 1, 1), "middle": (64, 32, 3, 3),
        "bias": (64,), "depth": (64, 1, 3, 3), "up": (64, 16, 2, 2),
    }  # fmt: skip
    same = {"pads": [1] * 4, "kernel_shape": [3, 3]}
    ops: Nodes = [
        ("Conv", ["x", "stem"], {"pads": [3] * 4, "strides": [2, 2]}),
        ("MaxPool", ["0"], {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4}),
        ("Conv", ["1", "reduce"], {}),
        ("Conv", ["2", "middle", "bias"], same),
        ("Add", ["3", "1"], {}),
        ("Relu", ["4"], {}),
        ("Conv", ["5", "depth"], same | {"group": 64}),
        ("ConvTranspose", ["6", "up"], {"strides": [2, 2]}),
        ("GlobalAveragePool", ["7"], {}),
    ]
    return nodes(element, sizes, ops)


def residual_block(element: int) -> Callable[[Path], None]:
    sizes = {
        "x": (4, 64, 28, 28),
        "reduce": (64, 64, 1, 1),
        "middle": (64, 64, 3, 3),
        "expand": (64, 64, 1, 1),
        "bias": (64,),
    }
    ops: Nodes = [
        ("Conv", ["x", "reduce", "bias"], {}),
        ("Relu", ["0"], {}),
        ("Conv", ["1", "middle", "bias"], {"pads": [1] * 4}),
        ("Relu", ["2"], {}),
        ("Conv", ["3", "expand", "bias"], {}),
        ("Add", ["4", "x"], {}),
        ("Relu", ["5"], {}),
    ]
    return nodes(element, sizes, ops)


def tables() -> Callable[[Path], None]:
    """Rows that pass through registers, a block and a cluster, and the ops that have kernels of their own."""
    ops: Nodes = [
        ("Softmax", ["x"], {"axis": -1}),
        ("Softmax", ["long"], {"axis": -1}),
        ("ReduceSum", ["x"], {"keepdims": 0}),
        ("ArgMax", ["long"], {"axis": 1}),
        ("TopK", ["x", "count"], {}),
        ("CumSum", ["x", "axis"], {}),
        ("Gather", ["x", "rows"], {}),
        ("ScatterElements", ["x", "places", "updates"], {"axis": 1, "reduction": "add"}),
        ("Concat", ["x", "7"], {"axis": 1}),
        ("Resize", ["image", "", "scales"], {"mode": "linear"}),
    ]
    sizes = {
        "x": (37, 300), "long": (3, 70000), "count": (1,), "axis": (), "rows": (11,), "places": (37, 50),
        "updates": (37, 50), "image": (1, 3, 9, 9), "scales": (4,),
    }  # fmt: skip

    def write(path: Path) -> None:
        made = [
            helper.make_node(kind, args, [str(i), "indices"] if kind == "TopK" else [str(i)], **attrs)
            for i, (kind, args, attrs) in enumerate(ops)
        ]
        values = {
            "count": np.array([5]), "axis": np.array(1), "scales": np.array([1, 1, 2, 2], np.float32),
            "rows": np.arange(11) * 3, "places": np.arange(37 * 50).reshape(37, 50) % 7,
        }  # fmt: skip
        constants = [
            helper.make_tensor(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape, v)
            for n, v in values.items()
        ]
        infos = [helper.make_tensor_value_info(n, F32, s) for n, s in sizes.items() if n not in values]
        results = [helper.make_empty_tensor_value_info(str(i)) for i in range(len(ops))]
        graph = helper.make_graph(made, path.stem, infos, results, constants)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)

    return write


def equal_products() -> Callable[[Path], None]:
    """Small calls of one function side by side in a launch, and what reads their results after them."""
    names = [f"x{i}" for i in range(6)]
    ops: Nodes = [("MatMul", [name, "w"], {}) for name in names]
    ops.append(("Concat", [str(i) for i in range(len(names))], {"axis": 0}))
    ops.append(("Softmax", [str(len(names))], {"axis": -1}))
    return nodes(F32, {"w": (24, 20), **dict.fromkeys(names, (12, 24))}, ops)


def decoder(shape: DecoderShape, name: str) -> Case:
    def write(path: Path) -> None:
        rng = np.random.default_rng(0)
        weights = {
            name: (0.02 * rng.standard_normal(sizes)).astype(np.float16).tobytes()
            for name, sizes in decoder_weights(shape).items()
        }
        write_decoder(path, shape, weights, F16)

    options = tuple(decoder_states(shape, advancing=False))
    return Case(name, write, options, {"token": "0..99", "position": "9..9"})


# ---- training steps


TARGET = {"target": "sm_90,cpu"}  # the CPU's is what loads where there is no GPU


def mlp(sizes: Sizes, batch: int, precision: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import aicf
        from aicf import nn, optim

        layers: list[Any] = []
        for inner, outer in itertools.pairwise(sizes):
            layers += [nn.Linear(inner, outer), nn.ReLU()]
        specs = [aicf.TensorSpec((batch, sizes[0])), aicf.TensorSpec((batch,), "i64", "labels")]
        model, adam = nn.Sequential(*layers[:-1]), optim.AdamW(1e-3, weight_decay=0.01)
        loss = nn.CrossEntropyLoss()
        step = aicf.compile_train_step(model, loss, adam, specs, precision=precision, options=TARGET)
        step.save(path)

    return write


def block(path: Path) -> None:
    """A block of a transformer between an embedding and its transpose, in bf16."""
    import aicf
    from aicf import nn, ops, optim

    length, width, heads, classes = 300, 128, 2, 500

    class Block(nn.Module):
        def __init__(self) -> None:
            sizes = {"words": (classes, width), "qkv": (width, 3 * width), "out": (width, width)}
            sizes |= {"wide": (width, 4 * width), "narrow": (4 * width, width), "scale": (width,)}
            rng = np.random.default_rng(0)
            for name, size in sizes.items():
                values = (0.05 * rng.standard_normal(size)).astype(np.float32)
                setattr(self, name, nn.Parameter(values))

        def forward(self, ids: Any) -> Any:
            x = ops.gather(self.words.sym(), ids, axis=0)
            qkv = ops.matmul(ops.rms_norm(x, self.scale.sym()), self.qkv.sym())
            q, k, v = (
                qkv[:, :, i * width : (i + 1) * width]
                .reshape(1, length, heads, width // heads)
                .transpose(0, 2, 1, 3)
                for i in range(3)
            )
            y = ops.attention(q, k, v, scale=0.125, causal=True)
            x = x + ops.matmul(y.transpose(0, 2, 1, 3).reshape(1, length, width), self.out.sym())
            y = ops.gelu(ops.matmul(x, self.wide.sym()), approximate="tanh")
            x = x + ops.matmul(y, self.narrow.sym())
            return ops.matmul(x.reshape(length, width), self.words.sym().transpose(1, 0))

    specs = [aicf.TensorSpec((1, length), "i64", "ids"), aicf.TensorSpec((length,), "i64", "labels")]
    step = aicf.compile_train_step(
        Block(), nn.CrossEntropyLoss(), optim.AdamW(1e-3), specs, precision="bf16-mixed", options=TARGET
    )
    step.save(path)


def attention_gradients(length: int, depth: int, heads: int) -> Callable[[Path], None]:
    def gradients(q: Any, k: Any, v: Any, dout: Any) -> Any:
        from aicf import ops

        attributes = {"scale": depth**-0.5, "causal": True}
        out = ops.attention(q, k, v, **attributes)
        return ops.attention_backward(q, k, v, out, dout, **attributes)

    def write(path: Path) -> None:
        import aicf

        specs = [aicf.TensorSpec((1, heads, length, depth), "bf16", name) for name in ("q", "k", "v", "dout")]
        aicf.compile(aicf.trace(gradients, specs), options=TARGET).save(path)

    return write


def gradients_of_layers(path: Path) -> None:
    """Weight gradients of one shape, which share a launch, and a product that takes its bias sums along."""
    import aicf
    from aicf import ops

    rows, inner, outer, depth, layers = 2048, 1024, 768, 512, 4

    def gradients(dy: Any, w: Any, slope: Any, *activations: Any) -> Any:
        dh = ops.mul(ops.matmul(dy, w), slope)
        weights = [ops.matmul(x, dh, transpose_x=True) for x in activations]
        return [dh, ops.reduce_sum(dh, axes=(0,)), *weights]

    sizes = {"dy": (rows, depth), "w": (depth, outer), "slope": (rows, outer)}
    sizes |= {f"x{i}": (rows, inner) for i in range(layers)}
    specs = [aicf.TensorSpec(size, "bf16", name) for name, size in sizes.items()]
    aicf.compile(aicf.trace(gradients, specs), options=TARGET).save(path)


def sums_in_groups(rows: int, inner: int, outer: int, layers: int) -> Callable[[Path], None]:
    """Weight gradients of equal layers, whose launch takes the gradients of the biases along."""

    def gradients(*operands: Any) -> Any:
        from aicf import ops

        results, activations = operands[:layers], operands[layers:]
        weights = [ops.matmul(dy, x, transpose_x=True) for dy, x in zip(results, activations, strict=True)]
        return [*weights, *(ops.reduce_sum(dy, axes=(0,)) for dy in results)]

    def write(path: Path) -> None:
        import aicf

        sizes = {f"dy{i}": outer for i in range(layers)} | {f"x{i}": inner for i in range(layers)}
        specs = [aicf.TensorSpec((rows, size), "bf16", name) for name, size in sizes.items()]
        aicf.compile(aicf.trace(gradients, specs), options=TARGET).save(path)

    return write


def updates_in_groups(path: Path) -> None:
    """Weight gradients whose epilogue is AdamW's step: K so long, and tiles so many, that it pays."""
    import aicf
    from aicf import nn, ops
    from aicf.tracing import current_graph

    rows, columns, width, layers = 8192, 2048, 3072, 2

    class Updates(nn.Module):
        def __init__(self) -> None:
            self.steps = nn.State(dtype="i64", shape=())
            self.params = [nn.Linear(columns, width, bias=False, dtype="bf16") for _ in range(layers)]
            for name in [f"{moment}{i}" for moment in "mv" for i in range(layers)]:
                setattr(self, name, nn.State(dtype="bf16", shape=(columns, width)))

        def forward(self, rate: Any, *operands: Any) -> Any:
            pairs = zip(operands[:layers], operands[layers:], strict=True)
            gradients = [ops.matmul(x, dy, transpose_x=True) for x, dy in pairs]
            step = self.steps.sym() + 1
            self.steps.update(step)
            for i, gradient in enumerate(gradients):
                variables = (self.params[i].W, getattr(self, f"m{i}"), getattr(self, f"v{i}"))
                param, m, v = (variable.sym() for variable in variables)
                for variable, value in zip(
                    variables, ops.adamw_step(param, gradient, m, v, step, rate), strict=True
                ):
                    current_graph().update(variable, value)
            return ops.neg(rate)

    specs = [aicf.TensorSpec((), "bf16", "rate")]
    specs += [aicf.TensorSpec((rows, columns), "bf16", f"x{i}") for i in range(layers)]
    specs += [aicf.TensorSpec((rows, width), "bf16", f"dy{i}") for i in range(layers)]
    aicf.compile(aicf.trace(Updates(), specs), options=TARGET).save(path)


def norm(path: Path) -> None:
    """Gradients of a norm with their sums over many rows, which are brought into shared memory ahead."""
    import aicf
    from aicf import nn, optim

    specs = [aicf.TensorSpec((4096, 768), "f32", name) for name in ("x", "target")]
    step = aicf.compile_train_step(
        nn.Sequential(nn.LayerNorm(768)), nn.MSELoss(), optim.SGD(1e-3), specs, options=TARGET
    )
    step.save(path)


def linear_loss(path: Path) -> None:
    import aicf
    from aicf import ops

    def gradients(x: Any, w: Any, labels: Any, dloss: Any) -> Any:
        return ops.linear_cross_entropy_backward(x, w, labels, dloss, dtype="f32", transpose_w=True)

    specs = [
        aicf.TensorSpec((512, 64), "bf16", "x"),
        aicf.TensorSpec((1000, 64), "bf16", "w"),
        aicf.TensorSpec((512,), "i64", "labels"),
        aicf.TensorSpec((), "f32", "dloss"),
    ]
    aicf.compile(aicf.trace(gradients, specs), options=TARGET).save(path)


def encoder(shape: EncoderShape, batch: int, length: int, *options: str) -> Case:
    small = replace(shape, layers=1, vocabulary=200, positions=length)
    dims = ("--dim", f"batch={batch}", "--dim", f"sequence={length}", *options)
    words = (o.lstrip("-*=") for o in options)
    name = "-".join(["encoder", f"{shape.hidden}x{batch}x{length}", *words])
    ranges = {"input_ids": "0..199", "attention_mask": "0..1"}
    return Case(name, lambda path: write_encoder(path, small), dims, ranges)


LABELS = {"labels": "0..9"}
CASES = [
    encoder(WIDE, 1, 128),
    encoder(WIDE, 8, 128),
    encoder(MINILM, 64, 128),
    *(encoder(shape, 8, 128, "--choose", "*=matmul_attention") for shape in (MINILM, WIDE)),
    encoder(MINILM, 2, 77, "--target", "compute_80"),
    *(Case(f"linear-{rows}", linear(rows, 1024, 1024)) for rows in (1, 16, 64, 256, 2048)),
    Case("linear-tf32", linear(300, 260, 520, F32), ("--precision", "tf32")),
    Case("linear-f32", linear(300, 260, 520, F32)),
    way("linear-x-stays", 2048, 128, 3072, "128x192 stages 3 warpgroups 2 handed x stays"),
    way("linear-handed", 2048, 128, 3072, "128x192 stages 4 warpgroups 2 handed"),
    way("linear-handed-to-three", 2048, 256, 2304, "128x256 stages 3 warpgroups 2 handed"),
    way("linear-dealt", 200, 1096, 1000, "128x128 stages 5 splits 2 cluster warpgroups 2"),
    *(Case(f"linears-early-{rows}", early_linears(rows)) for rows in (1, 16, 64, 256)),
    *(Case(f"attention-{n}x{depth}", attention(n, depth)) for n, depth in ((700, 64), (300, 128), (50, 32))),
    *(Case(f"attention-{n}x{depth}x{heads}", attention(n, depth, heads)) for n, depth, heads in MANY_TILES),
    *(
        Case(f"attention-gradients-{n}x{depth}x{heads}", attention_gradients(n, depth, heads), traced=True)
        for n, depth, heads in MANY_TILES
    ),
    decoder(DECODER, "decoder"),
    decoder(ROPED, "decoder-roped"),
    Case("convolutions-f16", convolutions(F16)),
    Case("convolutions-f32", convolutions(F32)),
    Case("residual-block", residual_block(F16)),
    Case("tables", tables()),
    Case("softmax-long", nodes(BF16, {"x": (600, 33280)}, [("Softmax", ["x"], {"axis": -1})])),
    Case("equal-products", equal_products()),
    Case("mlp-tiny", mlp((8, 16, 8), 64, "f32"), (), {"labels": "0..7"}, True),
    Case("mlp", mlp((784, 512, 10), 128, "f32"), (), LABELS, True),
    Case("mlp-tf32", mlp((784, 512, 512, 10), 128, "tf32"), (), LABELS, True),
    Case("block", block, (), {"ids": "0..499", "labels": "0..499"}, True),
    Case("norm", norm, traced=True),
    Case("gradients-of-layers", gradients_of_layers, traced=True),
    # By the warps that multiply, in turns with others', and where tiles are handed on.
    Case("sums-in-groups", sums_in_groups(2048, 1000, 776, 4), traced=True),
    Case("sums-in-groups-alternate", sums_in_groups(1024, 1024, 1024, 6), traced=True),
    Case("sums-in-groups-handed", sums_in_groups(2048, 768, 768, 9), traced=True),
    Case("updates-in-groups", updates_in_groups, traced=True),
    Case("linear-loss", linear_loss, (), {"labels": "0..999"}, True),
]

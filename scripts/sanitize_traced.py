"""Training steps and gradients for sanitize_models.py, as compiled files: each function writes one, or gives
what writes it. aicf is imported where it is used: in the process that compiles.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

TARGET = {"target": "sm_90,cpu"}  # the CPU's is what loads where there is no GPU


def mlp(sizes: tuple[int, ...], batch: int, precision: str) -> Callable[[Path], None]:
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


def attention_windows(length: int, depth: int, heads: int) -> Callable[[Path], None]:
    """Attention of which a query sees some keys, with the logarithms of its sums, and its gradients."""

    def windows(q: Any, k: Any, v: Any, dout: Any) -> Any:
        from aicf import ops

        attributes = {"scale": depth**-0.5, "causal": True, "window": 150}
        out, sums = ops.attention_lse(q, k, v, **attributes)
        return sums, *ops.attention_backward(q, k, v, out, dout, **attributes)

    def write(path: Path) -> None:
        import aicf

        specs = [aicf.TensorSpec((1, heads, length, depth), "bf16", name) for name in ("q", "k", "v", "dout")]
        aicf.compile(aicf.trace(windows, specs), options=TARGET).save(path)

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

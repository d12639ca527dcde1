"""The models that sanitize_gpu.py runs: small ones that between them call every family of CUDA kernels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import sanitize_traced as traced
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
from sanitize_onnx import (
    BF16,
    F16,
    F32,
    attention,
    convolutions,
    early_linears,
    equal_products,
    gate,
    linear,
    loop,
    loop_body,
    nodes,
    residual_block,
    tables,
)

# A cache so long that attention adds up its parts in a second kernel.
DECODER = replace(
    LLAMA_1B, hidden=512, layers=1, heads=8, kv_heads=2, intermediate=1024, vocabulary=512, cache=20_000
)
# Attention needs no second kernel, and rotates and appends in its own.
ROPED = replace(DECODER, hidden=1024, heads=16, kv_heads=8, cache=300)
# Lengths, depths and heads of attention with more tiles than there are multiprocessors.
MANY_TILES = ((600, 64, 32), (400, 128, 40))
WIDE = EncoderShape(512, 1, 8, 2048)


@dataclass(frozen=True)
class Case:
    """`write` makes the .onnx file, compiled with `options`; or, where `traced`, the .aicf file itself.
    `left_out` says why a tool cannot judge the model."""

    name: str
    write: Callable[[Path], None]
    options: tuple[str, ...] = ()
    ranges: dict[str, str] = field(default_factory=dict)
    traced: bool = False
    left_out: dict[str, str] = field(default_factory=dict)


def way(name: str, rows: int, inner: int, outer: int, variant: str) -> Case:
    """linear() in a variant of products on matrix units."""
    return Case(name, linear(rows, inner, outer), ("--choose", f"*=matmul_tensor_core/wgmma {variant}"))


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
    # Rows that start anywhere, which products fetch by way of registers.
    Case("linear-odd", linear(200, 333, 251)),
    Case("linear-odd-tf32", linear(200, 333, 251, F32), ("--precision", "tf32")),
    *(
        Case(f"gate-{name}", gate(rows, inner, outer, element), ("--choose", "*=matmul_pair", *options))
        for name, rows, inner, outer, element, options in (
            ("f16", 300, 256, 512, F16, ()),
            ("odd", 200, 333, 251, BF16, ()),
            ("tf32", 300, 260, 520, F32, ("--precision", "tf32")),
        )
    ),
    # Reported are whole warps that meet at a barrier behind WARPSYNC.ALL, in every kernel with a barrier
    # that a conditional node runs, also one by itself; loop-body launches the same machine code.
    Case(
        "loop",
        loop(40, 72, 5),
        left_out={"synccheck": "it takes threads in bodies of conditional nodes for divergent"},
    ),
    Case("loop-body", loop_body(40, 72)),
    way("linear-stationary-x", 2048, 128, 3072, "128x192 stages 3 warpgroups 2 epilogue-warps stationary-x"),
    way("linear-epilogue-warps", 2048, 128, 3072, "128x192 stages 4 warpgroups 2 epilogue-warps"),
    way("linear-three-epilogue-warps", 2048, 256, 2304, "128x256 stages 3 warpgroups 2 epilogue-warps"),
    way("linear-reduce-scatter", 200, 1096, 1000, "128x128 stages 5 splits 2 cluster warpgroups 2"),
    *(Case(f"linears-early-{rows}", early_linears(rows)) for rows in (1, 16, 64, 256)),
    *(Case(f"attention-{n}x{depth}", attention(n, depth)) for n, depth in ((700, 64), (300, 128))),
    Case("attention-50x32", attention(50, 32), ("--choose", "*=attention_wgmma/split 16x128")),
    *(Case(f"attention-{n}x{depth}x{heads}", attention(n, depth, heads)) for n, depth, heads in MANY_TILES),
    *(
        Case(
            f"attention-gradients-{n}x{depth}x{heads}",
            traced.attention_gradients(n, depth, heads),
            traced=True,
        )
        for n, depth, heads in MANY_TILES
    ),
    *(
        Case(f"windows-{n}x{depth}x{heads}", traced.attention_windows(n, depth, heads), traced=True)
        for n, depth, heads in ((700, 64, 4), (600, 128, 4))
    ),
    decoder(DECODER, "decoder"),
    decoder(ROPED, "decoder-roped"),
    Case("convolutions-f16", convolutions(F16)),
    Case("convolutions-f32", convolutions(F32)),
    Case("convolutions-tf32", convolutions(F32), ("--precision", "tf32")),
    Case("residual-block", residual_block(F16)),
    Case("tables", tables()),
    Case("softmax-long", nodes(BF16, {"x": (600, 33280)}, [("Softmax", ["x"], {"axis": -1})])),
    Case("equal-products", equal_products()),
    Case("mlp-tiny", traced.mlp((8, 16, 8), 64, "f32"), (), {"labels": "0..7"}, True),
    Case("mlp", traced.mlp((784, 512, 10), 128, "f32"), (), LABELS, True),
    Case("mlp-tf32", traced.mlp((784, 512, 512, 10), 128, "tf32"), (), LABELS, True),
    Case("block", traced.block, (), {"ids": "0..499", "labels": "0..499"}, True),
    Case("norm", traced.norm, traced=True),
    Case("gradients-of-layers", traced.gradients_of_layers, traced=True),
    # By the warps that multiply, all at a time and in ping-pong, and by epilogue warps.
    Case("sums-in-groups", traced.sums_in_groups(2048, 1000, 776, 4), traced=True),
    Case("sums-in-groups-ping-pong", traced.sums_in_groups(1024, 1024, 1024, 6), traced=True),
    Case("sums-in-groups-epilogue-warps", traced.sums_in_groups(2048, 768, 768, 9), traced=True),
    Case("updates-in-groups", traced.updates_in_groups, traced=True),
    Case("linear-loss", traced.linear_loss, (), {"labels": "0..999"}, True),
]

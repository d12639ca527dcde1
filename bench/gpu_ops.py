"""Single ops in bf16 on one GPU beside PyTorch, both as bare CUDA Graph replays, in one run.

A program is several copies of the op over operands of their own, one graph, so that no copy finds its
operands in the L2 cache; a sample is microseconds of one copy, the mean over a batch of replays that keeps
the queue full. Ours, an ONNX model, and the peers take turns in one process: products and attention run at
the card's power limit, where who comes first finds it cool and its clock high. Needs torch with CUDA and
aicf in the Python that runs this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from gpu_replay import captured, microseconds_in_turns
from gpu_report import Report, bench_ours, beside, make_parser, median, require_cuda
from onnx import TensorProto, helper

ROWS, COLUMNS = 16384, 4096
ATTENTION = (4, 16, 4096, 128)


@dataclass(frozen=True)
class Op:
    """`build` adds the nodes of one copy over its operands' names; `sizes` are those of the operands,
    `weights` how many of them, from the end, are the model's. `peers` take tensors of these sizes."""

    name: str
    copies: int
    sizes: list[tuple[int, ...]]
    weights: int
    output: tuple[int, ...]
    build: Callable[[Copy], str]
    peers: dict[str, Callable[..., Any]]
    flops: float = 0

    @property
    def bytes(self) -> int:
        return 2 * (sum(int(np.prod(s)) for s in self.sizes) + int(np.prod(self.output)))


class Copy:
    """One copy of an op in the model."""

    def __init__(self, index: int, operands: list[str]) -> None:
        self.index, self.operands, self.nodes = index, operands, []

    def op(self, kind: str, inputs: list[str], **attributes: Any) -> str:
        name = f"value_{self.index}_{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name


def linear(gelu: str | None) -> Callable[[Copy], str]:
    def build(copy: Copy) -> str:
        y = copy.op("Gemm", copy.operands, transB=1)
        return copy.op("Gelu", [y], approximate=gelu) if gelu else y

    return build


def swiglu(copy: Copy) -> str:
    gate, up = copy.operands
    return copy.op("Mul", [copy.op("Mul", [gate, copy.op("Sigmoid", [gate])]), up])


def add_layer_norm(copy: Copy) -> str:
    x, residual, scale, bias = copy.operands
    return copy.op("LayerNormalization", [copy.op("Add", [x, residual]), scale, bias], axis=-1, epsilon=1e-5)


def attention(copy: Copy) -> str:
    return copy.op("Attention", copy.operands, is_causal=1)


def compiled(f: Callable[..., Any]) -> Callable[..., Any]:
    import torch

    return torch.compile(f, dynamic=False)


def linear_ops() -> list[Op]:
    import torch
    import torch.nn.functional as F

    def gelu_linear(x: Any, w: Any) -> Any:
        return F.gelu(F.linear(x, w), approximate="tanh")

    small = [
        Op(
            f"linear + GELU, {m} x 4096 x 4096",
            8,
            [(m, 4096), (4096, 4096)],
            1,
            (m, 4096),
            linear("tanh"),
            {"eager": gelu_linear, "torch.compile": compiled(gelu_linear)},
            2.0 * m * 4096 * 4096,
        )
        for m in (1, 16, 64, 256)
    ]
    return [
        *small,
        Op(
            "linear + bias + GELU, 8192 x 4096 x 4096",
            1,
            [(8192, 4096), (4096, 4096), (4096,)],
            2,
            (8192, 4096),
            linear("tanh"),
            {"cuBLASLt epilogue": lambda x, w, b: torch._addmm_activation(b, x, w.t(), use_gelu=True)},
            2.0 * 8192 * 4096 * 4096,
        ),
        Op(
            "linear, 8192 x 8192 x 8192",
            1,
            [(8192, 8192), (8192, 8192)],
            1,
            (8192, 8192),
            linear(None),
            {"cuBLAS": F.linear},
            2.0 * 8192**3,
        ),
    ]


def row_ops() -> list[Op]:
    import torch.nn.functional as F

    rows = (ROWS, COLUMNS)
    norm = (COLUMNS,)
    return [
        Op(
            "rmsnorm",
            2,
            [rows, norm],
            1,
            rows,
            lambda c: c.op("RMSNormalization", c.operands, axis=-1, epsilon=1e-5),
            {"torch.compile": compiled(lambda x, w: F.rms_norm(x, norm, w, 1e-5))},
        ),
        Op(
            "add + layernorm",
            2,
            [rows, rows, norm, norm],
            2,
            rows,
            add_layer_norm,
            {"torch.compile": compiled(lambda x, r, w, b: F.layer_norm(x + r, norm, w, b, 1e-5))},
        ),
        Op(
            "softmax",
            2,
            [rows],
            0,
            rows,
            lambda c: c.op("Softmax", c.operands, axis=-1),
            {"torch.compile": compiled(lambda x: F.softmax(x, -1))},
        ),
        Op(
            "swiglu",
            2,
            [rows, rows],
            0,
            rows,
            swiglu,
            {"torch.compile": compiled(lambda g, u: F.silu(g) * u)},
        ),
        Op("copy", 2, [rows], 0, rows, lambda c: c.op("Neg", c.operands), {"eager": lambda x: x.clone()}),
    ]


def attention_op() -> Op:
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def attend(backend: SDPBackend) -> Callable[..., Any]:
        def run(q: Any, k: Any, v: Any) -> Any:
            with sdpa_kernel(backend):
                return F.scaled_dot_product_attention(q, k, v, is_causal=True)

        return run

    batch, heads, length, depth = ATTENTION
    return Op(
        "attention, causal, 4 x 16 x 4096 x 128",
        1,
        [ATTENTION] * 3,
        0,
        ATTENTION,
        attention,
        {
            "cuDNN": attend(SDPBackend.CUDNN_ATTENTION),
            "FlashAttention-2": attend(SDPBackend.FLASH_ATTENTION),
        },
        2.0 * batch * heads * length * length * depth,
    )


def torch_ops() -> list[Op]:
    return [*linear_ops(), *row_ops(), attention_op()]


def write_model(op: Op, path: Path) -> None:
    """Operands that are the model's go to a file beside it: they are large."""
    rng = np.random.default_rng(0)
    data = path.with_suffix(".data")
    inputs, outputs, weights, nodes = [], [], [], []
    offset = 0
    with data.open("wb") as file:
        for index in range(op.copies):
            operands = [f"x_{index}_{i}" for i in range(len(op.sizes))]
            for i, (name, size) in enumerate(zip(operands, op.sizes, strict=True)):
                if i < len(op.sizes) - op.weights:
                    inputs.append(helper.make_tensor_value_info(name, TensorProto.BFLOAT16, size))
                    continue
                values = rng.standard_normal(size, np.float32) / 64
                tensor = TensorProto(name=name, data_type=TensorProto.BFLOAT16, dims=size)
                tensor.data_location = TensorProto.EXTERNAL
                length = file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())
                for key, value in {"location": data.name, "offset": offset, "length": length}.items():
                    tensor.external_data.add(key=key, value=str(value))
                offset += length
                weights.append(tensor)
            copy = Copy(index, operands)
            outputs.append(helper.make_tensor_value_info(op.build(copy), TensorProto.BFLOAT16, op.output))
            nodes += copy.nodes
    graph = helper.make_graph(nodes, "op", inputs, outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)], ir_version=11)
    path.write_bytes(model.SerializeToString())


def load_ours(op: Op, model: Path, operands: list[list[Any]]) -> Callable[[], object]:
    import aicf
    import torch

    executable = aicf.compile(model, device="cuda")
    inputs = [tensor for each in operands for tensor in each[: len(op.sizes) - op.weights]]
    outputs = [torch.empty(op.output, device="cuda", dtype=torch.bfloat16) for _ in operands]
    stream = torch.cuda.current_stream()
    return lambda: executable.run_into(inputs, outputs, stream=stream)


def measure(options: argparse.Namespace, op: Op, folder: Path) -> dict[str, Any]:
    import torch

    model = folder / "op.onnx"
    write_model(op, model)
    # What runs, and its kernels' times; samples beside the peers follow.
    alone = bench_ours(options, model, ["--target", options.target])
    operands = [
        [torch.randn(size, device="cuda", dtype=torch.bfloat16) for size in op.sizes]
        for _ in range(op.copies)
    ]
    programs = {"aicf": load_ours(op, model, operands)}
    with torch.no_grad():
        for name, peer in op.peers.items() if options.peers else []:
            programs[name] = captured(lambda peer=peer: [peer(*each) for each in operands])
    samples = microseconds_in_turns(programs, options.rounds, queued=20)
    record: dict[str, Any] = {"op": op.name, "copies": op.copies, "bytes": op.bytes, "flops": op.flops}
    for name in programs:
        record[name] = {"us": [sample / op.copies for sample in samples[name]]}
    record["aicf"] |= {"coverage": alone["coverage"], "kernels": alone["kernels"]}
    us = median(record["aicf"])
    text = f"{op.name:<42}{us:>9.1f} µs"
    text += f"{op.flops / us / 1e6:>8.0f} TF/s" if op.flops > 1e11 else f"{op.bytes / us / 1e3:>8.0f} GB/s"
    for name in programs:
        if name != "aicf":
            text += beside(name, record[name], record["aicf"])
    print(text, flush=True)
    return record


def main() -> int:
    parser = make_parser(__doc__)
    parser.add_argument("ops", nargs="*", help="parts of the names of ops; default: all")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    options = parser.parse_args()
    require_cuda()
    report = Report(options, ["torch", "onnx"])
    for op in torch_ops():
        if not options.ops or any(part in op.name for part in options.ops):
            with tempfile.TemporaryDirectory() as folder:
                report.measure(op.name, partial(measure, options, op, Path(folder)))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())

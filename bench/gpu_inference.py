"""Inference on one GPU beside torch.compile, both as bare CUDA Graph replays, in one run: encoders, ResNet-50
and a step of a decoder with its KV cache.

Ours: `aicf compile --target` and `aicf bench --device cuda`, with inputs and outputs on the device. The
peer: the same architecture in half precision through torch.compile, captured into a CUDA Graph, so that no
Python stands in its timed path. Samples are microseconds a replay, each the mean of a batch of replays that
keeps the queue full. Needs torch with CUDA, transformers and torchvision in the Python that runs this.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from gpu_models import (
    BERT_BASE,
    LLAMA_1B,
    MINILM,
    EncoderShape,
    decoder_states,
    write_decoder,
    write_encoder,
    write_resnet50,
)
from gpu_replay import captured, replay_microseconds
from gpu_report import (
    Report,
    bench_ours,
    beside,
    compile_cold,
    make_parser,
    median,
    require_cuda,
    select,
    tool,
)

DECODE_POSITION = 600


@dataclass(frozen=True)
class Row:
    """`write` gives the options to compile the model with, `values` are the bench's for its inputs."""

    model: str
    size: dict[str, int]
    dtype: str
    write: Callable[[Path], list[str]]
    values: list[str]
    peer: Callable[[], tuple[Any, dict[str, Any]]]

    @property
    def label(self) -> str:
        return "x".join(map(str, self.size.values()))


def encoder_row(name: str, shape: EncoderShape, batch: int, sequence: int) -> Row:
    def write(path: Path) -> list[str]:
        write_encoder(path, shape)
        return ["--dim", f"batch={batch}", "--dim", f"sequence={sequence}"]

    def peer() -> tuple[Any, dict[str, Any]]:
        import gpu_peers

        return gpu_peers.encoder(shape, batch, sequence)

    values = ["--range", "input_ids=0..30000", "--range", "attention_mask=1..1"]
    return Row(name, {"batch": batch, "sequence": sequence}, "f16", write, values, peer)


def resnet_row(batch: int) -> Row:
    def write(path: Path) -> list[str]:
        write_resnet50(path)
        return ["--dim", f"batch={batch}"]

    def peer() -> tuple[Any, dict[str, Any]]:
        import gpu_peers

        return gpu_peers.resnet50(batch)

    return Row("resnet50", {"batch": batch}, "f16", write, [], peer)


def decoder_row() -> Row:
    """The position stays where it is, for us and the peer, so that every replay is the same step."""

    def write(path: Path) -> list[str]:
        import gpu_peers
        import torch
        from onnx import TensorProto

        weights = gpu_peers.random_decoder_weights(LLAMA_1B, torch.bfloat16)
        stored = {name: w.cpu().view(torch.int16).numpy().tobytes() for name, w in weights.items()}
        write_decoder(path, LLAMA_1B, stored, TensorProto.BFLOAT16)
        return decoder_states(LLAMA_1B, advancing=False)

    def peer() -> tuple[Any, dict[str, Any]]:
        import gpu_peers
        import torch

        weights = gpu_peers.random_decoder_weights(LLAMA_1B, torch.bfloat16)
        return gpu_peers.decoder(LLAMA_1B, weights, DECODE_POSITION)

    values = ["--range", f"position={DECODE_POSITION}..{DECODE_POSITION}", "--range", "token=0..0"]
    size = {"batch": 1, "position": DECODE_POSITION}
    return Row("llama-1b-decode", size, "bf16", write, values, peer)


ROWS = [
    encoder_row("minilm", MINILM, 1, 32),
    encoder_row("minilm", MINILM, 64, 128),
    encoder_row("bert-base", BERT_BASE, 1, 128),
    encoder_row("bert-base", BERT_BASE, 32, 128),
    resnet_row(1),
    resnet_row(64),
    decoder_row(),
]


def parse_arguments() -> argparse.Namespace:
    parser = make_parser(__doc__)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument(
        "--modes", nargs="*", default=["default"], help="modes of torch.compile; none: no peer"
    )
    parser.add_argument(
        "--folder", type=Path, help="for models and artifacts, which stay; default: a temporary one"
    )
    return select(parser, [row.model for row in ROWS])


def measure_ours(options: argparse.Namespace, row: Row, folder: Path) -> dict[str, Any]:
    model = folder / f"{row.model}-{row.label}.onnx"
    artifact = model.with_suffix(".aicf")
    sizes = row.write(model)
    start = time.perf_counter()
    command = [options.aicf, "compile", str(model), *sizes, "--target", options.target]
    tool([*command, "-o", str(artifact), "--json"])
    seconds = time.perf_counter() - start
    return {"compile_seconds": seconds, **bench_ours(options, artifact, row.values)}


def measure_torch(row: Row, mode: str, rounds: int) -> dict[str, Any]:
    import torch

    torch._dynamo.reset()
    with torch.no_grad():
        model, arguments = row.peer()
        compiled = torch.compile(model, mode=None if mode == "default" else mode)
        start = time.perf_counter()
        compiled(**arguments)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        samples = replay_microseconds(captured(lambda: compiled(**arguments)), rounds, queued=20)
    return {"compile_seconds": seconds, "us": samples}


def require_peer() -> None:
    require_cuda()
    try:
        import torchvision  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"bench: {error}; GPU_PYTHON names a Python with it", file=sys.stderr)
        sys.exit(3)


def measure_row(options: argparse.Namespace, row: Row, folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = {"model": row.model, **row.size, "dtype": row.dtype}
    record["aicf"] = ours = measure_ours(options, row, folder)
    text = f"{row.model:<16}{row.label:>9}{median(ours):>10.1f}{ours['compile_seconds']:>11.2f}"
    for mode in options.modes:
        key = f"torch.compile {mode}, CUDA Graph"
        record[key] = peer = measure_torch(row, mode, options.rounds)
        text += f"{beside(key, peer, ours)}, compiled in {peer['compile_seconds']:.1f} s"
    print(text, flush=True)
    return record


def main() -> int:
    options = parse_arguments()
    compile_cold()
    if options.modes:
        require_peer()
    print(f"{'model':<16}{'size':>9}{'ours µs':>10}{'compile s':>11}   peer")
    report = Report(options, ["torch", "transformers"] if options.modes else [])
    for row in ROWS:
        if row.model in options.models:
            with tempfile.TemporaryDirectory() as folder:
                place = options.folder or Path(folder)
                report.measure(f"{row.model}-{row.label}", partial(measure_row, options, row, place))
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())

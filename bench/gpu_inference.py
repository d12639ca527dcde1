"""Inference on one GPU beside torch.compile, both as bare CUDA Graph replays, in one run: encoders, ResNet-50
and a step of a decoder with its KV cache.

Ours: `aicf compile --target` and `aicf bench --device cuda`, with inputs and outputs on the device. The
peer: the same architecture in half precision through torch.compile, captured into a CUDA Graph, so that no
Python stands in its timed path. Samples are microseconds a replay, each the mean of a batch of replays that
keeps the queue full. Needs torch with CUDA, transformers and torchvision in the Python that runs this.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = sorted({row.model for row in ROWS})
    parser.add_argument("models", nargs="*", help=f"any of {', '.join(names)}; default: all")
    parser.add_argument("--aicf", default="build/bin/aicf", help="the command line tool")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each program")
    parser.add_argument(
        "--modes", nargs="*", default=["default"], help="modes of torch.compile; none: no peer"
    )
    parser.add_argument(
        "--folder", type=Path, help="for models and artifacts, which stay; default: a temporary one"
    )
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    options = parser.parse_args()
    if unknown := set(options.models) - set(names):
        parser.error(f"no model {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    return options


def tool(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(arguments)}\n{done.stderr}", file=sys.stderr)
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def measure_ours(options: argparse.Namespace, row: Row, folder: Path) -> dict[str, Any]:
    model = folder / f"{row.model}-{row.label}.onnx"
    artifact = model.with_suffix(".aicf")
    sizes = row.write(model)
    start = time.perf_counter()
    tool(
        [
            options.aicf,
            "compile",
            str(model),
            *sizes,
            "--target",
            options.target,
            "-o",
            str(artifact),
            "--json",
        ]
    )
    seconds = time.perf_counter() - start
    command = [options.aicf, "bench", str(artifact), "--device", "cuda", "--repeat", str(options.rounds)]
    result = tool([*command, *row.values, "--kernels", "--json"])
    return {
        "compile_seconds": seconds,
        "us": [1e3 * sample for sample in result["samples"]],
        "coverage": result["coverage"],
        "kernels": result["kernels"],
    }


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
    """Ends with the code of an environment error, 3, before anything is measured without its peer."""
    try:
        import torch
        import torchvision  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"bench: {error}; GPU_PYTHON names a Python with it", file=sys.stderr)
        sys.exit(3)
    if not torch.cuda.is_available():
        print("bench: torch sees no CUDA device", file=sys.stderr)
        sys.exit(3)


def describe_gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def measure_row(options: argparse.Namespace, row: Row, folder: Path) -> dict[str, Any]:
    record: dict[str, Any] = {"model": row.model, **row.size, "dtype": row.dtype}
    record["aicf"] = measure_ours(options, row, folder)
    ours = float(np.median(record["aicf"]["us"]))
    text = f"{row.model:<16}{row.label:>9}{ours:>10.1f}{record['aicf']['compile_seconds']:>11.2f}"
    for mode in options.modes:
        key = f"torch.compile {mode}, CUDA Graph"
        record[key] = measure_torch(row, mode, options.rounds)
        peer = float(np.median(record[key]["us"]))
        text += f"   {key}: {peer:.1f} µs ({peer / ours:.2f}x ours)"
        text += f", compiled in {record[key]['compile_seconds']:.1f} s"
    print(text, flush=True)
    return record


def main() -> int:
    options = parse_arguments()
    if options.modes:
        require_peer()
    print(f"{'model':<16}{'size':>9}{'ours µs':>10}{'compile s':>11}   peer")
    rows = []
    for row in ROWS:
        if options.models and row.model not in options.models:
            continue
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure_row(options, row, options.folder or Path(folder)))
    versions = {}
    if options.modes:
        import torch
        import transformers

        versions = {"torch": torch.__version__, "transformers": transformers.__version__}
    if options.output is not None:
        record = {
            "schema": 1,
            "command": " ".join(["python", *sys.argv]),
            "gpu": describe_gpu(),
            "versions": versions,
            "rows": rows,
        }
        options.output.write_text(json.dumps(record, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Encoder inference on one GPU beside torch.compile, both as bare CUDA Graph replays, in one run.

Ours: `aicf compile --target` and `aicf bench --device cuda`, with inputs and outputs on the device. The
peer: the same architecture from transformers in half precision through torch.compile, captured into a CUDA
Graph, so that no Python stands in its timed path. Samples are microseconds a replay, each the mean of a batch
of replays that keeps the queue full. Needs torch with CUDA and transformers in the Python that runs this.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_models import BERT_BASE, MINILM, EncoderShape, write_encoder

ROWS = [
    ("minilm", MINILM, 1, 32),
    ("minilm", MINILM, 64, 128),
    ("bert-base", BERT_BASE, 1, 128),
    ("bert-base", BERT_BASE, 32, 128),
]
VALUES = ["--range", "input_ids=0..30000", "--range", "attention_mask=1..1"]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--aicf", default="build/bin/aicf", help="the command line tool")
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--rounds", type=int, default=30, help="samples of each program")
    parser.add_argument(
        "--modes", nargs="*", default=["default"], help="modes of torch.compile; none: no peer"
    )
    parser.add_argument("--output", type=Path, help="raw samples as JSON")
    return parser.parse_args()


def tool(arguments: list[str]) -> dict[str, Any]:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{' '.join(arguments)}\n{done.stderr}", file=sys.stderr)
        sys.exit(done.returncode)
    return json.loads(done.stdout)


def measure_ours(options: argparse.Namespace, model: Path, batch: int, sequence: int) -> dict[str, Any]:
    artifact = model.with_suffix(".aicf")
    start = time.perf_counter()
    sizes = ["--dim", f"batch={batch}", "--dim", f"sequence={sequence}"]
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
    result = tool([*command, *VALUES, "--kernels", "--json"])
    return {
        "compile_seconds": seconds,
        "us": [1e3 * sample for sample in result["samples"]],
        "coverage": result["coverage"],
        "kernels": result["kernels"],
    }


def captured(program: Callable[[], object]) -> Callable[[], object]:
    import torch

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            program()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program()
    return graph.replay


def measure_torch(shape: EncoderShape, batch: int, sequence: int, mode: str, rounds: int) -> dict[str, Any]:
    import torch
    from transformers import BertConfig, BertModel

    torch._dynamo.reset()
    config = BertConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
    )
    with torch.no_grad():
        model = BertModel(config, add_pooling_layer=False).half().cuda().eval()
        ids = torch.randint(0, 30000, (batch, sequence), device="cuda")
        mask = torch.ones_like(ids)
        compiled = torch.compile(model, mode=None if mode == "default" else mode)
        start = time.perf_counter()
        compiled(input_ids=ids, attention_mask=mask)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        replay = captured(lambda: compiled(input_ids=ids, attention_mask=mask))
        samples, queued = [], 20
        for index in range(rounds + 5):
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            for _ in range(queued):
                replay()
            last.record()
            torch.cuda.synchronize()
            if index >= 5:
                samples.append(1e3 * first.elapsed_time(last) / queued)
    return {"compile_seconds": seconds, "us": samples}


def require_peer() -> None:
    """Ends with the code of an environment error, 3, before anything is measured without its peer."""
    try:
        import torch
        import transformers  # noqa: F401
    except ImportError as error:
        print(f"bench: {error}; GPU_PYTHON names a Python with torch and transformers", file=sys.stderr)
        sys.exit(3)
    if not torch.cuda.is_available():
        print("bench: torch sees no CUDA device", file=sys.stderr)
        sys.exit(3)


def describe_gpu() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,clocks.mem", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def main() -> int:
    options = parse_arguments()
    if options.modes:
        require_peer()
    rows = []
    print(f"{'model':<12}{'size':>9}{'ours µs':>10}{'compile s':>11}   peer")
    for name, shape, batch, sequence in ROWS:
        with tempfile.TemporaryDirectory() as folder:
            model = Path(folder) / f"{name}.onnx"
            write_encoder(model, shape)
            row: dict[str, Any] = {"model": name, "batch": batch, "sequence": sequence, "dtype": "f16"}
            row["aicf"] = measure_ours(options, model, batch, sequence)
        ours = float(np.median(row["aicf"]["us"]))
        text = f"{name:<12}{f'{batch}x{sequence}':>9}{ours:>10.1f}{row['aicf']['compile_seconds']:>11.2f}"
        for mode in options.modes:
            key = f"torch.compile {mode}, CUDA Graph"
            row[key] = measure_torch(shape, batch, sequence, mode, options.rounds)
            peer = float(np.median(row[key]["us"]))
            text += f"   {key}: {peer:.1f} µs ({peer / ours:.2f}x ours)"
            text += f", compiled in {row[key]['compile_seconds']:.1f} s"
        print(text, flush=True)
        rows.append(row)
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

"""BERT-base 1x128, ViT-B/16 batch 1 and GPT-2 prefill 1x128 on the CPU, interleaved with eager torch,
torch.compile and onnxruntime; random weights; and the share that our contractions take of the machine's peak
of multiply-adds in the same run. Needs torch and transformers (requirements-torch.txt) and a build with
benches.

Writes the raw samples with machine, versions and command as JSON; prints medians, quartiles and ratios.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf
import torch
import transformers as hf
from aicf.compiler import build
from aicf.torch.executable import TorchExecutable
from aicf.torch.export import export
from aicf.torch.importer import import_entries

from bench.fma_peak import beside_fma_peak, contraction_flops, peak_line
from bench.machine import describe_machine, measured_tree, physical_cores, versions
from bench.stats import interleave, quartiles, ratios

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("torch", "transformers", "onnxruntime", "numpy")
Program = Callable[[], object]


def text() -> dict[str, torch.Tensor]:
    """With a mask: without one, GPT-2's own mask code holds an op that torch.onnx does not export."""
    return {
        "input_ids": torch.randint(0, 1000, (1, 128)),
        "attention_mask": torch.ones(1, 128, dtype=torch.int64),
    }


MODELS: dict[str, tuple[Callable[[], torch.nn.Module], Callable[[], dict[str, torch.Tensor]]]] = {
    "bert-base 1x128": (lambda: hf.BertModel(hf.BertConfig()), text),
    "vit-b/16 1": (
        lambda: hf.ViTModel(hf.ViTConfig()),
        lambda: {"pixel_values": torch.randn(1, 3, 224, 224)},
    ),
    "gpt-2 prefill 1x128": (lambda: hf.GPT2LMHeadModel(hf.GPT2Config(use_cache=False)), text),
}


class Plain(torch.nn.Module):
    """A Hugging Face model whose result is one tensor, for every program alike."""

    def __init__(self, model: torch.nn.Module, names: list[str]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        return self.model(**dict(zip(self.names, args, strict=True)))[0]


def compile_ours(
    model: Plain, args: tuple[Any, ...], threads: int
) -> tuple[TorchExecutable, dict[str, float]]:
    marks = [time.perf_counter()]
    with torch.no_grad():
        program, names, ranges = export(model, args)
        marks.append(time.perf_counter())
        imported = import_entries({"main": program}, [names], ranges)
        marks.append(time.perf_counter())
        exe = TorchExecutable(build(imported.program, "cpu", threads, {}), imported)
    marks.append(time.perf_counter())
    stages = ("torch.export", "import", "compile and load")
    return exe, {stage: b - a for stage, a, b in zip(stages, marks, marks[1:], strict=False)}


def onnxruntime_program(model: Plain, args: tuple[Any, ...], path: Path, threads: int) -> Program:
    import onnxruntime

    names = [f"x{i}" for i in range(len(args))]
    torch.onnx.export(model, args, path, input_names=names, output_names=["y"], dynamo=False)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    given = dict(zip(names, (x.numpy() for x in args), strict=True))
    return lambda: session.run(None, given)


@dataclass
class Prepared:
    """A model with the programs that run it, all compiled and called once."""

    name: str
    programs: dict[str, Program]
    compile_seconds: dict[str, float]
    relative_error: float
    contraction_flops: float


def flops_of(exe: TorchExecutable, build_folder: Path) -> float:
    with tempfile.TemporaryDirectory() as folder:
        artifact = Path(folder) / "model.aicf"
        exe.save(artifact)
        return contraction_flops(build_folder, artifact, {})


def prepare(name: str, threads: int, build_folder: Path) -> Prepared:
    make, example = MODELS[name]
    torch.manual_seed(0)
    inputs = example()
    model = Plain(make(), list(inputs)).eval()
    args = tuple(inputs.values())
    exe, seconds = compile_ours(model, args, threads)
    inductor = torch.compile(model)
    programs: dict[str, Program] = {
        "aicf": lambda: exe(*args),
        "eager": lambda: model(*args),
        "torch.compile": lambda: inductor(*args),
    }
    path = ROOT / "build" / "torch_model.onnx"
    try:
        programs["onnxruntime"] = onnxruntime_program(model, args, path, threads)
    except torch.onnx.errors.OnnxExporterError as error:
        print(f"{name}: without onnxruntime, as torch.onnx could not export it: {str(error)[:300]}")
    with torch.no_grad():
        expected = model(*args)
        error = ((exe(*args) - expected).abs().max() / expected.abs().max()).item()
        for program in programs.values():
            program()
    return Prepared(name, programs, seconds, error, flops_of(exe, build_folder))


def measure(prepared: Prepared, rounds: int) -> dict[str, Any]:
    with torch.no_grad():
        samples = interleave(prepared.programs, rounds)
    peers = [peer for peer in samples if peer != "aicf"]
    return {
        "model": prepared.name,
        "relative_error": prepared.relative_error,
        "compile_seconds": prepared.compile_seconds,
        "milliseconds": {key: quartiles(values).scaled(1e3).as_dict() for key, values in samples.items()},
        "peer_over_aicf": {peer: ratios(samples[peer], samples["aicf"]).as_dict() for peer in peers},
        "samples_seconds": samples,
    }


def call_overhead(repeats: int = 2000) -> dict[str, float]:
    """Microseconds of a call from Python whose program does next to nothing, medians of 9."""
    model = torch.nn.Linear(4, 4).eval()
    x = torch.randn(1, 4)
    exe = aicf.compile(model, (x,), threads=1)
    with torch.no_grad():
        found = {"aicf": lambda: exe(x), "eager": lambda: model(x)}
        return {name: 1e6 * sorted(_mean(call, repeats) for _ in range(9))[4] for name, call in found.items()}


def _mean(call: Program, repeats: int) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--build", type=Path, default=ROOT / "build", help="folder of bin/aicf and benches")
    parser.add_argument("--output", type=Path, required=True, help="JSON file")
    parser.add_argument("--start", type=Path, help="measure once this file exists, all models being compiled")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    hf.logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    (ROOT / "build").mkdir(exist_ok=True)
    report: dict[str, Any] = {
        "command": shlex.join(sys.argv),
        "machine": describe_machine(),
        **measured_tree(),
        "versions": versions(PACKAGES),
        "threads": options.threads,
        "models": [],
    }
    models = [prepare(name, options.threads, options.build) for name in options.models]
    print("READY", flush=True)
    while options.start is not None and not options.start.exists():
        time.sleep(0.1)
    report["call_microseconds"] = call_overhead()
    print("microseconds of a call", report["call_microseconds"])
    for model in models:
        timed = partial(measure, model, options.rounds)
        row = beside_fma_peak(timed, model.contraction_flops, options.build, options.threads)
        report["models"].append(row)
        medians = {key: round(value["median"], 2) for key, value in row["milliseconds"].items()}
        print(model.name, medians, {k: round(v["median"], 3) for k, v in row["peer_over_aicf"].items()})
        print("  seconds", {k: round(v, 2) for k, v in row["compile_seconds"].items()}, row["relative_error"])
        print(f"  {peak_line(row)}")
        options.output.write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()

"""What a model costs beside its replays on one GPU: cold compile, load to the first replay, a replay's share
of the host, launches.

    compile   median seconds of compiling with nothing cached, each time in a process of its own, and the
              longest module; torch.compile's first call with empty caches
    load      milliseconds from the file, which is in the page cache, to the end of the first replay, in a
              process that has used the device; copy: of as many bytes as the weights have, by torch
    host      microseconds of the calling thread to queue a replay whose tensors are on the device: the median
              of single calls, about 20 in a row after each wait, from C++ (aicf bench) and from Python
              (run_into); and that of the first calls after waits
    launches  kernels in the captured graph; in torch's, without copies and fills

Needs torch with CUDA, transformers and torchvision in the Python that runs this.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import gpu_inference
import gpu_train_steps
import numpy as np
from gpu_report import Record, Report, bench_ours, compile_cold, make_parser, require_cuda, select, tool

INFERENCE = {f"{row.model}-{row.label}": row for row in gpu_inference.ROWS}
TRAINING = {row.name: row for row in gpu_train_steps.ROWS}
NAMES = ["minilm-1x32", "bert-base-32x128", "resnet50-64", "llama-1b-decode-1x600", "mlp-mnist", "gpt2-124m"]
MOST_SECONDS = {
    "minilm-1x32": 2, "bert-base-32x128": 3, "resnet50-64": 4, "llama-1b-decode-1x600": 4, "mlp-mnist": 1,
    "gpt2-124m": 5,
}  # fmt: skip
MOST_LOAD_MS, MOST_HOST_US, MOST_PYTHON_US = 100, 5, 15
REPLAYS, ROUNDS = 20, 30


def child(*arguments: object, **variables: str) -> Record:
    command = [sys.executable, __file__, *map(str, arguments)]
    environment = {**os.environ, **variables}
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    return json.loads(done.stdout.splitlines()[-1])


# ---- ours


def compile_times(options: argparse.Namespace, name: str, folder: Path) -> tuple[Path, list[Record]]:
    """The artifact, and of every repetition the seconds; of models also those of stages and modules."""
    artifact = folder / "model.aicf"
    if name in TRAINING:
        return artifact, [child("--child", "train", name, artifact) for _ in range(options.repeats)]
    model = folder / "model.onnx"
    sizes = INFERENCE[name].write(model)
    command = [options.aicf, "compile", str(model), *sizes, "--target", options.target, "--json"]
    runs = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        answer = tool([*command, "-o", str(artifact)])
        run = {"seconds": time.perf_counter() - start, "stages": answer["stages"]}
        runs.append(run | {"modules": answer["modules"]})
    return artifact, runs


def compile_step(name: str, artifact: str) -> Record:
    return {"seconds": gpu_train_steps.save_ours(TRAINING[name], "cuda", Path(artifact))}


def first_replay(artifact: str, inspected: str) -> Record:
    """`inspected` is what `aicf inspect --json` says of the artifact."""
    import aicf
    import torch

    kinds = {"f16": torch.float16, "bf16": torch.bfloat16, "f32": torch.float32, "i64": torch.int64}
    stored = torch.zeros(os.stat(artifact).st_size, dtype=torch.uint8)
    torch.zeros(1, device="cuda")
    torch.cuda.synchronize()

    def tensors(infos: list[Record]) -> list[torch.Tensor]:
        return [
            torch.zeros([int(size) for size in info["shape"]], dtype=kinds[info["dtype"]], device="cuda")
            for info in infos
        ]

    about = json.loads(inspected)
    entry = about["targets"][0]["entries"][0]
    inputs, outputs, size = tensors(entry["inputs"]), tensors(entry["outputs"]), about["weight_bytes"]
    torch.cuda.synchronize()
    start = time.perf_counter()
    exe = aicf.load(artifact, device="cuda")
    exe.run_into(inputs, outputs, wait=True)
    loaded = time.perf_counter()
    copied = stored[:size].to("cuda")
    torch.cuda.synchronize()
    record = {"load_ms": 1e3 * (loaded - start), "weight_bytes": size}
    record["copy_ms"] = 1e3 * (time.perf_counter() - loaded)
    del copied
    return {**record, "python_us": host_microseconds(exe, inputs, outputs)}


def host_microseconds(exe: Any, inputs: list[Any], outputs: list[Any]) -> list[list[float]]:
    """Of every call of every round; a round ends with a wait."""
    rounds = []
    for _ in range(ROUNDS):
        times = [time.perf_counter()]
        for _ in range(REPLAYS):
            exe.run_into(inputs, outputs)
            times.append(time.perf_counter())
        rounds.append(list(1e6 * np.diff(times)))
        exe.finish()
    return rounds


# ---- the peer


def peer(name: str) -> Record:
    import torch
    from gpu_replay import launches

    if name in TRAINING:
        program = gpu_train_steps.peer_step(TRAINING[name])
    else:
        torch.set_grad_enabled(False)
        model, arguments = INFERENCE[name].peer()
        compiled = torch.compile(model)

        def program() -> object:
            return compiled(**arguments)

    start = time.perf_counter()
    program()
    torch.cuda.synchronize()
    return {"seconds": time.perf_counter() - start, "launches": launches(program)}


def cold_peer(name: str) -> Record:
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as cache:
        folders = {"TORCHINDUCTOR_CACHE_DIR": cache, "TRITON_CACHE_DIR": cache}
        return child("--child", "peer", name, **folders)


# ---- rows


def measure(options: argparse.Namespace, name: str, folder: Path) -> Record:
    artifact, compiles = compile_times(options, name, folder)
    inspected = json.dumps(tool([options.aicf, "inspect", str(artifact), "--json"]))
    loaded = child("--child", "load", artifact, inspected)
    record: Record = {"model": name, "compiles": compiles, **loaded}
    training = name in TRAINING
    values = gpu_train_steps.input_ranges(TRAINING[name]) if training else INFERENCE[name].values
    ours = bench_ours(options, artifact, values)
    record |= {key: ours[key] for key in ("host_us", "host_first_us")}
    record["launches"] = int(ours["coverage"].split("/")[0])  # "244/244 kernels in 1 graph"
    if not options.no_peer:
        record["torch.compile"] = cold_peer(name)
    return record


def describe(record: Record) -> str:
    seconds = [run["seconds"] for run in record["compiles"]]
    rounds = np.array(record["python_us"])
    load = record["load_ms"] - record["copy_ms"]
    python, python_first = (float(np.median(each)) for each in (rounds, rounds[:, 0]))
    limits = {
        "compile": (float(np.median(seconds)), MOST_SECONDS.get(record["model"], np.inf)),
        "load": (load, MOST_LOAD_MS),
        "C++": (record["host_us"], MOST_HOST_US),
        "Python": (python, MOST_PYTHON_US),
    }
    missed = [key for key, (value, most) in limits.items() if value > most]
    text = f"{record['model']:<22}compile {np.median(seconds):.2f} s"
    other = record.get("torch.compile")
    text += f" (torch.compile {other['seconds']:.1f})" if other else ""
    text += f", load {record['load_ms']:.0f} ms with {record['copy_ms']:.0f} of copy"
    text += f", host {record['host_us']:.1f} and {python:.1f} µs"
    text += f" (first {record['host_first_us']:.1f} and {python_first:.1f}), {record['launches']} launches"
    text += f" ({other['launches']})" if other else ""
    return text + (f"   beyond the limit: {', '.join(missed)}" if missed else "")


def main() -> int:
    if sys.argv[1:2] == ["--child"]:
        children = {"train": compile_step, "load": first_replay, "peer": peer}
        print(json.dumps(children[sys.argv[2]](*sys.argv[3:])))
        return 0
    parser = make_parser(__doc__)
    parser.set_defaults(rounds=5)
    parser.add_argument("--target", default="sm_90")
    parser.add_argument("--repeats", type=int, default=3, help="cold compiles")
    parser.add_argument("--no-peer", action="store_true")
    options = select(parser, NAMES)
    require_cuda()
    compile_cold()
    report = Report(options, ["torch"])
    for name in options.models:
        with tempfile.TemporaryDirectory() as folder:
            record = report.measure(name, partial(measure, options, name, Path(folder)))
        if record:
            print(describe(record), flush=True)
    return report.exit_code()


if __name__ == "__main__":
    sys.exit(main())

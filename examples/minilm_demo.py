"""`make demo`: the real all-MiniLM-L6-v2 from its ONNX file to a verified, replayed artifact on the CPU.

Writes the ONNX file, compiles it for batch 1..8 and sequence 16..512, embeds a page of sentences in a fresh
process from the saved artifact, and shows neighbours, agreement, plan, latency, verification.
Exit status: 0, or 1 if the agreement with float64 or the verification fails.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf

from bench.machine import describe_machine, physical_cores
from bench.stats import interleave, quartiles, ratios
from examples.minilm.agreement import MAX_ABS_ERROR, Agreement, Outputs, measure
from examples.minilm.console import Steps, show_count
from examples.minilm.export_onnx import export_key, write_minilm_onnx
from examples.minilm.fresh_process import embed_in_fresh_process
from examples.minilm.onnxruntime_peer import OnnxRuntimeMiniLm
from examples.minilm.reference_f64 import MiniLmF64
from examples.minilm.tokenizer import Inputs, MiniLmTokenizer, batches, random_inputs

ROOT = Path(__file__).resolve().parents[1]
SENTENCES = Path(__file__).parent / "minilm" / "sentences.txt"
DIMS = {"batch": "1..8", "sequence": "16..512"}
SHOWN_NEIGHBOURS = (0, 7, 12, 16, 20, 29)
LATENCY_SIZES = ((1, 128), (8, 128))


def read_sentences() -> list[str]:
    return SENTENCES.read_text(encoding="utf-8").splitlines()


def write_onnx_once(path: Path) -> bool:
    """True if the file was written, False if the one from an earlier run is still the same."""
    key_file = path.with_suffix(".key")
    key = export_key()
    if path.exists() and key_file.exists() and key_file.read_text() == key:
        return False
    key_file.unlink(missing_ok=True)
    write_minilm_onnx(path)
    key_file.write_text(key)
    return True


def compile_minilm(model: Path, artifact: Path) -> float:
    """Compiles and saves; returns the seconds of the compile alone."""
    start = time.perf_counter()
    exe = aicf.compile(str(model), dims=DIMS, device="cpu")
    seconds = time.perf_counter() - start
    exe.save(str(artifact))
    return seconds


def print_neighbours(sentences: Sequence[str], embeddings: np.ndarray) -> None:
    similarity = embeddings @ embeddings.T
    np.fill_diagonal(similarity, -1.0)
    for index in SHOWN_NEIGHBOURS:
        print(f"  {sentences[index]}")
        for other in np.argsort(-similarity[index])[:2]:
            print(f"    {similarity[index, other]:.3f}  {sentences[other]}")


def print_agreement(ours: Agreement, peer: Agreement, difference: float) -> None:
    print(f"cosine: {ours.cosine:.15f} (smallest over the sentences, against float64)")
    print(
        f"max abs error: {ours.max_abs_error:.2e} against float64 (limit {MAX_ABS_ERROR:.0e}; "
        f"embeddings {ours.embedding_error:.2e}, hidden states of tokens {ours.hidden_error:.2e})"
    )
    print(
        f"onnxruntime against float64: {peer.max_abs_error:.2e} "
        f"(embeddings {peer.embedding_error:.2e}, hidden states {peer.hidden_error:.2e})"
    )
    print(f"largest difference between the embeddings of aicf and onnxruntime: {difference:.2e}")


def check_agreement(model: Path, inputs: Sequence[Inputs], ours: Sequence[Outputs]) -> bool:
    reference = MiniLmF64()
    expected = []
    for index, group in enumerate(inputs):
        expected.append(reference(group))
        show_count(index + 1, len(inputs))
    session = OnnxRuntimeMiniLm(model, physical_cores())
    peer = [session(group) for group in inputs]
    masks = [group["attention_mask"] for group in inputs]
    agreement = measure(ours, expected, masks)
    difference = max(float(np.abs(a[1] - b[1]).max()) for a, b in zip(ours, peer, strict=True))
    print_agreement(agreement, measure(peer, expected, masks), difference)
    return agreement.passed


def print_latency(model: Path, artifact: Path, rounds: int) -> None:
    threads = physical_cores()
    exe = aicf.load(str(artifact))
    peer = OnnxRuntimeMiniLm(model, threads)
    print(f"latency, {threads} threads, {rounds} interleaved pairs, ms: median (quartiles)")
    print(f"  {'batch×seq':>10}  {'aicf':>24}  {'onnxruntime':>24}  onnxruntime / aicf")
    for batch, sequence in LATENCY_SIZES:
        inputs = random_inputs(batch, sequence)
        programs = {"aicf": lambda x=inputs: exe(**x), "onnxruntime": lambda x=inputs: peer(x)}
        samples = interleave(programs, rounds, on_round=show_count)
        cells = [quartiles(samples[name]).scaled(1e3) for name in ("aicf", "onnxruntime")]
        texts = [f"{q.median:.2f} ({q.q1:.2f}–{q.q3:.2f})" for q in cells]
        ratio = ratios(samples["onnxruntime"], samples["aicf"])
        print(
            f"  {f'{batch}×{sequence}':>10}  {texts[0]:>24}  {texts[1]:>24}"
            f"  {ratio.median:.2f} ({ratio.q1:.2f}–{ratio.q3:.2f})"
        )


def print_plan(artifact: Path) -> None:
    plan = aicf.load(str(artifact)).plan
    print(
        f"plan: {plan.regions} regions, {plan.kernels} kernels, arena {plan.arena_bytes:,} bytes; "
        f"{artifact.name} {artifact.stat().st_size:,} bytes"
    )


def verify_by_replay(tool: Path, artifact: Path, replays: int) -> bool:
    """Runs `aicf verify`, whose last line is `verify: N replays, 1 hash …`."""
    command = [str(tool), "verify", str(artifact), "-n", str(replays)]
    finished = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    print(finished.stdout.strip())
    return finished.returncode == 0


def demo(arguments: argparse.Namespace) -> bool:
    work: Path = arguments.work_dir
    work.mkdir(parents=True, exist_ok=True)
    model, artifact = work / "minilm.onnx", work / "minilm.aicf"
    steps = Steps(8)
    machine = describe_machine()
    print(f"machine: {machine['cpu']}, {machine['physical_cores']} cores")
    with steps.step("write the ONNX file from the packaged weights"):
        written = write_onnx_once(model)
    print(f"  {model.name}: {model.stat().st_size:,} bytes{'' if written else ' (from an earlier run)'}")
    with steps.step("compile for batch 1..8, sequence 16..512, and save"):
        compile_seconds = compile_minilm(model, artifact)
    print(f"compile: {compile_seconds:.2f} s")
    sentences = read_sentences()
    tokenizer = MiniLmTokenizer()
    inputs = [tokenizer(group) for group in batches(sentences)]
    with steps.step(f"embed {len(sentences)} sentences in a fresh process"):
        embedded = embed_in_fresh_process(artifact, inputs)
    print(f"load: {embedded.load_ms:.1f} ms; load to first result: {embedded.first_result_ms:.1f} ms")
    with steps.step("nearest neighbours"):
        print_neighbours(sentences, embedded.embeddings)
    with steps.step("agreement with float64 and onnxruntime"):
        agreed = check_agreement(model, inputs, embedded.outputs)
    with steps.step("plan"):
        print_plan(artifact)
    with steps.step("latency"):
        print_latency(model, artifact, arguments.pairs)
    with steps.step("verify"):
        verified = verify_by_replay(arguments.tool, artifact, arguments.replays)
    for passed, what in ((agreed, "agreement with float64"), (verified, "verification by replay")):
        if not passed:
            print(f"FAILED: {what}", file=sys.stderr)
    return agreed and verified


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--work-dir", type=Path, default=ROOT / "build" / "demo", help="where the files go")
    parser.add_argument("--tool", type=Path, default=ROOT / "build" / "bin" / "aicf", help="the aicf command")
    parser.add_argument("--pairs", type=int, default=30, help="interleaved timing pairs for each size")
    parser.add_argument("--replays", type=int, default=1000, help="replays that verify compares")
    return parser.parse_args()


def main() -> int:
    return 0 if demo(parse_arguments()) else 1


if __name__ == "__main__":
    sys.exit(main())

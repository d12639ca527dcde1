"""The models of the GPU board compile for sm_90 at their sizes, two layers deep: each kernel chosen for
them is one that the compiler of machine code takes."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto

pytest.importorskip("torch")  # whose modules give the train steps their weights
import gpu_models
import gpu_start
import gpu_train_steps

pytestmark = pytest.mark.usefixtures("nvrtc")
TARGET = {"target": "cpu,sm_90"}
ENCODERS = {
    "minilm 1x32": (gpu_models.MINILM, 1, 32),
    "minilm 64x128": (gpu_models.MINILM, 64, 128),
    "bert 1x128": (gpu_models.BERT_BASE, 1, 128),
    "bert 32x128": (gpu_models.BERT_BASE, 32, 128),
}
STEPS = {row.name: row for row in gpu_train_steps.ROWS if row.name != "linear-loss"}


@pytest.mark.parametrize("name", ENCODERS)
def test_encoder(name: str, tmp_path: Path) -> None:
    shape, batch, sequence = ENCODERS[name]
    path = tmp_path / "encoder.onnx"
    gpu_models.write_encoder(path, replace(shape, layers=2, vocabulary=1000))
    aicf.compile(path, dims={"batch": batch, "sequence": sequence}, options=TARGET)


@pytest.mark.parametrize("batch", [1, 64])
def test_resnet50(batch: int, tmp_path: Path) -> None:
    path = tmp_path / "resnet50.onnx"
    gpu_models.write_resnet50(path)
    aicf.compile(path, dims={"batch": batch}, options=TARGET)


def test_decoder(tmp_path: Path) -> None:
    shape = replace(gpu_models.LLAMA_1B, layers=2, vocabulary=1024)
    sizes = gpu_models.decoder_weights(shape)
    weights = {name: bytes(2 * int(np.prod(size))) for name, size in sizes.items()}
    path = tmp_path / "decoder.onnx"
    gpu_models.write_decoder(path, shape, weights, TensorProto.BFLOAT16)
    states = [text.split("=") for text in gpu_models.decoder_states(shape, advancing=True)[1::2]]
    options: dict[str, Any] = {**TARGET, "states": [tuple(pair) for pair in states]}
    aicf.compile(path, options=options)


@pytest.mark.parametrize("name", STEPS)
def test_training(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row = STEPS[name]
    if isinstance(row.shape, gpu_train_steps.Gpt):
        row = replace(row, shape=replace(row.shape, layers=2))
    for function in ("compile", "compile_train_step"):
        monkeypatch.setattr(aicf, function, partial(getattr(aicf, function), options=TARGET))
    gpu_train_steps.compile_ours(row, "cpu")


@pytest.mark.parametrize(("seconds", "load", "missed"), [(4.9, 109.0, ""), (5.1, 111.0, "compile, load")])
def test_limits_of_starting_are_seen(seconds: float, load: float, missed: str) -> None:
    assert set(gpu_start.NAMES) == set(gpu_start.MOST_SECONDS)
    assert set(gpu_start.NAMES) <= gpu_start.INFERENCE.keys() | gpu_start.TRAINING.keys()
    record = {
        "model": "gpt2-124m",
        "compiles": [{"seconds": seconds}],
        "load_ms": load,
        "copy_ms": 10.0,
        "python_us": [[30.0, 9.0, 9.0]],
        "host_us": 3.0,
        "host_first_us": 6.0,
        "launches": 323,
    }
    text = gpu_start.describe(record)
    assert text.endswith(f"beyond the limit: {missed}") if missed else "beyond" not in text

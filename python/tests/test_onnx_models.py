"""The nine real models of ONNX's backend suite: its own cases, and random weights against onnxruntime.

Errors are measured against the same model evaluated in f64, relative to the largest logit. `make test` leaves
the three with over 200 MB of weights to AICF_SOAK=1.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx
import pytest
from aicf.onnx import backend
from onnx import numpy_helper

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from bench.light_models import LIGHT_MODELS, image, input_name, light_path, random_weights, with_dtype

ort = pytest.importorskip("onnxruntime")

LARGE = ("bvlc_alexnet", "vgg19", "zfnet512")
MODELS = [name for name in LIGHT_MODELS if os.environ.get("AICF_SOAK") or name not in LARGE]
# A chain of n roundings in f32 is off by about sqrt(n) 2^-24 of its largest term; these nets have up to 121
# layers with sums of up to 4608 terms: sqrt(121 * 4608) * 2^-24 = 4.5e-5. Measured: below 1e-5.
TOLERANCE = 4.5e-5


def onnxruntime_run(model: onnx.ModelProto, x: np.ndarray) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.log_severity_level = 3
    session = ort.InferenceSession(model.SerializeToString(), options)
    return session.run(None, {input_name(model): x})


def aicf_run(model: onnx.ModelProto, x: np.ndarray, **options: Any) -> list[np.ndarray]:
    results = aicf.compile(model.SerializeToString(), **options)(x)
    return [np.asarray(r) for r in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.parametrize("name", MODELS)
def test_random_weights(name: str) -> None:
    model, x = random_weights(name), image()
    exact = aicf_run(with_dtype(model, np.dtype(np.float64)), x.astype(np.float64))
    ours, theirs = aicf_run(model, x), onnxruntime_run(model, x)
    assert len(ours) == len(theirs) == len(exact)
    for mine, peer, true in zip(ours, theirs, exact, strict=True):
        assert mine.shape == peer.shape == true.shape and np.isfinite(true).all()
        largest = np.abs(true).max()
        errors = {
            "aicf": np.abs(mine - true).max() / largest,
            "onnxruntime": np.abs(peer - true).max() / largest,
        }
        assert max(errors.values()) <= TOLERANCE, errors


@pytest.mark.parametrize("name", MODELS)
def test_case_of_the_suite(name: str) -> None:
    """As onnx's own runner does it: counting numbers as input, the stored output, its tolerances."""
    model = onnx.load(light_path(name))
    count = int(np.prod((1, 3, 224, 224)))
    x = (np.arange(count).reshape(1, 3, 224, 224) / count).astype(np.float32)
    stored = onnx.load_tensor(str(light_path(name)).replace(".onnx", "_output_0.pb"))
    (result,) = backend.prepare(model).run([x])
    np.testing.assert_allclose(result, numpy_helper.to_array(stored), rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["densenet121", "inception_v1", "squeezenet", "shufflenet"])
def test_concats_are_written_in_place(name: str) -> None:
    """58 concats of densenet121 (9, 8, 3 of the others): no step copies a part."""
    model = random_weights(name)
    assert any(node.op_type == "Concat" for node in model.graph.node)
    assert "concat" not in aicf.compile(model.SerializeToString()).explain()


def test_residuals_are_added_in_place() -> None:
    """ResNet-50: no step only adds or activates, and sums take the memory of what they are added to."""
    exe = aicf.compile(random_weights("resnet50").SerializeToString())
    assert exe.explain().count("conv_f32_packed") == 53
    assert "reused in place by" in str(exe.plan)

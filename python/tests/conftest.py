from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

# The benches' modules, which some tests try: of the tree, or beside a copy of the tests.
for folder in Path(__file__).resolve().parents:
    if (folder / "bench" / "gpu_report.py").exists():
        sys.path.insert(0, str(folder / "bench"))
        break

ROOT = Path(__file__).resolve().parents[2]
# Where programs look for NVRTC too, called with an environment that is not active.
if sys.prefix != sys.base_prefix:
    os.environ.setdefault("VIRTUAL_ENV", sys.prefix)

Mlp = tuple[bytes, Callable[[np.ndarray], np.ndarray]]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.fixture(scope="session")
def cli() -> str:
    """The command line tool: beside the interpreter in an installed wheel, else the tree's build."""
    beside, tree = Path(sys.executable).with_name("aicf"), ROOT / "build" / "bin" / "aicf"
    found = os.environ.get("AICF_CLI") or next((str(p) for p in (beside, tree) if p.exists()), None)
    found = found or shutil.which("aicf")
    if found is None:
        pytest.skip("the command line tool is not built: run make build")
    return found


@pytest.fixture(scope="session")
def nvrtc() -> None:
    """For tests that compile for a GPU: AICF_REQUIRE_NVRTC makes a failure of what else would be skipped."""
    try:
        aicf.compile(lambda x: x + 1, [aicf.TensorSpec((8,))], options={"target": "cpu,sm_80"})
    except aicf.EnvError:
        if "AICF_REQUIRE_NVRTC" in os.environ:
            raise
        pytest.skip("NVRTC is not installed")


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt, also where a shell started us that ignores it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def mlp() -> bytes:
    """x f32[batch, 16] → y f32[batch, 8]."""
    rng = np.random.default_rng(1)
    shapes: dict[str, Any] = {"W": (16, 32), "b": (32,), "V": (32, 8)}
    weights = [numpy_helper.from_array(rng.standard_normal(s).astype("f"), n) for n, s in shapes.items()]
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("MatMul", ["r", "V"], ["m"]),
        helper.make_node("Softmax", ["m"], ["y"], axis=-1),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 8])
    graph = helper.make_graph(nodes, "mlp", [x], [y], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()

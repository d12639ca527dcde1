"""A few hundred graphs of scripts/random_onnx.py; --count and --seed there draw more."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")
SCRIPT = Path(__file__).parents[2] / "scripts" / "random_onnx.py"


def test_random_graphs_are_right() -> None:
    command = [sys.executable, str(SCRIPT), "--count", "400", "--seed", "20261123"]
    finished = subprocess.run(command, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout[-4000:] + finished.stderr[-2000:]
    assert finished.stdout.endswith("seed 20261123: 400 graphs, 0 found\n"), finished.stdout[-4000:]


def test_bounds_follow_what_is_known_of_operands(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime has asin in f32 only: a result in f64 is known to f32's digits at the end of the domain,
    too, and what nothing is known of leaves nothing known of what changes with it."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    from random_onnx_graph import Graph, Rule, Value, compare

    graph = Graph(np.random.default_rng(0), 13, dynamic=False)
    edge = graph.const([[1.0], [-1.0]], np.float64)
    (asin,) = graph.node("Asin", [edge], Rule("round", 16))
    (least,) = graph.node("ReduceMin", [asin], keepdims=0)
    value = graph.values[least]
    assert compare(np.asarray(-np.pi / 2), value).right
    assert not compare(np.asarray(-np.pi / 2 + 1e-4), value).right
    graph.values[edge].error = np.array([[0.0], [np.inf]])
    (turned,) = graph.node("Neg", [edge])
    assert list(graph.values[turned].error.ravel()) == [0, np.inf]
    (least,) = graph.node("ReduceMin", [edge], keepdims=0)
    assert graph.values[least].error == np.inf
    graph.values["n"] = Value("n", np.array([1, 2]), np.array([0, np.inf]))
    (sums,) = graph.node("Add", ["n", "n"])
    assert not np.isfinite(graph.values[sums].error).any()


def test_a_value_that_leaves_what_a_node_asked_for_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scale that is 0 at another size has no right result that peers share."""
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    import random_onnx_graph
    from random_onnx_graph import Graph

    graph = Graph(np.random.default_rng(0), 13, dynamic=True)
    x = graph.new_input(np.float32, (6,), 0.25, 0.5)
    (scale,) = graph.node("ReduceMax", [x], keepdims=0)
    while scale not in graph.asked:
        taken = graph.value(np.float32, (), 0.02, 0.5, True)
    (y,) = graph.node("Div", [x, taken])
    model = random_onnx_graph.finish(graph, [y])
    model.axes[x], model.symbols["n"] = ["n"], 6
    assert random_onnx_graph.at_other_size(graph, model, {"n": 7}) is not None
    graph.asked[scale] = [(0.6, 1.0)]
    assert random_onnx_graph.at_other_size(graph, model, {"n": 7}) is None

"""Layers against numpy, names by path, safetensors, the KV cache."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import TensorSpec, nn

X = np.random.default_rng(5).standard_normal((3, 8)).astype("f")


def run(module: nn.Module, x: np.ndarray, dtype: str = "f32") -> np.ndarray:
    return np.asarray(aicf.compile(module, [TensorSpec(x.shape, dtype)], threads=1)(x))


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf)(x)


ACTIVATIONS: list[tuple[nn.Module, Any]] = [
    (nn.ReLU(), lambda x: np.maximum(x, 0)),
    (nn.GELU(), lambda x: x * (1 + erf(x / math.sqrt(2))) / 2),
    (nn.SiLU(), lambda x: x / (1 + np.exp(-x))),
    (nn.Tanh(), np.tanh),
    (nn.Sigmoid(), lambda x: 1 / (1 + np.exp(-x))),
    (nn.Softmax(), lambda x: np.exp(x) / np.exp(x).sum(-1, keepdims=True)),
    (nn.Dropout(), lambda x: x),
]


@pytest.mark.parametrize(("module", "expected"), ACTIVATIONS, ids=lambda case: type(case).__name__)
def test_activations(module: nn.Module, expected: Any) -> None:
    np.testing.assert_allclose(run(module, X), expected(X.astype("d")), rtol=1e-5, atol=1e-6)


def test_layers_with_params() -> None:
    linear = nn.Linear(8, 5)
    np.testing.assert_allclose(run(linear, X), X @ linear.W.data + linear.b.data, rtol=1e-5, atol=1e-5)
    table = nn.Embedding(10, 4)
    ids = np.array([[1, 9], [0, 3]])
    assert np.array_equal(run(table, ids, "i64"), table.W.data[ids])
    mean, var = X.mean(-1, keepdims=True), X.var(-1, keepdims=True)
    np.testing.assert_allclose(
        run(nn.LayerNorm(8), X), (X - mean) / np.sqrt(var + 1e-5), rtol=1e-4, atol=1e-5
    )
    square = (X * X).mean(-1, keepdims=True)
    np.testing.assert_allclose(run(nn.RMSNorm(8), X), X / np.sqrt(square + 1e-5), rtol=1e-4, atol=1e-5)


class Block(nn.Module):
    def __init__(self) -> None:
        self.attn = nn.MultiheadAttention(8, 2)
        self.norm = nn.RMSNorm(8)

    def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
        return x + self.attn(self.norm(x))


class Stack(nn.Module):
    def __init__(self) -> None:
        self.layers = [Block(), Block()]

    def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
        for layer in self.layers:
            x = layer(x)
        return x


def test_names_are_paths() -> None:
    names = list(Stack().state_dict())
    assert "layers.1.attn.q.W" in names and "layers.0.norm.scale" in names and len(names) == 18
    program = str(aicf.trace(Stack(), [TensorSpec((1, 4, 8))]))
    assert all(f'"{name}"' in program for name in names)


def test_safetensors_round_trip(tmp_path: Path) -> None:
    model, other = Stack(), Stack()
    model.save_safetensors(str(tmp_path / "m.safetensors"))
    other.load_safetensors(str(tmp_path / "m.safetensors"))
    x = np.random.default_rng(0).standard_normal((1, 4, 8)).astype("f")
    assert np.array_equal(run(model, x), run(other, x))


def test_state_dict_must_fit() -> None:
    linear = nn.Linear(8, 5)
    weights = linear.state_dict()
    for arrays, name in (
        ({"W": weights["W"]}, "unknown_param"),
        ({**weights, "c": weights["b"]}, "unknown_param"),
        ({**weights, "b": weights["b"][:4]}, "input_shape"),
        ({**weights, "b": weights["b"].astype("d")}, "input_dtype"),
    ):
        with pytest.raises(aicf.UserError) as caught:
            linear.load_state_dict(arrays)
        assert caught.value.name == name
    linear.load_state_dict({"b": np.zeros(5, "f")}, strict=False)
    assert not linear.b.data.any()


def attention(module: nn.MultiheadAttention, x: np.ndarray) -> np.ndarray:
    """Causal, in f64, head by head."""
    size, group = module.head_size, module.heads // module.kv_heads
    q, k, v = ((x @ layer.W.data + layer.b.data).astype("d") for layer in (module.q, module.k, module.v))
    length = x.shape[1]
    heads = []
    for head in range(module.heads):
        kv = head // group
        scores = (
            q[..., head * size :][..., :size]
            @ k[..., kv * size :][..., :size].swapaxes(1, 2)
            / math.sqrt(size)
        )
        seen = np.tri(length, dtype=bool)
        if module.window:
            seen &= ~np.tri(length, k=-module.window, dtype=bool)
        scores = np.where(seen, scores, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        heads.append(weights / weights.sum(-1, keepdims=True) @ v[..., kv * size :][..., :size])
    return np.concatenate(heads, -1) @ module.o.W.data + module.o.b.data


@pytest.mark.parametrize("window", [0, 1, 3])
def test_grouped_attention_and_its_cache(window: int) -> None:
    x = np.random.default_rng(1).standard_normal((2, 6, 32)).astype("f")
    plain = nn.MultiheadAttention(32, 4, 2, causal=True, window=window)
    expected = attention(plain, x)
    np.testing.assert_allclose(run(plain, x), expected, rtol=1e-4, atol=1e-5)
    cached = nn.MultiheadAttention(32, 4, 2, window=window, cache=(2, 16))
    cached.load_state_dict(plain.state_dict())
    exe = aicf.compile(cached, [TensorSpec((2, "t", 32))], dims={"t": "1..16"}, threads=1)
    parts = [np.asarray(exe(x[:, begin:end])) for begin, end in ((0, 3), (3, 4), (4, 6))]
    np.testing.assert_allclose(np.concatenate(parts, 1), expected, rtol=1e-4, atol=1e-5)
    assert int(np.asarray(exe.state_dict()["position"])) == 6


def test_a_parameter_outside_the_traced_module_is_refused() -> None:
    linear = nn.Linear(8, 5)
    with pytest.raises(aicf.UserError, match="no traced module"):
        aicf.trace(lambda x: linear(x), [TensorSpec((3, 8))])
    assert '"W"' in str(aicf.trace(lambda x: linear(x), [TensorSpec((3, 8))], module=linear))


def test_params_that_were_never_given_values_are_named_when_compiling() -> None:
    class Declared(nn.Module):
        def __init__(self) -> None:
            self.W = nn.Parameter(dtype="bf16", shape=(4, 3))
            self.b = nn.Parameter(np.zeros(3, "f"))

        def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
            return aicf.ops.matmul(x, aicf.ops.cast(self.W, dtype="f32")) + self.b

    model = Declared()
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, [aicf.TensorSpec((2, 4))])
    assert (caught.value.name, caught.value.value) == ("unknown_param", "W")
    assert "load_state_dict" in caught.value.remedy
    model.load_state_dict({"b": np.ones(3, "f")}, strict=False)
    with pytest.raises(aicf.UserError):
        aicf.compile(model, [aicf.TensorSpec((2, 4))])

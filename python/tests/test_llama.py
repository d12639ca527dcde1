"""The decoder of aicf.nn: steps with a cache against one long causal pass, and against transformers."""

from __future__ import annotations

from typing import Any

import aicf
import numpy as np
import pytest
from aicf import nn

CONFIG = nn.LlamaConfig(
    vocabulary=97, features=48, layers=2, heads=6, kv_heads=2, hidden=80, cache=24, theta=1000.0
)
PROMPT = np.array([[5, 17, 90, 3, 41]])


def model() -> nn.Llama:
    nn.seed(3)
    llama = nn.Llama(CONFIG)
    for _, parameter in llama.named_parameters():
        parameter.data *= 4  # so that the most likely tokens stand apart
    return llama


def rms(x: np.ndarray, scale: Any) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + CONFIG.epsilon) * scale


def rotated(x: np.ndarray) -> np.ndarray:
    """x [heads, T, head]."""
    angles = CONFIG.angles()[: x.shape[1]]
    low, high = np.split(x, 2, -1)
    return np.concatenate(
        (low * np.cos(angles) - high * np.sin(angles), high * np.cos(angles) + low * np.sin(angles)), -1
    )


def causal_pass(w: dict[str, np.ndarray], ids: np.ndarray) -> np.ndarray:
    """Logits f64 [T, vocabulary] of one sequence, without a cache."""
    c, length = CONFIG, len(ids)
    x = w["embedding"][ids]
    for i in range(c.layers):
        p = f"layers.{i}."
        qkv = (rms(x, w[p + "attn_norm.scale"]) @ w[p + "qkv.W"]).reshape(length, -1, c.head).swapaxes(0, 1)
        q, k, v = np.split(qkv, [c.heads, c.heads + c.kv_heads])
        k, v = (np.repeat(part, c.heads // c.kv_heads, 0) for part in (rotated(k), v))
        scores = rotated(q) @ k.swapaxes(1, 2) / np.sqrt(c.head)
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        scores = np.exp(scores - scores.max(-1, keepdims=True))
        context = (scores / scores.sum(-1, keepdims=True)) @ v
        x = x + context.swapaxes(0, 1).reshape(length, -1) @ w[p + "o.W"]
        y = rms(x, w[p + "mlp_norm.scale"])
        gate, up = np.split(y @ w[p + "gate_up.W"], 2, -1)
        x = x + (gate / (1 + np.exp(-gate)) * up) @ w[p + "down.W"]
    return rms(x, w["norm.scale"]) @ w["embedding"].T


def test_steps_go_on_by_themselves_and_equal_one_causal_pass() -> None:
    llama = model()
    exe = aicf.compile(llama.program(prompt="1..8"), threads=1)
    tokens = [int(np.asarray(exe.run_entry("prefill", ids=PROMPT))[0, 0])]
    tokens += [int(np.asarray(exe())[0, 0]) for _ in range(12)]
    weights = {name: np.asarray(array, "d") for name, array in llama.state_dict().items()}
    ids = [*PROMPT[0], *tokens]
    logits = causal_pass(weights, np.array(ids[:-1]))[PROMPT.shape[1] - 1 :]
    assert tokens == list(logits.argmax(-1))
    states = {name: np.asarray(value) for name, value in exe.state_dict().items()}
    assert states["position"][0] == len(ids) - 1
    assert states["token"][0, 0] == tokens[-1]
    # Written up to the position, and nowhere else.
    cache = states["layers.1.k_cache"]
    assert np.all(np.any(cache[:, :, : len(ids) - 1], axis=-1))
    assert not np.any(cache[:, :, len(ids) - 1 :])


def test_logits_of_a_prompt() -> None:
    llama = model()
    exe = aicf.compile(aicf.trace(llama.logits, [aicf.TensorSpec((1, 5), "i64")], module=llama), threads=1)
    weights = {name: np.asarray(array, "d") for name, array in llama.state_dict().items()}
    np.testing.assert_allclose(
        np.asarray(exe(PROMPT))[0], causal_pass(weights, PROMPT[0]), rtol=1e-4, atol=1e-4
    )


def test_caches_are_written_in_place() -> None:
    plan = str(aicf.compile(model().program()).plan)
    assert "scatter_elements" in plan
    assert "update layers" not in plan


def test_a_full_cache_is_an_error() -> None:
    exe = aicf.compile(model().program(prompt="1..24"), threads=1)
    exe.run_entry("prefill", ids=np.zeros((1, 24), "i8"))
    with pytest.raises(aicf.UserError) as error:
        exe()
    assert error.value.code == "AICF-U0405"


def test_weights_of_transformers() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    c = CONFIG
    torch.manual_seed(0)
    theirs = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=c.vocabulary,
            hidden_size=c.features,
            intermediate_size=c.hidden,
            num_hidden_layers=c.layers,
            num_attention_heads=c.heads,
            num_key_value_heads=c.kv_heads,
            rms_norm_eps=c.epsilon,
            rope_theta=c.theta,
            tie_word_embeddings=True,
        )
    ).eval()
    llama = nn.Llama(c)
    llama.load_transformers(theirs.state_dict())
    exe = aicf.compile(aicf.trace(llama.logits, [aicf.TensorSpec((1, 5), "i64")], module=llama))
    with torch.no_grad():
        expected = theirs(torch.from_numpy(PROMPT)).logits.numpy()
    np.testing.assert_allclose(np.asarray(exe(PROMPT)), expected, rtol=1e-4, atol=1e-5)

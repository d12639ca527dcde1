"""LinearAttention, step by step in f64."""

from __future__ import annotations

import aicf
import numpy as np
import pytest
from onnx import helper
from onnx_nodes import draw, model_of, ours, specs

BATCH, STEPS, DEPTH, VALUES = 2, 3, 4, 5
RULES = {"linear": [], "gated": ["decay"], "delta": ["beta"], "gated_delta": ["decay", "beta"]}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize(("queries", "heads"), [(1, 1), (2, 1), (4, 2)])
def test_steps_of_a_state(rule: str, queries: int, heads: int) -> None:
    feeds = {
        "q": draw(BATCH, STEPS, queries * DEPTH),
        "k": draw(BATCH, STEPS, heads * DEPTH),
        "v": draw(BATCH, STEPS, heads * VALUES),
        "s": draw(BATCH, heads, DEPTH, VALUES),
        "decay": -np.abs(draw(BATCH, STEPS, heads * DEPTH)),
        "beta": np.abs(draw(BATCH, STEPS, heads)),
    }
    given = ["q", "k", "v", "s", *RULES[rule]]
    feeds = {name: feeds[name] for name in given}
    names = ["q", "k", "v", "s", *(n if n in given else "" for n in ("decay", "beta"))]
    node = helper.make_node(
        "LinearAttention",
        names,
        ["y", "state"],
        q_num_heads=queries,
        kv_num_heads=heads,
        update_rule=rule,
        scale=0.3,
    )
    exe = aicf.compile(model_of([node], specs(feeds), ["y", "state"]), threads=1)
    y, state = ours(exe, feeds)

    def split(name: str, count: int) -> np.ndarray:
        return feeds[name].astype(np.float64).reshape(BATCH, STEPS, count, -1)

    s = feeds["s"].astype(np.float64)
    q, k, v = split("q", queries), split("k", heads), split("v", heads)
    rows = []
    for t in range(STEPS):
        if "decay" in given:
            s = s * np.exp(split("decay", heads)[:, t])[..., None]
        update = v[:, t]
        if "beta" in given:
            update = (update - np.einsum("bhd,bhdv->bhv", k[:, t], s)) * split("beta", heads)[:, t]
        s = s + k[:, t][..., None] * update[..., None, :]
        rows.append(np.einsum("bhd,bhdv->bhv", q[:, t], s.repeat(queries // heads, axis=1)) * 0.3)
    np.testing.assert_allclose(y, np.stack(rows, 1).reshape(y.shape), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(state, s, rtol=1e-4, atol=1e-5)

"""What a run that fails on its data or on a limit leaves of the states: what they were, or nothing unsaid."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import aicf
import numpy as np
import onnx.parser
import pytest
from aicf import nn, optim
from test_llama import PROMPT
from test_llama import model as llama


def snapshot(exe: Any) -> dict[str, np.ndarray]:
    return {name: np.array(value) for name, value in exe.state_dict().items()}


def assert_same(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


def code_of(run: Callable[[], Any]) -> str:
    with pytest.raises(aicf.UserError) as caught:
        run()
    return str(caught.value.code)


@pytest.mark.parametrize("bad", [97, -98, 1 << 40])
def test_a_prompt_with_an_unknown_token_changes_nothing(bad: int) -> None:
    exe = aicf.compile(llama().program(prompt="1..24"), threads=1)
    other = aicf.compile(llama().program(prompt="1..24"), threads=1)
    for each in (exe, other):
        each.run_entry("prefill", ids=PROMPT)
    before = snapshot(exe)
    ids = PROMPT.copy()
    ids[0, 3] = bad
    assert code_of(lambda: exe.run_entry("prefill", ids=ids)) == "AICF-U0405"
    assert_same(snapshot(exe), before)
    assert np.array_equal(np.asarray(exe()), np.asarray(other()))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("place", ["ids", "labels"])
def test_a_batch_with_a_bad_index_trains_nothing(place: str, threads: int) -> None:
    def make() -> Any:
        nn.seed(0)
        model = nn.Sequential(
            nn.Embedding(10, 8), nn.Flatten(), nn.Linear(32, 16), nn.GELU(), nn.Linear(16, 4)
        )
        inputs = [aicf.TensorSpec((6, 4), "i64", "ids"), aicf.TensorSpec((6,), "i64", "labels")]
        return aicf.compile_train_step(
            model, nn.CrossEntropyLoss(), optim.AdamW(1e-2), inputs, clip_norm=1.0, threads=threads
        )

    ids = np.random.default_rng(0).integers(0, 10, (6, 4))
    batch = {"ids": ids, "labels": ids[:, 0] % 4}
    broken = {name: value.copy() for name, value in batch.items()}
    broken[place].flat[2] = 77
    step, undisturbed = make(), make()
    for each in (step, undisturbed):
        each(*batch.values())
    for _ in range(2):
        assert code_of(lambda: step(*broken.values())) == "AICF-U0405"
        assert step.hash() == undisturbed.hash()
    losses = [float(np.asarray(each(*batch.values()))) for each in (step, undisturbed)]
    assert losses[0] == losses[1] and step.hash() == undisturbed.hash()


# The count is kept before the gather that it decides, so that a failed run has written it.
COUNTS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[4, 2] table, int64[1] past) => (float[1, 2] y, int64[1] present)
<int64[1] one = {1}>
{
  present = Add (past, one)
  y = Gather <axis = 0> (table, present)
}
"""


def test_states_that_a_failed_run_wrote_are_lost_until_they_are_set() -> None:
    model = onnx.parser.parse_model(COUNTS)
    exe = aicf.compile(model.SerializeToString(), options={"states": {"past": "present"}}, threads=1)
    table = np.arange(8, dtype="f").reshape(4, 2)

    def fail() -> None:
        assert [float(np.asarray(exe(table=table))[0, 0]) for _ in range(3)] == [2, 4, 6]
        assert code_of(lambda: exe(table=table)) == "AICF-U0405"

    fail()
    uses = [
        lambda: exe(table=table),
        exe.state_dict,
        lambda: exe.verify(n=2),
        lambda: exe.clone()(table=table),
    ]
    for use in uses:
        assert code_of(use) == "AICF-U0409"
    exe.reset()
    fail()
    exe.load_state_dict({"past": np.array([1])})
    assert float(np.asarray(exe(table=table))[0, 0]) == 4


ENDLESS = """
<ir_version: 8, opset_import: ["" : 17]>
g (float[3] x, int64[1] past) => (float[3] y, int64[1] present)
<int64[1] one = {1}, bool go = {1}, float least = {-1.0}>
{
  present = Add (past, one)
  y = Loop (, go, x) <body = b (int64 i, bool c, float[3] a) => (bool c2, float[3] a2)
  { a2 = Abs (a)  s = ReduceMax <keepdims = 0> (a2)  c2 = Greater (s, least) }>
}
"""


def test_a_loop_that_the_limit_stops_moves_no_state_unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AICF_MAX_SECONDS", "0.2")
    model = onnx.parser.parse_model(ENDLESS)
    exe = aicf.compile(model.SerializeToString(), options={"states": {"past": "present"}}, threads=1)
    assert code_of(lambda: exe(x=np.ones(3, "f"))) == "AICF-U0503"
    try:
        assert snapshot(exe)["past"] == [0]
    except aicf.UserError as error:
        assert error.code == "AICF-U0409"
        exe.reset()
        assert snapshot(exe)["past"] == [0]

"""A train step as Python sees it: it learns, repeats itself bit for bit, refuses what cannot be trained."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import aicf
import numpy as np
import pytest
from aicf import nn, ops, optim

Batch = tuple[np.ndarray, np.ndarray]
Make = Callable[..., aicf.TrainStep]


def number(value: object) -> float:
    return float(np.asarray(value))


def train(step: aicf.TrainStep, batches: list[Batch], count: int) -> list[float]:
    return [number(step(*batches[i % len(batches)])) for i in range(count)]


def test_it_learns_and_says_where_it_is(make_step: Make, batches: list[Batch]) -> None:
    step = make_step()
    losses = train(step, batches, 300)
    assert losses[-1] < 0.2 * losses[0]
    assert (step.steps, step.skipped, step.bad_tensor) == (300, 0, None)
    right = [np.asarray(step.evaluate(x)).argmax(1) == y for x, y in batches]
    assert np.mean(right) > 0.95


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"accumulate": 3},
        {"precision": "bf16-mixed"},
        {"precision": "f16-mixed", "loss_scale": optim.LossScale(1024.0)},
        {"clip_norm": 0.5},
    ],
)
def test_same_bits_for_every_thread_count_and_after_a_restore(
    make_step: Make, batches: list[Batch], tmp_path: Path, options: dict
) -> None:
    hashes = set()
    for threads in (1, 2):
        step = make_step(threads=threads, **options)
        train(step, batches, 500)
        step.save_checkpoint(tmp_path / "half.safetensors", {"note": "half"})
        train(step, batches[500 % 12 :] + batches[: 500 % 12], 500)
        hashes.add(step.hash())
    other = make_step(**options)
    assert other.load_checkpoint(tmp_path / "half.safetensors")["note"] == "half"
    train(other, batches[500 % 12 :] + batches[: 500 % 12], 500)
    assert hashes == {other.hash()}


def test_a_saved_step_goes_on(make_step: Make, batches: list[Batch], tmp_path: Path) -> None:
    step = make_step(accumulate=2)
    train(step, batches, 7)
    step.save(tmp_path / "step.aicf")
    again = aicf.load_train_step(tmp_path / "step.aicf")
    assert again.hash() == step.hash()
    assert train(step, batches, 5) == train(again, batches, 5)
    assert again.hash() == step.hash()


def test_verify_leaves_the_run_where_it_was(make_step: Make, batches: list[Batch]) -> None:
    step = make_step()
    train(step, batches, 3)
    before = step.hash()
    result = step.verify(steps=20, inputs=batches)
    assert result.passed and result.replays == 40 and step.hash() == before != result.hash


def test_accumulated_batches_equal_one_large_one(make_step: Make, data: Batch) -> None:
    x, y = data
    specs = [aicf.TensorSpec((48, 12)), aicf.TensorSpec((48,), "i64", "labels")]
    small, large = make_step(accumulate=3), make_step(inputs=specs)
    for i in range(0, 144, 48):
        large(x[i : i + 48], y[i : i + 48])
        train(small, [(x[j : j + 16], y[j : j + 16]) for j in range(i, i + 48, 16)], 3)
    for name, value in large.parameters().items():
        np.testing.assert_allclose(
            np.asarray(small.parameters()[name]), np.asarray(value), rtol=2e-4, atol=1e-6
        )
    assert small.steps == large.steps == 3


def test_nan_in_the_data_is_named_and_changes_nothing(make_step: Make, batches: list[Batch]) -> None:
    step = make_step(clip_norm=1.0)
    train(step, batches, 5)
    before = {name: np.asarray(value).copy() for name, value in step.state_dict().items()}
    x, y = batches[0][0].copy(), batches[0][1]
    x[3, 2] = np.nan
    step(x, y)
    assert (step.bad_tensor, step.skipped, step.steps) == ("loss", 1, 5)
    with pytest.raises(aicf.UserError, match="loss") as error:
        step.require_finite()
    assert error.value.name == "bad_tensor"
    for name, value in step.state_dict().items():
        if name not in ("opt.bad_tensor", "opt.skipped"):
            np.testing.assert_array_equal(np.asarray(value), before[name], err_msg=name)
    step.clear_bad_tensor()
    train(step, batches, 1)
    assert (step.bad_tensor, step.steps) == (None, 6)


def test_labels_out_of_range_change_nothing(make_step: Make, batches: list[Batch]) -> None:
    step = make_step()
    before = {name: np.asarray(value).copy() for name, value in step.parameters().items()}
    x, y = batches[0][0], batches[0][1].copy()
    y[0] = 4
    with pytest.raises(aicf.UserError) as error:
        step(x, y)
    assert error.value.name == "index_out_of_range"
    for name, value in step.parameters().items():
        np.testing.assert_array_equal(np.asarray(value), before[name], err_msg=name)


def test_a_batch_that_fails_is_none_of_those_accumulated(make_step: Make, batches: list[Batch]) -> None:
    step, undisturbed = make_step(accumulate=2), make_step(accumulate=2)
    x, y = batches[0][0], batches[0][1].copy()
    y[0] = 4
    for batch in batches[:4]:
        with pytest.raises(aicf.UserError):
            step(x, y)
        assert step.hash() == undisturbed.hash()
        for each in (step, undisturbed):
            each(*batch)
        assert step.hash() == undisturbed.hash()
    assert (step.steps, step.skipped) == (2, 0)


def test_a_batch_that_is_not_finite_moves_no_running_statistics(make_step: Make) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4))
    specs = [aicf.TensorSpec((3, 1, 2, 2)), aicf.TensorSpec((3,), "i64", "labels")]
    step = make_step(model=model, inputs=specs, accumulate=2)
    before = {name: np.asarray(value).copy() for name, value in step.state_dict().items()}
    x, y = np.random.default_rng(0).standard_normal((3, 1, 2, 2)).astype(np.float32), np.arange(3)
    step(np.full_like(x, np.nan), y)
    for name, value in step.state_dict().items():
        if not name.startswith("opt."):
            np.testing.assert_array_equal(np.asarray(value), before[name], err_msg=name)
    step(x, y)
    assert (step.steps, step.skipped, step.bad_tensor) == (0, 1, "loss")


def test_a_norm_of_one_value_is_refused_or_stays_finite(make_step: Make) -> None:
    """It has no unbiased variance: running statistics became NaN beside a finite loss."""
    model = nn.Sequential(nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 4))
    labels = [aicf.TensorSpec((size,), "i64", "labels") for size in (1, "n")]
    with pytest.raises(aicf.UserError) as refused:
        make_step(model=model, inputs=[aicf.TensorSpec((1, 2, 1, 1)), labels[0]])
    assert refused.value.name == "input_shape"
    step = make_step(model=model, inputs=[aicf.TensorSpec(("n", 2, 1, 1)), labels[1]], dims={"n": "1..4"})
    x = np.arange(8, dtype=np.float32).reshape(4, 2, 1, 1)
    step(x, np.arange(4))
    before = np.asarray(step.state_dict()["0.running_var"]).copy()
    np.testing.assert_allclose(before, 0.9 + 0.1 * x[:, :, 0, 0].var(0, ddof=1), rtol=1e-6)
    step(x[:1], np.arange(1))
    np.testing.assert_allclose(np.asarray(step.state_dict()["0.running_var"]), 0.9 * before, rtol=1e-6)


def test_a_trained_model_goes_back_whole(make_step: Make, tmp_path: Path) -> None:
    """Running statistics too: without them the model would be evaluated by those it began with."""
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4))
    specs = [aicf.TensorSpec((3, 1, 2, 2)), aicf.TensorSpec((3,), "i64", "labels")]
    step = make_step(model=model, inputs=specs)
    x, y = 5 + np.random.default_rng(0).standard_normal((3, 1, 2, 2)).astype(np.float32), np.arange(3)
    for _ in range(3):
        step(x, y)
    model.load_state_dict(step.state_dict(), strict=False)
    model.save_safetensors(str(tmp_path / "m.safetensors"))
    other = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(8, 4))
    other.load_safetensors(str(tmp_path / "m.safetensors"))
    evaluated = np.asarray(step.evaluate(x))
    np.testing.assert_array_equal(np.asarray(aicf.compile(other, specs[:1])(x)), evaluated)


@pytest.mark.parametrize(
    ("counter", "value"), [("opt.step", -5), ("opt.micro", 2), ("opt.micro", -1), ("opt.bad_tensor", 99)]
)
def test_counters_out_of_range_are_refused(make_step: Make, counter: str, value: int) -> None:
    step = make_step(accumulate=2)
    before = step.hash()
    with pytest.raises(aicf.UserError) as error:
        step.load_state_dict({**step.state_dict(), counter: np.array(value)})
    assert error.value.name == "bad_checkpoint" and error.value.value == counter
    assert step.hash() == before


def test_steps_beside_each_other_are_refused_or_made(make_step: Make, batches: list[Batch]) -> None:
    step, alone = make_step(accumulate=2), make_step(accumulate=2)
    calls = [0, 0]

    def call(thread: int) -> None:
        for _ in range(300):
            try:
                step(*batches[0])
                calls[thread] += 1
            except aicf.UserError as error:
                assert error.name == "busy"

    threads = [threading.Thread(target=call, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        states = step.state_dict()
        alone.load_state_dict(states)  # of one moment, so that a run may go on from it
        assert alone.steps == number(states["opt.step"])
    for thread in threads:
        thread.join()
    assert step.steps == sum(calls) // 2
    alone.load_state_dict(make_step(accumulate=2).state_dict())
    train(alone, batches[:1], sum(calls))
    assert step.hash() == alone.hash()


@pytest.mark.parametrize("states", [None, [1, 2], {3: np.ones(3)}])
def test_a_state_dict_holds_arrays_by_name(make_step: Make, states: object) -> None:
    with pytest.raises(aicf.UserError):
        make_step().load_state_dict(states)  # type: ignore[arg-type]


def test_a_scaled_loss_shrinks_its_scale_until_it_fits(make_step: Make, batches: list[Batch]) -> None:
    scale = optim.LossScale(initial=2.0**127, backoff=2.0**-8, interval=20)
    scaled, plain = make_step(loss_scale=scale), make_step()
    train(scaled, [(100 * x, y) for x, y in batches], 30)
    assert 0 < scaled.skipped < 10 and scaled.steps == 30 - scaled.skipped
    assert 0 < number(scaled.state_dict()["opt.loss_scale"]) < 2.0**127
    # It never grows beyond what a number can hold.
    growing = make_step(loss_scale=optim.LossScale(initial=2.0**126, interval=1))
    train(growing, batches, 5)
    assert np.isfinite(number(growing.state_dict()["opt.loss_scale"])) and growing.skipped <= 2
    # Scaling by powers of two changes no bit of the steps that count.
    fixed = make_step(loss_scale=optim.LossScale(initial=1024.0, dynamic=False))
    train(fixed, batches, 12)
    train(plain, batches, 12)
    for name, value in plain.parameters().items():
        np.testing.assert_allclose(
            np.asarray(fixed.parameters()[name]), np.asarray(value), rtol=1e-5, atol=1e-7
        )


def test_groups_hold_for_the_params_that_match(make_step: Make, batches: list[Batch]) -> None:
    groups = [optim.Group(["0.*"], trainable=False), optim.Group(["*.b"], rate_factor=0.0)]
    step = make_step(optimizer=optim.SGD(0.1, groups=groups))
    train(step, batches, 3)
    model = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4))
    nn.seed(0)
    first = nn.Sequential(nn.Linear(12, 24), nn.ReLU(), nn.Linear(24, 4)).state_dict()
    now = step.parameters()
    assert set(now) == {"2.W", "2.b"} and len(list(model.named_parameters())) == 4
    np.testing.assert_array_equal(np.asarray(now["2.b"]), first["2.b"])
    assert np.abs(np.asarray(now["2.W"]) - first["2.W"]).max() > 1e-4


def test_inputs_by_name_are_passed_by_name(make_step: Make) -> None:
    class Difference(nn.Module):
        def __init__(self) -> None:
            self.out = nn.Linear(3, 2)

        def forward(self, a: aicf.SymTensor, b: aicf.SymTensor) -> aicf.SymTensor:
            return self.out(a) - self.out(b) * 3.0

    rng = np.random.default_rng(0)
    a, b, y = (rng.standard_normal((4, n)).astype(np.float32) for n in (3, 3, 2))
    specs = {name: aicf.TensorSpec(x.shape) for name, x in {"b": b, "a": a, "y": y}.items()}
    model = Difference()
    options = {"model": model, "loss": nn.MSELoss()}
    by_name = make_step(**options, inputs=specs)
    in_order = make_step(**options, inputs=[specs["a"], specs["b"], specs["y"]])
    assert number(by_name(a=a, b=b, y=y)) == number(in_order(a, b, y))
    evaluated = [np.asarray(step.evaluate(a=a, b=b)) for step in (by_name, in_order)]
    np.testing.assert_array_equal(*evaluated)
    for wrong, value in ((["y", "a", "b"], "y"), (["a", "c", "y"], "c"), (["a", "y"], "b")):
        with pytest.raises(aicf.UserError) as refused:
            make_step(**options, inputs={name: specs["a"] for name in wrong})
        assert refused.value.code == "AICF-U0001" and refused.value.value == value


def test_any_traced_function_of_the_step_is_a_schedule(make_step: Make, batches: list[Batch]) -> None:
    halving = make_step(optimizer=optim.SGD(lambda step: 0.5 ** step.astype("f64") * 0.1))
    staircase = make_step(optimizer=optim.SGD(optim.step(0.1, 0.5, every=1)))
    train(halving, batches, 6)
    train(staircase, batches, 6)
    assert halving.hash() == staircase.hash()


def test_gradients_entry_gives_loss_and_gradients(make_step: Make, batches: list[Batch]) -> None:
    step = make_step(gradients=True)
    loss, *gradients = step.run_entry("gradients", *batches[0])
    assert number(loss) == number(step(*batches[0])) and len(gradients) == 4


class Unused(nn.Module):
    def __init__(self) -> None:
        self.used, self.idle = nn.Linear(12, 4), nn.Linear(12, 4)

    def forward(self, x: object) -> object:
        return self.used(x)


class Rounded(nn.Module):
    def __init__(self) -> None:
        self.layer = nn.Linear(12, 4)

    def forward(self, x: object) -> object:
        return ops.sort(self.layer(x), axis=1)[1].astype("f32")


class WholeNumbers(nn.Module):
    def __init__(self) -> None:
        self.table = nn.Parameter(np.ones((12, 4), np.int32))

    def forward(self, x: object) -> object:
        return x @ ops.cast(self.table, dtype="f32")


REFUSED = {
    "no_params": {"model": nn.Sequential(nn.ReLU()), "loss": lambda x, y: x.mean()},
    "unused_param": {"model": Unused()},
    "loss_not_scalar": {"loss": lambda x, y: x},
    "integer_gradient": {"model": WholeNumbers()},
    "bad_option": {"clip_norm": -1.0},
    "unsupported_option": {"precision": "f8"},
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_trained_is_refused(make_step: Make, name: str) -> None:
    with pytest.raises(aicf.UserError) as error:
        make_step(**REFUSED[name])
    assert error.value.name == name


def test_all_unused_params_are_named_at_once(make_step: Make) -> None:
    with pytest.raises(aicf.UserError) as error:
        make_step(model=Unused())
    assert error.value.value == "idle.W, idle.b"
    assert 'optim.Group(["idle.W", "idle.b"], trainable=False)' in error.value.remedy


def test_other_shapes_and_checkpoints_are_refused(
    make_step: Make, batches: list[Batch], tmp_path: Path
) -> None:
    step = make_step()
    with pytest.raises(aicf.UserError) as error:
        step(batches[0][0][:8], batches[0][1][:8])
    assert error.value.name == "input_shape"
    before = step.hash()
    make_step(
        model=nn.Sequential(nn.Linear(12, 20), nn.ReLU(), nn.Linear(20, 4), nn.Linear(4, 4))
    ).save_checkpoint(tmp_path / "other")
    with pytest.raises(aicf.UserError) as error:
        step.load_checkpoint(tmp_path / "other")
    assert error.value.name == "bad_checkpoint"
    assert "'0.W' is f32[12, 20] and should be f32[12, 24]" in error.value.actual
    assert "'3.W' f32[4, 4] is unknown" in error.value.actual
    assert step.hash() == before
    exe = aicf.compile(nn.Linear(3, 3), [aicf.TensorSpec((1, 3))])
    exe.save(tmp_path / "model.aicf")
    with pytest.raises(aicf.UserError) as error:
        aicf.load_train_step(tmp_path / "model.aicf")
    assert error.value.name == "not_trainable"


@pytest.mark.parametrize(
    ("dtype", "precision"),
    [(dtype, p) for dtype in ("bf16", "bfloat16", "f16") for p in ("f32", "bf16-pure")]
    + [("float64", "f32")],
)
def test_layers_of_any_float_dtype_train(make_step: Make, dtype: str, precision: str) -> None:
    nn.seed(0)
    model = nn.Sequential(
        nn.Linear(3, 8, dtype=dtype), nn.LayerNorm(8, dtype=dtype), nn.Linear(8, 4, dtype=dtype)
    )
    specs = [aicf.TensorSpec((5,), "i64", "rows"), aicf.TensorSpec((5,), "i64", "labels")]

    class Rows(nn.Module):
        def __init__(self) -> None:
            self.table, self.model = nn.Embedding(5, 3, dtype=dtype), model

        def forward(self, rows: object) -> object:
            return aicf.ops.cast(self.model(self.table(rows)), dtype="f32")

    step = make_step(model=Rows(), inputs=specs, precision=precision, optimizer=optim.AdamW(1e-2))
    losses = [number(step(np.arange(5), np.arange(5) % 4)) for _ in range(60)]
    assert losses[-1] < losses[0] / 2
    assert step.parameters()["table.W"].dtype == model[0].W.dtype


def test_a_layer_of_integers_is_refused() -> None:
    with pytest.raises(aicf.UserError) as error:
        nn.Linear(2, 2, dtype="int64")
    assert error.value.name == "bad_dtype"


def test_an_input_of_the_model_may_be_called_target() -> None:
    class Edges(nn.Module):
        def __init__(self) -> None:
            self.layer = nn.Linear(3, 2)

        def __call__(self, x: aicf.SymTensor, target: aicf.SymTensor) -> aicf.SymTensor:
            return ops.gather(self.layer(x), target, axis=0)

    specs = [aicf.TensorSpec((4, 3)), aicf.TensorSpec((5,), "i64"), aicf.TensorSpec((5,), "i64")]
    step = aicf.compile_train_step(Edges(), nn.CrossEntropyLoss(), optim.SGD(0.001), specs)
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    edges, classes = np.array([3, 0, 1, 1, 2]), np.array([0, 1, 1, 0, 1])
    first, second = (number(step(x, edges, classes)) for _ in range(2))
    assert second < first

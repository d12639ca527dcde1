"""torch.nn.Module as the model of a train step."""

from __future__ import annotations

import copy
import dataclasses

import aicf
import numpy as np
import pytest
from aicf import nn, optim

torch = pytest.importorskip("torch")

ROWS, STEPS = 32, 25


class Net(torch.nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(1, 6, 3, padding=1)
        self.norm = torch.nn.BatchNorm2d(6)
        self.drop = torch.nn.Dropout(dropout)
        self.out = torch.nn.Linear(6 * 16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.nn.functional.max_pool2d(torch.relu(self.norm(self.conv(x))), 2)
        return self.out(self.drop(x.flatten(1)))


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    rng = np.random.default_rng(6)
    centres = rng.standard_normal((5, 1, 8, 8))
    labels = [rng.integers(0, 5, ROWS) for _ in range(5)]
    return [((centres[y] + rng.standard_normal((ROWS, 1, 8, 8))).astype(np.float32), y) for y in labels]


SPECS = [aicf.TensorSpec((ROWS, 1, 8, 8)), aicf.TensorSpec((ROWS,), "i64")]


@pytest.mark.parametrize("loss", [torch.nn.CrossEntropyLoss(), nn.CrossEntropyLoss()], ids=["torch", "aicf"])
def test_a_module_trains_as_in_torch(loss: object) -> None:
    torch.manual_seed(0)
    model = Net()
    step = aicf.compile_train_step(model, loss, optim.SGD(0.05, momentum=0.9), SPECS)
    assert model.training
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for number in range(STEPS):
        x, y = (torch.from_numpy(a) for a in batches()[number % 5])
        optimizer.zero_grad()
        expected = torch.nn.functional.cross_entropy(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 2e-5
    for name, value in model.state_dict().items():
        if not name.endswith("num_batches_tracked"):
            np.testing.assert_allclose(np.asarray(step.state_dict()[name]), value.numpy(), atol=2e-5)
    model.eval()
    x = torch.from_numpy(batches()[0][0])
    evaluated = np.asarray(step.evaluate(x))
    np.testing.assert_allclose(evaluated, model(x).detach().numpy(), atol=1e-4)
    back = Net().eval()
    back.load_state_dict({n: torch.from_dlpack(t) for n, t in step.state_dict().items()}, strict=False)
    np.testing.assert_allclose(evaluated, back(x).detach().numpy(), atol=1e-5)


def test_dropout_and_frozen_params() -> None:
    torch.manual_seed(0)
    model = Net(dropout=0.5)
    model.conv.requires_grad_(False)
    before = model.conv.weight.detach().numpy().copy()
    runs = []
    for seed_threads in (1, 2):
        step = aicf.compile_train_step(
            model, nn.CrossEntropyLoss(), optim.Adam(1e-2), SPECS, threads=seed_threads
        )
        losses = [float(np.asarray(step(*batches()[0]))) for _ in range(40)]
        assert losses[-1] < losses[0] and "conv.weight" not in step.parameters()
        runs.append(step.hash())
    assert runs[0] == runs[1]
    np.testing.assert_array_equal(model.conv.weight.detach().numpy(), before)


def test_a_seed_is_that_of_dropout() -> None:
    model = Net(dropout=0.5)

    def losses(seed: int) -> list[float]:
        step = aicf.compile_train_step(model, nn.CrossEntropyLoss(), optim.SGD(0.1), SPECS, seed=seed)
        assert int(np.asarray(step.state_dict()["rng.seed"])) == seed
        return [float(np.asarray(step(*batches()[0]))) for _ in range(2)]

    assert losses(3) == losses(3) != losses(4)


@pytest.mark.parametrize("training", [True, False])
def test_parts_keep_their_mode_where_the_model_is_in_the_mode_traced(training: bool) -> None:
    """A frozen norm in a model that trains; a norm of batches in one that is evaluated."""
    torch.manual_seed(2)
    model = Net().train(training)
    model.norm.train(not training)
    model.norm.running_var.uniform_(0.5, 2)
    expected = copy.deepcopy(model)
    x, y = (torch.from_numpy(a) for a in batches()[0])
    step = aicf.compile_train_step(model, torch.nn.CrossEntropyLoss(), optim.SGD(0.1), SPECS)
    assert (model.training, model.norm.training) == (training, not training)
    if not training:
        np.testing.assert_allclose(np.asarray(step.evaluate(x)), expected(x).detach(), atol=1e-5)
        expected.train()
    loss = torch.nn.functional.cross_entropy(expected(x), y)
    assert abs(float(np.asarray(step(x, y))) - loss.item()) < 1e-5
    assert ("norm.running_var" in step.state_dict()) != training  # a frozen one is no state


class Annealed(torch.nn.Module):
    """Its output falls with the calls it has had, counted in Python or in a buffer."""

    def __init__(self, in_python: bool) -> None:
        super().__init__()
        self.out = torch.nn.Linear(4, 3)
        if in_python:
            self.calls = 0
        else:
            self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.out(x) / (1 + self.calls)


def test_a_count_is_kept_in_a_buffer_or_refused() -> None:
    x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
    specs = [aicf.TensorSpec((5, 4)), aicf.TensorSpec((5,), "i64")]
    whole = torch.nn.Sequential(Annealed(in_python=True))
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile_train_step(whole, torch.nn.CrossEntropyLoss(), optim.SGD(0.1), specs)
    assert refused.value.code == "AICF-U0301" and refused.value.value == "0.calls"
    model = Annealed(in_python=False)
    step = aicf.compile_train_step(model, torch.nn.CrossEntropyLoss(), optim.SGD(0.0), specs)
    for _ in range(3):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        assert abs(float(np.asarray(step(x, y))) - loss.item()) < 1e-6


class Noted(torch.nn.Module):
    """Notes a length, which no later call reads or the next one does."""

    def __init__(self, reads: bool) -> None:
        super().__init__()
        self.out, self.reads, self.length = torch.nn.Linear(4, 3), reads, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        scale = 1 + self.length if self.reads else 1
        self.length = len(x)
        return self.out(x) / scale


def test_a_number_that_is_only_noted_is_no_count() -> None:
    x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
    specs = [aicf.TensorSpec((5, 4)), aicf.TensorSpec((5,), "i64")]
    model = torch.nn.Sequential(Noted(reads=False))
    step = aicf.compile_train_step(model, torch.nn.CrossEntropyLoss(), optim.SGD(0.0), specs)
    assert model[0].length == 0
    loss = torch.nn.functional.cross_entropy(model(x), y)
    assert abs(float(np.asarray(step(x, y))) - loss.item()) < 1e-6
    with pytest.raises(aicf.UserError, match="changes a number"):
        aicf.compile_train_step(
            torch.nn.Sequential(Noted(reads=True)), torch.nn.CrossEntropyLoss(), optim.SGD(0.1), specs
        )


class Difference(torch.nn.Module):
    """Two arguments that a mix-up would tell apart, and parts of the names that a wrapper gives."""

    def __init__(self) -> None:
        super().__init__()
        self.model, self.loss = torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 3)
        self.head = torch.nn.ModuleDict({"model": torch.nn.BatchNorm1d(4)})

    def forward(self, a: torch.Tensor, b: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
        return self.loss(self.model(a) - scale * self.head["model"](b))


@pytest.mark.parametrize("loss", [torch.nn.CrossEntropyLoss(torch.ones(3)), nn.CrossEntropyLoss()])
@pytest.mark.parametrize("by_name", [True, False])
def test_inputs_have_the_names_they_are_given(loss: object, by_name: bool) -> None:
    torch.manual_seed(3)
    model = Difference()
    data = {"b": torch.randn(6, 4) ** 3, "a": torch.randn(6, 4), "labels": torch.randint(0, 3, (6,))}
    specs = {n: aicf.TensorSpec(tuple(t.shape), "i64" if n == "labels" else "f32") for n, t in data.items()}
    inputs = (
        specs if by_name else [specs["a"], specs["b"], dataclasses.replace(specs["labels"], name="labels")]
    )
    step = aicf.compile_train_step(model, loss, optim.SGD(0.1), inputs)
    assert [i.name for i in step.inputs] == (list(data) if by_name else ["a", "b", "labels"])
    assert set(step.parameters()) == {name for name, _ in model.named_parameters()}
    expected = torch.nn.functional.cross_entropy(model(data["a"], data["b"]), data["labels"])
    assert abs(float(np.asarray(step(**data))) - expected.item()) < 1e-5
    weights = {n: torch.from_dlpack(t) for n, t in step.state_dict().items()}
    model.load_state_dict(weights, strict=False)
    model.eval()
    evaluated = np.asarray(step.evaluate(b=data["b"], a=data["a"]))
    np.testing.assert_allclose(evaluated, model(data["a"], data["b"]).detach(), atol=1e-5)


def test_a_loss_gets_the_whole_result() -> None:
    class Two(Difference):
        def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"z": self.loss(self.model(a)), "y": self.head["model"](b)}

    model, x = Two(), torch.randn(6, 4)
    specs = [aicf.TensorSpec((6, 4)), aicf.TensorSpec((6, 4)), aicf.TensorSpec((6,), "i64")]

    def loss(result: dict, target: object) -> object:
        return (result["z"] ** 2).mean() + ((result["y"] - 1.0) ** 2).mean()

    step = aicf.compile_train_step(model, loss, optim.SGD(0.1), specs)
    expected = loss(model(x, x), None)
    assert abs(float(np.asarray(step(x, x, np.zeros(6, np.int64)))) - expected.item()) < 1e-5


def _losses(model: torch.nn.Module) -> dict[str, object]:
    """Losses that are functions, some of which name modules."""
    functional = torch.nn.functional
    teacher = torch.nn.Linear(4, 3)

    def dice(result: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        share = (result.softmax(-1) * functional.one_hot(labels, 3)).sum()
        return 1 - 2 * share / (len(labels) + result.softmax(-1).sum())

    def distilled(result: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        given = teacher(torch.ones(4)).softmax(-1).expand_as(result)
        return functional.cross_entropy(result, labels) + functional.kl_div(result.log_softmax(-1), given)

    def decayed(result: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(result, labels) + sum(p.pow(2).sum() for p in model.parameters()) / 9

    def spread(result: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        q = torch.distributions.Normal(result, result.exp())
        prior = torch.distributions.Normal(0.0, 1.0)
        gaussian = functional.gaussian_nll_loss(result, labels[:, None].expand(-1, 3) * 1.0, result.exp() / 9)
        return torch.distributions.kl_divergence(q, prior).mean() + gaussian

    plain = {"plain": functional.cross_entropy, "dice": dice}
    return plain | {"distilled": distilled, "decayed": decayed, "spread": spread}


@pytest.mark.parametrize("name", ["plain", "dice", "distilled", "decayed", "spread"])
def test_a_loss_may_be_a_function_of_tensors(name: str) -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    loss = _losses(model)[name]
    specs = [aicf.TensorSpec((5, 4)), aicf.TensorSpec((5,), "i64")]
    step = aicf.compile_train_step(model, loss, optim.SGD(0.02), specs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    for _ in range(4):
        x, y = torch.randn(5, 4), torch.randint(0, 3, (5,))
        optimizer.zero_grad()
        expected = loss(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5
    assert set(step.parameters()) == set(dict(model.named_parameters()))


def test_a_loss_may_be_a_function_of_traced_values() -> None:
    model, x, y = torch.nn.Linear(4, 3), torch.randn(5, 4), torch.randint(0, 3, (5,))
    specs = [aicf.TensorSpec((5, 4)), aicf.TensorSpec((5,), "i64")]

    def loss(result: object, labels: object) -> object:
        return nn.CrossEntropyLoss()(result, labels) * 2.0

    step = aicf.compile_train_step(model, loss, optim.SGD(0.0), specs)
    expected = 2 * torch.nn.functional.cross_entropy(model(x), y)
    assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5


class Normalised(torch.nn.Module):
    """Buffers that are read, brought up to date, whole numbers, or read in evaluation alone."""

    def __init__(self) -> None:
        super().__init__()
        self.out = torch.nn.Linear(4, 3)
        self.register_buffer("mean", torch.randn(4))
        self.register_buffer("average", torch.zeros(3))
        self.register_buffer("order", torch.tensor([3, 1, 0, 2]))
        self.register_buffer("temperature", torch.tensor(2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.out((x - self.mean)[:, self.order])
        if not self.training:
            return y / self.temperature
        with torch.no_grad():
            self.average.lerp_(y.mean(0), 0.1)
        return y - self.average


def test_buffers_and_weights_of_the_loss_are_not_trained() -> None:
    torch.manual_seed(1)
    model = Normalised()
    loss = torch.nn.CrossEntropyLoss(weight=torch.tensor([0.2, 1.0, 3.0]))
    x, y = torch.randn(8, 4), torch.randint(0, 3, (8,))
    specs = [aicf.TensorSpec((8, 4)), aicf.TensorSpec((8,), "i64")]
    step = aicf.compile_train_step(model, loss, optim.SGD(0.5), specs)
    assert set(step.parameters()) == {"out.weight", "out.bias"}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    for _ in range(10):
        optimizer.zero_grad()
        expected = loss(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5
    np.testing.assert_allclose(np.asarray(step.state_dict()["average"]), model.average.numpy(), atol=1e-5)
    model.eval()
    np.testing.assert_allclose(np.asarray(step.evaluate(x)), model(x).detach().numpy(), atol=1e-5)


def test_a_trained_parameter_that_the_model_writes_is_refused() -> None:
    model = torch.nn.Sequential(torch.nn.Embedding(20, 8, max_norm=1.0), torch.nn.Linear(8, 3))
    specs = [aicf.TensorSpec((4,), "i64"), aicf.TensorSpec((4, 3))]
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile_train_step(model, torch.nn.MSELoss(), optim.SGD(0.1), specs)
    assert refused.value.code == "AICF-U0301" and refused.value.value == "0.weight"
    model[0].requires_grad_(False)
    step = aicf.compile_train_step(model, torch.nn.MSELoss(), optim.SGD(0.1), specs)
    assert set(step.parameters()) == {"1.weight", "1.bias"}


@pytest.mark.parametrize("kind", [torch.nn.BatchNorm1d, torch.nn.BatchNorm2d])
def test_running_statistics_may_be_averages_over_the_calls(kind: type) -> None:
    torch.manual_seed(3)
    model = torch.nn.Sequential(kind(3, momentum=None), torch.nn.Flatten(), torch.nn.LazyLinear(2))
    shape = (4, 3, 5) if kind is torch.nn.BatchNorm1d else (4, 3, 5, 2)
    model(torch.randn(shape))
    step = aicf.compile_train_step(
        model, torch.nn.MSELoss(), optim.SGD(0.05), [aicf.TensorSpec(shape), aicf.TensorSpec((4, 2))]
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(4):
        x, y = torch.randn(shape), torch.randn(4, 2)
        optimizer.zero_grad()
        expected = torch.nn.functional.mse_loss(model(x), y)
        expected.backward()
        optimizer.step()
        assert abs(float(np.asarray(step(x, y))) - expected.item()) < 1e-5
    states = step.state_dict()
    for name in ("0.running_mean", "0.running_var", "0.num_batches_tracked", "2.weight"):
        np.testing.assert_allclose(np.asarray(states[name]), model.state_dict()[name].numpy(), atol=1e-5)
    model.eval()
    np.testing.assert_allclose(np.asarray(step.evaluate(x)), model(x).detach().numpy(), atol=1e-5)


class Beside(torch.nn.Module):
    """Two layers without a gradient beside one that has one."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.out, self.first, self.second = (torch.nn.Linear(4, 4) for _ in range(3))
        self.way = way

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.way == "detached":
            return self.out(x) + self.second(self.first(x)).detach()
        if self.way == "no_grad":
            with torch.no_grad():
                x = self.second(self.first(x))
        return self.out(x)


@pytest.mark.parametrize("way", ["detached", "no_grad", "unused"])
def test_the_remedy_for_params_without_a_gradient_works(way: str) -> None:
    model = Beside(way)
    specs = [aicf.TensorSpec((3, 4)), aicf.TensorSpec((3, 4))]
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile_train_step(model, torch.nn.MSELoss(), optim.SGD(0.1), specs)
    assert refused.value.name == "unused_param"
    group = eval(refused.value.remedy[refused.value.remedy.index("optim.Group") :], {"optim": optim})
    step = aicf.compile_train_step(model, torch.nn.MSELoss(), optim.SGD(0.1, groups=[group]), specs)
    assert set(step.parameters()) == {"out.weight", "out.bias"}


class Dropped(torch.nn.Module):
    """Layers that are left out at random, as those of transformers."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
        self.share = share

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            if self.training and torch.rand([]) < self.share:
                continue
            x = torch.tanh(layer(x))
        return x


def step_of_dropped(model: Dropped) -> aicf.TrainStep:
    specs = [aicf.TensorSpec((8, 4)), aicf.TensorSpec((8, 4))]
    return aicf.compile_train_step(model, torch.nn.MSELoss(), optim.SGD(0.1), specs)


def test_layers_that_are_never_dropped_train() -> None:
    torch.manual_seed(3)
    model, (x, y) = Dropped(0.0), torch.randn(2, 8, 4)
    expected = torch.nn.functional.mse_loss(model(x), y).item()
    assert abs(float(np.asarray(step_of_dropped(model)(x, y))) - expected) < 2e-6


def test_layers_that_may_be_dropped_are_refused() -> None:
    with pytest.raises(aicf.UserError) as caught:
        step_of_dropped(Dropped(0.5))
    assert caught.value.name == "unsupported_op" and "torch.rand([]) < self.share" in str(caught.value)

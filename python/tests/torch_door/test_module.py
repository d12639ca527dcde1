"""aicf.compile of torch modules: sizes, states, structure, weights, and errors with the user's line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import aicf
import pytest
import torch
from aicf.torch import precision_report
from torch import nn


def mlp() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 4)).eval()


def close(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    return actual.shape == expected.shape and bool(torch.allclose(actual, expected, rtol=1e-5, atol=1e-6))


def test_batch_range_and_results_are_torch_tensors() -> None:
    model = mlp()
    exe = aicf.compile(model, (torch.randn(2, 8),), dims={"input": {0: "batch=1..64"}})
    for batch in (1, 3, 64):
        x = torch.randn(batch, 8)
        y = exe(x)
        assert isinstance(y, torch.Tensor)
        assert close(y, model(x).detach())
    with pytest.raises(aicf.UserError, match="batch"):
        exe(torch.randn(65, 8))


@pytest.mark.usefixtures("only_on_the_cpu")
def test_weights_have_module_paths_and_the_file_runs_without_torch(tmp_path: Path) -> None:
    model = mlp()
    exe = aicf.compile(model, (torch.randn(2, 8),))
    assert set(exe.weights()) == {"0.weight", "0.bias", "2.weight", "2.bias"}
    exe.save(tmp_path / "m.aicf")
    x = torch.randn(2, 8)
    again = aicf.load(tmp_path / "m.aicf")(x.numpy())
    assert close(torch.from_dlpack(again), model(x).detach())


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed(ids))


def test_tied_weights_are_one_param() -> None:
    model = Tied().eval()
    ids = torch.randint(0, 11, (2, 5))
    exe = aicf.compile(model, (ids,))
    assert set(exe.weights()) == {"embed.weight"}
    assert close(exe(ids), model(ids).detach())


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.register_buffer("scale", torch.full((3,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total.add_(x * self.scale)
        return self.total + 1


def test_written_buffers_are_states() -> None:
    model = Counter()
    exe = aicf.compile(model, (torch.ones(3),))
    assert list(exe.state_dict()) == ["total"]
    for n in (1, 2, 3):
        assert torch.equal(exe(torch.ones(3)), torch.full((3,), 2.0 * n + 1))
    assert torch.equal(model.total, torch.zeros(3))
    exe.reset()
    assert torch.equal(exe(torch.ones(3)), torch.full((3,), 3.0))


def test_batch_norm_in_training_updates_its_statistics() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True)).train()
    x = torch.randn(2, 3, 8, 8)
    exe = aicf.compile(model, (x,))
    for _ in range(2):
        assert close(exe(x), model(x).detach())
    assert close(torch.from_dlpack(exe.state_dict()["1.running_var"]), model[1].running_var.cpu())


class Point(NamedTuple):
    x: Any
    y: Any


class Nested(nn.Module):
    def forward(self, pair: tuple[torch.Tensor, dict[str, torch.Tensor]], *, k: int = 2) -> Any:
        first, rest = pair
        return {"sum": first + rest["b"], "all": [first * k, Point(rest["b"], None)]}


def test_structures_of_arguments_and_results() -> None:
    a, b = torch.randn(3), torch.randn(3)
    exe = aicf.compile(Nested(), ((a, {"b": b}),))
    y = exe((a, {"b": b}))
    assert torch.equal(y["sum"], a + b)
    assert torch.equal(y["all"][0], a * 2)
    assert isinstance(y["all"][1], Point) and y["all"][1].y is None
    with pytest.raises(aicf.UserError, match="structured otherwise"):
        exe((a, b))


class Branch(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # the line at fault
            return x + 1
        return x - 1


class Item(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[: int(x[0, 0].item())]


class InPlace(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x += 1
        return x * 2


class Complex(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.fft.fft(x).abs()


class Nonzero(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[x > 0].sum()


def helper(x: torch.Tensor) -> torch.Tensor:
    return torch.linalg.eigvals(x)  # called from forward


class InHelper(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return helper(x * 2) + 1


class Sparse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to_sparse().sum()


class Indices(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nonzero(x)


class Graph(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("edges", torch.eye(3).to_sparse())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sparse.mm(self.edges, x)


class Airy(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.special.airy_ai(x)


@pytest.mark.parametrize(
    ("model", "said", "line"),
    [
        (Branch(), "torch.where", "if x.sum() > 0"),
        (Item(), "torch.where", "int(x[0, 0].item())"),
        (InPlace(), "writes to an input", "x += 1"),
        (Complex(), "complex", "torch.fft.fft"),
        (Nonzero(), "torch.where", "x[x > 0]"),
        (Indices(), "torch.where", "torch.nonzero(x)"),
        (InHelper(), "complex", "torch.linalg.eigvals(x)"),
        (Sparse(), "dense tensors", "x.to_sparse()"),
        (Airy(), "aten.special_airy_ai", "torch.special.airy_ai"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_refusals_name_the_line(model: nn.Module, said: str, line: str) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile(model, (torch.randn(4, 4),))
    assert said in str(caught.value)
    assert line in caught.value.value, str(caught.value)
    assert "test_module.py:" in caught.value.value
    assert caught.value.remedy


def test_what_has_no_dense_memory_is_refused() -> None:
    with pytest.raises(aicf.UserError, match="to_dense"):
        aicf.compile(mlp(), (torch.eye(8).to_sparse(),))
    with pytest.raises(aicf.UserError, match="to_dense") as error:
        aicf.compile(Graph(), (torch.ones(3, 2),))
    assert error.value.value == "edges"
    with pytest.raises(aicf.UserError, match="meta device"):
        aicf.compile(mlp(), (torch.zeros(2, 8, device="meta"),))
    with pytest.raises(aicf.UserError, match=r"torch\.from_numpy"):
        aicf.compile(mlp(), (torch.zeros(2, 8).cpu().numpy(),))
    with pytest.raises(aicf.UserError, match="torch.jit"):
        aicf.compile(torch.jit.trace(mlp(), torch.zeros(2, 8)), (torch.zeros(2, 8),))


def test_dims_that_fit_nothing() -> None:
    x = torch.randn(2, 8)
    with pytest.raises(aicf.UserError, match="names no argument"):
        aicf.compile(mlp(), (x,), dims={"y": {0: "batch=1..4"}})
    # nn.Sequential's argument is "input"; the error says so, and what it advises compiles.
    with pytest.raises(aicf.UserError, match="names no argument") as error:
        aicf.compile(torch.nn.Sequential(mlp()), (x,), dims={"x": {0: "batch=1..64"}})
    assert error.value.value == "x" and error.value.expected == "input"
    advised = error.value.remedy.partition("dims=")[2]
    assert aicf.compile(torch.nn.Sequential(mlp()), (x,), dims=ast.literal_eval(advised))(x[:1]).shape[0] == 1
    with pytest.raises(aicf.UserError, match="no range"):
        aicf.compile(mlp(), (x,), dims={"input": {0: "batch"}})
    with pytest.raises(aicf.UserError, match="every size"):
        aicf.compile(mlp(), (x,), dims={"input": {1: "width=1..64"}})


def test_import_aicf_does_not_import_torch() -> None:
    code = "import aicf, sys; assert not any(m.split('.')[0] == 'torch' for m in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_load_state_dict_swaps_weights_without_compiling() -> None:
    first, second = mlp(), mlp()
    for p in second.parameters():
        p.data.mul_(-0.5)
    x = torch.randn(2, 8)
    exe = aicf.compile(first, (x,))
    exe.load_state_dict(second.state_dict())
    assert close(exe(x), second(x).detach())
    with pytest.raises(aicf.UserError, match="AICF-U0406"):
        exe.load_state_dict({"3.weight": torch.zeros(1)})
    tied = Tied().eval()
    exe = aicf.compile(tied, (torch.zeros(1, 1, dtype=torch.int64),))
    exe.load_state_dict(tied.state_dict())
    ids, weight = torch.tensor([[3]]), torch.randn(11, 6)
    exe.load_state_dict({"head.weight": weight})  # files hold one of the two names
    assert close(exe(ids), nn.functional.embedding(ids, weight) @ weight.T)
    with pytest.raises(aicf.UserError, match="different values"):
        exe.load_state_dict({"head.weight": weight, "embed.weight": weight + 1})


def test_arguments_may_require_gradients_and_be_views() -> None:
    model = mlp()
    exe = aicf.compile(model, (torch.randn(4, 8),))
    x = torch.randn(8, 4, requires_grad=True).t()
    assert close(exe(x), model(x).detach())
    assert not exe(x).requires_grad


def test_bf16_mixed_and_its_error_report() -> None:
    x = torch.randn(4, 8)
    rows = precision_report(mlp(), (x,), "bf16-mixed")
    assert len(rows) == 1
    assert 0 < rows[0].relative < 0.03
    assert precision_report(mlp(), (x,), "f32")[0].absolute == 0
    with pytest.raises(aicf.UserError, match="no such precision here"):
        aicf.compile(mlp(), (x,), precision="f8")


class Either(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.low, self.high = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.cond(x.sum() > 0, lambda x: self.high(x), lambda x: self.low(x) * 2, (x,))


def test_a_branch_on_data_by_torch_cond() -> None:
    model = Either().eval()
    exe = aicf.compile(model, (torch.ones(2, 4),))
    for x in (torch.ones(2, 4), -torch.ones(2, 4)):
        assert close(exe(x), model(x).detach())


class OverRows(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.vmap(lambda row: row * row.sum() + row @ row)(x)


def test_functions_over_rows_by_vmap() -> None:
    x = torch.randn(3, 4)
    assert close(aicf.compile(OverRows(), (x,))(x), OverRows()(x))


@pytest.mark.usefixtures("only_on_the_cpu")
@pytest.mark.filterwarnings("ignore")
def test_tensors_without_dense_memory_are_refused() -> None:
    exe = aicf.compile(nn.Linear(3, 2), (torch.zeros(4, 3),))
    quantised = torch.quantize_per_tensor(torch.zeros(4, 3), 0.1, 0, torch.qint8)
    for given in (torch.zeros(4, 3, device="meta"), torch.zeros(4, 3).to_sparse(), quantised):
        with pytest.raises(aicf.UserError, match="AICF-U0402") as error:
            exe(given)
        assert "dense" in error.value.remedy


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory")]
)
def test_memory_that_torch_could_not_get_is_no_fault_of_the_model(error: Exception) -> None:
    class Short(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise error

    with pytest.raises(aicf.EnvError) as caught:
        aicf.compile(Short(), (torch.ones(2),))
    assert caught.value.name == "out_of_memory" and "ulimit" in caught.value.remedy

"""The PyTorch door on a GPU: arrays in place, streams, memory, precision."""

from __future__ import annotations

from pathlib import Path

import aicf
import aicf.torch.backend as backend
import numpy as np
import pytest
import torch
from torch import nn

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that torch can use")

GPU = torch.device("cuda")


@pytest.fixture(scope="module")
def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5)).eval().cuda()


@pytest.fixture(scope="module")
def exe(model: nn.Module) -> aicf.Executable:
    x = torch.randn(4, 16, device=GPU)
    return aicf.compile(model, (x,), dims={"input": {0: "batch=1..64"}}, device="cuda")


@pytest.fixture(scope="module")
def plain(exe: aicf.Executable, tmp_path_factory: pytest.TempPathFactory) -> aicf.Executable:
    """The same without torch in front: results are DeviceTensors."""
    path = tmp_path_factory.mktemp("cuda") / "m.aicf"
    exe.save(path)
    return aicf.load(path, device="cuda")


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float = 1e-5) -> bool:
    return bool(((a - b).norm() / b.norm()).item() < tolerance)


def test_results_are_where_the_arguments_are(model: nn.Module, exe: aicf.Executable) -> None:
    for batch in (1, 3, 64):
        x = torch.randn(batch, 16, device=GPU)
        with torch.no_grad():
            expected = model(x)
        y = exe(x)
        assert y.device.type == "cuda" and close(y, expected)
        assert exe(x.cpu()).device.type == "cpu" and torch.equal(exe(x.cpu()), y.cpu())
        assert torch.equal(exe(torch.randn(16, batch, device=GPU).copy_(x.T).T), y)  # a strided argument


def test_results_live_until_released(exe: aicf.Executable) -> None:
    xs = [torch.randn(8, 16, device=GPU) for _ in range(20)]
    first = [exe(x) for x in xs]
    again = [exe(x) for x in xs]
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert len({y.data_ptr() for y in first + again}) == 40


def test_calls_run_on_torchs_current_stream(model: nn.Module, exe: aicf.Executable) -> None:
    stream = torch.cuda.Stream()
    x = torch.zeros(64, 16, device=GPU)
    with torch.no_grad():
        expected = model(torch.full_like(x, 0.5))
    for _ in range(20):
        with torch.cuda.stream(stream):
            big = torch.randn(2000, 2000, device=GPU)
            for _ in range(10):
                big = big @ big * 1e-3  # keeps the stream busy before x is written
            y = exe(x.fill_(0.5)) * 1.0
        stream.synchronize()
        assert close(y, expected)
        x.zero_()
        torch.cuda.synchronize()


def test_run_into_takes_streams_and_waits_on_demand(plain: aicf.Executable, exe: aicf.Executable) -> None:
    x, y = torch.randn(7, 16, device=GPU), torch.zeros(7, 5, device=GPU)
    expected = exe(x)
    for stream in (None, torch.cuda.Stream(), torch.cuda.Stream().cuda_stream):
        y.zero_()
        torch.cuda.synchronize()
        plain.run_into([x], [y], stream=stream, wait=True)
        assert torch.equal(y, expected)
    host = np.zeros((7, 5), "f")
    plain.run_into([x], [host])  # there when it returns
    assert np.array_equal(host, expected.cpu().numpy())
    with pytest.raises(aicf.UserError, match="no CUDA stream"):
        plain.run_into([x], [y], stream="0")


def test_device_tensors_are_shared_with_other_libraries(plain: aicf.Executable, exe: aicf.Executable) -> None:
    x = torch.randn(5, 16, device=GPU)
    expected = exe(x)
    y = plain(x)
    assert isinstance(y, aicf.DeviceTensor) and y.device == "cuda:0"
    assert y.shape == (5, 5) and y.dtype == "f32" and len(y) == 5 and y.nbytes == 100
    assert torch.equal(torch.from_dlpack(y), expected)
    assert torch.from_dlpack(y).data_ptr() == y.__cuda_array_interface__["data"][0]
    assert np.array_equal(np.asarray(y), expected.cpu().numpy())
    assert np.array_equal(y.cpu().numpy(), y.numpy())
    address = y.__cuda_array_interface__["data"][0]
    kept = torch.from_dlpack(y)
    del y
    assert plain(x).__cuda_array_interface__["data"][0] != address
    del kept
    # Half the model twice: a DeviceTensor is an argument.
    double = aicf.compile(aicf.trace(lambda t: t * 2.0, [aicf.TensorSpec((5, 5))]), device="cuda")
    assert torch.equal(torch.from_dlpack(double(plain(x))), expected * 2)


def test_cupy_arrays_are_taken_and_filled(plain: aicf.Executable, exe: aicf.Executable) -> None:
    cupy = pytest.importorskip("cupy", reason="the other library that has arrays on a GPU")
    x = torch.randn(6, 16, device=GPU)
    theirs = cupy.from_dlpack(x)
    expected = exe(x).cpu().numpy()
    assert np.array_equal(cupy.asnumpy(cupy.from_dlpack(plain(theirs))), expected)
    assert np.array_equal(cupy.asnumpy(cupy.asarray(plain(theirs))), expected)

    class OnlyTheInterface:
        __cuda_array_interface__ = theirs.__cuda_array_interface__

    assert np.array_equal(np.asarray(plain(OnlyTheInterface())), expected)
    out = cupy.zeros((6, 5), "f")
    plain.run_into([theirs], [out], stream=cupy.cuda.Stream(non_blocking=True), wait=True)
    assert np.array_equal(cupy.asnumpy(out), expected)
    with pytest.raises(aicf.UserError, match="AICF-U0403"):
        plain(cupy.asfortranarray(theirs))


def test_memory_of_another_device_is_refused(exe: aicf.Executable, tmp_path: Path) -> None:
    exe.save(tmp_path / "m.aicf")
    with pytest.raises(aicf.EnvError):
        aicf.load(tmp_path / "m.aicf", device="cuda:77")
    with pytest.raises(aicf.UserError, match="AICF-U0502"):  # the file has the GPU's code only
        aicf.load(tmp_path / "m.aicf", device="cpu")
    with pytest.raises(aicf.UserError, match="AICF-U0503"):
        aicf.load(tmp_path / "m.aicf", device="cuda", device_memory_limit=1000)
    cpu = aicf.compile(aicf.trace(lambda t: t * 2.0, [aicf.TensorSpec((5, 5))]), device="cpu")
    with pytest.raises(aicf.UserError, match="another device"):
        cpu(torch.zeros(5, 5, device=GPU))


def test_errors_in_data_are_met_by_finish() -> None:
    table = torch.randn(5, 3, device=GPU)
    gather = aicf.compile(
        nn.Embedding.from_pretrained(table), (torch.zeros(4, dtype=torch.int64, device=GPU),), device="cuda"
    )
    bad, good = torch.tensor([0, 1, 9, 2], device=GPU), torch.tensor([0, 1, 4, 2], device=GPU)
    gather(bad)
    with pytest.raises(aicf.UserError, match="AICF-U0405"):
        gather.finish()
    assert torch.equal(gather(good), table[good])
    gather.finish()


def test_weights_are_swapped_from_the_gpu(model: nn.Module, exe: aicf.Executable) -> None:
    other = nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 5)).eval().cuda()
    twin = exe.clone()
    twin.load_state_dict(other.state_dict())
    x = torch.randn(9, 16, device=GPU)
    with torch.no_grad():
        assert close(twin(x), other(x)) and close(exe(x), model(x))


def test_bf16_mixed_is_near_f32(model: nn.Module) -> None:
    x = torch.randn(8, 16, device=GPU)
    rows = aicf.torch.precision_report(model, (x,), "bf16-mixed", device="cuda")
    assert 0 < max(row.relative for row in rows) < 0.03


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64])
@pytest.mark.parametrize("length", [5, 60, 250, 520, 777, 2050, 9001])
def test_the_first_largest_of_lines_of_any_length(length: int, dtype: torch.dtype) -> None:
    """Lines are shared by 4 to 1,024 threads, some of them by groups of a block."""
    x = torch.randint(-3, 4, (1001, length), device=GPU).to(dtype)
    places = torch.randint(0, 2 * length, (1001,), device=GPU)
    x[torch.arange(length, device=GPU) == places[:, None]] = torch.nan  # of half of the lines
    found = aicf.compile(lambda x: (x.argmax(-1), x.argmin(-1)), (x,), device="cuda")(x)
    for ours, theirs in zip(found, (x.argmax(-1), x.argmin(-1)), strict=True):
        assert torch.equal(torch.as_tensor(ours, device=GPU), theirs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_attention_trains_as_one_op_through_the_backend(dtype: torch.dtype) -> None:
    torch._dynamo.reset()

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    operands = [torch.randn(2, 4, 77, 40, device=GPU, dtype=dtype) for _ in range(3)]
    found = []
    for function in (attention, torch.compile(attention, backend=backend.aicf_backend)):
        leaves = [x.clone().requires_grad_() for x in operands]
        y = function(*leaves)
        y.backward(y.detach().sin())
        found.append([y.detach(), *(x.grad for x in leaves)])
    for theirs, ours in zip(*found, strict=True):
        assert close(ours.double(), theirs.double(), 1e-5 if dtype == torch.float32 else 5e-3)

"""torch.compile(backend="aicf"): training as in eager, sizes that change, errors and the partition."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import aicf
import aicf.torch.backend as backend
import pytest
import torch
from aicf.torch import decompose
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

Batch = Callable[[torch.Generator], tuple[torch.Tensor, torch.Tensor]]


def labels(count: int, g: torch.Generator) -> torch.Tensor:
    return torch.randint(0, 5, (count,), generator=g)


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LayerNorm(32), nn.Linear(32, 5))


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2),
        nn.GELU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(8, 5),
    )


class Bert(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        hf = pytest.importorskip("transformers")
        config = hf.BertConfig(
            vocab_size=50, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
            num_labels=5, hidden_dropout_prob=0, attention_probs_dropout_prob=0,
        )  # fmt: skip
        self.bert = hf.BertForSequenceClassification(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.bert(ids).logits


def train(make: Callable[[], nn.Module], batch: Batch, compiled: bool, steps: int = 20) -> list[float]:
    torch.manual_seed(1)
    model = make()
    call = torch.compile(model, backend="aicf") if compiled else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    generator = torch.Generator(torch.get_default_device()).manual_seed(3)
    losses = []
    for _ in range(steps):
        x, y = batch(generator)
        loss = nn.functional.cross_entropy(call(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


class Gpt(nn.Module):
    """Its loss and its empty cache are inside of the graph."""

    def __init__(self) -> None:
        super().__init__()
        hf = pytest.importorskip("transformers")
        config = hf.GPT2Config(
            vocab_size=5, n_embd=32, n_layer=2, n_head=2, n_positions=16, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0, bos_token_id=0, eos_token_id=0,
        )  # fmt: skip
        self.gpt = hf.GPT2LMHeadModel(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.gpt(ids).logits[:, -1]


@pytest.mark.parametrize(
    ("make", "batch"),
    [
        (mlp, lambda g: (torch.randn(7, 16, generator=g), labels(7, g))),
        (convolutions, lambda g: (torch.randn(4, 3, 17, 17, generator=g), labels(4, g))),
        (Bert, lambda g: (torch.randint(0, 50, (3, 11), generator=g), labels(3, g))),
        (Gpt, lambda g: (torch.randint(0, 5, (3, 11), generator=g), labels(3, g))),
    ],
    ids=["mlp", "convolutions", "bert", "gpt"],
)
def test_training_loses_as_in_eager(make: Callable[[], nn.Module], batch: Batch) -> None:
    torch._dynamo.reset()
    eager, ours = train(make, batch, compiled=False), train(make, batch, compiled=True)
    assert max(abs(a - b) / abs(a) for a, b in zip(eager, ours, strict=True)) <= 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("norm", "shape"),
    [
        (lambda: nn.BatchNorm2d(6), (3, 6, 5, 7)),
        (lambda: nn.BatchNorm1d(6, affine=False), (5, 6)),
        (lambda: nn.GroupNorm(2, 6), (3, 6, 5, 7)),
        (lambda: nn.GroupNorm(2, 24, affine=False), (4, 24)),
        (lambda: nn.LayerNorm(6), (5, 6)),
    ],
    ids=["batch", "batch without scale", "group", "group without scale", "layer"],
)
def test_gradients_of_norms(
    norm: Callable[[], nn.Module], shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = norm().to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    x, dy = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
    found = []
    for call, wide in (
        (torch.compile(copy.deepcopy(model), backend="aicf"), dtype),
        (model.double(), torch.double),
    ):
        given = x.to(wide).clone().requires_grad_()
        y = call(given)
        y.backward(dy.to(wide))
        found.append([y.detach(), given.grad, *(p.grad for p in call.parameters())])
    allowed = 1e-5 if dtype == torch.float32 else 2e-2
    for ours, theirs in zip(*found, strict=True):
        assert ours.dtype == dtype and (ours.double() - theirs).norm() <= allowed * theirs.norm()


def test_sizes_that_change() -> None:
    torch._dynamo.reset()
    model = mlp().eval()
    call = torch.compile(model, backend="aicf", dynamic=True)
    with torch.no_grad():
        for count in (3, 5, 40, 1, 200):
            x = torch.randn(count, 16)
            assert torch.allclose(call(x), model(x), rtol=1e-4, atol=1e-5)


def test_marked_sizes_share_a_graph() -> None:
    torch._dynamo.reset()
    model = mlp().eval()
    call = torch.compile(model, backend="aicf")
    with torch.no_grad(), torch._dynamo.config.patch(error_on_recompile=True):
        for count in (3, 5, 40, 200):
            x = torch.randn(count, 16)
            torch._dynamo.mark_dynamic(x, 0)
            assert torch.allclose(call(x), model(x), rtol=1e-4, atol=1e-5)


def test_a_function_of_several_graphs() -> None:
    torch._dynamo.reset()

    def function(x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) * 2
        if y.sum() > 4:  # two graphs, and one for each side
            y = y + 1
        return y.sin()

    call = torch.compile(function, backend="aicf")
    for x in (torch.ones(5), -torch.ones(5), torch.ones(5)):
        assert torch.allclose(call(x), function(x))


def test_a_compiled_optimizer() -> None:
    torch._dynamo.reset()
    models = [mlp() for _ in range(2)]
    models[1].load_state_dict(models[0].state_dict())
    for model, compiled in zip(models, (True, False), strict=True):
        optimizer = torch.optim.Adam(model.parameters(), 1e-2, foreach=True)
        step = torch.compile(optimizer.step, backend="aicf") if compiled else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.linspace(-1, 1, 32).view(2, 16)).square().sum().backward()
            step()
    for ours, theirs in zip(*(model.parameters() for model in models), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-5)


class PartlySupported(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x) + 1
        return torch.special.airy_ai(y) * 2 + y.sum()


def test_an_unsupported_op_is_an_error_that_names_it() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="aten.special_airy_ai"):
        torch.compile(PartlySupported(), backend="aicf")(torch.randn(4, 4))


def test_the_rest_in_eager_is_reported() -> None:
    torch._dynamo.reset()
    backend.partitions.clear()
    x = torch.randn(4, 4)
    model = PartlySupported()
    y = torch.compile(model, backend="aicf", options={"fallback": "eager"})(x)
    assert torch.allclose(y, model(x), rtol=1e-4, atol=1e-5)
    assert len(backend.partitions) == 1
    assert backend.partitions[0].startswith("1 of ") and "aten.special_airy_ai" in backend.partitions[0]


def test_options_are_checked() -> None:
    torch._dynamo.reset()
    with pytest.raises(Exception, match="AICF-U0001"):
        torch.compile(mlp(), backend="aicf", options={"speed": 11})(torch.randn(1, 16))


def test_dropout_keeps_the_expected_share() -> None:
    torch._dynamo.reset()
    call = torch.compile(nn.Dropout(0.25), backend="aicf")
    x = torch.ones(100, 100, requires_grad=True)
    first, second = call(x), call(x)
    assert abs((first == 0).float().mean() - 0.25) < 0.03
    assert not torch.equal(first, second)
    first.sum().backward()
    assert torch.equal(x.grad, first.detach())


def test_support_lists_every_line() -> None:
    class Two(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            a = torch.special.airy_ai(x)
            b = torch.special.bessel_y0(x @ x.T)
            return a.sum() + b.sum()

    found = aicf.support(Two(), (torch.randn(3, 3),))
    assert not found
    assert [row.op for row in found.unsupported] == [
        "aten.special_airy_ai.default",
        "aten.special_bessel_y0.default",
    ]
    assert "a = torch.special.airy_ai(x)" in found.unsupported[0].source
    assert "bessel_y0" in str(found)
    assert aicf.support(mlp(), (torch.randn(2, 16),))


@pytest.mark.parametrize("keys", [5, 7])
@pytest.mark.parametrize("mask", ["none", "causal", "added"])
def test_heads_of_queries_that_share_keys(mask: str, keys: int) -> None:
    torch._dynamo.reset()
    added = torch.randn(2, 1, 5, keys) if mask == "added" else None

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        causal = mask == "causal"
        return nn.functional.scaled_dot_product_attention(q, k, v, added, is_causal=causal, enable_gqa=True)

    q, *others = torch.randn(2, 4, 5, 8), torch.randn(2, 2, keys, 8), torch.randn(2, 2, keys, 8)
    found = []
    for function in (attention, torch.compile(attention, backend="aicf")):
        leaves = [x.clone().requires_grad_() for x in (q, *others)]
        y = function(*leaves)
        (y * q.cos()).sum().backward()
        found.append([y.detach(), *(x.grad for x in leaves)])
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mask", ["none", "causal", "rows", "added", "scale", "width", "autocast", "dropout"])
def test_attention_as_it_is_traced_on_a_gpu(monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    """There torch has kernels of its own; the op of a CPU takes their place, where it means the same."""
    torch._dynamo.reset()
    monkeypatch.setattr(backend, "whole_attention", lambda _: decompose._WholeAttention())
    widths = (8, 12 if mask == "width" else 8)
    q, k, v = torch.randn(2, 4, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, widths[1])
    masks = {"rows": torch.rand(5, 5) < 0.7, "added": torch.randn(2, 1, 5, 5)}
    scale, dropout = 0.3 if mask == "scale" else None, 1e-9 if mask == "dropout" else 0.0

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return nn.functional.scaled_dot_product_attention(
            q, k, v, masks.get(mask), dropout, is_causal=mask == "causal", scale=scale, enable_gqa=True
        )

    found = []
    for function in (attention, torch.compile(attention, backend="aicf")):
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        with torch.autocast("cpu", torch.bfloat16, enabled=mask == "autocast"):
            y = function(*leaves)
        (y.float() * torch.linspace(-1, 2, y.numel()).view(y.shape).sin()).sum().backward()
        found.append([y.detach(), *(x.grad for x in leaves)])
    bound = 3e-2 if mask == "autocast" else 1e-4
    torch.testing.assert_close(*found, rtol=bound, atol=bound)


def test_attention_on_a_gpu_is_one_op_both_ways() -> None:
    q, k, v = (torch.randn(2, 4, 5, 8, requires_grad=True) for _ in range(3))

    def both(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> Any:
        y = nn.functional.scaled_dot_product_attention(q, k, v)
        return y, torch.autograd.grad(y.sum(), [q, k, v])

    with decompose._WholeAttention():
        graph = make_fx(both)(q, k, v)
    names = [node.target._opname for node in graph.graph.nodes if hasattr(node.target, "_opname")]
    attention = "_scaled_dot_product_flash_attention_for_cpu"
    assert [n for n in names if "attention" in n] == [attention, f"{attention}_backward"]
    assert "bmm" not in names


def test_autocast_mixes_types_as_torch_does() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.LayerNorm(32), nn.GELU(), nn.Unflatten(1, (8, 4)), nn.BatchNorm1d(8)
    )
    compiled = torch.compile(model, backend="aicf")
    x, gradients = torch.randn(6, 16), []
    for call in (model, compiled):
        model.zero_grad()
        with torch.autocast(x.device.type, dtype=torch.bfloat16):
            y = call(x)
        (y.float() * torch.linspace(-1, 2, y.numel()).view(y.shape).sin()).sum().backward()
        gradients.append([y.detach().float(), *(p.grad.clone() for p in model.parameters())])
    for theirs, ours in zip(*gradients, strict=True):
        assert (theirs - ours).norm() <= 0.05 * theirs.norm() + 1e-2


def test_a_compiled_optimizer_steps_as_eager() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)
    steps = []
    for compiled in (False, True):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
        step = torch.compile(optimizer.step, backend="aicf") if compiled else optimizer.step
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(4, 16)).square().sum().backward()
            step()
        steps.append([p.detach().clone() for p in model.parameters()])
    for theirs, ours in zip(*steps, strict=True):
        assert torch.allclose(theirs, ours, rtol=1e-4, atol=1e-5)


def test_complex_values_stay_in_eager() -> None:
    torch._dynamo.reset()

    def spectrum(x: torch.Tensor) -> torch.Tensor:
        return (torch.fft.rfft(x * 2).abs() + 1).relu()

    x = torch.randn(8)
    compiled = torch.compile(spectrum, backend="aicf", options={"fallback": "eager"})
    assert torch.allclose(compiled(x), spectrum(x), rtol=1e-5, atol=1e-5)
    assert "in eager" in backend.partitions[-1]


class _ComplexBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: object, g: torch.Tensor) -> torch.Tensor:
        return torch.view_as_real(torch.fft.fft(g))[..., 0] * 0 + g * 2


_REFUSED = {
    "an op": lambda x: torch.special.airy_ai(x) + 1,
    "complex numbers": lambda x: torch.linalg.eigvals(x.diag()).abs().sort().values,
    "a dtype": lambda x: x.to(torch.uint16).float(),
    "the backward graph": _ComplexBackward.apply,
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", _REFUSED)
def test_a_refusal_is_ours_names_the_fallback_and_logs_no_graph(
    name: str, dynamic: bool | None, caplog: pytest.LogCaptureFixture
) -> None:
    model = _REFUSED[name]
    torch._dynamo.reset()
    x = torch.rand(3, requires_grad=name == "the backward graph")

    def run(**options: str) -> torch.Tensor:
        y = torch.compile(model, backend="aicf", options=options, dynamic=dynamic)(x)
        if x.requires_grad:
            y.sum().backward()
        return y

    with caplog.at_level("WARNING"), pytest.raises(aicf.UserError) as refused:
        run()
    assert refused.value.code in ("AICF-U0301", "AICF-U0302")
    assert 'options={"fallback": "eager"}' in refused.value.remedy
    assert refused.value.remedy in str(refused.value)
    assert not caplog.records
    torch._dynamo.reset()
    assert torch.allclose(run(fallback="eager"), model(x))


@pytest.mark.parametrize("sizes", ["static", "symbolic"])
def test_dense_tensors_in_any_order_of_axes_are_not_copied(
    sizes: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def function(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (x @ y).t(), (x * 2).unsqueeze(0), x[:, ::2] + 1

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="aicf", dynamic=sizes == "symbolic")
    given = []
    run = backend.CompiledGraph._run_on

    def watched(graph: object, executable: object, tensors: tuple[torch.Tensor, ...]) -> object:
        given.extend(tensors)
        return run(graph, executable, tensors)

    def copied(*args: object, **kwargs: object) -> None:
        raise AssertionError("a result was copied")

    monkeypatch.setattr(backend.CompiledGraph, "_run_on", watched)
    x, y = torch.randn(6, 4).t(), torch.randn(3, 6).t()
    compiled(x, y)
    monkeypatch.setattr(torch, "empty_strided", copied)
    given.clear()
    results = compiled(x, y)
    assert [tensor.is_contiguous() for tensor in given if tensor.dim() == 2 and tensor.numel()] == [
        True,
        True,
    ]
    for result, expected in zip(results, function(x, y), strict=True):
        torch.testing.assert_close(result, expected)
        assert result.stride() == expected.stride()
    results[0].add_(1)  # no view of a hidden tensor
    assert not any(result._is_view() for result in results[:2])

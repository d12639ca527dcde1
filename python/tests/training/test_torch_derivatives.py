"""Gradients of torch modules where torch's convention is not the derivative of the formula, and what stops
them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import aicf
import numpy as np
import pytest
from aicf import optim

torch = pytest.importorskip("torch")
F = torch.nn.functional

# Zeros, ties, rows of equal elements, and the bounds of the clipping functions.
POINTS = torch.tensor(
    [[0.0, 0.0, 1.0, 1.0], [-1.0, 2.0, 2.0, -1.0], [0.5] * 4, [0.0] * 4, [3.0, -3.0, 6.0, -6.0]]
)
POSITIVE = torch.tensor(
    [[0.2, 0.9, 0.4, 0.4], [1.0, 1.0, 0.5, 0.25], [0.3] * 4, [2.0, 3, 4, 5], [0.1, 7, 1, 1]]
)
HALF = (POSITIVE > 0.5).float()
ROWS = torch.tensor([0, 0, 1, 4])


class Weighted(torch.nn.Module):
    """The sum of an element-wise weighted function of one parameter."""

    def __init__(self, function: Callable, x: torch.Tensor) -> None:
        super().__init__()
        self.x, self.function = torch.nn.Parameter(x.clone()), function

    def forward(self, scale: torch.Tensor) -> torch.Tensor:
        y = self.function(self.x)
        return (y * torch.linspace(0.5, 1.5, y.numel()).reshape(y.shape)).sum() * scale


def without_gradient(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        fixed = x * 2
        more = fixed.exp()
    return x * fixed + more


def normed(x: torch.Tensor) -> torch.Tensor:
    """The running statistics make torch rewrite the whole graph."""
    return without_gradient(F.batch_norm(x, torch.zeros(4), torch.ones(4), training=True))


def written(write: Callable, result: Callable = lambda x, given: x * x) -> Callable:
    """A function that writes to a value it computed under no_grad, which keeps the value's derivative."""

    def function(x: torch.Tensor) -> torch.Tensor:
        x = x * 1.5
        with torch.no_grad():
            given = write(x)
        return result(x, given)

    return function


def part_set(x: torch.Tensor) -> torch.Tensor:
    x[:, 0] = 0.25
    x[1] += 1.0
    return x[2].mul_(2.0).clone()


def view_written(x: torch.Tensor) -> torch.Tensor:
    x = x * 1.0
    part = x[:, :2]
    with torch.no_grad():
        part.exp_()
    return x * x


def made_there(x: torch.Tensor) -> torch.Tensor:
    made = x * 3
    x.add_(made.relu_())
    return made


CASES = {
    "clamp": (lambda x: x.clamp(0, 1), POINTS),
    "clamp_min": (lambda x: x.clamp(min=0.5), POINTS),
    "clamp_max": (lambda x: x.clamp(max=1.0), POINTS),
    "clamp_tensors": (lambda x: torch.clamp(x, torch.zeros(4), torch.ones(4)), POINTS),
    "hardtanh": (F.hardtanh, POINTS),
    "relu6": (F.relu6, POINTS),
    "hardsigmoid": (F.hardsigmoid, POINTS),
    "hardswish": (F.hardswish, POINTS),
    "mish": (F.mish, POINTS),
    "max": (lambda x: x.max(-1).values, POINTS),
    "min": (lambda x: x.min(0, keepdim=True).values, POINTS),
    "fmax": (lambda x: torch.fmax(x, torch.roll(x, 1, -1)), POINTS),
    "std": (lambda x: x.std(-1), POINTS),
    "std_mean": (lambda x: torch.std_mean(x, -1)[0], POINTS),
    "norm": (lambda x: torch.linalg.vector_norm(x, 2, -1), POINTS),
    "norm_3": (lambda x: torch.linalg.vector_norm(x, 3, -1), POINTS),
    "norm_half": (lambda x: torch.linalg.vector_norm(x, 0.5, -1), POINTS),
    "normalize": (lambda x: F.normalize(x, dim=-1), POINTS),
    "cdist": (lambda x: torch.cdist(x, x), POINTS),
    "dist": (lambda x: torch.dist(x, x * 1.0), POINTS),
    "cosine": (lambda x: F.cosine_similarity(x, torch.roll(x, 1, 0), dim=-1), POINTS),
    "margin": (lambda x: F.margin_ranking_loss(x[:, 0], x[:, 1], torch.ones(5)), POINTS),
    "atan2": (lambda x: torch.atan2(x, x), POINTS),
    "sinc": (torch.sinc, POINTS),
    "erfinv": (lambda x: torch.erfinv(x * 0.1), POINTS),
    "log_ndtr": (torch.special.log_ndtr, POINTS),
    "lgamma": (torch.lgamma, POSITIVE),
    "digamma": (torch.digamma, POSITIVE),
    "saturated_bce": (lambda x: F.binary_cross_entropy(x.clamp(0, 1), HALF), POINTS),
    "target_of_bce": (lambda x: F.binary_cross_entropy(torch.sigmoid(POSITIVE), torch.sigmoid(x)), POINTS),
    "weighted_bce": (lambda x: F.binary_cross_entropy(torch.sigmoid(x), HALF, POSITIVE), POINTS),
    "xlogy": (lambda x: torch.xlogy(x, x.abs() + 0.5), POINTS),
    "xlogy_of_nothing": (lambda x: torch.xlogy(x, x.detach().clamp(min=0)), POINTS[:1]),
    "xlog1py": (lambda x: torch.special.xlog1py(x, x.detach().roll(1, 0).clamp(-0.5, 1)), POINTS),
    "target_of_kl": (lambda x: F.kl_div(torch.log(POSITIVE), x.clamp(min=0)), POINTS),
    "padding": (lambda x: F.embedding(ROWS, x, padding_idx=0), POINTS),
    "detach": (lambda x: x.detach() * x, POINTS),
    "item": (lambda x: x * x.mean().item() + x.sum().item(), POINTS),
    "no_grad": (without_gradient, POINTS),
    "no_grad_rewritten": (normed, POINTS),
    "clamp_no_grad": (written(lambda x: x.clamp_(min=0.1)), POINTS),
    "part_no_grad": (written(part_set, lambda x, part: x * x + part.sum()), POINTS),
    "view_no_grad": (view_written, POINTS),
    "made_no_grad": (written(made_there, lambda x, made: x * x + made * x), POINTS),
    "returned_no_grad": (written(lambda x: x.sin_(), lambda x, same: x * same), POINTS),
    "infinite_no_grad": (
        lambda x: written(lambda y: y.clamp_(-2, 2))(x.masked_fill(x > 1, math.inf)),
        POINTS,
    ),
    "copy_no_grad": (written(lambda x: x.copy_(x.flip(0))), POINTS),
    "checkpoint": (lambda x: torch.utils.checkpoint.checkpoint(torch.tanh, x, use_reentrant=True), POINTS),
}


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_torch(name: str) -> None:
    function, x = CASES[name]
    model = Weighted(function, x)
    expected = model(torch.ones(()))
    expected.backward()
    step = aicf.compile_train_step(
        model, None, optim.SGD(0.1), [aicf.TensorSpec((), "f32", "scale")], gradients=True
    )
    loss, gradient = step.run_entry("gradients", np.ones((), np.float32))
    np.testing.assert_allclose(np.asarray(loss), expected.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(np.asarray(gradient), model.x.grad.numpy(), rtol=2e-4, atol=2e-5)


def test_a_write_through_detach_is_refused() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        x = x * 1.5
        x.detach()[0].clamp_(min=0)
        return x * x

    model, spec = Weighted(function, POINTS), aicf.TensorSpec((), "f32", "scale")
    with pytest.raises(aicf.UserError, match="through detach") as refused:
        aicf.compile_train_step(model, None, optim.SGD(0.1), [spec])
    assert refused.value.op == "aten.clamp_.default" and "clamp_(min=0)" in refused.value.value


class Straight(torch.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: torch.Tensor) -> torch.Tensor:
        return x.round()

    @staticmethod
    def backward(ctx: object, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


def hooked(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y.register_hook(lambda gradient: gradient * 2)
    return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: Straight.apply(x),
        hooked,
        lambda x: F.embedding(ROWS, x, scale_grad_by_freq=True),
    ],
)
def test_a_derivative_that_would_be_lost_is_refused(function: Callable) -> None:
    with pytest.raises(aicf.UserError) as caught:
        aicf.compile_train_step(Weighted(function, POINTS), None, optim.SGD(0.1), [aicf.TensorSpec(())])
    assert caught.value.code == "AICF-U0301" and caught.value.remedy
    assert Straight.apply(POINTS).shape == POINTS.shape


def hook_of_a_parameter(model: torch.nn.Module) -> object:
    return model.layer.weight.register_hook(lambda gradient: gradient * 2)


def hook_after_a_parameter(model: torch.nn.Module) -> object:
    return model.layer.weight.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(2))


def hook_of_a_module(model: torch.nn.Module) -> object:
    return model.layer.register_full_backward_hook(lambda module, into, out: (into[0] * 2,))


def hook_before_a_module(model: torch.nn.Module) -> object:
    return model.layer.register_full_backward_pre_hook(lambda module, out: (out[0] * 2,))


def hook_of_all_modules(model: torch.nn.Module) -> object:
    return torch.nn.modules.module.register_module_full_backward_hook(lambda module, into, out: None)


@pytest.mark.parametrize(
    "register",
    [
        hook_of_a_parameter,
        hook_after_a_parameter,
        hook_of_a_module,
        hook_before_a_module,
        hook_of_all_modules,
    ],
)
def test_hooks_from_before_the_trace_are_refused(register: Callable) -> None:
    model = torch.nn.Sequential()
    model.add_module("layer", torch.nn.Linear(4, 3))
    handle = register(model)
    words = (model, torch.nn.MSELoss(), optim.SGD(0.1), [aicf.TensorSpec((2, 4)), aicf.TensorSpec((2, 3))])
    try:
        with pytest.raises(aicf.UserError, match="hooks of gradients") as caught:
            aicf.compile_train_step(*words)
    finally:
        handle.remove()
    assert caught.value.code == "AICF-U0301" and caught.value.value in ("layer", "layer.weight", "")
    aicf.compile_train_step(*words)

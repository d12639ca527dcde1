"""Interpolation forward: whole factors, any others, positions in f32 as torch takes them."""

import aicf
import pytest
import torch
from torch.nn import functional

SHAPES = {
    "nearest": [(2, 3, 7), (2, 3, 5, 6), (1, 2, 3, 4, 5)],
    "nearest-exact": [(2, 3, 7), (2, 3, 5, 6)],
    "linear": [(2, 3, 7)],
    "bilinear": [(2, 3, 5, 6), (1, 2, 1, 4)],
    "trilinear": [(1, 2, 3, 4, 5)],
}
CASES = [(mode, shape) for mode, shapes in SHAPES.items() for shape in shapes]


@pytest.mark.parametrize("mode, shape", CASES)
@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_forward(mode, shape, dtype, tolerance):
    x = torch.randn(shape).to(dtype)
    places = len(shape) - 2
    asked = [{"scale_factor": f} for f in (2.0, 3.0, 2.5, 1.7)]
    asked += [{"size": size[:places]} for size in ((10, 10, 10), (7, 12, 3), (4, 2, 1))]
    for align in (False, True) if "linear" in mode else (None,):

        def call(x, align=align):
            return tuple(functional.interpolate(x, mode=mode, align_corners=align, **a) for a in asked)

        for found, expected in zip(aicf.compile(call, (x,))(x), call(x), strict=True):
            found = torch.as_tensor(found)
            assert found.dtype == dtype
            torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)


def test_an_infinite_position_reaches_no_further_than_in_torch():
    x = torch.randn(1, 1, 4, 4)
    x[0, 0, 1, 2] = torch.inf

    def call(x):
        return functional.interpolate(x, scale_factor=2.0, mode="bilinear")

    found, expected = torch.as_tensor(aicf.compile(call, (x,))(x)), call(x)
    assert found[expected.isfinite()].isfinite().all()


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_training_goes_through_it(mode):
    """The gradient of a whole factor, and of others."""
    for factor in (2.0, 1.5):

        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.w = torch.nn.Parameter(torch.linspace(-1, 1, 24).reshape(1, 2, 3, 4))

            def forward(self, x, factor=factor):
                return functional.interpolate(self.w * x, scale_factor=factor, mode=mode).square().sum()

        x, net = torch.randn(1, 2, 3, 4), Net()
        net(x).backward()
        step = aicf.compile_train_step(net, None, aicf.optim.SGD(0.1), [x], gradients=True)
        found = torch.as_tensor(step.run_entry("gradients", x)[1])
        torch.testing.assert_close(found, net.w.grad, rtol=1e-4, atol=1e-4)

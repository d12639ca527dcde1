"""Gradients of pools and of resizing, which gather what the windows or places over a position give."""

from functools import partial

import aicf
import pytest
import torch

aten = torch.ops.aten
# kernel, stride, padding, dilation, size: apart, overlapping, beyond the end, more than a gather takes
POOLS = [
    (2, 2, 0, 1, (8, 8)),
    (2, 2, 0, 1, (7, 9)),
    (3, 2, 1, 1, (9, 8)),
    (3, 1, 1, 1, (7, 9)),
    (3, 2, 0, 2, (11, 12)),
    (5, 3, 2, 1, (13, 10)),
    (5, 1, 2, 1, (9, 9)),
]


def _agrees(call, *xs, atol=1e-5):
    exe = aicf.compile(call, xs)
    found, again = torch.as_tensor(exe(*xs)), torch.as_tensor(exe(*xs))
    assert torch.equal(found, again)
    torch.testing.assert_close(found, call(*xs), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("kernel, stride, padding, dilation, size", POOLS)
def test_maxima(kernel, stride, padding, dilation, size):
    window = [kernel] * 2, [stride] * 2, [padding] * 2, [dilation] * 2
    x = torch.randint(-3, 3, (2, 3, *size)).float()  # many equal maxima

    def call(grad, x):
        indices = aten.max_pool2d_with_indices(x, *window)[1]
        return aten.max_pool2d_with_indices_backward(grad, x, *window, False, indices)

    _agrees(call, torch.randn_like(aten.max_pool2d_with_indices(x, *window)[0]), x)


@pytest.mark.parametrize("count_include_pad", [True, False])
@pytest.mark.parametrize("kernel, stride, padding, dilation, size", [p for p in POOLS if p[3] == 1])
def test_means(kernel, stride, padding, dilation, size, count_include_pad):
    window = [kernel] * 2, [stride] * 2, [padding] * 2
    x = torch.randn(2, 3, *size)
    for ceil_mode in (False, True):
        y = aten.avg_pool2d(x, *window, ceil_mode, count_include_pad)

        def call(grad, x, ceil_mode=ceil_mode):
            return aten.avg_pool2d_backward(grad, x, *window, ceil_mode, count_include_pad, None)

        _agrees(call, torch.randn_like(y), x)


def test_halves_are_added_in_f32():
    """Four windows chose one position, of which three would vanish beside the first in bf16."""
    grad = torch.tensor([[[[256.0, 1.0], [1.0, 1.0]]]], dtype=torch.bfloat16)
    x = torch.zeros(1, 1, 3, 3, dtype=torch.bfloat16)
    x[0, 0, 1, 1] = 1
    window = [2, 2], [1, 1], [0, 0], [1, 1]

    def call(grad, x):
        indices = aten.max_pool2d_with_indices(x, *window)[1]
        return aten.max_pool2d_with_indices_backward(grad, x, *window, False, indices)

    assert torch.as_tensor(aicf.compile(call, (grad, x))(grad, x))[0, 0, 1, 1] == 260


@pytest.mark.parametrize("size, out", [((5, 6), (10, 12)), ((5, 7), (11, 20)), ((9, 8), (4, 5))])
def test_resizing(size, out):
    grad, source = torch.randn(2, 3, *out), [2, 3, *size]
    _agrees(lambda g: aten.upsample_nearest2d_backward(g, list(out), source), grad)
    for align in (False, True):
        _agrees(lambda g, align=align: aten.upsample_bilinear2d_backward(g, list(out), source, align), grad)


def test_resizing_by_a_factor():
    grad = torch.randn(2, 3, 11)
    _agrees(lambda g: aten.upsample_nearest1d_backward(g, [11], [2, 3, 5], 2.3), grad)
    _agrees(lambda g: aten.upsample_linear1d_backward(g, [11], [2, 3, 5], False, 2.3), grad)
    volume = torch.randn(2, 3, 4, 6, 5)
    _agrees(lambda g: aten.upsample_trilinear3d_backward(g, [4, 6, 5], [2, 3, 2, 3, 5], False), volume)


def test_repeats_are_summed_as_they_are_read():
    """Halves are widened slice by slice: no wide copy of all of them is made."""
    grad = torch.randn(2, 3, 8, 12).half()
    call = partial(aten.upsample_nearest2d_backward, output_size=[8, 12], input_size=[2, 3, 4, 6])
    text = aicf.compile(lambda g: call(g), (grad,)).explain()
    assert "1 steps" in text, text


@pytest.mark.parametrize("size, out", [((45, 61), (7, 9)), ((64, 40), (5, 1)), ((40, 64), (60, 70))])
def test_adaptive_means_of_a_large_plane(size, out):
    x = torch.randn(2, 3, *size)
    _agrees(aten._adaptive_avg_pool2d_backward, torch.randn(2, 3, *out), x)

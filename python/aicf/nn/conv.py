"""Convolution, pooling and batch normalisation of images [N, C, H, W]."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ops
from .._build import check_flag
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import current_graph
from .init import filled, uniform
from .module import Module, State

__all__ = ["AvgPool2d", "BatchNorm2d", "Conv2d", "Flatten", "MaxPool2d"]

Pair = int | Sequence[int]


def _pair(value: Pair) -> list[int]:
    return [value, value] if isinstance(value, int) else list(value)


class Conv2d(Module):
    """Cross-correlation with W [out_channels, in_channels / groups, kernel...] plus b [out_channels]."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel: Pair,
        stride: Pair = 1,
        padding: Pair = 0,
        dilation: Pair = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: str = "float32",
    ) -> None:
        sizes = _pair(kernel)
        if groups < 1 or in_channels % groups != 0 or out_channels % groups != 0 or min(sizes) < 1:
            raise make_error(
                "bad_option",
                "the numbers of a convolution do not fit",
                value=f"channels={in_channels} to {out_channels}, groups={groups}, kernel={sizes}",
                expected="channels that are multiples of groups, a kernel of at least 1",
            )
        check_flag("bias", bias)
        fan_in = in_channels // groups * sizes[0] * sizes[1]
        self.strides, self.pads, self.dilations = _pair(stride), _pair(padding) * 2, _pair(dilation)
        self.groups = groups
        self.W = uniform((out_channels, in_channels // groups, *sizes), fan_in, dtype)
        self.b = uniform((out_channels,), fan_in, dtype) if bias else None

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.conv(
            x,
            self.W,
            self.b,
            strides=self.strides,
            pads=self.pads,
            dilations=self.dilations,
            groups=self.groups,
        )


class _Pool2d(Module):
    def __init__(self, kernel: Pair, stride: Pair | None = None, padding: Pair = 0) -> None:
        self.kernel = _pair(kernel)
        self.strides = _pair(kernel if stride is None else stride)
        self.pads = _pair(padding) * 2


class MaxPool2d(_Pool2d):
    """Maximum over windows; padding never wins."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.max_pool(x, kernel=self.kernel, strides=self.strides, pads=self.pads, dilations=[1, 1])


class AvgPool2d(_Pool2d):
    """Mean over windows; padding counts as zeros."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.avg_pool(
            x,
            kernel=self.kernel,
            strides=self.strides,
            pads=self.pads,
            dilations=[1, 1],
            count_include_pad=True,
        )


class Flatten(Module):
    """[N, ...] to [N, all the rest]."""

    def forward(self, x: SymTensor) -> SymTensor:
        rest = 1
        for size in x.shape[1:]:
            rest = rest * size
        return x.reshape(x.shape[0], rest)


class BatchNorm2d(Module):
    """Normalises each channel of [N, C, H, W], times `scale` plus `bias`.

    While training by the mean and variance of the batch, which also move `running_mean` and `running_var` by
    `momentum` (the variance there is the unbiased one); else by those.
    """

    def __init__(
        self, channels: int, epsilon: float = 1e-5, momentum: float = 0.1, dtype: str = "float32"
    ) -> None:
        if not 0.0 <= momentum <= 1.0:
            raise make_error(
                "bad_option", "a momentum is out of range", value=str(momentum), expected="0 to 1"
            )
        self.epsilon, self.momentum = epsilon, momentum
        self.scale = filled((channels,), 1.0, dtype)
        self.bias = filled((channels,), 0.0, dtype)
        self.running_mean = State(filled((channels,), 0.0, dtype).data)
        self.running_var = State(filled((channels,), 1.0, dtype).data)

    def forward(self, x: SymTensor) -> SymTensor:
        if not current_graph().training:
            return ops.batch_norm(
                x, self.scale, self.bias, self.running_mean, self.running_var, epsilon=self.epsilon
            )
        values = x.shape[0] * x.shape[2] * x.shape[3]
        if values == 1:
            raise make_error(
                "input_shape",
                "a batch norm trains on one value a channel, which has no variance",
                expected="more than one of batch, height and width together",
                actual=str(list(x.shape)),
                remedy="a larger batch or image, or another norm",
            )
        count = current_graph().lift(values, dtype=x.dtype)
        y, mean, var = ops.batch_norm_train(x, self.scale, self.bias, epsilon=self.epsilon)
        self._move(self.running_mean, mean)
        # A batch of a range may be of one value; its variance counts as 0 then.
        self._move(self.running_var, var * (count / ops.max(count - 1.0, 1.0)))
        return y

    def _move(self, state: State, value: SymTensor) -> None:
        state.update(state.sym() * (1.0 - self.momentum) + value * self.momentum)

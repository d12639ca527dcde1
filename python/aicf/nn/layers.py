"""Linear, Embedding, normalisations, activations, Dropout."""

from __future__ import annotations

from collections.abc import Sequence

from .. import ops
from .._build import check_flag
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import current_graph
from .init import filled, normal, uniform
from .module import Module

__all__ = [
    "GELU",
    "Dropout",
    "Embedding",
    "LayerNorm",
    "Linear",
    "RMSNorm",
    "ReLU",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
]


class Linear(Module):
    """x[..., in_features] @ W[in_features, out_features] + b[out_features]."""

    def __init__(
        self, in_features: int, out_features: int, bias: bool = True, dtype: str = "float32"
    ) -> None:
        check_flag("bias", bias)
        self.W = uniform((in_features, out_features), in_features, dtype)
        self.b = uniform((out_features,), in_features, dtype) if bias else None

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.linear(x, self.W, self.b)


class Embedding(Module):
    """Rows of W[count, features] by integer ids of any shape."""

    def __init__(self, count: int, features: int, dtype: str = "float32") -> None:
        self.W = normal((count, features), dtype)

    def forward(self, ids: SymTensor) -> SymTensor:
        return ops.gather(self.W, ids, axis=0)


class LayerNorm(Module):
    """(x - mean) / sqrt(var + epsilon) over the last axes, times `scale` plus `bias`, shaped as those."""

    def __init__(
        self, shape: int | Sequence[int], epsilon: float = 1e-5, bias: bool = True, dtype: str = "float32"
    ) -> None:
        check_flag("bias", bias)
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axis = -len(sizes)
        self.epsilon = epsilon
        self.scale = filled(sizes, 1.0, dtype)
        self.bias = filled(sizes, 0.0, dtype) if bias else None

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.layer_norm(x, self.scale, self.bias, axis=self.axis, epsilon=self.epsilon)


class RMSNorm(Module):
    """x / sqrt(mean(x^2) + epsilon) over the last axes, times `scale`."""

    def __init__(self, shape: int | Sequence[int], epsilon: float = 1e-5, dtype: str = "float32") -> None:
        sizes = (shape,) if isinstance(shape, int) else tuple(shape)
        self.axis = -len(sizes)
        self.epsilon = epsilon
        self.scale = filled(sizes, 1.0, dtype)

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.rms_norm(x, self.scale, axis=self.axis, epsilon=self.epsilon)


class ReLU(Module):
    """max(x, 0)."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.relu(x)


class GELU(Module):
    """x Phi(x); `approximate="tanh"` for the formula with tanh."""

    def __init__(self, approximate: str = "none") -> None:
        self.approximate = approximate

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.gelu(x, approximate=self.approximate)


class SiLU(Module):
    """x sigmoid(x)."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.silu(x)


class Tanh(Module):
    """Hyperbolic tangent."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.tanh(x)


class Sigmoid(Module):
    """1 / (1 + e^-x)."""

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.sigmoid(x)


class Softmax(Module):
    """e^(x - max) / sum along `axis`."""

    def __init__(self, axis: int = -1) -> None:
        self.axis = axis

    def forward(self, x: SymTensor) -> SymTensor:
        return ops.softmax(x, axis=self.axis)


class Dropout(Module):
    """While training, zeros elements with probability `p` and divides the others by 1 - p; else the identity.

    What falls is a function of the run's seed, the module's path, the step and the element's index, so it can
    be computed again anywhere.
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0.0 <= p < 1.0:
            raise make_error(
                "bad_option", "a dropout rate is out of range", value=str(p), expected="0 <= p < 1"
            )
        self.p = p

    def forward(self, x: SymTensor) -> SymTensor:
        if not current_graph().training or self.p == 0.0:
            return x
        bits = current_graph().random_bits(self, x.shape)
        kept = (bits & 0x7FFFFFFF) >= round(self.p * 2**31)
        return ops.select(kept, x * (1.0 / (1.0 - self.p)), current_graph().lift(0.0, dtype=x.dtype))

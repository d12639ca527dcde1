"""Losses: modules that map a prediction and a target to one number, f32 or f64."""

from __future__ import annotations

from .. import _aicf
from ..errors import make_error
from ..symtensor import SymTensor
from ..tracing import current_graph
from .module import Module

__all__ = ["BCEWithLogitsLoss", "CrossEntropyLoss", "HuberLoss", "KLDivLoss", "MSELoss"]


class _Loss(Module):
    kind = ""
    delta, label_smoothing, ignore_index = 1.0, 0.0, -100

    def __init__(self, reduction: str = "mean") -> None:
        if reduction not in ("mean", "sum"):
            raise make_error(
                "bad_option", "a loss cannot be reduced in this way", value=reduction, expected="mean or sum"
            )
        self.reduction = reduction

    def forward(self, prediction: SymTensor, target: SymTensor) -> SymTensor:
        graph = current_graph()
        value = _aicf.add_loss(
            graph.raw,
            self.kind,
            graph.lift(prediction).id,
            graph.lift(target).id,
            self.reduction == "sum",
            self.delta,
            self.label_smoothing,
            self.ignore_index,
        )
        return SymTensor(graph, value)


class MSELoss(_Loss):
    """(x - y)^2."""

    kind = "mse"


class HuberLoss(_Loss):
    """d^2 / 2 where |d| <= delta, else delta (|d| - delta / 2), with d = x - y."""

    kind = "huber"

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction)
        if not delta > 0:
            raise make_error(
                "bad_option", "a delta is out of range", value=str(delta), expected="more than 0"
            )
        self.delta = delta


class CrossEntropyLoss(_Loss):
    """-log softmax(logits)[label] for logits [N, C] or [N, C, ...] and integer labels [N] or [N, ...].

    Labels equal to `ignore_index` do not count, the mean is over the others. `label_smoothing` gives that
    share of the target evenly to all classes. A label that is no class makes the loss NaN.
    """

    kind = "cross_entropy"

    def __init__(
        self, reduction: str = "mean", label_smoothing: float = 0.0, ignore_index: int = -100
    ) -> None:
        super().__init__(reduction)
        if not 0 <= label_smoothing <= 1:
            raise make_error(
                "bad_option", "label smoothing is out of range", value=str(label_smoothing), expected="0 to 1"
            )
        self.label_smoothing = label_smoothing
        self.ignore_index = ignore_index


class BCEWithLogitsLoss(_Loss):
    """log(1 + e^x) - x y: binary cross-entropy of sigmoid(x) and y in 0..1."""

    kind = "bce_with_logits"


class KLDivLoss(_Loss):
    """y (log y - x) for log probabilities x and probabilities y, summed; the mean is over rows."""

    kind = "kl_divergence"

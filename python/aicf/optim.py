"""Optimizers and learning rate schedules for `aicf.compile_train_step`.

Formulas and defaults are those of torch.optim. A rate is a number, one of the schedules below, or any
function that maps the traced number of finished steps (an i64 scalar) to a float scalar. Numbers out of range
are refused where they are written (bad_option).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from . import _aicf
from ._build import check_flag
from .errors import make_error
from .tracing import Graph, tracing

__all__ = [
    "SGD",
    "Adam",
    "AdamW",
    "Group",
    "LossScale",
    "Optimizer",
    "Schedule",
    "constant",
    "cosine",
    "linear",
    "step",
]


class Schedule:
    """The learning rate as a function of the number of finished steps, computed inside the step."""

    def __init__(self, graph: _aicf.Graph) -> None:
        self.graph = graph

    def warmup(self, steps: int) -> Schedule:
        """Rises evenly to the first rate in `steps` steps; this schedule begins after them."""
        return Schedule(_aicf.with_warmup(self.graph, _whole(steps)))


def _whole(steps: int) -> int:
    if hasattr(steps, "__index__") and -(2**62) <= operator.index(steps) <= 2**62:
        return operator.index(steps)
    raise make_error(
        "bad_option", "steps are counted", value=repr(steps), expected="a whole number of less than 63 bits"
    )


def _rates(*values: float) -> tuple[float, ...]:
    return tuple(_real("a rate", value) for value in values)


def _real(name: str, value: Any) -> float:
    if hasattr(value, "__float__") and not isinstance(value, bool):
        return float(value)
    raise make_error(
        "bad_option", "a number is missing", value=name, expected="a number", actual=repr(value)[:80]
    )


Rate = float | Schedule | Callable[[Any], Any]


def constant(rate: float, warmup: int = 0) -> Schedule:
    """Always `rate`, after the warm-up."""
    return Schedule(_aicf.constant_rate(_real("a rate", rate))).warmup(warmup)


def linear(first: float, last: float, total: int, warmup: int = 0) -> Schedule:
    """From `first`, when the warm-up is over, to `last` at step `total`."""
    return Schedule(_aicf.linear_rate(*_rates(first, last), _whole(total) - _whole(warmup))).warmup(warmup)


def cosine(peak: float, total: int, warmup: int = 0, floor: float = 0.0) -> Schedule:
    """Half a cosine from `peak`, when the warm-up is over, to `floor` at step `total`."""
    peak, floor = _rates(peak, floor)
    return Schedule(_aicf.cosine_rate(peak, _whole(total) - _whole(warmup), floor)).warmup(warmup)


def step(rate: float, factor: float, every: int, warmup: int = 0) -> Schedule:
    """rate * factor^(step // every), counted from the end of the warm-up."""
    return Schedule(_aicf.step_rate(*_rates(rate, factor), _whole(every))).warmup(warmup)


def schedule_graph(rate: Rate) -> _aicf.Graph:
    """The graph from the step to the rate."""
    if isinstance(rate, Schedule):
        return rate.graph
    if isinstance(rate, (int, float)) and not isinstance(rate, bool):
        return _aicf.constant_rate(float(rate))
    if not callable(rate):
        raise make_error(
            "bad_option",
            "this gives no learning rate",
            value=repr(rate),
            expected="a number, a schedule of aicf.optim, or a function of the step",
            actual=type(rate).__name__,
        )
    graph = Graph("schedule")
    with tracing(graph):
        value = rate(graph.input("step", (), "i64"))
        graph.output(value, "rate")
    graph.finish()
    return graph.raw


@dataclass(frozen=True)
class Group:
    """Params that are treated apart: patterns are names, `*` stands for any text.

    The rate is multiplied by `rate_factor`; `weight_decay` replaces the optimizer's; a group that is not
    `trainable` stays as it is, and no gradient is computed for it.
    """

    patterns: Sequence[str]
    rate_factor: float = 1.0
    weight_decay: float | None = None
    trainable: bool = True

    def __post_init__(self) -> None:
        if isinstance(self.patterns, str):
            raise make_error(
                "bad_option",
                "a group takes a list of patterns",
                value=repr(self.patterns),
                expected=f"[{self.patterns!r}]",
            )
        if not isinstance(self.patterns, (list, tuple)) or not self.patterns:
            raise make_error(
                "bad_option",
                "a group names no parameters",
                expected='a list of patterns such as ["*.bias"]',
                actual=repr(self.patterns)[:80],
            )
        check_flag("trainable", self.trainable)
        for pattern in self.patterns:
            if not isinstance(pattern, str):
                raise make_error(
                    "bad_option", "a pattern is no text", expected="a text", actual=repr(pattern)[:80]
                )
        decay = None if self.weight_decay is None else _real("weight_decay", self.weight_decay)
        _aicf.check_group(_real("rate_factor", self.rate_factor), decay)


_OF_DYNAMIC = {"growth": 2.0, "backoff": 0.5, "interval": 2000}


@dataclass(frozen=True)
class LossScale:
    """The loss is multiplied by this before its gradients are taken, and the gradients divided by it.

    If `dynamic`, a step with a gradient that is not finite changes nothing and multiplies the scale by
    `backoff`; after `interval` good steps it is multiplied by `growth`.
    """

    initial: float = 65536.0
    dynamic: bool = True
    growth: float = 2.0
    backoff: float = 0.5
    interval: int = 2000

    def __post_init__(self) -> None:
        check_flag("dynamic", self.dynamic)
        _aicf.check_loss_scale(self.numbers())
        fixed = [] if self.dynamic else [n for n in _OF_DYNAMIC if getattr(self, n) != _OF_DYNAMIC[n]]
        if fixed:
            raise make_error(
                "bad_option",
                "a loss scale that is not dynamic does not change",
                value=", ".join(fixed),
                remedy="leave it out, or give dynamic=True",
            )

    def numbers(self) -> _aicf.LossScale:
        """As the compiler takes them."""
        raw = _aicf.LossScale()
        for name in ("initial", "growth", "backoff"):
            setattr(raw, name, _real(name, getattr(self, name)))
        raw.dynamic, raw.interval = bool(self.dynamic), _whole(self.interval)
        return raw


@dataclass(frozen=True)
class Optimizer:
    """Base of the optimizers; the first group that matches a param's name holds for it."""

    lr: Rate
    weight_decay: float = 0.0
    groups: Sequence[Group] = field(default=(), kw_only=True)

    kind = ""

    def __post_init__(self) -> None:
        if not callable(self.lr):
            schedule_graph(self.lr)
        for group in self.groups if isinstance(self.groups, (list, tuple)) else [self.groups]:
            if not isinstance(group, Group):
                raise make_error(
                    "bad_option",
                    "groups are a list",
                    actual=repr(group)[:80],
                    expected="[aicf.optim.Group(...)]",
                )
        _aicf.check_optimizer(self.numbers())

    def numbers(self) -> _aicf.OptimizerOptions:
        """What the compiler needs besides the rate."""
        numbers = _aicf.OptimizerOptions()
        numbers.weight_decay = _real("weight_decay", self.weight_decay)
        return numbers

    def rows(self) -> list[tuple[list[str], float, float | None, bool]]:
        """The groups as the compiler takes them."""
        return [(list(g.patterns), g.rate_factor, g.weight_decay, g.trainable) for g in self.groups]


@dataclass(frozen=True)
class SGD(Optimizer):
    """p - rate * b with momentum b = momentum * b + g; weight decay is added to the gradient."""

    momentum: float = field(default=0.0, kw_only=True)
    nesterov: bool = field(default=False, kw_only=True)

    kind = "sgd"

    def numbers(self) -> _aicf.OptimizerOptions:
        check_flag("nesterov", self.nesterov)
        numbers = super().numbers()
        numbers.momentum, numbers.nesterov = _real("momentum", self.momentum), bool(self.nesterov)
        return numbers


@dataclass(frozen=True)
class Adam(Optimizer):
    """Kingma and Ba 2015; weight decay is added to the gradient."""

    lr: Rate = 1e-3
    betas: tuple[float, float] = field(default=(0.9, 0.999), kw_only=True)
    eps: float = field(default=1e-8, kw_only=True)

    kind = "adam"

    def numbers(self) -> _aicf.OptimizerOptions:
        numbers = super().numbers()
        if not isinstance(self.betas, Sequence) or len(self.betas) != 2:
            raise make_error(
                "bad_option", "Adam takes two betas", value=repr(self.betas), expected="(0.9, 0.999)"
            )
        numbers.beta1, numbers.beta2 = (_real("a beta", beta) for beta in self.betas)
        numbers.epsilon = _real("eps", self.eps)
        return numbers


@dataclass(frozen=True)
class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter 2019)."""

    weight_decay: float = 0.01

    kind = "adamw"

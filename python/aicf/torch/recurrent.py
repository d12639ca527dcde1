"""Recurrent layers of torch as one op each while a module is exported.

torch decomposes them step by step, which fixes the length of the sequences. Layers with dropout between them
stay torch's in training mode, and those whose outputs are projected: our op for these has no gradient.
Functions such as torch.lstm are the layers of torch.nn with their operands given.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import _VF
from torch.nn.utils.parametrize import is_parametrized

__all__ = ["weights_listed", "whole_recurrent_layers"]

_NAME = "aicf::recurrent"
_MODES = ("lstm", "gru", "rnn_tanh", "rnn_relu")
_OPERANDS = (
    "input", "hx", "params", "has_biases", "num_layers", "dropout", "train", "bidirectional", "batch_first"
)  # fmt: skip

torch.library.define(
    _NAME,
    "(str mode, Tensor x, Tensor[] state, Tensor[] weights, bool biases, int layers, bool bidirectional, "
    "bool batch_first, bool training) -> Tensor[]",
)


def _plain(mode: str) -> Callable[..., Any]:
    return getattr(torch._C._VariableFunctions, mode)


@torch.library.impl(_NAME, "CompositeExplicitAutograd")
def _computed(
    mode: str, x: torch.Tensor, state: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], *layout: Any
) -> list[torch.Tensor]:
    biases, layers, bidirectional, batch_first, _training = layout
    start = list(state) if mode == "lstm" else state[0]
    return list(_plain(mode)(x, start, list(weights), biases, layers, 0.0, False, bidirectional, batch_first))


@torch.library.register_fake(_NAME)
def _described(
    mode: str, x: torch.Tensor, state: Sequence[torch.Tensor], weights: Sequence[torch.Tensor], *layout: Any
) -> list[torch.Tensor]:
    _biases, _layers, bidirectional, *_ = layout
    width = state[0].shape[-1] * (2 if bidirectional else 1)
    return [x.new_empty(*x.shape[:-1], width), *(s.new_empty(s.shape) for s in state)]


def weights_listed(model: torch.nn.Module) -> None:
    """The layers' lists of their parameters name those of now, which is what a call of a layer begins with.

    In a trace parameters are others than outside: lists made only in a call would look like something that it
    leaves for the next one.
    """
    for part in model.modules():
        # A parametrised weight is computed whenever it is asked for.
        if isinstance(part, torch.nn.RNNBase) and not is_parametrized(part):
            part._update_flat_weights()


def _has_gradient(
    weights: Sequence[torch.Tensor], biases: bool, layers: int, dropout: float, bidirectional: bool
) -> bool:
    projected = len(weights) > layers * (2 if bidirectional else 1) * (4 if biases else 2)
    return not projected and (dropout == 0 or layers == 1)


@contextmanager
def whole_recurrent_layers() -> Iterator[None]:
    """torch's recurrent functions, which its layers call too, are the op `aicf::recurrent` in this thread."""
    here = threading.get_ident()

    def whole(mode: str) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            # A packed sequence has its sizes, a tensor, in front of the state.
            given = dict(zip(_OPERANDS, args, strict=False)) | named
            if len(given) < len(_OPERANDS) or isinstance(
                given["hx" if mode == "lstm" else "params"], torch.Tensor
            ):
                return _plain(mode)(*args, **named)
            x, state, weights, biases, layers, dropout, training, bidirectional, batch_first = (
                given[name] for name in _OPERANDS
            )
            if threading.get_ident() != here or (
                training and not _has_gradient(weights, biases, layers, dropout, bidirectional)
            ):
                return _plain(mode)(*args, **named)
            start = list(state) if mode == "lstm" else [state]
            made = torch.ops.aicf.recurrent(
                mode, x, start, list(weights), biases, layers, bidirectional, batch_first, training
            )
            return tuple(made)

        return call

    for mode in _MODES:
        setattr(_VF, mode, whole(mode))
        setattr(torch, mode, whole(mode))
    try:
        yield
    finally:
        for mode in _MODES:
            delattr(_VF, mode)
            setattr(torch, mode, _plain(mode))

"""What decoders with and without an encoder share: Hugging Face's static cache as states, and the loop over
tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from .._build import check_type, check_whole
from ..errors import make_error

__all__ = ["CacheBuffers", "append_tokens", "chooser", "end_tokens"]


class CacheBuffers:
    """The tensors of cache layers as buffers of a module, which an import turns into states."""

    def __init__(self, owner: nn.Module, name: str, layers: Sequence[Any], tensors: Sequence[str]) -> None:
        self._layers, self._tensors, self._name = layers, tensors, name
        for index, layer in enumerate(layers):
            for tensor in tensors:
                value = getattr(layer, tensor).detach().clone()
                owner.register_buffer(f"{name}_{index}_{tensor}", value, persistent=False)

    @contextmanager
    def bound(self, owner: nn.Module) -> Iterator[None]:
        """While it lasts the layers read and write the owner's buffers, in each trace those that torch gives.

        What a layer holds at the end in another tensor is written into the buffer.
        """
        places = [(layer, tensor) for layer in self._layers for tensor in self._tensors]
        before = [getattr(layer, tensor) for layer, tensor in places]
        buffers = [
            getattr(owner, f"{self._name}_{index}_{tensor}")
            for index in range(len(self._layers))
            for tensor in self._tensors
        ]
        for (layer, tensor), buffer in zip(places, buffers, strict=True):
            setattr(layer, tensor, buffer)
        try:
            yield
            for (layer, tensor), buffer in zip(places, buffers, strict=True):
                if getattr(layer, tensor) is not buffer:
                    buffer.copy_(getattr(layer, tensor))
        finally:
            for (layer, tensor), value in zip(places, before, strict=True):
                setattr(layer, tensor, value)


def end_tokens(model: Any) -> frozenset[int]:
    """Tokens that end a text, of the model's generation configuration."""
    ends = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    return frozenset([] if ends is None else [ends] if isinstance(ends, int) else ends)


def append_tokens(
    ids: torch.Tensor,
    first: torch.Tensor,
    step: Callable[[torch.Tensor], torch.Tensor],
    count: int,
    ends: frozenset[int],
    choose: Callable[[torch.Tensor], torch.Tensor],
) -> torch.Tensor:
    """`ids` and up to `count` tokens after them; `first` are the logits that follow `ids`, `step` gives
    those that follow one more token. A row that has met an end token repeats it.
    """
    done = torch.zeros(ids.shape[0], dtype=torch.bool, device=ids.device)
    pieces, logits = [ids], first
    for index in range(count):
        if index:
            logits = step(pieces[-1])
        token = torch.where(done, pieces[-1][:, -1], choose(logits))[:, None]
        pieces.append(token)
        if ends:
            done |= torch.isin(token[:, 0], torch.tensor(sorted(ends), device=ids.device))
            if bool(done.all()):
                break
    return torch.cat(pieces, dim=1)


def chooser(
    temperature: float, top_k: int | None, generator: torch.Generator | None
) -> Callable[[torch.Tensor], torch.Tensor]:
    """Logits [rows, vocabulary] to tokens; a temperature of 0 takes the most likely."""
    check_type("temperature", temperature, (int, float), "0 or more")
    if not 0 <= temperature < math.inf:
        raise make_error(
            "bad_option", "a temperature is out of range", value=str(temperature), expected="0 or more"
        )
    if top_k is not None:
        check_whole("top_k", top_k, 1)
        if temperature == 0:
            raise make_error(
                "bad_option",
                "top_k has no effect at a temperature of 0, which takes the most likely token",
                value=f"top_k={top_k}",
                remedy="give a temperature above 0, or leave out top_k",
            )

    def choose(logits: torch.Tensor) -> torch.Tensor:
        if temperature == 0:
            return logits.argmax(-1)
        logits = logits / temperature
        if top_k is not None:
            lowest = logits.topk(min(top_k, logits.shape[-1])).values[:, -1:]
            logits = logits.masked_fill(logits < lowest, float("-inf"))
        return torch.multinomial(logits.softmax(-1), 1, generator=generator)[:, 0]

    return choose

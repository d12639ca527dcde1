"""Text generation with Hugging Face models of an encoder and a decoder (T5, BART, Whisper): prefill and
decode are two entries over one cache.

Prefill runs the encoder, writes each decoder layer's keys and values of the source into states, and runs
the first decoder tokens; decode reads those states and appends to the cache of the decoder's own keys and
values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._build import build, check_options, check_whole
from .._progress import work
from ..errors import make_error
from .executable import TorchExecutable
from .export import export
from .generation import CacheBuffers, append_tokens, chooser, end_tokens
from .importer import import_entries

__all__ = ["Seq2SeqLM", "compile_seq2seq_lm"]

_PREFILL, _DECODE = "prefill", "decode"


class Seq2SeqLM:
    """A compiled encoder and decoder with its caches.

    `executable` can be saved. Its entry prefill takes the source, its mask [batch, length] if the length
    varies, and the first decoder ids [batch, start_length]; decode takes ids [batch, 1]. Both give the last
    position's logits.
    """

    def __init__(
        self, executable: TorchExecutable, steps: _Steps, ends: frozenset[int], start: int | None
    ) -> None:
        self.executable = executable
        self.batch, self.max_length = steps.batch, steps.max_length
        self._start_length = steps.start_length
        self._has_mask = steps.max_source is not None
        self._ends, self._start = ends, start

    def prefill(
        self, source: torch.Tensor, ids: torch.Tensor, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Starts anew with a source; gives the logits that follow the last of `ids`."""
        self.executable.reset()
        if not self._has_mask:
            if mask is not None:
                raise make_error(
                    "bad_option",
                    "this model was compiled without a mask",
                    remedy="compile it with max_source=",
                )
            return self.executable.run_entry(_PREFILL, source, ids)
        if mask is None:
            mask = torch.ones(source.shape[:2], dtype=torch.int64, device=source.device)
        return self.executable.run_entry(_PREFILL, source, mask, ids)

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Appends one id per row; gives the logits that follow it."""
        return self.executable.run_entry(_DECODE, ids)

    @torch.no_grad()
    def generate(
        self,
        source: torch.Tensor,
        max_new_tokens: int,
        *,
        mask: torch.Tensor | None = None,
        start: torch.Tensor | None = None,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Decoder ids [batch, length], those of `start` first: by default the model's decoder start token.

        A temperature of 0 takes the most likely token; a row that has met an end token repeats it.
        """
        ids = self._first_ids(source, start)
        if ids.shape != (self.batch, self._start_length) or ids.shape[1] + max_new_tokens > self.max_length:
            raise make_error(
                "input_shape",
                "the decoder ids do not fit the cache",
                expected=f"[{self.batch}, {self._start_length}] ids, and with the new tokens at most "
                f"{self.max_length}",
                actual=f"{list(ids.shape)} and {max_new_tokens} new tokens",
            )
        choose = chooser(temperature, top_k, generator)
        first = self.prefill(source, ids, mask)
        return append_tokens(ids, first, self.step, max_new_tokens, self._ends, choose)

    def _first_ids(self, source: torch.Tensor, start: torch.Tensor | None) -> torch.Tensor:
        if start is not None:
            return start
        if self._start is None:
            raise make_error("missing_input", "the model names no decoder start token", remedy="give start=")
        return torch.full((self.batch, 1), self._start, dtype=torch.int64, device=source.device)


def compile_seq2seq_lm(
    model: Any,
    source: torch.Tensor,
    *,
    max_length: int,
    max_source: int | None = None,
    start_length: int = 1,
    device: str = "cpu",
    threads: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> Seq2SeqLM:
    """Compiles a `transformers` model with an encoder and a decoder's language model head.

    `source` is an example of the encoder's input, token ids or features, and gives the batch. With
    `max_source` its axis 1 may have any length up to that, and each call may give a mask; without, sources
    are shaped as the example. The decoder's cache has `max_length` positions, the first `start_length` of
    which prefill writes.
    """
    chosen = check_options(options or {})
    for name, value in (("max_length", max_length), ("start_length", start_length)):
        check_whole(name, value)
    check_whole("max_source", 1 if max_source is None else max_source, 1)
    if max_length < start_length + 1 or start_length < 1:
        raise make_error(
            "bad_option",
            "a cache needs room for the first ids and one more",
            value=f"max_length={max_length}, start_length={start_length}",
        )
    _check_model(model)
    with work():
        with torch.no_grad():
            steps = _Steps(model, source, max_length, max_source, start_length).eval()
            inputs, dims = _prefill_inputs(steps, source)
            prefill, names, ranges = export(_Prefill(steps), inputs, dims)
            decode, _, _ = export(_Decode(steps), (steps.ids(1),))
            imported = import_entries(
                {_PREFILL: prefill, _DECODE: decode}, [names, {}], ranges, prefix="steps."
            )
        executable = TorchExecutable(build(imported.program, device, threads, chosen), imported)
    start = getattr(getattr(model, "generation_config", None), "decoder_start_token_id", None)
    return Seq2SeqLM(executable, steps, end_tokens(model), start)


def _check_model(model: Any) -> None:
    """unsupported_option for what has not an encoder and a decoder with a language model head."""
    if not getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        message, remedy = "the model has no encoder", "aicf.torch.compile_causal_lm(model, max_length=...)"
    elif getattr(model, "get_output_embeddings", lambda: None)() is None:
        message, remedy = "the model has no language model head", "give its class for conditional generation"
    else:
        return
    raise make_error(
        "unsupported_option",
        message,
        op=type(model).__name__,
        expected="a model of transformers with an encoder and a decoder, such as T5, BART and Whisper",
        remedy=remedy,
    )


def _prefill_inputs(steps: _Steps, source: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], Any]:
    ids = steps.ids(steps.start_length)
    if steps.max_source is None:
        return (source, ids), None
    length = f"source=1..{steps.max_source}"
    mask = torch.ones(source.shape[:2], dtype=torch.int64, device=source.device)
    return (source, mask, ids), {"source": {1: length}, "mask": {1: length}}


class _Steps(nn.Module):
    """The model with its caches in buffers."""

    def __init__(
        self,
        model: nn.Module,
        source: torch.Tensor,
        max_length: int,
        max_source: int | None,
        start_length: int,
    ) -> None:
        super().__init__()
        from transformers import EncoderDecoderCache, StaticCache
        from transformers.cache_utils import StaticLayer

        self.model = model
        self.batch, self.max_length = source.shape[0], max_length
        self.max_source, self.start_length = max_source, start_length
        config = model.config.get_text_config(decoder=True)
        own, cross = (StaticCache(config=config, max_cache_len=max_length) for _ in range(2))
        count = getattr(config, "num_decoder_layers", None) or len(own.layers)
        own.layers = [StaticLayer(max_length) for _ in range(count)]
        cross.layers = [_source_layer(StaticLayer)(0) for _ in range(count)]
        self._cache = EncoderDecoderCache(own, cross)
        # A first call gives the caches their shapes; the decoder sees as much of the source as prefill will
        # give it.
        hidden = self._encoded(source, None if max_source is None else torch.ones_like(source))[0]
        self.register_buffer("source", hidden.new_zeros(hidden.shape), persistent=False)
        if max_source is not None:
            mask = torch.zeros(self.batch, max_source, dtype=torch.int64, device=source.device)
            self.register_buffer("source_mask", mask, persistent=False)
        self._decoded(self.ids(1), hidden, False)
        own.reset()
        self._own = CacheBuffers(self, "cache", own.layers, ("keys", "values", "cumulative_length"))
        self._cross = CacheBuffers(self, "source", cross.layers, ("keys", "values"))

    def ids(self, length: int) -> torch.Tensor:
        return torch.zeros(self.batch, length, dtype=torch.int64, device=next(self.model.parameters()).device)

    def prefill(self, source: torch.Tensor, mask: torch.Tensor | None, ids: torch.Tensor) -> torch.Tensor:
        hidden, padded = self._encoded(source, mask)
        if padded is not None:
            self.source_mask.copy_(padded)
        with self._own.bound(self), self._cross.bound(self):
            return self._decoded(ids, hidden, False)

    def decode(self, ids: torch.Tensor) -> torch.Tensor:
        with self._own.bound(self), self._cross.bound(self):
            return self._decoded(ids, self.source, True)

    def _encoded(
        self, source: torch.Tensor, mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """The encoder's result and the mask, as long as the longest source."""
        encoder = self.model.get_encoder()
        if mask is None:
            return encoder(source).last_hidden_state, None
        hidden = encoder(source, attention_mask=mask).last_hidden_state
        more = self.max_source - source.shape[1]
        return nn.functional.pad(hidden, (0, 0, 0, more)), nn.functional.pad(mask, (0, more))

    def _decoded(self, ids: torch.Tensor, hidden: torch.Tensor, known: bool) -> torch.Tensor:
        """Logits after the last id. `known`: the cache holds the keys and values of the source."""
        from transformers.modeling_outputs import BaseModelOutput

        self._cache.is_updated = dict.fromkeys(range(len(self._cache)), known)
        result = self.model(
            encoder_outputs=BaseModelOutput(last_hidden_state=hidden),
            decoder_input_ids=ids,
            past_key_values=self._cache,
            use_cache=True,
            **({} if self.max_source is None else {"attention_mask": self.source_mask}),
        )
        return result.logits[:, -1]


def _source_layer(base: type) -> type:
    """A cache layer that holds one source: each update replaces it."""

    class SourceLayer(base):  # type: ignore[misc]
        def update(self, keys: torch.Tensor, values: torch.Tensor, *_: Any, **__: Any) -> Any:
            if not self.is_initialized:
                self.max_cache_len = keys.shape[-2]
                self.lazy_initialization(keys, values)
            self.keys.copy_(keys)
            self.values.copy_(values)
            return keys, values

    return SourceLayer


class _Prefill(nn.Module):
    def __init__(self, steps: _Steps) -> None:
        super().__init__()
        self.steps = steps
        if steps.max_source is None:
            self.forward = self._plain  # type: ignore[method-assign]

    def forward(self, source: torch.Tensor, mask: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.steps.prefill(source, mask, ids)

    def _plain(self, source: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return self.steps.prefill(source, None, ids)


class _Decode(nn.Module):
    def __init__(self, steps: _Steps) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.steps.decode(ids)

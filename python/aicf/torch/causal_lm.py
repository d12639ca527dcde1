"""Text generation with Hugging Face decoders: prefill and decode are two entries over one key-value cache.

The cache is Hugging Face's static one; its tensors are states of the executable, so a step takes token ids
only.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .._build import build, check_options, check_whole
from .._progress import work
from ..errors import Error, make_error
from .executable import TorchExecutable
from .export import export
from .generation import CacheBuffers, append_tokens, chooser, end_tokens
from .importer import ImportedModel, import_entries

__all__ = ["CausalLM", "compile_causal_lm"]

_PREFILL, _DECODE = "prefill", "decode"
_CACHED = ("keys", "values", "cumulative_length")


class CausalLM:
    """A compiled decoder with its cache.

    `executable` can be saved; its entries prefill and decode take ids [batch, length] and give the last
    position's logits [batch, vocabulary].
    """

    def __init__(
        self, executable: TorchExecutable, batch: int, max_length: int, ends: frozenset[int]
    ) -> None:
        self.executable = executable
        self.batch = batch
        self.max_length = max_length
        self._ends = ends

    def step(self, ids: torch.Tensor) -> torch.Tensor:
        """Appends ids to the cache; gives the logits that follow the last of them."""
        return self.executable.run_entry(_DECODE if ids.shape[1] == 1 else _PREFILL, ids)

    @torch.no_grad()
    def generate(
        self,
        ids: torch.Tensor,
        max_new_tokens: int,
        *,
        temperature: float = 0.0,
        top_k: int | None = None,
        generator: torch.Generator | None = None,
    ) -> torch.Tensor:
        """Prompt and continuation, [batch, length]; a row that has met an end token repeats it.

        A temperature of 0 takes the most likely token. Prompts of one call have the same length.
        """
        if ids.shape[0] != self.batch or ids.shape[1] + max_new_tokens > self.max_length:
            raise make_error(
                "input_shape",
                "the prompt does not fit the cache",
                expected=f"{self.batch} rows, and prompt and new tokens within {self.max_length}",
                actual=f"{list(ids.shape)} and {max_new_tokens} new tokens",
            )
        self.executable.reset()
        choose = chooser(temperature, top_k, generator)
        if max_new_tokens < 1:
            return ids
        return append_tokens(ids, self.step(ids), self.step, max_new_tokens, self._ends, choose)


def compile_causal_lm(
    model: Any,
    *,
    batch: int = 1,
    max_length: int,
    device: str = "cpu",
    threads: int | None = None,
    options: Mapping[str, Any] | None = None,
) -> CausalLM:
    """Compiles a `transformers` decoder with a language model head and a cache of `max_length` positions."""
    chosen = check_options(options or {})
    check_whole("batch", batch, 1)
    check_whole("max_length", max_length)
    if max_length < 3:
        raise make_error(
            "bad_option", "a cache needs room", value=f"max_length={max_length}", expected="3 or more"
        )
    steps = _Steps(model, batch, max_length).eval()
    with work():
        with torch.no_grad():
            try:
                imported = _imported(steps, batch, max_length)
            except Error:  # as of a model that counts its positions by the values of a mask
                if not steps.take_positions(batch):
                    raise
                imported = _imported(steps, batch, max_length)
        executable = TorchExecutable(build(imported.program, device, threads, chosen), imported)
    return CausalLM(executable, batch, max_length, end_tokens(model))


def _imported(steps: _Steps, batch: int, max_length: int) -> ImportedModel:
    dims = {"ids": {1: f"length=2..{max_length}"}}
    prefill, names, ranges = export(steps, (_no_ids(steps.model, batch, 3),), dims)
    decode, _, _ = export(steps, (_no_ids(steps.model, batch, 1),))
    return import_entries({_PREFILL: prefill, _DECODE: decode}, [names, {}], ranges)


class _Steps(nn.Module):
    """Ids to the last position's logits, with the cache in buffers."""

    def __init__(self, model: nn.Module, batch: int, max_length: int) -> None:
        super().__init__()
        self.model = model
        self._options = _call_options(model)
        self._gives_positions = False
        self._cache = _static_cache(model, max_length)
        with torch.no_grad():  # a first call gives the cache its shapes
            self._logits(_no_ids(model, batch, 1))
        self._cache.reset()
        self._own = CacheBuffers(self, "cache", self._cache.layers, _CACHED)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        with self._own.bound(self):
            return self._logits(ids)

    def take_positions(self, batch: int) -> bool:
        """From here on each call gives the positions of its ids; false if the model does not take them so."""
        if self._gives_positions or "position_ids" not in inspect.signature(self.model.forward).parameters:
            return False
        prompt, step = (_no_ids(self.model, batch, length) + 1 for length in (3, 1))
        results = []
        for self._gives_positions in (False, True):
            self._cache.reset()
            results.append(torch.stack([self._logits(prompt), self._logits(step)]))
        self._cache.reset()
        self._gives_positions = torch.equal(*results)
        return self._gives_positions

    def _logits(self, ids: torch.Tensor) -> torch.Tensor:
        more = dict(self._options)
        if self._gives_positions:
            past = self._cache.layers[0].cumulative_length
            more["position_ids"] = (past + torch.arange(ids.shape[1], device=ids.device)).expand(ids.shape)
        result = self.model(input_ids=ids, past_key_values=self._cache, use_cache=True, **more)
        return result.logits[:, -1]


def _call_options(model: Any) -> dict[str, Any]:
    """What a step's call takes besides ids and cache; unsupported_option for what is no such decoder."""
    if not hasattr(model, "config") or not callable(getattr(model, "get_output_embeddings", None)):
        raise _unsupported(
            type(model).__name__,
            "this is no decoder of transformers",
            "give a model of transformers, such as AutoModelForCausalLM.from_pretrained(name)",
        )
    if getattr(model.config, "is_encoder_decoder", False):
        raise _unsupported(
            type(model).__name__,
            "the model has an encoder",
            "aicf.torch.compile_seq2seq_lm(model, source, max_length=...)",
        )
    if model.get_output_embeddings() is None:
        raise _unsupported(
            type(model).__name__,
            "the model has no language model head",
            "give the class that ends in ForCausalLM",
        )
    names = inspect.signature(model.forward).parameters
    if "past_key_values" not in names:
        state = next((name for name in ("cache_params", "state", "mems") if name in names), None)
        if state is None:
            message, remedy = "the model keeps no keys and values", "aicf.compile(model, (ids,))"
        else:
            message, remedy = f"the model keeps its state in {state}", _WHOLE_TEXTS
        raise _unsupported(type(model).__name__, message, remedy)
    return {"logits_to_keep": 1} if "logits_to_keep" in names else {}


def _static_cache(model: Any, max_length: int) -> Any:
    from transformers import StaticCache
    from transformers.cache_utils import StaticLayer, StaticSlidingWindowLayer

    cache = StaticCache(config=model.config.get_text_config(decoder=True), max_cache_len=max_length)
    others = {type(layer).__name__ for layer in cache.layers} - {
        kind.__name__ for kind in (StaticLayer, StaticSlidingWindowLayer)
    }
    if others:
        message = f"the model keeps other states than keys and values: {', '.join(sorted(others))}"
        raise _unsupported(type(model).__name__, message, _WHOLE_TEXTS)
    # A cache of a window only depends on data; with every position kept, the mask alone makes the window.
    cache.layers = [StaticLayer(max_length) for _ in cache.layers]
    return cache


_WHOLE_TEXTS = (
    'aicf.compile(model, {"input_ids": ids, "use_cache": False}) gives the logits of whole texts, and '
    "model.generate generates in torch"
)


def _unsupported(kind: str, message: str, remedy: str) -> Error:
    return make_error(
        "unsupported_option",
        message,
        op=kind,
        expected="a decoder of transformers whose layers keep keys and values, all or those of a window",
        remedy=remedy,
    )


def _no_ids(model: nn.Module, batch: int, length: int) -> torch.Tensor:
    return torch.zeros(batch, length, dtype=torch.int64, device=next(model.parameters()).device)

"""Configurations and weights of transformers' decoders of Llama's shape, as `aicf.nn.Llama` takes them.

A configuration is read as the JSON that transformers writes (versions 4 and 5), without transformers. What it
says is used, or stands in a table of what makes no difference to the logits, or is refused.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import _aicf
from .._build import check_type, check_whole
from .._dtypes import FLOATS, dtype_name
from .._files import file_path, load_safetensors
from ..errors import make_error

if TYPE_CHECKING:
    from .llama import LlamaConfig

__all__ = ["config_of", "dtype_of", "parts_of", "renamed"]

_OTHERS = "aicf.torch.compile_causal_lm(model, max_length=...) compiles any decoder of transformers"

# By model type, the values of keys that a file may leave out, as transformers' class has them.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": False, "mlp_bias": False},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
    "qwen2": {"num_key_value_heads": 32, "use_sliding_window": False, "sliding_window": 4096},
    "qwen3": {
        "num_key_value_heads": 32,
        "head_dim": 128,
        "attention_bias": False,
        "use_sliding_window": False,
        "sliding_window": 4096,
    },
}
_SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
_USED = {
    *_SIZES,
    "model_type num_key_value_heads head_dim rms_norm_eps rope_theta rope_scaling rope_parameters",
    "tie_word_embeddings max_position_embeddings original_max_position_embeddings dtype torch_dtype",
}
_BY_TYPE = {
    "llama": "attention_bias mlp_bias",
    "mistral": "sliding_window",
    "qwen2": "use_sliding_window sliding_window max_window_layers layer_types",
    "qwen3": "attention_bias use_sliding_window sliding_window max_window_layers layer_types",
}
# Only with these values do the logits follow from what is used.
_ONLY: dict[str, tuple[Any, ...]] = {
    "hidden_act": ("silu", "swish"),
    "partial_rotary_factor": (None, 1, 1.0),
    "is_encoder_decoder": (False,),
    "add_cross_attention": (False,),
    "pruned_heads": (None, {}),
    "quantization_config": (None,),
    "sliding_window": (None,),
    "attention_bias": (None, False),
    "mlp_bias": (None, False),
    "use_sliding_window": (None, False),
    "layer_types": (None,),
    "use_mrope": (None, False),
    "rope_interleaved": (None, False),
}
# Of training, generation, tokens, the form of results, the way of computing.
_HARMLESS = frozenset(
    """
    architectures attention_dropout attn_implementation auto_map begin_suppress_tokens bos_token_id
    bad_words_ids chunk_size_feed_forward cross_attention_hidden_size decoder_start_token_id
    diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size eos_token_id
    exponential_decay_length_penalty finetuning_task forced_bos_token_id forced_eos_token_id
    gradient_checkpointing id2label is_llama_config
    initializer_range is_decoder label2id length_penalty max_length max_window_layers min_length
    name_or_path no_repeat_ngram_size num_beam_groups num_beams num_return_sequences output_attentions
    output_hidden_states output_scores pad_token_id prefix pretraining_tp problem_type
    remove_invalid_values repetition_penalty return_dict return_dict_in_generate sep_token_id
    suppress_tokens task_specific_params temperature tf_legacy_loss tie_encoder_decoder tokenizer_class
    top_k top_p torchscript transformers.js_config transformers_version typical_p unsloth_version
    unsloth_fixed use_bfloat16
    use_cache _attn_implementation _attn_implementation_autoset _commit_hash _name_or_path
    """.split()
)
# By type of rotary positions, the keys that its formula reads.
_ROPE_KEYS = {
    "default": "",
    "linear": "factor",
    "dynamic": "factor original_max_position_embeddings",
    "llama3": "factor low_freq_factor high_freq_factor original_max_position_embeddings",
    "yarn": "factor attention_factor beta_fast beta_slow mscale mscale_all_dim truncate "
    "original_max_position_embeddings",
    "longrope": "factor attention_factor long_factor short_factor original_max_position_embeddings",
}
# Buffers that old versions saved; they follow from the configuration.
_DERIVED = ("rotary_emb.inv_freq", "rotary_emb.cos_cached", "rotary_emb.sin_cached")


def parts_of(source: Any) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Configuration and weights of a transformers model, or of a folder that its `save_pretrained` wrote."""
    if hasattr(source, "config") and hasattr(source, "state_dict"):
        return source.config.to_dict(), source.state_dict()
    check_type("source", source, (str, bytes, os.PathLike), "a transformers model, or the folder of one")
    folder = Path(file_path(source))
    config = folder / "config.json"
    if not config.is_file():
        raise make_error(
            "file_not_found",
            "this is not the folder of a transformers model",
            value=str(config),
            remedy="model.save_pretrained(folder) writes config.json and the weights",
        )
    return _json(config), _weights(folder)


def _json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as problem:
        raise make_error(
            "bad_model_file", "the file is not JSON", value=str(path), actual=str(problem)
        ) from None
    if not isinstance(value, dict):
        raise make_error(
            "bad_model_file", "the file is no JSON object", value=str(path), actual=type(value).__name__
        )
    return value


def _weights(folder: Path) -> dict[str, Any]:
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        single = folder / "model.safetensors"
        if not single.is_file():
            raise make_error(
                "file_not_found",
                "the folder holds no weights in safetensors",
                value=str(single),
                remedy="model.save_pretrained(folder, safe_serialization=True) writes them",
            )
        return dict(load_safetensors(single))
    files = _json(index).get("weight_map")
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise make_error("bad_model_file", "the index maps no weights to files", value=str(index))
    weights: dict[str, Any] = {}
    for file in sorted(set(files.values())):
        if Path(file).name != file:
            raise make_error("path_escape", "a file of the index leaves the folder", value=file)
        tensors = load_safetensors(folder / file)
        missing = [name for name, where in files.items() if where == file and name not in tensors]
        if missing:
            raise make_error(
                "bad_model_file",
                "a file of the index lacks a weight",
                op=missing[0],
                value=str(folder / file),
                remedy="download the file again",
            )
        weights |= tensors
    return weights


def config_of(config: Mapping[str, Any], cache: int, batch: int, dtype: str) -> LlamaConfig:
    """Sizes and options of a model whose configuration transformers writes so."""
    from .llama import LlamaConfig

    check_whole("cache", cache, 1)
    check_whole("batch", batch, 1)
    kind = config.get("model_type")
    if kind not in _DEFAULTS:
        raise make_error(
            "unsupported_option",
            "aicf.nn.Llama has not the shape of this model",
            op="model_type",
            expected=", ".join(_DEFAULTS),
            actual=repr(kind),
            remedy=_OTHERS,
        )
    _refuse_unknown(config, kind)
    known = _DEFAULTS[kind] | {key: value for key, value in config.items() if value is not None}
    for key in _SIZES:
        check_whole(key, known.get(key), 1)
    heads, features, layers = (
        known[key] for key in ("num_attention_heads", "hidden_size", "num_hidden_layers")
    )
    head = known.get("head_dim", features // heads)
    frequencies, rotary_scale = _rope(known, head, cache)
    attention_bias = bool(known.get("attention_bias"))
    return LlamaConfig(
        vocabulary=known["vocab_size"],
        features=features,
        layers=layers,
        heads=heads,
        kv_heads=known.get("num_key_value_heads", heads),
        hidden=known["intermediate_size"],
        cache=cache,
        batch=batch,
        head_size=head,
        epsilon=float(known.get("rms_norm_eps", 1e-6)),
        frequencies=tuple(map(float, frequencies)),
        rotary_scale=float(rotary_scale),
        tied=bool(known.get("tie_word_embeddings", False)),
        dtype=dtype,
        qkv_bias=attention_bias or kind == "qwen2",
        output_bias=attention_bias,
        mlp_bias=bool(known.get("mlp_bias")),
        head_norms=kind == "qwen3",
        windows=_windows(config, known, kind),
    )


def _refuse_unknown(config: Mapping[str, Any], kind: str) -> None:
    used = {name for names in (*_USED, _BY_TYPE[kind]) for name in names.split()}
    for key, value in config.items():
        if key in used or key in _HARMLESS:
            continue
        if key not in _ONLY and value is not None:
            raise _refused(key, value, "a key of the configuration is not known", "")
        if key in _ONLY and value not in _ONLY[key]:
            expected = " or ".join(map(repr, _ONLY[key]))
            raise _refused(key, value, "a value of the configuration is not supported", expected)


def _refused(key: str, value: Any, message: str, expected: str) -> Exception:
    return make_error(
        "unsupported_option", message, op=key, expected=expected, actual=repr(value)[:120], remedy=_OTHERS
    )


def _windows(config: Mapping[str, Any], known: Mapping[str, Any], kind: str) -> tuple[int, ...]:
    """Of each layer, the keys that a query sees up to its own; 0: all."""
    layers = known["num_hidden_layers"]
    # None, or 0, is a value of its own: without a window.
    window = config["sliding_window"] if "sliding_window" in config else known.get("sliding_window")
    if kind == "mistral":
        return (window or 0,) * layers
    if not known.get("use_sliding_window"):
        window = None
    kinds = known.get("layer_types")
    if kinds is None:
        first = known.get("max_window_layers", 28)
        kinds = ["sliding_attention" if i >= first else "full_attention" for i in range(layers)]
    if len(kinds) != layers or set(kinds) - {"sliding_attention", "full_attention"}:
        raise _refused("layer_types", kinds, "the kinds of layers are not supported", "")
    return tuple(window or 0 if name == "sliding_attention" else 0 for name in kinds)


def _rope(known: Mapping[str, Any], head: int, cache: int) -> tuple[np.ndarray, float]:
    """Angles per position of each pair, f64 [head / 2], and what cosines and sines are multiplied by.

    Version 4 writes rope_theta and rope_scaling, version 5 both as rope_parameters.
    """
    given: dict[str, Any] = {}
    for key in ("rope_scaling", "rope_parameters"):
        part = known.get(key) or {}
        if not isinstance(part, Mapping) or any(isinstance(value, Mapping) for value in part.values()):
            raise _refused(key, part, "rotary positions that differ by layer are not supported", "")
        given |= {name: value for name, value in part.items() if value is not None}
    kind = given.pop("rope_type", given.get("type", "default"))
    given.pop("type", None)
    theta = float(given.pop("rope_theta", known.get("rope_theta", 10000.0)))
    factor = given.pop("partial_rotary_factor", 1.0)
    if factor != 1.0:
        raise _refused(
            "partial_rotary_factor", factor, "a value of the configuration is not supported", "1.0"
        )
    if kind not in _ROPE_KEYS:
        raise make_error(
            "unsupported_option",
            "rotary positions of this type are not supported",
            op="rope_type",
            expected=", ".join(_ROPE_KEYS),
            actual=repr(kind),
            remedy=_OTHERS,
        )
    unknown = sorted(set(given) - set(_ROPE_KEYS[kind].split()))
    if unknown:
        message = f"rotary positions of type {kind} have no such key"
        raise _refused(unknown[0], given[unknown[0]], message, _ROPE_KEYS[kind].replace(" ", ", "))
    plain = theta ** -(np.arange(0, head, 2) / head)
    longest = known.get("max_position_embeddings")
    original = (
        known.get("original_max_position_embeddings")
        or given.get("original_max_position_embeddings")
        or longest
    )
    try:
        return _ROPES[kind](plain, theta, given, longest, original, cache)
    except KeyError as missing:
        raise make_error(
            "bad_model_file",
            f"rotary positions of type {kind} need another key",
            op="rope_parameters",
            value=str(missing.args[0]),
        ) from None


def _default(plain: np.ndarray, *_: Any) -> tuple[np.ndarray, float]:
    return plain, 1.0


def _linear(plain: np.ndarray, _theta: float, given: Mapping[str, Any], *_: Any) -> tuple[np.ndarray, float]:
    return plain / given["factor"], 1.0


def _dynamic(
    plain: np.ndarray, _theta: float, given: Mapping[str, Any], longest: int, _original: int, cache: int
) -> tuple[np.ndarray, float]:
    """Up to the length of training as without scaling; beyond, the angles follow from each text's length."""
    _fits_within("dynamic", longest, cache)
    return plain, 1.0


def _longrope(
    plain: np.ndarray, _theta: float, given: Mapping[str, Any], longest: int, original: int, cache: int
) -> tuple[np.ndarray, float]:
    """Ding et al. 2024; beyond the length of training other factors hold, for the whole of a text."""
    _fits_within("longrope", original, cache)
    factor = given.get("factor") or longest / original
    scale = given.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1.0 else math.sqrt(1 + math.log(factor) / math.log(original))
    return plain / np.asarray(given["short_factor"], "f8"), scale


def _fits_within(kind: str, length: int, cache: int) -> None:
    if cache > length:
        raise make_error(
            "unsupported_option",
            f"with rotary positions of type {kind} the angles of a longer text follow from its length",
            op="cache",
            expected=f"{length} or less",
            actual=str(cache),
            remedy=f"give cache={length}; {_OTHERS}",
        )


def _llama3(
    plain: np.ndarray, _theta: float, given: Mapping[str, Any], _longest: int, original: int, _cache: int
) -> tuple[np.ndarray, float]:
    """Llama 3.1: long waves are stretched by the factor, short ones stay, those between are blended."""
    factor, low, high = (given[key] for key in ("factor", "low_freq_factor", "high_freq_factor"))
    waves = original * plain / (2 * math.pi)  # in the length of training
    share = np.clip((waves - low) / (high - low), 0, 1)
    return (1 - share) * plain / factor + share * plain, 1.0


def _yarn(
    plain: np.ndarray, theta: float, given: Mapping[str, Any], longest: int, original: int, _cache: int
) -> tuple[np.ndarray, float]:
    """Peng et al. 2023: as `_llama3`, blended by index; the scores are sharpened."""
    size = 2 * len(plain)
    factor = given.get("factor") or longest / original

    def sharpened(by: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * by * math.log(factor) + 1.0

    def index(turns: float) -> float:
        return size * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(theta))

    first, last = index(given.get("beta_fast") or 32), index(given.get("beta_slow") or 1)
    if given.get("truncate", True):
        first, last = math.floor(first), math.ceil(last)
    first, last = max(first, 0), min(last, size - 1)
    if first == last:
        last += 0.001
    share = 1 - np.clip((np.arange(len(plain)) - first) / (last - first), 0, 1)
    scale = given.get("attention_factor")
    if scale is None:
        both = [given.get("mscale"), given.get("mscale_all_dim")]
        scale = sharpened(both[0]) / sharpened(both[1]) if all(both) else sharpened(1.0)
    return (1 - share) * plain / factor + share * plain, scale


_ROPES: dict[str, Any] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}


def dtype_of(weights: Mapping[str, Any]) -> str:
    """That of the embedding."""
    return _aicf.array_type(_take(weights, "model.embed_tokens.weight"))[0]


def renamed(weights: Mapping[str, Any], c: LlamaConfig) -> Iterator[tuple[str, Any]]:
    """(our name, array): transformers stores [out, in], and q, k and v apart; unknown_param for weights that
    are missing or left over.
    """
    reader = _Reader(weights, dtype_name(c.dtype))
    yield "embedding", reader.one("model.embed_tokens.weight")
    yield "norm.scale", reader.one("model.norm.weight")
    if not c.tied:
        yield "head", reader.one("lm_head.weight")
    elif "lm_head.weight" in weights:
        reader.check_tied("lm_head.weight", "model.embed_tokens.weight")
    for i in range(c.layers):
        ours, theirs = f"layers.{i}", f"model.layers.{i}"
        products = {
            "qkv": (c.qkv_bias, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"]),
            "o": (c.output_bias, ["self_attn.o_proj"]),
            "gate_up": (c.mlp_bias, ["mlp.gate_proj", "mlp.up_proj"]),
            "down": (c.mlp_bias, ["mlp.down_proj"]),
        }
        norms = {"attn_norm": "input_layernorm", "mlp_norm": "post_attention_layernorm"}
        if c.head_norms:
            norms |= {"q_norm": "self_attn.q_norm", "k_norm": "self_attn.k_norm"}
        for name, part in norms.items():
            yield f"{ours}.{name}.scale", reader.one(f"{theirs}.{part}.weight")
        for name, (biased, parts) in products.items():
            yield f"{ours}.{name}.W", reader.columns([f"{theirs}.{part}.weight" for part in parts])
            if biased:
                yield f"{ours}.{name}.b", reader.columns([f"{theirs}.{part}.bias" for part in parts])
    reader.refuse_left_over()


class _Reader:
    """Weights in one dtype, and which have been read."""

    def __init__(self, weights: Mapping[str, Any], dtype: str) -> None:
        self._weights, self._dtype = weights, dtype
        self._left = {name for name in weights if not name.endswith(_DERIVED)}

    def one(self, name: str) -> Any:
        return self._written(self._read(name))

    def columns(self, names: list[str]) -> Any:
        """Of matrices stored [out, in], or of vectors, one beside the other."""
        return self._written(np.concatenate([self._read(name) for name in names]).T)

    def check_tied(self, name: str, other: str) -> None:
        if not np.array_equal(self._read(name), self._read(other)):
            raise make_error(
                "bad_option",
                "two names of one weight are given different values",
                value=f"{name}, {other}",
                remedy="tie_word_embeddings of the configuration is true; set it to false",
            )

    def refuse_left_over(self) -> None:
        if self._left:
            raise make_error(
                "unknown_param",
                "weights are left over that the model has not",
                value=", ".join(sorted(self._left)[:6]),
                actual=f"{len(self._left)} of {len(self._weights)}",
                remedy="aicf.nn.Llama.from_transformers(model, cache=...) reads the model's configuration",
            )

    def _read(self, name: str) -> np.ndarray:
        """As numpy has it; bf16 as f32, which holds its values."""
        array = _take(self._weights, name)
        self._left.discard(name)
        dtype = _aicf.array_type(array)[0]
        if dtype not in FLOATS:
            raise make_error(
                "input_dtype", "a param is no float", op=name, expected=", ".join(FLOATS), actual=dtype
            )
        return np.asarray(_aicf.rounded(array, "f32") if dtype == "bf16" else array)

    def _written(self, array: np.ndarray) -> Any:
        if self._dtype == "bf16":
            return _aicf.rounded(np.ascontiguousarray(array), "bf16")
        return np.ascontiguousarray(array, f"f{int(self._dtype[1:]) // 8}")


def _take(weights: Mapping[str, Any], name: str) -> Any:
    if name not in weights:
        raise make_error(
            "unknown_param",
            "a weight is missing",
            value=name,
            expected="the weights of a model with a language model head, under transformers' names",
            remedy="give those of the whole model: AutoModelForCausalLM",
        )
    array = weights[name]
    return array.detach().cpu() if hasattr(array, "detach") else array

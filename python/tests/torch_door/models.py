"""Small Hugging Face models with random weights, and inputs for them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import transformers as hf

VOCABULARY = 99
_SMALL: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
}
_IMAGE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 32,
    "patch_size": 8,
}
_DECODER = _SMALL | {"num_key_value_heads": 2, "max_position_embeddings": 64, "use_cache": False}

Inputs = Callable[[int, int], dict[str, torch.Tensor]]


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (batch, length))


def mask(batch: int, length: int) -> torch.Tensor:
    """The last row of a batch is padded."""
    result = torch.ones(batch, length, dtype=torch.int64)
    if batch > 1:
        result[-1, length - length // 4 :] = 0
    return result


def tokens(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(batch, length)}


def text(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(batch, length), "attention_mask": mask(batch, length)}


def pair(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"input_ids": ids(batch, length), "decoder_input_ids": ids(batch, length)}


def images(batch: int, length: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(batch, 3, 32, 32)}


def _t5() -> hf.PreTrainedModel:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=VOCABULARY, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, use_cache=False,
            decoder_start_token_id=0,
        )
    )  # fmt: skip


def _clip() -> hf.PreTrainedModel:
    text_config = _SMALL | {"max_position_embeddings": 64, "eos_token_id": 2}
    return hf.CLIPModel(hf.CLIPConfig(text_config=text_config, vision_config=_IMAGE, projection_dim=16))


def _whisper() -> hf.PreTrainedModel:
    return hf.WhisperForConditionalGeneration(
        hf.WhisperConfig(
            vocab_size=VOCABULARY, d_model=32, encoder_layers=2, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=64, decoder_ffn_dim=64, max_source_positions=50,
            max_target_positions=64, num_mel_bins=16, use_cache=False, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1,
        )
    )  # fmt: skip


MODELS: dict[str, tuple[Callable[[], hf.PreTrainedModel], Inputs]] = {
    "bert": (lambda: hf.BertModel(hf.BertConfig(**_SMALL)), text),
    "roberta": (lambda: hf.RobertaModel(hf.RobertaConfig(**_SMALL, max_position_embeddings=66)), text),
    "distilbert": (
        lambda: hf.DistilBertModel(
            hf.DistilBertConfig(vocab_size=VOCABULARY, dim=32, n_layers=2, n_heads=4, hidden_dim=64)
        ),
        text,
    ),
    "minilm": (lambda: hf.BertModel(hf.BertConfig(**(_SMALL | {"num_hidden_layers": 6}))), text),
    "gpt2": (
        lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(
                vocab_size=VOCABULARY, n_embd=32, n_layer=2, n_head=4, n_positions=64, use_cache=False
            )
        ),
        tokens,
    ),
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_DECODER)), tokens),
    "qwen2": (lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**_DECODER)), tokens),
    "qwen3": (lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**_DECODER, head_dim=8)), tokens),
    "mistral": (lambda: hf.MistralForCausalLM(hf.MistralConfig(**_DECODER, sliding_window=8)), tokens),
    "mixtral": (
        lambda: hf.MixtralForCausalLM(
            hf.MixtralConfig(**_DECODER, num_local_experts=4, num_experts_per_tok=2)
        ),
        tokens,
    ),
    "t5": (_t5, pair),
    "vit": (lambda: hf.ViTModel(hf.ViTConfig(**_IMAGE)), images),
    "clip": (_clip, lambda b, n: text(b, n) | images(b, n)),
    "whisper": (
        _whisper,
        lambda b, n: {"input_features": torch.randn(b, 16, 100), "decoder_input_ids": ids(b, n)},
    ),
}

"""Generation with an encoder and a decoder gives the tokens of Hugging Face's own greedy search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aicf
import pytest
import torch

hf = pytest.importorskip("transformers")
from aicf.torch import compile_seq2seq_lm  # noqa: E402
from models import MODELS, VOCABULARY, ids  # noqa: E402


def bart() -> Any:
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_attention_heads": 4}
    sizes |= {"decoder_attention_heads": 4, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    tokens = {"decoder_start_token_id": 2, "eos_token_id": 2, "bos_token_id": 0, "pad_token_id": 1}
    config = hf.BartConfig(vocab_size=VOCABULARY, max_position_embeddings=64, **sizes, **tokens)
    return hf.BartForConditionalGeneration(config)


def prepared(make: Any) -> Any:
    torch.manual_seed(0)
    model = make().eval()
    for config in (model.config, model.generation_config):
        config.use_cache = True
    model.generation_config.eos_token_id = None
    model.generation_config.forced_eos_token_id = None
    model.generation_config.decoder_start_token_id = model.config.decoder_start_token_id
    return model


def greedy(model: Any, source: torch.Tensor, count: int, **more: Any) -> torch.Tensor:
    return model.generate(source, max_new_tokens=count, do_sample=False, num_beams=1, **more)


@pytest.mark.parametrize("make", [MODELS["t5"][0], bart], ids=["t5", "bart"])
def test_sources_of_any_length_and_masks(make: Any, tmp_path: Path) -> None:
    model = prepared(make)
    lm = compile_seq2seq_lm(model, ids(2, 7), max_length=24, max_source=16)
    for length in (7, 16, 2):
        source = ids(2, length)
        mask = torch.ones_like(source)
        mask[1, length - length // 3 :] = 0
        assert torch.equal(lm.generate(source, 15, mask=mask), greedy(model, source, 15, attention_mask=mask))
    assert torch.equal(
        lm.generate(source, 15), greedy(model, source, 15, attention_mask=torch.ones_like(source))
    )
    with pytest.raises(aicf.UserError, match="fit the cache"):
        lm.generate(source, 24)
    logits = lm.prefill(source, torch.zeros(2, 1, dtype=torch.int64))
    lm.executable.save(tmp_path / "lm.aicf")
    again = aicf.load(tmp_path / "lm.aicf", device=source.device.type)
    one = torch.ones(2, 1, dtype=torch.int64)
    given = [t.cpu().numpy() for t in (source, torch.ones_like(source), one - 1)]
    assert torch.equal(torch.from_dlpack(again.run_entry("prefill", *given)), logits.cpu())
    assert torch.equal(torch.from_dlpack(again.run_entry("decode", one.cpu().numpy())), lm.step(one).cpu())


def test_whisper_with_a_prompt() -> None:
    model = prepared(MODELS["whisper"][0])
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    features, start = torch.randn(1, 16, 100), torch.tensor([[1, 5, 9]])
    lm = compile_seq2seq_lm(model, features, max_length=24, start_length=3)
    expected = start
    with torch.no_grad():
        for _ in range(12):
            logits = model(input_features=features, decoder_input_ids=expected, use_cache=False).logits[:, -1]
            expected = torch.cat([expected, logits.argmax(-1)[:, None]], dim=1)
    for _ in range(2):  # the caches start anew
        assert torch.equal(lm.generate(features, 12, start=start), expected)
    with pytest.raises(aicf.UserError, match="fit the cache"):
        lm.generate(features, 12)
    with pytest.raises(aicf.UserError, match="without a mask"):
        lm.generate(features, 12, start=start, mask=torch.ones(1, 100))


@pytest.mark.parametrize(
    ("make", "message", "remedy"),
    [
        (MODELS["llama"][0], "no encoder", "compile_causal_lm"),
        (lambda: torch.nn.Linear(3, 3), "no encoder", "compile_causal_lm"),
        (lambda: hf.BartModel(bart().config), "no language model head", "conditional generation"),
    ],
)
def test_other_kinds_of_models_are_refused(make: Any, message: str, remedy: str) -> None:
    with pytest.raises(aicf.UserError, match=message) as refused:
        compile_seq2seq_lm(make(), ids(1, 5), max_length=8)
    assert refused.value.code == "AICF-U0002" and remedy in refused.value.remedy

"""Generation over one cache gives the tokens of Hugging Face's own greedy search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aicf
import pytest
import torch

hf = pytest.importorskip("transformers")
from aicf.torch import compile_causal_lm  # noqa: E402
from models import MODELS  # noqa: E402


@pytest.mark.parametrize(("name", "batch", "length"), [("gpt2", 1, 7), ("llama", 3, 5), ("mistral", 1, 5)])
def test_greedy_tokens(name: str, batch: int, length: int, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = MODELS[name][0]().eval()
    model.config.use_cache = model.generation_config.use_cache = True
    model.generation_config.eos_token_id = None
    ids = torch.randint(3, 99, (batch, length))
    decoder = compile_causal_lm(model, batch=batch, max_length=40)
    expected = model.generate(ids, max_new_tokens=20, do_sample=False, pad_token_id=0)
    for _ in range(2):  # the cache starts anew
        assert torch.equal(decoder.generate(ids, 20), expected)
    with pytest.raises(aicf.UserError, match="fit the cache"):
        decoder.generate(ids, 40)
    # Prefill and decode agree: the same tokens one by one.
    decoder.executable.reset()
    whole = decoder.step(ids)
    decoder.executable.reset()
    for i in range(length):
        one = decoder.step(ids[:, i : i + 1])
    assert torch.allclose(whole, one, rtol=1e-4, atol=1e-5)
    decoder.executable.save(tmp_path / "lm.aicf")
    loaded = aicf.load(tmp_path / "lm.aicf", device=ids.device.type)
    again = torch.from_dlpack(loaded.run_entry("prefill", ids.cpu().numpy()))
    assert torch.equal(again, whole.cpu())


def test_positions_are_given_to_a_model_that_counts_them_by_a_mask() -> None:
    """OPT sums a mask as long as the text so far, which no range says."""
    torch.manual_seed(0)
    sizes = {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64}
    model = hf.OPTForCausalLM(hf.OPTConfig(**_SIZES | sizes)).eval()
    model.generation_config.eos_token_id = None
    ids = torch.randint(3, 99, (2, 5))
    expected = model.generate(ids, max_new_tokens=9, do_sample=False, pad_token_id=0)
    assert torch.equal(compile_causal_lm(model, batch=2, max_length=16).generate(ids, 9), expected)


_SIZES = {
    "vocab_size": 99,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "pad_token_id": 0,
}
_OTHERS: dict[str, tuple[str, str, dict[str, Any], str, str]] = {
    "mamba": ("Mamba", "ForCausalLM", {"state_size": 4}, "cache_params", "use_cache"),
    "states and keys": (
        "RecurrentGemma",
        "ForCausalLM",
        {"intermediate_size": 64},
        "LinearAttention",
        "use_cache",
    ),
    "an encoder": ("Bert", "ForMaskedLM", {}, "no keys and values", "(ids,)"),
    "no head": ("Llama", "Model", {}, "no language model head", "ForCausalLM"),
    "a pair": ("T5", "ForConditionalGeneration", {}, "has an encoder", "compile_seq2seq_lm"),
}


@pytest.mark.parametrize("name", _OTHERS)
def test_other_kinds_of_models_are_refused(name: str) -> None:
    """With a remedy; that of states is tried."""
    kind, suffix, more, message, remedy = _OTHERS[name]
    torch.manual_seed(0)
    model = getattr(hf, kind + suffix)(getattr(hf, f"{kind}Config")(**_SIZES | more)).eval()
    with pytest.raises(aicf.UserError, match=message) as refused:
        compile_causal_lm(model, max_length=8)
    assert refused.value.code == "AICF-U0002" and remedy in refused.value.remedy
    if remedy == "use_cache":
        given = {"input_ids": torch.randint(3, 99, (1, 7)), "use_cache": False}
        with torch.no_grad():
            expected = model(**given).logits
        torch.testing.assert_close(aicf.compile(model, given)(**given).logits, expected)


def test_what_is_no_model_of_transformers_is_refused() -> None:
    with pytest.raises(aicf.UserError, match="no decoder of transformers"):
        compile_causal_lm(torch.nn.Linear(3, 3), max_length=8)

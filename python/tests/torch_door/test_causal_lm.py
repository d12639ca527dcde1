"""Generation over one cache gives the tokens of Hugging Face's own greedy search."""

from __future__ import annotations

from pathlib import Path

import aicf
import pytest
import torch

pytest.importorskip("transformers")
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

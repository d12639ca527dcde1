"""Each model of the list compiles whole and agrees with eager f32."""

from __future__ import annotations

from typing import Any

import aicf
import pytest
import torch

hf = pytest.importorskip("transformers")
from models import _SMALL, MODELS, VOCABULARY  # noqa: E402


def assert_agrees(actual: Any, expected: Any) -> None:
    """Within 1e-4 of the largest element of each tensor."""
    assert type(actual) is type(expected) and list(actual) == list(expected)
    for name, theirs in expected.items():
        if isinstance(theirs, torch.Tensor):
            assert actual[name].shape == theirs.shape
            assert (actual[name] - theirs).abs().max() <= 1e-4 * theirs.abs().max(), name


@pytest.mark.parametrize(("name", "dims"), [("bert", {1: "length=1..32"}), ("mixtral", {})])
def test_compiled_for_a_gpu(nvrtc: None, name: str, dims: Any) -> None:
    """Sizes in a range, and experts that data choose; the CPU's part of the file is what runs here."""
    make, inputs = MODELS[name]
    model, given = make().eval(), inputs(2, 7)
    options = {"target": "sm_90,cpu"}
    exe = aicf.compile(model, given, dims=dict.fromkeys(given, dims), device="cpu", options=options)
    given = {key: value.cpu() for key, value in given.items()}
    with torch.no_grad():
        assert_agrees(exe(**given), model.cpu()(**given))


def prepared(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    make, inputs = MODELS[name]
    return make().eval(), inputs


def check(exe: Any, model: Any, given: dict[str, torch.Tensor]) -> None:
    with torch.no_grad():
        assert_agrees(exe(**given), model(**given))


@pytest.mark.parametrize("name", MODELS)
def test_fixed_sizes(name: str) -> None:
    model, inputs = prepared(name)
    for batch, length in ((1, 7), (3, 13)):
        given = inputs(batch, length)
        check(aicf.compile(model, given), model, given)


@pytest.mark.parametrize("name", MODELS)
def test_sizes_in_a_range(name: str) -> None:
    model, inputs = prepared(name)
    example = inputs(3, 13)
    both = {0: "batch=1..8", 1: "length=1..32"}
    dims: dict[str, Any] = {key: both if x.ndim == 2 else {0: "batch"} for key, x in example.items()}
    if all(x.ndim != 2 for x in example.values()):
        dims["batch"] = (1, 8)
    exe = aicf.compile(model, example, dims=dims)
    for batch, length in ((1, 7), (3, 13), (2, 1)):
        check(exe, model, inputs(batch, length))


_DECODERS = {
    "llama": (hf.LlamaConfig, {}),
    "gemma2": (hf.Gemma2Config, {"head_dim": 8, "sliding_window": 4}),
    "mistral": (hf.MistralConfig, {"sliding_window": 4}),
    "gpt2": (hf.GPT2Config, {"n_embd": 32, "n_layer": 2, "n_head": 4}),
    "mamba": (hf.MambaConfig, {"state_size": 4}),
}


@pytest.mark.parametrize("name", _DECODERS)
def test_a_decoder_as_it_comes_gives_its_cache(name: str) -> None:
    """The next step of torch goes on from our cache as from torch's own."""
    kind, more = _DECODERS[name]
    torch.manual_seed(0)
    config = kind(**{**_SMALL, "num_key_value_heads": 2, "pad_token_id": 0, **more})
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, VOCABULARY, (2, 7))
    exe = aicf.compile(model, (ids,))
    with torch.no_grad():
        expected, actual = model(ids), exe(ids)
        assert_agrees(actual, expected)
        kept = "cache_params" if "cache_params" in expected else "past_key_values"
        ours, theirs = actual[kept], expected[kept]
        assert type(ours) is type(theirs) and repr(ours) == repr(theirs)
        after = [model(ids[:, :1], **{kept: cache}).logits for cache in (ours, theirs)]
        torch.testing.assert_close(*after, rtol=1e-4, atol=1e-5)
    without = aicf.compile(model, {"input_ids": ids, "use_cache": False})
    assert [info.name for info in without.outputs] == ["logits"]


def test_a_cache_as_an_argument() -> None:
    """Steps of one token over a cache of any length; each gives the next cache."""
    torch.manual_seed(0)
    model = hf.AutoModelForCausalLM.from_config(hf.LlamaConfig(**_SMALL, num_key_value_heads=2)).eval()
    ids = torch.randint(3, VOCABULARY, (2, 9))
    with torch.no_grad():
        ours, theirs = (model(ids[:, :4]).past_key_values for _ in range(2))
        example = {"input_ids": ids[:, :1], "past_key_values": ours}
        exe = aicf.compile(model, example, dims={"past_key_values": {2: "past=1..16"}})
        for i in range(4, 9):
            step = ids[:, i : i + 1]
            actual, expected = (exe(step, past_key_values=ours), model(step, past_key_values=theirs))
            torch.testing.assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-5)
            assert ours.get_seq_length() == i
            ours = actual.past_key_values


def test_a_cache_that_a_window_cuts_has_no_range_of_lengths() -> None:
    """The remedy is followed: the logits alone have one."""
    torch.manual_seed(0)
    config = hf.MistralConfig(**_SMALL, num_key_value_heads=2, sliding_window=4)
    model = hf.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, VOCABULARY, (2, 9))
    dims = {"input_ids": {1: "length=2..9"}}
    with pytest.raises(aicf.UserError) as refused:
        aicf.compile(model, (ids,), dims=dims)
    assert refused.value.code == "AICF-U0203" and '"use_cache": False' in refused.value.remedy
    exe = aicf.compile(model, {"input_ids": ids, "use_cache": False}, dims=dims)
    for length in (2, 4, 9):
        given = {"input_ids": ids[:, :length], "use_cache": False}
        with torch.no_grad():
            assert_agrees(exe(**given), model(**given))

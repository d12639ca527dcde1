"""aicf.nn.Llama made from transformers' decoders: their logits, or a refusal that names the key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import nn
from aicf.tracing import Graph, program_of, tracing

torch = pytest.importorskip("torch")
hf = pytest.importorskip("transformers")

_BASE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "rms_norm_eps": 1e-5,
}


def rope(**parameters: Any) -> dict[str, Any]:
    return {"rope_parameters": {"rope_theta": 1000.0, **parameters}}


_LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}  # fmt: skip
_YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32}
_LONG = {
    "rope_type": "longrope", "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0] * 4,
    "original_max_position_embeddings": 64, "factor": 2.0,
}  # fmt: skip
_LAYERS = ["full_attention", "sliding_attention"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("Llama", {}),
    "theta": ("Llama", rope(rope_theta=77.0)),
    "linear": ("Llama", rope(rope_type="linear", factor=3.0)),
    "llama3": ("Llama", rope(**_LLAMA3)),
    "dynamic": ("Llama", rope(rope_type="dynamic", factor=2.0)),
    "yarn": ("Llama", rope(**_YARN)),
    "yarn options": ("Llama", rope(**_YARN, beta_fast=8.0, beta_slow=2.0, mscale=1.0, mscale_all_dim=0.7)),
    "yarn truncate": ("Llama", rope(**_YARN, truncate=False, attention_factor=1.3)),
    "longrope": ("Llama", rope(**_LONG)),
    "attention bias": ("Llama", {"attention_bias": True}),
    "mlp bias": ("Llama", {"mlp_bias": True}),
    "tied": ("Llama", {"tie_word_embeddings": True}),
    "wide heads": ("Llama", {"head_dim": 16, "num_key_value_heads": 6}),
    "one key head": ("Llama", {"num_key_value_heads": 1, "rms_norm_eps": 1e-2}),
    "mistral": ("Mistral", {"sliding_window": 7}),
    "mistral without window": ("Mistral", {"sliding_window": None, "head_dim": 12}),
    "qwen2": ("Qwen2", {}),
    "qwen2 windows": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1}),
    "qwen3": ("Qwen3", {"head_dim": 10, "attention_bias": True}),
    "qwen3 layers": (
        "Qwen3", {"head_dim": 8, "use_sliding_window": True, "sliding_window": 9, "layer_types": _LAYERS},
    ),
}  # fmt: skip


def model_of(name: str, more: dict[str, Any]) -> Any:
    """Random in all of its parts: transformers begins with biases of 0 and scales of 1."""
    torch.manual_seed(len(name) + len(more))
    model = getattr(hf, f"{name}ForCausalLM")(getattr(hf, f"{name}Config")(**{**_BASE, **more})).eval()
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            scale = 0.15 if parameter.ndim > 1 else 0.5
            parameter.copy_(torch.randn_like(parameter) * scale + (1.0 if "norm" in path else 0.0))
    return model


def logits_of(llama: nn.Llama, steps: list[np.ndarray]) -> np.ndarray:
    """Of the ids of all steps, one call each, beginning with a prompt of any length."""
    names = {id(variable): path for path, variable in llama.named_variables()}
    graphs = []
    for entry, length in (("prefill", "prompt"), ("decode", 1)):
        graph = Graph(entry, names)
        with tracing(graph):
            ids = graph.input("ids", (llama.config.batch, length), "i64")
            graph.output(llama.logits(ids).astype("f32"), "logits")
        graphs.append(graph)
    exe = aicf.compile(program_of(graphs, {"prompt": "1..32"}), threads=1)
    parts = [
        np.array(exe.run_entry("prefill" if i == 0 else "decode", ids=step)) for i, step in enumerate(steps)
    ]
    return np.concatenate(parts, axis=1)


def largest(x: Any) -> float:
    return float(np.abs(x).max())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_logits_of_a_prompt_and_32_steps(name: str, dtype: str) -> None:
    """f32 within 1e-5 of the largest logit; bf16 as near to the f32 model as torch's bf16 is, within 2."""
    model = model_of(*CASES[name]).to(getattr(torch, dtype))
    ids = torch.randint(0, 97, (2, 13 + 32))
    llama = nn.Llama.from_transformers(model, cache=61, batch=2)
    assert llama.config.dtype == {"float32": "f32", "bfloat16": "bf16"}[dtype]
    steps = [ids[:, :13], *ids[:, 13:].split(1, dim=1)]
    actual = logits_of(llama, [step.numpy() for step in steps])
    with torch.no_grad():
        theirs = model(ids).logits.float().numpy()
        exact = model.float()(ids).logits.numpy()
    bound = 1e-5 * largest(exact) if dtype == "float32" else 2 * largest(theirs - exact)
    assert largest(actual - exact) <= bound


@pytest.mark.parametrize("name", ["llama3", "qwen2", "tied", "qwen3 layers"])
def test_of_a_folder(name: str, tmp_path: Path) -> None:
    """Also in shards, and as version 4 wrote it."""
    model = model_of(*CASES[name])
    expected = nn.Llama.from_transformers(model, cache=40)
    for folder, size in (("whole", "1GB"), ("shards", "20KB")):
        model.save_pretrained(tmp_path / folder, max_shard_size=size)
    assert len([*(tmp_path / "shards").glob("*.safetensors")]) > 2
    old = json.loads((tmp_path / "whole" / "config.json").read_text())
    parameters = dict(old.pop("rope_parameters"))
    old |= {"rope_theta": parameters.pop("rope_theta"), "torch_dtype": old.pop("dtype")}
    parameters["type"] = parameters.pop("rope_type")
    old["rope_scaling"] = None if parameters == {"type": "default"} else parameters
    for folder in ("whole", "shards", "old"):
        if folder == "old":
            folder = "whole"
            (tmp_path / folder / "config.json").write_text(json.dumps(old))
        made = nn.Llama.from_transformers(tmp_path / folder, cache=40)
        assert made.config == expected.config
        for path, value in expected.state_dict().items():
            np.testing.assert_array_equal(np.asarray(made.state_dict()[path]), np.asarray(value))


def test_another_dtype() -> None:
    model = model_of(*CASES["qwen2"])
    made = nn.Llama.from_transformers(model, cache=8, dtype="float16")
    assert made.config.dtype == "f16" and made.state_dict()["embedding"].dtype == np.float16


# As files of version 4 stand in the public: Llama 3.1 8B, Mistral 7B v0.3, Qwen2.5 7B.
_PUBLISHED: list[dict[str, Any]] = [
    {
        "architectures": ["LlamaForCausalLM"], "attention_bias": False, "attention_dropout": 0.0,
        "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "hidden_act": "silu",
        "hidden_size": 4096, "initializer_range": 0.02, "intermediate_size": 14336,
        "max_position_embeddings": 131072, "mlp_bias": False, "model_type": "llama",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "pretraining_tp": 1,
        "rms_norm_eps": 1e-05, "rope_scaling": {
            "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
            "original_max_position_embeddings": 8192, "rope_type": "llama3",
        },
        "rope_theta": 500000.0, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
        "transformers_version": "4.43.0.dev0", "use_cache": True, "vocab_size": 128256,
    },
    {
        "architectures": ["MistralForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 1,
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "initializer_range": 0.02,
        "intermediate_size": 14336, "max_position_embeddings": 32768, "model_type": "mistral",
        "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": None, "tie_word_embeddings": False,
        "torch_dtype": "bfloat16", "transformers_version": "4.42.0.dev0", "use_cache": True,
        "vocab_size": 32768,
    },
    {
        "architectures": ["Qwen2ForCausalLM"], "attention_dropout": 0.0, "bos_token_id": 151643,
        "eos_token_id": 151643, "hidden_act": "silu", "hidden_size": 3584, "initializer_range": 0.02,
        "intermediate_size": 18944, "max_position_embeddings": 131072, "max_window_layers": 28,
        "model_type": "qwen2", "num_attention_heads": 28, "num_hidden_layers": 28, "num_key_value_heads": 4,
        "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "sliding_window": 131072,
        "tie_word_embeddings": False, "torch_dtype": "bfloat16", "transformers_version": "4.40.1",
        "use_cache": True, "use_mrope": False, "use_sliding_window": False, "vocab_size": 152064,
    },
]  # fmt: skip


@pytest.mark.parametrize("config", _PUBLISHED, ids=lambda config: config["model_type"])
def test_published_configurations(config: dict[str, Any]) -> None:
    from aicf.nn.llama_of_transformers import config_of
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    ours = config_of(config, 4096, 1, "bf16")
    theirs = hf.AutoConfig.for_model(**config)
    base = theirs.rope_parameters["rope_theta"]
    frequencies = torch.tensor(base ** -(np.arange(0, ours.head, 2) / ours.head))
    if theirs.rope_parameters["rope_type"] != "default":
        frequencies, _ = ROPE_INIT_FUNCTIONS[theirs.rope_parameters["rope_type"]](theirs, "cpu")
    np.testing.assert_allclose(ours.frequencies, frequencies.numpy(), rtol=1e-5)
    assert (ours.features, ours.kv_heads) == (theirs.hidden_size, theirs.num_key_value_heads)
    assert ours.qkv_bias == (config["model_type"] == "qwen2") and not any(ours.windows)


@pytest.mark.parametrize("name", ["Llama", "Mistral", "Qwen2", "Qwen3"])
def test_configurations_as_transformers_makes_them(name: str) -> None:
    from aicf.nn.llama_of_transformers import config_of

    config = getattr(hf, f"{name}Config")()
    made = config_of(config.to_dict(), 8, 1, "f32")
    assert (made.head, made.epsilon) == (128, config.rms_norm_eps)


_REFUSED: dict[str, tuple[dict[str, Any], str, str]] = {
    "another model": ({"model_type": "gemma"}, "model_type", "gemma"),
    "an activation": ({"hidden_act": "gelu"}, "hidden_act", "gelu"),
    "an unknown key": ({"embedding_multiplier": 12.0}, "embedding_multiplier", "12.0"),
    "quantised": ({"quantization_config": {"bits": 4}}, "quantization_config", "bits"),
    "a part of a head": ({"partial_rotary_factor": 0.5}, "partial_rotary_factor", "0.5"),
    "that part, in its place": ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary", "0.5"),
    "a window": ({"sliding_window": 8}, "sliding_window", "8"),
    "a rope type": ({"rope_parameters": {"rope_type": "axial"}}, "rope_type", "axial"),
    "a key of another type": ({"rope_parameters": {"factor": 2.0}}, "factor", "2.0"),
    "by layer": ({"rope_parameters": {"full_attention": {}}}, "rope_parameters", "full_attention"),
    "a long text": ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "cache", "200"),
}


@pytest.mark.parametrize("name", _REFUSED)
def test_what_the_configuration_says_and_we_do_not_is_refused(name: str, tmp_path: Path) -> None:
    more, key, value = _REFUSED[name]
    model_of("Llama", {}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    if "rope_scaling" in more:
        del config["rope_parameters"]
    (tmp_path / "config.json").write_text(json.dumps(config | more))
    with pytest.raises(aicf.UserError) as refused:
        nn.Llama.from_transformers(tmp_path, cache=200 if key == "cache" else 8)
    assert refused.value.code == "AICF-U0002" and refused.value.op.startswith(key)
    assert value in refused.value.actual and "compile_causal_lm" in refused.value.remedy


def test_a_missing_key_of_the_formula_is_refused(tmp_path: Path) -> None:
    model_of("Llama", {}).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config["rope_parameters"] = {"rope_type": "linear"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(aicf.UserError, match="need another key") as refused:
        nn.Llama.from_transformers(tmp_path, cache=8)
    assert refused.value.value == "factor"


def test_weights_left_over_or_missing_are_refused() -> None:
    """As biases, which a model without them must not drop."""
    biased = model_of("Llama", {"attention_bias": True}).state_dict()
    plain = nn.Llama.from_transformers(model_of("Llama", {}), cache=8)
    before = np.array(plain.state_dict()["embedding"])
    with pytest.raises(aicf.UserError, match="left over") as refused:
        plain.load_transformers(biased)
    assert refused.value.code == "AICF-U0406" and "q_proj.bias" in refused.value.value
    np.testing.assert_array_equal(plain.state_dict()["embedding"], before)
    del biased["model.norm.weight"]
    with pytest.raises(aicf.UserError, match="missing") as refused:
        plain.load_transformers(biased)
    assert refused.value.value == "model.norm.weight"


def test_a_tied_head_of_other_values_is_refused() -> None:
    model = model_of("Llama", {"tie_word_embeddings": True})
    llama = nn.Llama.from_transformers(model, cache=8)
    weights = dict(model.state_dict())
    weights["lm_head.weight"] = weights["lm_head.weight"] + 1
    with pytest.raises(aicf.UserError, match="two names of one weight"):
        llama.load_transformers(weights)


@pytest.mark.parametrize(
    ("written", "message"),
    [(None, "not the folder"), ("[]", "no JSON object"), ("{", "not JSON"), ("{}", "not the shape")],
)
def test_folders_that_are_none(written: str | None, message: str, tmp_path: Path) -> None:
    if written is not None:
        (tmp_path / "config.json").write_text(written)
        model_of("Llama", {}).save_pretrained(tmp_path / "other")
        (tmp_path / "other" / "model.safetensors").rename(tmp_path / "model.safetensors")
    with pytest.raises(aicf.UserError, match=message):
        nn.Llama.from_transformers(tmp_path, cache=8)
    with pytest.raises(aicf.UserError, match="an option has the wrong type"):
        nn.Llama.from_transformers(3, cache=8)


def test_an_index_that_leaves_the_folder(tmp_path: Path) -> None:
    model_of("Llama", {}).save_pretrained(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../model.safetensors"}}))
    with pytest.raises(aicf.UserError) as refused:
        nn.Llama.from_transformers(tmp_path, cache=8)
    assert refused.value.code == "AICF-U0304"
    index.write_text(json.dumps({"weight_map": {"a": "model.safetensors"}}))
    with pytest.raises(aicf.UserError, match="lacks a weight"):
        nn.Llama.from_transformers(tmp_path, cache=8)


_LLAMA: dict[str, Any] = {
    "vocabulary": 20, "features": 12, "layers": 1, "heads": 2, "kv_heads": 1, "hidden": 16, "cache": 4,
    "qkv_bias": True, "head_norms": True,
}  # fmt: skip
_LAYERS_OF: dict[str, Any] = {
    "llama": lambda dtype: nn.Llama(nn.LlamaConfig(**_LLAMA, dtype=dtype)),
    "linear": lambda dtype: nn.Linear(5, 7, dtype=dtype),
    "embedding": lambda dtype: nn.Embedding(5, 7, dtype=dtype),
    "layer norm": lambda dtype: nn.LayerNorm(5, dtype=dtype),
    "rms norm": lambda dtype: nn.RMSNorm(5, dtype=dtype),
    "convolution": lambda dtype: nn.Conv2d(3, 4, 3, dtype=dtype),
    "batch norm": lambda dtype: nn.BatchNorm2d(3, dtype=dtype),
    "attention": lambda dtype: nn.MultiheadAttention(8, 2, dtype=dtype),
}


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@pytest.mark.parametrize("name", _LAYERS_OF)
def test_halves_begin_as_f32_does(name: str, dtype: str) -> None:
    """The same random values, rounded."""
    from aicf._aicf import rounded

    made = {}
    for each in ("f32", dtype):
        nn.seed(5)
        made[each] = _LAYERS_OF[name](each).state_dict()
    assert list(made["f32"]) == list(made[dtype])
    for path, wide in made["f32"].items():
        narrow = np.asarray(rounded(made[dtype][path], "f32"))
        np.testing.assert_array_equal(narrow, np.asarray(rounded(rounded(wide, dtype), "f32")))
    assert any(largest(value) > 0.01 for value in made["f32"].values())

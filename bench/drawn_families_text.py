"""Families of transformers with random weights: encoders, decoders, pictures and sound as their configs make
them. Needs transformers; nothing is downloaded."""

from __future__ import annotations

from typing import Any

from drawn_family import BATCHES, Case, Plain, Sizes, family, floats, ids
from torch import nn

LENGTHS = (16, 24, 32, 48, 77, 96, 128, 160, 197, 256, 384, 512)
DEPTHS = (1, 2, 3, 4, 6, 8, 12)
HEADS = (2, 3, 4, 6, 8, 12, 16)  # the width is heads × size of a head
LADDER = {"batch": BATCHES[:12], "length": LENGTHS, "depth": DEPTHS, "heads": HEADS}
KNOBS = {"head": (32, 48, 64, 80), "wide": (2, 3, 4)}


def _hf(name: str, part: str, **config: Any) -> nn.Module:
    import transformers as hf

    return getattr(hf, name + part)(getattr(hf, f"{name}Config")(**config))


def _common(k: Sizes) -> dict[str, Any]:
    width = k["heads"] * k["head"]
    return {
        "vocab_size": k.get("words", 8000),
        "hidden_size": width,
        "num_hidden_layers": k["depth"],
        "num_attention_heads": k["heads"],
        "intermediate_size": k["wide"] * width,
    }


def _text(k: Sizes, model: nn.Module, names: tuple[str, ...] = ("input_ids",), **fixed: Any) -> Case:
    words = k.get("words", 8000)
    return Case(
        Plain(model, names, **fixed),
        [ids("input_ids", k["batch"], k["length"], high=words)],
        ("values", 0),
    )


def _tokens(k: Sizes, model: nn.Module, **fixed: Any) -> Case:
    """A result [batch, length, words] of which each place is a class."""
    case = _text(k, model, **fixed)
    case.target = ("classes", k["words"])
    return case


WORDS = {"words": (1000, 5003, 8192, 30522, 50257)}


@family("bert", "transformers", LADDER, KNOBS)
def bert(k: Sizes) -> Case:
    return _text(k, _hf("Bert", "Model", **_common(k)))


@family("bert_masked_words", "transformers", LADDER, KNOBS | WORDS)
def bert_masked_words(k: Sizes) -> Case:
    return _tokens(k, _hf("Bert", "ForMaskedLM", **_common(k)))


@family("roberta_classifier", "transformers", LADDER, KNOBS)
def roberta(k: Sizes) -> Case:
    model = _hf(
        "Roberta", "ForSequenceClassification", **_common(k), num_labels=k["wide"] + 1, pad_token_id=0
    )
    case = _text(k, model)
    case.target = ("classes", k["wide"] + 1)
    return case


@family("distilbert", "transformers", LADDER, KNOBS)
def distilbert(k: Sizes) -> Case:
    width = k["heads"] * k["head"]
    sizes = {"dim": width, "hidden_dim": k["wide"] * width, "n_layers": k["depth"], "n_heads": k["heads"]}
    return _text(k, _hf("DistilBert", "Model", vocab_size=8000, **sizes))


@family("albert", "transformers", LADDER, KNOBS)
def albert(k: Sizes) -> Case:
    return _text(k, _hf("Albert", "Model", **_common(k), embedding_size=128))


@family("electra_small", "transformers", LADDER, KNOBS)
def electra(k: Sizes) -> Case:
    return _text(k, _hf("Electra", "Model", **_common(k), embedding_size=96))


@family("mpnet", "transformers", LADDER, KNOBS)
def mpnet(k: Sizes) -> Case:
    return _text(k, _hf("MPNet", "Model", **_common(k)))


@family("deberta", "transformers", LADDER | {"length": LENGTHS[:9]}, KNOBS, "inference")
def deberta(k: Sizes) -> Case:
    sizes = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "type_vocab_size": 0}
    return _text(k, _hf("DebertaV2", "Model", **_common(k), **sizes))


def _decoder(k: Sizes) -> dict[str, Any]:
    return _common(k) | {"max_position_embeddings": 1024, "use_cache": False}


@family("gpt2", "transformers", LADDER, {"head": (32, 48, 64, 80)} | WORDS)
def gpt2(k: Sizes) -> Case:
    sizes = {
        "n_embd": k["heads"] * k["head"],
        "n_layer": k["depth"],
        "n_head": k["heads"],
        "use_cache": False,
    }
    return _tokens(
        k, _hf("GPT2", "LMHeadModel", vocab_size=k["words"], n_positions=1024, **sizes), use_cache=False
    )


def _grouped(k: Sizes) -> dict[str, Any]:
    kv = next(n for n in (k["groups"], 2, 1) if k["heads"] % n == 0)
    return _decoder(k) | {"num_key_value_heads": kv}


GROUPED = {"head": (32, 64, 80, 128), "wide": (2, 3), "groups": (1, 2, 4)} | WORDS


@family("llama_prefill", "transformers", LADDER, GROUPED)
def llama(k: Sizes) -> Case:
    return _tokens(k, _hf("Llama", "ForCausalLM", **_grouped(k)), use_cache=False)


@family("qwen3_prefill", "transformers", LADDER, GROUPED)
def qwen3(k: Sizes) -> Case:
    return _tokens(k, _hf("Qwen3", "ForCausalLM", **_grouped(k), head_dim=k["head"]), use_cache=False)


@family("mistral_window", "transformers", LADDER, GROUPED)
def mistral(k: Sizes) -> Case:
    return _tokens(k, _hf("Mistral", "ForCausalLM", **_grouped(k), sliding_window=64), use_cache=False)


@family("gpt_neox", "transformers", LADDER, {"head": (32, 64, 80), "wide": (2, 4)} | WORDS)
def gpt_neox(k: Sizes) -> Case:
    return _tokens(k, _hf("GPTNeoX", "ForCausalLM", **_decoder(k)), use_cache=False)


@family("t5_encoder", "transformers", LADDER, KNOBS)
def t5(k: Sizes) -> Case:
    width = k["heads"] * k["head"]
    sizes = {"d_model": width, "d_kv": k["head"], "d_ff": k["wide"] * width, "num_layers": k["depth"]}
    return _text(k, _hf("T5", "EncoderModel", vocab_size=8000, num_heads=k["heads"], **sizes))


@family("bart_pair", "transformers", LADDER | {"length": LENGTHS[:9], "depth": DEPTHS[:5]}, KNOBS)
def bart(k: Sizes) -> Case:
    import transformers as hf

    width = k["heads"] * k["head"]
    config = hf.BartConfig(
        vocab_size=8000, d_model=width, encoder_layers=k["depth"], decoder_layers=k["depth"],
        encoder_attention_heads=k["heads"], decoder_attention_heads=k["heads"],
        encoder_ffn_dim=k["wide"] * width, decoder_ffn_dim=k["wide"] * width, use_cache=False,
    )  # fmt: skip
    model = Plain(hf.BartModel(config), ("input_ids", "decoder_input_ids"), use_cache=False)
    length = max(8, k["length"] // 2)
    inputs = [ids("input_ids", k["batch"], k["length"], high=8000)]
    return Case(model, [*inputs, ids("decoder_input_ids", k["batch"], length, high=8000)])


@family("clip_text", "transformers", LADDER | {"length": LENGTHS[:5]}, KNOBS)
def clip_text(k: Sizes) -> Case:
    return _text(k, _hf("CLIPText", "Model", **_common(k)))


RESOLUTIONS = (32, 48, 64, 96, 128, 160, 192, 224, 256, 320)
PICTURES = {"batch": BATCHES[:12], "resolution": RESOLUTIONS, "depth": DEPTHS, "heads": HEADS}


def _pictures(k: Sizes, model: nn.Module, target: tuple[str, int] = ("values", 0)) -> Case:
    size = k["resolution"]
    return Case(Plain(model, ("pixel_values",)), [floats("pixel_values", k["batch"], 3, size, size)], target)


def _patches(k: Sizes) -> dict[str, Any]:
    sizes = _common(k)
    del sizes["vocab_size"]
    return sizes | {"image_size": k["resolution"], "patch_size": 16}


@family("vit_hf", "transformers", PICTURES, KNOBS)
def vit(k: Sizes) -> Case:
    return _pictures(k, _hf("ViT", "ForImageClassification", **_patches(k), num_labels=100), ("classes", 100))


@family("dinov2", "transformers", PICTURES, KNOBS)
def dinov2(k: Sizes) -> Case:
    return _pictures(k, _hf("Dinov2", "Model", **_patches(k), mlp_ratio=k["wide"]))


@family(
    "segformer", "transformers", PICTURES | {"heads": (1, 2, 3), "depth": (1, 2, 3)}, {"head": (16, 24, 32)}
)
def segformer(k: Sizes) -> Case:
    widths = [k["heads"] * k["head"] * n for n in (1, 2, 5, 8)]
    sizes = {"hidden_sizes": widths, "depths": [k["depth"]] * 4, "decoder_hidden_size": widths[1]}
    return _pictures(k, _hf("Segformer", "ForSemanticSegmentation", **sizes, num_labels=21), ("classes", 21))


@family(
    "wav2vec2",
    "transformers",
    {
        "batch": BATCHES[:8],
        "length": (4000, 6400, 8000, 12000, 16000, 24000, 32000),
        "depth": DEPTHS,
        "heads": HEADS,
    },
    KNOBS,
)
def wav2vec2(k: Sizes) -> Case:
    sizes = _common(k) | {"conv_dim": (k["heads"] * 32,) * 7, "vocab_size": 32, "mask_time_prob": 0.0}
    model = _hf("Wav2Vec2", "ForCTC", **sizes, num_conv_pos_embedding_groups=k["heads"])
    return Case(
        Plain(model, ("input_values",)), [floats("input_values", k["batch"], k["length"])], ("classes", 32)
    )


@family(
    "whisper_encoder",
    "transformers",
    {"batch": BATCHES[:8], "length": (100, 200, 300, 500, 750, 1000, 1500), "depth": DEPTHS, "heads": HEADS},
    KNOBS | {"mels": (40, 80)},
)
def whisper(k: Sizes) -> Case:
    import transformers as hf
    from transformers.models.whisper.modeling_whisper import WhisperEncoder

    width = k["heads"] * k["head"]
    config = hf.WhisperConfig(
        d_model=width, encoder_layers=k["depth"], encoder_attention_heads=k["heads"],
        encoder_ffn_dim=k["wide"] * width, num_mel_bins=k["mels"], max_source_positions=k["length"],
    )  # fmt: skip
    model = Plain(WhisperEncoder(config), ("input_features",))
    return Case(model, [floats("input_features", k["batch"], k["mels"], 2 * k["length"])])

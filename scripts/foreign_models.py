#!/usr/bin/env python3
"""Models of other libraries as they come: transformers, timm and torchvision classes through `aicf.compile`.

    scripts/foreign_models.py [--seed 1] [--only NAME ...] [--sizes] [--dtype f16] [--jobs 1] [--out FILE]

Each model is one of its class with random weights: sizes are small, everything else is the class's default.
It is compiled in a process of its own, with limits of time and memory, run, and compared with its eager run
in f64: a result may be off by 4 times what torch's f32 is off, plus 16 units in the last place of the largest
element. A refused model is compiled again as the error's remedy says, and that result is compared. `--sizes`
compiles language models over a range of lengths. `--dtype` casts models and inputs; the bound then follows
from what torch is off in that dtype. timm and torchvision are on the path for their part.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import platform
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
CPU_SECONDS, SECONDS, GIGABYTES = 300, 1800, 8
_TOKENS: dict[str, Any] = {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "vocab_size": 199}
_LAYERS = {"hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 2, "num_attention_heads": 4}
_DECODER = _LAYERS | _TOKENS
_GROUPED = _DECODER | {"num_key_value_heads": 2}
_HEADS = _GROUPED | {"head_dim": 8}
_EXPERTS = {"moe_intermediate_size": 24, "num_experts": 8, "num_experts_per_tok": 2}
_GPT = _TOKENS | {"n_embd": 32, "n_layer": 2, "n_head": 4}
_STATES = _TOKENS | {"hidden_size": 32, "num_hidden_layers": 2}
_ENCODER = _DECODER | {"max_position_embeddings": 64}
_IMAGE = _LAYERS | {"image_size": 32, "patch_size": 8}
_WINDOWS = {"depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
_STAGES = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
_SIDES = {"layers": 2, "attention_heads": 4, "ffn_dim": 56}
_PAIR = _TOKENS | {"d_model": 32, "decoder_start_token_id": 2}
_PAIR |= {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in _SIDES.items()}
_T5 = _TOKENS | {"d_model": 32, "d_kv": 8, "d_ff": 56, "num_layers": 2, "num_heads": 4}
_SPEECH = _LAYERS | {"vocab_size": 32, "conv_dim": (16,) * 7}
_SPEECH |= {"num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
_LM, _MASKED, _PAIRED, _IMAGES = (
    "ForCausalLM",
    "ForMaskedLM",
    "ForConditionalGeneration",
    "ForImageClassification",
)

# Class prefix: (suffix of the model's class, the configuration's sizes, kind of inputs).
TRANSFORMERS: dict[str, tuple[str, dict[str, Any], str]] = {
    "Llama": (_LM, _GROUPED, "text"),
    "GPT2": ("LMHeadModel", _GPT, "text"),
    "Qwen2": (_LM, _GROUPED, "text"),
    "Qwen3": (_LM, _HEADS, "text"),
    "Gemma": (_LM, _HEADS, "text"),
    "Gemma2": (_LM, _HEADS, "text"),
    # As many layers as its pattern of windows is long.
    "Gemma3Text": ("Gemma3ForCausalLM", _HEADS | {"num_hidden_layers": 6, "sliding_window": 8}, "text"),
    "Phi": (_LM, _DECODER, "text"),
    "Phi3": (_LM, _GROUPED, "text"),
    "Mistral": (_LM, _GROUPED, "text"),
    "Mixtral": (_LM, _GROUPED, "text"),
    "OPT": (_LM, _DECODER | {"ffn_dim": 56, "word_embed_proj_dim": 32}, "text"),
    "Bloom": (_LM, _STATES | {"n_layer": 2, "n_head": 4}, "text"),
    "Falcon": (_LM, _DECODER, "text"),
    "GPTNeoX": (_LM, _DECODER, "text"),
    "StableLm": (_LM, _GROUPED, "text"),
    "Olmo": (_LM, _GROUPED, "text"),
    "Olmo2": (_LM, _GROUPED, "text"),
    "Mamba": (_LM, _STATES, "text"),
    "Mamba2": (_LM, _STATES | {"num_heads": 8, "head_dim": 8, "n_groups": 2}, "text"),
    "Cohere": (_LM, _GROUPED, "text"),
    "Starcoder2": (_LM, _GROUPED, "text"),
    "GPTJ": (_LM, _GPT | {"rotary_dim": 4}, "text"),
    "CodeGen": (_LM, _GPT | {"rotary_dim": 4}, "text"),
    "SmolLM3": (_LM, _GROUPED, "text"),
    "Granite": (_LM, _GROUPED, "text"),
    "Qwen2Moe": (_LM, _GROUPED | _EXPERTS | {"shared_expert_intermediate_size": 24}, "text"),
    "Qwen3Moe": (_LM, _HEADS | _EXPERTS, "text"),
    "GptOss": (_LM, _HEADS | {"num_local_experts": 4, "num_experts_per_tok": 2}, "text"),
    "RecurrentGemma": (_LM, _HEADS | {"num_hidden_layers": 3, "lru_width": 32}, "text"),
    "Rwkv": (_LM, _STATES, "text"),
    "T5": (_PAIRED, _T5 | {"decoder_start_token_id": 0}, "pair"),
    "Bart": (_PAIRED, _PAIR, "pair"),
    "Pegasus": (_PAIRED, _PAIR, "pair"),
    "Marian": ("MTModel", _PAIR | {"max_position_embeddings": 64}, "pair"),
    "Whisper": (_PAIRED, _PAIR | {"max_source_positions": 50, "num_mel_bins": 16}, "speech pair"),
    "Bert": (_MASKED, _ENCODER, "text"),
    "Roberta": (_MASKED, _ENCODER, "text"),
    "DistilBert": (_MASKED, _TOKENS | {"dim": 32, "hidden_dim": 56, "n_layers": 2, "n_heads": 4}, "text"),
    "Albert": (_MASKED, _ENCODER | {"embedding_size": 16}, "text"),
    "Electra": ("ForPreTraining", _ENCODER | {"embedding_size": 16}, "text"),
    "DebertaV2": (_MASKED, _ENCODER, "text"),
    "MPNet": (_MASKED, _ENCODER, "text"),
    "ModernBert": (_MASKED, _DECODER, "text"),
    "XLNet": ("LMHeadModel", _TOKENS | {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 56}, "text"),
    "ViT": (_IMAGES, _IMAGE, "image"),
    "DeiT": (_IMAGES, _IMAGE, "image"),
    "Dinov2": ("Model", _IMAGE, "image"),
    "Beit": (_IMAGES, _IMAGE, "image"),
    "Swin": (_IMAGES, _WINDOWS | {"image_size": 32, "patch_size": 2, "embed_dim": 16}, "image"),
    "ConvNext": (_IMAGES, _STAGES, "image"),
    "ResNet": (_IMAGES, _STAGES | {"embedding_size": 8}, "image"),
    "Segformer": ("ForSemanticSegmentation", _STAGES | {"decoder_hidden_size": 16}, "image"),
    "CLIP": ("Model", {"text_config": _ENCODER, "vision_config": _IMAGE, "projection_dim": 16}, "clip"),
    "Siglip": ("Model", {"text_config": _ENCODER, "vision_config": _IMAGE}, "clip"),
    "Wav2Vec2": ("ForCTC", _SPEECH, "speech"),
    "Hubert": ("ForCTC", _SPEECH, "speech"),
}
TIMM = """
    resnet18 resnext50_32x4d regnety_002 efficientnet_b0 mobilenetv3_small_100 mobilenetv2_050 convnext_atto
    convnextv2_atto densenet121 vgg11 inception_v3 mnasnet_050 ghostnet_100 hrnet_w18_small dla34
    vit_tiny_patch16_224 deit_tiny_patch16_224 swin_tiny_patch4_window7_224 swinv2_tiny_window8_256
    mixer_s32_224 maxvit_rmlp_pico_rw_256 coat_tiny cait_xxs24_224 levit_128s poolformer_s12 edgenext_xx_small
    xcit_nano_12_p16_224 beit_base_patch16_224 eva02_tiny_patch14_224 repvgg_a0 mobilevit_xxs fastvit_t8
    efficientformer_l1 nfnet_l0 pvt_v2_b0 twins_pcpvt_small visformer_tiny tiny_vit_5m_224 hgnet_tiny
""".split()
TORCHVISION = """
    resnet18 alexnet squeezenet1_1 googlenet shufflenet_v2_x0_5 mobilenet_v3_small efficientnet_b0 vit_b_32
    swin_v2_t maxvit_t segmentation.lraspp_mobilenet_v3_large segmentation.fcn_resnet50 video.r3d_18
    optical_flow.raft_small
""".split()


def names() -> Iterator[str]:
    yield from (f"transformers/{name}" for name in TRANSFORMERS)
    yield from (f"timm/{name}" for name in TIMM)
    yield from (f"torchvision/{name}" for name in TORCHVISION)


def make(name: str) -> tuple[Any, dict[str, Any]]:
    """The model, and arguments by name."""
    library, _, name = name.partition("/")
    return {"transformers": _transformers, "timm": _timm, "torchvision": _torchvision}[library](name)


def _transformers(name: str) -> tuple[Any, dict[str, Any]]:
    import transformers as hf

    suffix, sizes, kind = TRANSFORMERS[name]
    known = suffix if hasattr(hf, suffix) else name + suffix
    model = getattr(hf, known)(getattr(hf, f"{name}Config")(**sizes))
    return model, _inputs(kind, 2, 11)


def _inputs(kind: str, batch: int, length: int) -> dict[str, Any]:
    import torch

    ids = torch.randint(3, 199, (batch, length))
    image = torch.randn(batch, 3, 32, 32)
    return {
        "text": lambda: {"input_ids": ids},
        "pair": lambda: {"input_ids": ids, "decoder_input_ids": ids[:, :7].clone()},
        "speech pair": lambda: {
            "input_features": torch.randn(batch, 16, 100),
            "decoder_input_ids": ids[:, :7].clone(),
        },
        "image": lambda: {"pixel_values": image},
        "clip": lambda: {"input_ids": ids, "pixel_values": image},
        "speech": lambda: {"input_values": torch.randn(batch, 800)},
    }[kind]()


def _timm(name: str) -> tuple[Any, dict[str, Any]]:
    _torchvision_ops()
    import timm
    import torch

    model = timm.create_model(name, pretrained=False, num_classes=10)
    size = model.pretrained_cfg["input_size"]
    return model, {"x": torch.randn(1, *size)}


def _torchvision(name: str) -> tuple[Any, dict[str, Any]]:
    _torchvision_ops()
    import torch
    import torchvision.models

    model = torchvision.models.get_model(name.rpartition(".")[2], weights=None, **_NO_WEIGHTS.get(name, {}))
    if name.startswith("video"):
        return model, {"x": torch.randn(1, 3, 8, 32, 32)}
    if name.startswith("optical_flow"):
        return model, {"image1": torch.randn(1, 3, 128, 128), "image2": torch.randn(1, 3, 128, 128)}
    (key,) = inspect.signature(model.forward).parameters
    return model, {key: torch.randn(1, 3, 224, 224)}


_NO_WEIGHTS = {
    "segmentation.lraspp_mobilenet_v3_large": {"weights_backbone": None},
    "segmentation.fcn_resnet50": {"weights_backbone": None},
}


def _torchvision_ops() -> None:
    """Names of torchvision's compiled ops, which a wheel for another torch lacks; no model here calls one."""
    import importlib

    import torch

    try:
        importlib.import_module("torchvision")
    except RuntimeError:
        for key in [key for key in sys.modules if key.startswith("torchvision")]:
            del sys.modules[key]
        library = torch.library.Library("torchvision", "DEF")
        ops = "nms qnms roi_align qroi_align ps_roi_align roi_pool ps_roi_pool deform_conv2d"
        back = "roi_align ps_roi_align roi_pool ps_roi_pool deform_conv2d"
        for op in [*ops.split(), *(f"_{name}_backward" for name in back.split())]:
            library.define(f"{op}(Tensor x) -> Tensor")
        globals()["_kept"] = library
        importlib.import_module("torchvision")


def tensors_of(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Of a result, caches included, with their paths."""
    import torch

    if isinstance(value, torch.Tensor):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from tensors_of(part, f"{path}.{key}")
    elif isinstance(value, (list, tuple)):
        for index, part in enumerate(value):
            yield from tensors_of(part, f"{path}.{index}")
    elif hasattr(value, "layers"):
        for index, layer in enumerate(value.layers):
            yield from tensors_of(vars(layer), f"{path}.{index}")


def agreement(actual: Any, eager: Any, exact: Any) -> tuple[float, str]:
    """The worst share of its bound that a result takes, and where."""
    ours, theirs, true = (dict(tensors_of(x)) for x in (actual, eager, exact))
    if type(actual) is not type(eager) or list(ours) != list(theirs):
        return float("inf"), f"structure: {type(actual).__name__} {[*ours][:5]} is not {[*theirs][:5]}"
    worst = 0.0, "-"
    for path, value in theirs.items():
        if ours[path].shape != value.shape or ours[path].dtype != value.dtype:
            return float("inf"), f"{path}: {ours[path].dtype} {list(ours[path].shape)}"
        if not value.is_floating_point():
            share = 0.0 if (ours[path] == value).all() else float("inf")
        elif not value.numel():
            continue
        else:
            real = true[path].double()
            finite = real.isfinite()
            if not (ours[path].isfinite() == finite).all():
                return float("inf"), f"{path}: other elements are finite"
            real, mine, its = (x.double()[finite] for x in (real, ours[path], value))
            largest = real.abs().max().item() if real.numel() else 0.0
            bound = 4 * _distance(its, real) + 16 * 2**-23 * largest
            share = _distance(mine, real) / bound if bound else float(_distance(mine, real) > 0)
        worst = max(worst, (share, path))
    return worst


def _distance(a: Any, b: Any) -> float:
    return (a - b).abs().max().item() if a.numel() else 0.0


def follow(error: Any, model: Any, inputs: dict[str, Any], dims: Any) -> tuple[str, Any] | None:
    """What the remedy of an error says, done: its name, and what then gives the shares of the bound."""
    import aicf
    import torch

    text = error.remedy
    if '"use_cache": False' in text:
        given = inputs | {"use_cache": False}
        exe = aicf.compile(model, given, dims=dims)
        return "use_cache=False", _over_lengths(exe, model, given, dims)
    if "call the model once" in text:
        with torch.no_grad():
            model(**inputs)
        exe = aicf.compile(model, inputs)
        return "called once", agreement(exe(**inputs), *_eager(model, inputs))
    if 'torch.compile(model, backend="aicf")' in text:
        with torch.no_grad():
            result = torch.compile(model, backend="aicf")(**inputs)
        return "torch.compile", agreement(result, *_eager(model, inputs))
    return None


def _eager(model: Any, inputs: dict[str, Any]) -> tuple[Any, Any]:
    """In the model's dtype and in f64; of a model that computes in f32 by name, in f32 by other kernels."""
    import copy

    import torch

    def wider(dtype: torch.dtype) -> Any:
        given = dict(inputs)
        for key, value in inputs.items():
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                given[key] = value.to(dtype)
        return copy.deepcopy(model).to(dtype)(**given)

    with torch.no_grad():
        plain = model(**inputs)
        try:
            return plain, wider(torch.float64)
        except RuntimeError:
            with torch.backends.mkldnn.flags(enabled=False):
                return plain, wider(torch.float32)


def _over_lengths(exe: Any, model: Any, inputs: dict[str, Any], dims: Any) -> tuple[float, str]:
    """The worst agreement on the inputs, and where lengths have a range at its ends and between."""
    import torch

    worst = agreement(exe(**inputs), *_eager(model, inputs))
    for length in (2, 24, 5) if dims else ():
        ids = {key: torch.randint(3, 199, (2, length)) for key in dims}
        share, where = agreement(exe(**inputs | ids), *_eager(model, inputs | ids))
        worst = max(worst, (share, f"length {length}: {where}"))
    return worst


def one(name: str, seed: int, sizes: bool, dtype: str) -> dict[str, Any]:
    import aicf
    import torch

    torch.manual_seed(seed)
    torch.set_num_threads(1)
    model, inputs = make(name)
    model.eval()
    with torch.no_grad():  # scales of 1, biases of 0 and heads of 0 would hide what is mixed up
        for parameter in model.parameters():
            if parameter.ndim < 2 or not parameter.any():
                parameter.add_(torch.randn_like(parameter) * 0.05)
    kind = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    model.to(kind)
    inputs = {k: v.to(kind) if v.is_floating_point() else v for k, v in inputs.items()}
    dims = {k: {1: "length=2..24"} for k, v in inputs.items() if v.dtype == torch.int64} if sizes else {}
    row: dict[str, Any] = {"name": name}
    start = time.process_time()
    try:
        exe = aicf.compile(model, inputs, dims=dims, threads=1)
    except aicf.Error as error:
        row |= {"verdict": "refused", "compile_s": time.process_time() - start, "code": error.code}
        row |= {"message": str(error).splitlines()[0], "remedy": error.remedy, "value": error.value}
        try:
            followed = follow(error, model, inputs, dims)
        except aicf.Error as again:
            followed = "followed", (float("inf"), str(again).splitlines()[0])
        if followed is not None:
            (share, where), row["followed"] = followed[1], followed[0]
            row |= {"share": share, "where": where}
            row["verdict"] = "remedy works" if share <= 1 else "remedy fails"
        return row
    row["compile_s"] = time.process_time() - start
    share, where = _over_lengths(exe, model, inputs, dims)
    row |= {"verdict": "right" if share <= 1 else "wrong", "share": share, "where": where}
    start = time.process_time()
    exe(**inputs)
    row["run_ms"] = 1e3 * (time.process_time() - start)
    return row


def in_process(name: str, seed: int, sizes: bool, dtype: str) -> dict[str, Any]:
    command = [sys.executable, __file__, "--one", name, "--seed", str(seed), "--dtype", dtype]
    command += ["--sizes"] if sizes else []

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (GIGABYTES << 30, GIGABYTES << 30))
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        os.nice(10)

    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, preexec_fn=limit)
    except subprocess.TimeoutExpired:
        return {"name": name, "verdict": "too slow", "compile_s": SECONDS}
    if done.returncode == -signal.SIGXCPU:
        return {"name": name, "verdict": "too slow", "compile_s": CPU_SECONDS}
    lines = done.stdout.strip().splitlines()
    try:
        return json.loads(lines[-1])
    except (IndexError, ValueError):
        said = [line for line in done.stderr.splitlines() if line.strip()] or [f"exit {done.returncode}"]
        return {"name": name, "verdict": "raw error", "message": said[-1][:300]}


def line_of(row: dict[str, Any]) -> str:
    numbers = f"{row.get('compile_s', 0):6.1f} s  {row.get('share', float('nan')):8.3g}"
    more = row.get("message") or row.get("where", "")
    if "code" in row:
        more = f"{row['message']} → {row['remedy']}" + (f" → {row['followed']}" if "followed" in row else "")
    return f"{row['name']:44} {row['verdict']:13} {numbers}  {more[:160]}"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", nargs="*", default=[], help="names, or beginnings of them")
    parser.add_argument("--sizes", action="store_true", help="lengths of token ids in a range")
    parser.add_argument("--dtype", choices=("f32", "f16", "bf16"), default="f32", help="of models and inputs")
    parser.add_argument("--jobs", type=int, default=1, help="models at a time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(json.dumps(one(arguments.one, arguments.seed, arguments.sizes, arguments.dtype)))
        return 0
    chosen = [n for n in names() if not arguments.only or any(n.startswith(o) for o in arguments.only)]
    rows = []
    with ThreadPoolExecutor(arguments.jobs) as pool:
        how = arguments.seed, arguments.sizes, arguments.dtype
        for row in pool.map(lambda name: in_process(name, *how), chosen):
            rows.append(row)
            print(f"[{len(rows):3}/{len(chosen)}] {line_of(row)}", flush=True)
            if arguments.out:
                _write(arguments.out, arguments, rows)
    counts: dict[str, int] = {}
    for row in rows:
        counts[row["verdict"]] = counts.get(row["verdict"], 0) + 1
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.items()))
    return int(not set(counts) <= {"right", "remedy works"})


def _write(path: Path, arguments: Any, rows: list[dict[str, Any]]) -> None:
    sys.path.insert(0, str(ROOT / "bench"))
    from machine import measured_tree

    head: dict[str, Any] = {
        **measured_tree(),
        "command": " ".join(["scripts/foreign_models.py", *sys.argv[1:]]),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: _version(name) for name in ("torch", "transformers", "timm", "torchvision")},
        "bound": f"4 × what eager {arguments.dtype} is off f64 + 16 ulp of f32 of the largest element",
        "share": "of the bound that the worst result takes; a right one takes at most 1",
        "compile_s": "processor time of one thread",
    }
    body = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    text = json.dumps(head, ensure_ascii=False)
    path.write_text(f'{text[:-1]}, "rows": [\n{body}\n]}}\n')


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


if __name__ == "__main__":
    sys.exit(main())

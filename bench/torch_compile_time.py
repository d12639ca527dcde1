"""How long `aicf.compile` of torch models takes, measured by torch's own export and decompositions.

The bound is 2.5 × (torch.export.export + run_decompositions) + 1 s. All three are taken in one process, in
turn; seconds are those of the processor, which other work on the machine disturbs least. Models are of usual
depths and tiny widths. A model whose graph torch's own decompositions do not take is left out.

    python bench/torch_compile_time.py [MODEL...] [--runs 3] [--output out.json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import aicf
import torch
import transformers as hf
from aicf.torch import compile_causal_lm

from bench.machine import describe_machine, measured_tree, versions

_WIDTH: dict[str, Any] = {
    "vocab_size": 99, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
_DECODER = _WIDTH | {"max_position_embeddings": 64, "use_cache": False}
_GROUPED = _DECODER | {"num_key_value_heads": 2}
_IDS = {"input_ids": {0: "batch=1..8", 1: "length=1..32"}}


def _ids() -> dict[str, torch.Tensor]:
    return {"input_ids": torch.randint(3, 99, (2, 13))}


def _images(size: int) -> dict[str, torch.Tensor]:
    return {"pixel_values": torch.randn(2, 3, size, size)}


def _gemma3(**more: Any) -> Any:
    config = hf.Gemma3TextConfig(**_GROUPED, num_hidden_layers=34, head_dim=8, sliding_window=8, **more)
    return hf.Gemma3ForCausalLM(config)


def _vit() -> Any:
    sizes = {"image_size": 32, "patch_size": 8}
    return hf.ViTModel(hf.ViTConfig(**{**_WIDTH, "num_hidden_layers": 12, **sizes}))


def _t5() -> Any:
    return hf.T5ForConditionalGeneration(
        hf.T5Config(vocab_size=99, d_model=32, d_kv=8, d_ff=64, num_layers=6, num_heads=4, use_cache=False,
                    decoder_start_token_id=0)
    )  # fmt: skip


# Name: the model, its inputs, and the sizes in a range.
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], dict[str, torch.Tensor]], Any]] = {
    "phi": (lambda: hf.PhiForCausalLM(hf.PhiConfig(**_DECODER, num_hidden_layers=24)), _ids, _IDS),
    "llama": (lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**_GROUPED, num_hidden_layers=32)), _ids, _IDS),
    "gemma3": (_gemma3, _ids, _IDS),
    "gemma3, hidden states": (lambda: _gemma3(output_hidden_states=True), _ids, None),
    "qwen3": (
        lambda: hf.Qwen3ForCausalLM(hf.Qwen3Config(**_GROUPED, num_hidden_layers=28, head_dim=8)), _ids, _IDS,
    ),
    "gpt2": (
        lambda: hf.GPT2LMHeadModel(
            hf.GPT2Config(vocab_size=99, n_embd=32, n_layer=12, n_head=4, n_positions=64, use_cache=False)
        ), _ids, _IDS,
    ),
    "bert": (lambda: hf.BertModel(hf.BertConfig(**_WIDTH, num_hidden_layers=12)), _ids, _IDS),
    "t5": (_t5, lambda: _ids() | {"decoder_input_ids": _ids()["input_ids"]}, None),
    "vit": (_vit, lambda: _images(32), {"pixel_values": {0: "batch=1..8"}}),
    "resnet50": (
        lambda: hf.ResNetModel(hf.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16, 32, 64])),
        lambda: _images(64), {"pixel_values": {0: "batch=1..8"}},
    ),
}  # fmt: skip
GENERATION = ("phi", "llama", "gemma3")  # compiled by compile_causal_lm, too


def _seconds(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def _by_torch(model: Any, inputs: dict[str, torch.Tensor], shapes: Any = None) -> tuple[float, float]:
    programs: list[Any] = []

    def export() -> None:
        programs.append(torch.export.export(model, (), inputs, dynamic_shapes=shapes, strict=False))

    return _seconds(export), _seconds(lambda: programs[0].run_decompositions())


def _shapes(dims: Any) -> Any:
    if dims is None:
        return None
    return {name: {axis: torch.export.Dim.AUTO for axis in axes} for name, axes in dims.items()}


@torch.no_grad()
def measured(name: str, kind: str) -> dict[str, float]:
    make, inputs, dims = MODELS[name]
    torch.manual_seed(0)
    model = make().eval()
    if kind == "generation":
        from aicf.torch.causal_lm import _Steps

        steps = _Steps(model, 1, 32).eval()
        one = {"ids": torch.zeros(1, 1, dtype=torch.int64)}
        many = {"ids": torch.zeros(1, 3, dtype=torch.int64)}
        length = {"ids": {1: torch.export.Dim.AUTO}}
        pairs = [_by_torch(steps, many, length), _by_torch(steps, one)]
        export, decompositions = (sum(pair[i] for pair in pairs) for i in (0, 1))
        total = _seconds(lambda: compile_causal_lm(model, max_length=32))
    else:
        given = inputs()
        sizes = dims if kind == "range" else None
        export, decompositions = _by_torch(model, given, _shapes(sizes))
        total = _seconds(lambda: aicf.compile(model, given, dims=sizes))
    return {"export": export, "decompositions": decompositions, "total": total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--output", type=Path)
    chosen = parser.parse_args()
    machine = describe_machine()
    aicf.compile(torch.nn.Linear(2, 2), (torch.randn(2, 2),))  # imports
    rows: list[dict[str, Any]] = []
    print("| model | export s | decompositions s | aicf.compile s | of both | of the bound |")
    print("|---|---|---|---|---|---|")
    for name, (_, _, dims) in MODELS.items():
        if chosen.models and name not in chosen.models:
            continue
        kinds = ["fixed", *(["range"] if dims else []), *(["generation"] if name in GENERATION else [])]
        for kind in kinds:
            try:
                runs = [measured(name, kind) for _ in range(chosen.runs)]
            except ValueError as error:  # of torch: ours are aicf.Error
                reason = str(error).partition("\n")[0]
                rows.append({"model": name, "kind": kind, "left_out": reason})
                print(f"{name}, {kind}: torch itself fails: {reason}", file=sys.stderr)
                continue
            export, decompositions, total = (
                statistics.median(run[key] for run in runs) for key in ("export", "decompositions", "total")
            )
            ratios = [run["total"] / (run["export"] + run["decompositions"]) for run in runs]
            bounds = [run["total"] / (2.5 * (run["export"] + run["decompositions"]) + 1) for run in runs]
            rows.append({"model": name, "kind": kind, "runs": runs})
            print(
                f"| {name}, {kind} | {export:.1f} | {decompositions:.1f} | {total:.1f} "
                f"| {statistics.median(ratios):.2f} | {max(bounds):.2f} |",
                flush=True,
            )
    if chosen.output:
        report = {
            **measured_tree(),
            "command": "python bench/torch_compile_time.py " + " ".join(sys.argv[1:]),
            "machine": machine,
            "versions": versions(["torch", "transformers"]) | {"aicf": aicf.__version__},
            "seconds": "of the processor",
            "rows": rows,
        }
        chosen.output.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()

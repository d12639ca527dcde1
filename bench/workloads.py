"""The models that bench/cpu_models.py times: how each is written, its sizes, and random inputs for them.

MiniLM is the demo's model; the others are topologies of ONNX's backend suite with random weights.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

__all__ = ["Inputs", "Size", "Workload", "workload", "workload_names"]

Inputs = dict[str, np.ndarray]
Size = tuple[int, ...]


@dataclass(frozen=True)
class Workload:
    """`inputs` takes one of `sizes`; `dims` are the dynamic sizes to compile for."""

    name: str
    write: Callable[[Path], object]
    inputs: Callable[[Size], Inputs]
    sizes: tuple[Size, ...]
    dims: Mapping[str, str] = field(default_factory=dict)


def _minilm() -> Workload:
    from examples.minilm.export_onnx import write_minilm_onnx
    from examples.minilm.tokenizer import random_inputs

    def inputs(size: Size) -> Inputs:
        batch, sequence = size
        return dict(random_inputs(batch, sequence))

    dims = {"batch": "1..8", "sequence": "16..512"}
    return Workload("minilm", write_minilm_onnx, inputs, ((1, 128), (8, 128)), dims)


def _light(name: str) -> Workload:
    from bench.light_models import image, input_name, random_weights

    model = random_weights(name)

    def write(path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(model.SerializeToString())

    return Workload(name, write, lambda _: {input_name(model): image()}, ((1,),))


def workload_names() -> tuple[str, ...]:
    from bench.light_models import LIGHT_MODELS

    return ("minilm", *LIGHT_MODELS)


def workload(name: str) -> Workload:
    """By one of workload_names(); ValueError otherwise."""
    if name not in workload_names():
        raise ValueError(f"no workload {name!r}; there are {', '.join(workload_names())}")
    return _minilm() if name == "minilm" else _light(name)

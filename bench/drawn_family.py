"""What a family of drawn problems is: knobs, sizes in a ladder, and a function from them to a model of torch
with its inputs; and what all of them share: wrappers, losses, models on the meta device.

A family is registered by the decorator `family`. Its `knobs` are drawn once, each from its choices. Its
`ladder` holds the sizes, each a list from small to large: a problem goes up from the smallest of all, one
step of one size at a time in a drawn order, until its estimate meets the drawn time.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

__all__ = [
    "BATCHES",
    "FAMILIES",
    "Case",
    "Family",
    "Input",
    "Plain",
    "Sizes",
    "classes",
    "family",
    "floats",
    "ids",
    "make_case",
    "on_meta",
    "tensors",
    "values",
]

Sizes = Mapping[str, Any]
BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256)


@dataclass(frozen=True)
class Input:
    """Floats are normal, of the problem's dtype; indices are i64 below `high`."""

    name: str
    shape: tuple[int, ...]
    high: int = 0

    @property
    def is_index(self) -> bool:
        return self.high > 0


@dataclass
class Case:
    """A model that takes its inputs by position and gives one tensor; `target` is what a loss compares with:
    ("classes", n) along the last axis, or ("values", 0): as the result."""

    model: nn.Module
    inputs: list[Input]
    target: tuple[str, int] = ("values", 0)


@dataclass(frozen=True)
class Family:
    name: str
    library: str
    make: Callable[[Sizes], Case]
    ladder: Mapping[str, Sequence[Any]]
    knobs: Mapping[str, Sequence[Any]] = field(default_factory=dict)
    modes: frozenset[str] = frozenset({"inference", "train"})

    def smallest(self) -> dict[str, Any]:
        return {name: steps[0] for name, steps in self.ladder.items()}


FAMILIES: dict[str, Family] = {}


def family(
    name: str,
    library: str,
    ladder: Mapping[str, Sequence[Any]],
    knobs: Mapping[str, Sequence[Any]] | None = None,
    modes: str = "inference train",
) -> Callable[[Callable[[Sizes], Case]], Callable[[Sizes], Case]]:
    def register(make: Callable[[Sizes], Case]) -> Callable[[Sizes], Case]:
        if name in FAMILIES:
            raise ValueError(f"two families {name}")
        FAMILIES[name] = Family(name, library, make, ladder, knobs or {}, frozenset(modes.split()))
        return make

    return register


def floats(name: str, *shape: int) -> Input:
    return Input(name, shape)


def ids(name: str, *shape: int, high: int) -> Input:
    return Input(name, shape, high)


class Plain(nn.Module):
    """A model called by the names of its arguments, whose first result counts."""

    def __init__(self, model: nn.Module, names: Sequence[str] = (), **fixed: Any) -> None:
        super().__init__()
        self.model, self.names, self.fixed = model, list(names), fixed

    def forward(self, *args: torch.Tensor) -> torch.Tensor:
        named = dict(zip(self.names, args, strict=True)) if self.names else {}
        result = self.model(*(() if self.names else args), **named, **self.fixed)
        if isinstance(result, torch.Tensor):
            return result
        first = next(iter(result.values())) if isinstance(result, Mapping) else result[0]
        return first if isinstance(first, torch.Tensor) else first[0]


def classes(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy in f32 over the last axis, or over axis 1 of maps of classes."""
    if result.dim() == 4:
        result = result.flatten(2).transpose(1, 2)
    return F.cross_entropy(result.reshape(-1, result.shape[-1]).float(), target.reshape(-1))


def values(result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return F.mse_loss(result.float(), target.float())


def torchvision_ops() -> None:
    """Names of torchvision's compiled ops, which a wheel for another torch lacks; no family calls one.
    transformers and timm import torchvision where it is installed."""
    if importlib.util.find_spec("torchvision") is None:
        return
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


def without_dropout(model: nn.Module) -> nn.Module:
    """Random numbers are not the same on both sides, so nothing is dropped."""
    for module in model.modules():
        if isinstance(module, nn.Dropout | nn.Dropout1d | nn.Dropout2d | nn.Dropout3d | nn.AlphaDropout):
            module.p = 0.0
        for name, value in list(vars(module).items()):
            dropped = name.endswith(
                ("dropout", "dropout_p", "dropout_prob", "drop_prob", "layerdrop", "drop_path_prob")
            )
            if dropped and isinstance(value, float):
                setattr(module, name, 0.0)
        if type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        config = getattr(module, "config", None)
        for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop", "attention_dropout"):
            if isinstance(getattr(config, name, None), float):
                setattr(config, name, 0.0)
    return model


def make_case(family: Family, sizes: Sizes, device: str) -> Case:
    """The model in evaluation mode on `device`, f32, without dropout; its weights follow from the seed that
    the caller gave torch."""
    if family.library != "torch":
        torchvision_ops()
    try:
        with torch.device(device):
            case = family.make(sizes)
    except (NotImplementedError, RuntimeError):
        if device != "meta":
            raise
        with torch.device("cpu"):  # a constructor that looks at numbers that it made
            case = family.make(sizes)
        case.model.to("meta")
    case.model = without_dropout(case.model).eval().requires_grad_(True)
    return case


def on_meta(family: Family, sizes: Sizes) -> tuple[Case, list[torch.Tensor]]:
    case = make_case(family, sizes, "meta")
    return case, [
        torch.empty(i.shape, dtype=torch.int64 if i.is_index else torch.float32, device="meta")
        for i in case.inputs
    ]


def tensors(inputs: Sequence[Input], dtype: torch.dtype, device: str, seed: int) -> list[torch.Tensor]:
    """Made on the host, so that they are the same for every device."""
    generator = torch.Generator().manual_seed(seed)
    made = [
        torch.randint(0, i.high, i.shape, generator=generator)
        if i.is_index
        else torch.randn(i.shape, generator=generator).to(dtype)
        for i in inputs
    ]
    return [t.to(device) for t in made]

"""The training steps of gpu_train.py, ours and their peers', made of one module's weights: multilayer
perceptrons and GPT-2, forward, loss, backward and Adam; and two operations with their gradients: a large
linear layer with its cross entropy, and attention. Needs torch.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aicf
import torch
import torch.nn.functional as F
from aicf import nn, ops, optim
from torch.nn.attention import SDPBackend, sdpa_kernel

__all__ = [
    "RATE",
    "ROWS",
    "Attention",
    "Gpt",
    "Row",
    "compile_ours",
    "compile_step",
    "input_ranges",
    "peer_module",
    "peer_step",
    "save_ours",
]

RATE = 1e-3


@dataclass(frozen=True)
class Gpt:
    """GPT-2's shape, with the output layer tied to the embedding."""

    vocabulary: int = 50304
    context: int = 1024
    width: int = 768
    heads: int = 12
    layers: int = 12


@dataclass(frozen=True)
class LinearLoss:
    """The cross entropy of x [batch, width] @ w^T and its gradients; w is [classes, width]."""

    width: int
    classes: int


@dataclass(frozen=True)
class Attention:
    """Causal attention of q, k and v [batch, heads, length, depth] and its gradients."""

    heads: int
    length: int
    depth: int


@dataclass(frozen=True)
class Row:
    name: str
    batch: int
    dtype: str
    shape: tuple[int, ...] | Gpt | LinearLoss | Attention
    precision: str = "f32"  # as AICF names it; the peer multiplies f32 in tf32 likewise


ROWS = [
    Row("mlp-tiny", 64, "f32", (8, 16, 8)),
    Row("mlp-mnist", 128, "f32", (784, 512, 512, 10)),
    Row("mlp-mnist-tf32", 128, "f32", (784, 512, 512, 10), "tf32"),
    Row("mlp-wide", 4096, "bf16", (1024, 4096, 4096, 1024), "bf16-pure"),
    Row("gpt2-124m", 16, "bf16", Gpt(), "bf16-pure"),
    Row("linear-loss", 16384, "bf16", LinearLoss(4096, 131072), "bf16-pure"),
    Row("attention", 4, "bf16", Attention(16, 4096, 128), "bf16-pure"),
]


def torch_dtype(row: Row) -> torch.dtype:
    return torch.bfloat16 if row.dtype == "bf16" else torch.float32


# ---- ours: the modules take their weights from torch's, so that both train the same model


class Weights(nn.Module):
    """Params by name, from a torch module."""

    def __init__(self, module: torch.nn.Module) -> None:
        for name, value in module.state_dict().items():
            setattr(self, name.replace(".", "_"), nn.Parameter(value.detach().cpu().contiguous()))

    def of(self, name: str) -> Any:
        return getattr(self, name.replace(".", "_")).sym()

    def linear(self, x: Any, name: str) -> Any:
        return ops.linear(x, self.of(f"{name}.weight"), self.of(f"{name}.bias"), transpose_w=True)


class Mlp(Weights):
    def __init__(self, module: torch.nn.Module, layers: int) -> None:
        super().__init__(module)
        self.layers = layers

    def forward(self, x: Any) -> Any:
        for i in range(self.layers):
            x = self.linear(x, str(2 * i))
            if i + 1 < self.layers:
                x = ops.relu(x)
        return x


class Gpt2(Weights):
    def __init__(self, module: torch.nn.Module, shape: Gpt) -> None:
        super().__init__(module)
        self.shape = shape

    def norm(self, x: Any, name: str) -> Any:
        return ops.layer_norm(x, self.of(f"{name}.weight"), self.of(f"{name}.bias"))

    def block(self, x: Any, name: str) -> Any:
        batch, length, width = x.shape
        heads, size = self.shape.heads, self.shape.width // self.shape.heads
        qkv = self.linear(self.norm(x, f"{name}.norm1"), f"{name}.qkv")
        q, k, v = (
            qkv[:, :, i * width : (i + 1) * width].reshape(batch, length, heads, size).transpose(0, 2, 1, 3)
            for i in range(3)
        )
        y = ops.attention(q, k, v, scale=size**-0.5, causal=True)
        x = x + self.linear(y.transpose(0, 2, 1, 3).reshape(batch, length, width), f"{name}.out")
        y = ops.gelu(self.linear(self.norm(x, f"{name}.norm2"), f"{name}.wide"), approximate="tanh")
        return x + self.linear(y, f"{name}.narrow")

    def forward(self, ids: Any) -> Any:
        x = ops.gather(self.of("tokens.weight"), ids, axis=0) + self.of("places.weight")
        for i in range(self.shape.layers):
            x = self.block(x, f"blocks.{i}")
        return ops.matmul(self.norm(x, "norm"), self.of("tokens.weight").transpose(1, 0))


def class_loss(scores: Any, targets: Any) -> Any:
    batch, length, classes = scores.shape
    rows = ops.cast(scores.reshape(batch * length, classes), dtype="f32")  # as the peer
    return nn.CrossEntropyLoss()(rows, targets.reshape(batch * length))


def compile_step(row: Row, module: torch.nn.Module, device: str) -> aicf.TrainStep:
    common = {"precision": row.precision, "skip_bad_steps": False, "device": device}
    if isinstance(row.shape, Gpt):
        ids = aicf.TensorSpec((row.batch, row.shape.context), "i64")
        return aicf.compile_train_step(
            Gpt2(module, row.shape), class_loss, optim.AdamW(RATE, weight_decay=0.01), [ids, ids], **common
        )
    specs = [aicf.TensorSpec((row.batch, row.shape[i]), row.dtype) for i in (0, -1)]
    model = Mlp(module, len(row.shape) - 1)
    return aicf.compile_train_step(model, nn.MSELoss(), optim.Adam(RATE), specs, **common)


def compile_linear_loss(row: Row, shape: LinearLoss, device: str) -> aicf.Executable:
    def gradients(x: Any, w: Any, labels: Any, dloss: Any) -> Any:
        attributes = {"dtype": "f32", "transpose_w": True}
        return ops.linear_cross_entropy_backward(x, w, labels, dloss, **attributes)

    specs = [
        aicf.TensorSpec((row.batch, shape.width), row.dtype, "x"),
        aicf.TensorSpec((shape.classes, shape.width), row.dtype, "w"),
        aicf.TensorSpec((row.batch,), "i64", "labels"),
        aicf.TensorSpec((), "f32", "dloss"),
    ]
    return aicf.compile(aicf.trace(gradients, specs), device=device)


def compile_attention(row: Row, shape: Attention, device: str) -> aicf.Executable:
    def gradients(q: Any, k: Any, v: Any, dout: Any) -> Any:
        attributes = {"scale": shape.depth**-0.5, "causal": True}
        out = ops.attention(q, k, v, **attributes)
        return out, *ops.attention_backward(q, k, v, out, dout, **attributes)

    size = (row.batch, shape.heads, shape.length, shape.depth)
    specs = [aicf.TensorSpec(size, row.dtype, name) for name in ("q", "k", "v", "dout")]
    return aicf.compile(aicf.trace(gradients, specs), device=device)


def input_ranges(row: Row) -> list[str]:
    """Options of `aicf bench` that keep random integers below their number of classes."""
    classes: dict[str, int] = {}
    if isinstance(row.shape, Gpt):
        classes = dict.fromkeys(("ids", "target"), row.shape.vocabulary)
    elif isinstance(row.shape, LinearLoss):
        classes = {"labels": row.shape.classes}
    return [text for name, count in classes.items() for text in ("--range", f"{name}=0..{count - 1}")]


def compile_ours(row: Row, device: str) -> tuple[aicf.TrainStep | aicf.Executable, float]:
    """And the seconds that compiling took."""
    module = None if isinstance(row.shape, LinearLoss | Attention) else peer_module(row, "cpu")
    start = time.perf_counter()
    program: aicf.TrainStep | aicf.Executable
    if isinstance(row.shape, LinearLoss):
        program = compile_linear_loss(row, row.shape, device)
    elif isinstance(row.shape, Attention):
        program = compile_attention(row, row.shape, device)
    else:
        program = compile_step(row, module, device)
    return program, time.perf_counter() - start


def save_ours(row: Row, device: str, path: Path) -> float:
    """Returns the seconds that compiling took."""
    program, seconds = compile_ours(row, device)
    program.save(path)
    return seconds


# ---- the peer


class Block(torch.nn.Module):
    def __init__(self, shape: Gpt) -> None:
        super().__init__()
        width, self.heads = shape.width, shape.heads
        self.norm1, self.norm2 = torch.nn.LayerNorm(width), torch.nn.LayerNorm(width)
        self.qkv, self.out = torch.nn.Linear(width, 3 * width), torch.nn.Linear(width, width)
        self.wide, self.narrow = torch.nn.Linear(width, 4 * width), torch.nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = (
            part.view(batch, length, self.heads, -1).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).split(width, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.wide(self.norm2(x)), approximate="tanh"))


class TorchGpt2(torch.nn.Module):
    def __init__(self, shape: Gpt) -> None:
        super().__init__()
        self.tokens = torch.nn.Embedding(shape.vocabulary, shape.width)
        self.places = torch.nn.Embedding(shape.context, shape.width)
        self.blocks = torch.nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = torch.nn.LayerNorm(shape.width)
        for weight in (self.tokens.weight, self.places.weight):
            torch.nn.init.normal_(weight, std=0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places.weight
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tokens.weight)


def peer_module(row: Row, device: str) -> torch.nn.Module:
    torch.manual_seed(0)
    if isinstance(row.shape, Gpt):
        return TorchGpt2(row.shape).to(device, torch_dtype(row))
    layers: list[torch.nn.Module] = []
    for i in range(len(row.shape) - 1):
        layers.append(torch.nn.Linear(row.shape[i], row.shape[i + 1]))
        layers.append(torch.nn.ReLU())
    return torch.nn.Sequential(*layers[:-1]).to(device, torch_dtype(row))


def peer_linear_loss(row: Row, shape: LinearLoss) -> Callable[[], object]:
    x = torch.randn(row.batch, shape.width, device="cuda", dtype=torch_dtype(row), requires_grad=True)
    w = (
        torch.randn(shape.classes, shape.width, device="cuda", dtype=torch_dtype(row)) * 0.02
    ).requires_grad_()
    labels = torch.randint(0, shape.classes, (row.batch,), device="cuda")
    compiled = torch.compile(lambda: F.cross_entropy((x @ w.t()).float(), labels))

    def step() -> None:
        x.grad = w.grad = None
        compiled().backward()

    return step


def peer_attention(row: Row, shape: Attention) -> Callable[[], object]:
    size = (row.batch, shape.heads, shape.length, shape.depth)
    q, k, v, dout = (torch.randn(size, device="cuda", dtype=torch_dtype(row)) for _ in range(4))
    operands = [each.requires_grad_() for each in (q, k, v)]

    def step() -> None:
        with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
            out = F.scaled_dot_product_attention(*operands, is_causal=True)
            torch.autograd.grad(out, operands, dout)

    return step


def peer_step(row: Row) -> Callable[[], object]:
    if isinstance(row.shape, LinearLoss):
        return peer_linear_loss(row, row.shape)
    if isinstance(row.shape, Attention):
        return peer_attention(row, row.shape)
    module = peer_module(row, "cuda")
    if isinstance(row.shape, Gpt):
        size = (row.batch, row.shape.context)
        x, y = (torch.randint(0, row.shape.vocabulary, size, device="cuda") for _ in range(2))
        optimizer = torch.optim.AdamW(module.parameters(), lr=RATE, capturable=True, fused=True)
        compiled = torch.compile(lambda: F.cross_entropy(module(x).flatten(0, 1).float(), y.flatten()))
    else:
        x, y = (torch.randn(row.batch, row.shape[i], device="cuda", dtype=torch_dtype(row)) for i in (0, -1))
        optimizer = torch.optim.Adam(module.parameters(), lr=RATE, capturable=True, fused=True)
        compiled = torch.compile(lambda: F.mse_loss(module(x), y))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        compiled().backward()
        optimizer.step()

    return step

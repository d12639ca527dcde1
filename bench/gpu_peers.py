"""The models of bench/gpu_inference.py in torch: a module in half precision on the GPU and its arguments, to
be compiled by torch.compile. Needs torch; encoders and ResNet-50 also transformers and torchvision."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from gpu_models import DecoderShape, EncoderShape, decoder_weights
from torch import nn

__all__ = ["Decoder", "decoder", "encoder", "random_decoder_weights", "resnet50"]

Peer = tuple[nn.Module, dict[str, Any]]


def encoder(shape: EncoderShape, batch: int, sequence: int) -> Peer:
    from transformers import BertConfig, BertModel

    config = BertConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=shape.intermediate,
    )
    model = BertModel(config, add_pooling_layer=False).half().cuda().eval()
    ids = torch.randint(0, 30000, (batch, sequence), device="cuda")
    return model, {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def resnet50(batch: int) -> Peer:
    import torchvision

    model = torchvision.models.resnet50().half().cuda().eval().to(memory_format=torch.channels_last)
    x = torch.randn(batch, 3, 224, 224, device="cuda", dtype=torch.half)
    return model, {"x": x.to(memory_format=torch.channels_last)}


def random_decoder_weights(shape: DecoderShape, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Norms of ones, everything else normal with deviation 0.02."""
    torch.manual_seed(0)
    return {
        name: torch.ones(sizes, device="cuda", dtype=dtype)
        if len(sizes) == 1
        else 0.02 * torch.randn(sizes, device="cuda", dtype=dtype)
        for name, sizes in decoder_weights(shape).items()
    }


class Decoder(nn.Module):
    """One step over a static cache, as gpt-fast writes it; `weights` multiply from the right."""

    def __init__(self, shape: DecoderShape, weights: dict[str, torch.Tensor]) -> None:
        super().__init__()
        self.shape = shape
        self.names = list(weights)
        for name, weight in weights.items():
            # torch's products read rows of the output's weights, as nn.Linear stores them.
            matrix = weight.dim() > 1 and name != "embedding"
            self.register_buffer(_buffer(name), weight.t().contiguous() if matrix else weight)
        dtype, device = weights["embedding"].dtype, weights["embedding"].device
        frequencies = shape.theta ** -(
            torch.arange(0, shape.head_size, 2, device=device, dtype=torch.double) / shape.head_size
        )
        angles = torch.outer(torch.arange(shape.cache, device=device, dtype=torch.double), frequencies)
        angles = torch.cat((angles, angles), -1)
        self.register_buffer("cos", angles.cos().to(dtype))
        self.register_buffer("sin", angles.sin().to(dtype))
        cache = (1, shape.kv_heads, shape.cache, shape.head_size)
        for i in range(shape.layers):
            for which in ("key", "value"):
                self.register_buffer(f"{which}_{i}", torch.zeros(cache, dtype=dtype, device=device))

    def weight(self, name: str) -> torch.Tensor:
        return getattr(self, _buffer(name))

    def _rotated(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        low, high = x.chunk(2, -1)
        return x * cos + torch.cat((-high, low), -1) * sin

    def _layer(
        self, x: torch.Tensor, position: torch.Tensor, place: list[torch.Tensor], i: int
    ) -> torch.Tensor:
        s, name = self.shape, f"layer.{i}"
        cos, sin, seen = place
        y = F.rms_norm(x, (s.hidden,), self.weight(f"{name}.attn_norm"), 1e-5)
        qkv = F.linear(y, self.weight(f"{name}.qkv"))
        counts = [s.heads, s.kv_heads, s.kv_heads]
        q, k, v = (
            part.view(1, -1, count, s.head_size).transpose(1, 2)
            for part, count in zip(qkv.split([c * s.head_size for c in counts], -1), counts, strict=True)
        )
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        keys, values = getattr(self, f"key_{i}"), getattr(self, f"value_{i}")
        keys.index_copy_(2, position, k)
        values.index_copy_(2, position, v)
        y = F.scaled_dot_product_attention(q, keys, values, attn_mask=seen, enable_gqa=True)
        x = x + F.linear(y.transpose(1, 2).reshape(1, -1, s.heads * s.head_size), self.weight(f"{name}.o"))
        y = F.rms_norm(x, (s.hidden,), self.weight(f"{name}.mlp_norm"), 1e-5)
        gate, up = F.linear(y, self.weight(f"{name}.gate_up")).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, self.weight(f"{name}.down"))

    def forward(self, token: torch.Tensor, position: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = self.shape
        seen = (torch.arange(s.cache, device=token.device)[None, :] <= position[:, None])[None, None]
        place = [self.cos[position], self.sin[position], seen]
        x = F.embedding(token, self.weight("embedding"))
        for i in range(s.layers):
            x = self._layer(x, position, place, i)
        logits = F.linear(F.rms_norm(x, (s.hidden,), self.weight("norm"), 1e-5), self.weight("embedding"))
        return logits, logits[:, -1].argmax(-1, keepdim=True)


def _buffer(name: str) -> str:
    return name.replace(".", "_")


def decoder(shape: DecoderShape, weights: dict[str, torch.Tensor], position: int) -> Peer:
    token = torch.zeros(1, 1, dtype=torch.long, device="cuda")
    return Decoder(shape, weights), {"token": token, "position": torch.tensor([position], device="cuda")}

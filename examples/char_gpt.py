"""Trains a small GPT on the characters of a text that comes with the system and writes some text of its own.

python examples/char_gpt.py [--text FILE] [--steps N] [--length N]
"""

from __future__ import annotations

import argparse
import sys
import sysconfig
import time
from pathlib import Path

import aicf
import numpy as np
from aicf import nn, ops, optim

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 64, 4, 2, 16
TEXTS = (Path("/usr/share/common-licenses/GPL-3"), Path(sysconfig.get_path("stdlib")) / "LICENSE.txt")


class Block(nn.Module):
    """Attention and a feed-forward layer, each after a norm and added to its input."""

    def __init__(self) -> None:
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, causal=True)
        self.forward_layers = nn.Sequential(
            nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH), nn.Dropout(0.1)
        )

    def forward(self, x: aicf.SymTensor) -> aicf.SymTensor:
        x = x + self.attention(self.norm1(x))
        return x + self.forward_layers(self.norm2(x))


class CharGpt(nn.Module):
    """Scores of the next character [batch, length, vocabulary] for ids [batch, length]."""

    def __init__(self, vocabulary: int) -> None:
        self.tokens = nn.Embedding(vocabulary, WIDTH)
        self.positions = nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids: aicf.SymTensor) -> aicf.SymTensor:
        places = ops.iota(shape=[ids.shape[1]], axis=0, dtype="i64")
        x = self.tokens(ids) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


def loss(scores: aicf.SymTensor, targets: aicf.SymTensor) -> aicf.SymTensor:
    """Cross-entropy over every position."""
    batch, length, vocabulary = scores.shape
    return nn.CrossEntropyLoss()(scores.reshape(batch * length, vocabulary), targets.reshape(batch * length))


def compile_step(vocabulary: int, steps: int, device: str = "cpu") -> aicf.TrainStep:
    nn.seed(0)
    ids = aicf.TensorSpec((BATCH, CONTEXT), "i64")
    return aicf.compile_train_step(
        CharGpt(vocabulary),
        loss=loss,
        optimizer=optim.AdamW(
            optim.cosine(5e-3, total=steps, warmup=min(20, steps // 2)),
            weight_decay=0.1,
            groups=[optim.Group(["*.b", "*.bias", "*.scale"], weight_decay=0.0)],
        ),
        inputs=[ids, ids],
        eval_inputs=[aicf.TensorSpec((1, CONTEXT), "i64")],
        clip_norm=1.0,
        device=device,
    )


def read_text(path: Path | None = None) -> tuple[list[str], np.ndarray]:
    """The characters of a text in their order, and the text as their numbers."""
    path = path or next((p for p in TEXTS if p.exists()), None)
    if path is None:
        sys.exit("no text found: give --text FILE")
    text = path.read_text(encoding="utf-8")
    letters = sorted(set(text))
    return letters, np.array([letters.index(c) for c in text], np.int64)


def batch(data: np.ndarray, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Windows of the text and the same one character later."""
    starts = rng.integers(0, len(data) - CONTEXT - 1, BATCH)
    windows = np.stack([data[i : i + CONTEXT + 1] for i in starts])
    return np.ascontiguousarray(windows[:, :-1]), np.ascontiguousarray(windows[:, 1:])


def sample(step: aicf.TrainStep, start: list[int], length: int, rng: np.random.Generator) -> list[int]:
    """Goes on from `start`, one character at a time, each drawn from the model's probabilities."""
    ids = list(start)
    for _ in range(length):
        seen = ids[-CONTEXT:]
        window = np.zeros((1, CONTEXT), np.int64)  # what stands behind the text is never looked at
        window[0, : len(seen)] = seen
        scores = np.asarray(step.evaluate(window))[0, len(seen) - 1].astype(np.float64) / 0.8
        powers = np.exp(scores - scores.max())
        ids.append(int(rng.choice(len(powers), p=powers / powers.sum())))
    return ids


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--text", type=Path, help="the text to learn; default: a licence of this system")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--length", type=int, default=300, help="characters to write")
    options = parser.parse_args()
    letters, data = read_text(options.text)
    step = compile_step(len(letters), options.steps)
    rng = np.random.default_rng(0)
    start = time.perf_counter()
    for number in range(options.steps):
        value = float(np.asarray(step(*batch(data, rng))))
        if number % 50 == 0 or number == options.steps - 1:
            print(f"step {number:4d}  loss {value:.3f}  {time.perf_counter() - start:.1f} s", flush=True)
    step.require_finite()
    print(f"state {step.hash()}")
    print("".join(letters[i] for i in sample(step, data[:CONTEXT].tolist(), options.length, rng)))


if __name__ == "__main__":
    main()

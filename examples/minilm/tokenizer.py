"""Sentences to model inputs with the packaged tokenizer.json, and the vocabulary as a text file for C++."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from .package import model_file

__all__ = ["MIN_SEQUENCE", "MiniLmTokenizer", "batches", "random_inputs", "write_vocab"]

MIN_SEQUENCE = 16  # the smallest size that the demo's artifact is compiled for
MAX_SEQUENCE = 256  # the length this model was trained to read (its sentence_bert_config.json)
Inputs = dict[str, np.ndarray]


class MiniLmTokenizer:
    """Callable: sentences → the model's int64 [batch, sequence] inputs by name, padded to the longest."""

    def __init__(self, min_sequence: int = MIN_SEQUENCE, max_sequence: int = MAX_SEQUENCE) -> None:
        self._tokenizer = Tokenizer.from_file(str(model_file("tokenizer.json")))
        # The packaged file asks for fixed 128; padding is wasted work here, so it is chosen for each batch.
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_sequence)
        self._min_sequence = min_sequence

    def ids(self, sentence: str) -> list[int]:
        """Token ids with [CLS] and [SEP], without padding."""
        return self._tokenizer.encode(sentence).ids

    def vocabulary(self) -> list[str]:
        """Tokens in id order."""
        by_token = self._tokenizer.get_vocab()
        tokens = sorted(by_token, key=by_token.__getitem__)
        if [by_token[token] for token in tokens] != list(range(len(tokens))):
            raise ValueError("the packaged tokenizer.json has gaps in its token ids")
        return tokens

    def __call__(self, sentences: Sequence[str]) -> Inputs:
        rows = [self.ids(sentence) for sentence in sentences]
        width = max([self._min_sequence, *map(len, rows)])
        input_ids = np.zeros((len(rows), width), np.int64)
        attention_mask = np.zeros_like(input_ids)
        for index, row in enumerate(rows):
            input_ids[index, : len(row)] = row
            attention_mask[index, : len(row)] = 1
        return {
            "input_ids": input_ids,
            "attention_mask": attention_mask,
            "token_type_ids": np.zeros_like(input_ids),
        }


def batches(sentences: Sequence[str], size: int = 8) -> Iterator[Sequence[str]]:
    """Consecutive groups of at most `size` sentences."""
    for start in range(0, len(sentences), size):
        yield sentences[start : start + size]


def random_inputs(batch: int, sequence: int, seed: int = 0) -> Inputs:
    """Full rows (no padding) of random ordinary tokens, for timing."""
    rng = np.random.default_rng(seed)
    input_ids = rng.integers(1000, 30000, (batch, sequence), dtype=np.int64)
    return {
        "input_ids": input_ids,
        "attention_mask": np.ones_like(input_ids),
        "token_type_ids": np.zeros_like(input_ids),
    }


def write_vocab(path: str | Path) -> Path:
    """One token a line; the line number, from 0, is the token's id."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{token}\n" for token in MiniLmTokenizer().vocabulary()), encoding="utf-8")
    return path

"""Random numbers of the drawn problems: a stream is named by words, and its numbers follow from them alone.

SplitMix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014) from the first 64
bits of the SHA-256 of the words. No library's generator takes part, so no version of one changes a draw.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import TypeVar

__all__ = ["Stream"]

_MASK = (1 << 64) - 1
T = TypeVar("T")


class Stream:
    def __init__(self, *words: object) -> None:
        text = "/".join(map(str, words))
        self._state = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")

    def bits(self) -> int:
        self._state = (self._state + 0x9E3779B97F4A7C15) & _MASK
        z = self._state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
        return z ^ (z >> 31)

    def uniform(self) -> float:
        """In [0, 1), with 53 bits."""
        return (self.bits() >> 11) * 2.0**-53

    def below(self, count: int) -> int:
        return self.bits() % count  # off by less than count / 2^64

    def choice(self, values: Sequence[T]) -> T:
        return values[self.below(len(values))]

    def between(self, low: float, high: float) -> float:
        """Uniform in the logarithm."""
        return low * math.exp(self.uniform() * math.log(high / low))

    def shuffled(self, values: Sequence[T]) -> list[T]:
        left = list(values)
        return [left.pop(self.below(len(left))) for _ in range(len(left))]

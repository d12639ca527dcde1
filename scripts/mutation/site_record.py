"""A place of a source and what a mutant does to it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Site:
    file: str
    start: int
    end: int
    line: int
    operator: str
    original: str
    mutated: str  # with {on} for the switch
    shown: str  # what the mutant computes, for people

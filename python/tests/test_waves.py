"""bench/waves.py: every case has its row or a reason, whatever happens to the process it ran in."""

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))

import pytest
from waves import in_waves, share_of

ENDS, RAISES, RAISES_LATER = 3, 5, 7


def prepare(item: int) -> Callable[[], dict[str, int]]:
    if item == ENDS:
        os._exit(3)
    if item == RAISES:
        raise ValueError("five")

    def timed() -> dict[str, int]:
        if item == RAISES_LATER:
            raise KeyError("seven")
        return {"item": item}

    return timed


def test_every_case_has_its_row_or_a_reason() -> None:
    found = dict(in_waves(prepare, range(12), 2, time.monotonic() + 60, each=3))
    assert sorted(found) == list(range(12))
    assert found.pop(ENDS) == "it ended its process or was over its time"
    assert found.pop(RAISES) == "ValueError: five"
    assert found.pop(RAISES_LATER) == "KeyError: 'seven'"
    assert all(row == {"item": item} for item, row in found.items())


def test_what_has_no_time_is_left() -> None:
    assert list(in_waves(prepare, range(3), 1, time.monotonic() - 1)) == []


def test_shares_are_all_of_it_once() -> None:
    assert sorted([*share_of(range(7), "1/2"), *share_of(range(7), "2/2")]) == list(range(7))
    for share in ("0/2", "3/2"):
        with pytest.raises(ValueError, match=share):
            share_of(range(7), share)

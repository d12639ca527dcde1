"""When a result is right beside a peer's, and what ratios of problems count: one rule for drawn.py,
families.py and op_sweep.py. Needs torch for `errors` alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

__all__ = ["FAILED", "MOST", "PEER_LIMIT", "errors", "fault", "geometric_mean", "usable"]

FAILED = 0.5  # what a failure or refusal of ours counts as
MOST = 3.0  # what a ratio counts as at most
# A peer's result that is off by more from the reference, in the norm, judges nobody. Ours may be off by four
# times the peer's error, which then is at most half: a result of zeros, off by 1, never passes.
PEER_LIMIT = 0.125


def errors(found: Sequence[Any], reference: Sequence[Any]) -> list[float]:
    """‖found − reference‖ / ‖reference‖ of each tensor; of integers and flags the share that differs.
    Infinity where `found` is not finite. ValueError where shapes differ."""
    import torch

    result = []
    for a, b in zip(found, reference, strict=True):
        if a.shape != b.shape:
            raise ValueError(f"a result is {tuple(a.shape)}, the reference {tuple(b.shape)}")
        if a.device != b.device:
            a, b = a.cpu(), b.cpu()
        if not b.is_floating_point():
            result.append(float((a != b).double().mean()) if b.numel() else 0.0)
            continue
        a, b = a.double(), b.double()
        if not torch.isfinite(a).all():
            result.append(math.inf)
            continue
        apart, size = float((a - b).norm()), float(b.norm())
        result.append(apart / size if size > 0 else apart)
    return result


def usable(peer: Iterable[float]) -> bool:
    """Whether at least half of a peer's tensors can judge: gradients that are 0 but for rounding cannot."""
    able = [error <= PEER_LIMIT for error in peer]
    return 2 * sum(able) >= max(1, len(able))


def fault(ours: Sequence[float], peer: Sequence[float], floor: float) -> str:
    """What is wrong with ours: a tensor off by more than four times the peer's error and more than the
    dtype's floor. "" if nothing is. Tensors that the peer has wrong itself are not judged."""
    for number, (mine, its) in enumerate(zip(ours, peer, strict=True)):
        if its <= PEER_LIMIT and not mine <= max(4 * its, floor):
            return f"wrong: tensor {number} is off by {mine:.2e}, torch's own by {its:.2e}, floor {floor:.0e}"
    return ""


def geometric_mean(ratios: Iterable[float]) -> float:
    """Each ratio counts as MOST at most; NaN of none."""
    values = [math.log(min(r, MOST)) for r in ratios]
    return math.exp(sum(values) / len(values)) if values else math.nan

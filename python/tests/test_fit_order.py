"""The weights of the measured order are written as bench/fit_order.py writes them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench"))
import fit_order


def test_the_committed_weights_are_what_the_script_writes() -> None:
    if not fit_order.WEIGHTS.exists():
        pytest.skip("needs the tree")
    committed = fit_order.WEIGHTS.read_text()
    networks = fit_order.networks_of(committed)
    assert sorted(networks) == ["attention", "conv", "matmul"]
    texts = [fit_order.text_of(op, network) for op, network in sorted(networks.items())]
    assert fit_order.HEAD + "".join(texts) == committed


def test_weights_are_read_back_as_they_are_kept() -> None:
    rng = np.random.default_rng(0)
    network = fit_order.Network(
        [
            rng.normal(size=(5, 4)) * 10.0 ** rng.integers(-6, 3, (5, 4)),
            *rng.normal(size=(2, 4)),
            rng.normal(size=1),
        ]
    )
    text = fit_order.text_of("conv", network)
    assert fit_order.text_of("conv", fit_order.networks_of(text)["conv"]) == text

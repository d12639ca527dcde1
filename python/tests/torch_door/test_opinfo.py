"""torch's own samples of its ops. `make test` takes a few samples of every tenth op, AICF_SOAK=1 all of them.

An op that does not pass all samples stands in opinfo_exceptions.txt with the reason; one that does must not.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

pytest.importorskip("expecttest")
import opinfo  # noqa: E402

EXCEPTIONS = {
    name: reason
    for name, reason in (
        line.split(": ", 1)
        for line in (Path(__file__).parent / "opinfo_exceptions.txt").read_text().splitlines()
        if line and not line.startswith("#")
    )
}
SOAK = os.environ.get("AICF_SOAK") == "1"
OPS = {op.full_name: op for op in opinfo.ops_with_samples()}
CHOSEN = list(OPS) if SOAK else [name for name in OPS if name not in EXCEPTIONS][::10]
SAMPLES = None if SOAK else 3


@pytest.mark.parametrize("name", CHOSEN)
@pytest.mark.filterwarnings("ignore")
def test_samples(name: str) -> None:
    outcome = opinfo.run_op(OPS[name], SAMPLES)
    if name in EXCEPTIONS:
        assert not outcome.ok, "it passes all samples: take it off opinfo_exceptions.txt"
    else:
        assert outcome.ok, f"{outcome.passed} of {outcome.samples}: {outcome.failure}"


def test_exceptions_name_ops_and_are_few() -> None:
    assert set(EXCEPTIONS) <= set(OPS)
    from torch.testing._internal.common_methods_invocations import op_db

    assert len(OPS) - len(EXCEPTIONS) >= 0.7 * len(op_db)

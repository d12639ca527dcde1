"""What a short list of models compiles to is what scripts/same_artifacts.json keeps; and the script sees what
differs."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
same_artifacts = pytest.importorskip("same_artifacts", reason="needs the tree")

UNIT, PLAN = "aicf.code.sm_90.0", "aicf.plan.sm_90"
TEXTS = {
    "aicf.program": "main",
    UNIT: "a();\nconst int tile = 64;\nb();\n",
    PLAN: '{"entries": [{"steps": [{"kernel": "tile"}, {"kernel": "matmul"}], "bytes": 64}]}',
    "tensor w": "F32 [4] 0123",
}


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (UNIT, "a();\nconst int tile = 65;\nb();\n", f"{UNIT}: line 2"),
        (UNIT, "const int tile = 64;\na();\nb();\n", f"{UNIT}: line 1"),
        (UNIT, "a();\nconst int tile = 64;\nb();\n\n", f"{UNIT}: line 4"),
        (PLAN, TEXTS[PLAN].replace("64", "65"), f"{PLAN}: .entries[0].bytes"),
        (
            PLAN,
            '{"entries": [{"steps": [{"kernel": "matmul"}, {"kernel": "tile"}], "bytes": 64}]}',
            f"{PLAN}: .entries[0].steps[0].kernel",
        ),
        (PLAN, '{"entries": []}', f"{PLAN}: .entries: 1 and 0 items"),
        ("tensor w", "F32 [4] 0124", "tensor w: line 1"),
        ("aicf.code.sm_90.1", "c();", "aicf.code.sm_90.1: only in the new"),
        ("error", "exit 2", "error: only in the new"),
    ],
)
def test_differences_are_found(name: str, text: str, told: str) -> None:
    assert same_artifacts.first_difference(TEXTS, {**TEXTS, name: text}).startswith(told)


def test_equal_artifacts_are_equal() -> None:
    assert same_artifacts.first_difference(TEXTS, dict(TEXTS)) == ""


@pytest.mark.parametrize("fails", [False, True])
def test_hashes_are_kept_only_if_every_model_compiles(
    fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = tmp_path / "kept.json"
    kept.write_text("{}\n")
    monkeypatch.setattr(same_artifacts, "GOLDEN", kept)
    outcomes = {"good": TEXTS, "bad": {"error": "exit 2"} if fails else TEXTS}
    monkeypatch.setattr(same_artifacts.Build, "compile", lambda self, name: outcomes[name])
    assert same_artifacts.rewrite(["good", "bad"]) == int(fails)
    assert (kept.read_text() == "{}\n") == fails
    told = capsys.readouterr().out.split()
    assert ("bad" in told) == fails and "good" not in told


def test_a_short_list_gives_the_hashes_that_are_kept() -> None:
    if not same_artifacts.STAND_IN.exists():
        pytest.skip("the library in place of NVRTC is not built: run make test")
    assert not same_artifacts.golden_differences(), (
        "if the change is meant, run scripts/same_artifacts.py --rewrite"
    )

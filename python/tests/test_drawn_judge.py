"""What the judge of drawn problems counts: right and wrong results, failures, caps, thirds, files gone on
with."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "bench")]

drawn = pytest.importorskip("drawn")
import drawn_report as report  # noqa: E402
from verdicts import FAILED, MOST, PEER_LIMIT, errors, fault, geometric_mean, usable  # noqa: E402

INFINITE = float("inf")


def test_results_of_zeros_and_of_nan_are_wrong_beside_any_peer_that_judges() -> None:
    for peer in (0.0, 1e-3, PEER_LIMIT):
        assert fault([1.0], [peer], 1e-2)
        assert fault([INFINITE], [peer], 1e-2)
        assert fault([float("nan")], [peer], 1e-2)


def test_a_result_may_be_off_by_four_times_the_peers_error_or_the_floor() -> None:
    assert not fault([3.9e-3], [1e-3], 1e-5)
    assert fault([4.1e-3], [1e-3], 1e-5)
    assert not fault([1e-2], [1e-6], 1e-2)


def test_one_dead_tensor_among_many_is_seen() -> None:
    assert "tensor 7" in fault([*[1e-3] * 7, 1.0], [1e-3] * 8, 1e-2)


def test_a_peer_that_is_wrong_itself_judges_nothing() -> None:
    assert not usable([INFINITE])
    assert not usable([float("nan")])
    assert not usable([0.5, 0.5, 1e-3])
    assert usable([0.5, 1e-3, 1e-3])  # a gradient that is 0 but for rounding
    assert not fault([0.9, 1e-3], [0.5, 1e-3], 1e-2)


def test_errors_are_those_of_each_tensor() -> None:
    torch = pytest.importorskip("torch")
    big, small = torch.ones(1_000_000), torch.ones(64)
    assert errors([big, 0 * small], [big, small]) == [0.0, 1.0]
    assert errors([torch.full((2,), float("nan"))], [torch.ones(2)]) == [INFINITE]
    assert errors([torch.tensor([1, 2, 3, 4])], [torch.tensor([1, 2, 3, 5])]) == [0.25]
    with pytest.raises(ValueError, match="a result is"):
        errors([small], [big])


def record(peer: float, ours: float | None, **more: Any) -> dict[str, Any]:
    row: dict[str, Any] = {"index": 0, "name": "net", "device": "cuda", "seconds": 1e-4, "errors": {}}
    row |= {"peers": {"torch.compile": {"quick_us": peer, "compile_seconds": 8.0}}}
    if ours is None:
        return row | {"ours": {"failed": "crashed"}} | more
    samples = {"torch.compile": [peer] * 3, "aicf": [ours] * 3}
    row |= {"ours": {"compile_seconds": 2.0, "error": [[1e-3]]}, "samples_us": samples, "kernels": []}
    return row | {"errors": {"torch.compile": [[1e-3]]}} | more


def test_a_failure_counts_half_and_a_ratio_three_at_most() -> None:
    assert report.ratio(record(100, None)) == FAILED == 0.5
    assert geometric_mean([100.0]) == pytest.approx(MOST)
    assert geometric_mean([4.0, 0.5]) == pytest.approx((MOST * 0.5) ** 0.5)


def test_thirds_follow_from_the_peers_time() -> None:
    assert [report.third(record(us, 1.0)) for us in (199, 201, 999, 1001)] == [
        "short",
        "middle",
        "middle",
        "long",
    ]


def test_seconds_of_compiling_are_those_of_the_layout_that_comes_first() -> None:
    row = record(100.0, 50.0)
    row["peers"]["torch.compile, channels last"] = {"quick_us": 90.0, "compile_seconds": 1.0}
    assert report.inductor_seconds(row) == 8.0
    assert "median 4.0, worst 4.0" in report.summary([row])


def test_the_summary_shows_losses_failures_replacements_and_what_was_cut() -> None:
    rows = [record(100, 50), record(100, 200), record(100, None), {"peer_failed": "no kernel"}]
    text = report.summary(rows, ["4 fastvit f16"])
    assert text.index("0.500") < text.index("2.000")
    assert "3 problems" in text and "1 failures of ours at 0.5, 1 of the peer replaced" in text
    assert "cut for lack of time, in no mean: 4 fastvit f16" in text
    assert "median 4.0" in text
    assert "OURS FAILED" in report.shown(record(100, None))


def run_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **changed: Any) -> drawn.Run:
    """Of a file that a run on a CPU left, changed so."""
    monkeypatch.setattr(drawn, "measured_tree", lambda: {"schema": 1, "commit": "a", "tree_changed": False})
    options = argparse.Namespace(
        seed=0, device="cpu", mode="inference", count=2, output=None, resume=None, seconds=9.0
    )
    old = drawn.Run(options).report | {"records": [{"seed": 0}]}
    path = tmp_path / "old.json"
    path.write_text(json.dumps(old | changed))
    options.resume = path
    return drawn.Run(options)


def test_a_file_of_the_same_commit_generator_and_versions_is_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run_of(tmp_path, monkeypatch).report["records"] == [{"seed": 0}]


@pytest.mark.parametrize(
    "changed",
    [{"commit": "b"}, {"generator": "0"}, {"versions": {}}, {"gpu": "another"}, {"tree_changed": True}],
)
def test_another_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any]
) -> None:
    with pytest.raises(SystemExit) as refused:
        run_of(tmp_path, monkeypatch, **changed)
    assert refused.value.code == 2


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    options = argparse.Namespace(
        seed=0,
        device="cpu",
        mode="inference",
        count=2,
        output=None,
        resume=tmp_path / "none.json",
        seconds=9.0,
    )
    with pytest.raises(SystemExit) as refused:
        drawn.Run(options)
    assert refused.value.code == 2


def test_the_reference_runs_encoder_layers_as_they_are_written() -> None:
    torch = pytest.importorskip("torch")
    import drawn_sides
    from drawn_family import Case, Input

    seen: list[bool] = []

    class Model(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.TransformerEncoderLayer(8, 2, 16, 0.0, "gelu", batch_first=True)

        def forward(self, x: Any) -> Any:
            seen.append(torch.backends.mha.get_fastpath_enabled())
            return self.layer(x)

    problem = argparse.Namespace(mode="inference", device="cuda", dtype="f32", door="call", optimizer="")
    work = drawn_sides.Work(problem, Case(Model(), [Input("x", (1, 3, 8))]), [torch.ones(1, 3, 8)], None, 1)
    assert "torch.compile, layers as written" in drawn_sides.peer_names(work)
    drawn_sides.reference(work)
    assert seen == [False]
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_sign_that_a_gradient_leaves_open_is_no_error_and_a_wrong_gradient_is() -> None:
    """AdamW's first step is the sign of a gradient: its size is judged by the moments alone."""
    torch = pytest.importorskip("torch")
    import drawn_sides
    import drawn_worker
    from drawn_family import Case

    problem = argparse.Namespace(
        mode="train", device="cpu", dtype="bf16-mixed", optimizer="adamw", door="step"
    )
    work = drawn_sides.Work(problem, Case(torch.nn.Identity(), []), [], None, 1)
    gradient = torch.tensor([1.0, -1.0, 1e-4, 1.0, 0.0, -1.0]).double()
    losses, change = torch.tensor([3.0, 2.0, 1.0]).double(), -1e-3 * gradient.sign()
    expected = [losses, change, 0.1 * gradient]
    judged = drawn_worker.Prepared(work).errors
    assert judged(expected, expected) == [[0.0], [0.0], [0.0]]
    for element, is_open in enumerate((False, False, True, False, False, False)):
        turned = change.clone()
        turned[element] = 1e-3 if change[element] <= 0 else -1e-3
        (apart,) = judged([losses, turned, 0.1 * gradient], expected)[1]
        assert (apart == 0) == is_open, element
    assert judged([losses, change, 0.2 * gradient], expected)[2] == pytest.approx([1.0])
    problem.optimizer = "sgd"
    assert judged([losses, change], [losses, change]) == [[0.0], [0.0]]


def test_what_a_rounding_of_the_weights_becomes_is_no_fault_and_a_wrong_gradient_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch = pytest.importorskip("torch")
    import drawn_sides
    import drawn_worker
    from drawn_family import Case

    problem = argparse.Namespace(mode="train", device="cpu", dtype="f32", optimizer="adamw", door="step")
    work = drawn_sides.Work(problem, Case(torch.nn.Identity(), []), [], None, 1)
    expected = [torch.ones(3).double(), torch.ones(2, 2).double(), torch.ones(2, 2).double()]

    def off_by(*each: float) -> list[torch.Tensor]:
        return [t * (1 + by) for t, by in zip(expected, each, strict=True)]

    def said(*each: float) -> str:
        prepared = drawn_worker.Prepared(work)
        prepared.record["errors"] = {"eager": prepared.errors(off_by(1e-6, 1e-6, 1e-6), expected)}
        return prepared.wrong(prepared.errors(off_by(*each), expected), expected)

    moved = iter([off_by(1e-6, 1e-6, 0.1), off_by(1e-6, 0.02, 0.1)] * 8)
    monkeypatch.setattr(drawn_worker, "moved_training", lambda work, seed: next(moved))
    assert said(1e-6, 0.07, 1e-6) == ""
    assert "tensor 0" in said(1e-6, 0.09, 1e-6)
    assert "tensor 0" in said(0.05, 1e-6, 1e-6)
    assert "tensor 0" in said(1e-6, 1e-6, 0.05)
    problem.optimizer = "sgd"
    monkeypatch.setattr(drawn_worker, "moved_training", None)
    assert "tensor 0" in said(1e-6, 0.07, 1e-6)


def test_torch_trains_from_weights_moved_by_a_rounding() -> None:
    torch = pytest.importorskip("torch")
    import drawn_sides
    from drawn_family import Case, Input

    torch.manual_seed(0)
    problem = argparse.Namespace(mode="train", device="cpu", dtype="f32", optimizer="adamw", door="step")
    inputs = [torch.ones(4, 3)]
    model = torch.nn.Linear(3, 2)
    work = drawn_sides.Work(problem, Case(model, [Input("x", (4, 3))]), inputs, torch.zeros(4, 2), 1)
    kept = [p.clone() for p in model.parameters()]
    still, *moved = (
        drawn_sides.torch_training(work, False, eager=True).check(),
        drawn_sides.moved_training(work, 0),
        drawn_sides.moved_training(work, 1),
    )
    for other in moved:
        assert any(not torch.equal(a, b) for a, b in zip(still, other, strict=True))
        assert all(torch.allclose(a, b, rtol=1e-4) for a, b in zip(still, other, strict=True))
    assert all(torch.equal(a, b) for a, b in zip(kept, model.parameters(), strict=True))


@pytest.mark.parametrize("mode", ["inference", "train"])
def test_a_program_that_gives_other_bits_after_its_replays_fails(mode: str) -> None:
    torch = pytest.importorskip("torch")
    import drawn_sides
    import drawn_worker
    from drawn_family import Case

    problem = argparse.Namespace(mode=mode, device="cpu", dtype="f32", optimizer="sgd", door="call")
    work = drawn_sides.Work(problem, Case(torch.nn.Identity(), []), [], None, 1)
    prepared = drawn_worker.Prepared(work)
    results = [torch.ones(3), torch.zeros(2)]
    prepared.ours = drawn_sides.Side(lambda: None, lambda: [t.clone() for t in results], 0.0)
    prepared.first = prepared.ours.check()
    prepared.check_repeats()
    results[1][1] = 1e-7
    if mode == "train":  # goes on from other states
        return prepared.check_repeats()
    with pytest.raises(RuntimeError, match="other bits"):
        prepared.check_repeats()

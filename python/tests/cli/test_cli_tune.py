"""`aicf tune` and `aicf explain --measure`."""

from __future__ import annotations

import subprocess
from typing import Any

from cli_program import FIXED, Cli


def test_candidates_are_built_where_there_is_a_place_for_them(nvrtc: None, cli: Cli) -> None:
    words = ("tune", "m.onnx", *FIXED, "--target", "sm_90", "--build-only")
    assert "AICF_CACHE_DIR" in cli.json(*words, code=2, AICF_CACHE_DIR="")["error"]["remedy"]
    assert cli.json(*words, AICF_CACHE_DIR="cache")["problems"] >= 1
    assert list((cli.folder / "cache" / "cuda").iterdir())


def test_what_measures_all_chooses_nothing(cli: Cli) -> None:
    listed = cli.run("help", "tune").stdout
    for option in ("--choose", "--records"):
        assert option not in listed
        error = cli.json("tune", "m.onnx", *FIXED, option, "none", code=2)["error"]
        assert error["value"] == option and option not in error["expected"]


def test_tuning_goes_on_where_it_stopped_and_beside_others(cli: Cli) -> None:
    def tune(batch: int, *words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [cli.path, "tune", "m.onnx", "--dim", f"batch={batch}", "--output", "r.csv", *words],
            cwd=cli.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    # No call is too short for one problem.
    assert "1 problems tuned" in tune(3, "--seconds", "1e-9").communicate()[0]
    assert "1 known already" in tune(3).communicate()[0]
    one = len((cli.folder / "r.csv").read_text().splitlines()) - 1
    processes = [tune(batch) for batch in (5, 7, 9, 11)]
    for process in processes:
        assert process.communicate()[1] == "" and process.returncode == 0
    assert len((cli.folder / "r.csv").read_text().splitlines()) - 1 == 5 * one
    process = tune(13, "--samples", "200")
    process.kill()
    process.communicate()
    assert cli.run("compile", "m.onnx", "--dim", "batch=13", "--records", "r.csv").stderr == ""


def test_libraries_are_of_gpus(cli: Cli) -> None:
    error = cli.json("tune", "m.onnx", *FIXED, "--libraries", "3", "--output", "r.csv", code=2)["error"]
    assert error["value"] == "--libraries" and "--device cuda" in error["remedy"]


def test_a_record_changes_the_price_and_no_estimate(cli: Cli) -> None:
    def explained(*words: str) -> dict[str, Any]:
        choices = cli.json("explain", "m.onnx", *FIXED, *words)["choices"]
        return next(choice for choice in choices if len(choice["candidates"]) > 1)

    plain = explained("--records", "none")
    last = len(plain["candidates"]) - 1
    header = "target,units,op,region,params,operands,choice,us,heuristic_us,versions"
    record = f"{plain['key']},{plain['candidates'][last]['name']},0.25,1,"
    (cli.folder / "r.csv").write_text(f"{header}\n{record}\n")
    recorded = explained("--records", "r.csv")
    assert recorded["chosen"] == last != plain["chosen"]
    for i, (before, after) in enumerate(zip(plain["candidates"], recorded["candidates"], strict=True)):
        assert before["price_us"] == before["estimated_us"] == after["estimated_us"] > 0
        assert after["price_us"] == (0.25 if i == last else before["price_us"])
    text = cli.run("explain", "m.onnx", *FIXED, "--records", "r.csv").stdout
    assert text.count("priced 0.25 us") == 1 and text.count("priced") == 1


def test_explain_measures_candidates(cli: Cli) -> None:
    choices = cli.json("explain", "m.onnx", *FIXED, "--measure")["choices"]
    several = [choice for choice in choices if len(choice["candidates"]) > 1]
    assert several
    for choice in several:
        for candidate in choice["candidates"]:
            assert candidate["estimated_us"] > 0 and candidate["measured_us"] > 0
            assert len(candidate["samples"]) >= 3 and candidate["left_out"] == ""
    # What is measured is shown: the best of every kernel, however few are asked for.
    shown = cli.run("explain", "m.onnx", *FIXED, "--measure", "--candidates", "1").stdout
    assert " estimated, " in shown and " us measured  " in shown and " %  matmul" in shown
    assert "not measured" not in shown and " more (--candidates)" not in shown

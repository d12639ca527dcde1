"""What the verbs that run a model print and write: run, verify, bench, profile, validate."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from cli_program import DIM, FIXED, Cli


def test_integers_are_printed_whole_and_names_that_differ_keep_their_files(cli: Cli) -> None:
    (cli.folder / "i.onnx").write_bytes(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (int64[1] x) => (int64[1] "a/b", int64[1] a_b)'
            ' { "a/b" = Identity(x)  a_b = Neg(x) }'
        ).SerializeToString()
    )
    np.save(cli.folder / "x.npy", np.array([123456789012]))
    assert "= 123456789012" in cli.run("run", "i.onnx", "--input", "x=x.npy", "--output-dir", ".").stdout
    assert sorted(int(np.load(cli.folder / f"a_b{end}.npy")[0]) for end in ("", "_")) == [
        -123456789012,
        123456789012,
    ]


# The verbs that take a compiled model say so, and no others.
VERBS = {
    **dict.fromkeys(
        ("run", "bench", "verify", "explain", "profile"), "an .onnx model or a compiled .aicf file"
    ),
    **dict.fromkeys(("compile", "validate", "support", "tune"), "an .onnx model"),
    "inspect": "a compiled .aicf file",
    "train": "an .aicf file with a train step",
    "export": "a compiled or trained .aicf file",
    "doctor": None,
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_says_what_it_takes_and_shows_an_example(cli: Cli, verb: str) -> None:
    lines = [line.strip() for line in cli.run(verb, "--help").stdout.splitlines()]
    assert any(line.startswith(f"Example: aicf {verb}") for line in lines)
    models = [
        line.removeprefix("model TEXT REQUIRED").strip() for line in lines if line.startswith("model TEXT")
    ]
    assert models == [VERBS[verb]] * (VERBS[verb] is not None)
    if verb == "compile":  # one that is compiled already is told that it is
        cli.run(verb, "m.onnx", *DIM)
    elif models == ["an .onnx model"]:
        cli.run("compile", "m.onnx", *DIM)
        assert cli.json(verb, "m.aicf", code=2)["error"]["expected"] == "an .onnx file"


def test_bench_says_what_it_timed(cli: Cli) -> None:
    np.save(cli.folder / "x.npy", np.zeros((3, 16), np.float32))
    words = ("bench", "m.onnx", *FIXED, "--repeat", "3", "--threads", "2")
    answer = cli.json(*words, "--input", "x=x.npy")
    assert (answer["model"], answer["entry"], answer["device"], answer["threads"]) == (
        "m.onnx",
        "main",
        "cpu",
        2,
    )
    assert answer["inputs"] == [{"name": "x", "dtype": "f32", "shape": [3, 16], "from": "of x.npy"}]
    assert answer["runs_per_second"] == pytest.approx(1e3 / answer["median"])
    shown = cli.run(*words, "--seed", "4").stdout
    assert "m.onnx, entry main on cpu, 2 threads\n  x: f32[3, 16] random, seed 4\n" in shown
    assert "median" in shown and "quartiles" in shown and " runs/s\n" in shown


def test_bench_tells_the_part_of_the_host(cli: Cli) -> None:
    answer = cli.json("bench", "m.onnx", *FIXED, "--repeat", "3")
    # The CPU queues nothing, and every call comes after a wait.
    assert answer["host_us"] == answer["host_first_us"] == pytest.approx(1e3 * answer["median"])


def test_the_table_of_kernels_states_what_its_stamps_cost(cli: Cli) -> None:
    answer = cli.json("bench", "m.onnx", *FIXED, "--repeat", "3", "--kernels")
    assert answer["stamped_us"] == pytest.approx(sum(kernel["us"] for kernel in answer["kernels"]))
    # Limits are known of GPUs only.
    assert {kernel["share_of_limit"] for kernel in answer["kernels"]} == {None}
    shown = cli.run("bench", "m.onnx", *FIXED, "--repeat", "3", "--kernels").stdout
    assert " with stamps between them, " in shown and " without\n" in shown and "limit" not in shown


def test_on_a_gpu_kernels_have_shares_of_its_limits(cli: Cli, fake: dict[str, str]) -> None:
    words = ("bench", "m.onnx", *FIXED, "--device", "cuda", "--kernels", "--repeat", "3")
    answer = cli.json(*words, **fake)
    assert answer["coverage"].endswith(" kernels in 1 graph")
    for kernel in answer["kernels"]:
        assert 0 < kernel["share_of_limit"] < 1
    shown = cli.run(*words, **fake).stdout
    assert "  limit  kernel" in shown and "3.35 TB/s from memory, 1071 TFLOP/s in halves" in shown
    found = cli.json("doctor", **fake)
    assert [gpu["target"] for gpu in found["cuda"]] == ["sm_90", "sm_90"] and found["cuda_missing"] is None
    error = cli.json("tune", "m.onnx", *FIXED, "--target", "cuda", "--output", "r.csv", code=2, **fake)[
        "error"
    ]
    assert "--device cuda" in error["remedy"]


def test_a_step_that_takes_less_than_it_can_ends_the_program(cli: Cli, fake: dict[str, str]) -> None:
    """The made-up driver says that each step takes a microsecond; this one computes 17 GFLOP."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[2048, 2048] x, float[2048, 2048] w)'
        " => (float[2048, 2048] y) { y = MatMul (x, w) }"
    )
    (cli.folder / "large.onnx").write_bytes(model.SerializeToString())
    words = ("bench", "large.onnx", "--device", "cuda", "--kernels", "--repeat", "1", "--warmup", "0")
    error = cli.json(*words, code=4, **fake)["error"]
    assert error["code"] == "AICF-I0001" and "at least" in error["expected"]
    assert "17179869184 operations" in error["expected"] and error["actual"] == "1.00 us"


def test_a_step_as_short_as_the_stamps_has_a_share_that_it_reaches(cli: Cli, fake: dict[str, str]) -> None:
    """Of a microsecond, give or take one, for what takes at least 1.7."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[384, 384] x, float[384, 384] w)'
        " => (float[384, 384] y) { y = MatMul (x, w) }"
    )
    (cli.folder / "short.onnx").write_bytes(model.SerializeToString())
    words = (
        "bench",
        "short.onnx",
        "--device",
        "cuda",
        "--kernels",
        "--repeat",
        "1",
        "--choose",
        "*=matmul_simt",
    )
    answer = cli.json(*words, **fake)
    shares = [kernel["share_of_limit"] for kernel in answer["kernels"]]
    assert shares and all(0.3 < share <= 1 for share in shares)
    shown = [int(share) for share in re.findall(r"(\d+) %", cli.run(*words, **fake).stdout)]
    assert len(shown) == len(shares) and all(share <= 100 for share in shown)


def test_a_broken_peer_is_named_with_what_mends_it(cli: Cli) -> None:
    for text, said in (
        ("raise ImportError('no name in here')", "ImportError: no name in here"),
        ("import nothing_of_this_name", "nothing_of_this_name"),
        ("raise OSError('libgomp.so.1: cannot open')", "OSError: libgomp.so.1: cannot open"),
    ):
        (cli.folder / "onnxruntime.py").write_text(text)
        words = ("bench", "m.onnx", *FIXED, "--against", "onnxruntime", "--repeat", "1")
        error = cli.json(*words, code=3, PYTHONPATH=str(cli.folder))["error"]
        assert error["code"] == "AICF-E0005" and error["value"] == "onnxruntime" and said in error["actual"]
        assert "--force-reinstall onnxruntime" in error["remedy"] and "None" not in str(error)
    (cli.folder / "onnxruntime.py").write_text("import os; os.abort()")
    error = cli.json(*words, code=3, PYTHONPATH=str(cli.folder))["error"]
    assert "signal 6" in error["actual"] and "install Python" not in error["remedy"]
    (cli.folder / "onnxruntime.py").write_text("raise MemoryError")
    assert cli.json(*words, code=3, PYTHONPATH=str(cli.folder))["error"]["code"] == "AICF-E0002"


def test_options_of_random_inputs_need_one(cli: Cli) -> None:
    np.save(cli.folder / "x.npy", np.ones((3, 16), "f"))
    cli.run("compile", "m.onnx", *DIM)
    given = ("run", "m.aicf", "--input", "x=x.npy")
    for option in (("--range", "x=1..2"), ("--seed", "4")):
        error = cli.json(*given, *option, code=2)["error"]
        assert error["code"] == "AICF-U0001" and error["value"].startswith(option[0]) and error["remedy"]
        cli.run("run", "m.aicf", *option)
        cli.run("run", "m.aicf", "--input", "x=random", *option)
    assert cli.json("explain", "m.aicf", "--candidates", "3", code=2)["error"]["value"] == "--candidates"


def test_a_size_out_of_the_range_says_what_to_do(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM)
    for verb in (("run",), ("bench", "--repeat", "1"), ("verify", "-n", "1")):
        error = cli.json(verb[0], "m.aicf", *verb[1:], "--dim", "batch=9", code=2)["error"]
        assert error["code"] == "AICF-U0201" and "--dim batch=LO..HI" in error["remedy"]
        error = cli.json(verb[0], "m.aicf", *verb[1:], "--dim", "other=9", code=2)["error"]
        assert error["expected"] == "batch" and error["remedy"]


def test_run_writes_outputs_and_reports_folders_it_cannot_make(cli: Cli) -> None:
    x = np.random.default_rng(0).standard_normal((3, 16)).astype(np.float32)
    np.save(cli.folder / "x.npy", x)
    np.savez(cli.folder / "x.npz", x=x)
    cli.run("run", "m.onnx", *DIM, "--input", "x=x.npy", "--output-dir", "a")
    cli.run("run", "m.onnx", *DIM, "--input", "x.npz", "--output-dir", "b/c")
    y = np.load(cli.folder / "a" / "y.npy")
    assert y.shape == (3, 8)
    np.testing.assert_array_equal(y, np.load(cli.folder / "b" / "c" / "y.npy"))
    (cli.folder / "file").write_text("")
    answer = cli.json("run", "m.onnx", *DIM, "--input", "x.npz", "--output-dir", "file/c", code=3)
    assert answer["error"]["code"] == "AICF-E0001"


def test_verify_ends_with_one_hash(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM, "-o", "m.aicf")
    words = ("verify", "m.aicf", "-n", "20", "--threads", "1,2", "--processes", "2", "--seed", "4")
    last = cli.run(*words).stdout.splitlines()[-1]
    assert last.startswith("verify: 80 replays, 1 hash ")
    answer = cli.json(*words)
    assert answer["passed"] and list(answer["hashes"]) == [last.split()[-1]]
    assert list(cli.json("verify", "m.aicf", "-n", "1", "--seed", "5")["hashes"]) != [last.split()[-1]]
    assert list(cli.json(*words, "--busy")["hashes"]) == [last.split()[-1]]


def test_a_second_process_verifies_the_same_program(cli: Cli) -> None:
    words = ("verify", "m.onnx", *FIXED, "--precision", "f16-mixed", "-n", "2", "--processes", "2")
    assert cli.json(*words)["replays"] == 4


def test_profile_writes_a_trace_of_every_step(cli: Cli) -> None:
    answer = cli.json("profile", "m.onnx", *FIXED, "--repeat", "3", "-o", "trace.json")
    trace = json.loads((cli.folder / answer["trace"]).read_text())
    steps = [event for event in trace["traceEvents"] if event.get("cat") == "step"]
    assert [step["name"] for step in steps] == [kernel["kernel"] for kernel in answer["kernels"]]
    assert all(step["ph"] == "X" and step["dur"] > 0 for step in steps)
    ends = [step["ts"] + step["dur"] for step in steps]
    assert all(abs(step["ts"] - end) < 1e-6 for step, end in zip(steps[1:], ends, strict=False))
    assert abs(ends[-1] - answer["stamped_us"]) < 1e-6 and answer["replay_us"] > 0
    answer = cli.json("profile", "m.onnx", *FIXED, "-o", "no/such/folder/trace.json", code=3)
    assert answer["error"]["code"] == "AICF-E0001"


def test_validate_reduces_a_failing_model(cli: Cli) -> None:
    assert "validate: passed" in cli.run("validate", "m.onnx", *FIXED).stdout
    exact = ("--rtol", "0", "--atol", "0")  # f32 against f64: some rounding differs
    assert "validate: failed" in cli.run("validate", "m.onnx", *FIXED, *exact, code=1).stdout
    answer = cli.json("validate", "m.onnx", *FIXED, *exact, "--reduce", "small.onnx", code=1)
    assert answer["nodes_before"] == 4 and answer["nodes"] == 1 and answer["outcome"] == "mismatch"
    inputs = [word for name, file in answer["inputs"].items() for word in ("--input", f"{name}={file}")]
    assert "validate: failed" in cli.run("validate", "small.onnx", *inputs, *exact, code=1).stdout
    answer = cli.json("validate", "m.onnx", *FIXED, *exact, "--reduce", "m.onnx", code=2)
    assert answer["error"]["value"] == "m.onnx"  # it would overwrite the model
    x = np.random.default_rng(0).standard_normal((3, 16)).astype("f")
    np.savez(cli.folder / "in.npz", x=x)
    np.save(cli.folder / "least.0.npy", x)
    files = {name: (cli.folder / name).read_bytes() for name in ("in.npz", "least.0.npy")}
    for given, output in (
        (("--inputs", "in.npz"), "in.npz"),
        (("--input", "x=least.0.npy"), "least.0.npy"),
        (("--input", "x=least.0.npy"), "least"),  # whose first input goes to least.0.npy
    ):
        answer = cli.json("validate", "m.onnx", *FIXED, *exact, *given, "--reduce", output, code=2)
        assert answer["error"]["value"] in files
    assert all((cli.folder / name).read_bytes() == text for name, text in files.items())
    assert not (cli.folder / "least").exists()
    answer = cli.json("validate", "m.onnx", *FIXED, "--reduce", "small.onnx", code=2)
    assert answer["error"]["code"] == "AICF-U0001"  # it passes: nothing to reduce


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def test_peers_run_beside_us(cli: Cli) -> None:
    variables = {"VIRTUAL_ENV": sys.prefix} if sys.prefix != sys.base_prefix else {}
    bench = ("bench", "m.onnx", *FIXED, "--repeat", "3", "--against", "onnxruntime")
    validate = ("validate", "m.onnx", *FIXED, "--against", "onnxruntime")
    if has("onnxruntime"):
        answer = cli.json(*bench, **variables)
        assert len(answer["against"]["onnxruntime"]["samples"]) == len(answer["samples"]) == 3
        # Nobody's threads, which spin after a run, take anything of another's turn: by the kernel's count.
        assert answer["cpu_ms_in_other_turns"] == 0
        assert answer["against"]["onnxruntime"]["cpu_ms_in_other_turns"] == 0
        assert cli.json(*validate, **variables)["passed"]
    else:
        for words in (bench, validate):
            error = cli.json(*words, code=3, **variables)["error"]
            assert error["code"] == "AICF-E0005" and error["value"] == "onnxruntime"


def test_a_peer_is_found_beside_the_tool(cli: Cli, tmp_path: Path) -> None:
    """Installed into an environment, or built in a tree of ours, and called without one that is active."""
    if not has("onnxruntime") or sys.prefix == sys.base_prefix:
        pytest.skip("needs an environment with onnxruntime")
    tree = tmp_path / "tree"
    (tree / "build" / "bin").mkdir(parents=True)
    (tree / "include" / "aicf").mkdir(parents=True)
    (tree / "include" / "aicf" / "aicf.h").touch()
    (tree / ".venv").symlink_to(sys.prefix)
    shutil.copy2(cli.path, tree / "build" / "bin" / "aicf")
    words = ("validate", "m.onnx", *FIXED, "--against", "onnxruntime")
    assert Cli(str(tree / "build" / "bin" / "aicf"), cli.folder).json(*words, VIRTUAL_ENV="", PATH="")[
        "passed"
    ]


def test_the_bound_fits_the_dtype(cli: Cli) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float16[64, 64] x, float16[64, 64] w) => (float16[64, 64] y) { y = MatMul (x, w) }"
    )
    (cli.folder / "half.onnx").write_bytes(model.SerializeToString())
    assert cli.json("validate", "half.onnx")["passed"]
    assert not cli.json("validate", "half.onnx", "--rtol", "1e-6", "--atol", "0", code=1)["passed"]


def test_the_bound_fits_magnitudes_and_lengths(cli: Cli) -> None:
    """A sum of many large values that cancel is far from f64 in f32, and one of few small ones is not."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[2, N] x) => (float[2] y)'
        " { axes = Constant <value_ints = [1]> () y = ReduceSum <keepdims = 0> (x, axes) }"
    )
    (cli.folder / "sum.onnx").write_bytes(model.SerializeToString())
    rng = np.random.default_rng(0)
    bounds = []
    for length, scale in ((8, 1.0), (80000, 1e4)):
        x = (scale * rng.standard_normal((2, length))).astype("f")
        x[:, length // 2 :] = -x[:, : length // 2] * np.float32(1 + 1e-6)
        np.savez(cli.folder / "x.npz", x=x)
        words = ("validate", "sum.onnx", "--dim", f"N={length}", "--inputs", "x.npz")
        answer = cli.json(*words)
        assert answer["passed"] and answer["calls"]["checked"] == 1 and answer["calls"]["failed"] == []
        bounds.append(answer["outputs"][0]["bound"])
        # What the fixed tolerances called right and wrong.
        right = x.astype("d").sum(axis=1)
        for miss, code in ((0.0, 0), (2 * bounds[-1], 1)):
            np.savez(cli.folder / "y.npz", y=right + miss)
            assert cli.json(*words, "--against", "y.npz", code=code)["passed"] == (code == 0)
    assert bounds[0] < 1e-5 and bounds[1] > 1e-2


def test_a_decision_between_equals_is_undecided(cli: Cli) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> g (float[64, 300] x, float[300, 2] w) => (int64[64] y)'
        " { s = MatMul (x, w) y = ArgMax <axis = 1, keepdims = 0> (s) }"
    )
    (cli.folder / "tie.onnx").write_bytes(model.SerializeToString())
    rng = np.random.default_rng(0)
    x = rng.standard_normal((64, 300)).astype("f")
    w = np.repeat(rng.standard_normal((300, 1)).astype("f"), 2, axis=1)
    w[0, 1] += np.float32(1e-7)
    np.savez(cli.folder / "in.npz", x=x, w=w)
    words = ("validate", "tie.onnx", "--inputs", "in.npz")
    answer = cli.json(*words)
    assert answer["passed"] and answer["outputs"][0]["undecided"] > 32
    np.savez(cli.folder / "y.npz", y=1 - np.argmax(x.astype("d") @ w, axis=1))
    assert cli.json(*words, "--against", "y.npz")["passed"] == (answer["outputs"][0]["undecided"] == 64)


def test_the_bound_fits_the_precision(cli: Cli) -> None:
    """What rounded logits do to a softmax depends on how large they are."""
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[16, 64] x, float[64, 10] w) => (float[16, 10] y)'
        " { logits = MatMul (x, w)  y = Softmax <axis = -1> (logits) }"
    )
    (cli.folder / "logits.onnx").write_bytes(model.SerializeToString())
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((16, 64)).astype("f"), 2 * rng.standard_normal((64, 10)).astype("f")
    np.savez(cli.folder / "in.npz", x=x, w=w)
    odds = np.exp(x.astype("d") @ w)
    right = odds / odds.sum(axis=1, keepdims=True)
    words = ("validate", "logits.onnx", "--inputs", "in.npz", "--precision")
    for precision, least in (("tf32", 1e-4), ("bf16-mixed", 1e-2), ("f16-mixed", 1e-4)):
        answer = cli.json(*words, precision)
        assert answer["passed"] and answer["outputs"][0]["bound"] > least
        assert not cli.json(*words, precision, "--atol", "1e-5", code=1)["passed"]
        for part, code in ((0.0, 0), (2.0, 1)):  # of the bound, beyond the right answer
            wrong = right + part * answer["outputs"][0]["bound"]
            np.savez(cli.folder / "out.npz", y=wrong.astype("f"))
            assert cli.json(*words, precision, "--against", "out.npz", code=code)["passed"] == (code == 0)
    assert cli.json(*words, "f32")["outputs"][0]["bound"] < 1e-4

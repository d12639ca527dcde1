"""The command line: exit codes, JSON, environment variables, and the verbs' own promises."""

from __future__ import annotations

import importlib.util
import json
import os
import resource
import shutil
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import onnx.parser
import pytest


class Cli:
    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.folder = folder

    def run(self, *words: str, code: int = 0, **variables: str) -> subprocess.CompletedProcess[str]:
        finished = subprocess.run(
            [self.path, *words],
            cwd=self.folder,
            capture_output=True,
            text=True,
            env={**os.environ, **variables},
        )
        assert finished.returncode == code, finished.stderr + finished.stdout
        return finished

    def json(self, *words: str, code: int = 0, **variables: str) -> dict[str, Any]:
        answer = json.loads(self.run(*words, "--json", code=code, **variables).stdout)
        assert answer["schema"] == 1
        return answer


@pytest.fixture
def cli(cli: str, tmp_path: Path, mlp: bytes) -> Cli:
    """In a folder with m.onnx (x f32[batch, 16] to y f32[batch, 8])."""
    (tmp_path / "m.onnx").write_bytes(mlp)
    return Cli(cli, tmp_path)


DIM = ("--dim", "batch=1..8")
FIXED = ("--dim", "batch=3")


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        (["compile", "m.onnx"], 2, "AICF-U0200"),
        (["compile", "nothing.aicf"], 2, "AICF-U0003"),
        (["support", "nothing.aicf"], 2, "AICF-U0003"),
        (["compile", "m.onnx", *DIM, "--dim", "nothing=3"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--opt", "7"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--skip", "nothing"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--stop-after", "nothing"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--dump-after", "nothing"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, *FIXED], 2, "AICF-U0001"),
        (["compile", "m.onnx", "--dim", "batch=-3"], 2, "AICF-U0001"),
        (["verify", "m.onnx", *FIXED, "-n", "99999999999999999999"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--precision", "f8"], 2, "AICF-U0002"),
        (["compile", "missing.onnx"], 2, "AICF-U0003"),
        (["inspect", "m.onnx"], 2, "AICF-U0500"),
        (["run", "m.onnx", *FIXED, "--input", "x"], 2, "AICF-U0001"),
        (["bench", "m.onnx", *FIXED, "--repeat", "0"], 2, "AICF-U0001"),
        (["bench", "m.onnx", *FIXED, "--against", "nothing"], 2, "AICF-U0001"),
        (["validate", "m.onnx", *FIXED, "--against", "nothing"], 2, "AICF-U0001"),
        (["validate", "m.onnx", *FIXED, "--rtol", "-1"], 2, "AICF-U0001"),
        (["validate", "m.onnx", *FIXED, "--range", "x=0"], 2, "AICF-U0001"),
        (["validate", "m.onnx", *FIXED, "--atol", "nan"], 2, "AICF-U0001"),
    ],
)
def test_errors_have_codes_and_exit_codes(cli: Cli, words: list[str], code: int, error: str) -> None:
    assert f"error[{error}]" in cli.run(*words, code=code).stderr
    answer = cli.json(*words, code=code)["error"]
    assert answer["code"] == error
    assert answer["kind"] == "user"
    assert {"code", "kind", "op", "value", "expected", "actual", "remedy"} <= answer.keys()
    assert answer["expected"] or answer["actual"] or answer["remedy"]


def test_a_size_given_beside_an_input_must_fit_it(cli: Cli) -> None:
    np.save(cli.folder / "x.npy", np.ones((2, 16), np.float32))
    cli.run("compile", "m.onnx", *DIM)
    given = ("run", "m.aicf", "--input", "x=x.npy")
    assert cli.json(*given, "--dim", "batch=2")["outputs"][0]["shape"] == [2, 8]
    assert cli.json(*given, "--dim", "batch=3", code=2)["error"]["code"] == "AICF-U0202"
    assert cli.json(*given, "--input", "x=x.npy", code=2)["error"]["code"] == "AICF-U0001"
    assert cli.json("support", "m.aicf", code=2)["error"]["expected"] == "an .onnx file"


def test_a_range_holds_for_floats_too(cli: Cli) -> None:
    (cli.folder / "i.onnx").write_bytes(
        onnx.parser.parse_model(
            '<ir_version: 8, opset_import: ["": 17]> g (float[1000] x) => (float[1000] y) { y = Identity(x) }'
        ).SerializeToString()
    )
    cli.run("run", "i.onnx", "--range", "x=3..5", "--output-dir", ".")
    y = np.load(cli.folder / "y.npy")
    assert 3 <= y.min() < 3.1 and 4.9 < y.max() <= 5


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


def test_an_unknown_verb_or_option_is_a_user_error(cli: Cli) -> None:
    assert "error[AICF-U0001]" in cli.run("nothing", code=2).stderr
    assert "error[AICF-U0001]" in cli.run("doctor", "--nothing", code=2).stderr
    assert (
        json.loads(cli.run("doctor", "--nothing", "--json", code=2).stdout)["error"]["code"] == "AICF-U0001"
    )


@pytest.mark.parametrize(
    "option",
    [
        ("--opt", "2"),
        ("--target", "cpu"),
        ("--precision", "f32"),
        ("--skip", "fuse_regions"),
        ("--state", "x=y"),
        ("--records", "none"),
        ("--choose", "*=matmul"),
    ],
)
def test_options_of_compiling_are_refused_with_a_compiled_model(cli: Cli, option: tuple[str, str]) -> None:
    cli.run("compile", "m.onnx", *DIM)
    for verb in ("run", "bench", "verify", "profile", "explain"):
        error = cli.json(verb, "m.aicf", *option, code=2)["error"]
        assert (error["code"], error["value"]) == ("AICF-U0001", option[0])
        assert option[0] in error["remedy"]


@pytest.mark.parametrize("verb", ["run", "verify", "bench", "profile"])
def test_inputs_are_those_of_the_model(cli: Cli, verb: str) -> None:
    np.save(cli.folder / "z.npy", np.zeros((3, 16), np.float32))
    assert cli.json(verb, "m.onnx", *FIXED, "--input", "z=z.npy", code=2)["error"]["code"] == "AICF-U0401"


@pytest.mark.parametrize(
    ("words", "value"),
    [
        (("compile", "m.onnx", *FIXED, "--opt", ""), "--opt"),
        (("compile", "m.onnx", *FIXED, "-o", ""), "--output"),
        (("compile", "m.onnx", *FIXED, "--target", ""), "--target"),
        (("compile", "m.onnx", *FIXED, "--target", "cpu,cpu"), "--target cpu,cpu"),
        (("run", "m.onnx", *FIXED, "--threads", ""), "--threads"),
        (("run", "m.onnx", *FIXED, "--input", "x=random", "--input", "x=x.npy"), "--input x=random"),
        (("tune", "m.onnx", *FIXED, "--output", "r.csv", "--seconds", "-1"), "--seconds -1.000000"),
        (("tune", "m.onnx", *FIXED, "--output", "r.csv", "--samples", "0"), "--samples 0"),
        (("tune", "m.onnx", *FIXED, "--output", "r.csv", "--count", "0"), "--count 0"),
        (("tune", "m.onnx", *FIXED, "--output", "r.csv", "--target", "sm_90"), "--target sm_90"),
        (("tune", "m.onnx", *FIXED, "--output", "r.csv", "--target", "cpu,sm_90"), "--target cpu,sm_90"),
        (("tune", "m.onnx", *FIXED, "--build-only"), "--build-only"),
        (("explain", "m.onnx", *FIXED, "--candidates", "0"), "--candidates 0"),
    ],
)
def test_values_that_mean_nothing_are_refused(cli: Cli, words: tuple[str, ...], value: str) -> None:
    np.save(cli.folder / "x.npy", np.zeros((3, 16), np.float32))
    error = cli.json(*words, code=2)["error"]
    assert error["code"] == "AICF-U0001" and error["value"] == value
    assert not (cli.folder / "m.aicf").exists() and not (cli.folder / "r.csv").exists()


def test_a_seed_is_no_negative_number(cli: Cli) -> None:
    for seed in ("-1", "18446744073709551616", "1.5"):
        assert cli.json("run", "m.onnx", *FIXED, "--seed", seed, code=2)["error"]["code"] == "AICF-U0001"
    cli.run("run", "m.onnx", *FIXED, "--seed", "18446744073709551615")


def test_what_should_be_printed_is_named(cli: Cli) -> None:
    assert "--stop-after" in cli.json("compile", "m.onnx", *FIXED, "--print", code=2)["error"]["remedy"]


def test_candidates_are_built_where_there_is_a_place_for_them(nvrtc: None, cli: Cli) -> None:
    words = ("tune", "m.onnx", *FIXED, "--target", "sm_90", "--build-only")
    assert "AICF_CACHE_DIR" in cli.json(*words, code=2, AICF_CACHE_DIR="")["error"]["remedy"]
    assert cli.json(*words, AICF_CACHE_DIR="cache")["problems"] >= 1
    assert list((cli.folder / "cache" / "cuda").iterdir())


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


def test_sizes_of_a_compiled_model_bind_but_do_not_compile(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM)
    assert cli.json("run", "m.aicf", *FIXED)["outputs"][0]["shape"] == [3, 8]
    assert cli.json("run", "m.aicf", "--dim", "rows=3", code=2)["error"]["expected"] == "batch"
    assert cli.json("explain", "m.aicf", *FIXED, code=2)["error"]["value"] == "--dim"
    assert cli.json("tune", "m.aicf", code=2)["error"]["code"] == "AICF-U0001"


def test_an_option_takes_one_value_and_leaves_the_model(cli: Cli) -> None:
    assert cli.json("run", "--dim", "batch=3", "m.onnx")["outputs"][0]["shape"] == [3, 8]
    cli.run("compile", "--dim", "batch=1..8", "--skip", "fuse_regions", "m.onnx", "-o", "m.aicf")


def test_every_verb_shows_an_example(cli: Cli) -> None:
    verbs = [
        "compile",
        "run",
        "bench",
        "verify",
        "validate",
        "support",
        "inspect",
        "explain",
        "profile",
        "doctor",
    ]
    for verb in verbs:
        assert f"Example: aicf {verb}" in cli.run(verb, "--help").stdout


def test_stages_and_dumps(cli: Cli) -> None:
    for stage in ("import", "passes", "select", "build", "plan"):
        words = ("compile", "m.onnx", *DIM, "--stop-after", stage, "--print")
        assert f"// after {stage}" in cli.run(*words).stdout
        answer = cli.json(*words)
        assert answer["stopped_after"] == stage
        assert answer["dumps"][-1]["after"] == stage
        assert not (cli.folder / "m.aicf").exists()
    assert "// after simplify" in cli.run("compile", "m.onnx", *DIM, "--dump-after", "simplify").stdout
    assert (cli.folder / "m.aicf").exists()


def test_what_compiling_for_a_gpu_took_is_told_module_by_module(nvrtc: None, cli: Cli) -> None:
    answer = cli.json("compile", "m.onnx", *DIM, "--target", "sm_90,sm_80")
    assert [stage["stage"] for stage in answer["stages"]] == ["passes", "select", "build", "modules", "plan"]
    assert answer["modules"]
    for module in answer["modules"]:
        assert module["target"] in ("sm_90", "sm_80") and module["functions"] and module["bytes"] > 0
    assert {module["target"] for module in answer["modules"]} == {"sm_90", "sm_80"}
    compiled = sum(module["ms"] for module in answer["modules"])
    assert compiled > 0 or os.environ.get("AICF_CACHE_DIR")


def test_a_file_for_one_kind_of_gpu_runs_elsewhere_too(nvrtc: None, cli: Cli) -> None:
    for given, held in (("sm_86", ["sm_86", "compute_80", "cpu"]), ("sm_86,cpu", ["sm_86", "cpu"])):
        cli.run("compile", "m.onnx", *DIM, "--target", given)
        assert [target["target"] for target in cli.json("inspect", "m.aicf")["targets"]] == held
        cli.run("run", "m.aicf")


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


@pytest.fixture
def fake(nvrtc: None, cli: Cli) -> dict[str, str]:
    """Variables by which programs find a CUDA driver that computes nothing."""
    driver = Path(cli.path).resolve().parent.parent / "test" / "fake_cuda"
    if not driver.exists():
        pytest.skip("needs the made-up CUDA driver of a build with tests")
    return {"AICF_CUDA_PATH": str(driver)}


def test_one_artifact_serves_this_gpu_others_and_the_cpu(cli: Cli, fake: dict[str, str]) -> None:
    cli.run("compile", "m.onnx", *DIM, "--target", "cuda", "-o", "cli.aicf", **fake)
    script = """if True:
        import aicf
        for name, options in (("device", {}), ("target", {"target": "cuda"})):
            exe = aicf.compile("m.onnx", dims={"batch": "1..8"}, device="cuda", options=options)
            exe.clone().save(name + ".aicf")
        exe = aicf.compile("m.onnx", dims={"batch": "1..8"}, device="cuda", options={"target": "sm_90"})
        exe.save("one.aicf")
    """
    environment = {**os.environ, **fake}
    subprocess.run([sys.executable, "-c", script], cwd=cli.folder, env=environment, check=True)
    files = ("cli.aicf", "device.aicf", "target.aicf")
    for name in files:
        targets = [target["target"] for target in cli.json("inspect", name)["targets"]]
        assert targets == ["sm_90", "compute_80", "cpu"]
        cli.run("run", name)
        cli.run("run", name, "--device", "cuda", **fake)
    assert len({(cli.folder / name).read_bytes() for name in files}) == 1
    assert [target["target"] for target in cli.json("inspect", "one.aicf")["targets"]] == ["sm_90"]


def test_on_a_gpu_kernels_have_shares_of_its_limits(cli: Cli, fake: dict[str, str]) -> None:
    words = ("bench", "m.onnx", *FIXED, "--device", "cuda", "--kernels", "--repeat", "3")
    answer = cli.json(*words, **fake)
    assert answer["coverage"].endswith(" kernels in 1 graph")
    for kernel in answer["kernels"]:
        assert 0 < kernel["share_of_limit"] < 1
    shown = cli.run(*words, **fake).stdout
    assert "  limit  kernel" in shown and "limits: 3.00 TB/s, 700 TFLOP/s" in shown
    found = cli.json("doctor", **fake)
    assert [gpu["target"] for gpu in found["cuda"]] == ["sm_90", "sm_90"] and found["cuda_missing"] is None
    error = cli.json("tune", "m.onnx", *FIXED, "--target", "cuda", "--output", "r.csv", code=2, **fake)[
        "error"
    ]
    assert "--device cuda" in error["remedy"]


def test_a_list_of_sizes_is_compiled_as_buckets(cli: Cli) -> None:
    cli.run("compile", "m.onnx", "--dim", "batch=1,8")
    target = cli.json("inspect", "m.aicf", "--check")["targets"][0]
    assert [bucket["sizes"] for bucket in target["buckets"]] == ["batch in 1..1"]
    assert "bucket of main for batch in 1..1" in cli.run("inspect", "m.aicf").stdout
    assert "main for batch in 1..1" in cli.run("explain", "m.onnx", "--dim", "batch=1,8").stdout
    for batch in (1, 5, 8):
        answer = cli.json("run", "m.aicf", "--dim", f"batch={batch}")
        assert answer["outputs"][0]["shape"] == [batch, 8]
    assert cli.json("run", "m.aicf", "--dim", "batch=9", code=2)["error"]["code"] == "AICF-U0201"
    first = (cli.folder / "m.aicf").read_bytes()
    cli.run("compile", "m.onnx", "--dim", "batch=1,8")
    assert (cli.folder / "m.aicf").read_bytes() == first


def test_inspect_checks_and_shows_passes(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM, "-o", "m.aicf")
    assert cli.json("inspect", "m.aicf", "--check")["checked"]
    passes = cli.json("inspect", "m.aicf", "--passes")["passes"]
    assert {"simplify", "fuse_regions"} <= {p["pass"] for p in passes}
    assert all(p["ms"] >= 0 and p["nodes_before"] >= 0 for p in passes)
    assert passes[-1]["nodes_after"] < passes[0]["nodes_before"]
    assert "pass fuse_regions of main: " in cli.run("inspect", "m.aicf", "--passes").stdout
    damaged = bytearray((cli.folder / "m.aicf").read_bytes())
    weight = damaged.find(np.float32(np.random.default_rng(1).standard_normal((16, 32))[0, 0]).tobytes())
    assert weight > 0
    damaged[weight] ^= 1
    (cli.folder / "m.aicf").write_bytes(damaged)
    cli.run("inspect", "m.aicf")
    assert cli.json("inspect", "m.aicf", "--check", code=1)["error"]["code"] == "AICF-U0500"


def test_a_cache_is_a_state_that_inspect_shows(cli: Cli) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    step (float[n, 4] x, float[n, 4] past) => (float[n, 4] y, float[n, 4] present) {
      present = Add(past, x)
      y = Mul(present, x)
    }"""
    (cli.folder / "s.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    words = ("compile", "s.onnx", "--dim", "n=2")
    cli.run(*words, "--state", "past=present")
    (target,) = cli.json("inspect", "s.aicf")["targets"]
    assert target["states"] == [{"name": "past", "dtype": "f32", "shape": ["2", "4"]}]
    assert [io["name"] for io in target["entries"][0]["inputs"]] == ["x"]
    assert "  state  past: f32[2, 4]" in cli.run("inspect", "s.aicf").stdout
    error = cli.json(*words, "--state", "past=present", "--state", "past=y", code=2)["error"]
    assert error["code"] == "AICF-U0001" and error["value"] == "--state past=y"


def test_an_input_that_decides_a_shape_is_given_when_compiling(cli: Cli) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    sums (float[2, 3, 4] x, int64[1] axes) => (float[n, m] y) { y = ReduceSum<keepdims: int = 0>(x, axes) }"""
    (cli.folder / "sums.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    error = cli.json("compile", "sums.onnx", code=2)["error"]
    assert error["code"] == "AICF-U0203" and error["value"] == "axes"
    np.save(cli.folder / "axes.npy", np.array([1]))
    np.save(cli.folder / "other.npy", np.array([2]))
    cli.run("compile", "sums.onnx", "--value", "axes=axes.npy")
    run = ("run", "sums.aicf", "--input", "random", "--input")
    assert cli.json(*run, "axes=axes.npy")["outputs"][0]["shape"] == [2, 4]
    assert cli.json(*run, "axes=other.npy", code=2)["error"]["code"] == "AICF-U0407"
    for value, code in (
        ("axes=none.npy", "AICF-U0003"),
        ("zz=axes.npy", "AICF-U0401"),
        ("axes", "AICF-U0001"),
    ):
        error = cli.json("compile", "sums.onnx", "--value", value, code=2)["error"]
        assert error["code"] == code, error


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


def test_doctor_says_what_is_there_and_what_is_missing(cli: Cli) -> None:
    answer = cli.json("doctor")
    assert {row["name"] for row in answer["libraries"]} == {"nvrtc", "cublasLt", "cudnn", "nccl"}
    for row in answer["libraries"]:
        assert row["version"] and row["path"] if row["found"] else row["remedy"]
    assert answer["cuda"] or answer["cuda_missing"]["remedy"]
    nowhere = cli.run("doctor", AICF_CUDA_PATH="/nowhere", CUDA_HOME="/nowhere", VIRTUAL_ENV="").stdout
    assert "nvrtc: " in nowhere and "isa: " in nowhere


def test_libraries_are_found_in_the_environment_of_the_program(cli: Cli, tmp_path: Path) -> None:
    """Not activated, as a program or a service calls it: by the program's folder, and by the extension's."""
    found = [
        path for place in site.getsitepackages() for path in Path(place).glob("nvidia/*/lib/libnvrtc.so*")
    ]
    if not found:
        pytest.skip("needs NVRTC from a Python package")
    sites = tmp_path / "env" / "lib" / "python3.99" / "site-packages"
    (sites / "nvidia" / "nvrtc").mkdir(parents=True)
    (sites / "nvidia" / "nvrtc" / "lib").symlink_to(found[0].parent)
    program = tmp_path / "env" / "bin" / "aicf"
    program.parent.mkdir()
    shutil.copy2(shutil.which(cli.path) or cli.path, program)
    nothing = {"AICF_CUDA_PATH": "", "CUDA_HOME": "", "VIRTUAL_ENV": ""}
    rows = Cli(str(program), tmp_path).json("doctor", **nothing)["libraries"]
    assert [row["path"].startswith(str(sites)) for row in rows if row["name"] == "nvrtc"] == [True]

    # Built in a tree of ours, beside the environment that its setup made; in no other folder is there one.
    tree = tmp_path / "tree"
    built = tree / "build" / "bin" / "aicf"
    built.parent.mkdir(parents=True)
    shutil.copy2(program, built)
    (tree / ".venv").symlink_to(tmp_path / "env")
    for header in (False, True):
        if header:
            (tree / "include" / "aicf").mkdir(parents=True)
            (tree / "include" / "aicf" / "aicf.h").touch()
        rows = Cli(str(built), tmp_path).json("doctor", **nothing)["libraries"]
        inside = [row["found"] and str(tree) in row["path"] for row in rows if row["name"] == "nvrtc"]
        assert inside == [header]

    shutil.copytree(Path(aicf.__file__).parent, sites / "aicf")
    script = """if True:
        import aicf
        aicf.compile(lambda x: x + 1, [aicf.TensorSpec((8,))], options={"target": "cpu,sm_90"})
        print(aicf.__file__, [line.split()[-1] for line in open("/proc/self/maps") if "libnvrtc.so" in line])
    """
    environment = {**os.environ, **nothing, "PYTHONPATH": str(sites)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(sites)) and str(found[0].parent.resolve()) in done.stdout


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
        assert cli.json(*validate, **variables)["passed"]
    else:
        for words in (bench, validate):
            error = cli.json(*words, code=3, **variables)["error"]
            assert error["code"] == "AICF-E0005" and error["value"] == "onnxruntime"


def test_a_missing_peer_is_an_environment_error(cli: Cli) -> None:
    for words in (
        ("bench", "m.onnx", *FIXED, "--against", "torch"),
        ("validate", "m.onnx", *FIXED, "--against", "onnxruntime"),
    ):
        error = cli.json(*words, code=3, VIRTUAL_ENV=str(cli.folder))["error"]  # no Python in there
        assert error["code"] == "AICF-E0005" and error["kind"] == "environment" and error["remedy"]


def test_environment_variables(cli: Cli) -> None:
    shown = cli.run("compile", "m.onnx", *DIM, AICF_DEBUG="1").stderr
    assert "stage passes: " in shown and "pass simplify" not in shown
    shown = cli.run("compile", "m.onnx", *DIM, AICF_DEBUG="2").stderr
    assert "pass simplify of main: " in shown and "entry main: " not in shown
    shown = cli.run("compile", "m.onnx", *DIM, AICF_DEBUG="3").stderr
    assert "entry main: " in shown and "unchanged" not in shown
    assert "unchanged" in cli.run("compile", "m.onnx", *DIM, AICF_DEBUG="4").stderr
    assert cli.run("run", "m.aicf").stderr == ""
    shown = cli.run("run", "m.aicf", AICF_LOG_LEVEL="info").stderr
    assert "aicf[info]: loaded a model for cpu" in shown and "aicf[info]: bound entry main" in shown
    plain = cli.run("run", "m.aicf").stdout
    assert cli.run("run", "m.aicf", AICF_WARMUP="3").stdout == plain
    for name in (
        "AICF_DEBUG",
        "AICF_LOG_LEVEL",
        "AICF_WARMUP",
        "AICF_MAX_MEMORY",
        "AICF_MAX_SECONDS",
        "AICF_NUM_THREADS",
    ):
        verb = ("compile", "m.onnx", *DIM) if name == "AICF_DEBUG" else ("run", "m.aicf")
        error = cli.json(*verb, code=2, **{name: "nonsense"})["error"]
        assert error["code"] == "AICF-U0001" and error["op"] == name
    for name in ("AICF_JIT", "AICF_VENDOR_LIBRARIES"):
        error = cli.json("compile", "m.onnx", *DIM, "--target", "sm_90", code=2, **{name: "off"})["error"]
        assert error["code"] == "AICF-U0001" and error["op"] == name


def test_limits_refuse_before_running(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM)
    for name, value in (("AICF_MAX_MEMORY", "1K"), ("AICF_MAX_SECONDS", "1e-12")):
        error = cli.json("run", "m.aicf", code=2, **{name: value})["error"]
        assert error["code"] == "AICF-U0503" and name in error["remedy"]


def test_output_that_cannot_be_written_is_an_environment_error(cli: Cli) -> None:
    for redirection in ("> /dev/full", ">&-"):
        for words in ("doctor", "doctor --json"):
            shell = f"'{cli.path}' {words} {redirection}"
            done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
            assert done.returncode == 3 and "AICF-E0001" in done.stderr, (shell, done)
    # A reader that leaves is no reason to be killed: exit codes stay below 124.
    many = f"set -o pipefail; '{cli.path}' doctor --json | exec 0<&-"
    code = subprocess.run(["bash", "-c", many], capture_output=True, check=False).returncode
    assert code in (0, 3), code


def test_a_limit_on_file_sizes_is_an_error_and_leaves_nothing(cli: Cli) -> None:
    limited = subprocess.run(
        [cli.path, "compile", "m.onnx", *DIM],
        cwd=cli.folder,
        capture_output=True,
        text=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024)),
    )
    assert limited.returncode == 3
    assert "error[AICF-E0001]" in limited.stderr
    assert os.listdir(cli.folder) == ["m.onnx"]


def test_a_name_as_long_as_names_can_be(cli: Cli) -> None:
    name = "m" * 250 + ".aicf"
    cli.run("compile", "m.onnx", *DIM, "-o", name)
    cli.run("inspect", name, "--check")
    cli.run("compile", "m.onnx", *DIM, "-o", "m" + name, code=3)
    assert sorted(os.listdir(cli.folder)) == ["m.onnx", name]


def test_errors_of_the_command_line_are_json_too(cli: Cli) -> None:
    for words in ((), ("nonsense",), ("compile",), ("run", "a", "b"), ("bench", "--repeat", "x", "m.aicf")):
        assert cli.json(*words, code=2)["error"]["code"] == "AICF-U0001"
    error = cli.json("nonsense", code=2)["error"]
    assert error["value"] == "nonsense" and "compile, run" in error["expected"]


def test_the_default_tolerance_fits_the_dtype(cli: Cli) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]>'
        "g (float16[64, 64] x, float16[64, 64] w) => (float16[64, 64] y) { y = MatMul (x, w) }"
    )
    (cli.folder / "half.onnx").write_bytes(model.SerializeToString())
    assert cli.json("validate", "half.onnx")["passed"]
    assert not cli.json("validate", "half.onnx", "--rtol", "1e-6", "--atol", "0", code=1)["passed"]

"""What the command line refuses: exit codes, error codes, and their JSON."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import subprocess

import numpy as np
import onnx.parser
import pytest
from cli_program import DIM, FIXED, Cli


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
        (["compile", "m.onnx", "--dim", "batch=nix*"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--choose", "*=nothing"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--stop-after", "plan", "-o", "x.aicf"], 2, "AICF-U0001"),
        (["verify", "m.onnx", *FIXED, "-n", "99999999999999999999"], 2, "AICF-U0001"),
        (["compile", "m.onnx", *DIM, "--precision", "f8"], 2, "AICF-U0002"),
        (["compile", "missing.onnx"], 2, "AICF-U0003"),
        (["inspect", "m.onnx"], 2, "AICF-U0500"),
        (["run", "m.onnx", *FIXED, "--input", "x"], 2, "AICF-U0001"),
        (["bench", "m.onnx", *FIXED, "--repeat", "0"], 2, "AICF-U0001"),
        (["bench", "m.onnx", *FIXED, "--against", "nothing"], 2, "AICF-U0001"),
        (["bench", "m.onnx", *FIXED, "--against", "onnxruntime,onnxruntime"], 2, "AICF-U0001"),
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


def test_a_folder_is_no_model(cli: Cli) -> None:
    for name, verb in (("d.aicf", "run"), ("d.aicf", "inspect"), ("d.onnx", "compile")):
        (cli.folder / name).mkdir(exist_ok=True)
        error = cli.json(verb, name, code=2)["error"]
        assert (error["code"], error["value"], error["actual"]) == ("AICF-U0001", name, "a directory")


def test_no_output_overwrites_an_input(cli: Cli) -> None:
    x = np.ones((2, 16), np.float32)
    np.save(cli.folder / "y.npy", x)
    given = ("m.onnx", *DIM, "--input", "x=y.npy")
    for words in (("run", *given, "--output-dir", "."), ("profile", *given, "-o", "y.npy")):
        assert "overwrite" in cli.json(*words, code=2)["error"]["message"]
    assert np.array_equal(np.load(cli.folder / "y.npy"), x)


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


@pytest.mark.parametrize(
    ("words", "value", "meant"),
    [
        (("bech", "m.onnx"), "bech", "bench"),
        (("complie", "m.onnx"), "complie", "compile"),
        (("help", "verfiy"), "verfiy", "verify"),
        (("run", "m.onnx", "--thread", "2"), "--thread", "--threads"),
        (("run", "m.onnx", "--out", "o"), "--out", "--output-dir"),
        (("verify", "m.onnx", "--replay=3"), "--replay", "--replays"),
        (("compile", "--presicion", "f32"), "--presicion", "--precision"),
        (("compile", "m.onnx", "--frobnicate"), "--frobnicate", None),
        (("doctor", "-q"), "-q", None),
    ],
)
def test_a_name_that_is_none_is_answered_with_the_nearest(
    cli: Cli, words: tuple[str, ...], value: str, meant: str | None
) -> None:
    error = cli.json(*words, code=2)["error"]
    assert (error["code"], error["value"]) == ("AICF-U0001", value)
    assert (f"did you mean '{meant}'?" if meant else "see 'aicf help") in error["remedy"]
    assert meant or "did you mean" not in error["remedy"]


def test_help_and_version_are_told_without_a_verb(cli: Cli) -> None:
    version = cli.run("--version").stdout
    assert re.fullmatch(r"aicf \d+\.\d+\.\d+\n", version)
    assert cli.json("--version")["version"] == version.split()[1]
    verbs = cli.run("help").stdout
    assert cli.run("--help").stdout == verbs and "Exit codes: 0 fine" in verbs
    for verb in re.findall(r"^  (\w+)  ", verbs.split("Subcommands:")[1], re.MULTILINE):
        text = cli.run("help", verb).stdout
        assert text == cli.run(verb, "--help").stdout == cli.json("help", verb)["help"]
        # Options of compiling stand once, with their defaults; elsewhere they are named.
        lists = "optimisation level 0, 1 or 2" in text
        assert lists == (verb == "compile")
        takes = verb in ("run", "bench", "verify", "validate", "explain", "profile", "tune")
        assert ("as 'aicf help compile' says: --state" in text) == takes
    text = cli.run("help", "compile").stdout
    assert all(said in text for said in ("--precision TEXT=f32", "--opt INT=2", "beside it; default cpu"))
    assert "artifact; default artifact" in text


def test_verbosity_says_what_is_done(cli: Cli) -> None:
    assert cli.run("run", "m.onnx", *FIXED).stderr == ""
    once = cli.run("run", "m.onnx", *FIXED, "-v").stderr
    assert "loaded a model for cpu" in once and "stage passes: " in once and "pass simplify" not in once
    assert "pass simplify" in cli.run("run", "m.onnx", *FIXED, "-vv").stderr
    assert "doctor took " in cli.run("doctor", "-v").stderr


def test_progress_is_for_terminals(cli: Cli) -> None:
    words = [cli.path, "verify", "m.onnx", *FIXED, "-n", "1000000"]
    mine, theirs = pty.openpty()
    process = subprocess.Popen(words, cwd=cli.folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = ""
    while not (shown := re.search(r"verify \d+/1000000  (\d+) s", text)):
        text += os.read(mine, 1000).decode()
    process.kill()
    process.wait()
    os.close(mine)
    assert int(shown[1]) >= 1  # not in the first second


def deep_model(layers: int) -> bytes:
    """A chain of products of unlike sizes: takes seconds to compile for a GPU."""
    sizes = [64 + 8 * i for i in range(layers + 1)]
    nodes, weights = [], []
    for i, shape in enumerate(zip(sizes, sizes[1:], strict=False)):
        nodes.append(onnx.helper.make_node("MatMul", [f"v{i}", f"w{i}"], [f"m{i}"]))
        nodes.append(onnx.helper.make_node("Softmax", [f"m{i}"], [f"v{i + 1}"]))
        weights.append(onnx.numpy_helper.from_array(np.ones(shape, np.float32), f"w{i}"))
    ends = [onnx.helper.make_tensor_value_info(f"v{i}", 1, [32, sizes[i]]) for i in (0, layers)]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    opsets = [onnx.helper.make_opsetid("", 17)]
    return onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


@pytest.mark.usefixtures("nvrtc")
def test_progress_of_compiling_names_its_stage(cli: Cli) -> None:
    (cli.folder / "deep.onnx").write_bytes(deep_model(6))
    words = [cli.path, "compile", "deep.onnx", "--target", "sm_90"]
    mine, theirs = pty.openpty()
    process = subprocess.Popen(words, cwd=cli.folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = ""
    with contextlib.suppress(OSError):  # the program ended
        while chunk := os.read(mine, 1000):
            text += chunk.decode()
    assert process.wait() == 0
    os.close(mine)
    shown = re.findall(r"compiling deep.onnx: (\w+)(?: \d+ of \d+)?  (\d+) s", text)
    assert shown and {stage for stage, _ in shown} <= {"import", "passes", "select", "calls", "build", "plan"}
    assert re.search(r"compiling deep.onnx: build \d+ of \d+  ", text)
    assert text.endswith("\r\033[K")


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


@pytest.mark.parametrize(
    "words",
    [
        *((*("verify", "m.onnx", *FIXED), "--threads", threads) for threads in ("1,,2", "1,", ",1", ",")),
        ("bench", "m.onnx", *FIXED, "--against", "onnxruntime,,torch"),
        ("compile", "m.onnx", *FIXED, "--target", "cpu,,sm_80"),
        ("compile", "m.onnx", *FIXED, "--target", "cpu,"),
        ("compile", "m.onnx", "--dim", "batch=1,,8"),
        ("compile", "m.onnx", "--dim", "batch=1,"),
    ],
)
def test_a_list_has_no_empty_part(cli: Cli, words: tuple[str, ...]) -> None:
    error = cli.json(*words, code=2)["error"]
    assert error["code"] in ("AICF-U0001", "AICF-U0601")


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


@pytest.mark.parametrize(
    ("words", "value", "said"),
    [
        (("run", "ids.onnx", "--input", "x=x.npy"), "ids", "add --input ids=FILE.npy, or --input random"),
        (("run", "m.aicf", "--dim", "batch=1..4"), "--dim batch=1..4", "ranges are for compiling"),
        (("compile", "m.aicf"), "m.aicf", "the .onnx file that it was made from"),
        (("explain", "m.onnx", *FIXED, "--threads", "2"), "--threads", "add --measure"),
        (("explain", "m.aicf", "--device", "cuda"), "--device", "add --measure"),
        (("tune", "m.onnx", *FIXED, "--build-only", "--samples", "3"), "--samples", "leave out one"),
    ],
)
def test_a_newcomers_mistakes_are_answered(cli: Cli, words: tuple[str, ...], value: str, said: str) -> None:
    text = (
        '<ir_version: 8, opset_import: ["": 17]> g (float[2] x, int64[2] ids) => (float[2] y)'
        " { i = Cast <to = 1> (ids)  y = Add (x, i) }"
    )
    (cli.folder / "ids.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    np.save(cli.folder / "x.npy", np.zeros(2, np.float32))
    cli.run("compile", "m.onnx", *DIM)
    error = cli.json(*words, code=2)["error"]
    assert error["value"] == value and said in error["remedy"]


def test_options_show_their_form(cli: Cli) -> None:
    for option, form in (("--dim", "--dim batch=8"), ("--input", "--input x=x.npy"), ("--range", "=0..1000")):
        assert form in cli.json("run", "m.onnx", *FIXED, option, "8", code=2)["error"]["expected"]


def test_a_compiled_file_may_have_any_name(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM, "-o", "m.aicf")
    (cli.folder / "m.aicf").rename(cli.folder / "model")
    assert cli.json("run", "model", *FIXED)["outputs"][0]["shape"] == [3, 8]
    (cli.folder / "m.onnx").rename(cli.folder / "graph")
    assert cli.json("run", "graph", *FIXED)["outputs"][0]["shape"] == [3, 8]


def test_a_seed_is_no_negative_number(cli: Cli) -> None:
    for seed in ("-1", "18446744073709551616", "1.5"):
        assert cli.json("run", "m.onnx", *FIXED, "--seed", seed, code=2)["error"]["code"] == "AICF-U0001"
    cli.run("run", "m.onnx", *FIXED, "--seed", "18446744073709551615")


def test_what_should_be_printed_is_named(cli: Cli) -> None:
    assert "--stop-after" in cli.json("compile", "m.onnx", *FIXED, "--print", code=2)["error"]["remedy"]


def test_sizes_of_a_compiled_model_bind_but_do_not_compile(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM)
    assert cli.json("run", "m.aicf", *FIXED)["outputs"][0]["shape"] == [3, 8]
    assert cli.json("run", "m.aicf", "--dim", "rows=3", code=2)["error"]["expected"] == "batch"
    assert cli.json("explain", "m.aicf", *FIXED, code=2)["error"]["value"] == "--dim"
    assert cli.json("tune", "m.aicf", code=2)["error"]["code"] == "AICF-U0001"


def test_an_option_takes_one_value_and_leaves_the_model(cli: Cli) -> None:
    assert cli.json("run", "--dim", "batch=3", "m.onnx")["outputs"][0]["shape"] == [3, 8]
    cli.run("compile", "--dim", "batch=1..8", "--skip", "fuse_regions", "m.onnx", "-o", "m.aicf")


def test_a_missing_peer_is_an_environment_error(cli: Cli) -> None:
    for words in (
        ("bench", "m.onnx", *FIXED, "--against", "torch"),
        ("validate", "m.onnx", *FIXED, "--against", "onnxruntime"),
    ):
        error = cli.json(*words, code=3, VIRTUAL_ENV=str(cli.folder))["error"]  # no Python in there
        assert error["code"] == "AICF-E0005" and error["kind"] == "environment" and error["remedy"]


def test_errors_of_the_command_line_are_json_too(cli: Cli) -> None:
    for words in ((), ("nonsense",), ("compile",), ("run", "a", "b"), ("bench", "--repeat", "x", "m.aicf")):
        assert cli.json(*words, code=2)["error"]["code"] == "AICF-U0001"
    error = cli.json("nonsense", code=2)["error"]
    assert error["value"] == "nonsense" and "compile, run" in error["expected"]

"""What `aicf compile` makes: stages, variants, buckets, states, and what `aicf inspect` shows of it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import aicf
import numpy as np
import onnx.parser
import pytest
from cli_program import DIM, Cli


def test_stages_and_dumps(cli: Cli) -> None:
    for stage in ("import", "passes", "select", "calls", "build", "plan"):
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
    stages = ["passes", "select", "calls", "build", "modules", "plan"]
    assert [stage["stage"] for stage in answer["stages"]] == stages
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


def test_a_file_after_a_failed_one_serves_all_targets(cli: Cli, fake: dict[str, str]) -> None:
    script = """if True:
        import aicf, resource
        exe = aicf.compile("m.onnx", dims={"batch": "1..8"}, device="cuda")
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
        try:
            exe.save("again.aicf")
        except aicf.EnvError as error:
            print(error)
        else:
            raise SystemExit("compiled without files")
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        exe.save("again.aicf")
    """
    environment = {**os.environ, **fake, "AICF_CACHE_DIR": ""}
    subprocess.run([sys.executable, "-c", script], cwd=cli.folder, env=environment, check=True)
    targets = [target["target"] for target in cli.json("inspect", "again.aicf")["targets"]]
    assert targets == ["sm_90", "compute_80", "cpu"]


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


def test_what_is_compiled_for_a_gpu_follows_from_its_name(fake: dict[str, str], cli: Cli) -> None:
    """Whether the machine has one, has another or has none."""
    for target in ("sm_86", "sm_90"):
        files = []
        for variables in ({}, {}, fake, {"CUDA_VISIBLE_DEVICES": ""}):
            cli.run("compile", "m.onnx", *DIM, "--target", target, **variables)
            files.append((cli.folder / "m.aicf").read_bytes())
        assert files.count(files[0]) == len(files)


def test_every_listed_candidate_can_be_forced(nvrtc: None, cli: Cli) -> None:
    # Without bundles every call stands in the plan under the candidate that runs it.
    words = ("explain", "m.onnx", *DIM, "--target", "sm_90", "--skip", "bundle_calls", "--candidates", "1000")
    kept = {"AICF_CACHE_DIR": "kept"}  # each text is compiled once
    forced = 0
    for step in cli.json(*words, **kept)["choices"]:
        names = [candidate["name"] for candidate in step["candidates"]]
        assert names and len(names) == len(set(names))
        for name in names:
            choice = f"{step['origin']}={name}"
            (chosen,) = (
                c
                for c in cli.json(*words, "--choose", choice, **kept)["choices"]
                if c["origin"] == step["origin"]
            )
            assert chosen["candidates"][chosen["chosen"]]["name"] == name
            plan = cli.run(*words, "--choose", choice, **kept).stdout
            assert re.search(rf"^ +\d+  {re.escape(name)}  .*  {re.escape(step['origin'])}$", plan, re.M), (
                choice,
                plan,
            )
            forced += len(names) > 1
    assert forced >= 8
    error = cli.json("compile", "m.onnx", *DIM, "--choose", "matmul=no_such_kernel", code=2)["error"]
    assert error["code"] == "AICF-U0001" and error["value"] == "matmul=no_such_kernel"


def test_explain_says_which_calls_were_joined_and_why(nvrtc: None, cli: Cli) -> None:
    words = ("explain", "m.onnx", *DIM, "--target", "sm_90")
    calls = cli.json(*words)["calls"]
    assert any(call["taken"] for call in calls)
    text = cli.run(*words).stdout
    for call in calls:
        assert call["target"] == "sm_90" and call["entry"] == "main" and call["calls"] and call["reason"]
        assert f"calls, {call['rule']}: {', '.join(call['calls'])}: {call['reason']}" in text
    skipped = cli.json(*words, "--skip", "bundle_calls")["calls"]
    assert not any(call["rule"] == "bundle_calls" for call in skipped)
    assert cli.json("explain", "m.onnx", *DIM)["calls"] == []


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
    growing = ("compile", "s.onnx", "--dim", "n=1..2", "--state", "past=present")
    assert cli.json(*growing, code=2)["error"]["code"] == "AICF-U0103"


def test_an_input_that_decides_a_shape_is_given_when_compiling(cli: Cli) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    sums (float[2, 3, 4] x, int64[1] axes) => (float[n, m] y) { y = ReduceSum<keepdims: int = 0>(x, axes) }"""
    (cli.folder / "sums.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())
    error = cli.json("compile", "sums.onnx", code=2)["error"]
    assert error["code"] == "AICF-U0203" and error["value"] == "axes"
    np.save(cli.folder / "axes.npy", np.array([1]))
    np.save(cli.folder / "other.npy", np.array([2]))
    (told,) = cli.json("support", "sums.onnx", code=1)["unsupported"]
    assert told["op"] == "ReduceSum" and "--value axes=x.npy" in told["reason"]
    assert cli.json("support", "sums.onnx", "--value", "axes=axes.npy")["supported"]
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


def test_support_answers_without_sizes(cli: Cli) -> None:
    """Every reason at once; what no range fits is tried with one value for each size, which is told."""
    text = """<ir_version: 8, opset_import: ["" : 18]>
        g (float[n, m] x, float["rows/2", m] z) => (float[a, b] y, float[c, d] w)
        <int64[1] two = {2}> {
          c = CenterCropPad<axes: ints = [0]>(x, two)
          s = Neg(c)
          y = Unheard(s)
          w = Unknown(z)
        }"""
    onnx.save(onnx.parser.parse_model(text), cli.folder / "two.onnx")
    told = cli.json("support", "two.onnx", code=1)
    assert [each["op"] for each in told["unsupported"]] == ["Unheard", "Unknown"]
    chosen = ("two.onnx", "--result", "s")
    told = cli.json("support", *chosen)
    assert told["supported"] and [each["op"] for each in told["of_fixed_sizes"]] == ["CenterCropPad"]
    said = cli.run("support", *chosen).stdout
    line = next(line for line in said.splitlines() if line.startswith("these need"))
    cli.run("compile", *chosen, *line.partition(": ")[2].split())
    ranges = [f"{name}=1..8" for name in told["fixed_sizes"]]
    refused = cli.json("compile", *chosen, *(f"--dim={each}" for each in ranges), code=2)
    assert refused["error"]["code"] == "AICF-U0203"


def test_the_inputs_that_the_demo_leaves_run(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = Path(__file__).parents[3]
    if not (tree / "examples" / "minilm").exists():
        pytest.skip("needs the source tree")
    monkeypatch.syspath_prepend(str(tree))
    from examples.minilm.fresh_process import store_inputs

    cli.run("compile", "m.onnx", *DIM)
    store_inputs(cli.folder / "inputs.npz", {"x": np.zeros((2, 16), np.float32)})
    assert cli.json("run", "m.aicf", "--input", "inputs.npz")["outputs"][0]["shape"] == [2, 8]


def test_a_model_may_end_at_results_of_its_nodes(cli: Cli) -> None:
    """A detector gives its boxes and scores where the ops that list them by data are not supported."""
    text = """<ir_version: 8, opset_import: ["" : 17]>
        g (float[1, 2, 4] x, float[1, 1, 2] s, int64[1] most) => (int64[n, 3] y) {
          boxes = Neg(x)
          scores = Abs(s)
          y = NonMaxSuppression(boxes, scores, most)
        }"""
    onnx.save(onnx.parser.parse_model(text), cli.folder / "nms.onnx")
    refused = cli.run("compile", "nms.onnx", code=2)
    assert "NonMaxSuppression" in refused.stderr and "--result NAME" in refused.stderr
    chosen = ("--result", "boxes", "--result", "scores")
    cli.run("support", "nms.onnx", *chosen)
    cli.run("compile", "nms.onnx", *chosen)
    told = cli.json("inspect", "nms.aicf")["targets"][0]["entries"][0]
    assert [each["name"] for each in told["inputs"]] == ["x", "s"]
    assert [each["name"] for each in told["outputs"]] == ["boxes", "scores"]
    exe = aicf.compile(str(cli.folder / "nms.onnx"), options={"results": ["scores"]})
    assert np.array_equal(exe(s=-np.ones((1, 1, 2), np.float32)), np.ones((1, 1, 2), np.float32))
    with pytest.raises(aicf.UserError, match="of this name") as error:
        aicf.compile(str(cli.folder / "nms.onnx"), options={"results": ["box"]})
    assert error.value.value == "box" and "y" in error.value.expected

"""The command line and its surroundings: variables, limits, libraries, outputs that cannot be written."""

from __future__ import annotations

import os
import resource
import shutil
import site
import subprocess
import sys
from pathlib import Path

import aicf
import pytest
from cli_program import DIM, FIXED, Cli


def test_doctor_says_what_is_there_and_what_is_missing(cli: Cli) -> None:
    answer = cli.json("doctor")
    assert {row["name"] for row in answer["libraries"]} == {"nvrtc", "cublasLt", "cudnn"}
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
        files = [line.split(maxsplit=5)[-1] for line in open("/proc/self/maps")]  # names with spaces, too
        print(aicf.__file__, [file for file in files if "libnvrtc.so" in file])
    """
    environment = {**os.environ, **nothing, "PYTHONPATH": str(sites)}
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(str(sites)) and str(found[0].parent.resolve()) in done.stdout


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


def test_without_files_for_pipes_the_system_says_why(cli: Cli) -> None:
    cli.run("compile", "m.onnx", *DIM)
    said = {"cannot create a pipe": False, "cannot start a process for verification": False}
    verbs = ("validate m.onnx --dim batch=3 --against onnxruntime", "verify m.aicf -n 1 --processes 2")
    for verb in verbs:
        for files in range(4, 40):
            shell = f"ulimit -n {files}; '{cli.path}' {verb}"
            done = subprocess.run(
                ["bash", "-c", shell], cwd=cli.folder, capture_output=True, text=True, check=False
            )
            for what in said:
                if what in done.stderr:
                    said[what] = True
                    assert "Too many open files" in done.stderr and "remedy: raise" in done.stderr
            if done.returncode == 0:
                break  # more files change nothing
    assert all(said.values()), said


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "m.onnx", *DIM, "-o", "nowhere/m.aicf"),
        ("profile", "m.onnx", *DIM, "-o", "nowhere/t.json"),
        ("tune", "m.onnx", "--dim", "batch=2", "--output", "nowhere/r.csv"),
    ],
    ids=lambda words: words[0],
)
def test_a_file_goes_into_a_folder_that_exists(cli: Cli, words: tuple[str, ...]) -> None:
    error = cli.json(*words, code=3)["error"]
    assert error["code"] == "AICF-E0001" and "make the folder" in error["remedy"]
    assert not (cli.folder / "nowhere").exists()


def test_without_a_driver_the_remedy_is_one_that_helps(cli: Cli) -> None:
    missing = cli.json("doctor")["cuda_missing"]
    if missing is None:
        pytest.skip("a driver is here")
    words = ("run", "m.onnx", *FIXED)
    error = cli.json(*words, "--device", "cuda", code=3)["error"]
    assert error["remedy"] == "install NVIDIA's driver, or run on the CPU: --device cpu"
    assert missing["remedy"] == error["remedy"]
    cli.run(*words, "--device", "cpu")


def test_a_library_without_room_is_an_error_and_not_the_end(nvrtc: None, cli: Cli) -> None:
    """Its constructors abort where they find no memory, the loader where threads' data have none."""
    library = next(row["path"] for row in cli.json("doctor")["libraries"] if row["name"] == "nvrtc")

    def code(limit: int, *words: str) -> int:
        # Set by a shell: to fork this process, as a function of it needs, costs more than the run.
        confined = ["bash", "-c", f'ulimit -v {limit >> 10}; exec "$0" "$@"', cli.path, *words]
        return subprocess.run(confined, cwd=cli.folder, capture_output=True).returncode

    low, high = 0, 1 << 30
    while high - low > 64 << 10:
        middle = (low + high) // 2
        low, high = (low, middle) if code(middle, "--version") == 0 else (middle, high)
    start = high + os.path.getsize(library)
    codes = {
        limit: code(limit, "compile", "m.onnx", *DIM, "--target", "sm_90")
        for limit in range(start, start + (20 << 20), 256 << 10)
    }
    assert set(codes.values()) <= {0, 3}, codes


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

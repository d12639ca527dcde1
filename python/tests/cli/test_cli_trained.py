"""A trained file on the command line: its entries run, and go out as a model of their own or as weights."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
from pathlib import Path

import aicf
import numpy as np
import pytest
from aicf import nn, optim
from cli_program import DIM, Cli

ROWS, TOTAL = 16, 20


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with train.aicf, whose schedule ends after TOTAL steps, and with data for it."""
    folder = tmp_path_factory.mktemp("trained")
    nn.seed(0)
    model = nn.Sequential(nn.Linear(8, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 4))
    step = aicf.compile_train_step(
        model,
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.AdamW(optim.cosine(1e-2, total=TOTAL, warmup=2)),
        inputs=[aicf.TensorSpec((ROWS, 8)), aicf.TensorSpec((ROWS,), "i64", "labels")],
    )
    step.save(folder / "train.aicf")
    x = np.random.default_rng(0).standard_normal((64, 8)).astype(np.float32)
    np.save(folder / "x.npy", x)
    np.save(folder / "labels.npy", x[:, :4].argmax(1))
    np.save(folder / "batch.npy", x[:ROWS])
    return folder


@pytest.fixture
def at(cli: Cli, trained: Path) -> Cli:
    return Cli(cli.path, trained)


def train(at: Cli, steps: int, output: str, *words: str) -> list[str]:
    data = ("--data", "x.npy", "--labels", "labels.npy")
    return ["train", "train.aicf", *data, "--steps", str(steps), "-o", output, *words]


def test_a_rate_of_zero_says_so(at: Cli) -> None:
    """A schedule that has ended leaves the params as they are: nothing else shows it."""
    assert "rate 0" not in at.run(*train(at, 10, "ten.aicf")).stdout
    assert at.json(*train(at, 10, "ten.aicf"))["rate"] > 0
    text = at.run(*train(at, TOTAL + 5, "all.aicf")).stdout
    assert "ran at rate 0: the schedule has ended" in text
    assert at.json(*train(at, TOTAL + 5, "all.aicf"))["rate"] == 0


def test_a_progress_line_at_a_rate_of_zero_says_so(at: Cli) -> None:
    mine, theirs = pty.openpty()
    words = [at.path, *train(at, 10_000_000, "all.aicf")]
    process = subprocess.Popen(words, cwd=at.folder, stdout=subprocess.DEVNULL, stderr=theirs)
    os.close(theirs)
    text = ""
    while not (shown := re.search(r"step (\d+)/10000000 [^\r]*  rate 0(?![.\d])(.*?)  \d+ s\r", text)):
        text += os.read(mine, 1000).decode()
    process.kill()
    process.wait()
    os.close(mine)
    assert int(shown[1]) >= TOTAL and shown[2] == ": the schedule has ended: params stay as they are"


def test_every_entry_runs(at: Cli, tmp_path: Path) -> None:
    at.run(*train(at, 10, "trained.aicf"))
    (target,) = at.json("inspect", "trained.aicf")["targets"]
    (name,) = [entry["inputs"][0]["name"] for entry in target["entries"] if entry["name"] == "eval"]
    given = ("--entry", "eval", "--input", f"{name}=batch.npy")
    at.run("run", "trained.aicf", *given, "--output-dir", str(tmp_path))
    y = np.load(tmp_path / "output.npy")
    step = aicf.load_train_step(at.folder / "trained.aicf")
    np.testing.assert_array_equal(y, np.asarray(step.evaluate(np.load(at.folder / "batch.npy"))))
    assert at.json("bench", "trained.aicf", *given, "--repeat", "2")["entry"] == "eval"
    assert at.json("verify", "trained.aicf", *given, "-n", "3", "--processes", "2")["replays"] == 6
    at.run("profile", "trained.aicf", *given, "--repeat", "2", "-o", str(tmp_path / "t.json"))
    for verb in ("run", "bench", "verify", "profile"):
        error = at.json(verb, "trained.aicf", "--entry", "evel", code=2)["error"]
        assert error["expected"] == "step, eval"


def test_a_trained_model_goes_out_without_its_optimizer(at: Cli, tmp_path: Path) -> None:
    at.run(*train(at, 10, "trained.aicf"))
    answer = at.json("export", "trained.aicf", "-o", "model.aicf")
    assert answer["entries"] == ["eval"]
    model, trained = at.folder / "model.aicf", at.folder / "trained.aicf"
    assert model.stat().st_size < trained.stat().st_size
    at.run("inspect", "model.aicf", "--check")
    (target,) = at.json("inspect", "model.aicf")["targets"]
    assert [entry["name"] for entry in target["entries"] if entry["name"] != "init"] == ["eval"]
    assert not target["states"]
    x = np.load(at.folder / "batch.npy")
    y = np.asarray(aicf.load(model)(x))
    np.testing.assert_array_equal(y, np.asarray(aicf.load_train_step(trained).evaluate(x)))
    # The text of the program is that of the entry, too.
    assert at.json("inspect", "model.aicf", "--passes")["passes"]
    at.run("export", "trained.aicf", "-o", str(tmp_path / "again.aicf"))
    assert (tmp_path / "again.aicf").read_bytes() == model.read_bytes()
    with pytest.raises(aicf.UserError, match="no train step"):
        aicf.load_train_step(model)
    assert at.json("train", "model.aicf", "--data", "x.npy", "--steps", "1", code=2)["error"]["code"] == (
        "AICF-U0807"
    )


def test_trained_weights_go_out_as_safetensors(at: Cli) -> None:
    at.run(*train(at, 10, "trained.aicf"))
    at.run("export", "trained.aicf", "-o", "model.safetensors")
    tensors = aicf.load_safetensors(at.folder / "model.safetensors")
    states = aicf.load_train_step(at.folder / "trained.aicf").state_dict()
    wanted = {name for name in states if not name.startswith(("opt.", "rng."))}
    assert set(tensors) == wanted and wanted
    for name in wanted:
        np.testing.assert_array_equal(np.asarray(tensors[name]), np.asarray(states[name]))
    # Also with the step among the entries: moments are no weights.
    at.run("export", "trained.aicf", "-o", "step.safetensors", "--entry", "step")
    tensors = aicf.load_safetensors(at.folder / "step.safetensors")
    assert not [name for name in tensors if name.startswith("opt.")]


def test_what_cannot_be_exported_is_told(at: Cli, cli: Cli) -> None:
    for words, code, said in (
        (("trained.aicf", "-o", "m.onnx"), "AICF-U0002", "-o model.safetensors"),
        (("trained.aicf", "-o", "m.txt"), "AICF-U0001", "-o model.aicf"),
        (("trained.aicf",), "AICF-U0001", "-o model.aicf"),
        (("trained.aicf", "-o", "trained.aicf"), "AICF-U0001", "another file"),
        (("nothing.aicf", "-o", "m.aicf"), "AICF-U0003", ""),
        (("trained.aicf", "-o", "m.aicf", "--entry", "evil"), "AICF-U0001", ""),
    ):
        at.run(*train(at, 1, "trained.aicf"))
        error = at.json("export", *words, code=2)["error"]
        assert error["code"] == code and said in error["remedy"], error
    error = cli.json("export", "m.onnx", "-o", "m.aicf", code=2)["error"]
    assert "aicf compile m.onnx" in error["remedy"]
    cli.run("compile", "m.onnx", *DIM)
    before = cli.run("run", "m.aicf").stdout
    cli.run("export", "m.aicf", "-o", "copy.aicf")
    assert cli.run("run", "copy.aicf").stdout == before
    assert json.loads(cli.run("export", "m.aicf", "-o", "w.safetensors", "--json").stdout)["tensors"] == 3

"""Every option of every verb has an effect or is refused: a table of all of them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from aicf import nn, optim
from cli_program import Cli

EVERY_VERB = {"--json", "-v", "--verbose", "-h", "--help"}
ONNX = {
    "--state",
    "--value",
    "--result",
    "--target",
    "--precision",
    "--opt",
    "--skip",
    "--records",
    "--choose",
}
RANDOM = {"--input", "--range", "--seed"}
PLACE = {"--device", "--threads", "--isa"}
REPLAY = ONNX | RANDOM | PLACE | {"--dim", "--entry"}

# What each verb takes besides, one name for each option.
OWN = {
    "compile": ONNX | {"--dim", "--stop-after", "--print", "--dump-after", "--output"},
    "run": REPLAY | {"--output-dir"},
    "bench": REPLAY | {"--repeat", "--warmup", "--kernels", "--against"},
    "verify": REPLAY | {"--replays", "--busy", "--processes"},
    "validate": REPLAY - {"--entry"} | {"--inputs", "--against", "--rtol", "--atol", "--reduce"},
    "support": {"--dim", "--value", "--result"},
    "inspect": {"--check", "--passes"},
    "explain": ONNX | PLACE | {"--dim", "--candidates", "--measure"},
    "profile": REPLAY | {"--repeat", "--output"},
    "train": PLACE
    | {"--data", "--labels", "--steps", "--batch", "--seed", "--in-order"}
    | {"--checkpoint", "--checkpoint-every", "--resume", "--output"},
    "export": {"--output", "--entry"},
    "tune": (ONNX - {"--records", "--choose"})
    | PLACE
    | {"--dim", "--output", "--seconds", "--count", "--samples", "--libraries", "--again", "--build-only"},
    "doctor": set(),
}

# What an option is given, for verbs that compile m.onnx (x f32[batch, 16] to y f32[batch, 8]).
GIVEN: dict[str, tuple[str, ...]] = {
    "--dim": ("--dim", "batch=4"),
    "--state": ("--state", "x=y"),
    "--value": ("--value", "x=x.npy"),
    "--result": ("--result", "h"),
    "--target": ("--target", "sm_90"),
    "--precision": ("--precision", "bf16-mixed"),
    "--opt": ("--opt", "0"),
    "--skip": ("--skip", "fuse_regions"),
    "--records": ("--records", "nothing.csv"),
    "--choose": ("--choose", "*=matmul_f32"),
    "--input": ("--input", "x=x.npy"),
    "--range": ("--range", "x=3..5"),
    "--seed": ("--seed", "3"),
    "--device": ("--device", "cuda:7"),
    "--threads": ("--threads", "-1"),
    "--isa": ("--isa", "nothing"),
    "--entry": ("--entry", "other"),
}
SPECIAL: dict[tuple[str, str], tuple[str, ...]] = {
    ("compile", "--stop-after"): ("--stop-after", "passes"),
    ("compile", "--print"): ("--print",),
    ("compile", "--dump-after"): ("--dump-after", "simplify"),
    ("compile", "--output"): ("--output", "other.aicf"),
    ("run", "--output-dir"): ("--output-dir", "out"),
    ("bench", "--repeat"): ("--repeat", "7"),
    ("bench", "--warmup"): ("--warmup", "-1"),
    ("bench", "--kernels"): ("--kernels",),
    ("bench", "--against"): ("--against", "nothing"),
    ("verify", "--replays"): ("--replays", "7"),
    ("verify", "--busy"): ("--busy", "-v"),
    ("verify", "--processes"): ("--processes", "2"),
    ("verify", "--threads"): ("--threads", "1,2"),
    ("validate", "--inputs"): ("--inputs", "x.npz"),
    ("validate", "--against"): ("--against", "y.npz"),
    ("validate", "--rtol"): ("--rtol", "0", "--atol", "0"),
    ("validate", "--atol"): ("--atol", "-1"),
    ("validate", "--reduce"): ("--reduce", "small.onnx"),
    ("support", "--value"): ("--value", "none=x.npy"),
    ("support", "--dim"): ("--dim", "other=3"),
    ("support", "--result"): ("--result", "nothing"),
    ("inspect", "--check"): ("--check",),
    ("inspect", "--passes"): ("--passes",),
    ("explain", "--candidates"): ("--candidates", "0"),
    ("explain", "--measure"): ("--measure",),
    ("profile", "--repeat"): ("--repeat", "0"),
    ("profile", "--output"): ("--output", "other.json"),
    ("train", "--data"): ("--data", "x=train/other.npy"),
    ("train", "--labels"): ("--labels", "train/other.npy"),
    ("train", "--steps"): ("--steps", "3"),
    ("train", "--batch"): ("--batch", "5"),
    ("train", "--in-order"): ("--in-order",),
    ("train", "--checkpoint"): ("--checkpoint", "c"),
    ("train", "--checkpoint-every"): ("--checkpoint-every", "1"),
    ("train", "--resume"): ("--resume", "--checkpoint", "saved"),
    ("train", "--output"): ("--output", "trained.aicf"),
    ("export", "--output"): ("--output", "other.aicf"),
    ("export", "--entry"): ("--entry", "step"),
    ("tune", "--output"): ("--output", "other.csv"),
    ("tune", "--seconds"): ("--seconds", "1e-9"),
    ("tune", "--count"): ("--count", "0"),
    ("tune", "--value"): ("--value", "none=x.npy"),
    ("tune", "--samples"): ("--samples", "7"),
    ("tune", "--libraries"): ("--libraries", "-1"),
    ("tune", "--again"): ("--again", "--output", "again.csv"),
    ("tune", "--build-only"): ("--build-only",),
}
# The command that an option is added to, but for those of its own options that the added one replaces.
BASE: dict[str, tuple[tuple[str, ...], ...]] = {
    "compile": (("m.onnx",), ("--dim", "batch=1..8")),
    "run": (("m.onnx",), ("--dim", "batch=3"), ("--output-dir", "y")),
    "bench": (("m.onnx",), ("--dim", "batch=3"), ("--repeat", "2"), ("--warmup", "0")),
    "verify": (("m.onnx",), ("--dim", "batch=3"), ("--replays", "2")),
    "validate": (("m.onnx",), ("--dim", "batch=3")),
    "support": (("m.onnx",),),
    "inspect": (("m.aicf",),),
    "explain": (("m.onnx",), ("--dim", "batch=3")),
    "profile": (("m.onnx",), ("--dim", "batch=3"), ("--repeat", "2"), ("--output", "t.json")),
    "train": (
        ("train.aicf",),
        ("--data", "x=train/x.npy"),
        ("--labels", "train/labels.npy"),
        ("--steps", "2"),
    ),
    "export": (("train.aicf",), ("--output", "e.aicf")),
    "tune": (("m.onnx",), ("--dim", "batch=3"), ("--output", "r.csv"), ("--samples", "1"), ("--count", "2")),
    "doctor": (),
}
# What has to be there before: a checkpoint to go on from, records that are not measured again.
BEFORE: dict[tuple[str, str], tuple[str, ...]] = {
    ("train", "--resume"): ("--checkpoint", "saved"),
    ("tune", "--again"): ("--output", "again.csv"),
}
# Times, of which only the number of samples is compared.
TIMES = {
    *("ms", "seconds", "us", "median", "q1", "q3", "runs_per_second", "host_us", "host_first_us"),
    *("steps_per_second", "stamped_us", "replay_us", "measured_us", "heuristic_us", "choice", "changed"),
    "cpu_ms_in_other_turns",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, mlp: bytes) -> Path:
    """m.onnx, m.aicf, train.aicf and arrays for them."""
    place = tmp_path_factory.mktemp("options")
    (place / "m.onnx").write_bytes(mlp)
    x = np.random.default_rng(5).standard_normal((3, 16)).astype("f")
    np.save(place / "x.npy", x)
    np.savez(place / "x.npz", x=x)
    np.savez(place / "y.npz", y=np.zeros((3, 8), "f"))
    aicf.compile(str(place / "m.onnx"), dims={"batch": "1..8"}).save(place / "m.aicf")
    nn.seed(0)
    step = aicf.compile_train_step(
        nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)),
        loss=nn.CrossEntropyLoss(),
        optimizer=optim.AdamW(1e-2),
        inputs=[aicf.TensorSpec((4, 4), name="x"), aicf.TensorSpec((4,), "i64", "labels")],
    )
    step.save(place / "train.aicf")
    (place / "train").mkdir()
    for name, seed in (("x", 0), ("other", 1)):
        data = np.random.default_rng(seed).standard_normal((16, 4)).astype("f")
        np.save(place / "train" / f"{name}.npy", data)
    np.save(place / "train" / "labels.npy", np.random.default_rng(6).integers(0, 2, 16))
    return place


def command(verb: str, added: tuple[str, ...] = ()) -> list[str]:
    base = [words for words in BASE[verb] if words[0] not in added]
    return [word for words in (*base, added) for word in words]


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: None if k in TIMES else without_times(v) for k, v in value.items()}
    if isinstance(value, list) and value and all(isinstance(each, float) for each in value):
        return len(value)
    return [without_times(each) for each in value] if isinstance(value, list) else value


def seen(cli: Cli, place: Path, verb: str, words: list[str]) -> Any:
    """All that a run shows, by itself and by what it says of its steps, and the names of what it leaves."""
    before = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    done = Cli(cli.path, place).finished(
        verb, *words, "--json", AICF_DEBUG="3", AICF_LOG_LEVEL="info", AICF_CACHE_DIR=""
    )
    assert done.returncode in (0, 1, 2, 3), done.stderr
    after = {path: path.read_bytes() for path in place.rglob("*") if path.is_file()}
    for path in after.keys() - before.keys():
        path.unlink()
    for path, contents in before.items():
        path.write_bytes(contents)
    answer = json.loads(done.stdout)
    if done.returncode > 1:
        return answer["error"]
    values = [contents for path, contents in after.items() if path.suffix == ".npy" and path not in before]
    said = re.sub(r"\d+\.\d+( ms| us| s| MiB|x)?", "#", done.stderr)
    return without_times(answer), said, sorted(str(path) for path in after.keys() - before.keys()), values


@pytest.mark.parametrize("verb", OWN)
def test_the_table_lists_every_option(cli: Cli, verb: str) -> None:
    text = cli.json("help", verb)["help"]
    listed = [set(line.split(",")) for line in re.findall(r"^  (-[\w,-]+)", text, re.MULTILINE)]
    named = re.search(r"as 'aicf help compile' says:(.*)", text)
    own = [names for names in listed if not names & EVERY_VERB] + [
        {n} for n in (named[1].split() if named else [])
    ]
    assert [names for names in own if len(names & OWN[verb]) != 1] == []
    assert OWN[verb] == {name for names in own for name in names & OWN[verb]}
    assert {"--json", "--verbose"} <= {name for names in listed for name in names}


@pytest.mark.parametrize("verb", OWN)
def test_a_run_is_seen_twice_as_the_same(cli: Cli, folder: Path, verb: str) -> None:
    """Else the next test could not fail."""
    assert seen(cli, folder, verb, command(verb)) == seen(cli, folder, verb, command(verb))


@pytest.mark.parametrize(("verb", "option"), [(v, o) for v, own in OWN.items() for o in sorted(own)])
def test_an_option_has_an_effect_or_is_refused(cli: Cli, folder: Path, verb: str, option: str) -> None:
    given = SPECIAL.get((verb, option)) or GIVEN[option]
    plain = command(verb)
    if (verb, option) in BEFORE:
        plain = command(verb, BEFORE[verb, option])
        Cli(cli.path, folder).run(verb, *plain)
    got = seen(cli, folder, verb, command(verb, given))
    assert got != seen(cli, folder, verb, plain)
    if isinstance(got, dict):
        assert got["code"].startswith(("AICF-U", "AICF-E"))

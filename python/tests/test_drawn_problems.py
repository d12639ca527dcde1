"""The generator of drawn problems is frozen, reproducible, varied, and sizes problems into their class.

drawn_golden.json holds the first problems of seed 0, made by `python bench/drawn_problems.py --freeze`."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="problems are sized on torch's meta device")

import drawn_problems as drawn
import torch
from drawn_estimate import Kernel, kernels_of, total_of
from drawn_family import on_meta
from drawn_streams import Stream

GOLDEN = json.loads(Path(__file__).with_name("drawn_golden.json").read_text())
INSTALLED = {
    name: importlib.util.find_spec(name) is not None for name in ("transformers", "timm", "torchvision")
}


def installed(family: Any) -> bool:
    """timm needs torchvision; a family whose library is not there is tried where it is."""
    needs = {"torch": [], "timm": ["timm", "torchvision"]}.get(family.library, [family.library])
    return all(INSTALLED[name] for name in needs)


def test_the_generator_is_the_frozen_one() -> None:
    assert drawn.generator_hash() == drawn.frozen_hash(), (
        "run python bench/drawn_problems.py --reach --freeze"
    )


def test_a_stream_is_a_function_of_its_words() -> None:
    assert [Stream("a", 1).bits() for _ in range(2)] == [Stream("a", 1).bits()] * 2
    assert Stream("a", 1).bits() != Stream("a", 2).bits() != Stream("b", 1).bits()
    assert Stream("a", 1).bits() == 11836036119350946124
    assert sorted(Stream("s").shuffled(range(9))) == list(range(9))


def test_no_family_is_above_six_percent() -> None:
    for device, modes in drawn.MODES.items():
        for mode in modes:
            draws = Counter(drawn.draw_family(3, device, mode, i) for i in range(5000))
            name, most = draws.most_common(1)[0]
            # 6 % and two standard deviations of a count
            assert most <= 0.06 * 5000 + 2 * (5000 * 0.06 * 0.94) ** 0.5, (device, mode, name, most)
            assert mode == "int8" or len(draws) >= 50, (device, mode, len(draws))


def test_thirds_and_doors_come_in_turn() -> None:
    for device in drawn.MODES:
        thirds = [drawn.third_of(5, device, "train", i) for i in range(30)]
        assert all(sorted(thirds[i : i + 3]) == sorted(drawn.CLASSES) for i in range(0, 30, 3))
    assert [drawn.door_of("cuda", "train", i) for i in range(8)].count("backend") == 2
    assert [drawn.door_of("cpu", "train", i) for i in range(10)].count("backend") == 3
    assert drawn.door_of("cuda", "inference", 3) == "call"


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_draws_are_the_golden_ones(device: str) -> None:
    """Whatever the count, the machine and the state of torch's random numbers."""
    families = drawn.families()
    rows = [r for r in GOLDEN if r["device"] == device and installed(families[r["family"]])]
    torch.manual_seed(Stream(device).below(1000))
    for row in rows[:: max(1, len(rows) // 8)]:
        found = drawn.draw(0, device, row["mode"], row["index"]).as_dict()
        assert {k: found[k] for k in ("name", "third", "door")} == {
            k: row[k] for k in ("name", "third", "door")
        }
        assert found["seconds"] == pytest.approx(row["seconds"], rel=0.05)


def test_estimates_lie_in_their_class() -> None:
    families = drawn.families()
    for row in GOLDEN:
        assert drawn.fits(row["seconds"], row["device"], row["third"]), row["name"]
        assert row["family"] in families


def test_every_family_builds_on_meta() -> None:
    """At its smallest sizes, and at larger ones takes longer."""
    tried = 0
    for name, family in drawn.families().items():
        if not installed(family):
            continue
        knobs = {knob: choices[0] for knob, choices in family.knobs.items()}
        case, inputs = on_meta(family, knobs | family.smallest())
        assert all(p.is_meta for p in case.model.parameters()), name
        total = total_of(kernels_of(case.model, inputs), "cuda", "f16")
        assert 0 < total.seconds < 2e-3 and total.flops > 0 and total.bytes > 0, name
        tried += 1
    assert tried >= 38


def test_the_estimate_counts_what_it_says() -> None:
    layer = torch.nn.Linear(1024, 4096, bias=False, device="meta")
    (kernel,) = kernels_of(layer, [torch.empty(512, 1024, device="meta")])
    assert kernel == Kernel(
        "contraction", 2.0 * 512 * 1024 * 4096, 512 * 1024 + 1024 * 4096 + 512 * 4096, 512.0 * 4096
    )
    one, step = total_of([kernel], "cuda", "f32"), total_of([kernel], "cuda", "f32", "adamw", 1024 * 4096)
    assert one.bytes == 4 * kernel.elements and step.flops == 3 * one.flops
    assert step.bytes == 3 * one.bytes + 28 * 1024 * 4096

    chain = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh(), torch.nn.Sigmoid())
    (fused,) = kernels_of(chain, [torch.empty(1000, device="meta")])
    assert fused == Kernel("pointwise", 0.0, 2000.0, 1000.0)


def test_list_shows_the_problems() -> None:
    script = Path(drawn.__file__).with_name("drawn.py")
    command = [sys.executable, str(script), "--seed", "0", "--device", "cpu", "--list", "--count", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    row = next(r for r in GOLDEN if (r["device"], r["mode"], r["index"]) == ("cpu", "inference", 0))
    assert row["name"] in done.stdout and row["third"] in done.stdout

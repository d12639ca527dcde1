"""The generator of drawn problems: families, draws and sizes, no timing. `bench/drawn.py` runs them.

Problem i of a seed follows from the seed, the device's kind ("cuda", "cpu"), the mode and i alone, whatever
the count:

1. Three problems in a row have the three classes of time, in a drawn order.
2. The family is drawn among those that reach the class (`drawn_reach.json`), each as likely as the others.
3. Its knobs, the dtype and the optimizer are drawn, and a time within the class.
4. Sizes go up from the smallest, one step of one size of the ladder at a time in a drawn order, until the
   estimate meets that time (`drawn_estimate.py`).

Where no size fits, the family's knobs are drawn anew, and after a few tries the family. The files of the
generator have one hash, which `drawn_hash.txt` freezes: results of two generators are not compared.

    python bench/drawn_problems.py --reach     writes drawn_reach.json anew, after families changed
    python bench/drawn_problems.py --freeze    writes drawn_hash.txt and the golden list of the tests
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

from drawn_streams import Stream

__all__ = ["CLASSES", "GENERATOR", "MODES", "Problem", "draw", "draw_family", "frozen_hash", "generator_hash"]

HERE = Path(__file__).resolve().parent
GENERATOR = (
    "drawn_streams.py", "drawn_estimate.py", "drawn_family.py", "drawn_families_text.py",
    "drawn_families_vision.py", "drawn_families_sequence.py", "drawn_families_dense.py", "drawn_problems.py",
    "drawn_reach.json",
)  # fmt: skip
CLASSES = ("short", "middle", "long")
# Seconds between which a class lies by the peer's time, and between which the estimate is drawn.
LIMITS = {"cuda": (0.0, 200e-6, 1e-3, math.inf), "cpu": (0.0, 2e-3, 20e-3, math.inf)}
TIMES = {
    "cuda": {"short": (25e-6, 150e-6), "middle": (260e-6, 800e-6), "long": (1.3e-3, 6e-3)},
    "cpu": {"short": (150e-6, 1.6e-3), "middle": (2.6e-3, 16e-3), "long": (26e-3, 120e-3)},
}
MODES = {"cuda": ("inference", "train"), "cpu": ("inference", "train", "int8", "halves")}
DTYPES = {
    ("cuda", "inference"): ("f16", "bf16", "tf32", "f32"),
    ("cuda", "train"): ("bf16-mixed", "f32"),
    ("cpu", "inference"): ("f32",),
    ("cpu", "train"): ("f32",),
    ("cpu", "int8"): ("int8-dynamic", "int8-static"),
    ("cpu", "halves"): ("bf16", "f16"),
}
# Parameters that a problem may have: weights in f64 and those of both sides lie beside each other.
MOST_PARAMETERS = {"cuda": 600e6, "cpu": 120e6}
KNOB_TRIES, FAMILY_TRIES = 3, 40


@dataclass(frozen=True)
class Problem:
    seed: int
    index: int
    device: str
    mode: str
    family: str
    third: str
    dtype: str
    optimizer: str  # "" of inference
    door: str  # "step": a compiled training step; "backend": torch.compile(backend="aicf"); "call": inference
    sizes: dict[str, Any]
    parameters: int
    flops: float
    bytes: float
    kernels: int
    seconds: float  # the estimate

    @property
    def name(self) -> str:
        sizes = " ".join(f"{key}={value}" for key, value in self.sizes.items())
        how = "/".join(
            x for x in (self.dtype, self.optimizer, self.door if self.mode == "train" else "") if x
        )
        return f"{self.family} {how} {sizes}"

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {"name": self.name}


def families() -> dict[str, Any]:
    """All families by name; importing them imports torch, and a library only where one is made."""
    import drawn_families_dense  # noqa: F401
    import drawn_families_sequence  # noqa: F401
    import drawn_families_text  # noqa: F401
    import drawn_families_vision  # noqa: F401
    from drawn_family import FAMILIES

    return FAMILIES


@cache
def reach() -> dict[str, dict[str, list[str]]]:
    """For "device mode", of each family the classes that it reaches."""
    return json.loads((HERE / "drawn_reach.json").read_text())


def generator_hash() -> str:
    digest = hashlib.sha256()
    for name in GENERATOR:
        digest.update(name.encode() + b"\0" + (HERE / name).read_bytes() + b"\0")
    return digest.hexdigest()[:32]


def frozen_hash() -> str:
    return (HERE / "drawn_hash.txt").read_text().strip()


def third_of(seed: int, device: str, mode: str, index: int) -> str:
    block = Stream("thirds", seed, device, mode, index // 3).shuffled(CLASSES)
    return block[index % 3]


def door_of(device: str, mode: str, index: int) -> str:
    """A quarter of the steps on a GPU, three of ten on a CPU go through torch.compile."""
    if mode != "train":
        return "call"
    backend = index % 4 == 3 if device == "cuda" else index % 10 in (3, 6, 9)
    return "backend" if backend else "step"


def draw_family(seed: int, device: str, mode: str, index: int, attempt: int = 0) -> str:
    third = third_of(seed, device, mode, index)
    reaching = sorted(name for name, thirds in reach()[f"{device} {mode}"].items() if third in thirds)
    return Stream("family", seed, device, mode, index, attempt).choice(reaching)


def estimate_dtype(dtype: str) -> str:
    return "int8" if dtype.startswith("int8") else dtype


class _Sized:
    """Kernels of one family at sizes, each pass over the model made once."""

    def __init__(self, family: Any) -> None:
        self.family = family
        self.known: dict[str, tuple[list[Any], int]] = {}

    def at(self, sizes: dict[str, Any]) -> tuple[list[Any], int]:
        key = json.dumps(sizes, sort_keys=True)
        if key not in self.known:
            from drawn_estimate import kernels_of
            from drawn_family import on_meta

            case, inputs = on_meta(self.family, sizes)
            parameters = sum(p.numel() for p in case.model.parameters())
            self.known[key] = kernels_of(case.model, inputs), parameters
        return self.known[key]

    def total(self, sizes: dict[str, Any], device: str, dtype: str, optimizer: str) -> tuple[Any, int]:
        from drawn_estimate import total_of

        kernels, parameters = self.at(sizes)
        return total_of(kernels, device, estimate_dtype(dtype), optimizer, parameters), parameters


def path_of(ladder: Any, stream: Stream) -> list[dict[str, Any]]:
    """From the smallest sizes to the largest, one step of one size at a time, in a drawn order."""
    left = [name for name, steps in ladder.items() for _ in steps[1:]]
    place = dict.fromkeys(ladder, 0)
    path = [{name: steps[0] for name, steps in ladder.items()}]
    for name in stream.shuffled(left):
        place[name] += 1
        path.append({n: ladder[n][i] for n, i in place.items()})
    return path


def _fit(
    sized: _Sized, path: list[dict[str, Any]], knobs: dict[str, Any], goal: float, how: tuple[str, str, str]
) -> dict[str, Any]:
    """The sizes of the path whose estimate is nearest to `goal`; estimates grow along it."""

    def seconds(i: int) -> float:
        return sized.total({**knobs, **path[i]}, *how)[0].seconds

    low, high = 0, len(path) - 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if seconds(middle) < goal else (low, middle)
    best = min((low, high), key=lambda i: abs(math.log(seconds(i) / goal)))
    return {**knobs, **path[best]}


def draw(seed: int, device: str, mode: str, index: int) -> Problem:
    third, door = third_of(seed, device, mode, index), door_of(device, mode, index)
    least, most = TIMES[device][third]
    for attempt in range(FAMILY_TRIES):
        family = families()[draw_family(seed, device, mode, index, attempt)]
        sized = _Sized(family)
        for trial in range(KNOB_TRIES):
            stream = Stream("knobs", seed, device, mode, index, attempt, trial)
            dtype = stream.choice(DTYPES[device, mode])
            optimizer = stream.choice(("adamw", "sgd")) if mode == "train" else ""
            knobs = {name: stream.choice(choices) for name, choices in family.knobs.items()}
            goal, how = stream.between(least, most), (device, dtype, optimizer)
            sizes = _fit(sized, path_of(family.ladder, stream), knobs, goal, how)
            total, parameters = sized.total(sizes, *how)
            if fits(total.seconds, device, third) and parameters <= MOST_PARAMETERS[device]:
                return Problem(
                    seed, index, device, mode, family.name, third, dtype, optimizer, door, sizes,
                    parameters, total.flops, total.bytes, total.kernels, total.seconds,
                )  # fmt: skip
    raise RuntimeError(f"no problem {index} of seed {seed} on {device}, {mode}")


def fits(seconds: float, device: str, third: str) -> bool:
    """An estimate counts as of its class with some room to the next one."""
    i = CLASSES.index(third)
    low, high = LIMITS[device][i], LIMITS[device][i + 1]
    return low * 1.15 <= seconds <= min(high / 1.15, 2 * TIMES[device][third][1])


def measured_reach(names: list[str] | None = None) -> dict[str, dict[str, list[str]]]:
    """Of each family the classes between its smallest and its largest sizes, for two of three draws of its
    knobs and dtypes."""
    found: dict[str, dict[str, list[str]]] = {
        f"{device} {mode}": {} for device, modes in MODES.items() for mode in modes
    }
    for name, family in families().items():
        if names and name not in names:
            continue
        sized = _Sized(family)
        for key, rows in found.items():
            device, mode = key.split()
            if mode in family.modes or (mode in ("int8", "halves") and _as_integers(family, mode)):
                rows[name] = _reached(sized, family, device, mode)
        print(
            name,
            {key: "".join(t[0] for t in rows[name]) for key, rows in found.items() if name in rows},
            flush=True,
        )
    return found


INT8 = set(
    "bert distilbert roberta_classifier electra_small vit_hf mlp tabular_residual resnet mobilenet_v2 mnasnet"
    " squeezenet vgg regnet resnext_grouped dlrm gated_mlp whisper_encoder points super_resolution".split()
)


def _as_integers(family: Any, mode: str) -> bool:
    """Families that onnxruntime's tools quantise; halves run wherever inference does."""
    return family.name in INT8 if mode == "int8" else "inference" in family.modes


def _reached(sized: _Sized, family: Any, device: str, mode: str) -> list[str]:
    ends = []
    for trial in range(3):
        stream = Stream("reach", family.name, trial)
        knobs = {name: stream.choice(choices) for name, choices in family.knobs.items()}
        path = path_of(family.ladder, stream)
        optimizer = "adamw" if mode == "train" else ""
        for dtype in DTYPES[device, mode]:
            how = (device, dtype, optimizer)
            low, high = (sized.total({**knobs, **path[i]}, *how)[0].seconds for i in (0, -1))
            ends.append((low, high))
    return [third for third in CLASSES if 3 * _between(ends, *TIMES[device][third]) >= 2 * len(ends)]


def _between(ends: list[tuple[float, float]], least: float, most: float) -> int:
    return sum(low <= most / 1.3 and high >= least * 1.3 for low, high in ends)


def golden(count: int = 12) -> list[dict[str, Any]]:
    """The first problems of seed 0 on each device in each mode."""
    return [
        draw(0, device, mode, i).as_dict()
        for device, modes in MODES.items()
        for mode in modes
        for i in range(count)
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--reach", action="store_true")
    parser.add_argument("--freeze", action="store_true")
    parser.add_argument("--only", nargs="*", help="families, with --reach: shows, and writes nothing")
    options = parser.parse_args()
    if not options.reach and (options.only or not options.freeze):
        parser.error("name --reach or --freeze; --only goes with --reach")
    if options.reach:
        found = measured_reach(options.only)
        if not options.only:
            (HERE / "drawn_reach.json").write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    if options.freeze:
        (HERE / "drawn_hash.txt").write_text(generator_hash() + "\n")
        path = HERE.parent / "python" / "tests" / "drawn_golden.json"
        path.write_text(json.dumps(golden(), indent=1) + "\n")


if __name__ == "__main__":
    main()

"""Fits src/select/measured_order_weights.inc: which candidate of a problem is likely the fastest, from the
times of the best estimated candidates of other problems.

    fit_order.py bench/results/tune_*_times.csv* --test build/test/test_select [--without FILE…] [--folds 6]

That one command refits the weights of the order; it needs no GPU. New times for it are measured on one by
`tune_unseen.py` (docs/tuning.md).

The times are record files, as tune_unseen.py writes them, or such files in xz. What measured_order.cc sees
of each candidate comes from that test (MeasuredOrder.WritesWhatItIsFittedTo). `--folds` leaves out each part
of the problems in turn and prints how the choice does on it, beside that of the estimates; without it the
weights are written.

Each op has a mean of small networks of one hidden layer, which adds to the logarithm of the estimate. The
loss is what choosing by it costs: the logarithm of the time over the best one, by a softmax over the
candidates' scores, counted three times beyond ten per cent; and, with a small weight, the error of the time.
"""

from __future__ import annotations

import argparse
import lzma
import os
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np

WEIGHTS = Path(__file__).parent.parent / "src/select/measured_order_weights.inc"
HEAD = """\
// Written by bench/fit_order.py: a line of weights for each feature, one of the hidden units' biases, one of
// the weights of their results. Do not edit.
"""
MEMBERS, HIDDEN = 4, 24
EPOCHS, BATCHES, RATE, DECAY = 400, 6, 4e-3, 0.05
TEMPERATURE, FIT, FREE = 0.06, 0.3, np.log(1.1)
MARGIN = 0.05  # kMargin of measured_order.cc
ALLOWED = 1.15


@dataclass
class Problems:
    """Of one op; candidates are padded to the most of a problem, and `is_there` says which ones are none."""

    names: list[str]
    features: np.ndarray  # [problem, candidate, feature]
    measured: np.ndarray  # logarithms of microseconds
    estimated: np.ndarray
    is_there: np.ndarray
    is_first: np.ndarray  # the choice of the estimates

    def take(self, which: np.ndarray) -> Problems:
        return Problems(
            [self.names[i] for i in which],
            *(a[which] for a in (self.features, self.measured, self.estimated, self.is_there, self.is_first)),
        )


def features_of(times: list[Path], test: Path) -> dict[str, Problems]:
    """By op, of all the problems that the files measured."""
    with tempfile.TemporaryDirectory() as folder:
        for path in times:
            if path.suffix == ".xz":
                (Path(folder) / path.stem).write_bytes(lzma.decompress(path.read_bytes()))
            else:
                shutil.copy(path, folder)
        subprocess.run(
            [test, "--gtest_filter=MeasuredOrder.WritesWhatItIsFittedTo", "--gtest_brief=1"],
            check=True,
            env={**os.environ, "AICF_ORDER_TIMES": folder},
        )
        return read(Path(folder) / "features.tsv")


def read(path: Path) -> dict[str, Problems]:
    found: dict[str, dict[str, list[list[float]]]] = {}
    for line in sorted(path.read_text().splitlines()):
        op, key, *numbers = line.split("\t")
        found.setdefault(op, {}).setdefault(key, []).append([float(x) for x in numbers])
    ops = {}
    for op, problems in sorted(found.items()):
        most = max(len(rows) for rows in problems.values())
        width = len(next(iter(problems.values()))[0]) - 3
        size = (len(problems), most)
        p = Problems(
            list(problems),
            np.zeros((*size, width)),
            np.zeros(size),
            np.zeros(size),
            np.zeros(size, bool),
            np.zeros(size, bool),
        )
        for i, rows in enumerate(problems.values()):
            for j, (rank, us, estimate, *features) in enumerate(rows):
                p.features[i, j], p.is_there[i, j], p.is_first[i, j] = features, True, rank == 0
                p.measured[i, j], p.estimated[i, j] = np.log(us), np.log(estimate)
        ops[op] = p
    return ops


@dataclass
class Network:
    """weights [feature, unit], bias and result [unit], constant: adds result · max(0, x weights + bias) +
    constant."""

    parameters: list[np.ndarray]

    def hidden(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(x @ self.parameters[0] + self.parameters[1], 0)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.hidden(x) @ self.parameters[2] + self.parameters[3]


def gradient_of_loss(scores: np.ndarray, p: Problems) -> np.ndarray:
    """By the scores, of the mean over the problems."""
    best = np.where(p.is_there, p.measured, np.inf).min(1, keepdims=True)
    regret = np.where(p.is_there, np.minimum(p.measured - best, 1), 0)
    cost = regret + 2 * np.maximum(regret - FREE, 0)
    logits = np.where(p.is_there, -scores / TEMPERATURE, -np.inf)
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    expected = (shares * cost).sum(1, keepdims=True)
    weight = np.where(p.is_there, 1 / (0.1 + regret), 0)
    error = np.where(p.is_there, scores - p.measured, 0)
    of_error = 2 * FIT * weight / weight.sum(1, keepdims=True) * np.where(np.abs(error) < 1, error, 0)
    return (shares * (expected - cost) / TEMPERATURE + of_error) / len(scores)


def train(p: Problems, seed: int) -> Network:
    """AdamW with a rate that rises, then falls; over features of mean 0 and deviation 1."""
    rng = np.random.default_rng(seed)
    width = p.features.shape[-1]
    network = Network(
        [
            rng.normal(0, 1.4 / np.sqrt(width), (width, HIDDEN)),
            np.zeros(HIDDEN),
            rng.normal(0, 0.14 / np.sqrt(HIDDEN), HIDDEN),
            np.zeros(1),
        ]
    )
    first = [np.zeros_like(a) for a in network.parameters]
    second = [np.zeros_like(a) for a in network.parameters]
    steps = EPOCHS * BATCHES
    for step in range(steps):
        if step % BATCHES == 0:
            batches = np.array_split(rng.permutation(len(p.names)), BATCHES)
        batch = p.take(batches[step % BATCHES])
        hidden = network.hidden(batch.features)
        by_score = gradient_of_loss(batch.estimated + network(batch.features), batch)
        by_hidden = by_score[..., None] * network.parameters[2] * (hidden > 0)
        gradients = [
            np.einsum("pcf,pch->fh", batch.features, by_hidden),
            by_hidden.sum((0, 1)),
            np.einsum("pch,pc->h", hidden, by_score),
            by_score.sum(keepdims=True).reshape(1),
        ]
        part = (step + 1) / steps
        rate = RATE * (part / 0.3 if part < 0.3 else 0.5 + 0.5 * np.cos(np.pi * (part - 0.3) / 0.7))
        for a, g, m, v in zip(network.parameters, gradients, first, second, strict=True):
            m += 0.1 * (g - m)
            v += 0.001 * (g * g - v)
            a *= 1 - rate * DECAY
            a -= rate * (m / (1 - 0.9 ** (step + 1))) / (np.sqrt(v / (1 - 0.999 ** (step + 1))) + 1e-8)
    return network


def fit(p: Problems) -> Network:
    """The mean of several networks, as one, over features as they are."""
    there = p.features[p.is_there]
    mean, deviation = there.mean(0), there.std(0)
    varies = deviation > 1e-6
    deviation = np.where(varies, deviation, 1)  # of the others only the bias would know
    scaled = Problems(p.names, (p.features - mean) / deviation * varies, *list(vars(p).values())[2:])
    members = [train(scaled, seed).parameters for seed in range(MEMBERS)]
    weights = np.concatenate([m[0] for m in members], 1) * (varies / deviation)[:, None]
    bias = np.concatenate([m[1] for m in members]) - mean @ weights
    result = np.concatenate([m[2] for m in members]) / MEMBERS
    return Network([weights, bias, result, sum(m[3] for m in members) / MEMBERS])


def ratios(p: Problems, network: Network | None) -> np.ndarray:
    """Of the choice's time to the best, by the network or by the estimates."""
    if network is None:
        scores = np.where(p.is_first, -np.inf, 0)
    else:
        scores = p.estimated + network(p.features) - MARGIN * p.is_first
    chosen = np.where(p.is_there, scores, np.inf).argmin(1)
    best = np.where(p.is_there, p.measured, np.inf).min(1)
    return np.exp(p.measured[np.arange(len(chosen)), chosen] - best)


def summary(found: np.ndarray) -> str:
    within = (found <= ALLOWED).sum()
    return (
        f"{within} of {len(found)} within 15 %, geometric mean {np.exp(np.log(found).mean()):.3f}, "
        f"worst {found.max():.2f}"
    )


def cross_validate(op: str, p: Problems, folds: int) -> None:
    order = np.random.default_rng(0).permutation(len(p.names))
    left_out = np.concatenate(
        [
            ratios(p.take(order[i::folds]), fit(p.take(np.setdiff1d(order, order[i::folds]))))
            for i in range(folds)
        ]
    )
    print(f"{op}: by the estimates {summary(ratios(p, None))}")
    print(f"{op}: where left out   {summary(left_out)}")


# Digits of the file: a weight moves a score by less than it is known.
WEIGHT, CONSTANT = "#.3g", ".6g"


def text_of(op: str, network: Network) -> str:
    weights, bias, result, constant = network.parameters
    rows = np.concatenate([weights, bias[None], result[None]])
    lines = ["{" + ",".join(f"{x:{WEIGHT}}f" for x in row) + "}," for row in rows]
    name = op.capitalize()
    return (
        f"constexpr double k{name}Bias = {constant[0]:{CONSTANT}};\n"
        f"constexpr float k{name}Order[][{len(bias)}] = {{\n" + "\n".join(lines) + "\n};\n"
    )


def networks_of(text: str) -> dict[str, Network]:
    """By op, of a file of weights."""
    networks = {}
    pattern = r"k(\w+)Bias = (\S+);\n.*\n((?:\{.*\},\n)+)\};"
    for name, constant, lines in re.findall(pattern, text):
        rows = [[float(x.rstrip("f")) for x in line[1:-2].split(",")] for line in lines.splitlines()]
        *weights, bias, result = np.array(rows)
        networks[name.lower()] = Network([np.array(weights), bias, result, np.array([float(constant)])])
    return networks


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("times", type=Path, nargs="+")
    parser.add_argument("--test", type=Path, required=True)
    parser.add_argument(
        "--without", type=Path, nargs="*", default=[], help="times to judge the fit by, later"
    )
    parser.add_argument("--folds", type=int, default=0)
    options = parser.parse_args()
    texts = [HEAD]
    for op, problems in features_of(
        [f for f in options.times if f not in options.without], options.test
    ).items():
        if options.folds:
            cross_validate(op, problems, options.folds)
            continue
        network = fit(problems)
        print(f"{op}: fitted to {summary(ratios(problems, network))}", flush=True)
        texts.append(text_of(op, network))
    if not options.folds:
        WEIGHTS.write_text("".join(texts))


if __name__ == "__main__":
    main()

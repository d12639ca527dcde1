"""A random net trained by torch and by us, for random_training.py, and the bounds that judge us.

Torch trains the same net in the net's own precision and in f64. Our distance from f64 may be BOUND times that
of torch, whose own distance is the largest of several runs: one as it is and others whose parameters and
inputs are first moved by a rounding each. They stand for orders of summation that are as good as torch's, and
show what a rounding becomes where a model is badly conditioned or a gradient is all rounding (Adam divides it
by itself). BOUND is 8 because orders of sums differ: torch adds in blocks, whose error grows as the
logarithm of the length, and we in places along a line, as the root of it; lengths here stay below a few
thousand. Beyond that come FLOOR roundings of the largest number of the tensor. A fault of a formula, an index
or a bound moves a number by parts of itself, ten thousand times more.
"""

from __future__ import annotations

import copy
import dataclasses
import math
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import aicf
import numpy as np
import torch
from aicf import optim
from random_training_nets import Case, Draw
from torch import Tensor, nn

BOUND, FLOOR = 8.0, 8.0
RUNS = 3  # of torch in the net's precision
SECOND_LOOK = 20  # more of them before a number is called wrong
EPS = {"f32": 2.0**-23, "f64": 2.0**-52, "bf16": 2.0**-7}
DTYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16}

# torch takes their slopes in f32 for tensors of f64, too.
SLOPES_IN_F32 = (nn.Hardsigmoid, nn.CELU)

Numbers = dict[str, np.ndarray]


@dataclass
class Plan:
    """How the net is trained."""

    kind: str  # of the optimizer
    numbers: dict[str, Any]
    rate: Callable[[int], float]  # of the number of finished steps
    schedule: Any
    groups: list[optim.Group]
    clip: float
    accumulate: int
    steps: int
    dtype: str  # of parameters and inputs
    precision: str
    scale: optim.LossScale | None
    skip: bool
    opt: int
    threads: int
    words: list[str] = field(default_factory=list)

    def leave_out(self, names: list[str]) -> None:
        """They are not trained, as the error about them says."""
        kept = [(g, [n for n in g.patterns if n not in names]) for g in self.groups]
        self.groups = [dataclasses.replace(g, patterns=rest) for g, rest in kept if rest]
        self.groups.append(optim.Group(names, trainable=False))
        self.words.append("left out")


def draw_rate(d: Draw, top: float, steps: int) -> tuple[Callable[[int], float], Any, str]:
    """The rate as a formula of ours in Python, as a schedule, and its name."""
    kind = d.pick(["number"] * 3 + ["constant", "linear", "cosine", "step", "function"])
    if kind == "number":
        return lambda t: top, top, kind
    if kind == "function":
        return lambda t: top / (1 + 0.5 * t), lambda t: top / (1.0 + t.astype("f64") * 0.5), kind
    warm = d.pick([0, 0, 1, 2])
    total = warm + d.whole(1, steps + 2)

    def after(t: int) -> float:
        done = min(t / (total - warm), 1.0)
        if kind == "linear":
            return top + (top / 4 - top) * done
        if kind == "cosine":
            return top / 8 + (top - top / 8) / 2 * (1 + math.cos(math.pi * done))
        return top * 0.5 ** (t // 2) if kind == "step" else top

    schedule = {
        "constant": lambda: optim.constant(top, warm),
        "linear": lambda: optim.linear(top, top / 4, total, warm),
        "cosine": lambda: optim.cosine(top, total, warm, top / 8),
        "step": lambda: optim.step(top, 0.5, 2, warm),
    }[kind]()
    return lambda t: after(max(t - warm, 0)) * (min((t + 1) / warm, 1.0) if warm else 1.0), schedule, kind


def draw_plan(d: Draw, case: Case) -> Plan:
    kind = d.pick(["SGD", "SGD", "Adam", "AdamW"])
    numbers: dict[str, Any] = {}
    if kind == "SGD":
        top = d.pick([0.01, 0.03, 0.1])
        if d.chance(0.5):
            numbers["momentum"] = d.pick([0.5, 0.9])
            numbers["nesterov"] = d.chance(0.4)
        if d.chance(0.4):
            numbers["weight_decay"] = d.pick([0.01, 0.1])
    else:
        top = d.pick([1e-3, 1e-2])
        if d.chance(0.5):
            numbers["betas"] = d.pick([(0.8, 0.95), (0.0, 0.9), (0.9, 0.999), (0.5, 0.9)])
        if d.chance(0.5):
            numbers["eps"] = d.pick([1e-8, 1e-6, 1e-3])
        if d.chance(0.5):
            numbers["weight_decay"] = d.pick([0.0, 0.01, 0.2])
    steps = d.whole(1, 6)
    rate, schedule, word = draw_rate(d, top, steps)
    groups = []
    names = [n for n, p in case.model.named_parameters() if p.requires_grad]
    if d.chance(0.35):
        some = [n for n in names if d.chance(0.4)]
        if some:
            groups.append(optim.Group(some, d.pick([1.0, 0.1, 2.0]), d.pick([None, 0.0, 0.05])))
        rest = [n for n in names if n not in some]
        if d.chance(0.4) and len(rest) > 1:
            groups.append(optim.Group([d.pick(rest)], trainable=False))
    dtype = d.pick(["f32"] * 16 + ["f64", "f64", "bf16", "bf16"])
    if dtype == "f64" and any(isinstance(m, SLOPES_IN_F32) for m in case.model.modules()):
        dtype = "f32"
    precision = d.pick(["f32"] * 7 + ["bf16-mixed"]) if dtype == "f32" else "f32"
    if dtype == "bf16" and d.chance(0.5):
        precision = "bf16-pure"
    skip = d.chance(0.8)
    return Plan(
        kind=kind,
        numbers=numbers,
        rate=rate,
        schedule=schedule,
        groups=groups,
        clip=d.pick([0.0, 0.0, 0.0, 0.05, 1.0, 100.0]),
        accumulate=d.pick([1, 1, 1, 2, 3]),
        steps=steps,
        dtype=dtype,
        precision=precision,
        scale=optim.LossScale(d.pick([1024.0, 3.0]), d.chance(0.5)) if skip and d.chance(0.1) else None,
        skip=skip,
        opt=d.pick([2, 2, 2, 1, 0]),
        threads=d.pick([1, 1, 2]),
        words=[kind, word, dtype, precision],
    )


# --- torch


def in_dtype(thing: Any, dtype: torch.dtype) -> Any:
    """A copy of a module, a loss or a tensor whose floats are of this dtype."""
    if isinstance(thing, Tensor):
        return thing.to(dtype) if thing.is_floating_point() else thing
    thing = copy.deepcopy(thing)
    return thing.to(dtype) if isinstance(thing, nn.Module) else thing


def nudge(tensor: Tensor, unit: float, rng: np.random.Generator) -> None:
    """Moves each number by about a rounding of its own, and zeros by one of a small number.

    A norm of equal numbers and a bias of zeros are exact at first, in torch and with us; later they are not.
    """
    if tensor.is_floating_point():
        by = torch.from_numpy(rng.uniform(-1.5, 1.5, tuple(tensor.shape))).reshape(tensor.shape)
        tensor.add_((unit * by * (tensor.abs().double() + 0.05)).to(tensor.dtype))


def shake(result: Tensor, unit: float, rng: np.random.Generator) -> None:
    """Lets every step of the backward pass round anew: what is passed on moves by a rounding of itself.

    Terms that cancel in a sum are exact only where all of them are rounded alike.
    """

    def moved(gradients: tuple[Tensor | None, ...]) -> tuple[Tensor | None, ...]:
        return tuple(g if g is None else g + g * noise(g) for g in gradients)

    def noise(gradient: Tensor) -> Tensor:
        by = torch.from_numpy(rng.uniform(-unit, unit, tuple(gradient.shape)))
        return by.reshape(gradient.shape).to(gradient.dtype)

    found, queue = set(), [result.grad_fn]
    while queue:
        if (node := queue.pop()) is not None and node not in found:
            found.add(node)
            node.register_prehook(moved)
            queue += [before for before, _ in node.next_functions]


def group_of(plan: Plan, name: str) -> optim.Group | None:
    return next((g for g in plan.groups if name in g.patterns), None)


def torch_optimizer(plan: Plan, trained: dict[str, nn.Parameter]) -> torch.optim.Optimizer:
    rows = []
    for name, parameter in trained.items():
        group = group_of(plan, name)
        row: dict[str, Any] = {"params": [parameter]}
        if group is not None and group.weight_decay is not None:
            row["weight_decay"] = group.weight_decay
        rows.append(row)
    return getattr(torch.optim, plan.kind)(rows, lr=1.0, **plan.numbers)


SLOTS = {"exp_avg": "opt.m", "exp_avg_sq": "opt.v", "momentum_buffer": "opt.momentum"}


def numbers(model: nn.Module) -> Numbers:
    """Parameters and buffers by name."""
    found = [*model.named_parameters(), *model.named_buffers()]
    return {name: value.detach().double().numpy().copy() for name, value in found}


def torch_run(
    case: Case, plan: Plan, batches: list[list[Tensor]], dtype: str, start: str, seed: int | None = None
) -> list[Numbers]:
    """What is known after each call, and last of an evaluation; `start` is the dtype of the net itself.

    With a seed its parameters and inputs are moved by a rounding of `dtype` first, and so is what each step
    of the backward pass gives. A call also knows, as
    `noise.NAME`, how far roundings of gradients alone may carry a parameter: Adam divides a gradient by its
    size, also one that is 0 but for them.
    """
    to = DTYPES[dtype]
    model, loss = (in_dtype(in_dtype(thing, DTYPES[start]), to) for thing in (case.model, case.loss))
    rng = np.random.default_rng(seed)
    # A second look moves them by more, so that roundings of sums larger than a parameter are met, too, and
    # those of the halves that a mixed step computes in: they decide the sign of a difference near 0.
    unit = EPS[dtype] if seed is None or seed < RUNS else max(8 * EPS[dtype], unit_of(plan))
    with torch.no_grad():
        for parameter in model.parameters() if seed is not None else ():
            nudge(parameter, unit, rng)
    frozen = {n for g in plan.groups if not g.trainable for n in g.patterns}
    trained = {n: p for n, p in model.named_parameters() if p.requires_grad and n not in frozen}
    optimizer = torch_optimizer(plan, trained)
    mixed = plan.precision == "bf16-mixed" and dtype == "f32"
    noise = {name: np.zeros(tuple(p.shape)) for name, p in trained.items()}
    trace: list[Numbers] = []
    done, skipped, good = 0, 0, True  # steps; none of the batches of this one was bad
    if not model.training:
        model.train()
    for call, batch in enumerate(batches):
        given = [in_dtype(in_dtype(x, DTYPES[start]), to).clone() for x in batch]
        if seed is not None:
            for x in given[:-1]:
                nudge(x, unit, rng)
        before = {n: b.detach().clone() for n, b in model.named_buffers()}
        with torch.autocast("cpu", torch.bfloat16) if mixed else nullcontext():
            value = model(*given) if loss is None else loss(model(*given[:-1]), given[-1])
        if seed is not None:
            shake(value, EPS[dtype], rng)
        value.backward()
        known: Numbers = {"loss": value.detach().double().numpy().copy()}
        for name, parameter in trained.items():
            if parameter.grad is not None:
                known[f"d_{name}"] = parameter.grad.double().numpy().copy()
        good &= bool(value.isfinite())
        last = (call + 1) % plan.accumulate == 0
        if last:
            gradients = [p.grad for p in trained.values() if p.grad is not None]
            good &= all(bool(g.isfinite().all()) for g in gradients)
        if plan.skip and not good:
            skipped += last
            with torch.no_grad():
                for name, buffer in model.named_buffers() if last or not value.isfinite() else ():
                    buffer.copy_(before[name])
        elif last:
            steepest = max((float(g.abs().max()) for g in gradients), default=0.0) / plan.accumulate
            rounded = FLOOR * unit_of(plan) * steepest
            for gradient in gradients:
                gradient /= plan.accumulate
                if seed is not None and seed >= RUNS:  # a sum of parts that cancel is 0 in one order alone
                    by = torch.from_numpy(rng.uniform(-1, 1, tuple(gradient.shape))).reshape(gradient.shape)
                    gradient += (EPS[dtype] * steepest * by).to(gradient.dtype)
            if plan.clip:
                nn.utils.clip_grad_norm_(list(trained.values()), plan.clip)
            for row, name in zip(optimizer.param_groups, trained, strict=True):
                group = group_of(plan, name)
                row["lr"] = plan.rate(done) * (1.0 if group is None else group.rate_factor)
                if (gradient := trained[name].grad) is not None:
                    size = gradient.abs().double().numpy() + plan.numbers.get("eps", 1e-8)
                    noise[name] += row["lr"] * (
                        rounded if plan.kind == "SGD" else np.minimum(rounded / size, 1)
                    )
            optimizer.step()
            done += 1
        if last:
            good = True
            optimizer.zero_grad()
            for name, parameter in trained.items():
                for slot, value in optimizer.state[parameter].items():
                    if slot in SLOTS and value is not None:
                        known[f"{SLOTS[slot]}.{name}"] = value.double().numpy().copy()
        known |= {"opt.step": np.array(float(done))}
        known |= {"opt.skipped": np.array(float(skipped))} if plan.skip else {}
        trace.append({**known, **numbers(model), **{f"noise.{n}": v.copy() for n, v in noise.items()}})
    model.eval()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=False):
        given = [in_dtype(in_dtype(x, DTYPES[start]), to) for x in batches[-1]]
        results = model(*(given if loss is None else given[:-1]))
    leaves = torch.utils._pytree.tree_leaves(results)
    trace.append({f"eval.{i}": y.double().numpy().copy() for i, y in enumerate(leaves)})
    return trace


# --- ours


def compile_step(case: Case, plan: Plan, batch: list[Tensor], device: str) -> aicf.TrainStep:
    """Nets with their loss inside take their target as an input of the model."""
    to = DTYPES[plan.dtype]
    specs = [
        aicf.TensorSpec(tuple(x.shape), plan.dtype if i.dtype == "f32" else "i64", i.name)
        for x, i in zip(batch, case.inputs, strict=True)
    ]
    optimizer = getattr(optim, plan.kind)(plan.schedule, groups=plan.groups, **plan.numbers)
    return aicf.compile_train_step(
        in_dtype(case.model, to),
        in_dtype(case.loss, to),
        optimizer,
        specs,
        clip_norm=plan.clip,
        accumulate=plan.accumulate,
        precision=plan.precision,
        loss_scale=plan.scale,
        skip_bad_steps=plan.skip,
        gradients=True,
        seed=3,
        device=device,
        threads=plan.threads if device == "cpu" else None,
        options={"opt": plan.opt},
    )


def array(value: Any) -> np.ndarray:
    """As f64, or whole numbers."""
    if "bf16" in str(getattr(value, "dtype", "")) or "bfloat16" in str(getattr(value, "dtype", "")):
        return torch.from_dlpack(value).double().numpy()
    made = np.asarray(value)
    return made.astype(np.float64)


def our_call(step: aicf.TrainStep, batch: list[Tensor]) -> float:
    return float(array(step(*batch)))


def our_states(step: aicf.TrainStep) -> Numbers:
    return {name: array(value) for name, value in step.state_dict().items()}


def our_run(step: aicf.TrainStep, case: Case, batches: list[list[Tensor]]) -> tuple[list[Numbers], list[str]]:
    """What is known after each call, and the hash of all states after it."""
    trace, hashes = [], []
    gradients = step.run_entry("gradients", *batches[0])
    gradients = gradients if isinstance(gradients, (tuple, list)) else [gradients]
    names = [row[0] for row in step._raw.outputs("gradients")]
    first = {n: array(g) for n, g in zip(names, gradients, strict=True) if n.startswith("d_")}
    for batch in batches:
        known = {"loss": np.array(our_call(step, batch)), **our_states(step)}
        trace.append({**known, **(first if not trace else {})})
        hashes.append(step.hash())
    given = batches[-1] if case.loss is None else batches[-1][:-1]
    results = step.evaluate(*given)
    leaves = (
        torch.utils._pytree.tree_leaves(results) if isinstance(results, (tuple, list, dict)) else [results]
    )
    trace.append({f"eval.{i}": array(y) for i, y in enumerate(leaves)})
    return trace, hashes


# --- judgement


def unit_of(plan: Plan) -> float:
    return EPS["bf16"] if plan.precision.startswith("bf16") else EPS[plan.dtype]


def finite(trace: list[Numbers]) -> bool:
    return all(np.isfinite(v).all() for known in trace for v in known.values())


def distances(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Of each number; 0 where both are not finite in the same way."""
    a, b = a.reshape(-1), b.reshape(-1)
    with np.errstate(all="ignore"):
        far = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return np.where(np.isnan(far), np.inf, far)


def compare(
    ours: list[Numbers], exact: list[Numbers], peers: list[list[Numbers]], plan: Plan
) -> tuple[str, float]:
    """The first number that is too far from the exact one, "" if none; and the largest share of a bound."""
    worst, steepest, shaken, first = 0.0, 0.0, 0.0, ""
    for call, (mine, right) in enumerate(zip(ours, exact, strict=True)):
        steepest = max((largest(v) for n, v in right.items() if n.startswith("d_")), default=steepest)
        # What roundings make of gradients that are all 0: that of one may be exact in torch by chance.
        shaken = max(
            (
                distances(peer[call][n], v).max(initial=0.0)
                for n, v in right.items()
                for peer in peers
                if n.startswith("d_") and n in peer[call] and np.isfinite(v).all()
            ),
            default=shaken,
        )
        for name, want in right.items():
            if name not in mine:
                continue
            # Of a step that is skipped; torch and we stop a NaN at different activations, so that what one of
            # us has of it may be finite.
            if name.startswith("d_") and not (finite([{name: want}]) and finite([{"loss": right["loss"]}])):
                continue
            if mine[name].size != want.size:
                return f"call {call}: {name} has {mine[name].shape}, not {want.shape}", np.inf
            off = distances(mine[name], want)
            known = [peer[call][name] for peer in peers if name in peer[call]]
            theirs = max((distances(other, want).max(initial=0.0) for other in known), default=0.0)
            # Sums of parts that cancel: what was rounded is the largest of the tensor, or of all gradients.
            of_gradients = {"d_": 1, "opt.m": 1, "opt.v": 2}  # momentum is among them
            powers = [power for prefix, power in of_gradients.items() if name.startswith(prefix)]
            size = max([largest(want), *(steepest**power for power in powers)])
            bound = BOUND * theirs + FLOOR * unit_of(plan) * size + 1e-37
            bound += max((shaken**power for power in powers), default=0.0)
            share = off / (bound + right.get(f"noise.{name}", np.zeros(1)).reshape(-1))
            worst = max(worst, float(share.max(initial=0.0)))
            if share.size and share.max() > 1 and not first:
                at = int(np.argmax(share))
                first = (
                    f"call {call}: {name}{list(want.shape)} is off by {off[at]:.3g} at {at}"
                    f" ({mine[name].reshape(-1)[at]!r}, not {want.reshape(-1)[at]!r}); torch by {theirs:.3g}"
                )
    return first, worst


def largest(array: np.ndarray) -> float:
    return float(np.abs(array[np.isfinite(array)]).max(initial=0.0))


def missing(ours: list[Numbers], exact: list[Numbers], start: Numbers) -> str:
    """A number that torch changes and we do not have; the count of a norm's batches is of no use to us."""
    for call, (mine, right) in enumerate(zip(ours[:-1], exact[:-1], strict=True)):
        for name, value in right.items():
            if name in mine or name.endswith("num_batches_tracked") or name.startswith("noise."):
                continue
            if name.startswith("d_") and call:  # ours are of the first call
                continue
            if name not in start or not np.array_equal(start[name], value):
                return name
    return ""

"""torch's own samples of its ops (OpInfo), exported, compiled, and compared with torch and an f64 run.

    python opinfo.py [--samples N] [--shard I/N] [--out results.jsonl] [NAME...]

Without names: every op of `op_db` that has f32 samples. One JSON line per op: name, samples, passed, first
failure.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aicf
import torch
from torch.utils import _pytree as pytree

# |ours - f64| may be this large, or 4 times torch's own distance from it.
ATOL, RTOL = 1e-5, 1e-4
# Results that hold whatever their memory held before: only their dtypes and shapes can be compared.
UNINITIALISED = frozenset("empty empty_like empty_permuted empty_strided new_empty new_empty_strided".split())


@dataclass
class Outcome:
    name: str
    samples: int = 0
    passed: int = 0
    failure: str = ""  # of the first sample that failed

    @property
    def ok(self) -> bool:
        return self.samples > 0 and self.passed == self.samples


class Sample(torch.nn.Module):
    """One call of an op; its tensors are the module's inputs, those that it writes the module's buffers.

    `what_counts` takes of a result what the op determines: not the signs of eigenvectors.
    """

    def __init__(
        self, function: Any, args: Any, kwargs: Any, what_counts: Any = lambda result: result
    ) -> None:
        super().__init__()
        self._function, self._what_counts = function, what_counts
        leaves, self._spec = pytree.tree_flatten((args, kwargs))
        self._at = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        self.tensors = tuple(leaves[i] for i in self._at)
        self._leaves = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self._leaves)
        for index, tensor in zip(self._at, tensors, strict=True):
            leaves[index] = tensor
        for name, buffer in self.named_buffers():
            leaves[int(name.removeprefix("written_"))] = buffer
        args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._what_counts(self._function(*args, **kwargs))

    def hold(self, written: Sequence[str]) -> None:
        """Running statistics and weights that the op brings up to date are buffers of a module."""
        places = {int(name.removeprefix("tensors_")) for name in written}
        for place in places:
            self.register_buffer(f"written_{self._at[place]}", self.tensors[place].clone())
        kept = [i for i in range(len(self._at)) if i not in places]
        self._at, self.tensors = [self._at[i] for i in kept], tuple(self.tensors[i] for i in kept)

    def in_f64(self) -> Any:
        """The result of the same call in f64, None if the op has none."""
        wide = Sample(self._function, (), {}, self._what_counts)
        for name, buffer in self.named_buffers():
            wide.register_buffer(name, buffer.double() if buffer.dtype == torch.float32 else buffer.clone())
        wide._spec, wide._at = self._spec, self._at
        wide._leaves = [torch.float64 if leaf is torch.float32 else leaf for leaf in self._leaves]
        tensors = [t.double() if t.dtype == torch.float32 else t for t in self.tensors]
        try:
            return wide(*tensors)
        except (RuntimeError, TypeError, ValueError, NotImplementedError):
            return None


def ops_with_samples() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [op for op in op_db if torch.float32 in op.dtypes]


def samples_of(op: Any, limit: int | None) -> Iterator[Sample]:
    device = torch.get_default_device().type
    for index, sample in enumerate(op.sample_inputs(device, torch.float32, requires_grad=False)):
        if limit is not None and index >= limit:
            return
        yield Sample(op.op, (sample.input, *sample.args), sample.kwargs, sample.output_process_fn_grad)


def run_op(op: Any, limit: int | None = None) -> Outcome:
    outcome = Outcome(op.full_name if hasattr(op, "full_name") else op.name)
    torch.manual_seed(0)
    for sample in samples_of(op, limit):
        outcome.samples += 1
        failure = run_sample(sample, op.name not in UNINITIALISED)
        if not failure:
            outcome.passed += 1
        elif not outcome.failure:
            outcome.failure = failure
    return outcome


def run_sample(sample: Sample, values: bool = True) -> str:
    """ "" if it passed, else why not."""
    try:
        exe = compiled(sample)
        wide = None if not values else sample.in_f64()
        expected = sample(*(t.clone() for t in sample.tensors))
        results = exe(*sample.tensors)
        if not values:
            results, expected = pytree.tree_map(torch.zeros_like, (results, expected))
        expected_states = {name: buffer.cpu() for name, buffer in sample.named_buffers()}
        states = {name: torch.from_dlpack(exe.state_dict()[name]) for name in expected_states}
        return compare(results, expected, wide) or compare(states, expected_states, None)
    except aicf.Error as error:
        return " | ".join(str(error).split("\n"))[:400]
    except Exception as error:  # whatever it is, it is this op's failure
        return f"{type(error).__name__}: {error}".replace("\n", " ")[:400]


def compiled(sample: Sample) -> aicf.Executable:
    try:
        return aicf.compile(sample, sample.tensors)
    except aicf.UserError as error:
        if "writes to an input" not in str(error):
            raise
        sample.hold(error.op.split(", "))
        return aicf.compile(sample, sample.tensors)


def compare(actual: Any, expected: Any, wide: Any) -> str:
    ours, theirs = pytree.tree_leaves(actual), pytree.tree_leaves(expected)
    if len(ours) != len(theirs):
        return f"{len(ours)} results instead of {len(theirs)}"
    exact = pytree.tree_leaves(wide)
    if len(exact) != len(theirs):
        exact = theirs
    for i, (a, e, w) in enumerate(zip(ours, theirs, exact, strict=True)):
        if not isinstance(e, torch.Tensor):
            if a != e:
                return f"result {i}: {a} instead of {e}"
            continue
        failure = compare_tensors(a, e, w)
        if failure:
            return f"result {i}: {failure}"
    return ""


def compare_tensors(ours: torch.Tensor, theirs: torch.Tensor, wide: Any) -> str:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{list(ours.shape)} instead of {theirs.dtype}{list(theirs.shape)}"
    if not theirs.dtype.is_floating_point:
        return (
            ""
            if torch.equal(ours, theirs)
            else f"{int((ours != theirs).sum())} of {ours.numel()} elements differ"
        )
    a, t = ours.double(), theirs.double()
    w = wide.double() if isinstance(wide, torch.Tensor) and wide.shape == theirs.shape else t
    same = (a == t) | (a.isnan() & t.isnan())
    bound = torch.maximum(4 * (t - w).abs(), ATOL + RTOL * w.abs())
    close = ((a - w).abs() <= bound) | ((a - t).abs() <= ATOL + RTOL * t.abs())
    bad = ~(same | (close & a.isfinite()))
    if not bad.any():
        return ""
    at = bad.flatten().nonzero()[0].item()
    return (
        f"{int(bad.sum())} of {a.numel()} elements differ, such as {a.flatten()[at].item():.9g} instead of "
        f"{t.flatten()[at].item():.9g} (f64: {w.flatten()[at].item():.9g})"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args(arguments)
    warnings.filterwarnings("ignore")
    index, count = map(int, options.shard.split("/"))
    chosen = [
        op
        for op in ops_with_samples()
        if not options.names or op.full_name in options.names or op.name in options.names
    ]
    done = (
        {json.loads(line)["name"] for line in options.out.read_text().splitlines()}
        if options.out and options.out.exists()
        else set()
    )
    for op in chosen[index::count]:
        if op.full_name in done:
            continue
        outcome = run_op(op, options.samples)
        line = json.dumps(asdict(outcome))
        if options.out:
            with options.out.open("a") as file:
                file.write(line + "\n")
        else:
            print(line)
        sys.stdout.flush()


if __name__ == "__main__":
    main()

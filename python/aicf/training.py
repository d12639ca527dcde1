"""`aicf.compile_train_step`: forward, loss, backward and optimizer become one program that is replayed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from . import _aicf
from ._aicf import Tensor
from ._build import build, check_flag, check_options, check_type, check_whole
from ._display import html_table, plan_rows, signature
from ._files import check_texts, file_path
from ._loss_program import Specs, loss_program
from ._progress import Progress, stage, work
from .errors import make_error
from .executable import PlanSummary, TensorInfo, VerifyResult, load_raw
from .optim import LossScale, Optimizer, schedule_graph

__all__ = ["TrainStep", "compile_train_step", "load_train_step", "shuffled_rows"]


class TrainStep:
    """A training run: params, optimizer states and counters, advanced by calls.

    A call takes one batch and gives its loss; every `accumulate`-th call makes an optimizer step. Step
    counter, schedule, loss scale and random numbers advance inside. One call is in flight at a time.
    """

    def __init__(self, raw: _aicf.Executable) -> None:
        self._raw = raw
        self._trainer = _aicf.Trainer(raw)

    def __call__(self, *args: Any, **by_name: Any) -> Any:
        results = self._trainer.step(args, by_name)
        return results[0] if len(results) == 1 else results

    def __repr__(self) -> str:
        return f"<aicf.TrainStep {self._signature()}, {self.plan.kernels} kernels, {self.steps} steps done>"

    def _repr_html_(self) -> str:
        plan = self.plan
        rows = [("signature", self._signature()), ("steps done", f"{self.steps:,}"), *plan_rows(plan)]
        return html_table("TrainStep", rows, plan.text)

    def _signature(self) -> str:
        return signature(self.inputs, [TensorInfo(*row) for row in self._raw.outputs("step")])

    def evaluate(self, *args: Any, **by_name: Any) -> Any:
        """The model with the present params, as for inference: no dropout, running statistics."""
        return self.run_entry("eval", *args, **by_name)

    def run_entry(self, entry: str, *args: Any, **by_name: Any) -> Any:
        """Any other entry of the program: "gradients", if it was asked for, and those of a traced Program."""
        check_type("entry", entry, str, "the name of an entry")
        results = self._raw.run(entry, args, by_name)
        return results[0] if len(results) == 1 else results

    @property
    def steps(self) -> int:
        """Optimizer steps finished."""
        return self._trainer.steps()

    @property
    def skipped(self) -> int:
        """Steps that were skipped because the loss or a gradient was not finite."""
        return self._trainer.skipped()

    @property
    def accumulate(self) -> int:
        """Calls that make one optimizer step."""
        return self._trainer.accumulate()

    @property
    def bad_tensor(self) -> str | None:
        """The first tensor that was not finite, "loss" or "d_<param>"; None: all were."""
        return self._trainer.bad_tensor() or None

    def require_finite(self) -> None:
        """Raises bad_tensor if one was not finite; params and moments are as before that step."""
        self._trainer.require_finite()

    def clear_bad_tensor(self) -> None:
        """Forgets `bad_tensor`, so that the next one is seen."""
        self._trainer.clear_bad_tensor()

    def parameters(self) -> dict[str, Tensor]:
        """Copies of the trained params by path."""
        return {n: t for n, t in self.state_dict().items() if n in self._raw.param_names()}

    def state_dict(self) -> dict[str, Tensor]:
        """Copies of trained params and all states by name; docs/training.md lists the names.

        `model.load_state_dict(step.state_dict(), strict=False)` brings params and running statistics back.
        """
        return self._trainer.states()

    def load_state_dict(self, states: Mapping[str, Any]) -> None:
        """Goes on from a state_dict; bad_checkpoint lists every name and shape that does not fit."""
        check_type("states", states, Mapping, "a state_dict: arrays by name")
        self._trainer.set_states(dict(states))

    def save_checkpoint(
        self, path: str | os.PathLike[str], metadata: Mapping[str, str] | None = None
    ) -> None:
        """Writes the state_dict as safetensors; the file appears by rename, so the one before stays whole."""
        check_texts("metadata", metadata or {})
        self._trainer.save_checkpoint(file_path(path), dict(metadata or {}))

    def load_checkpoint(self, path: str | os.PathLike[str]) -> dict[str, str]:
        """Goes on from a checkpoint, to the bits the run would have reached; gives its metadata."""
        return self._trainer.load_checkpoint(file_path(path))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes an .aicf file that trains on from the present states, also with `aicf train`."""
        self._trainer.save_artifact(file_path(path))

    def hash(self) -> str:
        """xxh3-128 of all params and states."""
        return self._trainer.hash()

    def verify(self, steps: int = 100, *, inputs: Sequence[Any], runs: int = 2) -> VerifyResult:
        """Trains `steps` batches `runs` times from the present states and hashes all params and states.

        `inputs` is one batch, or a list of batches that is gone through again and again. The run stands
        afterwards where it stood before.
        """
        check_whole("steps", steps)
        check_whole("runs", runs)
        if steps < 1 or runs < 1:
            raise make_error(
                "bad_option", "verify needs at least one step", actual=f"steps={steps}, runs={runs}"
            )
        batches = list(inputs) if isinstance(inputs, list) else [inputs]
        if not batches:
            raise make_error("missing_input", "verify needs a batch")
        hashes = self._trainer.verify(int(steps), int(runs), [tuple(batch) for batch in batches])
        return VerifyResult(runs * steps, hashes, len(hashes) == 1)

    @property
    def inputs(self) -> list[TensorInfo]:
        return [TensorInfo(*row) for row in self._raw.inputs("step")]

    @property
    def plan(self) -> PlanSummary:
        return PlanSummary(**self._raw.plan())

    def explain(self) -> str:
        """What each pass did, if this process compiled the step, and the plan of every entry."""
        return self._raw.explain()


def compile_train_step(
    model: Any,
    loss: Callable[[Any, Any], Any] | None = None,
    optimizer: Optimizer | None = None,
    inputs: Specs | None = None,
    *,
    eval_inputs: Specs | None = None,
    dims: Mapping[str, Any] | None = None,
    clip_norm: float = 0.0,
    accumulate: int = 1,
    precision: str = "f32",
    loss_scale: LossScale | None = None,
    skip_bad_steps: bool = True,
    gradients: bool = False,
    seed: int = 0,
    device: str = "cpu",
    threads: int | None = None,
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> TrainStep:
    """Compiles a whole training step for one device.

    model           an `aicf.nn` module, a torch.nn.Module, or a traced Program whose first entry gives the
                    loss.
    loss            maps the prediction and the last input to a scalar, as `nn.CrossEntropyLoss()`; for a
                    torch module also one of torch's, or a function of its tensors; None: the model gives the
                    loss itself.
    inputs          the TensorSpec of each input, in order, or by the names of the model's arguments; with a
                    loss the last is the target.
    eval_inputs     of `evaluate`, if other sizes than `inputs`; without the target.
    clip_norm       of all gradients together; 0: not clipped.
    accumulate      calls whose gradients are averaged into one optimizer step.
    precision       "f32"; "bf16-mixed" or "f16-mixed": contractions of such operands, accumulated in f32;
                    "tf32": f32 matrix products, convolutions and attention but for its gradient; params,
                    moments and everything else stay f32; "bf16-pure", for params of half types: these and
                    their moments keep that type, without the f32 master copy that they have otherwise.
    skip_bad_steps  a step whose loss or gradients are not finite changes nothing but `bad_tensor` and
                    `skipped`.
    gradients       adds the entry "gradients": the loss, and `d_<param>` of every trained param.
    seed            of dropout.

    dims, device, threads, options and progress are those of `aicf.compile`. Errors: no_params, unused_param,
    not_differentiable, integer_gradient, loss_not_scalar.
    """
    _check_parts(optimizer, loss)
    check_type("seed", seed, int, "a whole number")
    if not -(2**63) <= seed < 2**63:
        raise make_error("bad_option", "a seed is out of range", value=str(seed), expected="64 bits")
    settings = _settings(clip_norm, accumulate, precision, loss_scale, skip_bad_steps, gradients)
    with work(progress):
        stage("import", 0.0)
        forward, untrained = loss_program(model, loss, inputs, eval_inputs, dims or {}, seed, optimizer)
        rows = [(untrained, 1.0, None, False), *optimizer.rows()]
        program = _aicf.train_program(
            forward, optimizer.kind, optimizer.numbers(), schedule_graph(optimizer.lr), rows, settings
        )
        return TrainStep(build(program, device, threads, check_options(options or {})))


def load_train_step(
    path: str | os.PathLike[str], *, device: str = "cpu", threads: int | None = None, isa: str | None = None
) -> TrainStep:
    """A saved train step, at the states it was saved with; not_trainable for other .aicf files."""
    return TrainStep(load_raw(path, device, threads, isa))


def shuffled_rows(rows: int, seed: int, epoch: int) -> np.ndarray:
    """The order in which `aicf train` visits its rows in an epoch: a permutation of 0 .. rows-1."""
    for name, value in (("rows", rows), ("seed", seed), ("epoch", epoch)):
        check_type(name, value, (int, np.integer), "a whole number")
    if not 0 <= seed < 2**64 or not 0 <= epoch < 2**63 or not 0 <= rows < 2**63:
        raise make_error(
            "bad_option",
            "a number of the order is out of range",
            expected="rows and epoch from 0, a seed of 64 bits",
            actual=f"{rows}, {epoch}, {seed}",
        )
    return np.asarray(_aicf.shuffled_rows(rows, seed, epoch), np.int64)


def _check_parts(optimizer: Any, loss: Any) -> None:
    if not isinstance(optimizer, Optimizer):
        raise make_error(
            "bad_option",
            "a train step needs an optimizer",
            expected="one of aicf.optim, such as aicf.optim.AdamW(1e-3)",
            actual=repr(optimizer)[:80],
        )
    if loss is not None and not callable(loss):
        raise make_error(
            "bad_option",
            "a loss is a function of the prediction and the target",
            expected="such as aicf.nn.CrossEntropyLoss()",
            actual=repr(loss)[:80],
        )


def _settings(
    clip_norm: float,
    accumulate: int,
    precision: str,
    loss_scale: LossScale | None,
    skip_bad_steps: bool,
    gradients: bool,
) -> _aicf.TrainOptions:
    check_whole("accumulate", accumulate)
    check_type("clip_norm", clip_norm, (int, float), "a number")
    check_type("precision", precision, str, "a name such as 'bf16-mixed'")
    check_type("loss_scale", loss_scale, (LossScale, type(None)), "an aicf.optim.LossScale")
    check_flag("skip_bad_steps", skip_bad_steps)
    check_flag("gradients", gradients)
    settings = _aicf.TrainOptions()
    settings.clip_norm, settings.accumulate = clip_norm, accumulate
    settings.skip_bad_steps, settings.gradients_entry = bool(skip_bad_steps), bool(gradients)
    settings.precision = precision
    if loss_scale is not None:
        settings.loss_scale = loss_scale.numbers()
    return settings

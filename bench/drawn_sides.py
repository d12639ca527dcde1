"""The programs that run a drawn problem: ours, torch.compile's, on a CPU onnxruntime's, and the
reference in f64. Each is made once and then called without arguments. Needs torch.
"""

from __future__ import annotations

import copy
import tempfile
import time
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from drawn_family import Case, Family, Input, classes, make_case, tensors, values
from torch import nn

__all__ = ["Side", "Work", "our_side", "peer_names", "reference", "work_of"]

RATE = {"adamw": 1e-3, "sgd": 1e-2}
STEPS = 3  # of training, compared with the reference
HALVES = {"f16": torch.float16, "bf16": torch.bfloat16}
# What a result may be off, relative in the norm, where torch's own error is a quarter of it or less.
FLOORS = {
    "f32": 1e-5, "tf32": 1e-3, "f16": 2e-3, "bf16": 1.6e-2, "bf16-mixed": 1.6e-2,
    "int8-dynamic": 1e-3, "int8-static": 1e-3,
}  # fmt: skip
TRAINING_FLOORS = {"f32": 1e-3, "bf16-mixed": 5e-2}  # of the weights' change, whose norm is small


@dataclass
class Side:
    """`run` is one call; `check` gives what is compared with the reference, in f64 on the host."""

    run: Callable[[], object]
    check: Callable[[], list[torch.Tensor]]
    seconds: float  # of compiling, the first call included
    executable: Any = None


@dataclass
class Work:
    """A problem's model, inputs and target, in f32 on the device."""

    problem: Any
    case: Case
    inputs: list[torch.Tensor]
    target: torch.Tensor | None
    threads: int

    @property
    def device(self) -> str:
        return self.problem.device

    @property
    def training(self) -> bool:
        return self.problem.mode == "train"

    @property
    def dtype(self) -> torch.dtype:
        return HALVES.get(self.problem.dtype, torch.float32)

    @property
    def loss(self) -> Callable[[torch.Tensor, torch.Tensor], torch.Tensor]:
        return classes if self.case.target[0] == "classes" else values

    def model(self, dtype: torch.dtype | None = None) -> nn.Module:
        """A copy in the problem's dtype, or of its weights in that dtype in another."""
        model = copy.deepcopy(self.case.model).to(self.dtype)
        return model.to(dtype or self.dtype).train(self.training)

    def arguments(self, dtype: torch.dtype | None = None) -> list[torch.Tensor]:
        return [x.to(dtype) if dtype is not None and x.is_floating_point() else x for x in self.inputs]


def work_of(problem: Any, family: Family, threads: int) -> Work:
    seed = problem.seed * 1000 + problem.index
    torch.manual_seed(seed)
    case = make_case(family, problem.sizes, problem.device)
    dtype = HALVES.get(problem.dtype, torch.float32)
    inputs = tensors(case.inputs, dtype, problem.device, seed)
    target = None
    if problem.mode == "train":
        with torch.no_grad():
            result = case.model(*(x.float() if x.is_floating_point() else x for x in inputs))
        shape = tuple(result.shape)
        if case.target[0] == "classes":
            count = case.target[1]
            places = (shape[0], *shape[2:]) if len(shape) == 4 else shape[:-1]
            (target,) = tensors([Input("target", places, count)], torch.float32, problem.device, seed + 1)
        else:
            (target,) = tensors([Input("target", shape)], torch.float32, problem.device, seed + 1)
    work = Work(problem, case, inputs, target, threads)
    if work.training:
        freeze_unused(work)
    return work


def freeze_unused(work: Work) -> None:
    """Parameters that the result does not depend on, such as a pooler's, are not trained on either side."""
    model = work.model()
    with torch.enable_grad():
        work.loss(model(*work.inputs), work.target).backward()
    unused = {name for name, p in model.named_parameters() if p.grad is None}
    for name, p in work.case.model.named_parameters():
        p.requires_grad_(name not in unused)


def trained_parameters(work: Work) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in work.case.model.named_parameters() if p.requires_grad}


def host(*results: torch.Tensor) -> list[torch.Tensor]:
    return [r.detach().double().cpu() for r in results]


def synchronize(work: Work) -> None:
    if work.device == "cuda":
        torch.cuda.synchronize()


@contextmanager
def as_written() -> Iterator[None]:
    """Without the kernels that torch takes for whole encoder layers in inference: on a GPU their gelu is the
    one by tanh, whatever the layer asks for."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def numbers(work: Work) -> Iterator[None]:
    """f32 products in tf32 where the problem says so; then convolutions too, as torch has them."""
    tf32 = work.problem.dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    with torch.set_grad_enabled(work.training):
        yield


# ---- inference


def reference(work: Work) -> list[torch.Tensor]:
    """In f64, of the weights and inputs as the problem's dtype has them. Of training: see `trained`."""
    if work.training:
        model = work.model(torch.float64)
        step, optimizer = torch_step(
            work, model, work.arguments(torch.float64), compile=None, fused=False, autocast=False
        )
        return trained(work, model, step, optimizer)[0]
    with torch.no_grad(), as_written():
        return host(work.model(torch.float64)(*work.arguments(torch.float64)))


def has(work: Work, *kinds: type[nn.Module]) -> bool:
    return any(isinstance(m, kinds) for m in work.case.model.modules())


def laid_out(work: Work, model: nn.Module, channels_last: bool) -> tuple[nn.Module, list[torch.Tensor]]:
    if not channels_last:
        return model, work.inputs
    last = torch.channels_last
    return model.to(memory_format=last), [
        x.to(memory_format=last) if x.dim() == 4 else x for x in work.inputs
    ]


def started(work: Work, run: Callable[[], Any]) -> tuple[Any, float]:
    start = time.perf_counter()
    result = run()
    synchronize(work)
    return result, time.perf_counter() - start


def torch_inference(work: Work, channels_last: bool, eager: bool = False, fast_layers: bool = True) -> Side:
    model, inputs = laid_out(work, work.model(), channels_last)
    torch._dynamo.reset()
    call = model if eager else torch.compile(model)
    if not fast_layers:
        call = as_written()(call)

    def run() -> torch.Tensor:
        with torch.no_grad():
            return call(*inputs)

    _, seconds = started(work, run)
    return Side(run, lambda: host(run()), seconds)


def our_inference(work: Work) -> Side:
    import aicf

    problem, model = work.problem, work.model()
    precision = "tf32" if problem.dtype == "tf32" else "f32"
    start = time.perf_counter()
    exe = aicf.compile(
        model, tuple(work.inputs), device=work.device, precision=precision, threads=_threads(work),
        options=_target(work),
    )  # fmt: skip
    exe(*work.inputs)
    synchronize(work)
    seconds = time.perf_counter() - start
    run, result = _calls(work, exe)

    def check() -> list[torch.Tensor]:
        run()
        synchronize(work)
        return host(*result())

    return Side(run, check, seconds, exe)


def _threads(work: Work) -> int | None:
    return work.threads if work.device == "cpu" else None


def _target(work: Work) -> dict[str, str]:
    """Code for this GPU alone, so that saving it compiles nothing more."""
    return {"target": "cuda"} if work.device == "cuda" else {}


def _calls(work: Work, exe: Any) -> tuple[Callable[[], object], Callable[[], list[torch.Tensor]]]:
    """One call, and what it gave: into memory that is there; a model that does not read all of its inputs
    allocates its result."""
    if work.device == "cpu" or len(exe.inputs) != len(work.inputs) or len(exe.outputs) != 1:
        last: list[Any] = []

        def run() -> None:
            last[:] = [exe(*work.inputs)]

        return run, lambda: [_tensor(x) for x in last]
    outputs = [torch.empty_like(exe(*work.inputs))]
    inputs = [x.contiguous() for x in work.inputs]
    stream = torch.cuda.current_stream()
    return lambda: exe.run_into(inputs, outputs, stream=stream), lambda: outputs


# ---- training


def trained(
    work: Work, model: nn.Module, step: Callable[[], Any], optimizer: torch.optim.Optimizer
) -> tuple[list[torch.Tensor], float]:
    """The losses of a few steps, how the weights have changed since, of AdamW then the first step's moments,
    a tenth of its gradients; the seconds of the steps."""
    before = {name: p.double().cpu() for name, p in trained_parameters(work).items()}
    trained = dict(model.named_parameters())
    losses, moments, seconds = [], [], 0.0
    for number in range(STEPS):
        start = time.perf_counter()
        losses.append(step().detach().double().cpu().reshape(()))
        seconds += time.perf_counter() - start
        if number == 0 and work.problem.optimizer == "adamw":
            moments = [optimizer.state[trained[name]]["exp_avg"].double().cpu() for name in before]
    changes = [trained[name].detach().double().cpu() - was for name, was in before.items()]
    return [torch.stack(losses), *changes, *moments], seconds


def undecided(expected: list[torch.Tensor], floor: float) -> list[torch.Tensor]:
    """Of each weight the elements whose change by AdamW the floor leaves open. Its first step is the sign of
    the gradient, whatever the size: where that is no larger than four times what it may be off, either sign
    is right. `expected` has the reference's losses, changes and moments; a gradient of 0 has no sign."""
    moments = expected[len(expected) // 2 + 1 :]
    limits = [4 * floor * float(m.square().mean().sqrt()) for m in moments]
    return [(m != 0) & (m.abs() <= limit) for m, limit in zip(moments, limits, strict=True)]


def torch_optimizer(work: Work, model: nn.Module, fused: bool) -> torch.optim.Optimizer:
    name, parameters = work.problem.optimizer, [p for p in model.parameters() if p.requires_grad]
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=RATE[name], momentum=0.9, fused=fused)
    captured = {"capturable": True} if work.device == "cuda" and fused else {}
    return torch.optim.AdamW(parameters, lr=RATE[name], weight_decay=0.01, fused=fused, **captured)


def torch_step(
    work: Work,
    model: nn.Module,
    inputs: Sequence[torch.Tensor],
    compile: Callable[[Callable[..., Any]], Callable[..., Any]] | None,
    fused: bool = True,
    autocast: bool = True,
) -> tuple[Callable[[], torch.Tensor], torch.optim.Optimizer]:
    mixed = autocast and work.problem.dtype == "bf16-mixed"
    target = work.target
    wide = next(p for p in model.parameters()).dtype == torch.float64
    if wide and target is not None and target.is_floating_point():
        target = target.double()

    def forward(*inputs: torch.Tensor) -> torch.Tensor:
        cast = torch.autocast(work.device, torch.bfloat16, cache_enabled=False) if mixed else nullcontext()
        with cast:
            result = model(*inputs)
        return _wide_loss(work, result, target) if wide else work.loss(result, target)

    call = forward if compile is None else compile(forward)
    optimizer = torch_optimizer(work, model, fused)

    def step() -> torch.Tensor:
        optimizer.zero_grad(set_to_none=True)
        loss = call(*inputs)
        loss.backward()
        optimizer.step()
        return loss

    return step, optimizer


def _wide_loss(work: Work, result: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """The loss in f64; `drawn_family` casts to f32, as mixed steps want it."""
    float_of = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign]
    try:
        return work.loss(result, target)
    finally:
        torch.Tensor.float = float_of  # type: ignore[method-assign]


def _inductor(function: Callable[..., Any]) -> Callable[..., Any]:
    torch._dynamo.reset()
    return torch.compile(function)


def torch_training(work: Work, channels_last: bool, eager: bool = False) -> Side:
    model, inputs = laid_out(work, work.model(), channels_last)
    step, optimizer = torch_step(work, model, inputs, None if eager else _inductor)
    found, seconds = trained(work, model, step, optimizer)
    return Side(step, lambda: found, seconds)


def moved_training(work: Work, seed: int) -> list[torch.Tensor]:
    """What torch eager makes of the steps from weights that are each moved by a rounding of f32."""
    rng = torch.Generator().manual_seed(seed)
    model = copy.deepcopy(work.case.model)
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(1 + 2.0**-23 * (2 * torch.rand(p.shape, generator=rng) - 1).to(p.device))
    moved = replace(work, case=replace(work.case, model=model))
    return torch_training(moved, False, eager=True).check()


def our_backend(work: Work) -> Side:
    """torch.compile(backend="aicf") with torch's fused optimizer."""
    import aicf.torch.backend  # noqa: F401

    model = work.model()

    def compile(function: Callable[..., Any]) -> Callable[..., Any]:
        options = {"threads": work.threads} if work.device == "cpu" else {}
        return torch.compile(function, backend=aicf.torch.backend.aicf_backend, options=options)

    step, optimizer = torch_step(work, model, work.inputs, compile)
    found, seconds = trained(work, model, step, optimizer)
    return Side(step, lambda: found, seconds)


def our_step(work: Work) -> Side:
    import aicf
    from aicf import optim

    problem, model = work.problem, work.model().cpu()  # its examples are made on the host
    rate = RATE[problem.optimizer]
    optimizer = (
        optim.SGD(rate, momentum=0.9) if problem.optimizer == "sgd" else optim.AdamW(rate, weight_decay=0.01)
    )
    arguments = [*work.inputs, work.target]
    specs = [
        aicf.TensorSpec(tuple(x.shape), "f32" if x.is_floating_point() else "i64", f"{name}")
        for x, name in zip(arguments, [*(i.name for i in work.case.inputs), ""], strict=True)
    ]
    start = time.perf_counter()
    step = aicf.compile_train_step(
        model, work.loss, optimizer, specs, precision=problem.dtype, skip_bad_steps=False,
        device=work.device, threads=_threads(work), options=_target(work),
    )  # fmt: skip
    seconds = time.perf_counter() - start
    before = trained_parameters(work)
    names = our_names(work, step.parameters())
    losses, moments = [], []
    for number in range(STEPS):
        start = time.perf_counter()
        losses.append(torch.as_tensor(_tensor(step(*arguments))).double().cpu().reshape(()))
        seconds += time.perf_counter() - start
        if number == 0 and problem.optimizer == "adamw":
            first = step.state_dict()
            moments = [_tensor(first[f"opt.m.{names[name]}"]).double().cpu() for name in before]
    after = step.parameters()
    changes = [_tensor(after[names[name]]).double().cpu() - p.double().cpu() for name, p in before.items()]
    found = [torch.stack(losses), *changes, *moments]
    return Side(lambda: step(*arguments), lambda: found, seconds, step)


def our_names(work: Work, known: Container[str]) -> dict[str, str]:
    """Of each trained parameter the name that a step of ours has for it: a tied one has one of its names."""
    names: dict[int, list[str]] = {}
    for name, p in work.case.model.named_parameters(remove_duplicate=False):
        names.setdefault(id(p), []).append(name)
    found = {aliases[0]: next((n for n in aliases if n in known), "") for aliases in names.values()}
    missing = [name for name in trained_parameters(work) if not found[name]]
    if missing:
        raise ValueError(f"the step has no param {', '.join(missing[:5])}")
    return found


def _tensor(value: Any) -> torch.Tensor:
    return value if isinstance(value, torch.Tensor) else torch.from_dlpack(value)


# ---- ONNX, on a CPU


def onnx_file(work: Work, folder: Path) -> Path:
    path = folder / "model.onnx"
    names = [i.name for i in work.case.inputs]
    with torch.no_grad():
        torch.onnx.export(
            work.model(), tuple(work.inputs), str(path), input_names=names, output_names=["y"], dynamo=False
        )
    return path


def quantised(work: Work, source: Path) -> Path:
    """By onnxruntime's tools: dynamically, or statically with ranges of a few random batches."""
    from onnxruntime import quantization as q

    path = source.with_name("int8.onnx")
    if work.problem.dtype == "int8-dynamic":
        q.quantize_dynamic(source, path, weight_type=q.QuantType.QInt8)
        return path

    class Batches(q.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [tensors(work.case.inputs, torch.float32, "cpu", seed) for seed in range(4)]

        def get_next(self) -> dict[str, Any] | None:
            if not self.left:
                return None
            batch = self.left.pop()
            return {i.name: x.numpy() for i, x in zip(work.case.inputs, batch, strict=True)}

    q.quantize_static(source, path, Batches(), quant_format=q.QuantFormat.QDQ, per_channel=True)
    return path


def onnxruntime_side(work: Work, path: Path) -> Side:
    from bench.onnxruntime_peer import OnnxRuntimePeer

    start = time.perf_counter()
    peer = OnnxRuntimePeer(path, work.threads)
    given = {i.name: x.numpy() for i, x in zip(work.case.inputs, work.inputs, strict=True)}
    peer(given)
    seconds = time.perf_counter() - start
    return Side(lambda: peer(given), lambda: host(torch.from_numpy(peer(given)[0])), seconds)


def our_onnx(work: Work, path: Path) -> Side:
    import aicf

    start = time.perf_counter()
    exe = aicf.compile(path, threads=work.threads)
    given = {i.name: x.numpy() for i, x in zip(work.case.inputs, work.inputs, strict=True)}
    exe(**given)
    seconds = time.perf_counter() - start
    return Side(lambda: exe(**given), lambda: host(torch.from_dlpack(exe(**given))), seconds, exe)


# ---- by mode: the makers of each program by name, in the order in which they are made


def peer_names(work: Work) -> dict[str, Callable[[], Side]]:
    """Those that count."""
    problem, mode = work.problem, work.problem.mode
    if mode == "int8":
        return {"onnxruntime": lambda: onnxruntime_side(work, _file(work))}
    torch_side = torch_training if work.training else torch_inference
    if mode == "halves":
        return {"eager": lambda: torch_side(work, False, eager=True)}
    made: dict[str, Callable[[], Side]] = {"torch.compile": lambda: torch_side(work, False)}
    if work.device == "cuda":
        if has(work, nn.Conv2d, nn.ConvTranspose2d):
            made["torch.compile, channels last"] = lambda: torch_side(work, True)
        if not work.training and has(work, nn.TransformerEncoderLayer, nn.MultiheadAttention):
            made["torch.compile, layers as written"] = lambda: torch_inference(work, False, fast_layers=False)
        return made
    if problem.mode == "train":
        made["eager"] = lambda: torch_side(work, False, eager=True)
        return made
    made["onnxruntime"] = lambda: onnxruntime_side(work, _file(work))
    return made


def our_side(work: Work) -> Side:
    if work.problem.mode == "int8":
        return our_onnx(work, _file(work))
    if not work.training:
        return our_inference(work)
    return our_backend(work) if work.problem.door == "backend" else our_step(work)


_FILES: dict[int, Path] = {}


def _file(work: Work) -> Path:
    """The model as an ONNX file, quantised where the problem says so; made once."""
    if id(work) not in _FILES:
        path = onnx_file(work, Path(tempfile.mkdtemp()))
        _FILES[id(work)] = quantised(work, path) if work.problem.mode == "int8" else path
    return _FILES[id(work)]

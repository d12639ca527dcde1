"""Triton kernels as the GPU side of a custom op. Triton is optional: it is imported when such an op is
traced.

The kernel is compiled ahead of time, for an architecture and not for a machine, to PTX; no GPU is needed.
The file that aicf.compile makes holds it, so running it needs neither Triton nor Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from .errors import make_error

__all__ = ["TritonKernel", "compile_triton"]

_POINTERS = {
    "f64": "*fp64",
    "f32": "*fp32",
    "f16": "*fp16",
    "bf16": "*bf16",
    "i64": "*i64",
    "i32": "*i32",
    "i16": "*i16",
    "i8": "*i8",
    "u8": "*u8",
    "bool": "*i1",
}


@dataclass(frozen=True, eq=False)
class TritonKernel:
    """A function of `triton.jit` for a custom op.

    It takes the pointers of the inputs and the outputs, then 64-bit integers: those of `params` (by default
    the element count of the first result) and the op's whole attributes; then its real attributes in f64;
    then its constants (`tl.constexpr`), whose values `constants` gives by name.

    grid         programs, from the types of the results: one to three sizes.
    compute_capability  architecture that the kernel is compiled for, which runs on it and on later ones.
    options      more of Triton's, such as num_warps and num_stages.
    """

    function: Any
    grid: Callable[..., Sequence[Any]]
    constants: Mapping[str, Any] = field(default_factory=dict)
    params: Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]] | None = None
    compute_capability: int = 80
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CompiledTriton:
    """PTX and how it is launched."""

    text: str
    function: str
    block: int
    shared_bytes: int


def compile_triton(
    kernel: TritonKernel, dtypes: Sequence[str], integers: int, reals: int, op: str
) -> CompiledTriton:
    """For operands (inputs, then outputs) of these dtypes and so many whole and real values."""
    names = [p.name for p in kernel.function.params if not p.is_constexpr]
    types = [*(_POINTERS[dtype] for dtype in dtypes), *["i64"] * integers, *["fp64"] * reals]
    if len(names) != len(types):
        raise make_error(
            "bad_attribute",
            "the Triton kernel takes other arguments than the op gives",
            op=op,
            value=kernel.function.__name__,
            expected=f"{len(dtypes)} pointers, {integers} integers, {reals} reals",
            actual=", ".join(names),
        )
    constants = tuple(sorted(kernel.constants.items()))
    options = tuple(sorted({"enable_fp_fusion": False, **kernel.options}.items()))
    signature = tuple(zip(names, types, strict=True))
    return _compiled(kernel.function, signature, constants, options, kernel.compute_capability, op)


@cache
def _compiled(
    function: Any, signature: Any, constants: Any, options: Any, compute_capability: int, op: str
) -> CompiledTriton:
    try:
        import triton
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource
    except ImportError as missing:
        raise make_error(
            "tool_missing",
            "this custom op needs Triton, which is not installed",
            op=op,
            remedy="pip install triton",
        ) from missing
    types = dict(signature) | {name: "constexpr" for name, _ in constants}
    source = ASTSource(function, types, dict(constants))
    lines = triton.knobs.compilation.disable_line_info
    triton.knobs.compilation.disable_line_info = True  # they hold paths of this machine
    try:
        made = triton.compile(source, target=GPUTarget("cuda", compute_capability, 32), options=dict(options))
    except Exception as error:  # Triton's compiler raises what it likes
        raise make_error(
            "bad_attribute",
            f"Triton could not compile the kernel: {error}"[:500],
            op=op,
            value=function.__name__,
        ) from error
    finally:
        triton.knobs.compilation.disable_line_info = lines
    facts = made.metadata
    if facts.global_scratch_size or facts.num_ctas != 1:
        raise make_error(
            "bad_attribute",
            "the Triton kernel needs scratch memory or clusters, which a custom op does not have",
            op=op,
            value=f"global_scratch_size={facts.global_scratch_size}, num_ctas={facts.num_ctas}",
        )
    return CompiledTriton(made.asm["ptx"], facts.name, 32 * facts.num_warps, facts.shared)

"""Custom ops whose GPU side is PTX, by hand or from a Triton kernel; compiled only, no GPU is needed."""

from __future__ import annotations

import importlib.util
import itertools
import subprocess
from pathlib import Path
from typing import Any

import aicf
import numpy as np
import pytest
from needs_triton import need_triton

# y[i] = x[i] of one block; the two last parameters are scratch that it does not use.
COPY = """//
// by hand
.version 8.0
.target sm_80
.address_size 64

.visible .entry copy_all(
  .param .u64 x, .param .u64 y, .param .u64 n, .param .u64 scratch
)
.reqntid 128
{
  .reg .b64 %rd<6>;
  .reg .b32 %r<3>;
  .reg .pred %p<2>;
  ld.param.u64 %rd1, [x];
  ld.param.u64 %rd2, [y];
  ld.param.u64 %rd3, [n];
  mov.u32 %r1, %tid.x;
  cvt.u64.u32 %rd4, %r1;
  setp.ge.u64 %p1, %rd4, %rd3;
  @%p1 bra DONE;
  shl.b64 %rd4, %rd4, 2;
  add.u64 %rd5, %rd1, %rd4;
  ld.global.b32 %r2, [%rd5];
  add.u64 %rd5, %rd2, %rd4;
  st.global.b32 [%rd5], %r2;
DONE:
  ret;
}
"""
_numbers = itertools.count()


def compiled(kernel: Any, path: Path, target: str = "sm_90", **attributes: Any) -> bytes:
    """The file that a model of one custom op makes for a GPU."""
    op = aicf.register_op(
        f"ptx::op{next(_numbers)}",
        results=lambda x, **_: (x.dtype, x.shape),
        attributes=attributes,
        cuda=kernel,
        cpu=lambda x, y, **_: np.copyto(y, x),
    )
    program = aicf.trace(lambda x: op(x), [aicf.TensorSpec((100,))])
    aicf.compile(program, options={"target": f"cpu,{target}"}).save(path / "m.aicf")
    return (path / "m.aicf").read_bytes()


def ptx_in(data: bytes) -> str:
    start = data.index(b".version ")
    return data[start : data.rindex(b"}", start) + 1].decode(errors="replace")


def test_ptx_waits_where_the_target_has_a_wait(tmp_path: Path) -> None:
    kernel = aicf.CudaKernel(COPY, "copy_all")
    later = ptx_in(compiled(kernel, tmp_path, "sm_90"))
    assert ".target sm_90" in later
    assert later.index("griddepcontrol.wait") < later.index("ld.param.u64")
    earlier = ptx_in(compiled(kernel, tmp_path, "sm_80"))
    assert ".target sm_80" in earlier and "griddepcontrol" not in earlier


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (".target sm_80", ".target sm_100", "later architecture"),
        ("copy_all(", "copy_some(", "does not define"),
        (", .param .u64 n, .param .u64 scratch", "", "too few parameters"),
    ],
)
def test_mistakes_in_ptx_are_named(old: str, new: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(aicf.UserError, match=said):
        compiled(aicf.CudaKernel(COPY.replace(old, new), "copy_all"), tmp_path)


SCALED = """
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, n, alpha, BLOCK: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < n, other=0.0)
    tl.store(y + at, value * alpha.to(tl.float32), mask=at < n)
"""


@pytest.fixture
def scaled(tmp_path: Path) -> Any:
    """The jit function; Triton reads it from a file."""
    need_triton()
    (tmp_path / "kernels.py").write_text(SCALED)
    spec = importlib.util.spec_from_file_location("kernels", tmp_path / "kernels.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.scaled


def test_a_triton_kernel_is_compiled_ahead_of_time(scaled: Any, tmp_path: Path) -> None:
    import triton

    kernel = aicf.TritonKernel(
        scaled, lambda y: [-(-y.shape[0] // 256)], {"BLOCK": 256}, options={"num_warps": 2}
    )
    data = compiled(kernel, tmp_path, alpha=2.0)
    text = ptx_in(data)
    assert ".reqntid 64" in text and str(tmp_path).encode() not in data
    (tmp_path / "k.ptx").write_text(text)
    assembler = triton.knobs.nvidia.ptxas.path
    subprocess.run([assembler, "-arch=sm_90", tmp_path / "k.ptx", "-o", tmp_path / "k.cubin"], check=True)


def test_mistakes_in_triton_kernels_are_named(scaled: Any, tmp_path: Path) -> None:
    with pytest.raises(aicf.UserError, match="other arguments"):
        compiled(aicf.TritonKernel(scaled, lambda y: [1], {"BLOCK": 256}), tmp_path)
    with pytest.raises(aicf.UserError, match="could not compile"):
        compiled(aicf.TritonKernel(scaled, lambda y: [1], {"BLOCK": 3}), tmp_path, alpha=1.0)

"""The script that runs small models under compute-sanitizer: which reports it takes for false ones, and that
its models call the kernels that they are there for."""

from __future__ import annotations

import argparse
import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import racecheck
import sanitize_gpu

# As recorded in bench/results/sanitize_changed_kernels_2026-11-22.json, cut short.
GRADIENTS = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at attention_dkv_wgmma_bf16_128_1+0xa7e0
=========     and Read access at attention_dkv_wgmma_bf16_128_1+0x3f30 [2048 hazards]
=========     and Read access at attention_dkv_wgmma_bf16_128_1+0x3f50 [2048 hazards]
=========
========= Error: Race reported between Write access at attention_dkv_wgmma_bf16_128_1+0x9ad0
=========     and Read access at attention_dkv_wgmma_bf16_128_1+0x3f30 [2560 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
COPY, NUMBERS = "UBLKCP.S.G", "LDS.64"
DKV = "attention_dkv_wgmma_bf16_128_1"
CODE = {(DKV, 0xA7E0): COPY, (DKV, 0x9AD0): COPY, (DKV, 0x3F30): NUMBERS, (DKV, 0x3F50): NUMBERS}
BIAS = """========= Error: Race reported between Write access at matmul_attention_f16_32_2+0x1fb0
=========     and Read access at matmul_attention_f16_32_2+0xedd0 [768 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
JOINED = "matmul_attention_f16_32_2"


def test_recorded_false_reports_are_known() -> None:
    assert [len(race.others) for race in racecheck.races(GRADIENTS)] == [2, 1]
    assert racecheck.unknown(GRADIENTS, CODE) == []
    assert racecheck.unknown(BIAS, {(JOINED, 0x1FB0): "STS", (JOINED, 0xEDD0): "LDS"}) == []
    clean = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"
    assert racecheck.unknown(clean, {}) == [] and racecheck.total(clean) == 0


@pytest.mark.parametrize(
    ("at", "other"),
    [(0xA7E0, "STS"), (0xA7E0, "UTMALDG.4D"), (0x3F50, "LDS"), (0x3F50, "LDSM.16.M88.4")],
)
def test_another_instruction_of_a_known_kernel_races(at: int, other: str) -> None:
    lines = racecheck.unknown(GRADIENTS, CODE | {(DKV, at): other})
    assert len(lines) == 1 and f"{at:#x} ({other})" in lines[0]


@pytest.mark.parametrize("read", ["LDS.64", "LDSM.16.M88.4"])
def test_a_race_on_masks_or_tiles_of_projected_attention_counts(read: str) -> None:
    assert racecheck.unknown(BIAS, {(JOINED, 0x1FB0): "STS", (JOINED, 0xEDD0): read})
    assert racecheck.unknown(BIAS, {(JOINED, 0x1FB0): "STSM.16.M88.4", (JOINED, 0xEDD0): "LDS"})


def test_the_same_instructions_of_another_kernel_race() -> None:
    other = "attention_dq_wgmma_bf16_128_1"
    code = {(other, offset): name for (_, offset), name in CODE.items()}
    assert len(racecheck.unknown(GRADIENTS.replace(DKV, other), code)) == 2


def test_two_writes_race() -> None:
    code = {key: COPY for key in CODE}
    assert len(racecheck.unknown(GRADIENTS.replace("Read", "Write"), code)) == 2


def test_without_the_instruction_nothing_is_excused() -> None:
    assert len(racecheck.unknown(GRADIENTS, {})) == 2


def test_races_that_are_not_printed_count() -> None:
    more = GRADIENTS.replace("(2 errors, 0 warnings)", "(7 errors, 1 warning)")
    assert racecheck.unknown(more, CODE) == ["8 races, 2 of them printed"]
    assert racecheck.unknown(GRADIENTS.rsplit("\n", 2)[0], CODE) == ["None races, 2 of them printed"]


@pytest.mark.parametrize(
    "line", ["Error: Race reported between nobody knows what", "    and Read access at 0x10"]
)
def test_a_report_of_another_form_is_not_overlooked(line: str) -> None:
    with pytest.raises(ValueError, match="not understood"):
        racecheck.races(f"========= {line}\n")


def test_instructions_of_a_disassembly() -> None:
    text = """.text.matmul_attention_f16_32_2:
        /*0000*/                   LDC R1, c[0x0][0x28] ;
        /*1fb0*/               @P3 STS [R11+0x34800], R2 ;
        /*1fd0*/              @!P2 SYNCS.ARRIVE.TRANS64.A1T0 RZ, [R10+URZ], RZ ;
        /*e420*/              @!UP1 UBLKCP.S.G [UR8], [UR10], UR12 ;
.text.other:
        /*0010*/                   LDS.64 R14, [R4+0x34400] ;
"""
    assert racecheck.instructions(text) == {
        (JOINED, 0): "LDC",
        (JOINED, 0x1FB0): "STS",
        (JOINED, 0x1FD0): "SYNCS.ARRIVE.TRANS64.A1T0",
        (JOINED, 0xE420): "UBLKCP.S.G",
        ("other", 0x10): "LDS.64",
    }


# ---- a run

TOOL = """#!/bin/sh
case "$1" in
  -c) cat {folder}/code ;;
  *) cat {folder}/report; exit {code} ;;
esac
"""


def outcome(folder: Path, report: str, code: str = "", fails: int = 0) -> dict[str, Any]:
    """Of a model under racecheck, where one program plays the tool and the disassembler."""
    program = folder / "tool"
    program.write_text(TOOL.format(folder=folder, code=fails))
    program.chmod(0o755)
    (folder / "report").write_text(report)
    (folder / "code").write_text(code)
    header = b"\x7fELF" + bytes(28) + struct.pack("<QQIHHHHHH", 0, 64, 0, 64, 0, 0, 64, 1, 0)
    (folder / "model.aicf").write_bytes(b"plan" + header + bytes(64) + b"rest")
    options = argparse.Namespace(
        folder=folder, sanitizer=program, disassembler=str(program), aicf="aicf", seconds=60
    )
    return sanitize_gpu.run(options, "racecheck", sanitize_gpu.Case("model", lambda path: None))


def test_a_run_that_ends_badly_is_never_known(tmp_path: Path) -> None:
    assert outcome(tmp_path, GRADIENTS)["unknown"]  # the model has no such kernel
    failed = outcome(tmp_path, "", fails=1)
    assert failed["count"] == -1 and failed["unknown"]
    failed = outcome(tmp_path, GRADIENTS, fails=1)
    assert failed["count"] == -1 and failed["unknown"]
    clean = outcome(tmp_path, "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)")
    assert clean["count"] == 0 and "unknown" not in clean


def test_reports_are_not_excused_without_a_disassembler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def absent(*_: Any) -> Any:
        raise FileNotFoundError("nvdisasm")

    monkeypatch.setattr(sanitize_gpu, "disassembled", absent)
    assert "nvdisasm" in outcome(tmp_path, GRADIENTS)["unknown"][0]


# ---- models


def steps(model: Path) -> list[dict[str, Any]]:
    """Of the sm_90 plan of a compiled model, which is a safetensors file."""
    data = model.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    begin, end = json.loads(data[8 : 8 + length])["aicf.plan.sm_90"]["data_offsets"]
    plan = json.loads(data[8 + length + begin : 8 + length + end])
    return [step for entry in plan["entries"] for step in entry["steps"]]


def launches(step: dict[str, Any], begin: str) -> list[dict[str, Any]]:
    return [launch for launch in step["launches"] if launch["function"].startswith(begin)]


def reads_x_early(step: dict[str, Any]) -> bool:
    return any(launch["early_inputs"] == [0, 1] for launch in launches(step, "matmul_wgmma"))


def fetches_rows(step: dict[str, Any]) -> bool:
    return any(launch["shared_bytes"] > 0 for launch in launches(step, "tile_rows"))


def group_of_results(count: int, variant: str) -> Callable[[dict[str, Any]], bool]:
    def matches(step: dict[str, Any]) -> bool:
        members = len(step.get("members", []))
        return (
            step["kernel"] == "matmul_group"
            and len(step["outputs"]) == count * members
            and step["variant"].endswith(variant)
        )

    return matches


MADE_FOR = {
    "linears-early-1": reads_x_early,
    "linears-early-64": reads_x_early,
    "softmax-long": fetches_rows,
    "norm": fetches_rows,
    "sums-in-groups": group_of_results(2, "warpgroups 2"),
    "sums-in-groups-ping-pong": group_of_results(2, "ping-pong"),
    "sums-in-groups-epilogue-warps": group_of_results(2, "epilogue-warps"),
    "updates-in-groups": group_of_results(3, "epilogue-warps"),
    "attention-50x32": lambda step: bool(launches(step, "attention_split")),
    "decoder": lambda step: bool(launches(step, "attention_combine")),
    "encoder-512x8x128-choose-matmul_attention": lambda step: bool(launches(step, "matmul_attention")),
    "attention-gradients-600x64x32": lambda step: bool(launches(step, "attention_dkv_wgmma")),
}


@pytest.mark.parametrize("name", MADE_FOR)
def test_models_call_the_kernels_that_they_are_for(nvrtc: None, cli: str, name: str, tmp_path: Path) -> None:
    sanitize_gpu.prepare(argparse.Namespace(folder=tmp_path, aicf=cli), name)
    assert any(MADE_FOR[name](step) for step in steps(tmp_path / f"{name}.aicf"))

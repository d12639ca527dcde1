"""Races that compute-sanitizer's racecheck reports of a compiled model, and which of these reports are false.

racecheck names the instructions of a race by kernel and offset; which ones they are, the disassembly of the
model's own machine code says. A report is known to be false only if its kernel, what writes and what reads
are those of a row of KNOWN; every other race of the same kernel counts.
"""

from __future__ import annotations

import re
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["KNOWN", "Access", "Known", "Race", "disassembled", "instructions", "races", "total", "unknown"]

Code = Mapping[tuple[str, int], str]  # the instruction, without operands, at an offset of a kernel


@dataclass(frozen=True)
class Access:
    kind: str  # Read or Write
    kernel: str
    offset: int

    def text(self, code: Code) -> str:
        instruction = code.get((self.kernel, self.offset), "unknown instruction")
        return f"{self.kind} at {self.kernel}+{self.offset:#x} ({instruction})"


@dataclass(frozen=True)
class Race:
    """One access and those of other threads that race with it."""

    first: Access
    others: tuple[Access, ...]

    def text(self, code: Code) -> str:
        return f"{self.first.text(code)} and {', '.join(other.text(code) for other in self.others)}"


@dataclass(frozen=True)
class Known:
    """False reports: in kernels whose whole name matches, between these two instructions."""

    kernel: str
    write: str
    read: str
    reason: str

    def excuses(self, race: Race, code: Code) -> bool:
        accesses = (race.first, *race.others)
        writes = [access for access in accesses if access.kind == "Write"]
        return (
            writes == [race.first]
            and len(accesses) > 1
            and all(re.fullmatch(self.kernel, access.kernel) for access in accesses)
            and code.get((race.first.kernel, race.first.offset)) == self.write
            and all(code.get((other.kernel, other.offset)) == self.read for other in race.others)
        )


KNOWN = (
    Known(
        r"attention_dkv_wgmma_(f16|bf16)_\d+_\d+",
        "UBLKCP.S.G",
        "LDS.64",
        "The numbers of rows come by a bulk copy without a tensor map, which racecheck takes for a write of"
        " the thread that issues it. It does not see that readers wait for the barrier which the copy itself"
        " completes (FlashAttention's notes on racecheck describe the same). Tiles come by UTMALDG.",
    ),
    Known(
        r"matmul_attention_(f16|bf16)_\d+_\d+",
        "STS",
        "LDS",
        "The biases that projected attention hands to the warps that multiply: __syncwarp() orders what a"
        " warp wrote before one lane's arrival at a barrier; racecheck counts that lane's writes alone. Masks"
        " are read by LDS.64, tiles written by STSM.",
    ),
)

ACCESS = re.compile(r"(Read|Write) access at (\w+)(?:\([^)]*\))?\+(0x[0-9a-f]+)")


def races(output: str) -> list[Race]:
    """All that the output names; a report of another form is a ValueError."""
    found: list[list[Access]] = []
    for line in output.splitlines():
        begins = "Race reported between" in line
        if not begins and not re.match(r"=+\s+and (Read|Write) access", line):
            continue
        access = ACCESS.search(line)
        if access is None or not (begins or found):
            raise ValueError(f"racecheck: not understood: {line}")
        if begins:
            found.append([])
        found[-1].append(Access(access[1], access[2], int(access[3], 16)))
    return [Race(first, tuple(others)) for first, *others in found]


def total(output: str) -> int | None:
    """How many races there are, printed or not; None: racecheck came to no end."""
    found = re.search(r"RACECHECK SUMMARY: \d+ hazards? displayed \((\d+) errors?, (\d+) warnings?\)", output)
    return int(found[1]) + int(found[2]) if found else None


def unknown(output: str, code: Code, known: Sequence[Known] = KNOWN) -> list[str]:
    """What racecheck's output reports and no row excuses, a line each."""
    reported = races(output)
    lines = [race.text(code) for race in reported if not any(row.excuses(race, code) for row in known)]
    if len(reported) != total(output):
        lines.append(f"{total(output)} races, {len(reported)} of them printed")
    return lines


# ---- machine code


def instructions(text: str) -> dict[tuple[str, int], str]:
    """Of nvdisasm's text."""
    code, kernel = {}, ""
    for line in text.splitlines():
        if section := re.match(r"\.text\.(\w+):", line):
            kernel = section[1]
        elif found := re.match(r"\s*/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", line):
            code[kernel, int(found[1], 16)] = found[2]
    return code


def cubins(model: bytes) -> Iterator[bytes]:
    """The ELF files in a compiled model, which stores them as they are."""
    at = model.find(b"\x7fELF")
    while at >= 0:
        programs, sections = struct.unpack_from("<QQ", model, at + 32)
        program, program_count, section, section_count = struct.unpack_from("<HHHH", model, at + 54)
        end = at + max(programs + program * program_count, sections + section * section_count)
        yield model[at:end]
        at = model.find(b"\x7fELF", end)


def disassembled(model: Path, kernels: set[str], disassembler: str) -> dict[tuple[str, int], str]:
    """The instructions of these kernels of a compiled model."""
    code: dict[tuple[str, int], str] = {}
    for cubin in cubins(model.read_bytes()):
        if not any(b".text." + kernel.encode() + b"\0" in cubin for kernel in kernels):
            continue
        with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
            file.write(cubin)
            file.flush()
            command = [disassembler, "-c", file.name]
            text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        code |= instructions(text)
    return code

"""Facts about the machine and the installed packages that belong beside every measurement."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path

__all__ = ["describe_machine", "measured_tree", "physical_cores", "versions"]

_CPU = Path("/sys/devices/system/cpu")
_LEVELS = ("avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile")


def physical_cores() -> int:
    """Cores this process may use, hardware threads of one core counted once."""
    cores = set()
    for cpu in os.sched_getaffinity(0):
        siblings = _CPU / f"cpu{cpu}" / "topology" / "thread_siblings_list"
        cores.add(siblings.read_text().strip() if siblings.exists() else str(cpu))
    return len(cores)


def _cpuinfo() -> dict[str, list[str]]:
    fields: dict[str, list[str]] = {}
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        name, colon, value = line.partition(":")
        if colon:
            fields.setdefault(name.strip(), []).append(value.strip())
    return fields


def _memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def describe_machine() -> dict[str, object]:
    """Processor, clocks as the kernel reports them now, memory, load and system."""
    info = _cpuinfo()
    flags = set(info.get("flags", [""])[0].split())
    governor = _CPU / "cpu0" / "cpufreq" / "scaling_governor"
    return {
        "cpu": info.get("model name", [platform.machine()])[0],
        "physical_cores": physical_cores(),
        "logical_cpus": len(os.sched_getaffinity(0)),
        "clock_mhz": [float(value) for value in info.get("cpu MHz", [])],
        "governor": governor.read_text().strip() if governor.exists() else None,
        "isa": [level for level in _LEVELS if level in flags],
        "memory_bytes": _memory_bytes(),
        "load_average": list(os.getloadavg()),
        "system": f"{platform.system()} {platform.release()}",
        "libc": " ".join(platform.libc_ver()),
    }


def measured_tree() -> dict[str, object]:
    """What a file of results begins with: its schema, the commit that is measured, and the day (UTC).

    Where there is no git, AICF_COMMIT says the commit.
    """
    root = Path(__file__).resolve().parents[1]
    commit, changed = os.environ.get("AICF_COMMIT", ""), False
    if not commit and shutil.which("git"):
        ask = ["git", "-C", str(root)]
        commit = subprocess.run(
            [*ask, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True
        ).stdout
        changes = subprocess.run([*ask, "status", "--porcelain", "-uno"], capture_output=True, text=True)
        changed = bool(changes.stdout.strip())
    return {
        "schema": 1,
        "commit": commit.strip(),
        "tree_changed": changed,
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Installed versions of Python and the named packages; a package that is not installed is an error."""
    return {"python": platform.python_version()} | {
        name: importlib.metadata.version(name) for name in packages
    }

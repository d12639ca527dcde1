"""pytest plugin of mutate.py: a page of mutants for each worker, and which each test that passes reached."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterator

import pytest

PAGE_BYTES = 4096
_path = os.environ["AICF_MUTANT_PAGE"] + os.environ.get("PYTEST_XDIST_WORKER", "")
if not os.path.exists(_path):
    with open(_path, "wb") as new:
        new.write(b"\xff" * 4 + b"\0" * (PAGE_BYTES - 4))
os.environ["AICF_MUTANT_PAGE"] = _path
with open(_path, "r+b") as _file:
    _page = mmap.mmap(_file.fileno(), PAGE_BYTES)


_not_passed = set()


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if not report.passed:
        _not_passed.add(report.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _page[4:] = b"\0" * (PAGE_BYTES - 4)
    start = time.monotonic()
    result = yield
    reached = [str(i) for i, byte in enumerate(_page[4:]) if byte]
    log = os.environ.get("AICF_MUTANT_REACHED")
    if log and item.nodeid not in _not_passed:
        with open(log, "a") as out:
            print(item.nodeid.replace(" ", "\x1f"), time.monotonic() - start, *reached, file=out)
    return result

"""What scripts/check_docs.py asks of files of results, of the manual and of comments, on some without it."""

from __future__ import annotations

import importlib.util
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
GOOD = {
    "schema": 1,
    "commit": "0123abc",
    "date": "2026-11-23",
    "command": "python bench/x.py",
    "machine": "two cores",
    "versions": {"aicf": "0.2"},
}


@pytest.fixture(scope="module")
def checks() -> Any:
    path = ROOT / "scripts" / "check_docs.py"
    if not path.exists():
        pytest.skip("needs the source tree")
    spec = importlib.util.spec_from_file_location("check_docs", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def faults(checks: Any, data: dict[str, Any], name: str = "r.json") -> list[str]:
    return list(checks.check_result(name, json.dumps(data).encode()))


def test_a_whole_file_passes(checks: Any) -> None:
    assert faults(checks, GOOD) == []
    raw = lzma.compress(json.dumps({**GOOD, "rows": ["x" * 99999]}).encode())
    assert list(checks.check_result("r.json.xz", raw)) == []


@pytest.mark.parametrize("lost", GOOD)
def test_what_a_file_does_not_say_is_told(checks: Any, lost: str) -> None:
    data = {key: value for key, value in GOOD.items() if key != lost}
    assert lost in " ".join(faults(checks, data))


def test_only_files_of_before_may_lack_something(checks: Any) -> None:
    data = {key: value for key, value in GOOD.items() if key != "versions"} | {"not_recorded": ["versions"]}
    assert faults(checks, {**data, "date": "2026-11-22"}) == []
    assert "not_recorded" in faults(checks, data)[0]
    assert "no commit" in faults(checks, {**GOOD, "commit": "today"})[0]
    assert "compress" in faults(checks, {**GOOD, "rows": ["x" * 99999]})[0]


@pytest.mark.parametrize(
    "line",
    [
        "It takes 12.5 µs.",
        "At 3,040 GB/s it",
        "1.2 times as fast as torch",
        "On 2026-11-22 it",
        "is 7 % slower",
        "`gpu_ops_2026-11-22.json`",
    ],
)
def test_the_manual_holds_no_measurement(checks: Any, line: str) -> None:
    assert list(checks.check_manual("docs/x.md", f"# X\n\n{line}\n"))[0].startswith("docs/x.md:3:")


def test_what_looks_like_a_measurement_and_is_none(checks: Any) -> None:
    text = "A batch of 8, 64 MiB, 2 % less time, `--seconds 600`.\n\n```text\nmedian 0.43 µs\n```\n"
    assert list(checks.check_manual("docs/x.md", text)) == []


def test_a_test_that_a_page_names_exists(checks: Any) -> None:
    files = {"python/tests/test_result_files.py", "src/base/npy_test.cc"}
    good = (
        "`test_result_files.py::test_a_whole_file_passes`, `base/npy_test.cc::Npy.WhatIsWrittenIsReadAgain`"
    )
    assert list(checks.check_tests("p.md", good, files)) == []
    for test in (
        "test_result_files.py::test_a_whole_file",
        "test_result_file.py::test_a_whole_file_passes",
        "base/npy_test.cc::Npy.WhatIsWritten",
        "base/npy_test.cc::WhatIsWrittenIsReadAgain",
    ):
        assert list(checks.check_tests("p.md", f"`{test}`", files)) == [f"p.md: there is no test {test}"]


def test_a_page_opens_with_what_it_is_for(checks: Any) -> None:
    assert list(checks.check_opening("docs/x.md", "# X\n\nHow to x.\n")) == []
    assert len(list(checks.check_opening("docs/x.md", "# X\n\n| a | b |\n"))) == 1
    assert len(list(checks.check_opening("docs/x.md", "# X\n"))) == 1
    assert list(checks.check_opening("docs/measurements/x.md", "# X\n\n2026-11-23, one H100.\n")) == []
    assert len(list(checks.check_opening("docs/measurements/x.md", "# X\n\nOne H100.\n"))) == 1


def test_comments_name_files_that_exist(checks: Any) -> None:
    files = ["src/kernels/common/way.h", "src/kernels/matmul/cuda/wgmma.cuh"]
    sound = "int a;  // as way.h, matmul/cuda/wgmma.cuh and src/kernels/common/way.h say; in each *_isa.cc\n"
    assert list(checks.check_comments("src/x.cc", sound, files)) == []
    for gone in ("gone.h", "matmul/way.h", "src/way.h"):
        text = f'// One.\n#include "y.h"\n// As {gone} says.\n'
        assert list(checks.check_comments("src/x.cc", text, files)) == [f"src/x.cc:3: there is no {gone}"]

"""Progress and log of a compilation: a callback, a line on a terminal, an output of a notebook, a logger."""

from __future__ import annotations

import logging
import os
import pty
import subprocess
import sys
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

import aicf
import pytest

SPECS = [aicf.TensorSpec((4, 8))]
COMPILER = ("passes", "select", "calls", "build", "plan")


def model(x: Any) -> Any:
    return x * 2 + 1


def slow(x: Any) -> Any:
    time.sleep(1.6)
    return x + 1


@pytest.fixture
def heard() -> list[tuple[str, float]]:
    return []


@pytest.fixture(autouse=True)
def nobody_listens() -> Iterator[None]:
    yield
    aicf.set_progress(None)


def check(heard: list[tuple[str, float]], *stages: str) -> None:
    names, fractions = [name for name, _ in heard], [done for _, done in heard]
    assert list(dict.fromkeys(names)) == list(stages)
    assert fractions == sorted(fractions) and fractions[0] == 0.0 and heard[-1] == ("done", 1.0)


def test_a_callback_hears_every_stage(heard: list[tuple[str, float]], mlp: bytes) -> None:
    for compiled in ((model, SPECS), (mlp, None)):
        heard.clear()
        aicf.compile(*compiled, dims={"batch": "1..4"} if compiled[0] is mlp else None,
                     progress=lambda *told: heard.append(told))  # fmt: skip
        check(heard, "import", *COMPILER, "done")


def test_a_callback_hears_every_stage_of_torch(heard: list[tuple[str, float]]) -> None:
    torch = pytest.importorskip("torch")
    aicf.compile(torch.nn.Linear(8, 4), (torch.randn(2, 8),), progress=lambda *told: heard.append(told))
    check(heard, "trace", "import", *COMPILER, "done")


def test_the_callback_of_all_compilations(heard: list[tuple[str, float]]) -> None:
    aicf.set_progress(lambda *told: heard.append(told))
    aicf.compile(model, SPECS)
    parameters = [aicf.TensorSpec((8, 16)), aicf.TensorSpec((8,), "i64")]
    aicf.compile_train_step(
        aicf.nn.Linear(16, 4), aicf.nn.CrossEntropyLoss(), aicf.optim.SGD(0.1), parameters
    )
    assert [name for name, _ in heard].count("done") == 2
    heard.clear()
    aicf.set_progress(None)
    aicf.compile(model, SPECS)
    assert not heard


@pytest.mark.parametrize("at", ["import", *COMPILER, "done"])
def test_what_a_callback_raises_ends_the_compilation(at: str) -> None:
    def stop(stage: str, _: float) -> None:
        if stage == at:
            raise KeyboardInterrupt(stage)

    with pytest.raises(KeyboardInterrupt, match=at):
        aicf.compile(model, SPECS, progress=stop)
    aicf.compile(model, SPECS)


def test_a_callback_is_a_function() -> None:
    with pytest.raises(aicf.UserError, match="progress"):
        aicf.compile(model, SPECS, progress="bar")


def test_stages_go_to_the_logger(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="aicf"):
        aicf.compile(model, SPECS)
    lines = [record.getMessage() for record in caplog.records if record.name == "aicf"]
    assert [line.split(":")[0] for line in lines] == [f"stage {name}" for name in ("import", *COMPILER)]
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="aicf"):
        aicf.compile(model, SPECS)
    assert not caplog.records


CODE = """
import time, aicf
def slow(x):
    time.sleep(1.6)
    return x + 1
aicf.compile(slow, [aicf.TensorSpec((4,))])
"""


def test_nothing_is_shown_where_nobody_looks() -> None:
    finished = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert finished.stderr == "" and finished.stdout == ""


def test_a_terminal_shows_a_line_after_a_second() -> None:
    ours, theirs = pty.openpty()
    quick = CODE.replace("1.6", "0")
    try:
        subprocess.run([sys.executable, "-c", quick], stderr=theirs, check=True)
        subprocess.run([sys.executable, "-c", CODE], stderr=theirs, check=True)
        shown = os.read(ours, 65536).decode()
    finally:
        os.close(theirs)
        os.close(ours)
    assert shown.startswith("\r\033[Kaicf: import, 0 %, 1 s") and shown.endswith("\r\033[K")


def test_a_notebook_shows_an_output_that_is_redrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    get: Callable[[], Any] = lambda: types.SimpleNamespace(kernel=object())  # noqa: E731
    ipython, showing = types.ModuleType("IPython"), types.ModuleType("IPython.display")
    ipython.get_ipython, showing.display = get, display  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", showing)
    aicf.compile(model, SPECS)
    assert not shown
    aicf.compile(slow, SPECS)
    assert shown[0].startswith("aicf: import, 0 %, 1 s") and shown[-1] == ""

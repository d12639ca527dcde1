"""Arguments and results of classes that torch does not know: all of an object that is no tensor is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aicf
import pytest
import torch
from torch import nn


class Inner:
    def __init__(self, x: torch.Tensor) -> None:
        self.x, self.length, self.dtype = x, x.shape[0], x.dtype


@dataclass
class Outer:
    first: torch.Tensor
    parts: list[Inner] = field(default_factory=list)
    again: Any = None
    note: Any = None


def make(x: torch.Tensor, note: Any) -> Outer:
    return Outer(x * 2, [Inner(x + 1), Inner(x[:1])], [x, {"of": x}], note)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Outer, Outer]:
        y = self.linear(x)
        return y, make(y, "a note"), Outer(y, again=(y.shape[0] * 2 + 1, y.shape[0] > 2))


def assert_same(actual: Any, expected: Any) -> None:
    assert type(actual) is type(expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(actual, expected)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for a, b in zip(actual, expected, strict=True):
            assert_same(a, b)
    elif isinstance(expected, dict) or hasattr(expected, "__dict__"):
        ours, theirs = (x if isinstance(x, dict) else vars(x) for x in (actual, expected))
        assert list(ours) == list(theirs)
        for name, value in theirs.items():
            assert_same(ours[name], value)
    else:
        assert actual == expected


@pytest.mark.parametrize("dims", [None, {"x": {0: "n=3..9"}}])
def test_objects_in_a_result(dims: Any, tmp_path: Path) -> None:
    model = Model().eval()
    x = torch.randn(4, 3)
    forward = model.forward
    exe = aicf.compile(model, (x,), dims=dims)
    assert model.forward == forward and "forward" not in vars(model)
    for rows in (4,) if dims is None else (4, 9, 3):
        x = torch.randn(rows, 3)
        with torch.no_grad():
            assert_same(exe(x), model(x))
    assert exe(x)[1] is not exe(x)[1]
    names = [info.name for info in exe.outputs]
    assert names[:3] == ["output.0", "output.1.first", "output.1.parts.0.x"]
    exe.save(tmp_path / "m.aicf")
    loaded = aicf.load(tmp_path / "m.aicf")(x.numpy())
    lengths = ["parts.0.length"] if dims else []  # a size in a range is a result like the others
    assert list(loaded[1]) == ["first", "parts.0.x", *lengths, "parts.1.x", "again.0"]


def test_an_object_that_holds_itself_is_refused() -> None:
    class Loop:
        pass

    def function(x: torch.Tensor) -> Any:
        loop = Loop()
        loop.x, loop.me = x * 2, loop
        return loop

    with pytest.raises(aicf.UserError, match="a class whose tensors"):
        aicf.compile(function, (torch.ones(3),))


def test_a_set_of_tensors_inside_an_object_is_refused() -> None:
    def function(x: torch.Tensor) -> Any:
        return Outer(x, note={x * 2})

    with pytest.raises(aicf.UserError, match="a class whose tensors"):
        aicf.compile(function, (torch.ones(3),))


def test_an_object_as_an_argument() -> None:
    """It stays as it is; one that is otherwise apart from its tensors is another argument."""

    def function(x: torch.Tensor, given: Inner) -> tuple[torch.Tensor, Inner]:
        given.x = torch.cat([given.x, x * given.length])
        return given.x.sum(0), given

    exe = aicf.compile(function, (torch.ones(2, 3), Inner(torch.ones(4, 3))), dims={"given": {0: "n=3..9"}})
    x, rows = torch.randn(2, 3), torch.randn(6, 3)
    given, theirs = Inner(rows), Inner(rows)
    given.length = theirs.length = 4
    assert_same(exe(x, given), function(x, theirs))
    assert given.x is rows
    with pytest.raises(aicf.UserError, match="structured otherwise"):
        exe(x, Inner(rows))  # its length is 6


def test_an_object_that_is_changed_and_not_returned_is_refused() -> None:
    def function(x: torch.Tensor, given: Inner) -> torch.Tensor:
        given.x = given.x * x
        return given.x + 1

    with pytest.raises(aicf.UserError, match="does not return it") as refused:
        aicf.compile(function, (torch.ones(3), Inner(torch.ones(3))))
    assert refused.value.value == "Inner" and "return it" in refused.value.remedy

"""ONNX: `aicf.onnx.backend` runs models as ONNX's own test suite asks for it. Needs the package onnx."""

from __future__ import annotations

__all__ = ["backend"]


def __getattr__(name: str) -> object:
    if name == "backend":
        import importlib

        return importlib.import_module(f"{__name__}.backend")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the PyTorch front door is tested where torch is installed")

"""What nn.TransformerEncoderLayer's fused products are made of, for tensors of a GPU that is not there."""

from __future__ import annotations

import pytest
import torch
from aicf.torch.decompose import table
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_products_gelu_is_that_of_erf_on_every_device(device: str) -> None:
    function = table()[torch.ops.aten._addmm_activation.default]
    with FakeTensorMode():
        operands = [torch.empty(size, device=device) for size in [(4,), (3, 5), (5, 4)]]
        traced = make_fx(lambda *x: function(*x, use_gelu=True))(*operands)
    (gelu,) = [node for node in traced.graph.nodes if node.target is torch.ops.aten.gelu.default]
    assert gelu.kwargs.get("approximate", "none") == "none"


@pytest.mark.parametrize("use_gelu", [False, True])
def test_the_activation_follows_the_product(use_gelu: bool) -> None:
    bias, x, y = torch.randn(4), torch.randn(3, 5), torch.randn(5, 4)
    function = table()[torch.ops.aten._addmm_activation.default]
    found = function(bias, x, y, beta=0.5, alpha=2.0, use_gelu=use_gelu)
    expected = torch.ops.aten._addmm_activation(bias, x, y, beta=0.5, alpha=2.0, use_gelu=use_gelu)
    torch.testing.assert_close(found, expected)

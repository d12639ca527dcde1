"""Every backward op of torch's that is no composite of others: a call of torch's functions that needs it
trains as in eager, or the op stands here with the reason why none does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import aicf
import aicf.torch.backend as backend
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

Function = Callable[..., Any]
aten = torch.ops.aten

# --- which ops there are

_NO_CALL = {
    "a GPU's or another device's, whose forward op no graph of ours has": (
        "_cudnn_attention _cudnn_rnn _efficient_attention _flash_attention "
        "_scaled_dot_product_cudnn_attention _scaled_dot_product_efficient_attention "
        "_scaled_dot_product_flash_attention _scaled_dot_product_fused_attention_overrideable "
        "convolution_overrideable "
        "cudnn_affine_grid_generator cudnn_grid_sampler linear lstm_mps matmul max_pool2d miopen_rnn "
        "mkldnn_adaptive_avg_pool2d mkldnn_linear mkldnn_linear_input mkldnn_linear_weights "
        "mkldnn_max_pool2d mkldnn_max_pool3d mkldnn_rnn_layer mps_convolution mps_convolution_transpose"
    ),
    "of a GPU's forward op, and taken apart by torch": (
        "_fused_rms_norm batch_norm cudnn_batch_norm miopen_batch_norm"
    ),
    "of nested or sparse tensors": (
        "_nested_select _nested_sum _sparse_log_softmax_data _sparse_mm_reduce_impl _sparse_softmax_data "
        "_sparse_sum"
    ),
    "a step inside of another backward op": (
        "_embedding_bag_dense _grid_sampler_2d_cpu_fallback _slow_conv2d batch_norm_elemt batch_norm_reduce"
    ),
    "of forward mode": "glu_jvp",
    "of an op that torch.nn does not call in training": (
        "_fake_quantize_learnable_per_channel_affine _fake_quantize_learnable_per_tensor_affine "
        "_masked_softmax _segment_reduce"
    ),
    "of a shape that depends on data: torch.compile leaves the loss to eager": "_ctc_loss",
    "refused with its forward op": (
        "_thnn_fused_gru_cell _thnn_fused_lstm_cell_impl fractional_max_pool2d fractional_max_pool3d"
    ),
}
NO_CALL = {name for names in _NO_CALL.values() for name in names.split()}


def _backward_ops() -> Iterator[str]:
    """Names without "_backward" of the ops that write no result of the caller's."""
    for name in torch._C._dispatch_get_all_op_names():
        packet, _, overload = name.removeprefix("aten::").partition(".")
        if not name.startswith("aten::") or "backward" not in packet or not hasattr(aten, packet):
            continue
        op = getattr(getattr(aten, packet), overload or "default")
        composite = op.has_kernel_for_dispatch_key(torch._C.DispatchKey.CompositeImplicitAutograd)
        if not composite and not op._schema.is_mutable:
            yield packet.replace("_backward", "")


# --- a call for each

Call = tuple[Function, tuple[Any, ...]]
LABELS = torch.tensor([1, 0, 3, 2])
SIGNS = torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0])
IDS, OFFSETS = torch.tensor([1, 2, 2, 5, 1, 0]), torch.tensor([0, 2, 2, 4])
MASK = torch.tensor([[True, False, True, True, False]])


def _r(*shape: int) -> torch.Tensor:
    """Without equal elements or places of no derivative: distances from 0 grow."""
    count = int(torch.Size(shape).numel())
    order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
    return ((order + 0.5) / count * 4 - 2).reshape(shape)


def _p(*shape: int) -> torch.Tensor:
    return (_r(*shape) + 2.1) / 4.3


def _of(function: Function, *operands: Any, **more: Any) -> Call:
    return (lambda *xs: function(*xs, **more)), operands


def _bag(mode: str, **more: Any) -> Function:
    return lambda w, *s: F.embedding_bag(IDS, w, OFFSETS, mode=mode, per_sample_weights=(*s, None)[0], **more)


def _pooled(function: Function, *arguments: Any, **more: Any) -> Function:
    return lambda x: function(x, *arguments, **more)


def _grown(mode: str, rank: int, **more: Any) -> Call:
    shape, out = (2, 3, 4, 3, 5)[: rank + 2], (7, 3, 6)[:rank]
    return _of(F.interpolate, _r(*shape), size=out, mode=mode, **more)


def _sampled(rank: int, mode: str, padding: str, align: bool) -> Call:
    grid = 0.8 * _r(2, *(3, 4, 2)[:rank], rank)
    x = _r(2, 3, *(4, 5, 3)[:rank])
    return _of(F.grid_sample, x, grid, mode=mode, padding_mode=padding, align_corners=align)


CALLS: dict[str, list[Call]] = {
    "_adaptive_avg_pool2d": [_of(F.adaptive_avg_pool2d, _r(3, 5, 7), output_size=(2, 3))],
    "_adaptive_avg_pool3d": [
        _of(F.adaptive_avg_pool3d, _r(*shape), output_size=(2, 3, 2))
        for shape in ((2, 3, 4, 5, 3), (3, 4, 5, 3))
    ],
    "_cdist": [_of(torch.cdist, _r(4, 3), 2 * _r(5, 3), p=p) for p in (1.0, 3.0)],
    "_embedding_bag": [(_bag(mode, padding_idx=2), (_r(7, 3),)) for mode in ("sum", "mean", "max")],
    "_embedding_bag_per_sample_weights": [
        (_bag("sum"), (_r(7, 3), _r(6))),
        (_bag("sum", padding_idx=2), (_r(7, 3), _r(6))),
    ],
    "_log_softmax_data": [_of(F.log_softmax, _r(3, 4), dim=1)],
    "_pdist": [
        _of(F.pdist, _r(*s), p=p) for s, p in (((5, 3), 2.0), ((4, 2), 1.0), ((4, 3), 3.0), ((1, 3), 2.0))
    ],
    "_prelu_kernel": [_of(F.prelu, _r(2, 3, 4), _p(3))],
    "_scaled_dot_product_flash_attention_for_cpu": [
        _of(F.scaled_dot_product_attention, *(k * _r(2, 2, 4, 8) for k in (1, 0.5, 2)))
    ],
    "_softmax_data": [_of(F.softmax, _r(3, 4), dim=1)],
    "_upsample_bicubic2d_aa": [_grown("bicubic", 2, antialias=True)],
    "_upsample_bilinear2d_aa": [_grown("bilinear", 2, antialias=True)],
    "_upsample_lanczos2d_aa": [_of(aten._upsample_lanczos2d_aa, _r(1, 2, 7, 8), [4, 5], False)],
    "_upsample_nearest_exact1d": [_grown("nearest-exact", 1)],
    "_upsample_nearest_exact2d": [_grown("nearest-exact", 2)],
    "_upsample_nearest_exact3d": [_grown("nearest-exact", 3)],
    "_weight_norm_interface": [_of(torch._weight_norm, _r(3, 4), _p(3, 1), 0)],
    "adaptive_max_pool2d": [_of(F.adaptive_max_pool2d, _r(3, 5, 7), output_size=(2, 3))],
    "adaptive_max_pool3d": [
        _of(F.adaptive_max_pool3d, _r(*shape), output_size=(2, 3, 2))
        for shape in ((2, 3, 4, 5, 3), (3, 4, 5, 3))
    ],
    "avg_pool2d": [(_pooled(F.avg_pool2d, 3, 2, 1), (_r(2, 3, 5, 6),))],
    "avg_pool3d": [(_pooled(F.avg_pool3d, 3, 2, 1), (_r(3, 5, 6, 4),))],
    "binary_cross_entropy": [_of(F.binary_cross_entropy, _p(3, 4), _p(3, 4), weight=_p(4))],
    "convolution": [
        _of(F.conv2d, _r(2, 4, 5, 6), _r(4, 2, 3, 3), _r(4), stride=2, padding=1, groups=2),
        _of(F.conv_transpose2d, _r(2, 2, 3, 3), _r(2, 3, 2, 2), dilation=3, output_padding=(1, 2)),
    ],
    "diagonal": [_of(torch.diagonal, _r(4, 5), 1)],
    "elu": [_of(F.elu, _r(5), 0.7), _of(F.celu, _r(5), 0.7), _of(F.selu, _r(5))],
    "embedding_dense": [
        (lambda w: F.embedding(IDS, w, padding_idx=2), (_r(7, 3),)),
        (lambda w: F.embedding(IDS, w, scale_grad_by_freq=True), (_r(7, 3),)),
    ],
    "gelu": [_of(F.gelu, _r(5)), _of(F.gelu, _r(5), approximate="tanh")],
    "glu": [_of(F.glu, _r(3, 4))],
    "grid_sampler_2d": [
        _sampled(2, "bilinear", "zeros", False),
        _sampled(2, "bilinear", "border", True),
        _sampled(2, "bilinear", "reflection", False),
        _sampled(2, "nearest", "reflection", True),
        _sampled(2, "bicubic", "zeros", True),
        _sampled(2, "bicubic", "reflection", False),
    ],
    "grid_sampler_3d": [
        _sampled(3, "bilinear", "reflection", True),
        _sampled(3, "bilinear", "border", False),
        _sampled(3, "nearest", "zeros", True),
    ],
    "hardshrink": [_of(F.hardshrink, _r(8), 0.6)],
    "hardsigmoid": [_of(F.hardsigmoid, 3 * _r(8))],
    "hardswish": [_of(F.hardswish, 3 * _r(8))],
    "hardtanh": [_of(F.hardtanh, _r(8)), _of(F.relu6, 5 * _r(8))],
    "huber_loss": [_of(F.huber_loss, _r(3, 4), 2 * _r(3, 4), delta=0.7)],
    "leaky_relu": [_of(F.leaky_relu, _r(5), 0.2)],
    "log_sigmoid": [_of(F.logsigmoid, _r(5))],
    "logit": [_of(torch.logit, _p(5), 0.2)],
    "masked_scatter": [_of(torch.masked_scatter, _r(4, 5), MASK, _r(3, 6))],
    "max_pool2d_with_indices": [(_pooled(F.max_pool2d, 3, 2, 1), (_r(2, 3, 5, 6),))],
    "max_pool3d_with_indices": [(_pooled(F.max_pool3d, 3, 2, 1), (_r(3, 5, 6, 4),))],
    "mish": [_of(F.mish, _r(5))],
    "mse_loss": [_of(F.mse_loss, _r(3, 4), 2 * _r(3, 4))],
    "multi_margin_loss": [_of(F.multi_margin_loss, _r(4, 5), LABELS, p=p, margin=0.9) for p in (1, 2)],
    "multilabel_margin_loss": [
        _of(F.multilabel_margin_loss, 0.4 * _r(2, 5), torch.tensor([[3, 0, -1, 1, 1], [1, -1, 2, 0, 0]]))
    ],
    "native_batch_norm": [_of(F.batch_norm, _r(6, 3, 2), None, None, _p(3), _r(3), training=True)],
    "native_dropout": [(lambda x: torch.native_dropout(x, 0.0, True)[0], (_r(5),))],
    "native_group_norm": [_of(F.group_norm, _r(2, 6, 5), 3, _p(6), _r(6))],
    "native_layer_norm": [_of(F.layer_norm, _r(3, 4), (4,), _p(4), _r(4))],
    "nll_loss": [(lambda x, w: F.cross_entropy(x, LABELS, weight=w.detach()), (_r(4, 5), _p(5)))],
    "nll_loss2d": [_of(F.cross_entropy, _r(2, 4, 2, 2), LABELS.reshape(2, 2, 1).expand(2, 2, 2))],
    "reflection_pad1d": [
        _of(F.pad, _r(2, 3, 7), pad, mode="reflect") for pad in ((2, 1), (-2, 4), (4, -3), (-1, -2))
    ],
    "reflection_pad2d": [_of(F.pad, _r(2, 3, 5, 6), (2, 1, -1, 3), mode="reflect")],
    "reflection_pad3d": [_of(F.pad, _r(2, 4, 3, 5), (2, 1, 1, 2, 3, 0), mode="reflect")],
    "replication_pad1d": [
        _of(F.pad, _r(2, 3, 4), pad, mode="replicate") for pad in ((2, 1), (-3, 5), (6, -5), (-1, -2))
    ],
    "replication_pad2d": [_of(F.pad, _r(2, 3, 5, 6), (2, 1, -1, 3), mode="replicate")],
    "replication_pad3d": [_of(F.pad, _r(2, 4, 3, 5), (2, 1, 1, 2, 3, -3), mode="replicate")],
    "rrelu_with_noise": [_of(F.rrelu, _r(5), 0.2, 0.2, training=True)],
    "select": [_of(torch.select, _r(3, 4), 0, 1)],
    "sigmoid": [_of(torch.sigmoid, _r(5))],
    "silu": [_of(F.silu, _r(5))],
    "slice": [(lambda x: x[1::2], (_r(5, 3),))],
    "smooth_l1_loss": [_of(F.smooth_l1_loss, _r(3, 4), 2 * _r(3, 4), beta=0.7)],
    "soft_margin_loss": [(lambda x: F.soft_margin_loss(x, SIGNS.to(x.dtype)), (_r(5),))],
    "softplus": [_of(F.softplus, _r(5), 2.0, 3.0)],
    "softshrink": [_of(F.softshrink, _r(8), 0.6)],
    "tanh": [_of(torch.tanh, _r(5))],
    "threshold": [_of(F.threshold, _r(5), 0.3, 7.0), _of(F.relu, _r(5))],
    "unfold": [(lambda x: x.unfold(0, 3, 2), (_r(7, 2),))],
    "upsample_bicubic2d": [_grown("bicubic", 2), _grown("bicubic", 2, align_corners=True)],
    "upsample_bilinear2d": [_grown("bilinear", 2), _grown("bilinear", 2, align_corners=True)],
    "upsample_linear1d": [_grown("linear", 1)],
    "upsample_nearest1d": [_grown("nearest", 1)],
    "upsample_nearest2d": [
        _grown("nearest", 2),
        _of(F.interpolate, _r(2, 3, 4, 3), scale_factor=(2, 3)),
        _of(F.interpolate, _r(2, 3, 4, 3), scale_factor=(4, 3)),
    ],
    "upsample_nearest3d": [_grown("nearest", 3)],
    "upsample_trilinear3d": [_grown("trilinear", 3)],
}


class _Watched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.add(func._opname)
        return func(*args, **(kwargs or {}))


def _trained(call: Function, operands: tuple[Any, ...], dtype: torch.dtype) -> list[torch.Tensor]:
    """The result, and the gradients by all floats of its product with some numbers."""
    xs = [
        x.to(dtype).clone().requires_grad_() if isinstance(x, torch.Tensor) and x.is_floating_point() else x
        for x in operands
    ]
    y = call(*xs)
    dy = torch.linspace(1, 2, y.numel(), dtype=torch.float64).sin().reshape(y.shape).to(y.dtype)
    y.backward(dy)
    return [y.detach(), *(x.grad for x in xs if isinstance(x, torch.Tensor) and x.grad is not None)]


def test_each_op_has_a_call_or_a_reason() -> None:
    ops = set(_backward_ops())
    assert ops - NO_CALL == ops & set(CALLS)
    assert not NO_CALL & set(CALLS)


@pytest.mark.parametrize("name", CALLS)
def test_gradients(name: str) -> None:
    for call, operands in CALLS[name]:
        torch._dynamo.reset()
        with _Watched() as watched:
            expected = _trained(call, operands, torch.float64)
        assert any(name == op.replace("_backward", "") for op in watched.seen if "backward" in op)
        ours = torch.compile(call, backend="aicf", fullgraph=True, dynamic=False)
        for found, exact in zip(_trained(ours, operands, torch.float32), expected, strict=True):
            assert found.dtype == torch.float32 and found.shape == exact.shape
            assert (found.double() - exact).norm() <= 1e-5 * max(float(exact.norm()), 1.0)


def test_samples_read_rows_of_channels() -> None:
    call, operands = _sampled(2, "bilinear", "zeros", False)
    plan = str(aicf.compile(call, operands).plan)
    assert "gather" in plan and "gather_nd" not in plan


@pytest.mark.parametrize("padding", ["border", "reflection"])
def test_samples_on_a_border_have_torchs_derivative(padding: str) -> None:
    """None by the coordinate there, which clamp has one of; an identity grid reads the border."""
    grid = F.affine_grid(torch.eye(2, 3)[None], [1, 2, 4, 5], align_corners=True)
    call, operands = _of(F.grid_sample, _r(1, 2, 4, 5), grid, padding_mode=padding, align_corners=True)
    torch._dynamo.reset()
    found = _trained(torch.compile(call, backend="aicf"), operands, torch.float32)
    for ours, theirs in zip(found, _trained(call, operands, torch.float32), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)


def test_an_f64_pool_has_weights_in_f64() -> None:
    call, operands = _of(F.adaptive_avg_pool2d, _r(3, 5, 7), output_size=(2, 3))
    torch._dynamo.reset()
    found = _trained(torch.compile(call, backend="aicf"), operands, torch.float64)
    torch.testing.assert_close(found, _trained(call, operands, torch.float64), rtol=1e-12, atol=1e-12)


def test_distances_of_a_number_of_rows_that_changes() -> None:
    torch._dynamo.reset()
    ours = torch.compile(F.pdist, backend="aicf", dynamic=True)
    for count in (4, 6):
        found = _trained(ours, (_r(count, 3),), torch.float32)
        for a, b in zip(found, _trained(F.pdist, (_r(count, 3),), torch.float32), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_gathering_nothing_gives_no_gradient() -> None:
    call, operands = _of(torch.gather, _r(5), 0, torch.empty(2, 0, dtype=torch.int64))
    torch._dynamo.reset()
    assert not _trained(torch.compile(call, backend="aicf"), operands, torch.float32)[1].any()


class _Unpooling(nn.Module):
    """Positions of maxima go from one level to the next."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 3, 3, padding=1)
        self.pool, self.unpool = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y, places = self.pool(self.down(x))
        return self.up(self.unpool(y.relu(), places, output_size=x.shape[2:]))


def test_places_of_maxima_are_results() -> None:
    model, x = _Unpooling(), _r(2, 3, 6, 7)
    with torch.no_grad():
        torch.testing.assert_close(torch.as_tensor(aicf.compile(model, (x,))(x)), model(x))
    torch._dynamo.reset()
    found = _trained(torch.compile(model, backend="aicf"), (x,), torch.float32)
    for a, b in zip(found, _trained(model, (x,), torch.float32), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_resizing_is_differentiated_whole(mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch takes it apart into gathers first, whose gradients are scatters."""
    graphs = []

    def noted(graph: torch.fx.GraphModule, *arguments: Any, **more: Any) -> Any:
        graphs.append(str(graph.graph))
        return compiled(graph, *arguments, **more)

    compiled = backend._compile
    monkeypatch.setattr(backend, "_compile", noted)
    torch._dynamo.reset()
    before = dict(aten.upsample_nearest2d.vec.py_kernels)
    x = _r(1, 2, 4, 4).requires_grad_()
    torch.compile(lambda x: F.interpolate(x, scale_factor=2, mode=mode), backend="aicf")(x).sum().backward()
    assert len(graphs) == 2 and not any("index" in graph or "scatter" in graph for graph in graphs)
    assert aten.upsample_nearest2d.vec.py_kernels == before


def test_a_refused_gradient_trains_by_its_remedy() -> None:
    call, operands = _of(F.embedding, torch.tensor([1, 2]), _r(4, 3), sparse=True)
    torch._dynamo.reset()
    with pytest.raises(aicf.UserError) as refused:
        _trained(torch.compile(call, backend="aicf"), operands, torch.float32)
    assert "sparse" in refused.value.op
    assert "sparse=False" in refused.value.remedy and '{"fallback": "eager"}' in refused.value.remedy
    draws = torch.rand(1, 2, 2)
    call, operands = _of(F.fractional_max_pool2d, _r(1, 2, 8, 8), 2, output_size=3, _random_samples=draws)
    with pytest.raises(aicf.UserError) as refused:
        torch.compile(call, backend="aicf")(*operands)
    assert "fractional_max_pool2d" in refused.value.op and '{"fallback": "eager"}' in refused.value.remedy
    torch._dynamo.reset()
    ours = torch.compile(call, backend="aicf", options={"fallback": "eager"})
    found = _trained(ours, operands, torch.float32)
    for a, b in zip(found, _trained(call, operands, torch.float32), strict=True):
        torch.testing.assert_close(a, b)

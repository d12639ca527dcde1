"""Layers that torch has no decomposition for or that take another way in torch.export than in eager."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import aicf
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import flex_attention as flex

Function = Callable[..., Any]


class Of(nn.Module):
    def __init__(self, function: Function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> Any:
        return self.function(*args)


def check(model: nn.Module, *args: torch.Tensor, tolerance: float = 1e-4) -> None:
    model.eval()
    with torch.no_grad():
        expected = torch.utils._pytree.tree_leaves(model(*args))
    actual = torch.utils._pytree.tree_leaves(aicf.compile(model, args)(*args))
    assert len(actual) == len(expected)
    for ours, theirs in zip(actual, expected, strict=True):
        assert ours.dtype == theirs.dtype
        assert torch.allclose(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers(kind: Any) -> None:
    check(kind(5, 7, num_layers=2, bidirectional=True, batch_first=True), torch.randn(3, 4, 5))
    check(kind(5, 7, bias=False), torch.randn(4, 3, 5))


def test_a_projected_lstm() -> None:
    check(nn.LSTM(5, 7, proj_size=3), torch.randn(4, 3, 5))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_a_recurrent_layer_over_a_range_of_batches(kind: Any) -> None:
    model = kind(5, 7, num_layers=2, bidirectional=True, batch_first=True).eval()
    exe = aicf.compile(model, (torch.randn(2, 4, 5),), dims={"input": {0: "batch=1..8"}})
    leaves = torch.utils._pytree.tree_leaves
    for batch in range(1, 9):
        x = 3 * torch.randn(batch, 4, 5)
        with torch.no_grad():
            expected = leaves(model(x))
        actual = leaves(exe(x))
        assert [y.shape for y in actual] == [y.shape for y in expected]
        for ours, theirs in zip(actual, expected, strict=True):
            assert theirs.abs().max() > 0.1 and torch.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    with pytest.raises(aicf.UserError) as refused:
        exe(torch.randn(9, 4, 5))
    assert refused.value.code == "AICF-U0201"


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_embedding_bags(mode: str) -> None:
    ids, offsets = torch.randint(0, 10, (9,)), torch.tensor([0, 3, 3, 7])
    check(nn.EmbeddingBag(10, 4, mode=mode, padding_idx=1), ids, offsets)
    check(nn.EmbeddingBag(10, 4, mode=mode), torch.randint(0, 10, (3, 7)))


def test_images_and_volumes() -> None:
    x = torch.randn(2, 3, 9, 8)
    for mode in ("bilinear", "bicubic"):
        check(Of(lambda x, mode=mode: F.interpolate(x, size=(4, 11), mode=mode, antialias=True)), x)
    grid = torch.rand(2, 3, 4, 4, 3) * 2.4 - 1.2
    for padding in ("zeros", "border", "reflection"):
        check(
            Of(lambda x, g, p=padding: F.grid_sample(x, g, padding_mode=p, align_corners=False)),
            torch.randn(2, 3, 4, 5, 6),
            grid,
        )


def test_rounding_as_if_quantised() -> None:
    check(Of(lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 3, -128, 127)), torch.randn(50) * 20)
    scale, zero = torch.rand(4) + 0.1, torch.tensor([0, 1, -2, 5], dtype=torch.int32)
    check(
        Of(lambda x, s, z: torch.fake_quantize_per_channel_affine(x, s, z, 0, -128, 127)),
        torch.randn(4, 5) * 9,
        scale,
        zero,
    )


def positive(n: int) -> torch.Tensor:
    a = torch.randn(2, n, n)
    return a @ a.mT + n * torch.eye(n)


FACTORISATIONS: dict[str, Function] = {
    "cholesky": torch.linalg.cholesky,
    "qr": torch.linalg.qr,
    "complete qr": lambda a: torch.linalg.qr(a[..., :2], mode="complete"),
    "lu": torch.linalg.lu,
    "solve": lambda a: torch.linalg.solve(a, a[..., :1] + 1),
    "inverse": torch.linalg.inv,
    "determinant": torch.linalg.det,
    "log determinant": torch.linalg.slogdet,
    "triangular system": lambda a: torch.linalg.solve_triangular(a, a + 1, upper=True),
}


@pytest.mark.parametrize("name", FACTORISATIONS)
def test_factorisations(name: str) -> None:
    torch.manual_seed(0)
    check(Of(FACTORISATIONS[name]), positive(5))


def gradients(function: Function, *args: torch.Tensor) -> list[torch.Tensor]:
    leaves = [a.clone().requires_grad_(a.is_floating_point()) for a in args]
    results = torch.utils._pytree.tree_leaves(function(*leaves))
    sum((r * torch.linspace(-1, 2, r.numel()).view(r.shape)).sum() for r in results).backward()
    parameters = list(function.parameters()) if isinstance(function, nn.Module) else []
    found = [p.grad.clone() for p in (*leaves, *parameters) if p.grad is not None]
    for p in parameters:
        p.grad = None
    return found


SQUARE = torch.tensor([[3.0, 1, -1], [0.5, 2, 1], [-2, 1, 4]])
IMAGE = torch.linspace(-3, 3, 384).sin().view(2, 3, 8, 8)
GRADIENTS: dict[str, tuple[Function, tuple[torch.Tensor, ...]]] = {
    "solve": (torch.linalg.solve, (SQUARE, torch.ones(3, 2))),
    "solve from the right": (lambda a, b: torch.linalg.solve(a, b, left=False), (SQUARE, torch.ones(2, 3))),
    "determinant": (torch.linalg.det, (SQUARE,)),
    "log determinant": (torch.linalg.slogdet, (SQUARE,)),
    "inverse": (torch.linalg.inv, (SQUARE,)),
    "qr": (torch.linalg.qr, (SQUARE,)),
    "adaptive means": (nn.AdaptiveAvgPool2d(3), (IMAGE,)),
    "adaptive maxima": (lambda x: F.adaptive_max_pool2d(x, 3), (IMAGE,)),
    "means": (nn.AvgPool2d(3, 2, 1, ceil_mode=True), (IMAGE,)),
    "means without padding": (nn.AvgPool2d(3, 2, 1, count_include_pad=False), (IMAGE,)),
    "maxima of volumes": (nn.MaxPool3d(2), (IMAGE,)),
    "transposed convolution": (
        nn.ConvTranspose2d(3, 6, 3, stride=2, padding=1, output_padding=1, groups=3),
        (IMAGE,),
    ),
    "resizing": (lambda x: F.interpolate(x, size=(5, 3), mode="bicubic", antialias=True), (IMAGE,)),
    "padding by the edge": (lambda x: F.pad(x, (1, 2, 2, 1), mode="replicate"), (IMAGE,)),
    "distances": (torch.cdist, (IMAGE[0, 0], IMAGE[0, 1])),
    "bilinear": (nn.Bilinear(8, 8, 4), (IMAGE[0, 0], IMAGE[0, 1])),
    "weight norm": (nn.utils.parametrizations.weight_norm(nn.Linear(8, 4)), (IMAGE[0, 0],)),
    "bags": (nn.EmbeddingBag(10, 4, mode="max"), (torch.arange(21).view(3, 7) % 10,)),
}


@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str) -> None:
    torch._dynamo.reset()
    function, args = GRADIENTS[name]
    expected = gradients(function, *args)
    compiled = torch.compile(function, backend="aicf")
    actual = gradients(compiled, *args)
    assert len(actual) == len(expected) > 0
    for ours, theirs in zip(actual, expected, strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-3, atol=1e-4)


def test_large_factorisations_are_refused() -> None:
    with pytest.raises(aicf.UserError, match="this large"):
        aicf.compile(Of(torch.linalg.inv), (torch.eye(65),))


def test_a_region_of_autocast() -> None:
    layer = nn.Linear(8, 8)

    def forward(x: torch.Tensor) -> Any:
        with torch.autocast(x.device.type, torch.bfloat16):
            y = layer(x)
            z = y.softmax(-1) + x
        return y, z, layer(x)

    model = Of(forward)
    model.layer = layer
    check(model, torch.randn(4, 8), tolerance=2e-2)


def test_arguments_by_name_or_in_order() -> None:
    class Difference(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor, *, scale: torch.Tensor) -> torch.Tensor:
            return (x - y) * scale

    x, y, scale = torch.randn(3, 3)
    exe = aicf.compile(Difference(), {"x": x, "y": y, "scale": scale})
    for result in (exe(x, y, scale=scale), exe(scale=scale, y=y, x=x), exe(x, scale=scale, y=y)):
        assert torch.equal(result, (x - y) * scale)

    class Two(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    exe = aicf.compile(Two(), (x, y))
    for result in (exe(x, y), exe(x, y=y), exe(y=y, x=x)):
        assert torch.equal(result, x - y)
    with pytest.raises(aicf.UserError, match="structured otherwise"):
        exe(x, x=y)
    many = aicf.compile(Of(lambda *xs: xs[0] + xs[1]), (x, y), dims={"x0": {0: "n=1..8"}, "x1": {0: "n"}})
    assert torch.equal(many(x[:2], y[:2]), x[:2] + y[:2])


class Flexible(nn.Module):
    """Scores by heads, a mask made when the module is, and one made in each call; two heads of keys."""

    def __init__(self, length: int) -> None:
        super().__init__()
        self.slopes = nn.Parameter(torch.randn(4))
        self.causal = flex.create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, "cpu")

    def forward(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        def score(score: torch.Tensor, b: Any, h: Any, i: Any, j: Any) -> torch.Tensor:
            return score + (i - j) * self.slopes[h]

        near = flex.create_block_mask(
            lambda b, h, i, j: (i - j).abs() < 4, None, None, q.shape[2], q.shape[2], "cpu"
        )
        y = flex.flex_attention(q, k, v, score_mod=score, block_mask=self.causal, enable_gqa=True)
        return y + flex.flex_attention(q, k, v, block_mask=near, enable_gqa=True)


@pytest.mark.usefixtures("only_on_the_cpu")
def test_attention_with_functions_of_scores() -> None:
    check(Flexible(16), torch.randn(2, 4, 16, 8), torch.randn(2, 2, 16, 8), torch.randn(2, 2, 16, 8))

    def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return flex.flex_attention(
            q, k, v, score_mod=lambda s, b, h, i, j: torch.where(i >= j, s * (h + 1), -9e9)
        )

    q, k, v = torch.randn(3, 2, 4, 9, 8)
    exe = aicf.compile(attention, (q, k, v), dims={name: {2: "length=2..64"} for name in "qkv"})
    for length in (9, 40):
        given = torch.randn(3, 2, 4, length, 8).unbind()
        torch.testing.assert_close(exe(*given), attention(*given), rtol=1e-4, atol=1e-5)


def test_rows_that_are_looked_up_are_renormed() -> None:
    layer = nn.Embedding(6, 4, max_norm=1.0).eval()
    x = torch.tensor([[0, 3], [3, 5]])
    exe = aicf.compile(layer, (x,))
    for given in (x, x + 1 - x // 5 * 2):
        with torch.no_grad():
            torch.testing.assert_close(exe(given), layer(given))
    torch.testing.assert_close(torch.from_dlpack(exe.state_dict()["weight"]), layer.weight.detach().cpu())


def test_running_statistics_of_instances() -> None:
    layer = nn.InstanceNorm2d(3, affine=True, track_running_stats=True)
    x = torch.randn(2, 3, 5, 4)
    exe = aicf.compile(layer, (x,))
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(exe(x), layer(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(torch.from_dlpack(exe.state_dict()["running_var"]), layer.running_var.cpu())


def test_rows_are_assigned_through_a_mask() -> None:
    def assign(x: torch.Tensor, rows: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y[rows] = value
        y[y > 1] = 0.5
        return y

    check(
        Of(lambda x, r, v: assign(x, r, v)[:, :3]),
        torch.randn(4, 5),
        torch.tensor([True, False, True, True]),
        torch.randn(5),
    )


class Masked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Transformer(16, 4, 1, 1, 24, dropout=0.0, batch_first=True)

    def forward(self, source: torch.Tensor, target: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(target.shape[1])
        return self.layers(source, target, src_mask=mask, tgt_mask=causal)


def test_transformers_take_masks() -> None:
    model = Masked().eval()
    source, target, mask = torch.randn(2, 7, 16), torch.randn(2, 5, 16), torch.randn(7, 7)
    exe = aicf.compile(model, (source, target, mask), dims={"target": {1: "length=2..9"}})
    for length in (2, 9):
        target = torch.randn(2, length, 16)
        assert torch.allclose(exe(source, target, mask), model(source, target, mask), atol=1e-5)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
def test_labels_end_at_the_first_gap(reduction: str) -> None:
    loss = Of(lambda x, labels: F.multilabel_margin_loss(x, labels, reduction=reduction))
    labels = torch.tensor([[0, 2, -1, 0, 1], [3, -1, 1, 1, 1], [-1, 1, 1, 1, 1], [4, 3, 2, 1, 0]])
    check(loss, torch.randn(4, 5), labels)
    check(loss, torch.randn(5), labels[0])


def test_adaptive_means_of_a_small_plane_are_one_product() -> None:
    def products(size: int, out: int) -> int:
        model = aicf.torch.import_module(nn.AdaptiveAvgPool2d(out), (torch.zeros(2, 3, size, size),))
        return str(model.program).count("matmul(")

    assert products(6, 7) == 1
    assert products(6, 3) == 0
    assert products(100, 7) == 0, "gathered"
    check(nn.AdaptiveAvgPool2d((3, 7)), torch.linspace(-3, 3, 2 * 3 * 5 * 6).sin().view(2, 3, 5, 6))


@pytest.mark.parametrize(
    "size, out", [((45, 61), (7, 9)), ((64, 40), (5, 1)), ((40, 64), (60, 70)), ((64, 64), 5)]
)
def test_adaptive_means_of_a_large_plane(size, out):
    x = torch.linspace(-3, 3, 2 * 3 * math.prod(size)).sin().view(2, 3, *size)
    check(nn.AdaptiveAvgPool2d(out), x)
    check(nn.AdaptiveAvgPool2d(out), x.half(), tolerance=1e-3)


def test_maxima_and_their_places_are_one_region():
    """Of windows inside x, of which a NaN and of equals the first wins."""
    x = torch.randint(-2, 3, (2, 3, 9, 12)).float()
    x[0, 1, 3, 4] = math.nan
    for kernel, stride, dilation in ((2, 2, 1), ((3, 2), (1, 3), 1), (3, 2, 1), (2, 3, 2), (4, 2, 1)):
        model = Of(
            partial(F.max_pool2d, kernel_size=kernel, stride=stride, dilation=dilation, return_indices=True)
        )
        expected, found = model(x), aicf.compile(model, (x,))(x)
        for a, b in zip(expected, found, strict=True):
            assert torch.equal(a.nan_to_num(9), torch.as_tensor(b).nan_to_num(9))
    text = str(aicf.torch.import_module(Of(lambda x: F.max_pool2d(x, 2, return_indices=True)), (x,)).program)
    assert "max_pool" not in text


PATCHES = [  # kernel, dilation, padding, stride
    (3, 1, 1, 1),
    (2, 1, 0, 2),
    ((2, 3), 1, (1, 0), (2, 3)),
    (3, 2, 1, 2),
    ((3, 2), (2, 1), (0, 2), 1),
    (4, 1, 0, 4),
    (6, 1, 0, 1),
]


@pytest.mark.parametrize("kernel, dilation, padding, stride", PATCHES)
def test_patches_and_their_sums(kernel, dilation, padding, stride):
    x = torch.randn(2, 3, 12, 15)
    unfold = Of(lambda x: F.unfold(x, kernel, dilation, padding, stride))
    check(unfold, x)
    check(unfold, x[0])
    patches = unfold(x)
    check(Of(lambda p: F.fold(p, (12, 15), kernel, dilation, padding, stride)), patches)


def test_patches_are_slices():
    x = torch.randn(2, 3, 12, 15)
    text = str(aicf.torch.import_module(Of(lambda x: F.unfold(x, 3, padding=1)), (x,)).program)
    assert text.count("slice(") >= 8
    assert "gather" not in text


def test_statistics_that_torch_keeps_on_a_gpu() -> None:
    """The traced op has them as results there, and empty ones on a CPU."""
    model = nn.Sequential(nn.Conv2d(3, 4, 1), nn.BatchNorm2d(4)).eval()
    x = torch.randn(2, 3, 5, 5)
    exported = torch.export.export(model, (x,)).run_decompositions()
    (norm,) = (node for node in exported.graph.nodes if "batch_norm" in str(node.target))
    result, mean, _ = norm.meta["val"]
    with mean.fake_mode:
        kept = torch.empty(4)
    norm.meta["val"] = (result, kept, kept)
    assert torch.allclose(aicf.compile(exported)(x), model(x), atol=1e-5)

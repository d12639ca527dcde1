"""Families over maps, points and graphs that come from no library: U-Nets and diffusion blocks, decoders of
pictures, detectors' heads, super-resolution, warping; nets over points and graphs by gathers and scatters."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from drawn_family import BATCHES, Case, Sizes, family, floats, ids
from torch import nn

SIDES = (16, 24, 32, 40, 48, 64, 80, 96, 128, 160, 192, 256)
WIDTHS = (16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320)


# ---- U-Nets and diffusion


class _Pair(nn.Sequential):
    def __init__(self, channels: int, out: int, norm: str) -> None:
        make = {
            "batch": nn.BatchNorm2d,
            "group": lambda n: nn.GroupNorm(8, n),
            "instance": lambda n: nn.InstanceNorm2d(n, affine=True),
        }[norm]
        layers: list[nn.Module] = []
        for i in range(2):
            layers += [
                nn.Conv2d(channels if i == 0 else out, out, 3, padding=1, bias=False),
                make(out),
                nn.ReLU(),
            ]
        super().__init__(*layers)


class _UNet(nn.Module):
    def __init__(
        self, width: int, depth: int, norm: str, transposed: bool, channels: int, classes: int
    ) -> None:
        super().__init__()
        widths = [width << i for i in range(depth + 1)]
        self.down = nn.ModuleList(
            _Pair(channels if i == 0 else widths[i - 1], w, norm) for i, w in enumerate(widths)
        )
        self.up = nn.ModuleList(
            nn.ConvTranspose2d(widths[i + 1], widths[i], 2, 2)
            if transposed
            else nn.Sequential(
                nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(widths[i + 1], widths[i], 1)
            )
            for i in reversed(range(depth))
        )
        self.join = nn.ModuleList(_Pair(2 * widths[i], widths[i], norm) for i in reversed(range(depth)))
        self.out = nn.Conv2d(width, classes, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            kept.append(x)
        for up, join, skip in zip(self.up, self.join, reversed(kept[:-1]), strict=True):
            x = join(torch.cat([skip, up(x)], 1))
        return self.out(x)


@family(
    "unet",
    "torch",
    {"batch": BATCHES[:8], "side": SIDES[2:], "width": (8, 16, 24, 32, 48, 64), "depth": (2, 3, 4)},
    {
        "norm": ("batch", "group", "instance"),
        "transposed": (True, False),
        "channels": (1, 3),
        "classes": (2, 4),
    },
)
def unet(k: Sizes) -> Case:
    side = k["side"] // 16 * 16
    model = _UNet(k["width"], k["depth"], k["norm"], k["transposed"], k["channels"], k["classes"])
    return Case(model, [floats("x", k["batch"], k["channels"], side, side)], ("classes", k["classes"]))


def _waves(time: torch.Tensor, width: int) -> torch.Tensor:
    rates = torch.exp(torch.arange(width // 2, device=time.device) * (-math.log(10000.0) / (width // 2)))
    angles = time[:, None] * rates.to(time.dtype)
    return torch.cat([angles.sin(), angles.cos()], -1)


class _TimeBlock(nn.Module):
    def __init__(self, channels: int, out: int, time: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(8, channels), nn.GroupNorm(8, out)
        self.conv1, self.conv2 = nn.Conv2d(channels, out, 3, padding=1), nn.Conv2d(out, out, 3, padding=1)
        self.time = nn.Linear(time, out)
        self.skip = nn.Conv2d(channels, out, 1) if channels != out else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h = self.conv1(F.silu(self.norm1(x))) + self.time(F.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(F.silu(self.norm2(h)))


class _MapAttention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.norm = heads, nn.GroupNorm(8, width)
        self.qkv, self.out = nn.Conv2d(width, 3 * width, 1), nn.Conv2d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, width, high, wide = x.shape
        q, k, v = (
            self.qkv(self.norm(x))
            .view(batch, 3, self.heads, width // self.heads, high * wide)
            .transpose(-1, -2)
            .unbind(1)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(batch, width, high, wide)
        return x + self.out(y)


class _Diffusion(nn.Module):
    def __init__(self, width: int, levels: int, heads: int, channels: int) -> None:
        super().__init__()
        widths, self.width = [width * (i + 1) for i in range(levels)], width
        time = 4 * width
        self.time = nn.Sequential(nn.Linear(width, time), nn.SiLU(), nn.Linear(time, time))
        self.first, self.last = (
            nn.Conv2d(channels, width, 3, padding=1),
            nn.Conv2d(width, channels, 3, padding=1),
        )
        self.down = nn.ModuleList(_TimeBlock(widths[max(0, i - 1)], w, time) for i, w in enumerate(widths))
        self.shrink = nn.ModuleList(nn.Conv2d(w, w, 3, 2, 1) for w in widths[:-1])
        self.middle, self.attend = _TimeBlock(widths[-1], widths[-1], time), _MapAttention(widths[-1], heads)
        self.up = nn.ModuleList(
            _TimeBlock(2 * widths[i], widths[max(0, i - 1)], time) for i in reversed(range(levels))
        )
        self.norm = nn.GroupNorm(8, width)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        t = self.time(_waves(time, self.width))
        x, kept = self.first(x), []
        for i, block in enumerate(self.down):
            x = block(x, t)
            kept.append(x)
            x = self.shrink[i](x) if i < len(self.shrink) else x
        x = self.attend(self.middle(x, t))
        for i, block in enumerate(self.up):
            x = x if i == 0 else F.interpolate(x, scale_factor=2.0, mode="nearest")
            x = block(torch.cat([x, kept.pop()], 1), t)
        return self.last(F.silu(self.norm(x)))


@family(
    "diffusion_unet",
    "torch",
    {
        "batch": BATCHES[:8],
        "side": (16, 24, 32, 40, 64, 80, 128),
        "width": (16, 32, 48, 64, 96, 128),
        "levels": (1, 2, 3, 4),
    },
    {"heads": (1, 2, 4), "channels": (3, 4)},
)
def diffusion_unet(k: Sizes) -> Case:
    side = k["side"] // 8 * 8
    model = _Diffusion(k["width"], k["levels"], k["heads"], k["channels"])
    return Case(model, [floats("x", k["batch"], k["channels"], side, side), floats("time", k["batch"])])


class _Modulated(nn.Module):
    """A transformer's block whose norms are scaled, shifted and gated by a condition."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(width, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width))
        self.condition = nn.Linear(width, 6 * width)

    def forward(self, x: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        s1, b1, g1, s2, b2, g2 = self.condition(F.silu(c))[:, None].chunk(6, -1)
        h = self.norm(x) * (1 + s1) + b1
        q, k, v = (t.view(batch, length, self.heads, -1).transpose(1, 2) for t in self.qkv(h).chunk(3, -1))
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        x = x + g1 * self.out(y)
        return x + g2 * self.mlp(self.norm(x) * (1 + s2) + b2)


class _Dit(nn.Module):
    def __init__(self, side: int, patch: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.width, self.patch, self.grid = width, patch, side // patch
        self.first = nn.Conv2d(4, width, patch, patch)
        self.places = nn.Parameter(torch.randn(1, self.grid**2, width) * 0.02)
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(_Modulated(width, heads) for _ in range(depth))
        self.last = nn.Linear(width, 4 * patch * patch)

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        h, c = self.first(x).flatten(2).transpose(1, 2) + self.places, self.time(_waves(time, self.width))
        for block in self.blocks:
            h = block(h, c)
        y = self.last(h).view(-1, self.grid, self.grid, self.patch, self.patch, 4)
        return y.permute(0, 5, 1, 3, 2, 4).reshape(x.shape)


@family(
    "diffusion_transformer",
    "torch",
    {
        "batch": BATCHES[:10],
        "side": (8, 16, 24, 32, 40, 64),
        "heads": (2, 3, 4, 6, 8, 12),
        "depth": (1, 2, 4, 6, 8, 12),
    },
    {"patch": (2, 4), "head": (32, 64, 72)},
)
def diffusion_transformer(k: Sizes) -> Case:
    model = _Dit(k["side"], k["patch"], k["heads"] * k["head"], k["heads"], k["depth"])
    return Case(model, [floats("x", k["batch"], 4, k["side"], k["side"]), floats("time", k["batch"])])


class _Up(nn.Module):
    def __init__(self, width: int, out: int, mode: str) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(8, width)
        self.up = (
            nn.ConvTranspose2d(width, out, 4, 2, 1)
            if mode == "transposed"
            else nn.Conv2d(width, out, 3, padding=1)
        )
        self.mode = mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.silu(self.norm(x))
        return self.up(x if self.mode == "transposed" else F.interpolate(x, scale_factor=2.0, mode=self.mode))


@family(
    "picture_decoder",
    "torch",
    {
        "batch": BATCHES[:10],
        "side": (4, 8, 12, 16, 24, 32),
        "width": (16, 32, 64, 96, 128, 256),
        "levels": (1, 2, 3),
    },
    {"mode": ("transposed", "nearest", "bilinear"), "latent": (4, 16)},
)
def picture_decoder(k: Sizes) -> Case:
    widths = [max(16, k["width"] >> i) // 8 * 8 for i in range(k["levels"] + 1)]
    ups = [_Up(a, b, k["mode"]) for a, b in zip(widths, widths[1:], strict=False)]
    model = nn.Sequential(
        nn.Conv2d(k["latent"], widths[0], 3, padding=1), *ups, nn.Conv2d(widths[-1], 3, 3, padding=1)
    )
    return Case(model, [floats("x", k["batch"], k["latent"], k["side"], k["side"])])


class _Generator(nn.Module):
    """Deep convolutional generator: a vector to a picture."""

    def __init__(self, latent: int, width: int, levels: int) -> None:
        super().__init__()
        widths = [max(8, width * 2 ** (levels - 1 - i)) for i in range(levels)]
        layers: list[nn.Module] = [
            nn.ConvTranspose2d(latent, widths[0], 4, 1, 0, bias=False),
            nn.BatchNorm2d(widths[0]),
            nn.ReLU(),
        ]
        for a, b in zip(widths, widths[1:], strict=False):
            layers += [nn.ConvTranspose2d(a, b, 4, 2, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]
        self.net = nn.Sequential(*layers, nn.ConvTranspose2d(widths[-1], 3, 4, 2, 1), nn.Tanh())

    def forward(self, z: torch.Tensor) -> torch.Tensor:
        return self.net(z[:, :, None, None])


@family(
    "generator",
    "torch",
    {"batch": BATCHES, "width": (8, 16, 24, 32, 48, 64, 96), "levels": (2, 3, 4, 5)},
    {"latent": (64, 100)},
)
def generator(k: Sizes) -> Case:
    return Case(_Generator(k["latent"], k["width"], k["levels"]), [floats("z", k["batch"], k["latent"])])


class _Larger(nn.Module):
    """Super-resolution: residual blocks without norms, then channels become pixels."""

    def __init__(self, width: int, depth: int, scale: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, width, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(width, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1)
            )
            for _ in range(depth)
        )
        self.last = nn.Sequential(nn.Conv2d(width, 3 * scale * scale, 3, padding=1), nn.PixelShuffle(scale))
        self.scale = scale

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for block in self.blocks:
            h = h + 0.1 * block(h)
        return self.last(h) + F.interpolate(x, scale_factor=float(self.scale), mode="bilinear")


@family(
    "super_resolution",
    "torch",
    {"batch": BATCHES[:8], "side": SIDES[1:], "width": WIDTHS[:7], "depth": (1, 2, 4, 8, 16)},
    {"scale": (2, 3, 4)},
)
def super_resolution(k: Sizes) -> Case:
    return Case(
        _Larger(k["width"], k["depth"], k["scale"]), [floats("x", k["batch"], 3, k["side"], k["side"])]
    )


class _Shrinking(nn.Module):
    """A denoiser of depthwise convolutions with simple gates over channel norms."""

    def __init__(self, width: int, depth: int, kernel: int) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, width, 3, padding=1), nn.Conv2d(width, 3, 3, padding=1)
        self.norms = nn.ModuleList(nn.GroupNorm(1, width) for _ in range(depth))
        self.wide = nn.ModuleList(nn.Conv2d(width, 2 * width, 1) for _ in range(depth))
        self.along = nn.ModuleList(
            nn.Conv2d(2 * width, 2 * width, kernel, padding=kernel // 2, groups=2 * width)
            for _ in range(depth)
        )
        self.gate = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))
        self.narrow = nn.ModuleList(nn.Conv2d(width, width, 1) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for norm, wide, along, gate, narrow in zip(
            self.norms, self.wide, self.along, self.gate, self.narrow, strict=True
        ):
            a, b = along(wide(norm(h))).chunk(2, 1)
            y = a * b
            h = h + narrow(y * gate(y.mean((2, 3), keepdim=True)))
        return x + self.last(h)


@family(
    "denoiser",
    "torch",
    {"batch": BATCHES[:8], "side": SIDES[2:], "width": WIDTHS[:7], "depth": (1, 2, 4, 6, 8)},
    {"kernel": (3, 5, 7)},
)
def denoiser(k: Sizes) -> Case:
    return Case(
        _Shrinking(k["width"], k["depth"], k["kernel"]), [floats("x", k["batch"], 3, k["side"], k["side"])]
    )


# ---- detectors' heads, flow, warping


class _Pyramid(nn.Module):
    """Three maps to one width, summed from coarse to fine, then shared towers of classes and boxes."""

    def __init__(self, width: int, depth: int, anchors: int, classes: int) -> None:
        super().__init__()
        self.side = nn.ModuleList(nn.Conv2d(n, width, 1) for n in (128, 256, 512))
        self.smooth = nn.ModuleList(nn.Conv2d(width, width, 3, padding=1) for _ in range(3))

        def tower(out: int) -> nn.Sequential:
            layers: list[nn.Module] = []
            for _ in range(depth):
                layers += [nn.Conv2d(width, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
            return nn.Sequential(*layers, nn.Conv2d(width, out, 3, padding=1))

        self.classes, self.boxes = tower(anchors * classes), tower(anchors * 4)
        self.count = classes

    def forward(self, fine: torch.Tensor, middle: torch.Tensor, coarse: torch.Tensor) -> torch.Tensor:
        maps = [side(x) for side, x in zip(self.side, (fine, middle, coarse), strict=True)]
        for i in (1, 0):
            maps[i] = maps[i] + F.interpolate(maps[i + 1], scale_factor=2.0, mode="nearest")
        rows = []
        for smooth, x in zip(self.smooth, maps, strict=True):
            h = smooth(x)
            scores, boxes = (t.permute(0, 2, 3, 1) for t in (self.classes(h), self.boxes(h)))
            scores = scores.reshape(x.shape[0], -1, self.count).sigmoid()
            boxes = boxes.reshape(x.shape[0], -1, 4)
            corner, size = boxes[..., :2], boxes[..., 2:].clamp(-4, 4).exp()
            rows.append(torch.cat([corner - size / 2, corner + size / 2, scores], -1))
        return torch.cat(rows, 1)


@family(
    "detector_pyramid",
    "torch",
    {
        "batch": BATCHES[:8],
        "side": (4, 6, 8, 10, 12, 16, 20),
        "width": (32, 64, 96, 128, 256),
        "depth": (0, 1, 2, 4),
    },
    {"anchors": (1, 3, 9), "classes": (1, 20, 80)},
)
def detector_pyramid(k: Sizes) -> Case:
    shapes = [(k["batch"], 128 << i, k["side"] * 4 >> i, k["side"] * 4 >> i) for i in range(3)]
    inputs = [floats(name, *shape) for name, shape in zip(("fine", "middle", "coarse"), shapes, strict=True)]
    return Case(_Pyramid(k["width"], k["depth"], k["anchors"], k["classes"]), inputs)


class _Queries(nn.Module):
    """Queries that read a map: attention among themselves and over the map, then boxes and classes."""

    def __init__(self, queries: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.queries = nn.Parameter(torch.randn(queries, width) * 0.1)
        self.project = nn.Conv2d(256, width, 1)
        self.layers = nn.ModuleList(
            nn.TransformerDecoderLayer(width, heads, 4 * width, 0.0, batch_first=True) for _ in range(depth)
        )
        self.classes = nn.Linear(width, 81)
        self.boxes = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        memory = self.project(x).flatten(2).transpose(1, 2)
        h = self.queries.expand(x.shape[0], -1, -1)
        for layer in self.layers:
            h = layer(h, memory)
        return torch.cat([self.classes(h), self.boxes(h).sigmoid()], -1)


@family(
    "detector_queries",
    "torch",
    {"batch": BATCHES[:8], "side": (8, 10, 13, 16, 20, 25, 32), "heads": (2, 4, 8), "depth": (1, 2, 3, 6)},
    {"queries": (50, 100, 300), "head": (32, 64)},
)
def detector_queries(k: Sizes) -> Case:
    model = _Queries(k["queries"], k["heads"] * k["head"], k["heads"], k["depth"])
    return Case(model, [floats("x", k["batch"], 256, k["side"], k["side"])])


class _Anchors(nn.Module):
    """A one-stage head: boxes decoded from cells and anchors, then the best of them by top-k."""

    def __init__(self, width: int, depth: int, best: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for _ in range(depth):
            layers += [
                nn.Conv2d(width, width // 2, 1, bias=False),
                nn.BatchNorm2d(width // 2),
                nn.LeakyReLU(0.1),
            ]
            layers += [
                nn.Conv2d(width // 2, width, 3, padding=1, bias=False),
                nn.BatchNorm2d(width),
                nn.LeakyReLU(0.1),
            ]
        self.net, self.out, self.best = nn.Sequential(*layers), nn.Conv2d(width, 3 * 85, 1), best

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.out(self.net(x))
        batch, _, high, wide = h.shape
        h = h.view(batch, 3, 85, high * wide).transpose(2, 3).reshape(batch, -1, 85)
        place = torch.arange(high * wide, device=x.device)
        cell = torch.stack([place % wide, place // wide], -1).to(x.dtype).repeat(3, 1)
        centre, size = h[..., :2].sigmoid() + cell, h[..., 2:4].clamp(-6, 6).exp()
        score = h[..., 4:5].sigmoid() * h[..., 5:].sigmoid()
        rows = torch.cat([centre - size / 2, centre + size / 2, score], -1)
        order = score.amax(-1).topk(min(self.best, rows.shape[1]), 1).indices
        return rows.gather(1, order[..., None].expand(-1, -1, rows.shape[-1]))


@family(
    "detector_anchors",
    "torch",
    {
        "batch": BATCHES[:8],
        "side": (10, 13, 16, 20, 26, 32, 40, 52),
        "width": (32, 64, 128, 256, 512),
        "depth": (1, 2, 3),
    },
    {"best": (50, 100, 300)},
    "inference",
)
def detector_anchors(k: Sizes) -> Case:
    return Case(
        _Anchors(k["width"], k["depth"], k["best"]),
        [floats("x", k["batch"], k["width"], k["side"], k["side"])],
    )


class _Warped(nn.Module):
    """Two frames, a flow between them, one warped to the other by grid_sample, refined."""

    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(6, width, 5, 2, 2), nn.LeakyReLU(0.1)]
        for _ in range(depth):
            layers += [nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.1)]
        self.flow = nn.Sequential(*layers, nn.Conv2d(width, 2, 3, padding=1), nn.Tanh())
        self.refine = nn.Sequential(
            nn.Conv2d(8, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, 3, 3, padding=1)
        )

    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        flow = F.interpolate(
            self.flow(torch.cat([a, b], 1)), size=a.shape[-2:], mode="bilinear", align_corners=False
        )
        high, wide = a.shape[-2:]
        y = torch.linspace(-1, 1, high, device=a.device, dtype=a.dtype)[:, None].expand(high, wide)
        x = torch.linspace(-1, 1, wide, device=a.device, dtype=a.dtype)[None].expand(high, wide)
        grid = torch.stack([x, y], -1) + 0.1 * flow.permute(0, 2, 3, 1)
        warped = F.grid_sample(b, grid, mode="bilinear", padding_mode="border", align_corners=False)
        return warped + self.refine(torch.cat([a, warped, flow], 1))


@family(
    "warped_frames",
    "torch",
    {
        "batch": BATCHES[:8],
        "side": (32, 48, 64, 96, 128, 192, 256),
        "width": WIDTHS[:7],
        "depth": (1, 2, 4, 6),
    },
)
def warped_frames(k: Sizes) -> Case:
    shape = (k["batch"], 3, k["side"], k["side"])
    return Case(_Warped(k["width"], k["depth"]), [floats("a", *shape), floats("b", *shape)])


# ---- points


class _Points(nn.Module):
    """Shared layers over points and the maximum over them."""

    def __init__(self, width: int, depth: int, classes: int) -> None:
        super().__init__()
        widths = [3, *(width << i for i in range(depth))]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, 1) for a, b in zip(widths, widths[1:], strict=False))
        self.norms = nn.ModuleList(nn.BatchNorm1d(b) for b in widths[1:])
        self.head = nn.Sequential(nn.Linear(widths[-1], 4 * width), nn.ReLU(), nn.Linear(4 * width, classes))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = F.relu(norm(layer(x)))
        return self.head(x.amax(-1))


@family(
    "points",
    "torch",
    {
        "batch": BATCHES[1:12],
        "points": (128, 256, 500, 1024, 2048, 4096),
        "width": (16, 32, 64, 96, 128),
        "depth": (2, 3, 4),
    },
    {"classes": (10, 40)},
)
def points(k: Sizes) -> Case:
    model = _Points(k["width"], k["depth"], k["classes"])
    return Case(model, [floats("x", k["batch"], 3, k["points"])], ("classes", k["classes"]))


class _EdgeConv(nn.Module):
    """Each point with its nearest ones: distances, top-k, gathered differences, the maximum."""

    def __init__(self, channels: int, out: int, near: int) -> None:
        super().__init__()
        self.near = near
        self.layer, self.norm = nn.Linear(2 * channels, out), nn.LayerNorm(out)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, count, channels = x.shape
        squares = x.square().sum(-1)
        distance = squares[:, :, None] + squares[:, None] - 2 * x @ x.transpose(1, 2)
        nearest = distance.topk(self.near, -1, largest=False).indices.reshape(batch, -1, 1)
        other = x.gather(1, nearest.expand(-1, -1, channels)).view(batch, count, self.near, channels)
        me = x[:, :, None].expand_as(other)
        return F.relu(self.norm(self.layer(torch.cat([me, other - me], -1)))).amax(2)


@family(
    "near_points",
    "torch",
    {
        "batch": BATCHES[:8],
        "points": (64, 128, 256, 512, 1024),
        "width": (16, 32, 64, 128),
        "depth": (1, 2, 3),
    },
    {"near": (8, 16, 20)},
    "inference",
)
def near_points(k: Sizes) -> Case:
    layers = [_EdgeConv(3 if i == 0 else k["width"], k["width"], k["near"]) for i in range(k["depth"])]
    return Case(nn.Sequential(*layers, nn.Linear(k["width"], 13)), [floats("x", k["batch"], k["points"], 3)])


class _SetAttention(nn.Module):
    """Neighbours given as indices: vector attention over gathered differences."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.weigh = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        keys, vals = self.k(x)[near], self.v(x)[near]
        weight = self.weigh(self.q(x)[:, None] - keys).softmax(1)
        return x + self.out((weight * vals).sum(1))


class _PointTransformer(nn.Module):
    def __init__(self, width: int, depth: int) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, width), nn.Linear(width, 13)
        self.layers = nn.ModuleList(_SetAttention(width) for _ in range(depth))

    def forward(self, x: torch.Tensor, near: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        for layer in self.layers:
            h = layer(h, near)
        return self.last(h)


@family(
    "point_transformer",
    "torch",
    {
        "points": (256, 512, 1000, 2048, 4096, 10000, 20000),
        "width": (16, 32, 48, 64, 128),
        "depth": (1, 2, 3, 4),
    },
    {"near": (8, 12, 16)},
)
def point_transformer(k: Sizes) -> Case:
    inputs = [floats("x", k["points"], 6), ids("near", k["points"], k["near"], high=k["points"])]
    return Case(_PointTransformer(k["width"], k["depth"]), inputs, ("classes", 13))


# ---- graphs: features of nodes, and edges as two lists of indices


class _Graph(nn.Module):
    """`kind`: sums by index_add over degrees, means beside the node itself, attention over edges by scatters,
    or messages of edges with features."""

    def __init__(self, kind: str, features: int, width: int, depth: int, classes: int) -> None:
        super().__init__()
        self.kind = kind
        self.first, self.last = nn.Linear(features, width), nn.Linear(width, classes)
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.selves = nn.ModuleList(nn.Linear(width, width) for _ in range(depth)) if kind == "mean" else None
        self.scores = (
            nn.ModuleList(nn.Linear(2 * width, 1) for _ in range(depth)) if kind == "attention" else None
        )
        self.edges = (
            nn.ModuleList(
                nn.Sequential(nn.Linear(16, width), nn.SiLU(), nn.Linear(width, width)) for _ in range(depth)
            )
            if kind == "message"
            else None
        )

    def forward(
        self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor, edge: torch.Tensor | None = None
    ) -> torch.Tensor:
        h = F.relu(self.first(x))
        ones = torch.ones(source.shape[0], dtype=h.dtype, device=h.device)
        degree = (
            torch.zeros(x.shape[0], dtype=h.dtype, device=h.device).index_add(0, target, ones).clamp(min=1.0)
        )
        for i, layer in enumerate(self.layers):
            m = layer(h)
            if self.kind == "sum":
                scale = degree.rsqrt()
                message = m[source] * (scale[source] * scale[target])[:, None]
                h = F.relu(torch.zeros_like(m).index_add(0, target, message))
            elif self.kind == "mean":
                total = torch.zeros_like(m).index_add(0, target, m[source])
                h = F.relu(total / degree[:, None] + self.selves[i](h))
            elif self.kind == "attention":
                score = F.leaky_relu(self.scores[i](torch.cat([m[source], m[target]], -1)), 0.2)[:, 0]
                top = torch.full_like(degree, -1e4).scatter_reduce(0, target, score.detach(), "amax")
                weight = (score - top[target]).exp()
                total = torch.zeros_like(degree).index_add(0, target, weight)
                message = m[source] * (weight / (total[target] + 1e-6))[:, None]
                h = F.elu(torch.zeros_like(m).index_add(0, target, message))
            else:
                message = m[source] * self.edges[i](edge)
                places = target[:, None].expand_as(message)
                h = h + F.silu(torch.zeros_like(m).scatter_add(0, places, message) / degree[:, None])
        return self.last(h)


GRAPHS = {
    "nodes": (100, 256, 1000, 2708, 5000, 10000, 20000, 50000),
    "width": (16, 32, 64, 96, 128, 256),
    "depth": (1, 2, 3, 4),
}


def _graph(name: str, kind: str, modes: str = "inference train") -> None:
    @family(
        name, "torch", GRAPHS, {"features": (16, 50, 128), "edges": (2, 4, 8), "classes": (3, 7, 40)}, modes
    )
    def case(k: Sizes) -> Case:
        nodes, edges = k["nodes"], k["nodes"] * k["edges"]
        inputs = [
            floats("x", nodes, k["features"]),
            *(ids(n, edges, high=nodes) for n in ("source", "target")),
        ]
        if kind == "message":
            inputs.append(floats("edge", edges, 16))
        return Case(
            _Graph(kind, k["features"], k["width"], k["depth"], k["classes"]),
            inputs,
            ("classes", k["classes"]),
        )


_graph("graph_sum", "sum")
_graph("graph_mean", "mean")
_graph("graph_attention", "attention")
_graph("graph_messages", "message")

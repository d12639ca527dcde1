"""Families over sequences that are no transformer of a library: recurrent nets, dilated and causal
convolutions, speech front ends, conformers, state spaces, small nets of dense layers, recommenders."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from drawn_family import BATCHES, Case, Sizes, family, floats, ids
from torch import nn

WIDTHS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)
ROWS = (1, 2, 4, 8, 16, 32, 64, 100, 128, 256, 500, 1024, 2048, 4096, 8192, 16384)
ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU, "silu": nn.SiLU, "tanh": nn.Tanh}


# ---- dense layers


@family(
    "mlp",
    "torch",
    {"rows": ROWS, "width": (*WIDTHS, 1536, 2048, 4096), "depth": (1, 2, 3, 4, 6)},
    {"activation": tuple(ACTIVATIONS), "features": (13, 30, 64, 100, 784), "classes": (2, 10, 101)},
)
def mlp(k: Sizes) -> Case:
    sizes = [k["features"], *[k["width"]] * k["depth"]]
    layers = [
        x
        for a, b in zip(sizes, sizes[1:], strict=False)
        for x in (nn.Linear(a, b), ACTIVATIONS[k["activation"]]())
    ]
    model = nn.Sequential(*layers, nn.Linear(k["width"], k["classes"]))
    return Case(model, [floats("x", k["rows"], k["features"])], ("classes", k["classes"]))


class _Residual(nn.Module):
    def __init__(self, width: int, wide: int, norm: str) -> None:
        super().__init__()
        self.norm = {"batch": nn.BatchNorm1d, "layer": nn.LayerNorm}[norm](width)
        self.up, self.down = nn.Linear(width, wide), nn.Linear(wide, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(F.relu(self.up(self.norm(x))))


@family(
    "tabular_residual",
    "torch",
    {"rows": ROWS[3:], "width": WIDTHS[2:], "depth": (1, 2, 3, 4, 6, 8)},
    {"features": (10, 40, 90), "wide": (1, 2, 4), "norm": ("batch", "layer")},
)
def tabular(k: Sizes) -> Case:
    width = k["width"]
    blocks = [_Residual(width, k["wide"] * width, k["norm"]) for _ in range(k["depth"])]
    model = nn.Sequential(nn.Linear(k["features"], width), *blocks, nn.LayerNorm(width), nn.Linear(width, 1))
    return Case(model, [floats("x", k["rows"], k["features"])])


class _Field(nn.Module):
    """A radiance field: sines of positions, dense layers with a skip."""

    def __init__(self, width: int, depth: int, octaves: int) -> None:
        super().__init__()
        self.octaves = octaves
        features = 3 + 6 * octaves
        self.first = nn.Linear(features, width)
        self.layers = nn.ModuleList(
            nn.Linear(width + (features if i == depth // 2 else 0), width) for i in range(depth)
        )
        self.out = nn.Linear(width, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = [f(x * math.pi * 2**i) for i in range(self.octaves) for f in (torch.sin, torch.cos)]
        encoded = torch.cat([x, *waves], -1)
        h = F.relu(self.first(encoded))
        for i, layer in enumerate(self.layers):
            h = F.relu(layer(torch.cat([h, encoded], -1) if i == len(self.layers) // 2 else h))
        out = self.out(h)
        return torch.cat([torch.sigmoid(out[..., :3]), F.softplus(out[..., 3:])], -1)


@family(
    "radiance_field",
    "torch",
    {
        "rows": (256, 1024, 2000, 4096, 10000, 16384, 32768, 65536),
        "width": WIDTHS[2:10],
        "depth": (2, 3, 4, 6, 8),
    },
    {"octaves": (4, 6, 10)},
)
def radiance_field(k: Sizes) -> Case:
    return Case(_Field(k["width"], k["depth"], k["octaves"]), [floats("x", k["rows"], 3)])


class _ActorCritic(nn.Module):
    """Actor and critic over one trunk, as in reinforcement learning."""

    def __init__(self, features: int, width: int, depth: int, actions: int) -> None:
        super().__init__()
        self.trunk = nn.ModuleList(nn.Linear(features if i == 0 else width, width) for i in range(depth))
        self.mean, self.value = nn.Linear(width, actions), nn.Linear(width, 1)
        self.log_std = nn.Parameter(torch.zeros(actions))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.trunk:
            x = torch.tanh(layer(x))
        mean = torch.tanh(self.mean(x))
        spread = torch.exp(self.log_std.clamp(-5, 2)).expand_as(mean)
        return torch.cat([mean, spread, self.value(x)], -1)


@family(
    "actor_critic",
    "torch",
    {"rows": ROWS, "width": (*WIDTHS[2:], 2048), "depth": (1, 2, 3, 4)},
    {"features": (8, 17, 60, 376), "actions": (2, 6, 17)},
)
def actor_critic(k: Sizes) -> Case:
    model = _ActorCritic(k["features"], k["width"], k["depth"], k["actions"])
    return Case(model, [floats("x", k["rows"], k["features"])])


# ---- recommenders


class _Dlrm(nn.Module):
    """Dense features and one row of each table, all pairs of which are multiplied."""

    def __init__(self, tables: int, rows: int, size: int, width: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(rows, size) for _ in range(tables))
        self.bottom = nn.Sequential(nn.Linear(13, width), nn.ReLU(), nn.Linear(width, size), nn.ReLU())
        pairs = (tables + 1) * tables // 2
        self.top = nn.Sequential(
            nn.Linear(pairs + size, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1)
        )
        self.places = [i * (tables + 1) + j for i in range(tables + 1) for j in range(i)]

    def forward(self, dense: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        x = self.bottom(dense)
        z = torch.stack([x, *(table(rows[:, i]) for i, table in enumerate(self.tables))], 1)
        pairs = torch.bmm(z, z.transpose(1, 2)).flatten(1)
        return self.top(torch.cat([x, pairs[:, self.places]], 1))


@family(
    "dlrm",
    "torch",
    {"batch": ROWS[3:], "width": WIDTHS[4:], "tables": (2, 4, 8, 13, 26)},
    {"rows": (1000, 20000, 100000), "size": (16, 32, 64)},
)
def dlrm(k: Sizes) -> Case:
    model = _Dlrm(k["tables"], k["rows"], k["size"], k["width"])
    return Case(
        model, [floats("dense", k["batch"], 13), ids("rows", k["batch"], k["tables"], high=k["rows"])]
    )


class _DeepFm(nn.Module):
    def __init__(self, fields: int, rows: int, size: int, width: int) -> None:
        super().__init__()
        self.linear, self.table = nn.Embedding(rows, 1), nn.Embedding(rows, size)
        self.deep = nn.Sequential(
            nn.Linear(fields * size, width),
            nn.ReLU(),
            nn.Linear(width, width),
            nn.ReLU(),
            nn.Linear(width, 1),
        )

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        v = self.table(rows)
        pairs = 0.5 * (v.sum(1).square() - v.square().sum(1)).sum(-1, keepdim=True)
        return self.linear(rows).sum(1) + pairs + self.deep(v.flatten(1))


@family(
    "deep_fm",
    "torch",
    {"batch": ROWS[3:], "width": WIDTHS[4:], "fields": (4, 8, 16, 26, 39)},
    {"rows": (10000, 100000, 1000000), "size": (8, 16, 32, 64)},
)
def deep_fm(k: Sizes) -> Case:
    model = _DeepFm(k["fields"], k["rows"], k["size"], k["width"])
    return Case(model, [ids("rows", k["batch"], k["fields"], high=k["rows"])])


class _Towers(nn.Module):
    """Bags of words to two vectors, every query against every document."""

    def __init__(self, rows: int, size: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, size)
        self.query = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))
        self.document = nn.Sequential(nn.Linear(size, width), nn.ReLU(), nn.Linear(width, size))

    def forward(self, query: torch.Tensor, document: torch.Tensor) -> torch.Tensor:
        q = F.normalize(self.query(self.table(query).mean(1)), dim=-1)
        d = F.normalize(self.document(self.table(document).mean(1)), dim=-1)
        return q @ d.T * 20


@family(
    "two_towers",
    "torch",
    {"batch": ROWS[4:], "width": WIDTHS[4:], "words": (4, 8, 20, 50, 100)},
    {"rows": (5000, 50000, 500000), "size": (32, 64, 100, 128)},
)
def two_towers(k: Sizes) -> Case:
    bags = [ids(name, k["batch"], k["words"], high=k["rows"]) for name in ("query", "document")]
    return Case(_Towers(k["rows"], k["size"], k["width"]), bags)


class _Interest(nn.Module):
    """A history weighed by its likeness to a candidate, then dense layers."""

    def __init__(self, rows: int, size: int, width: int) -> None:
        super().__init__()
        self.table = nn.Embedding(rows, size)
        self.weigh = nn.Sequential(nn.Linear(4 * size, width), nn.PReLU(), nn.Linear(width, 1))
        self.top = nn.Sequential(nn.Linear(2 * size, width), nn.PReLU(), nn.Linear(width, 2))

    def forward(self, history: torch.Tensor, item: torch.Tensor) -> torch.Tensor:
        h, i = self.table(history), self.table(item)
        other = i[:, None].expand_as(h)
        weight = self.weigh(torch.cat([h, other, h - other, h * other], -1)).softmax(1)
        return self.top(torch.cat([(weight * h).sum(1), i], -1))


@family(
    "interest",
    "torch",
    {"batch": ROWS[2:13], "width": WIDTHS[2:9], "length": (10, 20, 50, 100, 200)},
    {"rows": (1000, 60000, 400000), "size": (16, 36, 64)},
)
def interest(k: Sizes) -> Case:
    rows = k["rows"]
    inputs = [ids("history", k["batch"], k["length"], high=rows), ids("item", k["batch"], high=rows)]
    return Case(_Interest(rows, k["size"], k["width"]), inputs, ("classes", 2))


# ---- recurrent nets


class _Recurrent(nn.Module):
    def __init__(self, kind: str, features: int, width: int, layers: int, both: bool, classes: int) -> None:
        super().__init__()
        cell = {"lstm": nn.LSTM, "gru": nn.GRU}[kind]
        self.net = cell(features, width, layers, batch_first=True, bidirectional=both)
        self.out = nn.Linear(width * (2 if both else 1), classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.net(x)[0])


RECURRENT = {
    "batch": BATCHES[:14],
    "length": (8, 12, 16, 24, 32, 50, 64, 100, 128),
    "width": WIDTHS[2:],
    "layers": (1, 2, 3),
}


def _recurrent(name: str, kind: str, both: bool) -> None:
    @family(name, "torch", RECURRENT, {"features": (10, 40, 80, 128), "classes": (5, 29, 100)})
    def case(k: Sizes) -> Case:
        model = _Recurrent(kind, k["features"], k["width"], k["layers"], both, k["classes"])
        return Case(model, [floats("x", k["batch"], k["length"], k["features"])], ("classes", k["classes"]))


_recurrent("lstm", "lstm", False)
_recurrent("gru", "gru", False)
_recurrent("lstm_both_ways", "lstm", True)
_recurrent("gru_both_ways", "gru", True)


class _Words(nn.Module):
    """A language model of an LSTM, with its table tied to nothing."""

    def __init__(self, words: int, size: int, width: int, layers: int) -> None:
        super().__init__()
        self.table = nn.Embedding(words, size)
        self.net = nn.LSTM(size, width, layers, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        return self.out(self.net(self.table(words))[0])


@family("lstm_words", "torch", RECURRENT, {"words": (96, 1000, 10000), "size": (32, 64, 128)})
def lstm_words(k: Sizes) -> Case:
    model = _Words(k["words"], k["size"], k["width"], k["layers"])
    return Case(model, [ids("words", k["batch"], k["length"], high=k["words"])], ("classes", k["words"]))


# ---- convolutions over time, speech


class _Dilated(nn.Module):
    def __init__(self, width: int, depth: int, gated: bool) -> None:
        super().__init__()
        self.gated = gated
        out = 2 * width if gated else width
        self.layers = nn.ModuleList(
            nn.Conv1d(width, out, 3, padding=2**i, dilation=2**i) for i in range(depth)
        )
        self.mix = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(depth))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer, mix in zip(self.layers, self.mix, strict=True):
            h = layer(x)
            if self.gated:
                a, b = h.chunk(2, 1)
                h = torch.tanh(a) * torch.sigmoid(b)
            else:
                h = F.relu(h)
            x = x + mix(h)
        return x


@family(
    "dilated_over_time",
    "torch",
    {
        "batch": BATCHES[:10],
        "length": (100, 200, 400, 1000, 2000, 4000, 8000),
        "width": WIDTHS[1:10],
        "depth": (2, 3, 4, 6, 8),
    },
    {"gated": (False, True), "features": (1, 9, 40)},
)
def dilated(k: Sizes) -> Case:
    model = nn.Sequential(
        nn.Conv1d(k["features"], k["width"], 1),
        _Dilated(k["width"], k["depth"], k["gated"]),
        nn.Conv1d(k["width"], 8, 1),
    )
    return Case(model, [floats("x", k["batch"], k["features"], k["length"])])


class _LogMel(nn.Module):
    """Frames of a signal by a strided convolution with a basis (random here; sines and cosines in use),
    power, mel bands, logarithm, and a few convolutions over the picture that this gives."""

    def __init__(self, window: int, hop: int, mels: int, width: int) -> None:
        super().__init__()
        bins = window // 2 + 1
        self.hop, self.bins = hop, bins
        self.register_buffer("basis", torch.randn(2 * bins, 1, window) * window**-0.5)
        self.register_buffer("bands", torch.rand(mels, bins))
        self.net = nn.Sequential(
            nn.Conv2d(1, width, 3, 2, 1),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.Conv2d(width, width, 3, 2, 1, groups=width),
            nn.Conv2d(width, 2 * width, 1),
            nn.BatchNorm2d(2 * width),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2 * width, 12),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        waves = F.conv1d(x[:, None], self.basis, stride=self.hop)
        power = waves[:, : self.bins].square() + waves[:, self.bins :].square()
        return self.net(torch.log(self.bands @ power + 1e-3)[:, None])


@family(
    "keyword_spotting",
    "torch",
    {"batch": BATCHES, "length": (4000, 8000, 16000, 32000, 64000), "width": WIDTHS[:9]},
    {"window": (320, 400, 512), "mels": (40, 64, 80)},
)
def keyword_spotting(k: Sizes) -> Case:
    model = _LogMel(k["window"], 160, k["mels"], k["width"])
    return Case(model, [floats("x", k["batch"], k["length"])], ("classes", 12))


class _Conformer(nn.Module):
    def __init__(self, width: int, heads: int, kernel: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(5))
        self.feeds = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.SiLU(), nn.Linear(4 * width, width))
            for _ in range(2)
        )
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Conv1d(width, 2 * width, 1)
        self.along = nn.Conv1d(width, width, kernel, padding=kernel // 2, groups=width)
        self.batch_norm, self.narrow = nn.BatchNorm1d(width), nn.Conv1d(width, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        x = x + 0.5 * self.feeds[0](self.norms[0](x))
        q, k, v = (
            t.view(batch, length, self.heads, -1).transpose(1, 2)
            for t in self.qkv(self.norms[1](x)).chunk(3, -1)
        )
        x = x + self.out(
            F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, width)
        )
        h = F.glu(self.wide(self.norms[2](x).transpose(1, 2)), dim=1)
        x = x + self.narrow(F.silu(self.batch_norm(self.along(h)))).transpose(1, 2)
        return self.norms[4](x + 0.5 * self.feeds[1](self.norms[3](x)))


class _Speech(nn.Module):
    def __init__(self, mels: int, width: int, heads: int, depth: int, kernel: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, width // 4, 3, 2, 1),
            nn.ReLU(),
            nn.Conv2d(width // 4, width // 4, 3, 2, 1),
            nn.ReLU(),
        )
        self.join = nn.Linear(width // 4 * (mels // 4), width)
        self.blocks = nn.Sequential(*(_Conformer(width, heads, kernel) for _ in range(depth)))
        self.out = nn.Linear(width, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.blocks(self.join(self.front(x[:, None]).transpose(1, 2).flatten(2))))


@family(
    "conformer",
    "torch",
    {
        "batch": BATCHES[:8],
        "length": (100, 200, 400, 800, 1200),
        "heads": (2, 4, 6, 8),
        "depth": (1, 2, 4, 6),
    },
    {"head": (32, 36, 64), "kernel": (7, 15, 31), "mels": (40, 80)},
)
def conformer(k: Sizes) -> Case:
    model = _Speech(k["mels"], k["heads"] * k["head"], k["heads"], k["depth"], k["kernel"])
    return Case(model, [floats("x", k["batch"], k["length"], k["mels"])], ("classes", 128))


class _Vocoder(nn.Module):
    """Frames to samples by transposed convolutions with residual blocks between."""

    def __init__(self, mels: int, width: int, kernel: int) -> None:
        super().__init__()
        self.first = nn.Conv1d(mels, width, 7, padding=3)
        steps = (8, 8, 2)
        self.up = nn.ModuleList(
            nn.ConvTranspose1d(max(8, width >> i), max(8, width >> (i + 1)), 2 * s, s, s // 2)
            for i, s in enumerate(steps)
        )
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                nn.Conv1d(
                    max(8, width >> (i + 1)),
                    max(8, width >> (i + 1)),
                    kernel,
                    padding=d * (kernel // 2),
                    dilation=d,
                )
                for d in (1, 3)
            )
            for i in range(3)
        )
        self.last = nn.Conv1d(max(8, width >> 3), 1, 7, padding=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for up, block in zip(self.up, self.blocks, strict=True):
            x = up(F.leaky_relu(x, 0.1))
            for conv in block:
                x = x + conv(F.leaky_relu(x, 0.1))
        return torch.tanh(self.last(F.leaky_relu(x, 0.1)))


@family(
    "vocoder",
    "torch",
    {"batch": BATCHES[:8], "frames": (8, 16, 32, 64, 100), "width": (32, 64, 96, 128, 256, 512)},
    {"kernel": (3, 7, 11), "mels": (80,)},
)
def vocoder(k: Sizes) -> Case:
    return Case(
        _Vocoder(k["mels"], k["width"], k["kernel"]), [floats("x", k["batch"], k["mels"], k["frames"])]
    )


class _GatedUnit(nn.Module):
    """Gated products over places (a spatial gating unit)."""

    def __init__(self, width: int, length: int) -> None:
        super().__init__()
        self.norm, self.gate_norm = nn.LayerNorm(width), nn.LayerNorm(2 * width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.places = nn.Conv1d(length, length, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a, b = F.gelu(self.up(self.norm(x))).chunk(2, -1)
        return x + self.down(a * self.places(self.gate_norm(b)))


@family(
    "gated_mlp",
    "torch",
    {
        "batch": BATCHES[:12],
        "length": (16, 32, 64, 100, 128, 196, 256),
        "width": WIDTHS[2:10],
        "depth": (1, 2, 4, 6, 8),
    },
    {"words": (256, 8000)},
)
def gated_mlp(k: Sizes) -> Case:
    blocks = [_GatedUnit(k["width"], k["length"]) for _ in range(k["depth"])]
    model = nn.Sequential(
        nn.Embedding(k["words"], k["width"]),
        *blocks,
        nn.LayerNorm(k["width"]),
        nn.Linear(k["width"], k["words"]),
    )
    return Case(model, [ids("words", k["batch"], k["length"], high=k["words"])], ("classes", k["words"]))


class _Forecast(nn.Module):
    """Windows of a series: patches, a transformer over them, a head for each channel."""

    def __init__(self, length: int, patch: int, width: int, heads: int, depth: int) -> None:
        super().__init__()
        self.patch = patch
        self.first = nn.Linear(patch, width)
        self.places = nn.Parameter(torch.randn(1, length // patch, width) * 0.02)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, heads, 2 * width, 0.0, "gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.out = nn.Linear(length // patch * width, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, length = x.shape
        mean, spread = x.mean(-1, keepdim=True), x.std(-1, keepdim=True) + 1e-3
        h = self.first(((x - mean) / spread).reshape(batch * channels, -1, self.patch)) + self.places
        for layer in self.layers:
            h = layer(h)
        return self.out(h.flatten(1)).view(batch, channels, -1) * spread + mean


@family(
    "forecast",
    "torch",
    {
        "batch": BATCHES[:12],
        "channels": (1, 3, 7, 12, 21),
        "length": (96, 192, 336, 512),
        "width": (32, 64, 96, 128, 256),
        "depth": (1, 2, 3, 4),
    },
    {"patch": (8, 16), "heads": (4, 8)},
)
def forecast(k: Sizes) -> Case:
    length = k["length"] // k["patch"] * k["patch"]
    return Case(
        _Forecast(length, k["patch"], k["width"], k["heads"], k["depth"]),
        [floats("x", k["batch"], k["channels"], length)],
    )

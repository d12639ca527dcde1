"""Families of torchvision and timm with random weights: nets of convolutions and of windows over pictures and
clips, classifiers and maps of classes. Variants of one design are one family."""

from __future__ import annotations

from typing import Any

from drawn_family import BATCHES, Case, Plain, Sizes, family, floats

SIDES = (64, 96, 128, 160, 192, 224, 256, 288, 320, 384)
LADDER = {"batch": BATCHES[:14], "side": SIDES}
CLASSES = {"classes": (10, 37, 100, 1000)}


def _pictures(k: Sizes, model: Any, side: int | None = None, target: int | None = None) -> Case:
    side = side or k["side"]
    count = target or k["classes"]
    return Case(model, [floats("x", k["batch"], 3, side, side)], ("classes", count))


def _torchvision(name: str, k: Sizes, **more: Any) -> Any:
    import torchvision.models as tv

    return tv.get_model(name, weights=None, num_classes=k["classes"], **more)


def _timm(name: str, k: Sizes, **more: Any) -> Any:
    import timm

    return timm.create_model(name, pretrained=False, num_classes=k["classes"], **more)


def _variants(
    family_name: str, library: str, names: str, ladder: Any = LADDER, modes: str = "inference train"
) -> None:
    """A family whose only other knobs are a variant and the number of classes."""
    make = {"torchvision": _torchvision, "timm": _timm}[library]

    @family(family_name, library, ladder, CLASSES | {"variant": tuple(names.split())}, modes)
    def case(k: Sizes) -> Case:
        return _pictures(k, make(k["variant"], k))


def _sized(family_name: str, names: str, argument: str, step: int, modes: str = "inference train") -> None:
    """A family of timm whose model is told the side of its pictures, a multiple of `step`."""
    sides = tuple(s for s in SIDES if s % step == 0)

    @family(
        family_name,
        "timm",
        {"batch": BATCHES[:14], "side": sides},
        CLASSES | {"variant": tuple(names.split())},
        modes,
    )
    def case(k: Sizes) -> Case:
        return _pictures(k, _timm(k["variant"], k, **{argument: k["side"]}))


@family(
    "resnet",
    "torchvision",
    LADDER | {"depth": (1, 2, 3)},
    CLASSES | {"block": ("BasicBlock", "Bottleneck"), "width": (16, 32, 48, 64)},
)
def resnet(k: Sizes) -> Case:
    from torchvision.models import resnet as tv

    wide = {"width_per_group": k["width"]} if k["block"] == "Bottleneck" else {}
    return _pictures(
        k, tv.ResNet(getattr(tv, k["block"]), [k["depth"]] * 4, num_classes=k["classes"], **wide)
    )


@family("resnext_grouped", "torchvision", LADDER | {"depth": (1, 2, 3)}, CLASSES | {"groups": (8, 16, 32)})
def resnext(k: Sizes) -> Case:
    from torchvision.models import resnet as tv

    sizes = {"groups": k["groups"], "width_per_group": 128 // k["groups"], "num_classes": k["classes"]}
    return _pictures(k, tv.ResNet(tv.Bottleneck, [k["depth"]] * 4, **sizes))


@family("mobilenet_v2", "torchvision", LADDER, CLASSES | {"width": (0.35, 0.5, 0.75, 1.0, 1.4)})
def mobilenet_v2(k: Sizes) -> Case:
    return _pictures(k, _torchvision("mobilenet_v2", k, width_mult=k["width"]))


_variants("mobilenet_v3", "torchvision", "mobilenet_v3_small mobilenet_v3_large")
_variants("efficientnet", "torchvision", "efficientnet_b0 efficientnet_b1 efficientnet_v2_s")
_variants("densenet", "torchvision", "densenet121 densenet169")
_variants("shufflenet", "torchvision", "shufflenet_v2_x0_5 shufflenet_v2_x1_0 shufflenet_v2_x1_5")
_variants("regnet", "torchvision", "regnet_x_400mf regnet_y_400mf regnet_x_1_6gf regnet_y_1_6gf")
_variants("squeezenet", "torchvision", "squeezenet1_0 squeezenet1_1")
_variants("vgg", "torchvision", "vgg11 vgg11_bn vgg13", {"batch": BATCHES[:12], "side": SIDES[:8]})
_variants("mnasnet", "torchvision", "mnasnet0_5 mnasnet0_75 mnasnet1_0")
_variants("convnext", "torchvision", "convnext_tiny convnext_small")
_variants(
    "swin_v2", "torchvision", "swin_v2_t swin_v2_s", {"batch": BATCHES[:12], "side": (128, 192, 224, 256)}
)


@family(
    "video_3d",
    "torchvision",
    {"batch": BATCHES[:6], "side": (56, 64, 80, 96, 112), "frames": (4, 8, 12, 16)},
    {"variant": ("r3d_18", "mc3_18", "r2plus1d_18"), "classes": (40, 400)},
)
def video(k: Sizes) -> Case:
    import torchvision.models.video as tv

    model = getattr(tv, k["variant"])(weights=None, num_classes=k["classes"])
    return Case(
        model, [floats("x", k["batch"], 3, k["frames"], k["side"], k["side"])], ("classes", k["classes"])
    )


@family(
    "segmentation",
    "torchvision",
    {"batch": BATCHES[:8], "side": SIDES},
    {
        "variant": ("lraspp_mobilenet_v3_large", "fcn_resnet50", "deeplabv3_mobilenet_v3_large"),
        "classes": (2, 21),
    },
)
def segmentation(k: Sizes) -> Case:
    import torchvision.models.segmentation as tv

    model = getattr(tv, k["variant"])(weights=None, weights_backbone=None, num_classes=k["classes"])
    return _pictures(k, Plain(model))


_variants("mlp_mixer", "timm", "mixer_s32_224 mixer_s16_224", {"batch": BATCHES[:14], "side": (224,)})
_variants("ghostnet", "timm", "ghostnet_050 ghostnet_100")
_variants("repvgg", "timm", "repvgg_a0 repvgg_a1 repvgg_b0")
_variants("nfnet", "timm", "nfnet_l0 eca_nfnet_l0")
_variants("poolformer", "timm", "poolformer_s12 poolformerv2_s12 poolformer_s24")
_variants(
    "mobilevit",
    "timm",
    "mobilevit_xxs mobilevit_xs mobilevitv2_050",
    {"batch": BATCHES[:14], "side": (128, 192, 256, 320)},
)
_variants(
    "hrnet",
    "timm",
    "hrnet_w18_small hrnet_w18_small_v2",
    {"batch": BATCHES[:12], "side": (64, 96, 128, 160, 192, 224)},
)
_variants("res2net_dla", "timm", "dla34 dla46x_c res2net50_26w_4s selecsls42b")
_variants(
    "edgenext",
    "timm",
    "edgenext_xx_small edgenext_x_small",
    {"batch": BATCHES[:14], "side": (128, 192, 256, 320)},
)
_variants("convnextv2", "timm", "convnextv2_atto convnextv2_femto convnextv2_pico")
_variants("fastvit", "timm", "fastvit_t8 fastvit_t12", {"batch": BATCHES[:12], "side": (128, 192, 256)})
_variants("pvt", "timm", "pvt_v2_b0 pvt_v2_b1", {"batch": BATCHES[:12], "side": (64, 96, 128, 160, 192, 224)})
_variants("resnet_attention", "timm", "resnet26t seresnext26t_32x4d skresnet18 ecaresnet26t")
_sized(
    "vit_timm",
    "vit_tiny_patch16_224 vit_small_patch16_224 vit_small_patch32_224 deit3_small_patch16_224",
    "img_size",
    32,
)
_sized("eva_rotary", "eva02_tiny_patch14_224 vit_small_patch16_rope_224", "img_size", 112)
_sized("cait_xcit", "cait_xxs24_224 xcit_nano_12_p16_224 xcit_tiny_12_p16_224", "img_size", 32)

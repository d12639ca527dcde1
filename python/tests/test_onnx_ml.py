"""Ops of ai.onnx.ml that hold numbers, as converters of scikit-learn write them, against onnxruntime."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import aicf
import numpy as np
import onnx_nodes
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_nodes import draw as real
from onnx_nodes import ours, peer

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def model_of(
    op: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, int],
    attributes: Mapping[str, Any],
    version: int = 3,
) -> bytes:
    """One node; the first axis of its inputs is open."""
    node = helper.make_node(op, list(inputs), list(outputs), domain="ai.onnx.ml", **attributes)
    sizes = {name: ["n", *x.shape[1:]] if x.ndim > 1 else x.shape for name, x in inputs.items()}
    return onnx_nodes.model_of(
        [node],
        {name: (x.dtype, sizes[name]) for name, x in inputs.items()},
        {name: kind for name, kind in outputs.items() if name},
        opset=17,
        domains={"ai.onnx.ml": version},
    )


def compiled(model: bytes) -> Any:
    return aicf.compile(model, dims={"n": "1..32"} if b"\x12\x01n" in model else {})


def check(
    op: str,
    inputs: Mapping[str, np.ndarray],
    outputs: Mapping[str, int] = {"y": FLOAT},  # noqa: B006
    version: int = 3,
    **attributes: Any,
) -> None:
    model = model_of(op, inputs, outputs, attributes, version)
    theirs = peer(model, inputs)
    for mine, exact in zip(ours(compiled(model), inputs), theirs, strict=True):
        assert mine.shape == exact.shape
        assert mine.dtype == exact.dtype
        np.testing.assert_allclose(mine, exact, rtol=1e-5, atol=1e-6)


LABELLED = {"label": INT64, "scores": FLOAT}


@pytest.mark.parametrize("x", [real(5, 3), real(5, 3).astype(np.float64), np.arange(15).reshape(5, 3)])
def test_scaler(x: np.ndarray) -> None:
    check("Scaler", {"x": x}, offset=[0.5, -1.0, 2.0], scale=[2.0, 0.5, 3.0])
    check("Scaler", {"x": x}, offset=[0.5], scale=[2.0])


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    x = np.array([[1, -2, 3], [0, 0, 0], [-1, -4, -2]], np.float32)
    check("Normalizer", {"x": x}, norm=norm)
    check("Normalizer", {"x": x[0]}, norm=norm)


def test_binarizer() -> None:
    check("Binarizer", {"x": np.array([[0.5, 0.7], [-1.0, 0.6]], np.float32)}, threshold=0.6)


def test_array_feature_extractor() -> None:
    check("ArrayFeatureExtractor", {"x": real(4, 5), "at": np.array([4, 0, 0])})
    check("ArrayFeatureExtractor", {"x": real(6), "at": np.array([[1], [3]])})


def test_imputer() -> None:
    x = real(4, 2)
    x[1, 0] = x[3, 1] = np.nan
    check("Imputer", {"x": x}, imputed_value_floats=[1.5, -2.0], replaced_value_float=float("nan"))
    check("Imputer", {"x": np.round(x * 0 + 1)}, imputed_value_floats=[7.0], replaced_value_float=1.0)
    whole = np.array([[1, 2], [3, 1]])
    check("Imputer", {"x": whole}, {"y": INT64}, imputed_value_int64s=[9], replaced_value_int64=1)


def test_feature_vectorizer() -> None:
    check("FeatureVectorizer", {"a": real(4, 2), "b": real(4, 3)}, inputdimensions=[2, 3])


def test_one_hot_encoder() -> None:
    check("OneHotEncoder", {"x": np.array([[3], [5], [4]])}, cats_int64s=[3, 4, 9], zeros=1)


def test_label_encoder() -> None:
    keys = [3, -7, 11]
    x = np.array([[11, 3], [4, -7]])
    check("LabelEncoder", {"x": x}, keys_int64s=keys, values_floats=[0.5, 2.0, -1.0], default_float=8.0)
    check("LabelEncoder", {"x": x}, {"y": INT64}, keys_int64s=keys, values_int64s=[1, 2, 3])
    numbers = np.array([1.5, np.nan, 2.5], np.float32)
    model = {"keys_floats": [float("nan"), 1.5], "values_int64s": [4, 6]}
    check("LabelEncoder", {"x": numbers}, {"y": INT64}, version=4, **model)
    tensors = {
        "keys_tensor": numpy_helper.from_array(np.array(keys)),
        "values_tensor": numpy_helper.from_array(np.array([0.25, 1.25, 2.25], np.float32)),
        "default_tensor": numpy_helper.from_array(np.array([-3.0], np.float32)),
    }
    check("LabelEncoder", {"x": x}, version=4, **tensors)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_linear(transform: str) -> None:
    x = real(6, 3)
    for targets in (1, 2):
        weights, offsets = real(targets * 3), real(targets)
        model = {
            "coefficients": weights.tolist(),
            "intercepts": offsets.tolist(),
            "post_transform": transform,
        }
        check("LinearRegressor", {"x": x}, targets=targets, **model)
        check("LinearClassifier", {"x": x}, LABELLED, classlabels_ints=[3, 7], **model)
    model = {"coefficients": real(9).tolist(), "intercepts": [0.0, 0.5, -0.5], "post_transform": transform}
    check("LinearClassifier", {"x": x}, LABELLED, classlabels_ints=[4, 2, 9], **model)


@pytest.mark.parametrize("kind", ["LINEAR", "POLY", "RBF", "SIGMOID"])
def test_support_vectors(kind: str) -> None:
    model = {
        "kernel_type": kind,
        "kernel_params": [0.3, 0.5, 3.0],
        "support_vectors": real(5, 3).ravel().tolist(),
    }
    x = real(7, 3)
    regressor = {**model, "coefficients": real(5).tolist(), "rho": [0.25], "n_supports": 5}
    check("SVMRegressor", {"x": x}, **regressor)
    check("SVMRegressor", {"x": x}, one_class=1, **regressor)
    for counts in ([2, 3], [2, 1, 2]):
        classes, pairs = len(counts), len(counts) * (len(counts) - 1) // 2
        weights = real((classes - 1) * 5).tolist()
        classifier = {
            **model,
            "vectors_per_class": counts,
            "coefficients": weights,
            "rho": real(pairs).tolist(),
        }
        check("SVMClassifier", {"x": x}, LABELLED, classlabels_ints=[5, 1, 8][:classes], **classifier)


def stumps(modes: list[str], leaf: str, weights: list[tuple[int, int, int, float]]) -> dict[str, Any]:
    """Trees of one question each; weights: tree, leaf 1 (yes) or 2 (no), target, value."""
    trees = len(modes)
    return {
        "nodes_treeids": [t for t in range(trees) for _ in range(3)],
        "nodes_nodeids": [0, 1, 2] * trees,
        "nodes_featureids": [f for t in range(trees) for f in (t % 3, 0, 0)],
        "nodes_values": [v for t in range(trees) for v in (0.25 * t, 0.0, 0.0)],
        "nodes_modes": [m for mode in modes for m in (mode, "LEAF", "LEAF")],
        "nodes_truenodeids": [1, 0, 0] * trees,
        "nodes_falsenodeids": [2, 0, 0] * trees,
        f"{leaf}_treeids": [w[0] for w in weights],
        f"{leaf}_nodeids": [w[1] for w in weights],
        f"{leaf}_ids": [w[2] for w in weights],
        f"{leaf}_weights": [w[3] for w in weights],
    }


def every(trees: int, targets: int, seed: int = 0, low: float = -1.0) -> list[tuple[int, int, int, float]]:
    values = np.random.default_rng(seed).uniform(low, 1, (trees, 2, targets))
    return [
        (t, leaf + 1, k, float(values[t, leaf, k]))
        for t in range(trees)
        for leaf in (0, 1)
        for k in range(targets)
    ]


@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 2])
def test_tree_regressor(how: str, targets: int) -> None:
    model = stumps(["BRANCH_LEQ", "BRANCH_LT", "BRANCH_LEQ"], "target", every(3, targets))
    model |= {"n_targets": targets, "aggregate_function": how}
    check("TreeEnsembleRegressor", {"x": real(8, 3)}, **model)
    check("TreeEnsembleRegressor", {"x": real(8, 3)}, base_values=[0.5] * targets, **model)


def test_trees_ask_in_every_way_and_of_what_is_missing() -> None:
    modes = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
    x = np.round(real(12, 3) * 4) / 4
    x[3] = np.nan
    model = stumps(modes, "target", every(6, 1))
    check("TreeEnsembleRegressor", {"x": x}, n_targets=1, **model)
    check(
        "TreeEnsembleRegressor", {"x": x}, n_targets=1, nodes_missing_value_tracks_true=[1, 0, 0] * 6, **model
    )


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX", "SOFTMAX_ZERO"])
def test_tree_classifier(transform: str) -> None:
    x = {"x": real(9, 3)}
    modes = ["BRANCH_LEQ"] * 4
    for classes in (3, 4):
        model = stumps(modes, "class", every(4, classes)) | {"post_transform": transform}
        check("TreeEnsembleClassifier", x, LABELLED, classlabels_int64s=[8, 3, 5, 1][:classes], **model)
    for low in (0.0, -1.0):
        model = stumps(modes, "class", every(4, 1, low=low)) | {"post_transform": transform}
        check("TreeEnsembleClassifier", x, LABELLED, classlabels_int64s=[0, 1], **model)
        check("TreeEnsembleClassifier", x, LABELLED, classlabels_int64s=[0, 1], base_values=[0.25], **model)


def test_tree_of_several_levels_in_f64() -> None:
    model = {
        "nodes_treeids": [0] * 7,
        "nodes_nodeids": [0, 6, 5, 4, 3, 2, 1],
        "nodes_featureids": [0, 0, 0, 0, 0, 1, 2],
        "nodes_values": [0.2, 0.0, 0.0, 0.0, 0.0, 0.1, -0.1],
        "nodes_modes": ["BRANCH_LEQ"] + ["LEAF"] * 4 + ["BRANCH_LEQ"] * 2,
        "nodes_truenodeids": [1, 0, 0, 0, 0, 5, 3],
        "nodes_falsenodeids": [2, 0, 0, 0, 0, 6, 4],
        "target_treeids": [0] * 4,
        "target_nodeids": [3, 4, 5, 6],
        "target_ids": [0] * 4,
        "target_weights": [1.0, 2.0, 3.0, 4.0],
        "n_targets": 1,
    }
    check("TreeEnsembleRegressor", {"x": real(16, 3)}, **model)
    check("TreeEnsembleRegressor", {"x": real(16, 3).astype(np.float64)}, **model)


ONE_TREE = stumps(["BRANCH_LEQ"], "target", every(1, 1))

CIRCLE = {name: value[:2] for name, value in ONE_TREE.items()} | {
    "nodes_falsenodeids": [0, 0],
    "target_nodeids": [1, 1],
}


@pytest.mark.parametrize(
    ("op", "attributes", "message"),
    [
        ("TreeEnsembleRegressor", ONE_TREE | {"nodes_truenodeids": [9, 0, 0]}, "one of nodes_nodeids"),
        ("TreeEnsembleRegressor", ONE_TREE | {"nodes_falsenodeids": [1, 0, 0]}, "one parent"),
        ("TreeEnsembleRegressor", ONE_TREE | {"nodes_featureids": [3, 0, 0]}, "nodes_featureids"),
        ("TreeEnsembleRegressor", ONE_TREE | {"nodes_values": [0.0]}, "as many of each"),
        ("TreeEnsembleRegressor", ONE_TREE | {"target_ids": [0, 1]}, "target_ids"),
        ("TreeEnsembleRegressor", CIRCLE, "a root"),
        ("TreeEnsembleRegressor", ONE_TREE | {"post_transform": "PROBIT"}, "post_transform=PROBIT"),
        ("LinearRegressor", {"coefficients": [1.0, 2.0]}, "coefficients"),
        ("OneHotEncoder", {"cats_strings": ["a"]}, "categories that are text"),
        ("ZipMap", {"classlabels_int64s": [0, 1]}, "zipmap"),
    ],
)
def test_refusals(op: str, attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(aicf.UserError, match=message):
        compiled(model_of(op, {"x": real(4, 3)}, {"y": FLOAT}, attributes))


def test_features_are_rows() -> None:
    attributes = {"coefficients": [1.0, 2.0], "classlabels_ints": [0, 1]}
    with pytest.raises(aicf.UserError, match="the rank of input 0"):
        compiled(model_of("LinearClassifier", {"x": real(2)}, LABELLED, attributes))


def test_labels_that_are_text_are_refused_unless_nothing_reads_them() -> None:
    attributes = {"coefficients": real(9).tolist(), "classlabels_strings": ["a", "b", "c"]}
    with pytest.raises(aicf.UserError, match="labels that are text"):
        compiled(
            model_of("LinearClassifier", {"x": real(4, 3)}, {"l": TensorProto.STRING, "y": FLOAT}, attributes)
        )
    model = model_of("LinearClassifier", {"x": real(4, 3)}, {"": FLOAT, "y": FLOAT}, attributes)
    wanted = real(4, 3) @ np.array(attributes["coefficients"], np.float32).reshape(3, 3).T
    np.testing.assert_allclose(compiled(model)(real(4, 3)), wanted, rtol=1e-5, atol=1e-6)

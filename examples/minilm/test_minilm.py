"""The exported ONNX file, the float64 reference and the tokenizer helper, judged by onnx and onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from examples.minilm.agreement import Agreement, measure
from examples.minilm.export_onnx import write_minilm_onnx
from examples.minilm.onnxruntime_peer import OnnxRuntimeMiniLm
from examples.minilm.package import load_weights, model_file
from examples.minilm.reference_f64 import MiniLmF64
from examples.minilm.tokenizer import MiniLmTokenizer, random_inputs, write_vocab

SENTENCES = [
    "The cat sat on the mat.",
    "A longer sentence that needs more than sixteen tokens, to be padded beside.",
]


@pytest.fixture(scope="module")
def model_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_minilm_onnx(tmp_path_factory.mktemp("minilm") / "minilm.onnx")


@pytest.fixture(scope="module")
def session(model_path: Path) -> OnnxRuntimeMiniLm:
    return OnnxRuntimeMiniLm(model_path)


@pytest.fixture(scope="module")
def reference() -> MiniLmF64:
    return MiniLmF64()


def test_file_is_valid_and_carries_the_vocabulary(model_path: Path) -> None:
    model = onnx.load(model_path)
    onnx.checker.check_model(model, full_check=True)
    assert [value.name for value in model.graph.input] == ["input_ids", "attention_mask", "token_type_ids"]
    assert [value.name for value in model.graph.output] == ["last_hidden_state", "sentence_embedding"]
    axes = [dim.dim_param for dim in model.graph.input[0].type.tensor_type.shape.dim]
    assert axes == ["batch", "sequence"]
    properties = {entry.key: entry.value for entry in model.metadata_props}
    assert properties["vocabulary"] == model_file("vocab.txt").read_text(encoding="utf-8")


def test_weights_keep_their_names_and_bits(model_path: Path) -> None:
    stored = {
        tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in onnx.load(model_path).graph.initializer
    }
    weights = load_weights()
    named = {name for name in weights if name in stored}
    folded = {
        name
        for name in weights
        if name.endswith(("dense.weight", "query.weight", "key.weight", "value.weight"))
    }
    unused = {name for name in weights if name.startswith("pooler.")}
    assert named | folded | unused == set(weights)
    assert len(stored) == len(named) + len(folded - unused)
    for name in named:
        np.testing.assert_array_equal(stored[name], weights[name])


def test_writing_twice_gives_the_same_bytes(model_path: Path, tmp_path: Path) -> None:
    assert write_minilm_onnx(tmp_path / "again.onnx").read_bytes() == model_path.read_bytes()
    assert [path.name for path in tmp_path.iterdir()] == ["again.onnx"]


@pytest.mark.parametrize(("batch", "sequence"), [(1, 1), (1, 16), (3, 77), (1, 512)])
def test_agrees_with_float64(
    session: OnnxRuntimeMiniLm, reference: MiniLmF64, batch: int, sequence: int
) -> None:
    inputs = random_inputs(batch, sequence)
    inputs["token_type_ids"][:, sequence // 2 :] = 1
    agreement = measure([session(inputs)], [reference(inputs)], [inputs["attention_mask"]])
    assert agreement.passed, agreement


def test_agrees_with_float64_on_padded_sentences(session: OnnxRuntimeMiniLm, reference: MiniLmF64) -> None:
    inputs = MiniLmTokenizer()(SENTENCES)
    assert measure([session(inputs)], [reference(inputs)], [inputs["attention_mask"]]).passed


def test_a_row_without_tokens_is_defined(session: OnnxRuntimeMiniLm, reference: MiniLmF64) -> None:
    inputs = random_inputs(1, 16)
    inputs["attention_mask"][:] = 0
    for ours, want in zip(session(inputs), reference(inputs), strict=True):
        np.testing.assert_allclose(ours, want, rtol=0, atol=1e-5)


def test_padding_does_not_change_the_reference(reference: MiniLmF64) -> None:
    short = MiniLmTokenizer(min_sequence=1)(SENTENCES[:1])
    padded = MiniLmTokenizer(min_sequence=40)(SENTENCES[:1])
    np.testing.assert_allclose(reference(short)[1], reference(padded)[1], rtol=0, atol=1e-14)


def test_close_sentences_are_neighbours(reference: MiniLmF64) -> None:
    texts = ["The train was late.", "Our train was delayed.", "Tomatoes need a lot of sun."]
    _, embedding = reference(MiniLmTokenizer()(texts))
    similarity = embedding @ embedding.T
    np.testing.assert_allclose(np.diag(similarity), 1.0, rtol=0, atol=1e-12)
    assert similarity[0, 1] > 0.6 > 0.3 > similarity[0, 2]


def test_a_wrong_or_missing_number_is_noticed(reference: MiniLmF64) -> None:
    inputs = MiniLmTokenizer()(SENTENCES)
    hidden, embedding = reference(inputs)

    def agreement(changed_hidden: np.ndarray, changed_embedding: np.ndarray) -> Agreement:
        return measure(
            [(changed_hidden, changed_embedding)], [(hidden, embedding)], [inputs["attention_mask"]]
        )

    assert agreement(hidden, embedding).passed
    off, missing, padding = hidden.copy(), hidden.copy(), hidden.copy()
    off[0, 0, 0] += 2e-5
    missing[1, 2, 3] = np.nan
    padding[0, -1, 0] += 1.0  # nobody reads the hidden state of padding
    assert not agreement(off, embedding).passed
    assert not agreement(missing, embedding).passed
    assert not agreement(hidden, np.full_like(embedding, np.nan)).passed
    assert agreement(padding, embedding).passed


def test_vocabulary_file_has_one_token_a_line(tmp_path: Path) -> None:
    tokens = write_vocab(tmp_path / "vocab.txt").read_text(encoding="utf-8").split("\n")
    assert tokens.pop() == ""
    assert tokens == model_file("vocab.txt").read_text(encoding="utf-8").split("\n")[: len(tokens)]
    assert (len(tokens), tokens[0], tokens[101], tokens[102]) == (30522, "[PAD]", "[CLS]", "[SEP]")

"""Every side gets the same sentences and makes the same vectors of them; the figures are nobody's test."""

import numpy as np
import pytest

from benchmarks import int8


def test_padded_batches_are_put_back_in_order():
    rows = [[1] * (1 + n % 7) for n in range(70)]
    vectors = int8.encode_padded(
        rows, lambda ids, mask: np.stack([ids * 1.0, mask.sum(1, keepdims=True) + 0 * ids], -1)
    )
    expected = np.array([[1.0, len(row)] for row in rows])
    np.testing.assert_allclose(vectors, expected / np.linalg.norm(expected, axis=1, keepdims=True))


def test_sentences_are_ragged_and_as_many_as_asked_for(tmp_path):
    setting = int8.Setting.quick()
    texts = int8.sentences(setting)
    assert len(texts) == setting.sentences
    assert len({len(text) for text in texts}) > 20


def test_our_sides_agree_with_transformers(tmp_path):
    pytest.importorskip("transformers")
    pytest.importorskip("onnxruntime")
    texts = int8.sentences(int8.Setting.quick())[:12]
    directory = int8.random_model(tmp_path / "mini", "mini", texts)
    sides = int8.make_sides(directory, tmp_path / "onnx", texts)
    vectors = {}
    for name, encode in sides:
        vectors[name] = encode(texts)
        if name == "transformers fp32":
            break
    np.testing.assert_allclose(vectors["ours fp32"], vectors["transformers fp32"], atol=1e-5)
    assert (vectors["ours int8"] * vectors["transformers fp32"]).sum(1).min() > 0.99

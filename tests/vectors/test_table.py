"""Vectors: rows by word, exact search, equal to a plain count of everything and to gensim's."""

import numpy as np
import pytest

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.vectors import search
from clozeworks.vectors.table import Vectors


def made(n: int = 300, dim: int = 12, seed: int = 0) -> Vectors:
    rng = np.random.default_rng(seed)
    return Vectors([f"w{k}" for k in range(n)], rng.standard_normal((n, dim)).astype(np.float32))


@pytest.fixture
def peer():
    """The same rows in gensim's hands."""
    keyed = pytest.importorskip("gensim.models").KeyedVectors

    def make(vectors: Vectors):
        other = keyed(vectors.dim)
        other.add_vectors(vectors.words, vectors.table)
        return other

    return make


def test_rows_are_found_by_word():
    vectors = made()
    assert len(vectors) == 300
    assert vectors.dim == 12
    assert "w7" in vectors
    assert "w300" not in vectors
    assert list(vectors)[:2] == ["w0", "w1"]
    np.testing.assert_array_equal(vectors["w7"], vectors.table[7])
    np.testing.assert_array_equal(vectors[["w7", "w1"]], vectors.table[[7, 1]])


def test_public_names_need_no_torch():
    import subprocess
    import sys

    code = "import sys, clozeworks as cw; cw.Vectors, cw.load_vectors; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
    assert cw.Vectors is Vectors


def test_search_is_brute_force(monkeypatch):
    monkeypatch.setattr(search, "ROOM", 700)  # several blocks
    vectors, queries = made(), np.random.default_rng(1).standard_normal((9, 12)).astype(np.float32)
    ids, scores = vectors.nearest(queries, 5)
    truth = queries.astype(np.float64) @ vectors.table.T.astype(np.float64)
    truth /= np.linalg.norm(queries, axis=1)[:, None] * np.linalg.norm(vectors.table, axis=1)
    np.testing.assert_array_equal(ids, np.argsort(-truth, axis=1, kind="stable")[:, :5])
    np.testing.assert_allclose(scores, np.sort(truth)[:, ::-1][:, :5], atol=1e-6)
    ids, _ = vectors.nearest(queries, 5, first=40)
    assert ids.max() < 40
    assert vectors.nearest(queries, 1000)[0].shape == (9, 300)


def test_equal_scores_come_in_order():
    table = np.tile(np.float32([[1, 0], [0, 1], [1, 0], [2, 0]]), (50, 1))
    ids, _ = Vectors([str(k) for k in range(200)], table).nearest(np.float32([1, 0]), 5)
    assert ids[0].tolist() == [0, 2, 3, 4, 6]


def test_a_row_of_zeros_is_near_nothing():
    vectors = Vectors(["a", "b", "zero"], np.float32([[1, 0], [1, 1], [0, 0]]))
    assert vectors.similarity("a", "zero") == 0.0
    assert vectors.most_similar("a")[-1] == ("zero", 0.0)


def test_most_similar_equals_gensims(peer):
    vectors = made()
    other, free = peer(vectors), np.random.default_rng(2).standard_normal(12).astype(np.float32)
    for positive, negative, first in [
        (["w1"], [], None),
        (["w1", "w2"], ["w3"], None),
        (["w1", free], ["w5", "w6"], 100),
        ([free], [], None),
    ]:
        ours = vectors.most_similar(positive, negative, 7, first)
        theirs = other.most_similar(positive, negative, topn=7, restrict_vocab=first)
        assert [word for word, _ in ours] == [word for word, _ in theirs]
        np.testing.assert_allclose([score for _, score in ours], [score for _, score in theirs], atol=2e-6)
    assert vectors.most_similar("w1") == vectors.most_similar(["w1"])
    assert vectors.similarity("w1", "w2") == pytest.approx(float(other.similarity("w1", "w2")), abs=1e-6)
    assert vectors.distance("w1", "w2") == pytest.approx(float(other.distance("w1", "w2")), abs=1e-6)


@pytest.mark.filterwarnings("ignore:Call to deprecated `init_sims`:DeprecationWarning")  # of its own
def test_analogies_equal_gensims(peer):
    vectors = made()
    other = peer(vectors)
    for a, b, c in [("w1", "w2", "w3"), ("w10", "w11", "w12"), ("w4", "w4", "w9")]:
        add = other.most_similar([b, c], [a], topn=5)
        assert [word for word, _ in vectors.analogy(a, b, c, 5)] == [word for word, _ in add]
        ours, multiply = vectors.analogy(a, b, c, 5, "multiply"), other.most_similar_cosmul([b, c], [a], topn=5)
        assert [word for word, _ in ours] == [word for word, _ in multiply]
        np.testing.assert_allclose([score for _, score in ours], [score for _, score in multiply], rtol=2e-6)


def test_planted_analogy():
    vectors = Vectors(
        ["man", "king", "woman", "queen", "bread"],
        np.float32([[1, 0, 0], [1, 1, 0], [0, 0, 1], [0, 1, 1], [0, -1, 0]]),
    )
    assert vectors.analogy("man", "king", "woman", 1)[0][0] == "queen"
    assert vectors.analogy("man", "king", "woman", 1, "multiply")[0][0] == "queen"


def test_mistakes_are_reported():
    vectors = Vectors(["paris", "rome"], np.float32([[1, 0], [0, 1]]))
    for wrong, message in [
        (lambda: vectors["Paris"], "Paris: no vector; a word among the 2 is needed; did you mean paris?"),
        (lambda: vectors["oslo"], "try another word"),
        (lambda: vectors.nearest(np.zeros((1, 3))), "3 numbers; 2 are needed"),
        (lambda: vectors.most_similar(np.zeros((2, 2, 2))), "shape"),
        (lambda: vectors.most_similar([]), "at least one is needed"),
        (lambda: vectors.analogy("paris", "rome", "paris", method="cosmul"), "add or multiply"),
        (lambda: Vectors(["a"], np.zeros((2, 2), np.float32)), "a row for each word is needed"),
        (lambda: Vectors([], np.zeros((0, 2), np.float32)), "a row for each word is needed"),
        (lambda: Vectors(["a", "a"], np.zeros((2, 2), np.float32)), "a a second time"),
        (lambda: Vectors(["a"], np.zeros((1, 2), np.float32), np.zeros(2)), "a count for each word"),
    ]:
        with pytest.raises(InputError, match=message.replace("?", r"\?")):
            wrong()

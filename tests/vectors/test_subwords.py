import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors.kernels import noise, windows
from clozeworks.vectors.kernels.arithmetic import padded_rows
from clozeworks.vectors.subwords import Parts, Subwords, composed, grams_of, parts_of, vector_of
from clozeworks.vectors.table import load_vectors
from clozeworks.vectors.train import cbow, skipgram
from tests.vectors.kernels.test_windows import COUNTS, Draws, logistic

WORDS = ["where", "a", "naïve", "自然语言", "extraordinarily", "straße", "ab"]


@pytest.mark.parametrize(("shortest", "longest"), [(3, 6), (1, 2), (5, 5)])
def test_hashes_are_those_of_gensim(shortest, longest):
    inner = pytest.importorskip("gensim.models.fasttext_inner")
    subwords = Subwords(shortest, longest, 100_003)
    grams, starts = grams_of(WORDS, subwords)
    for at, word in enumerate(WORDS):
        theirs = [inner.ft_hash_bytes(gram) % 100_003 for gram in inner.compute_ngrams_bytes(word, shortest, longest)]
        own = grams[starts[at] : starts[at + 1]].tolist()
        if shortest > 1:  # a single < or > is an n-gram to gensim, and none to fastText
            assert own == theirs
        else:
            bare = [inner.ft_hash_bytes(gram) % 100_003 for gram in (b"<", b">")]
            assert own == [each for each in theirs if each not in bare]


def test_a_word_is_its_own_row_and_those_of_its_grams():
    subwords = Subwords(3, 4, 50)
    parts = parts_of(WORDS, subwords)
    grams, starts = grams_of(WORDS, subwords)
    for at in range(len(WORDS)):
        rows = parts.rows[parts.starts[at] : parts.starts[at + 1]]
        assert rows[0] == at
        assert np.array_equal(parts.buckets[rows[1:] - len(WORDS)], grams[starts[at] : starts[at + 1]])
    table = np.random.default_rng(0).normal(size=(len(WORDS) + len(parts.buckets), 5)).astype(np.float32)
    wanted = [table[parts.rows[a:b]].mean(0) for a, b in zip(parts.starts[:-1], parts.starts[1:], strict=True)]
    assert np.allclose(composed(table, parts), wanted, atol=1e-6)
    assert parts.most == np.diff(parts.starts).max()


def reference(sentences, inputs, outputs, parts, alias, window, negative, bags, rate, seed):
    rng = Draws(seed)
    rows_of = [parts.rows[a:b].tolist() for a, b in zip(parts.starts[:-1], parts.starts[1:], strict=True)]
    for sentence in sentences:
        for _ in sentence:
            rng.next()  # every word is kept
        for at, word in enumerate(sentence):
            radius = 1 + rng.below(window)
            around = sentence[max(0, at - radius) : at] + sentence[at + 1 : at + 1 + radius]
            if not around:
                continue
            rows = [row for other in (around if bags else [word]) for row in rows_of[other]]
            targets, labels = [], []
            for goal in [word] if bags else around:
                drawn = [other for other in (rng.noise(*alias) for _ in range(negative)) if other != goal]
                targets += [goal, *drawn]
                labels += [1.0] + [0.0] * len(drawn)
            h, u = inputs[rows].mean(0), outputs[targets]
            step = rate * (np.array(labels) - logistic(u @ h))
            np.add.at(outputs, targets, step[:, None] * h)
            np.add.at(inputs, rows, step @ u)


@pytest.mark.parametrize("bags", [False, True])
def test_a_pass_is_what_the_formulas_say(bags):
    rng = np.random.default_rng(2)
    dim = 12
    parts = Parts(
        np.array([0, 2, 3, 6, 8, 9, 10, 12, 15]),
        np.array([0, 8, 1, 2, 8, 9, 3, 10, 4, 5, 6, 9, 7, 8, 10]),
        np.arange(3),
    )
    inputs, outputs = padded_rows(11, dim), padded_rows(8, dim)
    inputs[:, :dim], outputs[:, :dim] = rng.normal(0, 0.4, (11, dim)), rng.normal(0, 0.4, (8, dim))
    exact = inputs[:, :dim].astype(np.float64), outputs[:, :dim].astype(np.float64)
    sentences = [rng.integers(0, 8, length).tolist() for length in (7, 1, 12)]
    ids, ends = np.concatenate(sentences).astype(np.int32), np.cumsum([len(each) for each in sentences])
    alias, keep = noise.alias_of(noise.cumulative(COUNTS)), noise.keep_thresholds(COUNTS, 0)
    given = (tuple(alias), (parts.starts, parts.rows, parts.most), 3, 4, bags, np.float32(0.25), np.uint64(9))
    loss, trained, _ = windows.train_parts(ids, ends, 0, 3, inputs, outputs, keep, *given)
    reference(sentences, *exact, parts, alias, 3, 4, bags, 0.25, 9)
    assert np.abs(inputs[:, :dim] - exact[0]).max() < 2e-5
    assert np.abs(outputs[:, :dim] - exact[1]).max() < 2e-5
    assert loss > 0
    assert trained > 0


def text():
    """Two topics whose words have a stem of their own."""
    rng = np.random.default_rng(0)
    topics = [[f"{stem}{end}" for end in ("ing", "ed", "able", "ful", "less", "ly")] for stem in ("swimm", "govern")]
    return [[str(word) for word in rng.choice(topics[n % 2], 8)] for n in range(800)]


@pytest.mark.parametrize("method", [skipgram, cbow])
def test_a_word_that_was_never_met_lies_with_its_stem(method, tmp_path):
    vectors = method(text(), dim=16, sample=0, rate=0.1, subwords=Subwords(), deterministic=True)
    unmet = vector_of(vectors, "governmental")
    close, far = vectors.similarity(unmet, "governable"), vectors.similarity(unmet, "swimmable")
    assert close > far + 0.3
    assert np.array_equal(vector_of(vectors, "governable"), vectors["governable"])
    vectors.save(tmp_path / "vectors.safetensors")
    again = load_vectors(tmp_path / "vectors.safetensors")
    assert np.array_equal(vector_of(again, "governmental"), unmet)
    two = method(text(), dim=16, sample=0, rate=0.1, subwords=Subwords(), deterministic=True)
    assert two.table.tobytes() == vectors.table.tobytes()


def test_what_cannot_be_is_reported():
    vectors = skipgram(text(), dim=4, epochs=1, subwords=Subwords(), workers=1)
    with pytest.raises(InputError, match="none of its n-grams was met"):
        vector_of(vectors, "自然语言")
    with pytest.raises(InputError, match="train with subwords"):
        vector_of(skipgram(text(), dim=4, epochs=1, workers=1), "governmental")
    with pytest.raises(InputError, match="words are drawn against them"):
        skipgram(text(), hs=True, subwords=Subwords())
    with pytest.raises(InputError, match="in rising order"):
        Subwords(4, 3)
    with pytest.raises(InputError, match="0 buckets"):
        Subwords(buckets=0)

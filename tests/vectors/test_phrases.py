import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors import column
from clozeworks.vectors.phrases import Phrases, joined
from clozeworks.vectors.words import gathered


def text(seed=0, sentences=400, words="abcdefghij_"):
    """Sentences in which some words like to stand together, and one word is the joint itself."""
    rng = np.random.default_rng(seed)
    likes = {"a": "b", "b": "c", "d": "e", "f": "f", "g": "h", "h": "g"}
    results = []
    for _ in range(sentences):
        sentence = [str(rng.choice(list(words)))]
        for _ in range(int(rng.integers(0, 12))):
            follows = likes.get(sentence[-1])
            sentence.append(follows if follows and rng.random() < 0.7 else str(rng.choice(list(words))))
        results.append(sentence)
    return results


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("score", "thresholds"), [("counts", (0.2, 0.1, 0.05)), ("npmi", (0.3, 0.2, 0.1))])
def test_phrases_are_those_of_gensim_pass_after_pass(seed, score, thresholds):
    models = pytest.importorskip("gensim.models.phrases")
    sentences = text(seed)
    theirs, lengths = sentences, []
    for border in thresholds:
        scoring = "default" if score == "counts" else "npmi"
        model = models.Phrases(theirs, min_count=4, threshold=border, scoring=scoring)
        theirs = [model[sentence] for sentence in theirs]
        lengths.append(max(word.count("_") for sentence in theirs for word in sentence))
    assert lengths[-1] > lengths[0] > 0
    result = joined(gathered(sentences), Phrases(4, thresholds, score, len(thresholds)))
    assert list(result.sentences()) == theirs
    assert result.words == gathered(theirs).words
    assert result.counts.tolist() == gathered(theirs).counts.tolist()


def test_small_pieces_change_nothing(monkeypatch):
    whole = joined(gathered(text()), Phrases(4, 0.1, passes=2))
    monkeypatch.setattr(column, "PIECE", 7)
    result = joined(gathered(text()), Phrases(4, 0.1, passes=2))
    assert result.words == whole.words
    assert np.array_equal(result.ids, whole.ids)
    assert np.array_equal(result.ends, whole.ends)


def test_no_phrase_and_bad_wishes():
    words = gathered([["a", "b"], ["b", "a"]])
    assert joined(words, Phrases()) is words
    with pytest.raises(InputError, match="rare words are left out"):
        joined(gathered(text()).kept(300), Phrases())
    for wrong in ({"threshold": 0}, {"threshold": 2, "score": "npmi"}):
        with pytest.raises(InputError, match="threshold"):
            Phrases(**wrong)
    with pytest.raises(InputError, match="2 thresholds for 1 passes"):
        Phrases(threshold=(1.0, 2.0))
    with pytest.raises(InputError, match="counts or npmi"):
        Phrases(score="pmi")
    with pytest.raises(InputError, match="1 or more"):
        Phrases(passes=0)

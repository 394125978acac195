import dataclasses

import numpy as np
import pytest

from clozeworks.core.errors import InputError
from clozeworks.vectors import train as training
from clozeworks.vectors.phrases import Phrases
from clozeworks.vectors.train import cbow, skipgram
from clozeworks.vectors.words import gathered

TOPICS = [[f"{topic}{n}" for n in range(8)] for topic in ("sea", "law", "art")]


def text(sentences=1500, seed=0):
    """Sentences of one topic each: words of a topic stand together and never with others."""
    rng = np.random.default_rng(seed)
    return [[str(word) for word in rng.choice(TOPICS[n % 3], 8)] for n in range(sentences)]


def apart(vectors):
    """Mean cosine within topics less that between them."""
    rows = np.stack([vectors[word] for topic in TOPICS for word in topic])
    rows = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosine, same = rows @ rows.T, np.kron(np.eye(3), np.ones((8, 8))) > 0
    return cosine[same & ~np.eye(24, dtype=bool)].mean() - cosine[~same].mean()


@pytest.mark.parametrize("method", [skipgram, cbow])
@pytest.mark.parametrize("more", [{}, {"hs": True}, {"workers": 2}], ids=["noise", "tree", "threads"])
def test_topics_come_apart(method, more):
    vectors = method(text(), dim=16, sample=0, rate=0.1, **{"workers": 1, **more})
    assert apart(vectors) > 0.5
    assert vectors.about["losses"][-1] < vectors.about["losses"][0]
    assert vectors.about["words_per_second"] > 0
    assert vectors.table.shape == (24, 16)
    assert vectors.output.shape == (24 - (more == {"hs": True}), 16)
    assert vectors.counts.sum() == 12_000


def test_pairs_with_draws_of_their_own_learn_too():
    assert apart(skipgram(text(), dim=16, sample=0, rate=0.1, shared=False, deterministic=True)) > 0.5


@pytest.mark.parametrize("method", [skipgram, cbow])
@pytest.mark.parametrize("hs", [False, True])
def test_deterministic_twice_is_the_same_bytes_and_the_seed_matters(method, hs):
    given = {"dim": 10, "epochs": 2, "hs": hs, "deterministic": True}
    one, two, other = (method(text(400), seed=seed, **given) for seed in (3, 3, 4))
    assert one.table.tobytes() == two.table.tobytes()
    assert one.output.tobytes() == two.output.tobytes()
    assert one.about["losses"] == two.about["losses"]
    assert one.table.tobytes() != other.table.tobytes()


def test_the_text_may_lie_on_disk_and_stretches_do_not_change_what_is_read(monkeypatch, tmp_path):
    words = gathered(text(300))
    settings = training.Settings(dim=4, epochs=2, workers=1)
    whole = training.train(words, settings)
    np.asarray(words.ids).tofile(tmp_path / "ids")
    mapped = training.Words(
        words.words, words.counts, np.memmap(tmp_path / "ids", np.int32, "r+"), words.ends, words.read
    )
    assert training.train(mapped, settings).table.tobytes() == whole.table.tobytes()
    monkeypatch.setattr(training, "STRETCH", 50)
    inputs, outputs = training.fresh(words, settings)
    assert 0.24 < np.abs(inputs[:, :4]).max() <= 0.25  # 1 / (2 sqrt(4))
    assert not outputs.any()
    seen = []
    run = training.Run(words, settings, inputs, outputs, lambda *progress: seen.append(progress))
    passed = []
    run._step = lambda first, last, rate, seed: passed.append((first, last, float(rate), int(seed))) or (1.0, 1, 1)
    run.epochs()
    half = len(passed) // 2
    assert [begin for begin, *_ in passed[1:half]] == [end for _, end, *_ in passed[: half - 1]]
    assert (passed[0][0], passed[half - 1][1]) == (0, 300)
    rates = [rate for _, _, rate, _ in passed]
    assert rates[0] == pytest.approx(0.025)
    assert rates[half] == pytest.approx(0.0125)
    assert np.allclose(np.diff(rates[:half]), np.diff(rates)[0], rtol=0.3)
    assert len({seed for *_, seed in passed}) == len(passed)
    assert seen[-1] == ("train", 4800, 4800)


def test_what_a_thread_raises_is_raised(monkeypatch):
    words = gathered(text(300))
    settings = training.Settings(dim=4, workers=2)
    run = training.Run(words, settings, *training.fresh(words, settings))

    def broken(*_):
        raise RuntimeError("a kernel that fails")

    run._step = broken
    with pytest.raises(RuntimeError, match="a kernel that fails"):
        run.epochs()


def test_files_and_phrases(tmp_path):
    file = tmp_path / "text.txt"
    file.write_text("\n".join("the new york times and the paper." for _ in range(60)))
    vectors = skipgram(file, dim=4, phrases=Phrases(5, 0.1), marks=False, workers=1)
    assert "new_york" in vectors.words or "york_times" in vectors.words
    assert "." not in vectors.words


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"min_count": 10_000}, "none of 24 words comes 10,000 times"),
        ({"max_words": 1}, "one word, .*two different words are needed"),
        ({"dim": 0}, "dim: 0; 1 or more"),
        ({"window": 0}, "window: 0"),
        ({"epochs": 0}, "epochs: 0"),
        ({"negative": 0}, "negative: 0.*--hs"),
        ({"negative": -1}, "negative: -1"),
        ({"rate": 0}, "rate: 0"),
        ({"rate": float("nan")}, "rate: nan"),
        ({"sample": 2.0}, "sample: 2.0"),
        ({"workers": 0}, "workers: 0"),
        ({"workers": 2, "deterministic": True}, "workers: 2; one thread repeats itself"),
    ],
)
def test_bad_options_are_reported(given, message):
    with pytest.raises(InputError, match=message):
        skipgram(text(30), **{"dim": 4, "min_count": 1, **given})


def test_sentences_of_one_word_teach_nothing():
    with pytest.raises(InputError, match="no sentence of two words"):
        cbow([["a"], ["b"], ["a"]], min_count=1)


def test_a_rate_that_is_too_high_is_reported():
    with pytest.raises(InputError, match="training went out of bounds"):
        skipgram(text(300), dim=4, rate=9.9, sample=0, epochs=40, workers=1)


def test_a_text_without_sentences_is_trained_in_pieces(monkeypatch):
    ends = np.array([3, 40, 42, 75])
    assert training.cut(ends, 10).tolist() == [3, 13, 23, 33, 40, 42, 52, 62, 72, 75]
    assert training.cut(ends, 37) is ends
    words = gathered([["a", "b", "c", "d"] * 12_000])
    given, run = [], training.Run
    monkeypatch.setattr(training, "Run", lambda words, *more: given.append(words.ends.tolist()) or run(words, *more))
    assert len(training.train(words, training.Settings(dim=4, epochs=1, workers=2)).words) == 4
    assert given == [[10_000, 20_000, 30_000, 40_000, 48_000]]
    settings = training.Settings(dim=4, epochs=1, workers=1)
    cut = dataclasses.replace(words, ends=training.cut(words.ends, 10_000))
    passed = []
    made = run(cut, settings, *training.fresh(cut, settings))
    made._step = lambda first, last, rate, seed: passed.append(float(rate)) or (1.0, 1, 1)
    made.epochs()
    assert len(passed) == 4
    assert passed == sorted(passed, reverse=True)


def test_a_tree_draws_nothing():
    with pytest.raises(InputError, match="hierarchical softmax draws none"):
        training.Settings(hs=True)
    assert training.Settings(hs=True, negative=0).negative == 0
    with pytest.raises(InputError, match="0 or more"):
        training.Settings(seed=-1)

"""A table of words that begins as what was counted."""

import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from clozeworks.core import spec
from clozeworks.core.errors import RecipeError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.recipe import begin, build
from clozeworks.recipes import recipe as named
from clozeworks.starts import counted
from clozeworks.starts.counted import CountedTable, count_pairs, count_passages

KINDS = {"animal": "cat dog fox hen", "colour": "red blue green grey", "verb": "sees eats likes finds"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sentences 'the red cat sees the grey hen .', every word drawn from its kind: company says the kind, alone."""
    rng = np.random.default_rng(0)
    kinds = {name: words.split() for name, words in KINDS.items()}
    pick = lambda kind: kinds[kind][rng.integers(4)]  # noqa: E731
    lines = [
        f"the {pick('colour')} {pick('animal')} {pick('verb')} the {pick('colour')} {pick('animal')} ."
        for _ in range(800)
    ]
    out = tmp_path_factory.mktemp("counted") / "data"
    prepare(
        iter(["\n".join(lines[n : n + 4]) for n in range(0, 800, 4)]), out, vocab=64, heldout=0.05, tokenizer="words"
    )
    return out


def test_the_nearest_words_are_words_of_the_same_company(data: Path) -> None:
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    table = CountedTable().table([(corpus, 1.0)], 8)
    assert table.shape == (tokenizer.size, 8)
    for words in KINDS.values():
        ids = [int(tokenizer.inner.token_to_id(word)) for word in words.split()]
        everything = [int(tokenizer.inner.token_to_id(word)) for kind in KINDS.values() for word in kind.split()]
        for token in ids:
            near = sorted(everything, key=lambda other: -float(table[token] @ table[other]))
            assert set(near[:4]) == set(ids)


def test_pairs_are_those_of_a_plain_count(data: Path) -> None:
    corpus = Corpus.open(data)
    tokens = corpus.take(np.array([0]), np.array([len(corpus)])).tokens.tolist()
    borders = corpus.sentences[corpus.documents].tolist()
    plain: dict[int, float] = {}
    for begin_, end in itertools.pairwise(borders):
        for at in range(begin_, end):
            for distance in (1, 2, 3):
                if at + distance < end:
                    key = tokens[at] * corpus.vocab + tokens[at + distance]
                    plain[key] = plain.get(key, 0.0) + 1 / distance
    keys, counts = count_pairs([(corpus, 1.0)], (1, 2, 3))
    assert keys.tolist() == sorted(plain)
    np.testing.assert_allclose(counts, [plain[key] for key in sorted(plain)], rtol=1e-12)


def test_pieces_change_nothing(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(data)
    keys, counts = count_pairs([(corpus, 1.0)], (1, 2, 5))
    monkeypatch.setattr(counted, "PIECE", 97)
    cut_keys, cut = count_pairs([(corpus, 1.0)], (1, 2, 5))
    assert np.array_equal(keys, cut_keys)
    np.testing.assert_allclose(cut, counts, rtol=1e-12)


def test_memory_is_bounded(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(data)
    monkeypatch.setattr(counted, "PAIRS", 40)
    monkeypatch.setattr(counted, "PIECE", 500)
    keys, counts = count_pairs([(corpus, 1.0)], (1,))
    assert len(keys) > 0
    assert counts.min() > 1


def test_a_fresh_model_has_the_table_in_the_size_of_drawn_ones(data: Path) -> None:
    r = named("bert_tiny")
    r.encoder.vocab, r.start = Corpus.open(data).vocab, (CountedTable(),)
    model, plain = build(r), build(r)
    notes = begin(r, model, [(Corpus.open(data), 1.0)])
    weight = model.encoder.embed.words.get_parameter("table.weight").detach()
    drawn = plain.encoder.embed.words.get_parameter("table.weight").detach()
    occur = torch.from_numpy(Corpus.open(data).unigram() > 0)
    assert "begin as what was counted" in notes[0]
    assert torch.equal(weight[~occur], drawn[~occur])
    norms = weight[occur].norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, r.encoder.init * 128**0.5), rtol=1e-4, atol=0)


def test_narrow_tables_get_as_many_columns_as_they_have(data: Path) -> None:
    r = named("albert_mini")
    r.encoder.vocab, r.start = Corpus.open(data).vocab, (CountedTable(),)
    model = build(r)
    begin(r, model, [(Corpus.open(data), 1.0)])
    assert model.encoder.embed.words.get_parameter("table.weight").shape[1] == r.encoder.embed.width


def test_it_is_kept_beside_the_data_and_read_again(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(data)
    one = CountedTable(window=2).table([(corpus, 1.0)], 6)
    monkeypatch.setattr(CountedTable, "vectors", lambda *_: pytest.fail("counted again"))
    assert np.array_equal(CountedTable(window=2).table([(corpus, 1.0)], 6), one)
    for file in data.glob("counted-*.safetensors"):
        file.write_bytes(file.read_bytes()[:100])
    monkeypatch.undo()
    again = CountedTable(window=2).table([(corpus, 1.0)], 6)
    assert np.array_equal(again, one)


def test_clusters_have_no_one_table() -> None:
    r = named("transformer_xl_base")
    r.start = (CountedTable(),)
    with pytest.raises(RecipeError, match=r"start.0 = CountedTable: Adaptive has no one table"):
        spec.check(r, "r")


@pytest.mark.parametrize("more", [{"far": 16}, {"passage": 16}])
def test_what_is_far_and_passages_tell_what_a_word_is_about(tmp_path: Path, more: dict[str, int]) -> None:
    """Words of two topics among the same neighbours: neighbours say nothing of the topic, either of these does."""
    rng = np.random.default_rng(0)
    topics = (["boat", "sail", "sea", "wave"], ["oven", "bread", "flour", "salt"])
    document = lambda topic: " ".join(f"the {topics[topic][rng.integers(4)]} of a" for _ in range(30))  # noqa: E731
    prepare(iter([document(n % 2) for n in range(60)]), tmp_path / "data", vocab=64, tokenizer="words")
    corpus, tokenizer = Corpus.open(tmp_path / "data"), Tokenizer.load(tmp_path / "data")
    ids = [[int(tokenizer.inner.token_to_id(word)) for word in topic] for topic in topics]

    def gap(table: np.ndarray) -> float:
        """How much nearer words of one topic are to each other than to those of the other."""
        one, two = (table[topic] / np.linalg.norm(table[topic], axis=1, keepdims=True) for topic in ids)
        return float((one @ one.T).mean() + (two @ two.T).mean() - 2 * (one @ two.T).mean())

    near, both = (CountedTable(**({"far": 0} | each)).table([(corpus, 1.0)], 4) for each in ({}, more))
    assert gap(both) > 1.0 > gap(near)


def test_passages_are_those_of_a_plain_count(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(data)
    tokens = corpus.take(np.array([0]), np.array([len(corpus)])).tokens.tolist()
    plain, number = dict[tuple[int, int], int](), 0
    for first, last in itertools.pairwise(corpus.sentences[corpus.documents].tolist()):
        for at in range(first, last, 5):
            for token in tokens[at : min(at + 5, last)]:
                plain[token, number] = plain.get((token, number), 0) + 1
            number += 1
    for piece in (1 << 22, 23):
        monkeypatch.setattr(counted, "PIECE", piece)
        words, passages, counts = count_passages([(corpus, 1.0)], 5)
        assert dict(zip(zip(words.tolist(), passages.tolist(), strict=True), counts.tolist(), strict=True)) == plain


def test_of_many_passages_some_are_read(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = Corpus.open(data)
    whole = count_passages([(corpus, 1.0)], 5)[1].max() + 1
    monkeypatch.setattr(counted, "PASSAGES", int(whole) // 3)
    some = count_passages([(corpus, 1.0)], 5)[1].max() + 1
    assert whole // 5 < some <= whole // 3
    _, passages, counts = count_passages([(corpus, 1.0), (corpus, 3.0)], 5)
    first = passages < passages.max() // 2
    assert counts[~first].sum() / counts[first].sum() == pytest.approx(3.0, rel=0.05), "texts count as they are mixed"

"""A table of words that begins as skip-gram vectors."""

from pathlib import Path

import numpy as np
import pytest

from clozeworks.core.errors import RecipeError
from clozeworks.core.spec import check
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.nn.characters import Characters
from clozeworks.recipe import begin, build
from clozeworks.recipes import recipe as named
from clozeworks.starts.skipgram import SkipgramTable

pytest.importorskip("numba")
KINDS = {"animals": "cat dog fox hen cow", "towns": "rome oslo bonn cork lima"}


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Documents of words of one kind: company says the kind."""
    rng = np.random.default_rng(0)
    kinds = [words.split() for words in KINDS.values()]
    texts = [" ".join(rng.choice(kinds[n % 2], 12)) for n in range(600)]
    out = tmp_path_factory.mktemp("skipgram") / "data"
    prepare(iter(texts), out, vocab=64, heldout=0.05, tokenizer="words")
    return out


def test_the_nearest_words_are_words_of_the_same_company(data: Path) -> None:
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    table = SkipgramTable().table([(corpus, 1.0)], 16)
    kinds = [[tokenizer.inner.token_to_id(word) for word in words.split()] for words in KINDS.values()]
    for ids in kinds:
        for token in ids:
            near = sorted([*kinds[0], *kinds[1]], key=lambda other: -float(table[token] @ table[other]))
            assert set(near[:5]) == set(ids)


def test_the_table_is_standardised_repeatable_and_kept_beside_the_data(data: Path) -> None:
    corpora = [(Corpus.open(data), 1.0)]
    first, again = (SkipgramTable(epochs=2).vectors(corpora, 16) for _ in range(2))
    assert np.array_equal(first, again)
    table = SkipgramTable(epochs=2).table(corpora, 16)
    occur = table.any(1)
    assert 10 <= occur.sum() < len(table)  # special tokens stand in no text
    np.testing.assert_allclose(np.linalg.norm(table[occur], axis=1), 4.0, rtol=1e-5)
    assert list(data.glob("skipgram-*.safetensors"))
    assert np.array_equal(SkipgramTable(epochs=2).table(corpora, 16), table)


def test_a_fresh_model_has_it_in_the_size_of_drawn_rows(data: Path) -> None:
    r = named("bert_tiny")
    r.encoder.vocab, r.start = Corpus.open(data).vocab, (SkipgramTable(),)
    model = build(r)
    notes = begin(r, model, [(Corpus.open(data), 1.0)])
    assert notes == [f"10 of {r.encoder.vocab} tokens begin as their skip-gram vectors"]
    rows = model.encoder.embed.words.table.weight.detach().numpy()
    width, table = rows.shape[1], SkipgramTable().table([(Corpus.open(data), 1.0)], rows.shape[1])
    kept = table.any(1)
    np.testing.assert_allclose(rows[kept], table[kept] * r.encoder.init, rtol=1e-5)
    assert np.linalg.norm(rows[kept], axis=1).mean() == pytest.approx(r.encoder.init * width**0.5, rel=1e-4)
    assert begin(r, build(r), []) == ["no text to learn vectors from: the table of words begins at random"]


def test_a_model_without_a_table_is_refused() -> None:
    r = named("elmo_mini")
    assert isinstance(r.encoder.embed.words, Characters)
    r.start = (SkipgramTable(),)
    with pytest.raises(RecipeError, match="has no one table of words"):
        check(r, r.name)

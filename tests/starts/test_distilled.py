"""A table of words that begins as what a teacher knows of them."""

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
from clozeworks.starts.distilled import DistilledTable, spell_tokens
from clozeworks.starts.initializer import TeacherVectors

WORDS = "cat dog fox hen red blue green grey sees eats likes finds"
KIND = {word: number // 4 for number, word in enumerate(WORDS.split())}


def encode(texts: list[str]) -> np.ndarray:
    """A teacher that knows the kind of a word, and something of each of its own."""
    rows = []
    for text in texts:
        rng = np.random.default_rng(sum(map(ord, text)))
        rows.append(np.concatenate([4.0 * np.eye(4)[KIND.get(text, 3)], rng.normal(size=6)]))
    return np.array(rows, np.float32)


TEACHER = TeacherVectors(encode, "0" * 64)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Words in any order: their company says nothing."""
    rng, words = np.random.default_rng(0), WORDS.split()
    lines = [" ".join(words[n] for n in rng.integers(12, size=8)) for _ in range(200)]
    out = tmp_path_factory.mktemp("distilled") / "data"
    prepare(iter(lines), out, vocab=64, heldout=0.05, tokenizer="words")
    return out


@pytest.mark.parametrize("share", [0.8, 1.0])
def test_the_nearest_words_are_those_that_the_teacher_has_near(data: Path, share: float):
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    table = DistilledTable(share=share).table([(corpus, 1.0)], 8, tokenizer, TEACHER)
    ids = {word: int(tokenizer.inner.token_to_id(word)) for word in KIND}
    right = 0
    for word, token in ids.items():
        near = sorted(
            (other for other in ids if other != word), key=lambda other: -float(table[token] @ table[ids[other]])
        )
        right += KIND[near[0]] == KIND[word]
    assert right >= 11


def test_a_share_of_none_is_what_was_counted(data: Path):
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    part = DistilledTable(share=0.0)
    table, counted = part.table([(corpus, 1.0)], 8, tokenizer, TEACHER), part.counted.table([(corpus, 1.0)], 8)
    there = counted.any(1)
    assert np.corrcoef((table @ table.T)[there].ravel(), (counted @ counted.T)[there].ravel())[0, 1] > 0.99


def test_a_fresh_model_has_the_table_in_the_size_of_drawn_ones(data: Path):
    r, corpus = named("bert_tiny"), Corpus.open(data)
    r.encoder.vocab, r.start = corpus.vocab, (DistilledTable(),)
    model, plain = build(r), build(r)
    notes = begin(r, model, [(corpus, 1.0)], Tokenizer.load(data), TEACHER)
    weight, drawn = (each.encoder.embed.words.get_parameter("table.weight").detach() for each in (model, plain))
    occur = torch.from_numpy(corpus.unigram() > 0)
    assert notes == ["12 of 17 tokens begin as what the teacher knows of them"]
    assert torch.equal(weight[~occur], drawn[~occur])
    norms = weight[occur].norm(dim=1)
    torch.testing.assert_close(norms, torch.full_like(norms, r.encoder.init * 128**0.5), rtol=1e-4, atol=0)


def test_it_is_kept_beside_the_data_for_each_teacher(data: Path):
    corpus, tokenizer = Corpus.open(data), Tokenizer.load(data)
    one = DistilledTable().table([(corpus, 1.0)], 6, tokenizer, TEACHER)
    fails = TeacherVectors(lambda _: pytest.fail("asked again"), TEACHER.digest)
    assert np.array_equal(DistilledTable().table([(corpus, 1.0)], 6, tokenizer, fails), one)
    other = TeacherVectors(lambda texts: encode([text[::-1] for text in texts]), "1" * 64)
    assert not np.array_equal(DistilledTable().table([(corpus, 1.0)], 6, tokenizer, other), one)


def test_wide_tables_have_columns_of_nothing(data: Path):
    table = DistilledTable(share=1.0).table([(Corpus.open(data), 1.0)], 32, Tokenizer.load(data), TEACHER)
    assert table.shape[1] == 32
    assert not table[:, 10:].any()


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "bpe", "unigram", "words", "chars"])
@pytest.mark.parametrize("text", ["playing players played unplayable, played!", "我喜欢这本书,也喜欢那本书。"])
def test_tokens_spell_what_they_stand_for(kind: str, text: str):
    lang = "en" if text.isascii() else "zh"
    tokenizer = Tokenizer.train([text] * 9, kind, 300, lang=lang)
    spelled = spell_tokens(tokenizer)
    assert not tokenizer.special_ids & spelled.keys()
    assert not any("#" in written and len(written) > 1 for written in spelled.values())
    one = tokenizer.encode([text])[0]
    for token, (begin_, end) in zip(one.ids.tolist(), one.offsets.tolist(), strict=True):
        if token in spelled:
            assert spelled[token] == text[begin_:end].strip(), tokenizer.token(token)


def test_clusters_have_no_one_table():
    r = named("transformer_xl_base")
    r.start = (DistilledTable(),)
    with pytest.raises(RecipeError, match=r"start.0 = DistilledTable: Adaptive has no one table"):
        spec.check(r, "r")


def test_without_a_teacher_nothing_begins(data: Path):
    r, corpus = named("bert_tiny"), Corpus.open(data)
    r.encoder.vocab, r.start = corpus.vocab, (DistilledTable(),)
    assert begin(r, build(r), [(corpus, 1.0)], Tokenizer.load(data)) == [
        "no teacher to ask: the table of words begins at random"
    ]

"""Length phases, and the same batches from any step."""

from pathlib import Path

import pytest
import torch

from clozeworks.core.errors import InputError
from clozeworks.data.shards.corpus import Corpus
from clozeworks.data.shards.prepare import prepare
from clozeworks.data.text.documents import Document
from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.evaluate import heldout
from clozeworks.objectives.segments import Pairs, Stream
from clozeworks.optim.settings import Phase, Train
from clozeworks.train.pretraining_batches import PretrainingBatches, phase_ends
from tests.train.conftest import TEXT


def test_phases_share_the_steps():
    train = Train(steps=1000, phases=(Phase(0.9, 128), Phase(0.1, 512)))
    assert phase_ends(train, 64) == [(900, 128), (1000, 512)]
    assert phase_ends(Train(steps=1000), 64) == [(1000, 64)]
    thirds = Train(steps=10, phases=(Phase(1 / 3, 16), Phase(1 / 3, 32), Phase(1 / 3, 64)))
    assert phase_ends(thirds, 8) == [(3, 16), (7, 32), (10, 64)]


@pytest.fixture
def feed(tiny, data: Path, more_data: Path):
    corpora = [(Corpus.open(data), 0.7), (Corpus.open(more_data), 0.3)]
    recipe = tiny(12, phases=(Phase(0.5, 16), Phase(0.5, 64)))
    return lambda *start: PretrainingBatches(recipe, corpora, Tokenizer.load(data).vocabulary(), *start)


def test_each_phase_has_its_length(feed):
    widths = [max(batch.tokens.shape[1] for batch in micro) for micro in feed()]
    assert len(widths) == 12
    assert all(8 < width <= 16 for width in widths[:6])
    assert all(32 < width <= 64 for width in widths[6:])


@pytest.mark.parametrize("start", [1, 5, 6, 7, 11])
def test_the_same_batches_from_any_step(feed, start: int):
    whole, first = list(feed()), feed()
    batches = iter(first)
    for _ in range(start):
        next(batches)
    position = first.position
    batches.close()
    rest = list(feed(start, position))
    assert len(rest) == 12 - start
    for micro, again in zip(whole[start:], rest, strict=True):
        for a, b in zip(micro, again, strict=True):
            assert a.index == b.index
            assert torch.equal(a.tokens, b.tokens)
            assert a.labels is not None
            assert b.labels is not None
            assert torch.equal(a.labels, b.labels)


def test_a_phase_begins_at_its_beginning(feed):
    whole, rows = feed(), []
    for _ in whole:
        rows.append(whole.position["place"]["row"])
    assert rows[5:7] == [6 * 16, 4], "256 tokens are 16 rows of 16, then 4 rows of 64"


def test_a_phase_has_draws_of_its_own(tiny, data: Path):
    recipe = tiny(4, phases=(Phase(0.5, 32), Phase(0.5, 32)))
    micro = list(PretrainingBatches(recipe, [(Corpus.open(data), 1.0)], Tokenizer.load(data).vocabulary()))
    assert micro[0][0].index != micro[2][0].index


def streamed(tiny, **train):
    recipe = tiny(30, **train)
    recipe.objective.segments = Stream(16, 8)
    return recipe


def test_a_stream_continues_from_any_step(tiny, data: Path):
    corpora, vocabulary = [(Corpus.open(data), 1.0)], Tokenizer.load(data).vocabulary()
    recipe = streamed(tiny, batch_tokens=256, micro_tokens=64)
    whole = list(PretrainingBatches(recipe, corpora, vocabulary))
    assert [len(micro) for micro in whole] == [4] * 30, "two time steps of eight streams, four streams at once"
    first = PretrainingBatches(recipe, corpora, vocabulary)
    batches = iter(first)
    for _ in range(13):
        next(batches)
    batches.close()
    for micro, again in zip(
        whole[13:], PretrainingBatches(recipe, corpora, vocabulary, 13, first.position), strict=True
    ):
        for a, b in zip(micro, again, strict=True):
            assert a.index == b.index
            assert torch.equal(a.tokens, b.tokens)
            assert torch.equal(a.labels, b.labels)
            assert torch.equal(a.example["continues"], b.example["continues"])


def test_a_batch_that_a_later_phase_cannot_have_is_refused_at_once(tiny, data: Path):
    corpora, vocabulary = [(Corpus.open(data), 1.0)], Tokenizer.load(data).vocabulary()
    recipe = streamed(tiny, batch_tokens=128, phases=(Phase(0.9, 16), Phase(0.1, 32)))
    with pytest.raises(InputError, match=r"train.batch_tokens: 128; .*rows of 32 tokens of all 8 streams; use 256 "):
        PretrainingBatches(recipe, corpora, vocabulary)
    recipe.objective.segments = Pairs(32, 16)
    with pytest.raises(InputError, match=r"train.phases.0.target_length = 16"):
        PretrainingBatches(recipe, corpora, vocabulary)


def test_held_out_rows_of_a_stream_keep_their_lanes(tiny, data: Path):
    recipe, corpus = streamed(tiny), Corpus.open(data)
    vocabulary = Tokenizer.load(data).vocabulary()
    for size, limit in ((256, None), (16 * 5, 16 * 37), (128, 1)):
        streams = [
            b.example["stream"].tolist() for b in heldout.batches(corpus, recipe.objective, vocabulary, 0, size, limit)
        ]
        flat = [stream for batch in streams for stream in batch]
        assert flat == list(range(8)) * (len(flat) // 8)
        assert streams[0] == list(range(len(streams[0])))
        assert len({len(batch) for batch in streams}) == 1
        assert limit is None or len(flat) == max(limit // 16 // 8, 1) * 8


def test_pairs_that_are_cut_are_reported(tiny, tmp_path: Path):
    words = TEXT.split()[:14]
    documents = [Document(sentences=[" ".join(words[: 3 + n % 9]), " ".join(words[n % 4 :])]) for n in range(40)]
    prepare(documents, tmp_path / "pairs", vocab=330, heldout=0)
    corpus, vocabulary = Corpus.open(tmp_path / "pairs"), Tokenizer.load(tmp_path / "pairs").vocabulary()
    recipe = tiny(4)
    recipe.objective.segments = Pairs(16, 8)
    feed = PretrainingBatches(recipe, [(corpus, 1.0)], vocabulary)
    assert len(feed.notes) == 1
    assert "of 40 pairs" in feed.notes[0]
    batch = next(iter(feed))[0]
    assert int(batch.example["cut"].max()) > 0
    recipe.objective.segments = Pairs(128, 64)
    assert PretrainingBatches(recipe, [(corpus, 1.0)], vocabulary).notes == []

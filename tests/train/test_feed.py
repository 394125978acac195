"""Length phases, and the same batches from any step."""

from pathlib import Path

import pytest
import torch

from clozeworks.data.shards import Corpus
from clozeworks.data.tokenizer import Tokenizer
from clozeworks.train.feed import Feed, phase_ends
from clozeworks.train.settings import Phase, Train


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
    return lambda *start: Feed(recipe, corpora, Tokenizer.load(data).vocabulary(), *start)


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
    micro = list(Feed(recipe, [(Corpus.open(data), 1.0)], Tokenizer.load(data).vocabulary()))
    assert micro[0][0].index != micro[2][0].index

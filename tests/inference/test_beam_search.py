"""Beams of a model with a decoder: with and without a cache, against every text there is, and one that has learnt."""

import itertools

import pytest
import torch

from clozeworks.core.batch import Batch, from_padded
from clozeworks.core.errors import InputError
from clozeworks.inference.beam_search import (
    PUBLISHED,
    BeamSearch,
    beam_search,
    beam_search_batch,
    pad_sources,
    translations,
)
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from clozeworks.model import Model
from clozeworks.optim.learning_rate import learning_rate
from clozeworks.optim.parameter_groups import build_optimizer
from clozeworks.recipe import build
from tests.core.test_segment_memory import model_of
from tests.nn.test_decoder import VOCAB, pair, randomised, small

SOURCES = [[3, 1, 4, 1, 5], [9, 2], [6, 5, 3, 5, 8, 9, 7]]


def model() -> Model:
    return randomised(build(small(encoder__init="0.2")))


def test_a_cache_changes_nothing():
    ours = model()
    readers = [IncrementalReader(ours, cache, source=pad_sources(SOURCES)) for cache in (True, False)]
    for reader in readers:
        reader.spread(2)
    generator = torch.Generator().manual_seed(0)
    for count, rows in ((1, None), (3, [1, 1, 2, 3, 5, 4]), (1, [2, 3, 0, 0]), (2, [3, 1])):
        for reader in readers:
            if rows is not None:
                reader.keep(torch.tensor(rows))
        tokens = torch.randint(VOCAB, (len(rows or range(6)), count), generator=generator)
        cached, plain = (reader.read(tokens) for reader in readers)
        torch.testing.assert_close(cached, plain, rtol=0, atol=2e-6 * float(plain.abs().max()))


def test_reading_is_what_the_model_is_trained_as():
    ours, batch = model(), pair([6, 6], [5, 3])
    assert batch.source is not None
    reader = IncrementalReader(ours, source=batch.source)
    expected = reader.logits(ours.read(batch, ()).last)
    for at in range(6):
        torch.testing.assert_close(reader.read(batch.tokens[:, at : at + 1]), expected[:, at], rtol=1e-4, atol=1e-4)


def test_the_source_is_projected_once(monkeypatch: pytest.MonkeyPatch):
    ours, calls = model(), []
    assert ours.decoder is not None
    for block in ours.decoder.stack.blocks:
        whole = block.cross.extend
        monkeypatch.setattr(block.cross, "extend", lambda past, x, whole=whole: calls.append(len(x)) or whole(past, x))
    beam_search(IncrementalReader(ours, source=pad_sources(SOURCES[:1])), [0], 6, BeamSearch(3))
    assert calls == [3, 3]


@pytest.mark.parametrize(
    "how", [BeamSearch(200, 1.0), BeamSearch(200, 0.6, 5), BeamSearch(200, 0.0), BeamSearch(200, 2.0, 5)]
)
def test_enough_beams_find_the_best_of_all_texts(how: BeamSearch):
    r = small(encoder__vocab="5", encoder__init="0.3")
    ours, most, end = randomised(build(r)), 3, 0
    source = pad_sources([[1, 2, 3]])
    worths = {}
    for n in range(1, most + 1):
        every = torch.tensor(list(itertools.product(range(5), repeat=n)))
        reader, scores = IncrementalReader(ours, source=source), torch.zeros(len(every))
        reader.spread(len(every))
        logits = reader.read(torch.full((len(every), 1), 4))
        for at in range(n):
            scores += logits.log_softmax(-1).gather(1, every[:, at : at + 1])[:, 0]
            logits = reader.read(every[:, at : at + 1])
        worth = scores / ((how.offset + n) / (how.offset + 1)) ** how.penalty
        for text, value in zip(map(tuple, every.tolist()), worth.tolist(), strict=True):
            if end not in text[:-1] and (n == most or text[-1] == end):
                worths[text] = value
    best = sorted(worths, key=lambda text: -worths[text])
    result = beam_search(IncrementalReader(ours, source=source), [4], most, how, end=end)
    assert [tuple(one.tokens) for one in result[:10]] == best[:10]
    assert how.worth(result[0].score, len(result[0].tokens)) == pytest.approx(worths[best[0]], abs=1e-4)


def test_texts_of_different_room_are_as_alone():
    ours = model()
    together = beam_search_batch(
        IncrementalReader(ours, source=pad_sources(SOURCES)), [[0]] * 3, [4, 0, 9], BeamSearch(3), end=7
    )
    assert together[1] == []
    for at, most in ((0, 4), (2, 9)):
        alone = beam_search(
            IncrementalReader(ours, source=pad_sources(SOURCES[at : at + 1])), [0], most, BeamSearch(3), end=7
        )
        assert [one.tokens for one in alone] == [one.tokens for one in together[at]]


def test_a_source_and_a_decoder_go_together():
    with pytest.raises(InputError, match="writes from a source"):
        IncrementalReader(model())
    with pytest.raises(InputError, match="no decoder"):
        IncrementalReader(model_of(), source=pad_sources(SOURCES))
    for wrong in ({"count": 0}, {"offset": -1}):
        with pytest.raises(InputError):
            BeamSearch(**wrong)


START, END = 0, 1


def reversals(count: int, generator: torch.Generator) -> Batch:
    """Sources of two to four words, to be written from their end."""
    words = torch.randint(2, 12, (count, 4), generator=generator)
    lengths = torch.randint(2, 5, (count,), generator=generator)
    real = torch.arange(4) < lengths[:, None]
    turned = torch.zeros(count, 5, dtype=torch.long)
    labels = torch.full((count, 5), -1)
    for row, n in enumerate(lengths.tolist()):
        text = words[row, :n].flip(0)
        turned[row, 0], turned[row, 1 : n + 1] = START, text
        labels[row, :n], labels[row, n] = text, END
    batch = from_padded(turned, labels >= 0, kind="causal")
    batch.source = from_padded(words, real)
    batch.targets = (labels.flatten() >= 0).nonzero()[:, 0]
    batch.labels = labels.flatten()[batch.targets]
    return batch


@pytest.mark.slow
def test_it_learns_to_write_backwards():
    """In seconds to a loss near 0, then without a fault, one source or many at once."""
    r = small(encoder__vocab="12", encoder__init="0.15", objective__losses="[NextToken]")
    ours, generator = build(r), torch.Generator().manual_seed(0)
    r.train.steps, r.train.warmup, r.train.learning_rate = 250, 30, 8e-3
    adam = build_optimizer(ours, r.train.optimizer, r.train.learning_rate)
    loss = torch.tensor(torch.inf)
    for step in range(1, r.train.steps + 1):
        batch = reversals(32, generator)
        assert batch.labels is not None
        loss = ours(batch).losses["next_token"] / len(batch.labels)
        adam.zero_grad()
        loss.backward()
        for group in adam.param_groups:
            group["lr"] = learning_rate(step, r.train)
        adam.step()
    assert float(loss.detach()) < 0.15
    fresh = torch.Generator().manual_seed(7)
    sources = [torch.randint(2, 12, (2 + n % 3,), generator=fresh).tolist() for n in range(40)]
    result = dict(translations(ours, sources, start=START, end=END, how=PUBLISHED, batch_tokens=200))
    right = sum(result[at][0].tokens == [*source[::-1], END] for at, source in enumerate(sources))
    assert right >= 38
    greedy = sample(IncrementalReader(ours, source=pad_sources(sources[:1])), [START], 10, Sampling(0), end=END)[0]
    assert greedy.tokens == result[0][0].tokens

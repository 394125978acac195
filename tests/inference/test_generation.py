"""A model with memory continues for as long as it is asked to, by what it remembers."""

import pytest
import torch

import clozeworks as cw
from clozeworks.core.errors import InputError
from clozeworks.inference.beam_search import BeamSearch, beam_search
from clozeworks.inference.generation import IncrementalReader, Sampling, sample
from tests.core.test_segment_memory import VOCAB, batch_of, model_of, read


@pytest.mark.parametrize("start", ["empty", "zeros"])
def test_reading_one_by_one_is_reading_in_rows_of_one(start: str):
    model, tokens = model_of(memory=6, initial_memory=start), torch.randint(VOCAB, (2, 14))
    reader, logits = IncrementalReader(model, length=4), []
    for begin, end in ((0, 9), (9, 10), (10, 11), (11, 14)):
        logits.append(reader.read(tokens[:, begin:end]))
    cuts = [(0, 4), (4, 8), (8, 9), (9, 10), (10, 11), (11, 14)]
    rows = read(model, [batch_of(tokens[:, begin:end], [0, 1], begin > 0) for begin, end in cuts])
    expected = [reader.logits(rows[at][:, -1]) for at in (2, 3, 4, 5)]
    torch.testing.assert_close(logits, expected)
    assert reader.past is not None
    assert reader.past.layers[0].k.shape[2] == 6  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("memory", [0, 3, 99])
def test_without_a_cache_the_same_comes_out(memory: int):
    model = model_of(memory=memory)
    results = [
        sample(IncrementalReader(model, cache, length=4), [1, 2, 3, 4, 5, 6], 12, Sampling(0))
        for cache in (True, False)
    ]
    assert results[0][0].tokens == results[1][0].tokens
    assert results[0][0].score == pytest.approx(results[1][0].score, rel=1e-5)


def test_a_memory_of_everything_is_the_cache_of_keys():
    remembering, caching = model_of(3, memory=99), model_of(3, memory=0)
    caching.load_state_dict(remembering.state_dict())
    prompt = [3, 1, 4, 1, 5]
    results = [sample(IncrementalReader(model), prompt, 20, Sampling(0))[0] for model in (remembering, caching)]
    assert results[0].tokens == results[1].tokens
    assert results[0].score == pytest.approx(results[1].score, rel=1e-5)
    beams = [beam_search(IncrementalReader(model), prompt, 8, BeamSearch(3))[0] for model in (remembering, caching)]
    assert beams[0].tokens == beams[1].tokens


def test_a_model_that_reads_both_ways_continues_nothing():
    r = cw.recipe("elmo_mini")
    r.encoder.vocab = 50
    with pytest.raises(InputError, match="one that reads both ways; a text is continued by one that reads it one way"):
        IncrementalReader(cw.build(r))

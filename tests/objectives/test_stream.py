import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng, spec
from clozeworks.core.errors import InputError
from clozeworks.core.examples import NOTHING
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.segments import Stream
from clozeworks.objectives.shift import Shift
from tests.toys import VOCABULARY, Text

documents = st.lists(st.lists(st.integers(0, 40), min_size=1, max_size=6), min_size=1, max_size=8).filter(
    lambda documents: sum(map(sum, documents)) > 20
)


def stream_of(text: Text) -> list[int]:
    """The corpus as one text, by hand."""
    out: list[int] = []
    borders = text.sentences[text.documents].tolist()
    for begin, end in itertools.pairwise(borders):
        out += [*text.tokens[begin:end].tolist(), VOCABULARY.sep] if end > begin else []
    return out


@settings(deadline=None, max_examples=100)
@given(documents.map(Text), st.integers(8, 40), st.integers(1, 6))
def test_the_lanes_one_after_another_are_the_corpus(text, length, streams):
    epoch = Source(text, Stream(length=length, streams=streams), None, VOCABULARY, 0).epoch(0)
    examples = epoch.examples(np.arange(len(epoch.plan)))
    assert len(examples) % streams == 0
    assert examples.fields["stream"].tolist() == [n % streams for n in range(len(examples))]
    assert examples.fields["continues"].tolist() == [n >= streams for n in range(len(examples))]
    stream = [
        [token for n in range(which, len(examples), streams) for token in
         examples.tokens[examples.first[n] : examples.first[n + 1]].tolist()]
        for which in range(streams)
    ]  # fmt: skip
    assert [token for tokens in stream for token in tokens] == stream_of(text)
    assert max(map(len, stream)) - min(map(len, stream)) <= 1, "streams are equal"
    assert VOCABULARY.cls not in examples.tokens
    assert (examples.special == (examples.tokens == VOCABULARY.sep)).all()
    # whole rows up to the last of a stream; the last but one may give a token to it
    lengths = examples.lengths.reshape(-1, streams)
    assert (lengths[:-2] == length).all()
    assert (lengths >= 1).all()
    assert (lengths[:-1] >= length - 1).all()


def test_a_row_goes_over_document_borders():
    text = Text([[3, 2], [4], [20]])
    plan = Stream(length=8, streams=1).plan(text, counter_rng.fold(0))
    assert plan.in_order
    first = slice(plan.first[0], plan.first[1])
    assert plan.starts[first].tolist() == [0, 5]
    assert plan.ends[first].tolist() == [5, 7]
    assert plan.closed[first].tolist() == [True, False]


def test_the_key_changes_nothing():
    text = Text.random(40)
    one, other = (Stream(length=16, streams=4).plan(text, counter_rng.fold(n)) for n in (1, 2))
    assert np.array_equal(one.starts, other.starts)


def test_fewer_tokens_than_lanes_are_refused():
    with pytest.raises(InputError, match=r"4 tokens; a stream in 8 streams .*streams lower"):
        Stream(length=16, streams=8).plan(Text([[3]]), counter_rng.fold(0))
    with pytest.raises(InputError, match=r"streams = 0: 1 or more"):
        spec.check(Stream(streams=0), "segments")


@settings(deadline=None, max_examples=100)
@given(documents.map(Text), st.integers(8, 40), st.integers(1, 6))
def test_every_token_but_the_first_is_asked_for_once(text, length, streams):
    epoch = Source(text, Stream(length=length, streams=streams), Shift(), VOCABULARY, 0).epoch(0)
    read = epoch.examples(np.arange(len(epoch.plan)))
    whole = stream_of(text)
    plain = Source(text, Stream(length=length, streams=streams), None, VOCABULARY, 0).epoch(0)
    lengths = plain.examples(np.arange(len(plain.plan))).lengths
    starts = np.zeros(len(lengths), dtype=int)  # of each example in the whole text
    at = 0
    for stream in range(streams):
        for n in range(stream, len(lengths), streams):
            starts[n], at = at, at + lengths[n]
    asked = []
    for n, start in enumerate(starts.tolist()):
        row = slice(read.first[n], read.first[n + 1])
        assert read.tokens[row].tolist() == whole[start : start + read.lengths[n]]
        for place, label in enumerate(read.labels[row].tolist(), start + 1):
            if label != NOTHING:
                assert label == whole[place]
                asked.append(place)
    assert sorted(asked) == list(range(1, len(whole)))
    assert (read.lengths == lengths).sum() >= len(lengths) - 1, "rows are read to their end, but for the text's last"


@settings(deadline=None, max_examples=100)
@given(documents.map(Text), st.integers(8, 40), st.integers(1, 3))
def test_with_both_every_other_lane_is_the_corpus_from_its_end(text, length, pairs):
    streams = 2 * pairs
    epoch = Source(text, Stream(length=length, streams=streams, both=True), Shift(), VOCABULARY, 0).epoch(0)
    read = epoch.examples(np.arange(len(epoch.plan)))
    assert read.fields["backward"].tolist() == [n % 2 == 1 for n in range(len(read))]
    assert read.fields["stream"].tolist() == [n % streams for n in range(len(read))]
    for way, whole in ((0, stream_of(text)), (1, stream_of(text)[::-1])):
        rows = [n for stream in range(way, streams, 2) for n in range(stream, len(read), streams)]
        tokens = [t for n in rows for t in read.tokens[read.first[n] : read.first[n + 1]].tolist()]
        labels = [t for n in rows for t in read.labels[read.first[n] : read.first[n + 1]].tolist()]
        # Every token is asked for once but the first, and the last of all is not read, unless it is a row of its own.
        assert tokens in (whole, whole[:-1])
        assert [label for label in labels if label != NOTHING] == whole[1:]


def test_both_ways_need_lanes_in_pairs():
    with pytest.raises(InputError, match=r"every other stream .*use 4"):
        spec.check(Stream(streams=3, both=True), "segments")

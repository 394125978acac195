from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.errors import InputError
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import (
    DocSentences,
    FullSentences,
    Pairs,
    SegmentPair,
    SentenceOrder,
    SentencePair,
    Stream,
    chunks,
)
from tests.toys import VOCABULARY, Text

texts = st.lists(st.lists(st.integers(1, 60), min_size=1, max_size=12), min_size=2, max_size=12).map(Text)
ragged_texts = st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=9), min_size=3, max_size=9).filter(
    lambda documents: sum(sum(document) > 1 for document in documents) > 1  # two to draw from, one to put in order
)
pair_texts = st.lists(st.lists(st.integers(1, 60), min_size=2, max_size=2), min_size=1, max_size=12)
keys = st.integers(0, 2**40).map(lambda n: counter_rng.fold(n))
FORMATS = (SegmentPair, SentencePair, FullSentences, DocSentences, SentenceOrder, Stream, Pairs)


@st.composite
def planned(draw, make):
    """The format at some length, a text that it can read, and a key."""
    length = draw(st.integers(8, 80))
    text = Text(draw(pair_texts if make is Pairs else ragged_texts))
    more = {Stream: {"streams": draw(st.integers(1, 3))}, Pairs: {"target_length": length // 2}}.get(make, {})
    return make(length=length, **more), text, draw(keys)


# Made once with the functions of the published create_pretraining_data.py over 60 seeds on documents of 1 to 24
# sentences of 4 to 39 tokens (400 documents, length 128): mean, and standard deviation from seed to seed.
PUBLISHED = {
    "examples": (1528.55, 38.4),
    "random_next": (0.581, 0.0159),
    "length": (104.49, 1.90),
    "length_spread": (32.56, 1.15),
    "full": (0.5647, 0.021),
    "a": (45.85, 1.13),
    "b": (55.64, 1.27),
    "a_of_random": (42.75, 1.35),
    "b_of_random": (57.79, 1.88),
    "masked": (0.1489, 0.0001),
    "mask_token": (0.7999, 0.0026),
    "kept": (0.1002, 0.0018),
}


def statistics(source: Source, epoch: int) -> dict[str, float]:
    made = source.epoch(epoch)
    examples = made.examples(np.arange(len(made.plan)))
    lengths, other = examples.lengths, examples.fields["pair_label"] == 1
    a = np.add.reduceat((examples.segment == 0).astype(int), examples.first[:-1]) - 2
    b = lengths - 3 - a
    hidden = examples.labels != -100
    return {
        "examples": len(lengths),
        "random_next": other.mean(),
        "length": lengths.mean(),
        "length_spread": lengths.std(),
        "full": (lengths == 128).mean(),
        "a": a.mean(),
        "b": b.mean(),
        "a_of_random": a[other].mean(),
        "b_of_random": b[other].mean(),
        "masked": hidden.sum() / len(hidden),
        "mask_token": (examples.tokens[hidden] == VOCABULARY.mask).mean(),
        "kept": (examples.tokens[hidden] == examples.labels[hidden]).mean(),
    }


def test_statistics_are_those_of_the_published_code():
    source = Source(Text.random(), SegmentPair(length=128), MaskTokens(), VOCABULARY, seed=0)
    epochs = [statistics(source, epoch) for epoch in range(20)]
    for name, (mean, deviation) in PUBLISHED.items():
        result = np.mean([epoch[name] for epoch in epochs])
        # the standard error of 60 seeds of theirs and 20 epochs of ours, four times
        assert result == pytest.approx(mean, abs=4 * deviation * (1 / 60 + 1 / 20) ** 0.5 + 5e-5), name


@settings(deadline=None)
@given(texts, keys, st.integers(8, 80))
def test_pair_labels_are_right_by_construction(text, key, length):
    plan = SegmentPair(length=length).plan(text, key)
    assert len(plan) > 0
    a_start, b_start = plan.starts.reshape(-1, 2).T
    a_end, b_end = plan.ends.reshape(-1, 2).T
    assert (a_end > a_start).all()
    assert (b_end > b_start).all()
    assert (plan.lengths <= length).all()
    own, other = text.document_of(a_start), text.document_of(b_start)
    assert (text.document_of(a_end - 1) == own).all(), "A crosses a document border"
    assert (text.document_of(b_end - 1) == other).all(), "B crosses a document border"
    labels = plan.fields["pair_label"]
    assert (own[labels == 1] != other[labels == 1]).all(), "a random B comes from the same document"
    assert (own[labels == 0] == other[labels == 0]).all()
    # B follows A: what was cut away at the seam belongs to the same pair, and no sentence lies between
    seam = b_start[labels == 0] - a_end[labels == 0]
    assert (seam >= 0).all()
    full = plan.lengths[labels == 0] == length
    assert (seam[~full] == 0).all(), "nothing was cut, yet B does not begin where A ends"


@settings(deadline=None)
@given(texts, keys, st.integers(8, 80))
def test_full_sentences_lose_and_repeat_nothing(text, key, length):
    plan = FullSentences(length=length).plan(text, key)
    assert plan.starts[0] == 0
    assert plan.ends[-1] == len(text.tokens)
    assert (plan.starts[1:] == plan.ends[:-1]).all()
    assert (plan.ends > plan.starts).all()
    assert (plan.lengths <= length).all()
    assert (text.document_of(plan.starts) == text.document_of(plan.ends - 1)).all(), "a piece crosses a border"
    # as full as can be: the next sentence would not have fitted
    sizes, first = plan.lengths, plan.starts[plan.first[:-1]]
    sentence_end = np.searchsorted(text.sentences, first, side="right")
    following = text.sentences[sentence_end] - first
    border = text.document_of(first)[1:] != text.document_of(plan.ends[plan.first[1:] - 1] - 1)[:-1]
    assert (sizes[:-1] + np.minimum(following[1:], length - 2) + border > length).all()


@pytest.mark.parametrize("make", FORMATS)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_no_example_is_too_long_and_no_piece_crosses_a_border(make, data):
    segments, text, key = data.draw(planned(make))
    plan = segments.plan(text, key)
    assert len(plan) > 0
    assert (plan.first[1:] > plan.first[:-1]).all()
    assert plan.lengths.max() <= segments.length
    assert plan.lengths.min() > 0
    assert plan.starts.min() >= 0
    assert plan.ends.max() <= len(text.tokens)
    assert (plan.ends >= plan.starts).all()
    filled = plan.ends > plan.starts
    assert filled.all() or plan.closed is not None, "only a stream may begin with the [SEP] of what went before"
    assert (text.document_of(plan.starts[filled]) == text.document_of(plan.ends[filled] - 1)).all()


@pytest.mark.parametrize("make", FORMATS)
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_nothing_is_invented(make, data):
    segments, text, key = data.draw(planned(make))
    epoch = Source(text, segments, None, VOCABULARY, int(key) >> 1).epoch(0)
    examples = epoch.examples(np.arange(len(epoch.plan)))
    assert np.array_equal(examples.lengths, epoch.plan.lengths)
    wanted = [text.tokens[a:b] for a, b in zip(epoch.plan.starts, epoch.plan.ends, strict=True)]
    assert np.array_equal(examples.tokens[~examples.special], np.concatenate(wanted))
    assert set(examples.tokens[examples.special].tolist()) <= {VOCABULARY.cls, VOCABULARY.sep}


def covered(plan, text) -> np.ndarray:
    """Which tokens of the text stand in an example, those of a random second side left out."""
    count = np.zeros(len(text.tokens) + 1, dtype=int)
    own = np.ones(len(plan.starts), dtype=bool)
    label = plan.fields.get("pair_label")
    if label is not None and (text.document_of(plan.starts[::2]) != text.document_of(plan.starts[1::2])).any():
        own[1::2] = label == 0
    np.add.at(count, plan.starts[own], 1)
    np.add.at(count, plan.ends[own], -1)
    return np.cumsum(count)[:-1]


@pytest.mark.parametrize("make", [SentencePair, FullSentences, DocSentences, Stream])
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_each_token_stands_in_one_example(make, data):
    segments, text, key = data.draw(planned(make))
    assert (covered(segments.plan(text, key), text) == 1).all()


@pytest.mark.parametrize("make", [SegmentPair, SentenceOrder])
@settings(deadline=None, max_examples=40)
@given(st.data())
def test_only_shortening_loses_a_token(make, data):
    segments, text, key = data.draw(planned(make))
    plan = segments.plan(text, key)
    seen = covered(plan, text) > 0
    if isinstance(segments, SentenceOrder):
        borders = text.sentences[text.documents]
        seen[borders[:-1][np.diff(borders) == 1]] = True  # a document of one token makes no example
    full = np.zeros(len(seen) + 2, dtype=bool)  # what a shortened example touches, and its neighbours
    for example in np.flatnonzero(plan.lengths == segments.length):
        for piece in range(plan.first[example], plan.first[example + 1]):
            full[plan.starts[piece] : plan.ends[piece] + 2] = True
    runs = np.flatnonzero(np.diff(np.concatenate([[True], seen, [True]]).astype(int)))
    for begin, end in runs.reshape(-1, 2):
        assert full[begin] or full[end + 1], f"{begin}:{end} is in no example, and nothing there is full"


@settings(deadline=None, max_examples=60)
@given(ragged_texts.map(Text), keys)
def test_nothing_is_lost_where_nothing_is_shortened(text, key):
    length = 700  # more than any document
    for make in (SegmentPair, SentenceOrder):
        plan = make(length=length, short=0.0).plan(text, key)
        lost = covered(plan, text) == 0
        sizes = np.diff(text.sentences[text.documents])
        assert int(lost.sum()) <= (int((sizes == 1).sum()) if make is SentenceOrder else 0)


@pytest.mark.parametrize("make", FORMATS)
@settings(deadline=None, max_examples=40)
@given(data=st.data(), block=st.integers(1, 5))
def test_the_block_of_a_walk_changes_nothing(make, data, block):
    segments, text, key = data.draw(planned(make))
    whole = segments.plan(text, key)
    where = "clozeworks.objectives.segments"
    with mock.patch(f"{where}.sentences.BLOCK", block), mock.patch(f"{where}.two_sides.BLOCK", block):
        again = segments.plan(text, key)
    for name in ("starts", "ends", "segment", "first"):
        assert np.array_equal(getattr(whole, name), getattr(again, name)), name
    assert all(np.array_equal(whole.fields[name], again.fields[name]) for name in whole.fields)


@settings(deadline=None, max_examples=100)
@given(ragged_texts.map(Text), keys, st.integers(8, 80))
def test_doc_sentences_are_as_full_as_their_document_lets_them(text, key, length):
    plan = DocSentences(length=length).plan(text, key)
    assert (np.diff(plan.first) == 1).all()
    last = text.document_of(plan.starts[:-1]) != text.document_of(plan.starts[1:])
    following = text.sentences[np.searchsorted(text.sentences, plan.starts[1:], side="right")] - plan.starts[1:]
    assert (plan.lengths[:-1] + np.minimum(following, length - 2) > length)[~last].all()


def test_documents_without_sentence_borders_are_not_lost():
    text = Text([[1000], [1], [700]])
    plan = SegmentPair(length=64).plan(text, counter_rng.fold(1))
    covered = np.zeros(len(text.tokens), dtype=bool)
    for start, end in zip(plan.starts[::2], plan.ends[::2], strict=True):
        covered[start:end] = True
    for (start, end), label in zip(
        zip(plan.starts[1::2], plan.ends[1::2], strict=True), plan.fields["pair_label"], strict=True
    ):
        if label == 0:
            covered[start:end] = True
    assert covered.mean() > 0.95


def test_short_targets_are_a_tenth_of_the_documents():
    text = Text([[20] * 40] * 1000)
    targets = chunks.targets(20_000, 125, 0.1, counter_rng.fold(3))
    assert (targets < 125).mean() == pytest.approx(0.1 * 123 / 124, abs=0.01)
    assert targets.min() == 2
    assert targets.max() == 125
    for make in (SegmentPair, SentenceOrder):
        few, many = (len(make(length=128, short=short).plan(text, counter_rng.fold(0))) for short in (0.0, 0.1))
        assert many > few > 1000


def test_what_does_not_fit_is_cut_from_the_front_and_the_back_alike():
    text = Text([[50] * 30] * 40)
    plan = SegmentPair(length=128, short=0.0).plan(text, counter_rng.fold(2))
    front = plan.starts - text.sentences[np.searchsorted(text.sentences, plan.starts, side="right") - 1]
    back = text.sentences[np.searchsorted(text.sentences, plan.ends)] - plan.ends
    assert front.sum() > 1000
    assert front.sum() / (front + back).sum() == pytest.approx(0.5, abs=0.02)


def test_an_example_is_cls_and_pieces_each_closed_by_sep():
    text = Text.random(30)
    for segments in (SegmentPair(length=64), FullSentences(length=64)):
        made = Source(text, segments, None, VOCABULARY, 0).epoch(0)
        for number in range(len(made.plan)):
            example = made.examples(np.array([number]))
            pieces = range(made.plan.first[number], made.plan.first[number + 1])
            wanted = [VOCABULARY.cls]
            for piece in pieces:
                wanted += [*text.tokens[made.plan.starts[piece] : made.plan.ends[piece]].tolist(), VOCABULARY.sep]
            assert example.tokens.tolist() == wanted
            assert example.special.tolist() == [token in (VOCABULARY.cls, VOCABULARY.sep) for token in wanted]


def test_one_document_cannot_make_pairs():
    for make in (SegmentPair, SentencePair):
        with pytest.raises(InputError, match=r"one document; .*second document.*roberta_mini"):
            make(length=64).plan(Text([[10, 10]]), counter_rng.fold(0))


def test_empty_sentences_and_documents_are_passed_over():
    text = Text([[5, 0, 7], [0], [6, 8]])
    for segments in (SegmentPair(length=64), FullSentences(length=64)):
        plan = segments.plan(text, counter_rng.fold(0))
        assert (plan.ends > plan.starts).all()


def test_every_epoch_plans_anew_and_the_same_epoch_the_same():
    text = Text.random(50)
    first, again, other = (SegmentPair(length=128).plan(text, counter_rng.fold(0, "epoch", n)) for n in (0, 0, 1))
    assert np.array_equal(first.starts, again.starts)
    assert not np.array_equal(first.starts, other.starts)

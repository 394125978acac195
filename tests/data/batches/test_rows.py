import dataclasses

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.examples import RaggedBatch
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Row, Rows, Source, batch_rows, collate, concatenate, pack
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair, SentenceOrder, SentencePair, Stream
from tests.promises import verify_promises
from tests.toys import VOCABULARY, Text


@given(st.lists(st.integers(1, 128), min_size=1, max_size=300))
def test_packing_puts_every_item_in_one_row_that_holds_it(lengths):
    rows = pack(np.array(lengths), 128)
    assert sorted(item for row in rows for item in row) == list(range(len(lengths)))
    assert all(sum(lengths[item] for item in row) <= 128 for row in rows)
    assert len(rows) <= max(
        1, -(-sum(lengths) * 3 // (2 * 128)) + 1
    )  # best fit decreasing: never above 3/2 of the bound


def test_packing_wastes_little_on_ragged_text():
    lengths = np.random.default_rng(0).integers(5, 60, 1024)
    rows = pack(lengths, 128)
    assert lengths.sum() / (len(rows) * 128) > 0.98


def source(seed=0, documents=200, length=64) -> Source:
    return Source(Text.random(documents), SegmentPair(length=length), MaskTokens(), VOCABULARY, seed)


def test_an_epoch_is_every_example_once_then_the_next_begins():
    made = source()
    rows = Rows(made)
    seen: list[int] = []
    while rows.number == 0:
        row = rows.next()
        if row.epoch.number == 0:
            seen += row.index.tolist()
    assert sorted(seen) == list(range(len(made.epoch(0).plan)))
    assert seen != sorted(seen)


def test_a_position_continues_exactly():
    rows = Rows(source(documents=700))
    while rows.number == 0:
        rows.next()
    for _ in range(70):
        rows.next()
    place = rows.position()
    assert place["epoch"] > 0
    again = Rows(source(documents=700), place)
    for _ in range(300):
        a, b = rows.next(), again.next()
        assert a.epoch.number == b.epoch.number
        assert a.index.tolist() == b.index.tolist()


def test_a_batch_holds_what_its_examples_hold():
    made = source()
    rows = Rows(made)
    some = [rows.next() for _ in range(7)]
    batch = collate(some)
    verify_promises(batch.context())
    at = 0
    for number, row in enumerate(some):
        column = 0
        for index in row.index:
            alone = row.epoch.examples(np.array([index]))
            end = column + len(alone.tokens)
            assert batch.tokens[number, column:end].tolist() == alone.tokens.tolist()
            assert batch.token_info.position[number, column:end].tolist() == list(range(len(alone.tokens)))
            assert batch.token_info.segment is not None
            assert batch.token_info.segment[number, column:end].tolist() == alone.segment.tolist()
            assert int(batch.firsts[at]) == number * batch.tokens.shape[1] + column
            assert int(batch.example["pair_label"][at]) == int(alone.fields["pair_label"][0])
            assert batch.index[at] == index
            column, at = end, at + 1
        assert (batch.token_info.document[number, column:] == -1).all()
        assert (batch.tokens[number, column:] == VOCABULARY.pad).all()
    assert batch.real == int((batch.token_info.document >= 0).sum())
    assert batch.targets is not None
    assert batch.labels is not None
    clean = torch.full_like(batch.tokens.flatten(), -100)
    clean[batch.targets] = batch.labels
    total = sum(int((row.epoch.examples(row.index).labels != -100).sum()) for row in some)
    assert int((clean != -100).sum()) == total == len(batch.labels)


def test_positions_of_padding_begin_anew_and_stay_below_the_longest_example():
    """Which may be all that the model has positions for."""
    epoch = source().epoch(0)
    short = np.argsort(epoch.plan.lengths, kind="stable")[:5]
    longest = int(epoch.plan.lengths[short].max())
    batch = collate([Row(epoch, short[:4]), Row(epoch, short[4:])])
    padding = batch.token_info.position[1][batch.token_info.document[1] == -1].tolist()
    assert len(padding) > longest
    assert padding == [min(number, longest - 1) for number in range(len(padding))]


def take(loader: Loader, count: int, position=None):
    steps = loader.steps(position)
    try:
        return [next(steps) for _ in range(count)]
    finally:
        steps.close()


def loader(batch_tokens=512, micro=None, corpora=None, seed=0) -> Loader:
    corpora = corpora or [(Text.random(200), 1.0)]
    return Loader(
        corpora,
        SegmentPair(length=64),
        MaskTokens(),
        VOCABULARY,
        seed=seed,
        batch_tokens=batch_tokens,
        micro_tokens=micro,
    )


def indices(steps) -> list[int]:
    return [index for batches, _ in steps for batch in batches for index in batch.index]


def test_batch_size_and_accumulation_never_change_the_examples():
    base = take(loader(512), 12)
    assert indices(base) == indices(take(loader(256), 24)) == indices(take(loader(512, micro=128), 12))
    halves = take(loader(512, micro=256), 12)
    assert all(len(batches) == 2 for batches, _ in halves)
    tokens = lambda steps: sorted(int(b.labels.sum()) for batches, _ in steps for b in batches)  # noqa: E731
    assert sum(tokens(base)) == sum(tokens(halves)), "masks changed"


@settings(deadline=None, max_examples=8)
@given(st.integers(1, 30))
def test_resuming_anywhere_gives_the_same_steps(at):
    mixture = [(Text.random(60), 0.7), (Text.random(50, seed=9), 0.3)]
    whole = take(loader(corpora=mixture), at + 5)
    rest = take(loader(corpora=mixture), 5, position=whole[at - 1][1])
    for (a, here), (b, there) in zip(whole[at:], rest, strict=True):
        assert here == there
        for left, right in zip(a, b, strict=True):
            assert torch.equal(left.tokens, right.tokens)
            assert torch.equal(left.labels, right.labels)


def test_a_mixture_has_its_shares():
    first, second = Text.random(300), Text.random(300, seed=9)
    second.tokens[:] = 7  # its rows can be distinguished
    steps = take(loader(4096, corpora=[(first, 0.7), (second, 0.3)]), 30)
    rows = torch.cat([(batch.tokens == 7).float().mean(1) > 0.3 for batches, _ in steps for batch in batches])
    assert float(rows.float().mean()) == pytest.approx(0.3, abs=0.05)


def test_an_error_in_the_background_reaches_the_caller():
    class Broken(Text):
        def take(self, starts, ends):
            raise OSError("disk gone")

    steps = loader(corpora=[(Broken([[10, 10], [10]] * 20), 1.0)]).steps()
    with pytest.raises(OSError, match="disk gone"):
        next(steps)


# ---- static copies


def content(epoch) -> list[tuple]:
    """Each example of an epoch in the order it comes: what it shows, what it hides, its label."""
    rows = [row for pool in range(epoch.pools()) for row in epoch.rows(pool, epoch.order())]
    ragged = epoch.examples(np.concatenate(rows))
    labels = ragged.fields["pair_label"].tolist()
    each = [slice(*ragged.first[n : n + 2]) for n in range(len(ragged))]
    return [(tuple(ragged.tokens[e]), tuple(ragged.labels[e]), n) for e, n in zip(each, labels, strict=True)]


@pytest.mark.parametrize("make", [SegmentPair, SentencePair, SentenceOrder])
def test_static_copies_come_again_in_another_order(make):
    source = Source(Text.random(60), make(length=64), MaskTokens(copies=3), VOCABULARY, 0)
    epochs = [content(source.epoch(number)) for number in range(7)]
    for number in range(4):
        assert sorted(epochs[number]) == sorted(epochs[number + 3])
        assert epochs[number] != epochs[number + 3]
    assert sorted(epochs[0]) != sorted(epochs[1]) != sorted(epochs[2])
    fresh = Source(source.text, make(length=64), MaskTokens(), VOCABULARY, 0)
    assert [content(fresh.epoch(number)) for number in range(3)] == epochs[:3], (
        "the first k epochs are the dynamic ones"
    )
    assert sorted(content(fresh.epoch(3))) != sorted(epochs[3])


def test_static_copies_share_rows_anew():
    source = Source(Text.random(200), SentencePair(length=128), MaskTokens(copies=1), VOCABULARY, 0)
    shared = [
        {frozenset(row.tolist()) for pool in range(epoch.pools()) for row in epoch.rows(pool, epoch.order())}
        for epoch in (source.epoch(0), source.epoch(1))
    ]
    assert len(shared[0] & shared[1]) < len(shared[0]) / 10


# ---- counts of tokens


@dataclasses.dataclass(slots=True)
class Counting(MaskTokens):
    """Notes the vocabulary that it is given."""

    @property
    def needs_counts(self) -> bool:
        return True

    def corrupt(self, examples, keys, vocabulary):
        Seen.vocabularies.append(vocabulary)
        return MaskTokens.corrupt(self, examples, keys, vocabulary)


class Seen:
    vocabularies: list = []  # noqa: RUF012


class Counted(Text):
    asked = 0

    def unigram(self):
        self.asked += 1
        return np.bincount(self.tokens, minlength=VOCABULARY.size)


def test_a_corruption_that_needs_counts_gets_those_of_its_text_once():
    text = Counted([[10, 10], [10]] * 20)
    rows = Rows(Source(text, SegmentPair(length=64), Counting(), VOCABULARY, 0))
    Seen.vocabularies = []
    for _ in range(5):
        row = rows.next()
        collate([Row(row.epoch, row.index)])
    assert text.asked == 1
    assert len(Seen.vocabularies) == 5
    assert all(seen.counts is Seen.vocabularies[0].counts for seen in Seen.vocabularies)
    assert Seen.vocabularies[0].counts.sum() == len(text.tokens)
    assert Seen.vocabularies[0] == VOCABULARY


def test_nobody_counts_what_nobody_needs():
    text = Counted([[10, 10], [10]] * 20)
    source = Source(text, SegmentPair(length=64), MaskTokens(), VOCABULARY, 0)
    collate([Rows(source).next()])
    assert text.asked == 0
    assert source.counted is VOCABULARY
    plain = Source(Text([[10, 10], [10]] * 20), SegmentPair(length=64), Counting(), VOCABULARY, 0)
    assert plain.counted is VOCABULARY, "a text that cannot count"


# ---- joining, packing, streams


OPTIONAL = [f.name for f in dataclasses.fields(RaggedBatch) if f.default is None and f.name != "following"]


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("name", OPTIONAL)
def test_joining_keeps_a_column_that_one_part_has(name, which):
    epoch = source().epoch(0)
    parts = [epoch.examples(np.arange(5)), epoch.examples(np.arange(5, 9))]
    kind = {"sentence_starts": bool, "units": np.uint8}.get(name, np.int32)
    column = np.ones(len(parts[which].tokens), dtype=kind)
    setattr(parts[which], name, column)
    joined = getattr(concatenate(parts), name)
    assert joined.dtype == kind
    empty = np.full(len(parts[1 - which].tokens), -1 if name == "span" else 0).astype(kind)
    assert joined.tolist() == np.concatenate([column, empty] if which == 0 else [empty, column]).tolist()
    assert all(getattr(concatenate(parts), other) is None for other in OPTIONAL if other != name)


def test_joining_is_reading_together():
    epoch = source().epoch(0)
    whole, joined = epoch.examples(np.arange(9)), concatenate([epoch.examples(np.arange(a, a + 3)) for a in (0, 3, 6)])
    for name in ("tokens", "first", "segment", "special", "word_starts", "labels"):
        assert np.array_equal(getattr(whole, name), getattr(joined, name)), name
    assert np.array_equal(whole.fields["pair_label"], joined.fields["pair_label"])


def test_rows_of_a_plan_in_order_are_its_examples_one_by_one():
    epoch = Source(Text.random(200), Stream(16, 4), MaskTokens(), VOCABULARY, 0).epoch(3)
    rows = [row.tolist() for pool in range(epoch.pools()) for row in epoch.rows(pool, epoch.order())]
    assert rows == [[n] for n in range(len(epoch.plan))]


@pytest.mark.parametrize(("tokens", "rows"), [(16, 1), (32, 2), (48, 3), (80, 4), (96, 6), (200, 12), (10_000, 12)])
def test_a_batch_of_lanes_has_each_once_and_evenly_many(tokens, rows):
    assert batch_rows(Stream(16, 12), tokens) == rows
    assert batch_rows(SegmentPair(16), tokens) == tokens // 16


PADDING_AT_MOST = {SegmentPair: 0.03, SentencePair: 0.02, FullSentences: 0.11, DocSentences: 0.09, SentenceOrder: 0.02}


@pytest.mark.parametrize("make", PADDING_AT_MOST)
def test_a_step_has_about_the_same_tokens_in_every_format(make):
    """Whole sentences leave the end of a row empty where the next one is longer; the others fill it."""
    rows = Rows(Source(Text.random(), make(length=128), None, VOCABULARY, 0))
    real = sum(collate([rows.next() for _ in range(32)]).real for _ in range(20))
    assert 1 - real / (20 * 32 * 128) < PADDING_AT_MOST[make]


@pytest.mark.parametrize("tokens", [1, 200, 10**6])
def test_prefetching_changes_nothing(monkeypatch, tokens):
    """Rows read together with their neighbours, in any number, are the rows read alone."""
    from clozeworks.data.batches import rows as module

    monkeypatch.setattr(module, "PREFETCH_TOKENS", tokens)
    text = Text.random(60)
    source = Source(text, SegmentPair(length=64), MaskTokens(), VOCABULARY, 0)
    together, alone = Rows(source), Rows(source)
    for size in (1, 4, 7, 30, 2):
        mine = [together.next() for _ in range(size)]
        one, two = collate(mine), collate([Row(row.epoch, row.index) for row in (alone.next() for _ in range(size))])
        assert one.index == two.index
        assert torch.equal(one.tokens, two.tokens)
        assert torch.equal(one.labels, two.labels)
        assert torch.equal(one.targets, two.targets)
        assert torch.equal(one.example["pair_label"], two.example["pair_label"])
        assert torch.equal(one.token_info.position, two.token_info.position)
    backwards = [together.next() for _ in range(6)][::-1]
    assert torch.equal(collate(backwards).tokens, collate([Row(row.epoch, row.index) for row in backwards]).tokens)

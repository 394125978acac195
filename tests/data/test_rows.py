import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.batch import verify
from clozeworks.data.loader import Loader
from clozeworks.data.rows import Rows, Source, collate, pack
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import SegmentPair
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
    verify(batch.context())
    at = 0
    for number, row in enumerate(some):
        column = 0
        for index in row.index:
            alone = row.epoch.examples(np.array([index]))
            end = column + len(alone.tokens)
            assert batch.tokens[number, column:end].tolist() == alone.tokens.tolist()
            assert batch.side.position[number, column:end].tolist() == list(range(len(alone.tokens)))
            assert batch.side.segment is not None
            assert batch.side.segment[number, column:end].tolist() == alone.segment.tolist()
            assert int(batch.firsts[at]) == number * batch.tokens.shape[1] + column
            assert int(batch.example["pair_label"][at]) == int(alone.fields["pair_label"][0])
            assert batch.index[at] == index
            column, at = end, at + 1
        assert (batch.side.document[number, column:] == -1).all()
        assert (batch.tokens[number, column:] == VOCABULARY.pad).all()
    assert batch.real == int((batch.side.document >= 0).sum())
    assert batch.targets is not None
    assert batch.labels is not None
    clean = torch.full_like(batch.tokens.flatten(), -100)
    clean[batch.targets] = batch.labels
    total = sum(int((row.epoch.examples(row.index).labels != -100).sum()) for row in some)
    assert int((clean != -100).sum()) == total == len(batch.labels)


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
    second.tokens[:] = 7  # its rows can be told apart
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

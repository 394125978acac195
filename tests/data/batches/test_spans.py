"""Which hidden spans stand between two tokens, where these are, and in what order their tokens come."""

import dataclasses

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.batch import Spans
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.data.batches.rows import Row, Source, collate
from clozeworks.data.batches.spans import locate_spans
from clozeworks.objectives.mask import MaskSpans, MaskTokens
from clozeworks.objectives.segments import DocSentences
from tests.objectives.layouts import VOCABULARY, corrupt, lay, layouts
from tests.toys import Text

Entry = tuple[int, ...]  # place, token, left, right


def plain(ragged: RaggedBatch) -> list[Entry]:
    """Span by span, token by token."""
    results = []
    for example in range(len(ragged)):
        low, high = int(ragged.first[example]), int(ragged.first[example + 1])
        for begin, end in ragged.spans(example):
            begin, end = begin + low, end + low
            around = (begin - 1, end)
            if not all(low <= at < high and not ragged.special[at] for at in around):
                continue
            if any(ragged.segment[at] != ragged.segment[begin] for at in around):
                continue
            results += [(place, begin + place, *around) for place in range(end - begin)]
    return sorted(results)


def entries(ragged: RaggedBatch, at: np.ndarray) -> tuple[Spans, list[Entry]]:
    chosen = np.flatnonzero(ragged.labels != NOTHING)
    spans = locate_spans(ragged, chosen, at)
    assert spans is not None
    back = np.full(at.max(initial=0) + 1, -1)
    back[at] = np.arange(len(at))
    left, right = back[spans.left.numpy()], back[spans.right.numpy()]
    columns = (spans.place, chosen[spans.target.numpy()], left, right)
    return spans, [tuple(map(int, entry)) for entry in zip(*columns, strict=True)]


@settings(deadline=None, max_examples=150)
@given(layouts, st.booleans(), st.sampled_from([0.15, 0.5, 0.9]), st.integers(0, 9))
def test_they_are_those_of_the_plain_walk(layout, bare, rate, seed):
    ragged = corrupt(MaskSpans(rate), lay(layout, bare=bare), seed)
    spans, actual = entries(ragged, 3 * np.arange(len(ragged.tokens)) + 1)
    expected = plain(ragged)
    assert actual == expected  # by place, then by token
    assert spans.counts == tuple(np.bincount([entry[0] for entry in expected]).tolist())
    edges = sorted({at for _, _, *around in expected for at in around})
    assert spans.edges.tolist() == [3 * at + 1 for at in edges]
    assert [spans.within(n) for n in (1, 2, 99)] == [sum(e[0] < n for e in expected) for n in (1, 2, 99)]


def test_a_span_at_the_edge_of_its_piece_is_left_out():
    # [CLS] 1 2 3 4 [SEP] 6 7 8 [SEP]
    layout = lay([[[1, 1, 1, 1], [1, 1, 1]]])
    cases = {(1, 2): False, (2, 4): True, (3, 5): False, (1, 5): False, (6, 7): False, (7, 8): True, (8, 9): False}
    for (begin, end), there in cases.items():
        span = np.full(10, -1, dtype=np.int32)
        span[begin:end] = 0
        labels = np.where(span == 0, layout.tokens, NOTHING).astype(np.int32)
        _, result = entries(dataclasses.replace(layout, span=span, labels=labels), np.arange(10))
        assert result == [(at - begin, at, begin - 1, end) for at in range(begin, end) if there], (begin, end)


def source(corruption, length: int = 48) -> Source:
    return Source(Text.random(60), DocSentences(length=length), corruption, VOCABULARY, 1)


def test_a_batch_carries_them_wherever_its_rows_put_the_tokens():
    epoch = source(MaskSpans()).epoch(0)
    short = np.flatnonzero(epoch.plan.lengths < 24)[:9]
    packed = collate([Row(epoch, short[at : at + 3]) for at in range(0, 9, 3)])
    alone = collate([Row(epoch, short[at : at + 1]) for at in range(9)])
    seen = []
    for batch in (packed, alone):
        spans = batch.spans
        assert spans is not None
        assert batch.targets is not None
        assert batch.labels is not None
        at = batch.targets[spans.target]
        assert torch.equal(at, spans.left + 1 + spans.place)
        assert (spans.right > at).all()
        document = batch.token_info.document.flatten()
        assert torch.equal(document[spans.left], document[at])
        assert torch.equal(document[spans.right], document[at])
        assert not set(spans.edges.tolist()) & set(batch.targets.tolist())
        assert set(spans.edges.tolist()) == set(spans.left.tolist()) | set(spans.right.tolist())
        position = batch.token_info.position.flatten()
        columns = (document[at], position[at], position[spans.left], position[spans.right], batch.labels[spans.target])
        seen.append(sorted(zip(*(column.tolist() for column in columns), strict=True)))
    assert seen[0] == seen[1]
    assert seen[0]


def test_no_spans_were_hidden():
    row = Row(source(MaskTokens()).epoch(0), np.arange(3))
    assert collate([row]).spans is None


def test_they_move_with_their_batch():
    batch = collate([Row(source(MaskSpans()).epoch(0), np.arange(1))])
    moved = batch.to("meta").spans
    assert moved is not None
    assert batch.spans is not None
    assert moved.counts == batch.spans.counts
    tensors = [getattr(moved, field.name) for field in dataclasses.fields(moved) if field.name != "counts"]
    assert len(tensors) == 5
    assert all(tensor.is_meta for tensor in tensors)

"""Steps of text in streams, and the same examples whatever surrounds them."""

import hashlib
import itertools
import math
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core.batch import Batch
from clozeworks.core.errors import InputError
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Source
from clozeworks.objectives.mask.tokens import MaskTokens
from clozeworks.objectives.segments import DocSentences, FullSentences, SegmentPair, SentenceOrder, SentencePair, Stream
from tests.toys import VOCABULARY, Text

FORMATS = (SegmentPair, SentencePair, FullSentences, DocSentences, SentenceOrder)


def take(loader: Loader, count: int, position=None) -> list[tuple[list[Batch], dict]]:
    steps = loader.steps(position)
    try:
        return [next(steps) for _ in range(count)]
    finally:
        steps.close()


def loader(segments, batch_tokens, text=None, **more) -> Loader:
    texts = more.pop("corpora", [(text or Text.random(60), 1.0)])
    return Loader(texts, segments, MaskTokens(), VOCABULARY, seed=3, batch_tokens=batch_tokens, **more)


def examples_of(steps) -> list[tuple]:
    """Each example in the order it came: its index, what it shows, what it hides, its fields."""
    results = []
    for batches, _ in steps:
        for batch in batches:
            clean = torch.full_like(batch.tokens.flatten(), -100)
            clean[batch.targets] = batch.labels
            clean = clean.view_as(batch.tokens)
            for n, first in enumerate(batch.firsts.tolist()):
                row, column = divmod(first, batch.tokens.shape[1])
                here = batch.token_info.document[row] == batch.token_info.document[row, column]
                fields = tuple(values[n].item() for values in batch.example.values())
                results.append((batch.index[n], *(c[row][here].tolist() for c in (batch.tokens, clean)), fields))
    return results


@pytest.mark.parametrize("make", FORMATS)
def test_batches_micro_batches_and_prefetch_never_change_an_example(make):
    whole = examples_of(take(loader(make(length=64), 512), 12))
    assert whole == examples_of(take(loader(make(length=64), 256), 24))
    assert whole == examples_of(take(loader(make(length=64), 512, micro_tokens=128), 12))
    assert whole == examples_of(take(loader(make(length=64), 512, ahead=7), 12))


def test_batches_never_change_a_mixture():
    corpora = [(Text.random(60), 0.6), (Text.random(50, seed=9), 0.4)]
    steps = lambda tokens, count: examples_of(take(loader(SegmentPair(64), tokens, corpora=corpora), count))  # noqa: E731
    assert steps(512, 6) == steps(128, 24)


@pytest.mark.parametrize("make", FORMATS)
@settings(deadline=None, max_examples=5)
@given(at=st.integers(1, 40))
def test_every_format_resumes_anywhere(make, at):
    text = Text.random(12)  # several epochs
    whole = take(loader(make(length=64), 256, text), at + 4)
    rest = take(loader(make(length=64), 256, text), 4, whole[at - 1][1])
    assert examples_of(whole[at:]) == examples_of(rest)
    assert [position for _, position in whole[at:]] == [position for _, position in rest]


@pytest.mark.parametrize("make", FORMATS)
@settings(deadline=None, max_examples=6)
@given(readers=st.integers(1, 5), number=st.integers(0, 3))
def test_an_example_is_the_same_whoever_reads_it(make, readers, number):
    """Any number of readers, each with a share of the indices, make what one of them makes of all."""
    source = lambda: Source(Text.random(25), make(length=64), MaskTokens(), VOCABULARY, 3)  # noqa: E731
    epoch = source().epoch(number)
    whole = epoch.examples(np.arange(len(epoch.plan)))
    for reader in range(readers):
        share = np.arange(reader, len(epoch.plan), readers)
        part = source().epoch(number).examples(share)
        for at, index in enumerate(share):
            mine, theirs = slice(*part.first[at : at + 2]), slice(*whole.first[index : index + 2])
            assert part.tokens[mine].tolist() == whole.tokens[theirs].tolist()
            assert part.labels[mine].tolist() == whole.labels[theirs].tolist()


def fingerprint() -> str:
    made = examples_of(take(loader(SentenceOrder(length=64), 512), 9))
    return hashlib.sha256(repr(made).encode()).hexdigest()


def test_another_process_makes_the_same_examples():
    code = "from tests.data.batches.test_loader import fingerprint; print(fingerprint())"
    environment = {"PYTHONHASHSEED": "11", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert there.stdout.strip() == fingerprint()


# ---- streams


@settings(deadline=None, max_examples=25)
@given(st.sampled_from([1, 2, 3, 4, 6]), st.integers(1, 3), st.integers(1, 6), st.integers(1, 4))
def test_steps_of_a_stream_hold_whole_time_steps_of_the_same_lanes(streams, times, micro, depth):
    text, length = Text.random(14), 16
    made = loader(Stream(length, streams), streams * times * length, text, micro_tokens=micro * length, ahead=depth)
    lane_tokens: list[list[int]] = [[] for _ in range(streams)]
    total = len(text.tokens) + len(text.documents) - 1
    count = math.ceil(math.ceil(total / streams) / length)  # rows of a stream in an epoch
    seen = 0
    for batches, _ in take(made, -(-count // times)):
        groups = [batch.example["stream"].tolist() for batch in batches]
        assert [stream for group in groups for stream in group] == list(range(streams)) * times
        assert groups == groups[: len(groups) // times] * times, "a micro-batch changes its streams"
        assert all(len(group) <= micro for group in groups)
        for batch in batches:
            for row, stream in enumerate(batch.example["stream"].tolist()):
                time = batch.index[row] // streams
                assert bool(batch.example["continues"][row]) == (time > 0)
                real = batch.token_info.document[row] >= 0
                assert batch.token_info.document[row][real].unique().tolist() == [row]
                assert batch.token_info.position[row][real].tolist() == list(range(int(real.sum())))
                if seen // streams < count:
                    clean = batch.tokens.flatten().clone()
                    clean[batch.targets] = batch.labels  # what was hidden
                    lane_tokens[stream] += clean.view_as(batch.tokens)[row][real].tolist()
                seen += 1
    borders = text.sentences[text.documents]
    corpus = [np.append(text.tokens[a:b], VOCABULARY.sep) for a, b in itertools.pairwise(borders)]
    assert [token for stream in lane_tokens for token in stream] == np.concatenate(corpus).tolist()


@settings(deadline=None, max_examples=15)
@given(st.integers(1, 30), st.sampled_from([None, 16, 32]))
def test_a_stream_resumes_in_the_middle_of_an_epoch(at, micro):
    text = Text.random(10)
    make = lambda: loader(Stream(16, 4), 128, text, micro_tokens=micro)  # noqa: E731
    whole = take(make(), at + 6)
    assert examples_of(whole[at:]) == examples_of(take(make(), 6, whole[at - 1][1]))


def test_a_new_epoch_of_a_stream_does_not_continue_the_last():
    steps = take(loader(Stream(16, 4), 64, Text.random(6)), 70)
    starts = [n for n, (batches, _) in enumerate(steps) if not batches[0].example["continues"].any()]
    assert len(starts) > 2
    assert starts[0] == 0
    assert len(set(np.diff(starts))) == 1
    assert all(batches[0].example["continues"].all() for n, (batches, _) in enumerate(steps) if n not in starts)


@pytest.mark.parametrize("batch_tokens", [64, 127, 192, 320])
def test_a_step_that_tears_lanes_apart_is_refused(batch_tokens):
    wanted = rf"train.batch_tokens: {batch_tokens}; .*rows of 16 tokens of all 8 streams; use 128 or a multiple"
    with pytest.raises(InputError, match=wanted):
        loader(Stream(16, 8), batch_tokens)


def test_a_stream_reads_one_corpus():
    with pytest.raises(InputError, match=r"2 corpora; .*one text.*prepare them together"):
        loader(Stream(16, 4), 64, corpora=[(Text.random(5), 0.5), (Text.random(5), 0.5)])


# ---- shares of a step


def rows_of(batches: list[Batch]) -> dict[int, list[int]]:
    """The tokens of each row that are no padding, by its number within the step."""
    results = {}
    for batch in batches:
        assert batch.row is not None
        for at, (tokens, document) in enumerate(zip(batch.tokens, batch.token_info.document, strict=True)):
            assert batch.row + at not in results
            results[batch.row + at] = tokens[document >= 0].tolist()
    return results


@pytest.mark.parametrize("size", [2, 3])
def test_shares_of_a_step_are_the_step(size):
    corpora = [(Text.random(40, seed=1), 0.6), (Text.random(30, seed=2), 0.4)]
    make = lambda **more: loader(SegmentPair(length=64), 7 * 64, corpora=corpora, **more)  # noqa: E731
    count = 40  # through several epochs of both texts
    whole = take(make(), count)
    shares = [take(make(share=(rank, size), micro_tokens=2 * 64), count) for rank in range(size)]
    for (batches, place), *parts in zip(whole, *shares, strict=True):
        assert all(part[1] == place for part in parts), "the position is that of all"
        assert len({len(part[0]) for part in parts}) == 1, "as many pieces in every process"
        assert max(len(batch.tokens) for part in parts for batch in part[0]) <= 2
        assert {at: row for part in parts for at, row in rows_of(part[0]).items()} == rows_of(batches)
        assert tuple(i for part in parts for batch in part[0] for i in batch.index) == batches[0].index
    again = take(make(share=(1, size)), 3, whole[4][1])
    assert examples_of(again) == examples_of(shares[1][5:8]), "from a position that another number of processes left"


def test_a_process_reads_its_own_rows_alone():
    text = Text.random(200)
    read, totals = [], {}
    taken = text.take
    text.take = lambda starts, ends: read.append(int((ends - starts).sum())) or taken(starts, ends)
    for size in (1, 4):
        read.clear()
        made = loader(FullSentences(length=64), 16 * 64, text, share=(0, size))._make(None)
        list(itertools.islice(made, 20))
        totals[size] = sum(read)
    assert totals[4] < totals[1] / 2


def test_a_process_keeps_its_lanes():
    text = Text.random(80)
    make = lambda **more: loader(Stream(length=16, streams=6), 2 * 6 * 16, text, **more)  # noqa: E731
    whole = take(make(), 4)
    for rank in range(2):
        shares = take(make(share=(rank, 2), micro_tokens=2 * 16), 4)
        for (batches, _), (mine, _) in zip(whole, shares, strict=True):
            assert [batch.row for batch in mine] == [rank * 3, rank * 3 + 2, 6 + rank * 3, 6 + rank * 3 + 2]
            every = rows_of(batches)
            assert rows_of(mine) == {at: every[at] for at in every if at % 6 // 3 == rank}


def test_more_processes_than_rows_are_refused():
    with pytest.raises(InputError, match="a step: 3 rows of 64 tokens; each of 4 processes needs one at least"):
        loader(FullSentences(length=64), 3 * 64, share=(0, 4))
    with pytest.raises(InputError, match="a step: 2 streams of 16 tokens; each of 4 processes"):
        loader(Stream(length=16, streams=2), 8 * 16, share=(0, 4))
    with pytest.raises(InputError, match="a step: 3 rows of 64 tokens; 2 processes cannot take turns"):
        loader(FullSentences(length=64), 3 * 64, micro_tokens=64, share=(0, 2))

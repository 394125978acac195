"""Batches of two sides: the same pairs in a row of each, packed within both rooms, the same in any order and share."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.batch import Batch
from clozeworks.data.batches import sides
from clozeworks.data.batches.loader import Loader
from clozeworks.data.batches.rows import Row, Rows, Source, collate
from clozeworks.evaluate import heldout
from clozeworks.objectives import Objective, Translate
from clozeworks.objectives.losses.next_token import NextToken
from clozeworks.objectives.segments import Pairs
from tests.promises import verify_promises
from tests.toys import VOCABULARY, Text

SEGMENTS = Pairs(length=48, target_length=20)


def text(pairs: int = 300, seed: int = 3) -> Text:
    return Text(np.random.default_rng(seed).integers(1, 25, (pairs, 2)).tolist())


def some_rows(count: int) -> list[Row]:
    rows = Rows(Source(text(), SEGMENTS, Translate(), VOCABULARY, 0))
    return [rows.next() for _ in range(count)]


sizes = st.lists(st.tuples(st.integers(1, 28), st.integers(1, 20)), min_size=1, max_size=150)


@given(sizes)
def test_packing_keeps_both_sides_within_their_rooms(given_sizes: list[tuple[int, int]]):
    table = np.array(given_sizes)
    rows = sides.pack(table, (28, 20))
    assert sorted(item for row in rows for item in row) == list(range(len(table)))
    for row in rows:
        assert (table[row].sum(0) <= (28, 20)).all()
    for number, row in enumerate(rows):  # nothing that has a row of its own would have fitted into an earlier one
        for earlier in rows[:number]:
            assert len(row) > 1 or (table[earlier].sum(0) + table[row[0]] > (28, 20)).any()


def test_a_row_is_full_to_the_last_token():
    assert sides.pack(np.array([[7, 5]] * 8), (28, 20)) == [[0, 1, 2, 3], [4, 5, 6, 7]]
    assert len(sides.pack(np.array([[7, 20]] * 3), (28, 20))) == 3  # by one side alone


def test_packing_wastes_little_where_sides_are_of_like_length():
    draw = np.random.default_rng(0)
    source = draw.integers(6, 30, 1024)
    table = np.stack([source, np.maximum(source + draw.integers(-4, 5, 1024), 3)], 1)
    rows = sides.pack(table, (64, 64))
    assert table.sum() / (len(rows) * 128) > 0.93


def test_a_row_of_the_source_belongs_to_the_row_of_the_target():
    rows = some_rows(6)
    batch = collate(rows)
    source = batch.source
    assert source is not None
    verify_promises(batch.context())
    verify_promises(source.context())
    assert (batch.kind, source.kind) == ("causal", "full")
    assert len(batch.tokens) == len(source.tokens) == 6
    assert source.token_info.segment is None
    assert batch.token_info.segment is None
    assert source.targets is None
    assert batch.tokens.shape[1] <= 20
    assert source.tokens.shape[1] <= 28
    number = 0
    for row, own in enumerate(rows):
        for index in own.index.tolist():
            alone = own.epoch.examples(np.array([index]))
            for side, value in ((0, source), (1, batch)):
                here = value.token_info.document[row] == number
                assert value.tokens[row][here].tolist() == alone.tokens[alone.segment == side].tolist()
                assert value.token_info.position[row][here].tolist() == list(range(int(here.sum())))
            number += 1
    assert number == len(batch.firsts) == len(source.firsts) == len(batch.index)


def test_labels_stand_where_the_target_is_read():
    batch = collate(some_rows(5))
    assert batch.targets is not None
    assert batch.labels is not None
    assert len(batch.targets) == batch.real
    read, document = batch.tokens.flatten(), batch.token_info.document.flatten()
    for at, label in zip(batch.targets.tolist(), batch.labels.tolist(), strict=True):
        last = at + 1 == len(read) or document[at + 1] != document[at]
        assert label == (VOCABULARY.sep if last else int(read[at + 1]))


def test_tokens_of_both_sides_are_counted():
    batch = collate(some_rows(4))
    assert batch.source is not None
    real = [int((value.token_info.document >= 0).sum()) for value in (batch, batch.source)]
    assert [batch.real, batch.source.real] == real
    assert batch.read == sum(real)
    assert batch.source.read == real[1]


def test_the_source_moves_with_its_target():
    batch = collate(some_rows(2)).to("meta")
    assert batch.source is not None
    assert batch.source.tokens.device.type == batch.tokens.device.type == "meta"


def loader(batch_tokens: int = 48 * 6, **more) -> Loader:
    return Loader([(text(), 1.0)], SEGMENTS, Translate(), VOCABULARY, seed=1, batch_tokens=batch_tokens, **more)


def take(made: Loader, count: int, position=None) -> list[tuple[list[Batch], dict]]:
    steps = made.steps(position)
    try:
        return [next(steps) for _ in range(count)]
    finally:
        steps.close()


def pairs_of(steps) -> list[tuple]:
    """Each pair in the order it came: its index, its source, what is read of its target and what is predicted."""
    results = []
    for batches, _ in steps:
        for batch in batches:
            labels = torch.full_like(batch.tokens.flatten(), -100)
            labels[batch.targets] = batch.labels
            for n, index in enumerate(batch.index):
                sides = [value.tokens[value.token_info.document == n].tolist() for value in (batch.source, batch)]
                results.append((index, *sides, labels.view_as(batch.tokens)[batch.token_info.document == n].tolist()))
    return results


def test_a_step_holds_rows_for_so_many_tokens_of_both_sides():
    for batches, _ in take(loader(), 8):
        assert sum(len(batch.tokens) for batch in batches) == 6
        assert sum(batch.read for batch in batches) <= 48 * 6


def test_batches_and_micro_batches_never_change_a_pair():
    whole = pairs_of(take(loader(), 12))
    assert whole == pairs_of(take(loader(48 * 3), 24))
    assert whole == pairs_of(take(loader(micro_tokens=48 * 2), 12))


def test_a_position_continues_exactly_into_the_next_epoch():
    steps = take(loader(), 45)
    for at in (1, 13, 44):
        rest = take(loader(), 45 - at, steps[at - 1][1])
        assert pairs_of(rest) == pairs_of(steps[at:])
    indices = [index for index, *_ in pairs_of(steps)]
    assert sorted(indices[:300]) == list(range(300))
    assert len(indices) > 300


@pytest.mark.parametrize("processes", [2, 3])
def test_several_processes_share_the_rows_of_a_step(processes: int):
    whole = take(loader(), 5)
    shares = [take(loader(share=(rank, processes)), 5) for rank in range(processes)]
    for number, step in enumerate(whole):
        parts = [pairs_of([share[number]]) for share in shares]
        assert sorted(pair for part in parts for pair in part) == sorted(pairs_of([step]))


def test_held_out_pairs_are_each_asked_once():
    objective = Objective(SEGMENTS, Translate(), (NextToken(),))
    for size in (48, 480):
        result = pairs_of([(list(heldout.batches(text(), objective, VOCABULARY, batch_tokens=size)), {})])
        assert sorted(index for index, *_ in result) == list(range(300))

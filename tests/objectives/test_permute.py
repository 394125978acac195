"""What is predicted, and who sees whom."""

import dataclasses
import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from clozeworks.core import counter_rng
from clozeworks.core.errors import RecipeError
from clozeworks.core.examples import NOTHING, RaggedBatch
from clozeworks.core.spec import check, from_dict, to_dict
from clozeworks.core.token_info import TokenInfo, visible
from clozeworks.data.batches.rows import Row, Source, collate
from clozeworks.evaluate.heldout import batches
from clozeworks.objectives.mask.units import joined, words
from clozeworks.objectives.objective import Objective
from clozeworks.objectives.permute import Permute
from clozeworks.objectives.segments import FullSentences, PairStream
from tests.objectives.layouts import VOCABULARY, Layout, chi_square, chosen_of, lay, layouts
from tests.toys import VOCABULARY as TOY
from tests.toys import Text

LAW = np.array([60, 30, 20, 15, 12]) / 137  # 1/n, renormalised


def permuted(clean: RaggedBatch, seed: int = 0, **fields) -> RaggedBatch:
    return Permute(**fields).corrupt(clean, counter_rng.fold(seed, np.arange(len(clean))), VOCABULARY)


def reused(clean: RaggedBatch, counts: list[int]) -> RaggedBatch:
    return dataclasses.replace(clean, fields={"reused": np.array(counts, dtype=np.int64)})


def sight(ragged: RaggedBatch, at: int = 0) -> np.ndarray:
    """[n, n] bool: by the model's own predicate, i sees j."""
    assert ragged.order is not None
    order = torch.from_numpy(ragged.order[ragged.first[at] : ragged.first[at + 1]].astype(np.int64))[None]
    side = TokenInfo(torch.zeros_like(order), torch.zeros_like(order), order, order)
    return visible(side, side)[0].numpy()


@settings(deadline=None, max_examples=150)
@given(layouts, st.integers(1, 8), st.none() | st.integers(1, 9), st.booleans(), st.data())
def test_the_text_stays_and_its_targets_are_labelled(layout: Layout, context: int, block: int | None, bare, data):
    clean = lay(layout, bare=bare)
    if data.draw(st.booleans()):
        clean = reused(clean, [data.draw(st.integers(0, n + 2)) for n in clean.lengths.tolist()])
    read_rows = permuted(clean, context=context, block=block)
    for name in ("tokens", "first", "segment", "special", "word_starts"):
        assert getattr(read_rows, name) is getattr(clean, name)
    target = read_rows.labels != NOTHING
    assert (read_rows.labels.dtype, read_rows.order.dtype) == (np.int32, np.int32)
    assert np.array_equal(read_rows.labels[target], clean.tokens[target])
    assert not (target & clean.special).any()
    for at, mine in enumerate(chosen_of(read_rows)):
        here = slice(clean.first[at], clean.first[at + 1])
        there = int((~clean.special[here]).sum())
        assert mine.sum() == min(max(1, round(len(mine) / context)), there)
        ranked = (mine | clean.special[here]).nonzero()[0]
        assert len(set(read_rows.order[here][ranked].tolist())) == len(ranked), "each a number of its own"


@settings(deadline=None, max_examples=60)
@given(layouts, st.integers(0, 5), st.booleans(), st.data())
def test_an_example_does_not_depend_on_its_company(layout: Layout, seed: int, halves: bool, data):
    clean = lay(layout)
    if halves:
        clean = reused(clean, [n // 2 for n in clean.lengths.tolist()])
    keys = counter_rng.fold(seed, np.arange(len(clean)))
    together = Permute().corrupt(clean, keys, VOCABULARY)
    at = data.draw(st.integers(0, len(layout) - 1))
    here = slice(clean.first[at], clean.first[at + 1])
    columns = {name: getattr(clean, name)[here] for name in ("tokens", "segment", "special", "word_starts", "labels")}
    fields = {name: values[at : at + 1] for name, values in clean.fields.items()}
    mine = RaggedBatch(first=np.array([0, here.stop - here.start]), fields=fields, **columns)
    alone = Permute().corrupt(mine, keys[at : at + 1], VOCABULARY)
    assert np.array_equal(together.labels[here], alone.labels)
    assert np.array_equal(together.order[here], alone.order)


def test_the_number_of_the_paper():
    """85 of 512, 43 of them in the half that comes again."""
    clean = lay([[[1] * 509, []]], times=20)
    read_rows = permuted(clean)
    assert {int(each.sum()) for each in chosen_of(read_rows)} == {85}
    read_rows = permuted(reused(clean, [256] * 20))
    assert {(int(each[:256].sum()), int(each[256:].sum())) for each in chosen_of(read_rows)} == {(43, 42)}
    assert int((permuted(lay([[[2, 1, 3] * 20]])).labels != NOTHING).sum()) == round(122 / 6)


def test_four_tokens_have_twenty_four_orders():
    """x3 stands at each rank in 6 of them, and has 8 different contexts."""
    clean = lay([[[1] * 4]], bare=True, times=24_000)
    orders = permuted(clean, context=1).order.reshape(-1, 4)
    counts = Counter(map(tuple, orders.tolist()))
    assert set(counts) == set(itertools.permutations(range(1, 5)))
    assert Counter(order[2] for order in counts) == dict.fromkeys(range(1, 5), 6)
    assert {tuple(number < order[2] for number in order) for order in counts} == {
        (a, b, False, d) for a, b, d in itertools.product([False, True], repeat=3)
    }
    assert abs(chi_square(np.array(list(counts.values())), np.full(24, 1000))) < 4


def test_the_law_of_the_spans():
    """Words of one to four tokens; the text is long, so that none is cut."""
    clean = lay([[[1, 2, 1, 4] * 500]], bare=True, times=20)
    units = words(clean)
    begin, end = Permute().spans(units, joined(units, clean.segment), counter_rng.fold(3, np.arange(20)))
    counts = np.bincount(end - begin, minlength=6)[1:]
    assert abs(chi_square(counts, LAW * counts.sum())) < 4
    assert (LAW.round(3) == [0.438, 0.219, 0.146, 0.109, 0.088]).all()
    assert (end - begin).mean() == pytest.approx(2.19, abs=0.06)
    # one word in six
    assert (end - begin).sum() / len(units.at) == pytest.approx(1 / 6, rel=0.01)
    assert (begin[1:] >= end[:-1]).all()


def test_a_span_lies_anywhere_in_its_stretch():
    clean = lay([[[1] * 600]], bare=True, times=60)
    units = words(clean)
    begin, _ = Permute(longest=1).spans(units, joined(units, clean.segment), counter_rng.fold(0, np.arange(60)))
    assert len(begin) == 6000
    assert abs(chi_square(np.bincount(begin % 6), np.full(6, 1000))) < 4


def test_most_targets_are_whole_words_in_spans():
    clean = lay([[[1, 2, 1, 4] * 60]], times=100)
    target = permuted(clean).labels != NOTHING
    units = words(clean)
    of_word = np.add.reduceat(target[~clean.special], np.append(0, np.cumsum(units.sizes)[:-1]))
    broken = ((of_word > 0) & (of_word < units.sizes)).sum() / (of_word > 0).sum()
    assert broken < 0.12


def test_a_span_ends_with_its_piece():
    clean = lay([[[1] * 3, [1] * 3, [1] * 3]], times=300)
    units = words(clean)
    begin, end = Permute(context=1).spans(units, joined(units, clean.segment), counter_rng.fold(0, np.arange(300)))
    assert (begin // 3 == (end - 1) // 3).all()


def plain_mask(rank: list[int], target: list[bool], special: list[bool]) -> np.ndarray:
    """[n, n] bool: what may not be seen, by the rule of the released code, spelt out token by token."""
    n = len(rank)
    mask = np.zeros((n, n), dtype=bool)
    context = [not target[i] and not special[i] for i in range(n)]
    number = [-1 if context[i] else rank[i] for i in range(n)]
    for i, j in itertools.product(range(n), repeat=2):
        mine = number[i] if target[i] else number[i] + 1
        mask[i, j] = mine <= number[j] and not context[j]
    return mask


@settings(deadline=None, max_examples=60)
@given(layouts, st.none() | st.integers(1, 9), st.booleans(), st.integers(0, 5))
def test_sight_is_that_of_the_released_mask(layout: Layout, block: int | None, halves: bool, seed: int):
    clean = lay(layout, seed)
    half = [n // 2 for n in clean.lengths.tolist()] if halves else [0] * len(clean)
    read_rows = permuted(reused(clean, half) if halves else clean, seed, block=block)
    for at in range(len(clean)):
        here = slice(clean.first[at], clean.first[at + 1])
        order, special = read_rows.order[here].tolist(), clean.special[here].tolist()
        target = (read_rows.labels[here] != NOTHING).tolist()
        n, cut = len(order), half[at]
        hidden = np.zeros((n, n), dtype=bool)
        hidden[:cut, cut:] = True
        for part in (slice(0, cut), slice(cut, n)):
            hidden[part, part] = plain_mask(order[part], target[part], special[part])
        # The query stream is the mask as it is; the content stream also sees itself.
        content, query = sight(read_rows, at), np.array(order)[None, :] < np.array(order)[:, None]
        assert np.array_equal(content, ~hidden | np.eye(n, dtype=bool))
        assert np.array_equal(query[target], ~hidden[target])


def test_the_first_half_never_sees_the_second_which_sees_all_of_it():
    clean = reused(lay([[[1, 2] * 20, [3] * 4]], times=5), [31] * 5)
    read_rows = permuted(clean)
    for at in range(5):
        seen = sight(read_rows, at)
        assert not seen[:31, 31:].any()
        assert seen[31:, :31].all()


def test_blocks_are_ordered_alike_one_after_another():
    clean = lay([[[1] * 24]], bare=True)
    orders = permuted(clean, context=1, block=8).order.reshape(3, 8)
    assert np.array_equal(orders[1], orders[0] + 8)
    assert np.array_equal(orders[2], orders[0] + 16)
    assert sorted(orders[0].tolist()) == list(range(1, 9))
    assert orders[0].tolist() != list(range(1, 9))


def test_packed_examples_have_orders_of_their_own():
    source = Source(Text.random(20), FullSentences(length=33), Permute(), TOY, 0)
    epoch = source.epoch(0)
    batch = collate([Row(epoch, np.arange(3)), Row(epoch, np.array([5]))])
    assert batch.kind == "order"
    read_rows = epoch.examples(np.array([0, 1, 2, 5]))
    assert read_rows.order is not None
    assert batch.labels is not None
    assert np.array_equal(
        batch.token_info.appears.flatten()[batch.token_info.document.flatten() >= 0].numpy(), read_rows.order
    )
    assert np.array_equal(batch.labels.numpy(), batch.tokens.flatten()[batch.targets].numpy())
    seen = visible(batch.token_info, batch.token_info)[0]
    first = int(read_rows.first[1])
    assert not seen[:first, first:].any()
    assert not seen[first : int(read_rows.first[2]), :first].any()


@pytest.mark.parametrize("segments", [FullSentences(33), PairStream(33, streams=4, reuse=12)], ids=repr)
def test_held_out_batches_are_the_same_whatever_their_size(segments):
    objective = Objective(segments, Permute(), ())

    def read_rows(tokens: int) -> list[tuple[list[int], list[int]]]:
        return [
            (row.tolist(), order.tolist())
            for batch in batches(Text.random(12), objective, TOY, batch_tokens=tokens)
            for row, order in zip(batch.tokens, batch.token_info.appears, strict=True)
            if batch.tokens.shape[1] == 33
        ]

    assert read_rows(66) == read_rows(66)
    small, large = ({str(each) for each in read_rows(tokens)} for tokens in (33, 33 * 4))
    assert small <= large


def test_the_smallest_examples():
    for bare in (False, True):
        clean = lay([[], [[]], [[1]], [[], []], [[6]], [[], [1]]], bare=bare)
        expected = [False, False, True, False, True, True]
        assert [bool(each.any()) for each in chosen_of(permuted(clean))] == expected
        assert [bool(each.any()) for each in chosen_of(permuted(reused(clean, [1] * 6)))] == expected
    assert len(permuted(lay([]))) == 0
    assert len(permuted(reused(lay([]), []))) == 0


def test_a_spec_is_data():
    part = Permute(context=4, longest=3, block=128)
    check(part)
    assert from_dict(to_dict(part)) == part


@pytest.mark.parametrize("wrong", [Permute(context=0), Permute(longest=0), Permute(block=0), Permute(copies=0)])
def test_what_cannot_be_is_refused(wrong):
    with pytest.raises(RecipeError, match=r"recipe.*is usual"):
        check(wrong, "recipe")

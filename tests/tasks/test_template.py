"""Specials around texts, and what is cut where there is no room."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.data.tokens.tokenizer import Tokenizer
from clozeworks.tasks.template import InputTemplate, cuts


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.train(["a b c d e f g h i j k"], vocab=64)


def test_one_text_and_two(tokenizer: Tokenizer):
    a, b = tokenizer.encode(["a b c", "d e"])
    one = InputTemplate().lay(tokenizer, [a]).examples
    assert [tokenizer.token(t) for t in one.tokens] == ["[CLS]", "a", "b", "c", "[SEP]"]
    assert one.segment.tolist() == [0] * 5
    filled = InputTemplate().lay(tokenizer, [a, b], [b, a])
    two = filled.examples
    assert [tokenizer.token(t) for t in two.tokens[:8]] == ["[CLS]", "a", "b", "c", "[SEP]", "d", "e", "[SEP]"]
    assert two.segment[:8].tolist() == [0, 0, 0, 0, 0, 1, 1, 1]
    assert two.first.tolist() == [0, 8, 16]
    assert filled.side[:8].tolist() == [-1, 0, 0, 0, -1, 1, 1, -1]
    assert filled.at[:8].tolist() == [-1, 0, 1, 2, -1, 0, 1, -1]
    assert two.special.tolist() == (filled.side < 0).tolist()


def test_a_summary_that_comes_last_has_a_segment_of_its_own(tokenizer: Tokenizer):
    a, b = tokenizer.encode(["a b", "c"])
    template = InputTemplate((), ("[SEP]",), ("[SEP]", "[CLS]"), "last", own_segment=2, marks=True)
    two = template.lay(tokenizer, [a], [b]).examples
    assert [tokenizer.token(t) for t in two.tokens] == ["a", "b", "[SEP]", "c", "[SEP]", "[CLS]"]
    assert two.segment.tolist() == [0, 0, 0, 1, 1, 2]
    assert two.marked is not None
    assert two.marked.tolist() == [False] * 5 + [True]
    question = template.lay(tokenizer, [a], [b], mark="first").examples.marked
    assert question is not None
    assert question.tolist() == [True, True, False, False, False, True]
    option = template.lay(tokenizer, [a], [b], mark="second").examples.marked
    assert option is not None
    assert option.tolist() == [False] * 3 + [True] * 3


def test_two_texts_are_found_again_in_rows_of_ids(tokenizer: Tokenizer):
    a, b = tokenizer.encode(["a b", "c d e"])
    template = InputTemplate(("[CLS]",), ("[SEP]", "[SEP]"), ("[SEP]",))
    rows = [template.lay(tokenizer, [x], [y]) for x, y in ((a, b), (b, a))]
    tokens = torch.from_numpy(np.stack([row.examples.tokens for row in rows]))
    first, second = template.sides(tokens, tokenizer)
    for at, row in enumerate(rows):
        assert first[at].tolist() == [True, *(row.side[1:] == 0)]
        assert second[at].tolist() == [*(row.side[:-1] == 1), True]


def test_nothing_is_longer_than_the_frame(tokenizer: Tokenizer):
    a, b = tokenizer.encode(["a b c d e f", "g h i j"])
    template = InputTemplate(length=9)
    kept = {cut: template.lay(tokenizer, [a], [b], cut).at.tolist() for cut in ("longer", "first", "second")}
    assert kept["longer"] == [-1, 0, 1, 2, -1, 0, 1, 2, -1]
    assert kept["first"] == [-1, 0, 1, -1, 0, 1, 2, 3, -1]
    assert kept["second"] == [-1, 0, 1, 2, 3, 4, 5, -1, -1]


@given(st.integers(0, 40), st.integers(0, 40), st.integers(2, 60), st.sampled_from(["longer", "first", "second"]))
def test_cuts_fill_the_room_and_no_more(a: int, b: int, room: int, cut):
    left, right = cuts(a, b, room, cut)
    assert 0 <= left <= a
    assert 0 <= right <= b
    assert left + right == min(a + b, room)
    if cut == "longer" and a + b > room:
        assert abs(left - right) <= 1 or (left == a and left < right) or (right == b and right < left)


def test_no_text_is_no_trouble(tokenizer: Tokenizer):
    empty = InputTemplate().lay(tokenizer, [])
    assert len(empty.examples) == 0
    assert empty.at.dtype == np.int64

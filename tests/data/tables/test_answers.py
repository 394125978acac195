"""Answers are where they are said to be, or where they are."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.tables import read_table
from clozeworks.data.tables.answers import answers_of

CONTEXT = "the cat saw the dog"


def locate(answers: object, **row: object) -> tuple[list[dict], Counter[str]]:
    counts: Counter[str] = Counter()
    return answers_of({"answers": answers, **row}, "answers", CONTEXT, "a, question q", counts), counts


def test_the_usual_forms():
    right = [{"text": "cat", "start": 4}]
    for given_ in (
        [{"text": "cat", "answer_start": 4}],
        [{"text": "cat", "start": 4}],
        {"text": ["cat"], "answer_start": [4]},
        {"text": "cat", "answer_start": 4},
        '[{"text": "cat", "start": 4}]',
    ):
        assert locate(given_) == (right, Counter())
    assert locate("cat", answer_start="4") == (right, Counter())
    assert locate([]) == locate({"text": [], "answer_start": []}) == ([], Counter())
    assert locate([], is_impossible=True) == locate(None, is_impossible="true") == ([], Counter())


def test_a_wrong_start_is_mended_and_counted():
    assert locate([{"text": "cat", "start": 5}]) == ([{"text": "cat", "start": 4}], Counter(moved=1))
    assert locate([{"text": "cat", "start": -1}]) == ([{"text": "cat", "start": 4}], Counter(moved=1))
    assert locate(["dog"]) == ([{"text": "dog", "start": 16}], Counter(moved=1))
    assert locate([{"text": "the", "start": 10}]) == ([{"text": "the", "start": 12}], Counter(nearest=1))
    row = {"id": "q", "question": "?", "context": CONTEXT}
    notes = read_table([{**row, "answers": [{"text": "cat", "start": 9}]}], ("question", "context"), ("answers",)).notes
    assert notes == ["rows: 1 answer did not begin where the file says: the place where it stands was taken"]


@pytest.mark.parametrize(
    ("answers", "row", "message"),
    [
        ([{"text": "cow", "start": 4}], {}, "a, question q: the answer 'cow' is not in the passage"),
        ([{"text": " ", "start": 4}], {}, "an empty answer"),
        ([{"text": "cat"}], {"is_impossible": True}, "an answer, and is_impossible is true"),
        (None, {}, "nothing in column 'answers'"),
        (" ", {}, "nothing in column 'answers'"),
        (3, {}, "column 'answers' holds an int"),
        ([3], {}, "column 'answers' holds a list of int"),
        ([{"text": None}], {}, "column 'answers' holds a list of dict"),
        ({"text": ["a", "b"], "answer_start": [1]}, {}, "2 answers and other starts"),
    ],
)
def test_what_is_no_answer_is_refused(answers, row, message: str):
    with pytest.raises(InputError, match=message):
        locate(json.loads(json.dumps(answers)), **row)


@given(st.text("ab ", min_size=1), st.data())
def test_an_answer_is_always_where_it_says(context: str, data):
    start = data.draw(st.integers(0, len(context) - 1))
    text = data.draw(st.integers(start + 1, len(context)).map(lambda end: context[start:end]))
    start_given = data.draw(st.integers(-2, len(context) + 2) | st.none())
    if text.strip():
        [one] = answers_of({"x": [{"text": text, "start": start_given}]}, "x", context, "", Counter())
        assert context[one["start"] :].startswith(one["text"])
        if start_given == start:
            assert one["start"] == start


@pytest.mark.parametrize("start", [16.0, "16.0", "16", 16])
def test_a_start_may_be_a_number_of_any_kind(start):
    context, counts = "one two one two one 1995", Counter()
    row = {"answers": [{"text": "one", "answer_start": start}]}
    assert answers_of(row, "answers", context, "here", counts) == [{"text": "one", "start": 16}]
    assert not counts


def test_answers_that_are_no_text_are_reported():
    for text in (1995, None):
        row = {"answers": {"text": [text], "answer_start": [3]}}
        with pytest.raises(InputError, match="answers with text and start are needed"):
            answers_of(row, "answers", "in 1995", "here", Counter())
    odd = {"answers": [{"text": "in", "start": "--5"}]}
    assert answers_of(odd, "answers", "in 1995", "here", Counter()) == [{"text": "in", "start": 0}]

"""Which column is which."""

import pytest

from clozeworks.core.errors import InputError
from clozeworks.data.tables.columns import USUAL, columns_for


def refusal(*given, **more) -> str:
    with pytest.raises(InputError) as caught:
        columns_for(*given, **more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("names", "wanted", "column"),
    [
        ("label review", "text label", "review label"),
        ("sentence label idx", "text label", "sentence label"),
        ("Text Class", "text label", "Text Class"),
        ("文本 标签", "text label", "文本 标签"),
        ("premise hypothesis label", "text_a text_b label|score", "premise hypothesis label"),
        ("question1 question2 is_duplicate", "text_a text_b label", "question1 question2 is_duplicate"),
        ("question sentence label", "text_a text_b label", "question sentence label"),
        ("Quality #1 ID #2 ID", "label", "Quality"),
        ("query title label", "text_a text_b label", "query title label"),
        ("sentence1 sentence2 similarity_score", "text_a text_b label|score", "sentence1 sentence2 similarity_score"),
        ("id tokens pos_tags chunk_tags ner_tags", "tokens tags", "tokens ner_tags"),
        ("words labels", "tokens tags", "words labels"),
        ("id title context question answers", "question context id answers", "question context id answers"),
        ("article question options answer", "context question choices answer", "article question options answer"),
        ("ctx endings label", "context choices answer", "ctx endings label"),
        ("text label sentence", "text label", "text label"),
        ("anchor positive negative", "text_a text_b text_c", "anchor positive negative"),
    ],
)
def test_usual_names_are_known(names: str, wanted: str, column: str):
    given = columns_for(names.split(), wanted.split())
    assert list(given.values()) == column.split()
    assert all(name in want.split("|") for name, want in zip(given, wanted.split(), strict=True))


def test_what_is_said_goes_before_what_is_usual():
    assert columns_for(["text", "body", "label"], ("text", "label"), {"text": "body"}) == {
        "text": "body",
        "label": "label",
    }
    assert columns_for(["a", "label"], ("text", "label"), {"text": "a"}) == {"text": "a", "label": "label"}
    both = columns_for(["text", "label", "b"], ("text", "label|score"), {"score": "b"})
    assert both == {"text": "text", "score": "b"}


def test_a_column_is_taken_once():
    assert "no column for score" in refusal(["text", "label"], ("text", "label", "score"))
    assert columns_for(["label", "text"], ("label", "text"), {"text": "label"}, optional=("label",)) == {
        "text": "label"
    }


def test_choices_in_columns_of_their_own():
    names = ["question", "option_a", "option_b", "option_c", "answer"]
    wanted = ("question", "choices", "answer")
    assert columns_for(names, wanted)["choices"] == "option_a,option_b,option_c"
    assert columns_for(names, wanted, {"choices": "option_b,option_c"})["choices"] == "option_b,option_c"
    assert "no column 'option_d'" in refusal(names, wanted, {"choices": "option_a,option_d"})


def test_a_wrong_column_is_named_with_those_that_exist():
    assert refusal(["review", "stars"], ("text", "label"), {"text": "reviews"}, "a.csv") == (
        "a.csv: no column 'reviews'; the columns are review, stars; did you mean review? (columns text=NAME)"
    )
    assert refusal(["text", "stars"], ("text", "label"), None, "a.csv") == (
        "a.csv: no column for label; the columns are text, stars; choose one of stars, text (columns label=NAME)"
    )
    assert "columns texts=review; this task reads text, label; did you mean text?" in refusal(
        ["review"], ("text", "label"), {"texts": "review"}
    )
    assert "does the first line name no columns?" in refusal(["很好", "1"], ("text", "label"))
    assert "the rows have no named column" in refusal([], ("text", "label"))


def test_optional_columns_may_be_missing():
    assert columns_for(["text"], ("text", "id"), optional=("id",)) == {"text": "text"}


def test_every_column_is_its_own_first_name():
    assert all(usual.split()[0] == name for name, usual in USUAL.items())

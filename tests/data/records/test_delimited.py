"""Tables of cells, quoted or not."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clozeworks.core.errors import InputError
from clozeworks.data.records.delimited import read_delimited
from clozeworks.data.records.lines import Lines
from clozeworks.data.records.source import select_named


def rows(text: str, kind: str = ".csv") -> list[tuple[int, dict[str, str]]]:
    return list(read_delimited(Lines(io.BytesIO(text.encode()), "a"), kind, select_named))


def refusal(text: str, kind: str = ".csv") -> str:
    with pytest.raises(InputError) as caught:
        rows(text, kind)
    return str(caught.value)


def test_rows_have_the_number_of_their_first_line():
    assert rows('text,n\n"one\ntwo",1\n\nthree,2\n') == [
        (2, {"text": "one\ntwo", "n": "1"}),
        (5, {"text": "three", "n": "2"}),
    ]
    assert rows('text\tn\n"one\ntwo\t"\t1\n\nthree\t2\n', ".tsv") == [
        (2, {"text": "one\ntwo\t", "n": "1"}), (5, {"text": "three", "n": "2"})
    ]  # fmt: skip


def test_other_marks_are_known_by_the_header():
    for mark in ";|\t":
        assert rows(f"text{mark}n\na, b{mark}1\n") == [(2, {"text": "a, b", "n": "1"})]
    assert rows("text\na\n") == [(2, {"text": "a"})]


def test_a_column_without_a_name_is_left_out():
    assert rows(",text\n0,a\n") == [(2, {"text": "a"})]


def test_quotes_in_a_tsv_are_characters_where_they_are_not_the_rule_of_csv():
    text = 'a\tb\n"He said\t"yes" and "no"\n5" disk\t"open\n"all, quoted"\t"a ""b"""\n'
    assert [list(row.values()) for _, row in rows(text, ".tsv")] == [
        ['"He said', '"yes" and "no"'], ['5" disk', '"open'], ["all, quoted", 'a "b"'],
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("a,b\n1\n", ".csv", "a, line 2: 1 cell under 2 names"),
        ("a,b\n1,2,3\n", ".csv", "a, line 2: 3 cells under 2 names"),
        ('a,b\n1,2\n"open,2\nx,y\n', ".csv", "a, line 3: unexpected end of data"),
        ('a,b\n"x"y,2\n', ".csv", "a, line 2"),
        ("a\tb\n1\n", ".tsv", "a, line 2: 1 cell under 2 names"),
        ('a\tb\n"open\nx\ty\tz\n', ".tsv", "a, line 2: 1 cell under 2 names"),
        ("a,a\n1,2\n", ".csv", "two columns are called 'a'"),
    ],
)
def test_uneven_rows_are_refused(text: str, kind: str, message: str):
    assert message in refusal(text, kind)


def test_an_open_quote_at_the_end_is_one_only_where_the_next_line_is_no_row():
    assert [list(row.values()) for _, row in rows('a\tb\n1\t"open\n2\tend"\n', ".tsv")] == [
        ["1", '"open'],
        ["2", 'end"'],
    ]
    assert [list(row.values()) for _, row in rows('a\tb\n1\t"open\nend"\n2\tx\n', ".tsv")] == [
        ["1", "open\nend"],
        ["2", "x"],
    ]
    assert [list(row.values()) for _, row in rows('a\tb\n1\t"open\n\n2\tx\n', ".tsv")] == [["1", '"open'], ["2", "x"]]


CELL = st.text(st.characters(exclude_categories=("Cs", "Cc"), include_characters='\n\t,;"'), max_size=12)


@given(st.lists(st.tuples(CELL, CELL), min_size=1, max_size=5), st.sampled_from([".csv", ".tsv"]), st.booleans())
def test_what_csv_writes_is_read_back(cells, kind: str, all_quoted: bool):
    stream = io.StringIO(newline="")
    quoting = csv.QUOTE_ALL if all_quoted else csv.QUOTE_MINIMAL
    writer = csv.writer(stream, delimiter="," if kind == ".csv" else "\t", quoting=quoting, lineterminator="\n")
    writer.writerows([("x", "y"), *cells])
    try:
        read_back = [(row["x"], row["y"]) for _, row in rows(stream.getvalue(), kind)]
    except InputError:
        read_back = None
    ambiguous = kind == ".tsv" and any("\n" in b and "\t" in b for _, b in cells)  # its second line may be a row
    assert ambiguous or read_back == cells

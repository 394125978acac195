"""Findings in words: shares, and one of a thing."""

from hypothesis import given
from hypothesis import strategies as st

from clozeworks.data.checks.finding import share
from tests.data.checks.samples import look, prose, reports, rows


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_shares_are_never_rounded_to_nothing_or_all(part, whole):
    text = share(min(part, whole), whole)
    assert (text == "0%") == (part == 0)
    assert (text == "100%") == (part >= whole)


def test_one_of_a_thing_is_reported_as_one(tmp_path):
    report = look(tmp_path, rows(*({"text": text} for text in prose()), {"text": ""}), "a.jsonl")
    assert reports(report, "1 row has no text in 'text' and is passed over")
    report = look(tmp_path, rows(*({"text": text} for text in prose()), 3), "a.jsonl", errors="skip")
    assert reports(report, "cannot be read and is left out")
